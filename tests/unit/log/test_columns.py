"""A segment as columns: the same stream as the walk gives, from bulk where nothing is wrong."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from rmqtool.files.filesystem import ReadableFile
from rmqtool.files.posix import PosixReadableFile, PosixReadableFileSystem
from rmqtool.formats.commit_log import Blank, Message, Nothing, decode_record
from rmqtool.formats.flaws import Flaw
from rmqtool.log import read
from rmqtool.log import read as columns
from rmqtool.log.read import Rows, SegmentScan
from rmqtool.log.walk import Place, SegmentWalk
from rmqtool.store.open import open_store
from tests.support.builders import blank, record
from tests.support.damaged import VERSIONS, Workshop, mutations, sample
from tests.support.seeded_stores import make_segment, seeded
from tests.support.stores import every_store, varied_stores

WINDOWS = (300, 2000, 8 << 20)

Shown = tuple[int, int, Message | Blank | Nothing | Flaw, Message | None]


def flat(pieces: Iterable[Rows | Place]) -> list[Shown]:
    """Every record by itself, as the walk has it."""
    found: list[Shown] = []
    for piece in pieces:
        if isinstance(piece, Place):
            found.append(tuple(piece))
            continue
        for at, row in zip(piece.file_offsets().tolist(), piece.records.file_offsets.tolist(), strict=True):
            message = decode_record(piece.records.data.data, row)
            assert isinstance(message, Message)
            found.append((at, message.total_size, message, None))
    return found


def walked(file: ReadableFile, base: int) -> list[Shown]:
    return [tuple(place) for place in SegmentWalk(file, base).places()]


def assert_like_walk(file: ReadableFile, base: int) -> list[Rows | Place]:
    """Whether each piece is looked at before the next is asked for, or all are kept, may make no difference."""
    pieces, expected = list(SegmentScan(file, base).pieces()), walked(file, base)
    assert flat(SegmentScan(file, base).pieces()) == expected
    assert flat(pieces) == expected
    return pieces


def set_window(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Have windows of ``size`` bytes, read into memory that is used again."""
    monkeypatch.setattr(columns, "WINDOW", size)
    monkeypatch.setattr(columns, "_REST", size // 8)
    monkeypatch.setattr(columns, "_BUFFERS", read.Buffers(size + size // 8))
    monkeypatch.setattr(read, "_LEAST", 1)


@pytest.fixture(params=WINDOWS)
def window(request, monkeypatch):
    set_window(monkeypatch, request.param)
    monkeypatch.setattr(columns, "_SMALL_WINDOW", min(request.param, 64 << 10))
    return request.param


@varied_stores
def test_every_store_reads_as_the_walk_reads_it(name, store, window):
    opened = open_store(str(store(name)))
    for segment in () if opened.is_dledger else opened.commit_log:
        assert_like_walk(opened.commit_log.open(segment), segment.base_offset)
    opened.close()


STALE = ("49-ghost", "49-recovered", "49-killed-torn")


@every_store
def test_bulk_declines_nothing_clean(name, store, monkeypatch):
    rows = []
    seen = columns.seen

    def watch(walk, place):
        found = seen(walk, place)
        rows.extend([found] if isinstance(found, Rows) else [])
        return found

    monkeypatch.setattr(columns, "seen", watch)
    opened = open_store(str(store(name)))
    for segment in () if opened.is_dledger else opened.commit_log:
        rows.clear()
        pieces = list(SegmentScan(opened.commit_log.open(segment), segment.base_offset).pieces())
        others = [piece.what for piece in pieces if isinstance(piece, Place)]
        # Only the last record before zeros is looked at with what follows it.
        assert len(rows) <= isinstance(others[-1] if others else None, Nothing | Flaw)
        if name not in STALE:
            assert not any(isinstance(other, Flaw) for other in others)
    opened.close()


@pytest.fixture(scope="module")
def workshop(tmp_path_factory):
    return Workshop(tmp_path_factory.mktemp("damaged"))


def check_damaged(version, keys, workshop):
    every = mutations(version)
    for key in keys:
        with workshop.damaged(version, every[key], abort=True) as root:
            opened = open_store(str(root))
            for segment in opened.commit_log:
                assert_like_walk(opened.commit_log.open(segment), segment.base_offset)
            opened.close()


@pytest.mark.parametrize("version", VERSIONS)
def test_damaged_stores(version, workshop):
    check_damaged(version, sample(version, 20), workshop)


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_every_damaged_store(version, workshop):
    check_damaged(version, sorted(mutations(version)), workshop)


def open_bytes(path: Path, data: bytes) -> ReadableFile:
    path.write_bytes(data)
    return PosixReadableFileSystem(str(path.parent)).open_read(path.name)


@seeded
def test_seeded_segments(seed, tmp_path, monkeypatch):
    made = make_segment(seed)
    set_window(monkeypatch, random.Random(seed).choice((500, 5000, 8 << 20)))
    file = open_bytes(tmp_path / "segment", made.data)
    pieces = assert_like_walk(file, made.base)
    right = [at for at, _, what, _ in flat(pieces) if isinstance(what, Message) and at < made.end]
    assert right == made.starts


@pytest.mark.parametrize("seed", range(200))
def test_seeded_damage(seed, tmp_path, monkeypatch):
    rng = random.Random(seed)
    data = bytearray(make_segment(rng.randrange(300)).data or b"\0")
    for _ in range(rng.randrange(1, 6)):
        at, length = rng.randrange(len(data)), rng.choice((1, 1, 4, 50, 700))
        data[at : at + length] = rng.choice((bytes, rng.randbytes))(len(data[at : at + length]))
    set_window(monkeypatch, rng.choice((500, 5000, 8 << 20)))
    assert_like_walk(open_bytes(tmp_path / "segment", bytes(data)), 65536)


def ranges(file: ReadableFile, base: int, size: int) -> list[Shown]:
    """The stream in ranges of ``size``, each begun where the one before it came to."""
    found: list[Shown] = []
    at = 0
    for begin in range(0, max(file.size(), 1), size):
        scan = SegmentScan(file, base)
        if at < begin + size:
            found += flat(scan.pieces(at, begin + size))
            at = scan.reached
    return found


@pytest.mark.parametrize("seed", range(40))
def test_ranges_make_the_same_stream(seed, tmp_path):
    rng = random.Random(seed)
    made = make_segment(rng.randrange(300))
    data = bytearray(made.data or b"\0")
    for _ in range(rng.randrange(3)):
        at = rng.randrange(len(data))
        data[at : at + 40] = rng.randbytes(len(data[at : at + 40]))
    file = open_bytes(tmp_path / "segment", bytes(data))
    assert ranges(file, made.base, rng.choice((200, 3000, 40_000))) == walked(file, made.base)


def test_the_guess_of_a_start_is_right_where_no_body_misleads(tmp_path):
    made = make_segment(10, fakes=False)
    assert len(made.starts) > 50
    scan = SegmentScan(open_bytes(tmp_path / "segment", made.data), made.base)
    for at in range(0, made.end, 997):
        expected = min((start for start in made.starts if start >= at), default=None)
        assert scan.find_start(at) == expected
        if expected is not None:
            assert scan.find_start(at, expected) is None
            assert scan.find_start(at, expected + 1) == expected


def test_the_search_for_a_near_start_reads_little(tmp_path, monkeypatch):
    """Every range of every scan by several processes begins with one; a window of it is read afterwards anyway."""
    made = make_segment(10, fakes=False)
    lengths = []
    real = PosixReadableFile.pread

    def pread(self, length, file_offset):
        lengths.append(length)
        return real(self, length, file_offset)

    monkeypatch.setattr(PosixReadableFile, "pread", pread)
    file = open_bytes(tmp_path / "segment", made.data + bytes(8 << 20))
    scan = SegmentScan(file, made.base)
    assert scan.find_start(made.starts[5] + 1) == made.starts[6]
    assert 0 < sum(lengths) <= 32 << 10
    lengths.clear()
    assert scan.find_start(made.end) is None
    assert max(lengths, default=0) <= 1 << 20
    assert len(lengths) <= 16, "the longer it takes the more is read at a time"


def test_windows_come_into_the_same_memory(tmp_path, monkeypatch):
    """What was read last is let go of before the next is read: two buffers would take twice the room in the caches."""
    set_window(monkeypatch, 4000)
    one = record(b"x" * 500, physical_offset=0)
    data = b"".join(record(b"x" * 500, physical_offset=number * len(one)) for number in range(50)) + blank(8)
    reads: list[int] = []
    read = columns._BUFFERS.read
    monkeypatch.setattr(columns._BUFFERS, "read", lambda *asked: reads.append(1) or read(*asked))
    pieces, rows = SegmentScan(open_bytes(tmp_path / "s", data), 0).pieces(), 0
    while (piece := next(pieces, None)) is not None:
        rows += len(piece.records) if isinstance(piece, Rows) else 0
        del piece
    assert (rows, len(columns._BUFFERS._maps)) == (50, 1)
    assert len(reads) > 5


def test_zeros_have_no_start(tmp_path):
    scan = SegmentScan(open_bytes(tmp_path / "segment", record(b"one") + bytes(1000)), 0)
    assert scan.find_start(1) is None
    assert [type(piece) for piece in scan.pieces()] == [Rows, Place]


def test_without_checksums_a_wrong_body_is_right(tmp_path):
    wrong = record(b"body", body_crc=1, physical_offset=len(record(b"x")))
    file = open_bytes(tmp_path / "segment", record(b"x") + wrong + blank(8))
    (rows, end) = SegmentScan(file, 0, checksums=False).pieces()
    assert isinstance(rows, Rows)
    assert rows.file_offsets().tolist() == [0, len(record(b"x"))]
    assert isinstance(end, Place)
    assert end.what == Blank(8)


def test_rows_come_in_small_numbers(tmp_path, monkeypatch):
    monkeypatch.setattr(columns, "MOST_ROWS", 10)
    one = record(b"x", physical_offset=0)
    data = b"".join(record(b"x", physical_offset=number * len(one)) for number in range(25)) + blank(8)
    rows = [piece for piece in SegmentScan(open_bytes(tmp_path / "s", data), 0).pieces() if isinstance(piece, Rows)]
    assert [len(piece.records) for piece in rows] == [10, 10, 5]
    assert np.concatenate([piece.file_offsets() for piece in rows]).tolist() == list(range(0, 25 * len(one), len(one)))
