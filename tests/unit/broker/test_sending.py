"""What a producer checks, adds and tries again: §12.2."""

from __future__ import annotations

import pytest

from rmqtool.broker.producer.client import MAX_MESSAGE_SIZE, Outgoing, UniqKeys, check_batch, check_message, is_retried
from rmqtool.config import Version
from rmqtool.formats.response_codes import ResponseCode
from tests.support.manual_clock import ManualClock


def test_c12_9_only_5_x_tries_again_after_a_busy_answer() -> None:
    for code in (ResponseCode.SYSTEM_BUSY, ResponseCode.GO_AWAY):
        assert not is_retried(code, Version.V4_9)
        assert is_retried(code, Version.V5_3)
    for version in Version:
        retried = {code for code in ResponseCode if is_retried(code, version)}
        assert retried - {ResponseCode.SYSTEM_BUSY, ResponseCode.GO_AWAY} == {1, 14, 16, 17, 204, 205}


def test_c12_10_a_batch_of_mixed_topics_is_refused_before_it_is_sent() -> None:
    assert check_batch([Outgoing("T", b"a"), Outgoing("T", b"b")]) is None
    assert check_batch([Outgoing("T", b"a"), Outgoing("U", b"b")]) == "a batch has one topic, not T and U"


@pytest.mark.parametrize(
    ("messages", "refusal"),
    [
        ([], "a batch needs a message"),
        ([Outgoing("%RETRY%g", b"a")], "retry topic %RETRY%g does not take batches"),
        ([Outgoing("T", b"a"), Outgoing("T", b"a", {"DELAY": "3"})], "a message with a delay level"),
        ([Outgoing("T", b"a", {"DELAY": "x"})], "a message with a delay level"),
        ([Outgoing("T", b"a"), Outgoing("T", b"a", {"WAIT": "false"})], "all messages of a batch must have"),
        ([Outgoing("T", b"a"), Outgoing("T", b"a", {"WAIT": "TRUE", "DELAY": "0"})], None),
    ],
)
def test_batches(messages: list[Outgoing], refusal: str | None) -> None:
    found = check_batch(messages)
    assert (found or "").startswith(refusal or "")
    assert (found is None) is (refusal is None)


@pytest.mark.parametrize(
    ("message", "refusal"),
    [
        (Outgoing("T", b"a"), None),
        (Outgoing("T", bytes(MAX_MESSAGE_SIZE)), None),
        (Outgoing("T", bytes(MAX_MESSAGE_SIZE + 1)), "body of 4194305 bytes, at most 4194304 are allowed"),
        (Outgoing("T", b""), "a message needs a body"),
        (Outgoing("", b"a"), "a topic needs a name"),
        (Outgoing("a b", b"a"), "topic 'a b' has characters other than % | a-z A-Z 0-9 _ -"),
        (Outgoing("x" * 128, b"a"), "topic of 128 characters, at most 127 are allowed"),
        (
            Outgoing("SCHEDULE_TOPIC_XXXX", b"a"),
            "topic SCHEDULE_TOPIC_XXXX is the broker's own, and clients cannot send to it",
        ),
    ],
)
def test_messages(message: Outgoing, refusal: str | None) -> None:
    assert check_message(message, Version.V5_3) == refusal


def test_unique_keys_are_those_of_the_specification() -> None:
    keys = UniqKeys(b"\xc0\xa8\x01\x0a", 4321, 0x18B4AAC2, ManualClock(1_700_000_000_000))
    made = [keys.next() for _ in range(8)]
    assert made[7] == "C0A8010A10E118B4AAC247B760000007"
    assert len(set(made)) == 8


def test_c12_12_keys_of_one_millisecond_differ_in_the_counter_which_wraps() -> None:
    keys = UniqKeys(bytes(16), 0x1_0001, -1, ManualClock())
    made = [keys.next() for _ in range(65_537)]
    assert len(set(made)) == 65_536
    assert made[0] == made[-1]
    assert made[65_535][:36] == "0" * 32 + "0001"
    assert (made[0][36:44], made[0][-4:], made[65_535][-4:]) == ("FFFFFFFF", "0000", "FFFF")
