"""Lines about commands: what they name, what they mask, what they leave out."""

from __future__ import annotations

from rmqtool.remoting.command import ANSWER, ONEWAY, Language, RemotingCommand
from rmqtool.remoting.requests import REQUESTS
from rmqtool.remoting.wire_log import frame_of, line_of


def test_a_request_and_its_answer() -> None:
    ask = RemotingCommand(14, {"consumerGroup": "G", "topic": "T", "queueId": "0"}, opaque=7, version=479)
    assert line_of(ask) == "7 request 14 QUERY_CONSUMER_OFFSET consumerGroup=G topic=T queueId=0"
    answer = RemotingCommand(22, None, opaque=7, flag=ANSWER, remark="Not found, V3_0_6")
    assert line_of(answer, REQUESTS[14]) == (
        '7 answer 22 QUERY_NOT_FOUND to QUERY_CONSUMER_OFFSET remark="Not found, V3_0_6"'
    )
    assert frame_of(ask)["version"] == "5.3.3"


def test_what_is_unknown_is_a_number() -> None:
    frame = frame_of(RemotingCommand(3442, flag=ONEWAY, version=63, language=Language.CPP))
    assert frame == {
        "code": 3442, "name": "3442", "opaque": 0, "kind": "oneway", "language": "CPP", "version": 63,
        "header": "JSON", "fields": {},
    }  # fmt: skip


def test_secrets_are_masked() -> None:
    fields = {"a": "PG", "AccessKey": "user", "Signature": "c2ln", "SecurityToken": "t", "secretKey": "s"}
    line = line_of(RemotingCommand(310, fields, b"hello"))
    assert line == (
        "0 request 310 SEND_MESSAGE_V2 a=PG AccessKey=user Signature=*** SecurityToken=*** secretKey=*** body 5 bytes"
    )
    user = RemotingCommand(3001, {"username": "u"}, b'{"password":"hush","username":"u"}')
    assert frame_of(user)["body"] == '{"password":"***","username":"u"}'
    config = b'brokerName=a\nsslKeyPassword=hush\ninitAuthenticationUser={"username":"u","password":"hush"}\n'
    config += b"secret.key = hush\n"
    answer = RemotingCommand(0, {}, config, flag=ANSWER)
    assert frame_of(answer, REQUESTS[26])["body"] == (
        "brokerName=a\nsslKeyPassword=***\ninitAuthenticationUser=***\nsecret.key =***\n"
    )


def test_bodies_of_messages_are_counted_only() -> None:
    assert "body" not in frame_of(RemotingCommand(310, {}, b'{"password":"x"}'))
    assert "body" not in frame_of(RemotingCommand(34, {}, b"{"))
    assert frame_of(RemotingCommand(0, {}, b"{}", flag=ANSWER)).get("body") is None


def test_a_line_stays_a_line() -> None:
    line = line_of(RemotingCommand(105, {"topic": "a\nb" + "x" * 500, "e": ""}))
    assert line.isprintable()
    assert 'e=""' in line
    assert len(line) < 300
