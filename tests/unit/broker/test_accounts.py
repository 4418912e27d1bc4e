"""Access control: the files of both generations, and each way in which a request is refused."""

from __future__ import annotations

import json

import pytest

from rmqtool.broker.accounts import Denied, Rules, address_matcher, parse_yaml, read_plain, read_policies
from rmqtool.errors import UsageError
from rmqtool.remoting.command import RemotingCommand
from rmqtool.remoting.requests import REQUESTS
from rmqtool.remoting.signature import sign
from tests.support.wire_client import heartbeat, pull_fields, send_fields

# As upstream ships it, but for the names.
PLAIN = """
# the addresses that need no account
globalWhiteRemoteAddresses:
  - 10.10.103.*
  - 192.168.0.1-20

accounts:
  - accessKey: RocketMQ
    secretKey: 12345678
    whiteRemoteAddress:
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms:
      - topicA=DENY
      - topicB=PUB|SUB
      - topicC=SUB
    groupPerms:
      # the group should convert to retry topic
      - groupA=DENY
      - groupB=PUB|SUB

  - accessKey: "rocketmq2"
    secretKey: '12345678'
    whiteRemoteAddress: 192.168.1.*
    # if it is admin, it could access all resources
    admin: true
"""
POLICIES = {
    "users": [
        {"username": "root", "password": "rootpass", "userType": "Super", "userStatus": "enable"},
        {"username": "app", "password": "apppass", "userType": "Normal"},
        {"username": "old", "password": "oldpass", "userType": "Normal", "userStatus": "disable"},
    ],
    "acls": [
        {
            "subject": "User:app",
            "policies": [
                {
                    "policyType": "Custom",
                    "entries": [
                        {"resource": "Topic:order*", "actions": ["Pub", "Sub"], "sourceIps": [], "decision": "Allow"},
                        {"resource": "Topic:orderSecret", "actions": ["All"], "decision": "Deny"},
                        {"resource": "Group:G", "actions": ["Sub"], "sourceIps": ["10.0.0.*"], "decision": "Allow"},
                    ],
                }
            ],
        }
    ],
}
SEND, PULL, DELETE, QUERY_OFFSET = 310, 11, 215, 14
HEAD = "org.apache.rocketmq.acl.common.AclException: "


def fields(code: int, topic: str, group: str = "groupB") -> dict[str, str]:
    if code == SEND:
        return {name: str(value).lower() for name, value in send_fields("").items()} | {
            "b": topic,
            "a": "P",
            "c": "TBW102",
        }
    if code == DELETE:
        return {"topic": topic}
    if code == PULL:
        return {name: str(value) for name, value in pull_fields(topic, group=group).items()}
    return {"consumerGroup": group, "topic": topic, "queueId": "0"}


def judge(
    rules: Rules,
    code: int,
    key: tuple[str, str] | None,
    topic: str = "topicB",
    group: str = "groupB",
    host: str = "127.0.0.1",
    body: bytes = b"",
) -> tuple[int, str] | None:
    """Return the code and remark with which a request is refused."""
    command = RemotingCommand(code, fields(code, topic, group) if code != 34 else {}, body)
    if key is not None:
        command = sign(command, *key)
    return verdict(rules, command, host)


def verdict(rules: Rules, command: RemotingCommand, host: str = "127.0.0.1") -> tuple[int, str] | None:
    row = REQUESTS[command.code]
    try:
        rules.check(command, row.request.decode(command.ext, short=row.short), host)
    except Denied as denied:
        return int(denied.code), denied.remark
    return None


APP, ADMIN = ("RocketMQ", "12345678"), ("rocketmq2", "12345678")


def test_plain_accounts_have_the_rights_of_their_lists() -> None:
    rules = read_plain(PLAIN)
    assert judge(rules, SEND, APP) is None
    assert judge(rules, PULL, APP) is None
    assert judge(rules, PULL, APP, "topicC") is None
    assert judge(rules, SEND, APP, "topicC") == (1, HEAD + "No default permission for topic:topicC")
    assert judge(rules, SEND, APP, "topicA") == (1, HEAD + "No default permission for topic:topicA")
    assert judge(rules, SEND, APP, "other") == (1, HEAD + "No default permission for topic:other")
    assert judge(rules, PULL, APP, "topicB", "groupA") == (1, HEAD + "No default permission for group:groupA")
    assert judge(rules, PULL, APP, "topicB", "groupZ") is None
    # 4.x asks for a signature only.
    assert judge(rules, QUERY_OFFSET, APP, "topicA", "groupA") is None
    assert judge(rules, 34, APP, body=heartbeat("c", "groupB", {"topicC": "*"})) is None
    assert judge(rules, 34, APP, body=heartbeat("c", "groupA", {"topicC": "*"})) is not None


def test_plain_refusals_are_upstreams() -> None:
    rules = read_plain(PLAIN)
    assert judge(rules, SEND, None) == (1, HEAD + "No accessKey is configured")
    assert judge(rules, SEND, ("nobody1", "12345678")) == (1, HEAD + "No acl config for nobody1")
    assert judge(rules, SEND, ("RocketMQ", "87654321")) == (1, HEAD + "Check signature failed for accessKey=RocketMQ")
    need = HEAD + "Need admin permission for request code=215, but accessKey=RocketMQ is not"
    assert judge(rules, DELETE, APP) == (1, need)
    assert judge(rules, DELETE, ADMIN) is None
    assert judge(rules, SEND, ADMIN, "other") is None


def test_white_addresses_need_no_signature() -> None:
    rules = read_plain(PLAIN)
    for host, passes in (
        ("10.10.103.9", True),
        ("10.10.104.9", False),
        ("192.168.0.20", True),
        ("192.168.0.21", False),
    ):
        assert (judge(rules, SEND, None, host=host) is None) is passes, host
    wrong = ("rocketmq2", "wrong-secret")
    assert judge(rules, SEND, wrong, host="192.168.1.7") is None
    assert judge(rules, SEND, wrong, host="192.168.2.7") is not None


def test_each_bit_of_a_signed_request_counts() -> None:
    rules = read_plain(PLAIN)
    command = sign(RemotingCommand(SEND, fields(SEND, "topicB"), b"body"), *APP)
    assert verdict(rules, command) is None
    refused = 0
    for at in range(len(command.body) * 8):
        body = bytearray(command.body)
        body[at // 8] ^= 1 << at % 8
        refused += verdict(rules, command.replaced(body=bytes(body))) is not None
    assert refused == 32
    for name in ("i", "b", "Signature"):
        changed = {**command.ext, name: command.ext.get(name, "") + "A"}
        assert verdict(rules, command.replaced(ext_fields=changed)) is not None, name


def test_users_and_policies() -> None:
    rules = read_policies(json.dumps(POLICIES), "DefaultCluster")
    app, root = ("app", "apppass"), ("root", "rootpass")
    assert judge(rules, SEND, app, "orders") is None
    assert judge(rules, SEND, root, "anything") is None
    assert judge(rules, DELETE, root, "anything") is None
    no, unmatched = "User:app has no permission to access ", "from 127.0.0.1, no matched policies."
    assert judge(rules, SEND, app, "bills") == (16, f"{no}Topic:bills {unmatched}")
    # The whole name is more specific than the prefix.
    assert judge(rules, SEND, app, "orderSecret") == (
        16,
        no + "Topic:orderSecret from 127.0.0.1, the decision is deny.",
    )
    assert judge(rules, PULL, app, "orders", "G", "10.0.0.7") is None
    assert judge(rules, PULL, app, "orders", "G", "10.0.1.7") == (
        16,
        no + "Group:G from 10.0.1.7, no matched policies.",
    )
    assert judge(rules, DELETE, app, "orders") == (16, f"{no}Topic:orders {unmatched}")
    assert judge(rules, SEND, None, "orders") == (16, "username cannot be null.")
    assert judge(rules, SEND, ("x", "y"), "orders") == (16, "User:x is not found.")
    assert judge(rules, SEND, ("old", "oldpass"), "orders") == (16, "User:old is disabled.")
    assert judge(rules, SEND, ("app", "wrong"), "orders") == (16, "check signature failed.")


def test_a_user_without_a_password_is_refused() -> None:
    """Anybody can sign with an empty key."""
    rules = read_policies(json.dumps({"users": [{"username": "blank", "userType": "Super"}]}), "DefaultCluster")
    assert judge(rules, SEND, ("blank", ""), "orders") == (16, "check signature failed.")


@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [
        ("", [], ["127.0.0.1"]),
        ("*", ["1.2.3.4", "::1"], []),
        ("1.2.3.4,5.6.7.8", ["1.2.3.4", "5.6.7.8"], ["1.2.3.5"]),
        ("1.2.3.{4,9}", ["1.2.3.4", "1.2.3.9"], ["1.2.3.49"]),
        ("1.2.*.*", ["1.2.0.255"], ["1.3.0.255"]),
        ("fe80:0:0:0:0:0:0:*", ["fe80:0:0:0:0:0:0:A1"], ["fe81:0:0:0:0:0:0:a1"]),
    ],
)
def test_addresses(pattern: str, inside: list[str], outside: list[str]) -> None:
    matches = address_matcher(pattern)
    assert all(map(matches, inside))
    assert not any(map(matches, outside))


@pytest.mark.parametrize(
    "text", ["accounts: [a, b]", "accounts:\n\t- accessKey: a", "- a\n  b", "a\n", "accounts: &x\n", "other: 1\n"]
)
def test_what_is_not_read_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        read_plain(text)


def test_forms_of_yaml() -> None:
    assert parse_yaml("a: 1 # one\nb:\n- x\n- 'y # z'\nc:\n  d: \"e: f\"\n  g:\n") == {
        "a": 1,
        "b": ["x", "y # z"],
        "c": {"d": "e: f", "g": None},
    }


def test_a_secret_may_hold_a_number_sign() -> None:
    text = "accounts:\n- {accessKey: 'producer', secretKey: 'twelve # 345'}\n"
    rules = read_plain(text)
    assert judge(rules, SEND, ("producer", "twelve # 345"), "orders") != judge(
        rules, SEND, ("producer", "twelve"), "orders"
    )


def test_an_error_of_yaml_does_not_show_a_secret() -> None:
    with pytest.raises(UsageError, match="line 2") as raised:
        read_plain("accounts:\n- {accessKey: producer, secretKey: hidden-words: x\n")
    assert "hidden" not in raised.value.message


@pytest.mark.parametrize("secret", ["*hidden-secret", "!hidden-secret"])
def test_no_word_of_a_secret_is_quoted(secret: str) -> None:
    """Without quotes these are an alias and a tag of YAML, which its errors name."""
    with pytest.raises(UsageError, match="line 1") as raised:
        parse_yaml(f"secretKey: {secret}\n")
    assert "hidden" not in raised.value.message


def test_a_text_in_place_of_the_list_of_white_addresses_is_refused() -> None:
    """Taken letter by letter, its asterisk would be a pattern that lets everybody in."""
    text = PLAIN.replace("globalWhiteRemoteAddresses:\n  - 10.10.103.*\n  - 192.168.0.1-20\n", "")
    with pytest.raises(UsageError, match="globalWhiteRemoteAddresses is not a list"):
        read_plain("globalWhiteRemoteAddresses: 10.10.103.*\n" + text)
