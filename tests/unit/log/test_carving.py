"""Records in a file of which nothing else is known."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from rmqtool.filters.wanted import parse_patterns
from rmqtool.log import read
from rmqtool.log.read import Damage, Note, Part, iter_carved
from rmqtool.log.select import Selection
from rmqtool.log.sources import LogFile
from tests.support.builders import blank, record
from tests.support.seeded_stores import make_segment


def blob(path: Path, data: bytes) -> LogFile:
    path.write_bytes(data)
    return LogFile(0, len(data), str(path.parent), path.name, path.name)


def carved(
    path: Path, data: bytes, selection: Selection | None = None
) -> tuple[list[tuple[int, int]], list[Damage], str]:
    """Where records were found and where they say they are; damage; what is said at the end."""
    found, damages = [], []
    *events, note = iter_carved(blob(path, data), selection or Selection())
    for event in events:
        if isinstance(event, Part):
            places = event.records.column("physical_offset").tolist()
            found += [(event.record_offset(row), place) for row, place in enumerate(places)]
        else:
            assert isinstance(event, Damage)
            damages.append(event)
    assert isinstance(note, Note)
    return found, damages, note.text


def test_pieces_of_different_logs_among_anything(tmp_path):
    one, other = record(b"one", physical_offset=5000), record(b"other", physical_offset=77)
    data = b"\xda\xa3" * 30 + one + b"text" * 9 + other + one + blank(300) + bytes(50) + other
    found, damages, note = carved(tmp_path / "blob", data)
    assert found == [(60, 5000), (60 + len(one) + 36, 77), (96 + len(one + other), 5000), (len(data) - len(other), 77)]
    assert damages == []
    assert note == f"{2 * len(one + other)} of {len(data)} bytes are records"


def test_a_damaged_record_between_others_is_named(tmp_path):
    wrong = record(b"body", body_crc=1)
    data = record(b"x") + wrong + record(b"y")
    found, damages, _ = carved(tmp_path / "blob", data)
    assert [at for at, _ in found] == [0, len(data) - len(record(b"y"))]
    assert [(damage.code, damage.file_offset, damage.length) for damage in damages] == [
        ("CL-CRC", len(record(b"x")), len(wrong))
    ]


def test_what_is_asked_of_messages_is_asked_here_too(tmp_path):
    data = record(topic=b"A") + record(topic=b"B") + record(topic=b"A", body_crc=1) + record(topic=b"A")
    size = len(record(topic=b"A"))
    found, damages, _ = carved(tmp_path / "blob", data, Selection(topics=parse_patterns(["B"])))
    assert (found, damages) == ([(size, 0)], [])


@pytest.mark.parametrize("window", [300, 5000, 8 << 20])
@pytest.mark.parametrize("seed", range(20))
def test_a_segment_from_any_byte_on(seed, window, tmp_path, monkeypatch):
    monkeypatch.setattr(read, "WINDOW", window)
    made = make_segment(seed, fakes=False)
    cut = random.Random(seed).randrange(len(made.data) or 1)
    found, _, _ = carved(tmp_path / "blob", made.data[cut:])
    assert [(at + cut, place) for at, place in found if at + cut < made.end] == [
        (start, made.base + start) for start in made.starts if start >= cut
    ]


def test_nothing_at_all(tmp_path):
    assert carved(tmp_path / "blob", b"") == ([], [], "0 of 0 bytes are records")
    assert carved(tmp_path / "blob", random.Random(1).randbytes(100_000))[0] == []
