"""The end of the log is found in bounded work: what is read does not grow with the log, whatever the queues know."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from rmqtool.files.posix import PosixReadableFileSystem
from rmqtool.log import end as log_end
from rmqtool.log import walk
from rmqtool.log.end import LogEnd, find_log_end, is_filled, read_record
from rmqtool.log.sources import read_store_log
from rmqtool.store.listing import QueueId
from rmqtool.store.open import open_store
from rmqtool.store.queues import ConsumeQueueFiles
from rmqtool.store.segments import Segment, SegmentQueue
from tests.support.builders import blank, queue_unit, record
from tests.support.counted_files import CountedFiles
from tests.support.damaged import VERSIONS, Workshop, mutations, sample
from tests.support.seeded_stores import make_segment
from tests.support.waiting import PATIENCE

SEGMENT = 1 << 20
START = 1_700_000_000_000


class _Laid(NamedTuple):
    """A log of segments of one size, the units of its queues, and where its last record ends."""

    log: bytes
    units: dict[str, list[bytes]]
    end: int


def _lay(count: int, topic_of: Mapping[int, str] = {}, *, known: int | None = None, body: int = 200) -> _Laid:
    """Lay ``count`` records of the topic Busy, but those of ``topic_of``; queues know the first ``known`` of them."""
    log = bytearray()
    units: dict[str, list[bytes]] = {}
    for number in range(count):
        topic = topic_of.get(number, "Busy")
        one = record(
            random.Random(number).randbytes(body),
            topic.encode(),
            physical_offset=len(log),
            queue_offset=len(units.get(topic, ())),
            store_timestamp=START + number,
        )
        left = -len(log) % SEGMENT or SEGMENT
        if len(one) + 8 > left:
            log += blank(left).ljust(left, b"\0")
            return_to = len(log)
            one = one[:28] + return_to.to_bytes(8, "big") + one[36:]
        if known is None or number < known:
            units.setdefault(topic, []).append(queue_unit(len(log), len(one), 0))
        log += one
    return _Laid(bytes(log), units, len(log))


def _write(root: Path, laid: _Laid) -> None:
    (root / "commitlog").mkdir(parents=True)
    for base in range(0, len(laid.log), SEGMENT):
        (root / "commitlog" / f"{base:020}").write_bytes(laid.log[base : base + SEGMENT].ljust(SEGMENT, b"\0"))
    for topic, units in laid.units.items():
        (root / topic).mkdir()
        (root / topic / f"{0:020}").write_bytes(b"".join(units))


def _find(root: Path) -> tuple[LogEnd, list[int]]:
    """Return the end of the log, and how many bytes each call read."""
    with CountedFiles(root) as files:
        log = SegmentQueue(
            [Segment(int(one.name), SEGMENT, f"commitlog/{one.name}", files) for one in (root / "commitlog").iterdir()]
        )
        queues = [
            ConsumeQueueFiles(
                QueueId(one.name, 0),
                SegmentQueue([Segment(0, (one / f"{0:020}").stat().st_size, f"{one.name}/{0:020}", files)]),
            )
            for one in root.iterdir()
            if one.name != "commitlog"
        ]
        found = find_log_end(log, queues)
        log.close()
        for queue in queues:
            queue.segments.close()
        return found, [count for _, count in files.read]


@pytest.fixture
def walked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What the walks looked at, place by place."""
    seen: list[int] = []
    place_at = walk.SegmentWalk.place_at

    def counted(self: walk.SegmentWalk, file_offset: int) -> walk.Place:
        seen.append(file_offset)
        return place_at(self, file_offset)

    monkeypatch.setattr(walk.SegmentWalk, "place_at", counted)
    return seen


def test_a_quiet_queue_costs_nothing(tmp_path: Path, walked: list[int]) -> None:
    read = []
    for name, count in (("short", 15_000), ("long", 45_000)):
        laid = _lay(count, {0: "Quiet"})
        _write(tmp_path / name, laid)
        found, calls = _find(tmp_path / name)
        assert found.physical_offset == laid.end
        assert found.last is not None
        assert found.last.queue_offset == count - 2
        # The queue's file may be looked at anew; of the log nothing but its end.
        read.append(sum(calls) - sum(map(len, laid.units["Busy"])))
    assert abs(read[1] - read[0]) < 2 * walk.WINDOW
    assert read[1] < 3 * walk.WINDOW
    # The blanks between segments are walked, and what follows the last record.
    assert len(walked) < 50


def test_records_that_no_queue_knows_are_walked_near_the_end_only(tmp_path: Path, walked: list[int]) -> None:
    # Every second record has no unit, as prepared transactions have none, and a queue is quiet since the start.
    laid = _lay(40_000, {0: "Quiet", **dict.fromkeys(range(1, 40000, 2), "Half")})
    del laid.units["Half"]
    _write(tmp_path / "store", laid)
    found, calls = _find(tmp_path / "store")
    assert found.physical_offset == laid.end
    assert len(walked) * 300 < log_end.REACH + 2 * SEGMENT
    # A look at a gap of one record costs two windows of 4 KiB, and not a megabyte.
    assert sum(calls) < 12 * log_end.REACH


@pytest.mark.parametrize("known", [0, 1, 5000])
def test_behind_queues_that_lag_the_log_is_read_by_columns(known: int, tmp_path: Path, walked: list[int]) -> None:
    laid = _lay(40_000, known=known)
    _write(tmp_path / "store", laid)
    found, calls = _find(tmp_path / "store")
    assert found.physical_offset == laid.end
    assert found.last is not None
    assert found.last.store_timestamp == START + 39_999
    # Each byte is read once or twice; only the beginning of a segment goes record by record.
    assert sum(calls) < 3 * len(laid.log)
    if not known:
        assert sum(calls) < 3 * SEGMENT


def test_a_long_run_is_not_walked_record_by_record(
    tmp_path: Path, walked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_end, "STROLL", 1 << 16)
    laid = _lay(30_000, known=100)
    _write(tmp_path / "store", laid)
    assert _find(tmp_path / "store")[0].physical_offset == laid.end
    assert len(walked) < 30_000 / 5


def test_units_beyond_the_log_do_not_count(tmp_path: Path) -> None:
    laid = _lay(20_000)
    kept = 6 * SEGMENT // 2
    _write(tmp_path / "store", laid)
    for file in (tmp_path / "store" / "commitlog").iterdir():
        if int(file.name) >= kept:
            file.unlink()
    found, calls = _find(tmp_path / "store")
    assert found.last is not None
    assert kept - 400 < found.physical_offset <= kept
    assert len(calls) < 200


def test_a_unit_that_leads_to_nothing_does_not_hide_the_end(tmp_path: Path) -> None:
    laid = _lay(9_000)
    _write(tmp_path / "store", laid._replace(units={**laid.units, "Wrong": [queue_unit(laid.end + 7, 300, 0)]}))
    assert _find(tmp_path / "store")[0].physical_offset == laid.end


def test_the_break_that_a_recovery_left_is_seen(tmp_path: Path) -> None:
    # Older records after the true end are valid in themselves, and queues still name them.
    laid = _lay(9_000)
    log = bytearray(laid.log)
    cut = int.from_bytes(laid.units["Busy"][6_000][:8], "big")
    new = record(b"new", b"Busy", physical_offset=cut, queue_offset=6_000, store_timestamp=START + 1_000_000)
    log[cut : cut + len(new)] = new
    units = [*laid.units["Busy"][:6_000], queue_unit(cut, len(new), 0), *laid.units["Busy"][6_001:]]
    _write(tmp_path / "store", _Laid(bytes(log), {"Busy": units}, 0))
    found = _find(tmp_path / "store")[0]
    assert found.physical_offset == cut + len(new)
    assert found.last is not None
    assert found.last.store_timestamp == START + 1_000_000


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    return Workshop(tmp_path_factory.mktemp("damaged"))


def _ends_by_records_and_by_columns(log: SegmentQueue, patch: pytest.MonkeyPatch) -> tuple[LogEnd, LogEnd]:
    with patch.context() as by_records:
        by_records.setattr(log_end, "STROLL", 1 << 62)
        plain = find_log_end(log, ())
    with patch.context() as by_columns:
        by_columns.setattr(log_end, "STROLL", 600)
        by_columns.setattr(log_end, "PIECE", 5_000)
        return plain, find_log_end(log, ())


@pytest.mark.parametrize("seed", range(60))
def test_columns_find_the_end_that_records_find(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    segment = make_segment(seed)
    data, rng = bytearray(segment.data), random.Random(seed)
    for _ in range(rng.choice((0, 0, 1, 3, 20)) if segment.end else 0):
        at = rng.randrange(segment.end)
        length = rng.choice((1, 4, 40, 2000))
        data[at : at + length] = rng.choice((rng.randbytes, bytes))(min(length, len(data) - at))
    name = f"{segment.base:020}"
    (tmp_path / name).write_bytes(data)
    with PosixReadableFileSystem(str(tmp_path)) as files:
        log = SegmentQueue([Segment(segment.base, len(data), name, files)])
        plain, by_columns = _ends_by_records_and_by_columns(log, monkeypatch)
        log.close()
    assert by_columns == plain


@pytest.mark.parametrize("version", VERSIONS)
def test_columns_find_the_end_of_damaged_stores(
    version: str, workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in sample(version, 15):
        with workshop.damaged(version, mutations(version)[key], abort=False) as root:
            store = open_store(str(root))
            plain, by_columns = _ends_by_records_and_by_columns(store.commit_log, monkeypatch)
            store.close()
        assert by_columns == plain, key


@pytest.mark.timeout(PATIENCE)
@pytest.mark.parametrize("empty", [[4096], [4096, 2 * 4096]])
def test_empty_segments_behind_the_last_record_end_the_walk(empty: list[int], tmp_path: Path) -> None:
    """An empty segment ends where it begins: the walk must not take it for its own successor."""
    data = record(b"body", b"T")
    log, queue = tmp_path / "commitlog", tmp_path / "consumequeue" / "T" / "0"
    for directory in (log, queue):
        directory.mkdir(parents=True)
    full = data + blank(4096 - len(data))
    (log / f"{0:020}").write_bytes(full.ljust(4096, b"\0"))
    for base in empty:
        (log / f"{base:020}").touch()
    (queue / f"{0:020}").write_bytes(queue_unit(0, len(data), 0))
    end = read_store_log(str(tmp_path)).end
    assert end.physical_offset == len(data)
    assert end.last is not None
    assert end.last.physical_offset == 0


def test_a_record_at_an_offset_with_and_without_its_checks(tmp_path: Path) -> None:
    laid = _lay(3)
    size = laid.end // 3
    broken, other = bytearray(laid.log), 2 * size
    broken[size + 100] ^= 1  # a byte of the body of the second
    broken[other + 28 : other + 36] = (other + 7).to_bytes(8, "big")  # the third says another place
    _write(tmp_path, laid._replace(log=bytes(broken)))
    with open_store(str(tmp_path)) as store:
        log = store.commit_log
        for at, valid in ((0, True), (size, False), (other, False)):
            found, unchecked = read_record(log, at), read_record(log, at, verify=False)
            assert (found is not None) is valid
            assert unchecked is not None
            assert (unchecked.total_size, unchecked.store_timestamp) == (size, START + at // size)
        for nowhere in (1, size - 8, laid.end, SEGMENT, -1):
            assert read_record(log, nowhere) is None
            assert read_record(log, nowhere, verify=False) is None


def test_a_segment_is_filled_from_where_its_blank_begins(tmp_path: Path) -> None:
    one = record(b"body", b"T", physical_offset=0)
    left = SEGMENT - len(one)
    log = one + blank(left).ljust(left, b"x") + blank(left).ljust(SEGMENT, b"x")
    _write(tmp_path, _Laid(log, {}, len(one)))
    with open_store(str(tmp_path)) as store:
        first, second = store.commit_log.segments
        assert is_filled(store.commit_log, first, len(one))
        assert not is_filled(store.commit_log, first, 0)
        assert not is_filled(store.commit_log, first, len(one) + 8)
        assert not is_filled(store.commit_log, second, SEGMENT)  # its size is not what is left
