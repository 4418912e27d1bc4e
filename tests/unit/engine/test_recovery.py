"""Recovery: the checks of section 6, as an engine answers them that loses nothing."""

from __future__ import annotations

from typing import Any

import pytest

from rmqtool.config import Version
from rmqtool.engine.get import GetMessageStatus
from rmqtool.engine.parts import Setup
from rmqtool.engine.recovery.recover import recover
from rmqtool.engine.recovery.report import RecoveryReport
from rmqtool.engine.store import MessageStore
from rmqtool.errors import Refused
from rmqtool.formats.commit_log import Message
from tests.support.engine_stores import (
    SEGMENT,
    UNITS_PER_FILE,
    a_message,
    index_files,
    index_offsets,
    iter_records,
    read_bytes,
    small_setup,
    units,
)
from tests.support.faulty import FaultyFileSystem
from tests.support.faulty_disk import FaultyDisk

V = Version.V5_3
FIRST = "commitlog/00000000000000000000"
QUEUE = "consumequeue/T/0/00000000000000000000"


class Lab:
    """A small store that is written, damaged, recovered, and written again."""

    def __init__(self, count: int, version: Version = V, **message: Any) -> None:
        self.files = FaultyFileSystem(FaultyDisk())
        self.version = version
        with MessageStore.create(self.setup()) as store:
            for number in range(count):
                assert store.put(a_message(number, **message)).is_ok
        self.records = list(iter_records(self.files))

    def setup(self) -> Setup:
        return small_setup(self.version, self.files)

    def crash(self) -> None:
        """Leave the mark of an open store."""
        if not self.files.exists("abort"):
            self.files.create("abort").close()

    def flip(self, path: str, offset: int, bit: int = 0) -> None:
        with self.files.open_write(path) as file:
            file.pwrite(bytes([file.pread(1, offset)[0] ^ 1 << bit]), offset)

    def write(self, path: str, data: bytes, offset: int) -> None:
        with self.files.open_write(path) as file:
            file.pwrite(data, offset)

    def remove(self, directory: str) -> None:
        for entry in self.files.listdir(directory):
            path = f"{directory}/{entry.name}"
            if entry.kind.value == "directory":
                self.remove(path)
            else:
                self.files.unlink(path)
        self.files.rmdir(directory)

    def recover(self) -> RecoveryReport:
        report = recover(self.setup())
        assert not self.files.exists("abort")
        again = recover(self.setup())
        assert again.changes == {}
        return report

    def served(self, topic: str = "T", queue_id: int = 0) -> dict[int, bytes]:
        """Return the bodies of a queue by their offsets, as consumers get them."""
        found: dict[int, bytes] = {}
        with MessageStore.open(self.setup()) as store:
            at, end = store.reader.bounds(topic, queue_id)
            while at < end:
                got = store.reader.get(topic, queue_id, at)
                found |= {one.queue_offset: body_of(store, one.physical_offset) for one in got.messages}
                assert got.next_begin_offset > at
                at = got.next_begin_offset
        return found

    def put(self, number: int, **message: Any) -> tuple[int, int]:
        """Put one message; return its queue offset and its place."""
        with MessageStore.open(self.setup()) as store:
            ticket = store.put(a_message(number, **message))
            return ticket.queue_offset, ticket.physical_offset


def body_of(store: MessageStore, physical_offset: int) -> bytes:
    message = store.reader.message_at(physical_offset)
    assert message is not None
    return message.raw_body


def bodies(*numbers: int) -> dict[int, bytes]:
    return {number: b"body %d" % number for number in numbers}


def body_at(record: Message) -> int:
    return record.physical_offset + 88


@pytest.mark.parametrize("length", [30, 63, 99])
def test_the_index_goes_on_within_the_keys_of_a_record(length):
    """With 15 entries a file, and two a message, every other file ends between key and tag, some at a segment's end."""
    lab = Lab(60, Version.V5_4, body=bytes(length))
    whole = [(entry.key_hash, entry.phy_offset) for _, entries in index_files(lab.files) for entry in entries]
    names = sorted(entry.name for entry in lab.files.listdir("index"))
    assert len(whole) == 120
    for name in reversed(names[1:]):
        for later in [entry.name for entry in lab.files.listdir("index") if entry.name >= name]:
            lab.files.unlink(f"index/{later}")
        lab.crash()
        lab.recover()
        found = [(entry.key_hash, entry.phy_offset) for _, entries in index_files(lab.files) for entry in entries]
        assert (name, found) == (name, whole)


def test_c6_1_a_clean_store_goes_on_where_it_was():
    lab = Lab(20)
    end = lab.records[-1].physical_offset + lab.records[-1].total_size
    assert lab.recover().changes == {}
    assert lab.put(20) == (20, end)


def test_c6_2_after_a_crash_every_message_is_there():
    lab = Lab(20)
    lab.crash()
    assert lab.recover().messages == 20
    assert lab.served() == bodies(*range(20))
    assert lab.put(20)[0] == 20


def test_c6_3_a_torn_last_record_is_cut_and_its_place_used_again():
    lab = Lab(5)
    last = lab.records[4]
    lab.flip(FIRST, body_at(last))
    lab.crash()
    report = lab.recover()
    assert (report.max_offset, report.messages) == (last.physical_offset, 4)
    assert [finding.code for finding in report.findings] == ["CL-TORN", "CQ-AHEAD"]
    assert not read_bytes(lab.files, FIRST)[last.physical_offset :].strip(b"\0")
    assert len(units(lab.files, "T", 0)) == 4
    assert lab.put(9) == (4, last.physical_offset)


@pytest.mark.parametrize("crashed", [False, True])
def test_c6_4_what_stands_behind_damage_stays(crashed):
    lab = Lab(12)
    lab.flip(FIRST, body_at(lab.records[3]))
    if crashed:
        lab.crash()
    report = lab.recover()
    assert [(f.code, f.offset) for f in report.findings] == [("CL-CRC", lab.records[3].physical_offset)]
    assert {number: body for number, body in lab.served().items() if number != 3} == bodies(0, 1, 2, *range(4, 12))
    assert lab.put(12)[0] == 12


def test_c6_5_a_topic_that_changed_leaves_the_message_where_its_unit_is():
    lab = Lab(12)
    record = lab.records[5]
    at = record.physical_offset + record.total_size - len(record.raw_properties) - 2 - len(record.raw_topic)
    lab.flip(FIRST, at, 1)
    lab.crash()
    report = lab.recover()
    ((place, topic, _, offset, reason),) = report.misfits
    assert (place, topic, offset) == (record.physical_offset, "V", 5)
    assert "T/0 at 5" in reason
    assert lab.served() == bodies(*range(12))


def test_c6_6_a_last_record_of_a_wrong_size_is_cut():
    lab = Lab(5)
    last = lab.records[4]
    lab.write(FIRST, (last.total_size + 1).to_bytes(4, "big"), last.physical_offset)
    lab.crash()
    assert lab.recover().max_offset == last.physical_offset


def test_c6_7_garbage_behind_the_end_is_no_record():
    lab = Lab(5)
    end = lab.records[4].physical_offset + lab.records[4].total_size
    lab.write(FIRST, b"\xff" * 50, end)
    before = read_bytes(lab.files, FIRST)
    report = lab.recover()
    assert (report.changes, report.max_offset) == ({}, end)
    assert read_bytes(lab.files, FIRST) == before
    assert lab.put(5) == (5, end)


@pytest.mark.parametrize("version", Version)
def test_c6_8_a_blank_that_ends_the_last_segment_stays(version):
    """upstream: the log ends before the blank, and a small message takes its place; replicas then hold two records."""
    lab = Lab(40, version, body=b"x" * 300)
    names = [entry.name for entry in lab.files.listdir("commitlog")]
    assert len(names) > 2
    kept = [record for record in lab.records if record.physical_offset < SEGMENT]
    for name in names[1:]:
        lab.files.unlink(f"commitlog/{name}")
    assert lab.recover().max_offset == SEGMENT
    assert lab.put(0, body=b"", properties={}) == (len(kept), SEGMENT)


def test_c6_9_an_empty_log_beside_queues_is_refused():
    lab = Lab(5)
    lab.files.unlink(FIRST)
    before = read_bytes(lab.files, QUEUE)
    with pytest.raises(Refused, match="log is empty"):
        recover(lab.setup())
    assert read_bytes(lab.files, QUEUE) == before


@pytest.mark.parametrize("crashed", [False, True])
@pytest.mark.parametrize("lost", ["consumequeue", "consumequeue/T", "consumequeue/T/0"])
def test_c6_10_and_c6_11_queues_that_are_gone_are_made_again(lost, crashed):
    lab = Lab(3 * UNITS_PER_FILE)
    before = units(lab.files, "T", 0)
    lab.remove(lost)
    if crashed:
        lab.crash()
    report = lab.recover()
    assert [finding.code for finding in report.findings] == ["CQ-MISSING"]
    assert units(lab.files, "T", 0) == before
    assert lab.put(0)[0] == 3 * UNITS_PER_FILE


@pytest.mark.parametrize("version", Version)
def test_c6_12_units_that_are_gone_at_the_end_come_back(version):
    lab = Lab(8, version)
    before = read_bytes(lab.files, QUEUE)
    lab.write(QUEUE, bytes(40), 6 * 20)
    lab.recover()
    assert read_bytes(lab.files, QUEUE) == before


def test_c6_13_units_beyond_the_log_do_not_count():
    lab = Lab(8)
    lab.write(FIRST, bytes(SEGMENT - lab.records[5].physical_offset), lab.records[5].physical_offset)
    report = lab.recover()
    assert report.max_offset == lab.records[5].physical_offset
    assert lab.put(5)[0] == 5
    assert lab.served() == bodies(*range(6))


def test_c6_14_every_key_is_found_after_a_crash():
    lab = Lab(60)
    lab.crash()
    lab.recover()
    assert all(index_offsets(lab.files, "T", f"k{r.queue_offset}") == [r.physical_offset] for r in lab.records)


@pytest.mark.parametrize("version", Version)
def test_c6_15_and_c6_16_a_queue_whose_messages_are_gone_keeps_its_numbers(version):
    lab = Lab(1, version, topic="Before")
    with MessageStore.open(lab.setup()) as store:
        for number in range(3):
            store.put(a_message(number))
        for number in range(9):
            store.put(a_message(number, "Long", body=b"x" * 700))
    lab.files.unlink(FIRST)
    lab.recover()
    with MessageStore.open(lab.setup()) as store:
        got = store.reader.get("T", 0, 0)
        gone = GetMessageStatus.MESSAGE_WAS_REMOVING if version is Version.V4_9 else GetMessageStatus.OFFSET_TOO_SMALL
        assert (got.status, got.max_offset, got.next_begin_offset) == (gone, 3, 3)
        low, _ = store.reader.bounds("Long", 0)
        assert store.reader.get("Long", 0, low).messages[0].physical_offset == SEGMENT
        assert store.reader.get("Long", 0, low - 1).status is GetMessageStatus.OFFSET_TOO_SMALL
        assert store.put(a_message(3)).queue_offset == 3


@pytest.mark.parametrize("damage", ["missing", "zeros", "future", "short"])
def test_c6_17_a_checkpoint_that_is_wrong_is_made_right(damage):
    lab = Lab(20)
    if damage == "missing":
        lab.files.unlink("checkpoint")
    elif damage == "short":
        with lab.files.open_write("checkpoint") as file:
            file.truncate(8)
    else:
        lab.write("checkpoint", bytes(24) if damage == "zeros" else b"\x7f" * 24, 0)
    lab.crash()
    lab.recover()
    newest = max(record.store_timestamp for record in lab.records)
    page = read_bytes(lab.files, "checkpoint")
    assert len(page) == 4096
    assert page[:16] == newest.to_bytes(8, "big") * 2
    assert lab.served() == bodies(*range(20))


def test_c6_18_old_damage_of_a_clean_store_is_told_and_nothing_written():
    lab = Lab(300)
    assert len(lab.files.listdir("commitlog")) > 8
    lab.flip(FIRST, body_at(lab.records[2]))
    report = lab.recover()
    assert ([f.code for f in report.findings], report.changes) == (["CL-CRC"], {})


def test_c6_19_records_of_the_second_version_stay_for_a_4_9_store():
    lab = Lab(5, Version.V5_3, topic="%RETRY%" + "g" * 150)
    lab.version = Version.V4_9
    lab.crash()
    assert lab.recover().messages == 5


def test_c6_20_what_follows_a_damaged_record_is_never_brought_back_twice():
    lab = Lab(6)
    lab.flip(FIRST, body_at(lab.records[3]))
    lab.crash()
    lab.recover()
    assert lab.put(6)[0] == 6
    lab.crash()
    lab.recover()
    served = lab.served()
    assert {number: served[number] for number in served if number != 3} == bodies(0, 1, 2, 4, 5, 6)


def test_c6_21_an_empty_queue_file_adds_no_unit():
    lab = Lab(UNITS_PER_FILE)
    lab.files.create(f"consumequeue/T/0/{UNITS_PER_FILE * 20:020d}", UNITS_PER_FILE * 20).close()
    lab.recover()
    assert lab.put(0)[0] == UNITS_PER_FILE


@pytest.mark.parametrize("left", [20, 60])
def test_the_only_queue_file_that_lacks_its_end_gets_the_size_of_the_settings(left):
    """A broker with these settings refuses files of another size."""
    lab = Lab(UNITS_PER_FILE + 4)
    lab.remove("consumequeue/T/0")
    lab.files.mkdir("consumequeue/T/0")
    with lab.files.create(QUEUE) as file:
        file.truncate(left)
    lab.crash()
    report = lab.recover()
    assert [(one.code, one.file) for one in report.findings if one.code == "CQ-SIZE"] == [("CQ-SIZE", QUEUE)]
    sizes = {
        one.name: lab.files.stat(f"consumequeue/T/0/{one.name}").size for one in lab.files.listdir("consumequeue/T/0")
    }
    assert sizes == {f"{0:020}": UNITS_PER_FILE * 20, f"{UNITS_PER_FILE * 20:020}": UNITS_PER_FILE * 20}
    assert lab.served() == {number: b"body %d" % number for number in range(UNITS_PER_FILE + 4)}


def test_c6_22_a_queue_begins_with_its_first_message():
    lab = Lab(6)
    filler = (0).to_bytes(8, "big") + (2**31 - 1).to_bytes(4, "big") + bytes(8)
    lab.write(FIRST, b"\0" * lab.records[2].physical_offset, 0)
    lab.write(QUEUE, filler * 2, 0)
    lab.recover()
    with MessageStore.open(lab.setup()) as store:
        assert store.reader.bounds("T", 0) == (2, 6)
        assert store.reader.get("T", 0, 0).next_begin_offset == 2
    assert lab.served() == bodies(2, 3, 4, 5)


def test_a_number_that_contradicts_all_others_is_not_believed_when_queues_are_made_again():
    lab = Lab(12)
    record = lab.records[6]
    lab.write(FIRST, (6 + (1 << 40)).to_bytes(8, "big"), record.physical_offset + 20)
    lab.remove("consumequeue")
    lab.crash()
    report = lab.recover()
    assert [(misfit.physical_offset, misfit.queue_offset) for misfit in report.misfits] == [
        (record.physical_offset, 6 + (1 << 40))
    ]
    assert lab.served() == bodies(*range(12))


def test_messages_that_are_lost_keep_their_numbers_when_queues_are_made_again():
    lab = Lab(12)
    first, last = lab.records[4], lab.records[6]
    lab.write(FIRST, b"\0" * (last.physical_offset + last.total_size - first.physical_offset), first.physical_offset)
    lab.remove("consumequeue")
    lab.crash()
    lab.recover()
    placed = [unit.physical_offset for unit in units(lab.files, "T", 0)]
    assert placed[:4] + placed[7:] == [r.physical_offset for n, r in enumerate(lab.records) if n not in (4, 5, 6)]
    assert placed[4:7] == [0, 0, 0]
    assert lab.put(12)[0] == 12
