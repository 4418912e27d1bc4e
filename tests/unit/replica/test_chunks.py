"""The frames of replication, byte by byte as the specification has them."""

from __future__ import annotations

import pytest

from rmqtool.formats.control_texts import EpochEntry
from rmqtool.replica import chunks
from rmqtool.replica.chunks import Answer, Chunk, FrameError, Greeting

CHUNK = bytes.fromhex("0000000040000010 00008000")
TRANSFER = bytes.fromhex("00000002 00000005 0000000040000010 00000007 0000000040000000 0000000040000015")


def test_a_chunk_is_an_offset_and_a_size():
    assert chunks.encode_chunk(Chunk(0x40000010, 32768)) == CHUNK
    assert chunks.decode_chunk(b"??" + CHUNK, 2) == Chunk(0x40000010, 32768)


def test_a_heartbeat_has_no_bytes():
    assert chunks.encode_chunk(Chunk(189, 0)) == bytes.fromhex("00000000000000bd 00000000")


def test_only_the_last_whole_report_counts():
    reports = bytes.fromhex("0000000000000001 00000000000000bd 000000")
    assert chunks.decode_last_report(reports) == (189, 16)
    assert chunks.decode_last_report(reports[:7]) == (None, 0)
    assert chunks.encode_report(189) == reports[8:16]


def test_the_greeting_of_a_learner_has_16_bytes():
    greeting = Greeting(broker_id=3, is_learner=True, from_last_file=False)
    assert chunks.encode_greeting(greeting) == bytes.fromhex("00000001 0000 0001 0000000000000003")


def test_the_answer_has_the_end_and_the_epochs():
    epochs = (EpochEntry(1, 0), EpochEntry(4, 0x1000))
    data = bytes.fromhex(
        "00000001 00000018 0000000000002000 00000004 00000001 0000000000000000 00000004 0000000000001000"
    )
    assert chunks.encode_answer(Answer(0x2000, 4, epochs)) == data
    assert chunks.decode_answer(data[:20]) == (24, 0x2000, 4)
    assert chunks.decode_epochs(data[20:]) == epochs


def test_a_transfer_has_the_epoch_of_its_bytes():
    chunk = Chunk(0x40000010, 5, EpochEntry(7, 0x40000000), 0x40000015)
    assert chunks.encode_transfer(chunk) == TRANSFER
    assert chunks.decode_transfer(TRANSFER) == chunk


def test_a_report_of_controller_mode_has_the_state_transfer():
    assert chunks.encode_state(0x40000015) == bytes.fromhex("00000002 0000000040000015")


@pytest.mark.parametrize(
    "data", ["ffffffffffffffff 00000001", "0000000000000000 ffffffff", "0000000000000000 40000001"]
)
def test_an_impossible_chunk_is_refused(data):
    with pytest.raises(FrameError):
        chunks.decode_chunk(bytes.fromhex(data))


def test_an_impossible_transfer_or_answer_is_refused():
    with pytest.raises(FrameError):
        chunks.decode_transfer(b"\0\0\0\1" + TRANSFER[4:])
    with pytest.raises(FrameError):
        chunks.decode_answer(bytes.fromhex("00000001 00000017 0000000000002000 00000004"))
    with pytest.raises(FrameError):
        chunks.decode_answer(bytes.fromhex("00000002 00000018 0000000000002000 00000004"))


@pytest.mark.parametrize(
    ("ours", "end", "theirs", "their_end", "point"),
    [
        ([(1, 0)], 100, [(1, 0)], 250, 100),
        ([(1, 0)], 100, [(1, 0), (2, 80)], 250, 80),
        ([(1, 0), (2, 80)], 100, [(1, 0), (2, 80), (3, 90)], 250, 90),
        ([(1, 0), (2, 80)], 100, [(1, 0), (3, 70)], 250, 70),
        ([(1, 0), (2, 80)], 100, [(1, 0), (2, 90)], 250, 80),
        ([(1, 0)], 100, [(2, 0)], 250, -1),
    ],
)
def test_logs_are_the_same_up_to_the_consistent_point(ours, end, theirs, their_end, point):
    ours, theirs = [EpochEntry(*one) for one in ours], [EpochEntry(*one) for one in theirs]
    assert chunks.consistent_point(ours, end, theirs, their_end) == point
