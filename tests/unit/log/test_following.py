"""A growing log: every record once, whole, in order; damage only when it is certain."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from rmqtool.log.follow import Follower
from rmqtool.log.read import Damage, Note, Part
from rmqtool.log.select import Selection
from rmqtool.log.sources import LogFile, LogKind
from tests.support.builders import blank, dledger_entry, properties, record

T0 = 1700000000000


class Log:
    """A log in segments of 4096 bytes that a test writes byte by byte; the next segment lies ready."""

    SEGMENT = 4096

    def __init__(self, root: Path) -> None:
        self.root = root
        self.at = 0
        self.number = 0
        self.places: list[int] = []
        self.follower = Follower(self.files, Selection(), 0)
        self.seen: list[int] = []
        self.said: list[Damage | Note] = []

    def files(self) -> list[LogFile]:
        return [
            LogFile(int(p.name), p.stat().st_size, str(self.root), p.name, p.name) for p in sorted(self.root.iterdir())
        ]

    def path(self, place: int) -> Path:
        base = place - place % self.SEGMENT
        path = self.root / f"{base:020d}"
        if not path.exists():
            path.write_bytes(bytes(self.SEGMENT))
        return path

    def put_bytes(self, place: int, data: bytes) -> None:
        with self.path(place).open("r+b") as file:
            file.seek(place % self.SEGMENT)
            file.write(data)

    def next_record(self, size: int = 60) -> bytes:
        text = properties(("KEYS", f"k{self.number}"), ("UNIQ_KEY", f"{self.number:032X}"))
        time = T0 + self.number
        one = record(b"b" * size, b"T", text, physical_offset=self.at, store_timestamp=time, queue_offset=self.number)
        left = self.SEGMENT - self.at % self.SEGMENT
        if len(one) + 8 > left:
            self.put_bytes(self.at, blank(left))
            self.at += left
            return self.next_record(size)
        self.number += 1
        self.places.append(self.at)
        self.at += len(one)
        return one

    def put(self, count: int = 1) -> None:
        for _ in range(count):
            one = self.next_record()
            self.put_bytes(self.places[-1], one)

    def poll(self) -> None:
        for event in self.follower.poll():
            if isinstance(event, Part):
                self.seen += event.records.column("physical_offset").tolist()
            else:
                self.said.append(event)


@pytest.fixture
def log(tmp_path):
    return Log(tmp_path)


def test_an_empty_directory_is_waited_for(log):
    log.poll()
    log.put(3)
    log.poll()
    log.poll()
    assert (log.seen, log.said) == (log.places, [])


def test_the_last_record_is_given_at_the_second_look(log):
    log.put(3)
    log.poll()
    assert log.seen == log.places[:2]
    log.poll()
    assert log.seen == log.places
    log.poll()
    assert log.seen == log.places


def test_segments_roll(log):
    for _ in range(60):
        log.put()
        log.poll()
    log.poll()
    assert (log.seen, log.said) == (log.places, [])
    assert len(log.files()) == 3


@pytest.mark.parametrize("torn", [1, 4, 7, 30, 60, 90, 147, 149, 152, 170, 201])
def test_a_torn_record_is_waited_for(torn, log):
    log.put(5)
    one = log.next_record()
    assert len(one) == 202
    log.put_bytes(log.places[-1], one[:torn])
    for _ in range(3):
        log.poll()
    assert log.seen == log.places[:5]
    log.put_bytes(log.places[-1], one)
    for _ in range(2):
        log.poll()
    assert (log.seen, log.said) == (log.places, [])


def test_a_record_that_others_follow_is_damage(log):
    log.put(5)
    broken = bytearray(log.next_record())
    broken[100] ^= 1
    log.put_bytes(log.places[-1], bytes(broken))
    log.poll()
    log.poll()
    assert log.said == []
    log.put(2)
    log.poll()
    log.poll()
    assert log.seen == [*log.places[:5], *log.places[6:]]
    assert [(said.code, said.file_offset, said.length) for said in log.said] == [("CL-CRC", log.places[5], 202)]


def test_a_record_that_becomes_right_is_no_damage(log, monkeypatch):
    """It is written between the look that found it wrong and the next one, and others behind it are there already."""
    log.put(2)
    one = log.next_record()
    log.put_bytes(log.places[-1], one[:150])
    log.put(3)
    read = Follower._read

    def completed(self, file, is_last):
        answer = yield from read(self, file, is_last)
        log.put_bytes(log.places[2], one)
        return answer

    monkeypatch.setattr(Follower, "_read", completed)
    log.poll()
    log.poll()
    assert (log.seen, log.said) == (log.places, [])


def test_garbage_between_records_is_damage(log):
    log.put(4)
    log.put_bytes(log.at, b"\xff" * 50)
    place, log.at = log.at, log.at + 50
    log.put(3)
    log.poll()
    log.poll()
    assert log.seen == log.places
    assert [(said.code, said.file_offset, said.length) for said in log.said] == [("CL-MAGIC", place, 50)]


def test_older_records_behind_the_end_are_not_given(log):
    log.put(12)
    stale = log.places[6] % log.SEGMENT
    log.number, log.at = 100, log.places[6]
    log.places = log.places[:6]
    one = log.next_record(size=10)  # shorter: the rest of an older record follows it
    log.put_bytes(log.places[-1], one)
    for _ in range(3):
        log.poll()
    assert log.seen == log.places
    for _ in range(5):
        log.put()
        log.poll()
    log.poll()
    assert (log.seen, log.said) == (log.places, [])
    assert stale > 0


def test_files_deleted_before_they_were_read_are_told(log):
    log.put(5)
    log.poll()
    log.put(60)
    for file in log.files()[:2]:
        (log.root / file.path).unlink()
    log.poll()
    log.poll()
    start = log.files()[0].base_offset
    assert log.seen == log.places[:4] + [place for place in log.places if place >= start]
    (said,) = log.said
    assert isinstance(said, Note)
    assert str(start) in said.text


def test_a_file_cut_while_it_is_read_ends_the_look_only(log, monkeypatch):
    log.put(5)
    log.poll()
    log.poll()
    log.put(2)
    path = log.path(log.at)
    data = path.read_bytes()
    files = log.files()
    monkeypatch.setattr(log.follower, "list_files", lambda: files)
    path.write_bytes(data[:50])
    log.poll()
    path.write_bytes(data)
    log.poll()
    log.poll()
    assert (log.seen, log.said) == (log.places, [])


def test_what_is_behind_the_last_record_of_a_closed_file_is_damage(log):
    log.put(3)
    log.put_bytes(log.at, record(b"x" * 100)[:80])
    torn = log.at
    log.at = log.SEGMENT
    log.put(2)
    log.poll()
    log.poll()
    assert log.seen == log.places
    assert [(said.code, said.file_offset) for said in log.said] == [("CL-TORN", torn)]


def test_dledger_entries(tmp_path):
    path = tmp_path / f"{0:020d}"
    path.write_bytes(bytes(8192))
    file = LogFile(0, 8192, str(tmp_path), path.name, path.name, LogKind.DLEDGER)
    follower = Follower(lambda: [file], Selection(), 0)
    data, places, seen = b"", [], []
    for number in range(20):
        at = len(data) + 48
        places.append(at)
        data += dledger_entry(number, 1, at - 48, record(b"x" * number, physical_offset=at))
        path.write_bytes(data[:-9].ljust(8192, b"\0"))
        seen += [e for part in follower.poll() for e in part.records.column("physical_offset").tolist()]
        assert seen == places[: len(seen)]
        path.write_bytes(data.ljust(8192, b"\0"))
    for _ in range(3):
        seen += [e for part in follower.poll() for e in part.records.column("physical_offset").tolist()]
    assert seen == places


@pytest.mark.parametrize("seed", range(30))
def test_records_written_in_pieces_come_once_whole_and_in_order(seed, log):
    rng = random.Random(seed)
    for _ in range(120):
        one = log.next_record(rng.randrange(200))
        place, done = log.places[-1], 0
        while done < len(one):
            step = min(rng.choice((1, 8, 50, 500)), len(one) - done)
            log.put_bytes(place + done, one[done : done + step])
            done += step
            if rng.random() < 0.2:
                log.poll()
                assert log.seen == log.places[: len(log.seen)]
    log.poll()
    log.poll()
    assert (log.seen, log.said) == (log.places, [])
