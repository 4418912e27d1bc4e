"""Signatures: the vector of the specification, both forms of a unique key query, and what is refused."""

from __future__ import annotations

from rmqtool.remoting.command import RemotingCommand
from rmqtool.remoting.signature import is_signed, sign, signature, signed_content

SECRET = "12345678"
# A send of a 4.9.8 client, and what it signed.
SEND = {
    "a": "PGACL", "b": "TopicTest", "c": "TBW102", "d": "4", "e": "3", "f": "0", "g": "1794989750536", "h": "0",
    "i": "KEYS\x01KeyA\x02UNIQ_KEY\x017F0000012C1830946E09595211060000\x02WAIT\x01true\x02TAGS\x01TagA",
    "j": "0", "k": "false", "m": "false", "n": "broker-a",
}  # fmt: skip
SIGNED = "WZzEql48gPknlzu4+NJbixePTms="


def test_a_client_signed_this() -> None:
    command = sign(RemotingCommand(310, SEND, b"hello"), "rocketmq2", SECRET)
    assert command.ext["Signature"] == SIGNED
    assert command.ext["AccessKey"] == "rocketmq2"
    assert is_signed(command, SECRET)
    assert not is_signed(command, "12345679")


def test_content_is_the_values_by_name_and_the_body() -> None:
    assert signed_content({"b": "2", "AccessKey": "k", "a": "1", "Signature": "s"}, b"\xff") == b"k12\xff"
    # Java compares names by the halves of a character beyond the first plane.
    assert signed_content({"\uff00": "b", "\U0001f600": "a"}, b"") == b"ab"


def test_a_unique_key_query_is_taken_in_both_forms() -> None:
    query = {"topic": "T", "key": "K", "_UNIQUE_KEY_QUERY": "true", "AccessKey": "u"}
    for with_query in (True, False):
        given = signature(SECRET, signed_content(query, b"", with_query=with_query))
        command = RemotingCommand(12, {**query, "Signature": given})
        assert is_signed(command, SECRET)
        assert not is_signed(command.replaced(ext_fields={**command.ext, "topic": "U"}), SECRET)
    # The query itself must not change either, where it is signed.
    signed = sign(RemotingCommand(12, query), "u", SECRET)
    assert not is_signed(signed.replaced(ext_fields={**signed.ext, "_UNIQUE_KEY_QUERY": "false"}), SECRET)


def test_what_is_not_signed_is_refused() -> None:
    assert not is_signed(RemotingCommand(310, SEND), SECRET)
    assert not is_signed(RemotingCommand(310), SECRET)
    assert not is_signed(RemotingCommand(310, {**SEND, "Signature": ""}), SECRET)
    assert not is_signed(RemotingCommand(310, {**SEND, "Signature": "é\ud800"}), SECRET)
