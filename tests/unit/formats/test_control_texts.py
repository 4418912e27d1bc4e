"""Small text files, by literals from the specification."""

from __future__ import annotations

import pytest

from rmqtool.formats import control_texts
from rmqtool.formats.control_texts import Abort, BrokerIdentity, EpochEntry, EpochFile
from rmqtool.formats.flaws import Flaw


@pytest.mark.parametrize(("data", "abort"), [(b"", Abort(None)), (b"0", Abort(0)), (b"31770", Abort(31770))])
def test_abort(data: bytes, abort: Abort) -> None:
    assert control_texts.decode_abort(data) == abort


@pytest.mark.parametrize("data", [b"x", b"1\n", b"-1", b" 1", b"1" * 30])
def test_an_abort_that_no_broker_wrote(data: bytes) -> None:
    assert control_texts.decode_abort(data) == Flaw("ST-ABORT", "neither empty nor a process id", 0, len(data))


def test_lock() -> None:
    assert control_texts.check_lock(b"lock") is None
    assert control_texts.check_lock(b"") is None
    assert control_texts.check_lock(b"lock\n") == Flaw("ST-LOCK", "not the word lock", 0, 5)


@pytest.mark.parametrize(
    ("data", "entries", "crc"),
    [
        (b"2\n773307083\n7-7000\n8-8000\n", ((7, 7000), (8, 8000)), 773307083),
        (b"2\n1822511691\n1-0\n2-5242880\n", ((1, 0), (2, 5242880)), 1822511691),
        (b"1\n0\n1-0\n", ((1, 0),), 0),
        (b"0\n0\n", (), 0),
    ],
)
def test_epochs(data: bytes, entries: tuple[tuple[int, int], ...], crc: int) -> None:
    file = EpochFile(tuple(EpochEntry(*entry) for entry in entries), crc)
    assert control_texts.decode_epoch_file(data) == file
    assert control_texts.encode_epoch_file(file) == data
    if crc:
        assert control_texts.new_epoch_file(file.entries) == file


def test_epochs_of_another_platform() -> None:
    data = b"2\r\n0\r\n7-7000\r\n8-8000\r\n"
    file = control_texts.decode_epoch_file(data)
    assert isinstance(file, EpochFile)
    assert file.line_separator == "\r\n"
    assert control_texts.encode_epoch_file(file) == data


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "line break"),
        (b"2\n773307083\n7-7000\n8-8000", "line break"),
        (b"\n", "count and a checksum"),
        (b"x\n0\n", "count and a checksum"),
        (b"2\n", "count and a checksum"),
        (b"2\n773307083\n7-7000\n", "the first line announces 2 entries, 1 follow"),
        (b"2\n773307084\n7-7000\n8-8000\n", "checksum 773307084, the entries give 773307083"),
        (b"1\n0\n7\n", "'7' is not epoch-startOffset"),
        (b"1\n0\n7-\n", "is not epoch-startOffset"),
        (b"1\n0\n2147483648-1\n", "is not epoch-startOffset"),
        (b"1\n0\n1-9223372036854775808\n", "is not epoch-startOffset"),
        (b"1\n0\n\xff\n", "is not epoch-startOffset"),
    ],
)
def test_broken_epochs(data: bytes, reason: str) -> None:
    flaw = control_texts.decode_epoch_file(data)
    assert isinstance(flaw, Flaw)
    assert flaw.code == "CF-EPOCH"
    assert reason in flaw.message


@pytest.mark.parametrize(
    ("data", "identity"),
    [
        (b"DefaultCluster#broker-a#1", BrokerIdentity("DefaultCluster", "broker-a", 1)),
        (b"DefaultCluster#broker-a#2#c0de", BrokerIdentity("DefaultCluster", "broker-a", 2, "c0de")),
    ],
)
def test_identity(data: bytes, identity: BrokerIdentity) -> None:
    assert control_texts.decode_broker_identity(data) == identity


@pytest.mark.parametrize("data", [b"", b"a#b", b"a#b#c#d#e", b"a#b#x", b"##1", b"a#b#9223372036854775808"])
def test_broken_identity(data: bytes) -> None:
    flaw = control_texts.decode_broker_identity(data)
    assert isinstance(flaw, Flaw)
    assert flaw.code == "CF-IDENTITY"


@pytest.mark.parametrize(
    ("name", "data", "state"),
    [
        ("checkpoint", b"committedIndex=265\nendIndex=-1\n", {"committedIndex": 265, "endIndex": -1}),
        ("currterm", b"voteLeader=\ncurrTerm=3\n", {"voteLeader": "", "currTerm": 3}),
        ("currterm", b"currTerm=3\nvoteLeader=n0\n", {"currTerm": 3, "voteLeader": "n0"}),
        ("currterm", b"", {}),
    ],
)
def test_dledger_state(name: str, data: bytes, state: dict[str, int | str]) -> None:
    found = control_texts.decode_dledger_state(name, data)
    assert found == state
    assert list(state) == list(found)
    assert control_texts.encode_dledger_state(state) == data


def test_dledger_state_with_comments_and_unknown_lines() -> None:
    data = b"#Tue Nov 14\r\n! x\n\n  endIndex = 5 \nother=x\n"
    assert control_texts.decode_dledger_state("checkpoint", data) == {"endIndex": 5, "other": "x"}


@pytest.mark.parametrize(
    ("data", "flaw"),
    [
        (b"endIndex=5\nnoise\n", Flaw("DL-STATE", "line 'noise' is not name=value", 11, 6)),
        (b"=5\n", Flaw("DL-STATE", "line '=5' is not name=value", 0, 3)),
        (b"endIndex=x\n", Flaw("DL-STATE", "endIndex is 'x', a number is expected", 0, 11)),
        (
            b"endIndex=9223372036854775808",
            Flaw("DL-STATE", "endIndex is '9223372036854775808', a number is expected", 0, 28),
        ),
    ],
)
def test_broken_dledger_state(data: bytes, flaw: Flaw) -> None:
    assert control_texts.decode_dledger_state("checkpoint", data) == flaw
