"""C5.1 to C5.10: what queues and index are made of the log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from rmqtool import kernel
from rmqtool.config import FlushDiskType, Version
from rmqtool.engine import dispatch
from rmqtool.engine.consume_queue import ConsumeQueue, ConsumeQueueExt, DerivedFiles, DerivedQueue
from rmqtool.engine.health import RunningFlag
from rmqtool.engine.message import NewMessage
from rmqtool.engine.store import MessageStore
from rmqtool.errors import NoSpace
from rmqtool.files.filesystem import ReadableFileSystem
from rmqtool.formats import index, layouts
from rmqtool.formats.codes import TransactionType
from rmqtool.formats.consume_queue import FILLER, ConsumeQueueExtUnit, decode_ext_unit, ext_offset
from rmqtool.formats.layouts import BatchConsumeQueueUnit, ConsumeQueueUnit, IndexHeader
from tests.support.engine_stores import (
    ENTRIES,
    SEGMENT,
    UNITS_PER_FILE,
    a_message,
    clock_of,
    index_files,
    index_offsets,
    iter_records,
    read_bytes,
    small_setup,
    small_store,
    units,
)
from tests.support.faulty import FaultyFileSystem, FaultyWritableFile
from tests.support.faulty_disk import FaultyDisk

V4_9, V5_3, V5_4 = Version
every_version = pytest.mark.parametrize("version", list(Version))


def remove_below(files: FaultyFileSystem, directory: str) -> None:
    for entry in files.listdir(directory) if files.exists(directory) else ():
        path = f"{directory}/{entry.name}"
        if entry.kind == "directory":
            remove_below(files, path)
            files.rmdir(path)
        else:
            files.unlink(path)


def tree(files: ReadableFileSystem, directory: str) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for entry in files.listdir(directory):
        path = f"{directory}/{entry.name}"
        found |= tree(files, path) if entry.kind == "directory" else {path: read_bytes(files, path)}
    return found


@every_version
def test_units_point_to_the_messages_of_their_queue(version: Version) -> None:
    """C5.1."""
    with small_store(version) as store:
        puts = [store.put(a_message(number, queue_id=number % 2)) for number in range(5)]
        store.dispatch_now()
        for queue_id in (0, 1):
            expected = [(put.physical_offset, put.size) for put in puts if put.queue_id == queue_id]
            assert [unit[:2] for unit in units(store.setup.files, "T", queue_id)] == expected


@every_version
@pytest.mark.parametrize(("tags", "code"), [(None, 0), ("TagA", 2598919), ("TagABCDEF", -1105932195)])
def test_tags_codes(version: Version, tags: str | None, code: int) -> None:
    """C5.2."""
    with small_store(version) as store:
        store.put(a_message(properties={"TAGS": tags} if tags else {}))
        store.dispatch_now()
        (unit,) = units(store.setup.files, "T", 0)
        assert unit.tags_code == code


@every_version
def test_a_delayed_message_says_when_it_is_due(version: Version) -> None:
    """C5.3."""
    with small_store(version) as store:
        put = store.put(a_message(properties={"DELAY": "3", "TAGS": "TagA"}))
        store.dispatch_now()
        (unit,) = units(store.setup.files, "SCHEDULE_TOPIC_XXXX", 2)
        assert unit.tags_code == put.store_timestamp + 10_000


@every_version
def test_what_is_not_forced_is_not_visible_to_consumers(version: Version) -> None:
    """C5.4. upstream: 4.9 shows it at once."""
    with small_store(version, flushDiskType=FlushDiskType.SYNC_FLUSH) as store:
        store.put(a_message(properties={"WAIT": "false"}))
        assert store.dispatch_now() == 0
        assert store.find_queue("T", 0) is None
        store.flush_now()
        assert store.dispatch_now() == 1
        queue = store.find_queue("T", 0)
        assert queue is not None
        assert queue.max_offset == 1


def set_queue_offset(files: FaultyFileSystem, physical_offset: int, queue_offset: int) -> None:
    """Let a record claim another number, as only a log laid by hand does."""
    at = layouts.MESSAGE_PREFIX_V4V4.field("queue_offset").offset
    with files.open_write(f"commitlog/{0:020d}") as file:
        file.pwrite(layouts.LONG.packer.pack(queue_offset), physical_offset + at)


def a_log_without_queues(version: Version, count: int) -> tuple[FaultyFileSystem, list[int]]:
    files = FaultyFileSystem(FaultyDisk())
    with small_store(version, files) as store:
        offsets = [store.put(a_message(number)).physical_offset for number in range(count)]
    remove_below(files, "consumequeue")
    remove_below(files, "index")
    return files, offsets


@every_version
def test_a_gap_is_reported_and_keeps_its_place(version: Version) -> None:
    """C5.5. upstream: the unit is appended at index 5, and every later message stands at a wrong offset."""
    files, offsets = a_log_without_queues(version, 7)
    set_queue_offset(files, offsets[5], 7)
    set_queue_offset(files, offsets[6], 8)
    with MessageStore.open(small_setup(version, files)) as store:
        found = units(files, "T", 0)
        assert [unit.physical_offset for unit in found if unit != FILLER] == offsets
        assert found[5:7] == [FILLER, FILLER]
        (finding,) = store.condition().findings
        assert (finding.code, finding.topic, finding.queue_id) == ("CL-QOFF", "T", 0)
        base = offsets[5] // SEGMENT * SEGMENT
        assert (finding.file, finding.offset) == (f"commitlog/{base:020d}", offsets[5] - base)
        assert store.put(a_message()).queue_offset == 9


def test_a_number_that_cannot_be_is_not_believed() -> None:
    files, offsets = a_log_without_queues(V5_3, 4)
    set_queue_offset(files, offsets[2], 1 << 60)
    with MessageStore.open(small_setup(files=files)) as store:
        assert [unit.physical_offset for unit in units(files, "T", 0)] == [offsets[0], offsets[1], 0, offsets[3]]
        assert len(store.condition().findings) == 2


@every_version
def test_a_rolled_back_record_is_nowhere(version: Version) -> None:
    """C5.6; a prepared one is in the index."""
    with small_store(version) as store:
        store.put(a_message(1, sys_flag=0xC))
        prepared = store.put(a_message(2, sys_flag=0x4))
        committed = store.put(a_message(3, sys_flag=0x8))
        assert store.dispatch_now() == 3
        files = store.setup.files
        assert [unit.physical_offset for unit in units(files, "T", 0)] == [committed.physical_offset]
        assert index_offsets(files, "T", "k1") == []
        assert index_offsets(files, "T", "k2") == [prepared.physical_offset]


@every_version
def test_queues_that_are_gone_are_made_again_and_the_index_is_left_alone(version: Version) -> None:
    """C5.7. upstream: the last message is indexed twice."""
    files = FaultyFileSystem(FaultyDisk())
    with small_store(version, files) as store:
        puts = [store.put(a_message(properties={"KEYS": "k"}, queue_id=number % 2)) for number in range(3)]
    before = tree(files, "consumequeue")
    remove_below(files, "consumequeue")
    with MessageStore.open(small_setup(version, files)) as store:
        assert tree(files, "consumequeue") == before
        assert index_offsets(files, "T", "k") == [put.physical_offset for put in puts]
        assert store.put(a_message()).queue_offset == 2


@every_version
def test_a_queue_whose_first_messages_are_gone_begins_with_fillers(version: Version) -> None:
    """C5.8."""
    files, offsets = a_log_without_queues(version, 2)
    first = 3 * UNITS_PER_FILE + 4
    set_queue_offset(files, offsets[0], first)
    set_queue_offset(files, offsets[1], first + 1)
    with MessageStore.open(small_setup(version, files)) as store:
        assert [entry.name for entry in files.listdir("consumequeue/T/0")] == [f"{3 * UNITS_PER_FILE * 20:020d}"]
        found = units(files, "T", 0)
        assert found[:4] == [FILLER] * 4
        assert [unit.physical_offset for unit in found[4:]] == offsets
        assert store.condition().findings == ()
        assert store.put(a_message()).queue_offset == first + 2


@every_version
def test_every_key_is_an_entry(version: Version) -> None:
    """C5.9; from 5.4 on the tag is one more."""
    with small_store(version) as store:
        put = store.put(a_message(properties={"KEYS": "a b  c", "UNIQ_KEY": "u", "TAGS": "t"}))
        store.dispatch_now()
        ((header, entries),) = index_files(store.setup.files)
        texts = ["T#u", "T#a", "T#b", "T#c"] + (["T#T#t"] if version is V5_4 else [])
        assert [entry.key_hash for entry in entries] == [index.key_hash(text) for text in texts]
        assert {entry.phy_offset for entry in entries} == {put.physical_offset}
        assert header.index_count == len(texts) + 1


@every_version
def test_a_record_that_cannot_be_read_hides_no_other(version: Version) -> None:
    """C5.10. upstream: everything behind it in its segment is skipped."""
    files, offsets = a_log_without_queues(version, 10)
    with files.open_write(f"commitlog/{0:020d}") as file:
        file.pwrite(b"\xff\xff", offsets[4] + 4)
    with MessageStore.open(small_setup(version, files)) as store:
        kept = offsets[:4] + offsets[5:]
        assert [unit.physical_offset for unit in units(files, "T", 0) if unit != FILLER] == kept
        assert [unit == FILLER for unit in units(files, "T", 0)] == [number == 4 for number in range(10)]
        codes = [finding.code for finding in store.condition().findings]
        assert codes == ["CL-MAGIC", "CL-QOFF"]
        assert store.condition().findings[0].offset == offsets[4]


@pytest.mark.parametrize("least_for_columns", [0, 1 << 30])
def test_a_bad_sector_hides_no_record_but_those_in_it(least_for_columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "LEAST_TO_LOAD_BULK", least_for_columns)
    disk = FaultyDisk()
    store = small_store(files=FaultyFileSystem(disk), mappedFileSizeCommitLog=1 << 20)
    records = [store.put(a_message(number, body=bytes(1000))) for number in range(30)]
    disk.bad_spans["commitlog/00000000000000000000"] = (4096, 8192)
    found = [one for one in records if one.end_offset <= 4096 or one.physical_offset >= 8192]
    assert store.dispatch_now() == len(found) == 25
    finding = store.condition().findings[0]
    assert (finding.code, finding.offset, finding.length) == ("ST-READ", 4096, 4096)
    store.close()
    places = [unit.physical_offset for unit in units(store.setup.files, "T", 0) if unit != FILLER]
    assert places == [one.physical_offset for one in found]


def test_a_body_with_a_wrong_checksum_is_dispatched() -> None:
    files, offsets = a_log_without_queues(V5_3, 3)
    with files.open_write(f"commitlog/{0:020d}") as file:
        file.pwrite(b"X", offsets[1] + 88)
    with MessageStore.open(small_setup(files=files)) as store:
        assert [unit.physical_offset for unit in units(files, "T", 0)] == offsets
        assert store.condition().findings == ()


def test_the_dispatch_computes_no_checksum_where_the_log_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dispatching uses no CRC: only the structure of records is read (engine.md, 6.4)."""
    files = FaultyFileSystem(FaultyDisk())
    computed = []

    def counted(data: bytes) -> int:
        computed.append(len(data))
        return 0

    with small_store(files=files) as store:
        puts = [store.put(a_message(number, body=bytes(500))) for number in range(20)]
        with files.open_write(f"commitlog/{0:020d}") as file:
            file.pwrite(b"X", puts[1].physical_offset + 88)
        monkeypatch.setattr("rmqtool.formats.commit_log.crc31", counted)
        # In the first segment only the walk over the blank at its end reads a body: that of the last record.
        segments = len({put.physical_offset // SEGMENT for put in puts})
        assert segments > 1
        assert store.dispatch_now() == len(puts)
        assert computed == [500] * (segments - 1)
        found = [unit for unit in units(files, "T", 0) if unit.size]
        assert [unit.physical_offset for unit in found] == [put.physical_offset for put in puts]
        assert store.condition().findings == ()


def test_a_record_is_not_dispatched_before_it_is_known_where_the_next_one_begins() -> None:
    """A record that reaches into the next one has a wrong size; both are stepped over, or found, by the walk."""
    files, offsets = a_log_without_queues(V5_3, 4)
    size = offsets[2] - offsets[1]
    with files.open_write(f"commitlog/{0:020d}") as file:
        data = file.pread(size, offsets[1])
        # Its size and the length of its properties grow by ten bytes: the lengths still add up.
        length_at = data.index(b"T", 88) + 1
        grown = int.from_bytes(data[length_at : length_at + 2], "big") + 10
        file.pwrite((size + 10).to_bytes(4, "big"), offsets[1])
        file.pwrite(grown.to_bytes(2, "big"), offsets[1] + length_at)
    with MessageStore.open(small_setup(files=files)) as store:
        found = [unit.physical_offset for unit in units(files, "T", 0) if unit != FILLER]
        assert found == [offset for offset in offsets if offset != offsets[1]]
        assert "CL-LEN" in [finding.code for finding in store.condition().findings]


def test_listeners_are_told_of_every_queue_that_grew() -> None:
    with small_store() as store:
        told: list[tuple[tuple[str, int], int]] = []
        store.add_listener(lambda queue, offset: told.append((queue, offset)))
        for number in range(5):
            store.put(a_message(number, queue_id=number % 2))
        assert told == []
        store.dispatch_now()
        assert told == [(("T", 0), 3), (("T", 1), 2)]
        store.put(a_message())
        store.dispatch_now()
        assert told[2:] == [(("T", 0), 4)]


class Held:
    """Counts how often it was held, and knows whether it is."""

    times = 0
    is_held = False

    def __enter__(self) -> None:
        self.times += 1
        self.is_held = True

    def __exit__(self, *_error: object) -> None:
        self.is_held = False


def test_puts_are_held_off_while_columns_are_computed_and_never_while_a_file_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rmqtool.engine.dispatch.LEAST_FOR_BULK", 1)
    monkeypatch.setattr("rmqtool.engine.dispatch.LEAST_TO_LOAD_BULK", 1)
    held, seen = Held(), list[bool]()
    for operation in ("pwrite", "fdatasync"):
        real = getattr(FaultyWritableFile, operation)

        def noted(file: FaultyWritableFile, *given: object, real: Callable[..., None] = real) -> None:
            seen.append(held.is_held)
            real(file, *given)

        monkeypatch.setattr(FaultyWritableFile, operation, noted)
    store = small_store()
    for number in range(ENTRIES * 2):
        store.put(a_message(number))
    store._engine.dispatcher.go_beside_puts(held)
    assert store.dispatch_now() == ENTRIES * 2
    assert len(index_files(store.setup.files)) == 3
    assert held.times > 3
    assert len(seen) > ENTRIES * 2
    assert not any(seen)
    assert len(units(store.setup.files, "T", 0)) == ENTRIES * 2


def test_batch_queues() -> None:
    setup = replace(small_setup(), batch_topics=frozenset({"B"}))
    with MessageStore.create(setup) as store:
        inner = {"INNER_NUM": "5", "UNIQ_KEY": "u", "TAGS": "TagA"}
        puts = [
            store.put(a_message(topic="B")),
            store.put(a_message(topic="B", sys_flag=0xC0, properties=inner)),
            store.put(a_message(topic="B", properties={})),
        ]
        store.dispatch_now()
        data = read_bytes(setup.files, f"batchconsumequeue/B/0/{0:020d}")
        assert len(data) == 460
        found = [unit for unit in layouts.BATCH_CONSUME_QUEUE_UNIT.iter_decode(data) if unit.size]
        assert found == [
            BatchConsumeQueueUnit(put.physical_offset, put.size, code, put.store_timestamp, base, count, -1, 0)
            for put, code, base, count in zip(puts, (2598919, 2598919, 0), (0, 1, 6), (1, 5, 1), strict=True)
        ]
        assert not setup.files.exists("consumequeue/B")
    with MessageStore.open(setup) as store:
        put = store.put(a_message(topic="B"))
        assert put.queue_offset == 7
        store.dispatch_now()
        data = read_bytes(setup.files, f"batchconsumequeue/B/0/{0:020d}")
        assert layouts.BATCH_CONSUME_QUEUE_UNIT.decode(data, 3 * 46).physical_offset == put.physical_offset


def test_extensions() -> None:
    """Addresses, the mark at the end of a file, and that a store goes on behind the last one."""
    setup = small_setup(V4_9, enableConsumeQueueExt=True, mappedFileSizeConsumeQueueExt=100)
    setup = replace(setup, bit_map=lambda message: b"\x01\x02" if message.tags == "TagA" else b"")
    with MessageStore.create(setup) as store:
        for number in range(6):
            store.put(a_message(number, properties={"TAGS": "TagA" if number % 2 else "b"}))
    with MessageStore.open(setup) as store:
        put = store.put(a_message(6, properties={"TAGS": "b"}))
    places = [ext_offset(unit.tags_code) for unit in units(setup.files, "T", 0)]
    # 20 and 22 bytes in turn; 4 must be left for the mark.
    assert places == [0, 20, 42, 62, 100, 120, 142]
    first = read_bytes(setup.files, f"consumequeue_ext/T/0/{0:020d}")
    assert first[84:] == b"\xff\xff" + bytes(14)
    second = read_bytes(setup.files, f"consumequeue_ext/T/0/{100:020d}")
    assert decode_ext_unit(second, 20) == ConsumeQueueExtUnit(22, 2598919, put.store_timestamp, b"\x01\x02")
    assert decode_ext_unit(second, 42) == ConsumeQueueExtUnit(20, ord("b"), put.store_timestamp, b"")


def test_the_extension_of_one_queue() -> None:
    files = DerivedFiles(FaultyFileSystem(FaultyDisk()))
    ext = ConsumeQueueExt(DerivedQueue(files, "consumequeue_ext/T/0", 48))
    queue = ConsumeQueue(("T", 0), DerivedQueue(files, "consumequeue/T/0", 200), ext=ext)
    assert queue.put(ConsumeQueueUnit(0, 100, 7), 0) is None
    queue.write_pending()
    unit = queue.read_unit(0)
    assert unit == ConsumeQueueUnit(0, 100, 7)
    assert queue.read_unit(1) is None


def test_dispatching_again_changes_nothing() -> None:
    with small_store() as store:
        for number in range(40):
            store.put(a_message(number, queue_id=number % 3))
        store.dispatch_now()
        before = tree(store.setup.files, "consumequeue") | tree(store.setup.files, "index")
        store._engine.dispatcher.restart_at(0)
        assert store.dispatch_now() == 40
        assert tree(store.setup.files, "consumequeue") | tree(store.setup.files, "index") == before


def test_a_record_at_the_beginning_is_indexed_after_its_pass_was_taken_back() -> None:
    with small_store() as store:
        store.put(a_message())
        index_of = store._engine.dispatcher.index
        index_of.put([17], 0, 1_700_000_000_000)
        index_of.take_back()
        store.dispatch_now()
    assert index_offsets(store.setup.files, "T", "k0") == [0]


@pytest.mark.parametrize("failing", range(1, 10))
def test_without_room_the_queues_wait(failing: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log goes on; when there is room again everything is as if there had been room all the time."""
    expected = small_store()
    with expected:
        for number in range(40):
            expected.put(a_message(number, queue_id=number % 3))
    store = small_store()
    with store:
        for number in range(40):
            store.put(a_message(number, queue_id=number % 3))
        calls = 0
        write = DerivedFiles.write

        def full(files: DerivedFiles, path: str, data: bytes, file_offset: int) -> None:
            nonlocal calls
            calls += 1
            if calls == failing:
                raise NoSpace("no room")
            write(files, path, data, file_offset)

        monkeypatch.setattr(DerivedFiles, "write", full)
        store.dispatch_now()
        assert store.condition().failure is None
        assert store.put(a_message(40)).is_ok
        store.dispatch_now()
        store.dispatch_now()
        assert calls > failing
    got = tree(store.setup.files, "consumequeue")
    for path, data in tree(expected.setup.files, "consumequeue").items():
        written = data.rstrip(b"\0")
        assert got[path][: len(written)] == written, path
    assert len(units(store.setup.files, "T", 0)) == 15


def test_queues_far_behind_stop_puts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqtool.engine.store._MOST_BEHIND", 500)
    with small_store() as store:

        def full(*_arguments: object) -> None:
            raise NoSpace("no room")

        with monkeypatch.context() as patched:
            patched.setattr(DerivedFiles, "create", full)
            statuses = []
            for number in range(6):
                statuses.append(store.put(a_message(number)).is_ok)
                store.dispatch_now()
            assert statuses == [True] * 5 + [False]
            assert store.condition().flags == RunningFlag.LOGICS_QUEUE_ERROR
        assert store.dispatch_now() == 5
        assert store.put(a_message(7)).queue_offset == 5


class TestIndex:
    """Files that are full in the middle of a message, and what their headers say."""

    def test_the_example_of_the_specification(self) -> None:
        """Formats 5.6: eight slots, six entries, the keys of example A and a later message."""
        from rmqtool.engine.index_file import IndexFileWriter
        from rmqtool.store.index_files import Geometry

        files = FaultyFileSystem(FaultyDisk())
        with files.create("i", 192) as file:
            writer = IndexFileWriter(file, Geometry(8, 6), IndexHeader(0, 0, 0, 0, 0, 0))
            writer.put(1518470692, 1024, 1_700_000_000_123)
            writer.put(1829193424, 1024, 1_700_000_000_123)
            writer.put(1829193424, 1230, 1_700_000_005_123)
            writer.flush()
        assert read_bytes(files, "i").hex() == (
            "0000018bcfe5687b0000018bcfe57c03000000000000040000000000000004ce"
            "0000000200000004000000030000000000000000000000000000000100000000"
            "00000000000000000000000000000000000000000000000000000000"
            "5a82062400000000000004000000000000000000"
            "6d0746d000000000000004000000000000000000"
            "6d0746d000000000000004ce0000000500000002" + "00" * 40
        )

    @every_version
    def test_a_full_file_passes_its_end_on(self, version: Version) -> None:
        """The first entry of the next file counts its seconds from there."""
        with small_store(version) as store:
            clock = clock_of(store)
            first = store.put(a_message(properties={"KEYS": " ".join("abcdefghij")}))
            clock.advance(7000)
            second = store.put(a_message(properties={"KEYS": " ".join("klmnopqrst")}))
            clock.advance(5000)
            third = store.put(a_message(properties={"KEYS": "u"}))
            store.dispatch_now()
            (one, entries), (two, later) = index_files(store.setup.files)
            assert len(entries) == ENTRIES - 1
            assert one[:4] == (
                first.store_timestamp,
                second.store_timestamp,
                first.physical_offset,
                second.physical_offset,
            )
            assert two[:4] == (
                second.store_timestamp,
                third.store_timestamp,
                second.physical_offset,
                third.physical_offset,
            )
            assert [entry.time_diff for entry in entries] == [0] * 10 + [7] * 5
            assert [entry.time_diff for entry in later] == [0] * 5 + [5]

    def test_the_preset_of_a_file_shows_in_its_first_entry(self) -> None:
        with small_store() as store:
            store.put(a_message(properties={"KEYS": " ".join("abcdefghijklmno")}))
            clock_of(store).advance(9000)
            put = store.put(a_message(properties={"KEYS": "p"}))
            store.dispatch_now()
            _, (header, entries) = index_files(store.setup.files)
            assert entries[0].time_diff == 9
            assert header.begin_timestamp == put.store_timestamp

    def test_a_message_without_keys_behind_a_full_file_makes_the_next(self) -> None:
        with small_store() as store:
            store.put(a_message(properties={"KEYS": " ".join("abcdefghijklmno")}))
            store.dispatch_now()
            assert len(index_files(store.setup.files)) == 1
            store.put(a_message(properties={}))
            store.dispatch_now()
            (full, _), (empty, entries) = index_files(store.setup.files)
            assert entries == []
            assert empty == IndexHeader(full.end_timestamp, full.end_timestamp, 0, 0, 0, 0)

    def test_names_sort_in_the_order_of_the_files(self) -> None:
        with small_store() as store:
            for number in range(4):
                store.put(a_message(number, properties={"KEYS": " ".join("abcdefghijklmno")}))
                store.dispatch_now()
                clock_of(store).wall -= 1_000_000
            begins = [header.begin_phy_offset for header, _ in index_files(store.setup.files)]
            assert begins == sorted(begins)
            assert len(begins) == 4

    @pytest.mark.parametrize("settings", [{"messageIndexEnable": False}, {"indexFileWriteEnable": False}])
    def test_without_an_index(self, settings: dict[str, bool]) -> None:
        with small_store(V5_4, **settings) as store:
            store.put(a_message())
            store.dispatch_now()
            assert not store.setup.files.exists("index")

    def test_a_store_goes_on_in_its_last_file(self) -> None:
        setup = small_setup()
        with MessageStore.create(setup) as store:
            store.put(a_message(1, properties={"KEYS": "a b c"}))
        with MessageStore.open(setup) as store:
            store.put(a_message(2, properties={"KEYS": "a"}))
        ((header, entries),) = index_files(setup.files)
        assert header.index_count == 5
        assert entries[3].prev_index == 1
        assert len(list(iter_records(setup.files))) == 2


@pytest.mark.parametrize("count", [1, 30, 200])
def test_a_log_without_queues_is_continued(count: int) -> None:
    """Its end is found record by record; the room behind it is not taken for more."""
    files = FaultyFileSystem(FaultyDisk())
    with small_store(files=files) as store:
        last = store.put_many([a_message(number) for number in range(count)])[-1]
    remove_below(files, "consumequeue")
    remove_below(files, "index")
    with MessageStore.open(small_setup(files=files)) as store:
        assert store.condition().wrote_offset == last.end_offset
        assert store.put(a_message()).queue_offset == count


def test_a_record_larger_than_what_is_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqtool.log.end.STROLL", 1)
    monkeypatch.setattr("rmqtool.log.end.PIECE", 500)
    files = FaultyFileSystem(FaultyDisk())
    with small_store(files=files) as store:
        store.put(a_message(body=b"x" * 100))
        store.put(a_message(body=b"x" * 3000))
        last = store.put(a_message(body=b"x" * 100))
    remove_below(files, "consumequeue")
    with MessageStore.open(small_setup(files=files)) as store:
        assert store.condition().wrote_offset == last.end_offset


def _odd_messages() -> list[NewMessage]:
    """Messages of all kinds: those that the kernel dispatches, and those that it leaves."""
    texts = ["", "a b  c", "ключ", "\U0001f600 x", " ".join(f"k{number}" for number in range(300))]
    kinds = [{"KEYS": text, "UNIQ_KEY": f"U{number}", "TAGS": text[:3]} for number, text in enumerate(texts)]
    kinds += [
        {"TAGS": "t", "DELAY": "3"},
        {"KEYS": "m", "INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b"},
        {"PGROUP": "g", "TRAN_MSG": "true", "UNIQ_KEY": "prepared"},
        {},
    ]
    flags = {7: int(TransactionType.PREPARED)}
    return [
        NewMessage(
            f"Topic{number % 3}é", b"x" * number, number % 2, kinds[number % 9], sys_flag=flags.get(number % 9, 0)
        )
        for number in range(90)
    ]


@every_version
@pytest.mark.parametrize("together", [1, 7])
def test_the_kernel_dispatches_a_few_records_as_formats_does(
    version: Version, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same files, whether records come one by one or a few together, with the kernel and without."""
    found = []
    for native in (kernel.NATIVE, None):
        monkeypatch.setattr(kernel, "NATIVE", native)
        setup = small_setup(version, enableMultiDispatch=True, enableLmq=True, mappedFileSizeCommitLog=1 << 20)
        with MessageStore.create(setup) as store:
            messages = _odd_messages()
            for first in range(0, len(messages), together):
                for message in messages[first : first + together]:
                    assert store.put(message).is_ok
                store.tick()
            assert store.condition().dispatched_offset == store.condition().wrote_offset
        found.append(tree(setup.files, "consumequeue") | tree(setup.files, "index"))
    assert found[0] == found[1]
    assert len(found[0]) > 10


def test_the_kernel_is_asked_for_the_first_record(monkeypatch: pytest.MonkeyPatch) -> None:
    if kernel.NATIVE is None:
        pytest.skip(f"there is no compiled kernel: {kernel.WHY_NOT}")
    monkeypatch.setattr(dispatch, "decode_record", None)
    with small_store() as store:
        assert store.put(a_message()).is_ok
        assert store.dispatch_now() == 1
        assert [queue.max_offset for queue in store.queues()] == [1]
