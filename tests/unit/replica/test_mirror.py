"""A mirror beside a scripted master: what is in its files, what it reports, and what it refuses."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path

import pytest

import rmqtool
from rmqtool.api.mirror import mirrored
from rmqtool.errors import NoSpace, Refused, RemoteError, UsageError, WriteFailed
from rmqtool.files.posix_write import PosixWritableFile
from rmqtool.replica.mirror_log import MasterChanged
from rmqtool.replica.slave import Stream
from tests.support.builders import properties, record
from tests.support.scripted_cluster import in_thread
from tests.support.scripted_master import FIRST_TIME, SEGMENT, ScriptedMaster, log_files
from tests.support.scripted_peer import reply
from tests.support.waiting import wait_for, wait_for_end


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    """A mirror that lost its master tries again at once."""
    monkeypatch.setattr("rmqtool.replica.follower._PAUSE", 0.005)


@pytest.fixture
def master():
    with in_thread(ScriptedMaster()) as found:
        yield found


def once(master, to, **how):
    return mirrored(master.address, to, once=True, **how)


def cut(root: Path, end: int) -> None:
    """Overwrite what a mirror has from ``end`` on with zeros, as if it had never come."""
    for path in (root / "commitlog").iterdir():
        base = int(path.name)
        if base >= end and base:
            path.unlink()
        elif base + SEGMENT > end:
            with path.open("r+b") as file:
                file.truncate(end - base)
                file.truncate(SEGMENT)


def test_the_files_are_those_of_the_master(master, tmp_path):
    master.grow(200)
    done = once(master, tmp_path / "m")
    assert log_files(tmp_path / "m") == master.files()
    assert done.line["durable"] == done.line["masterMax"] == len(master.log)
    assert (done.line["from"], done.line["lagBytes"], int(done.status)) == (0, 0, 0)


def test_a_mirror_whose_first_start_was_interrupted_is_made_again(master, tmp_path):
    master.grow(3)
    (tmp_path / "m/commitlog").mkdir(parents=True)
    (tmp_path / "m/broker.conf.new").touch()
    once(master, tmp_path / "m")
    assert log_files(tmp_path / "m") == master.files()


def test_byte_0_is_asked_for_by_1_and_reports_end_at_the_end(master, tmp_path):
    master.grow(100)
    once(master, tmp_path / "m")
    assert master.starts == [1]
    assert master.reports == sorted(master.reports)
    wait_for(lambda: master.reports[-1] == len(master.log))


def test_a_mirror_goes_on_with_bytes_before_its_end(master, tmp_path):
    master.grow(150)
    once(master, tmp_path / "m")
    end = len(master.log)
    master.grow(150)
    once(master, tmp_path / "m")
    assert log_files(tmp_path / "m") == master.files()
    assert end - SEGMENT - (64 << 10) < master.starts[1] < end


@pytest.mark.parametrize(
    ("missing", "live"), [(1, False), (3, False), (7, False), (8, False), (10, False), (500, False), (1, True)]
)
def test_a_torn_record_is_fetched_again(master, tmp_path, missing, live):
    """The properties have 7 bytes, the length before them 2, the topic 1: no checksum covers them."""
    master.grow(150)
    once(master, tmp_path / "m")
    cut(tmp_path / "m", len(master.log) - missing)
    once(master, tmp_path / "m", live=live)
    assert log_files(tmp_path / "m") == master.files()
    if live:
        # The key of the last message is in the index: it was read from the whole record.
        assert [one.code for one in rmqtool.check(str(tmp_path / "m"))] == []


def test_a_record_that_lacks_a_sector_of_its_properties_is_fetched_again(master, tmp_path):
    """After a power cut any sector may be missing that was not synced, and others after it be there."""
    master.grow(20)
    place = len(master.log)
    long = record(b"body", b"T", properties(("KEYS", "k" * 3000)), physical_offset=place, store_timestamp=FIRST_TIME)
    master.log += long
    master.grow(20)
    once(master, tmp_path / "m")
    (path,) = (tmp_path / "m" / "commitlog").iterdir()
    data = bytearray(path.read_bytes())
    sector = (place + 1000) // 512 * 512
    data[sector : sector + 512] = bytes(512)
    path.write_bytes(data)
    once(master, tmp_path / "m")
    assert log_files(tmp_path / "m") == master.files()


def test_lost_bytes_of_a_record_that_looks_whole_are_written_again(master, tmp_path):
    """A disk lost one byte of an address; no checksum covers it. Nothing is written if other bytes differ after it."""
    master.grow(150)
    once(master, tmp_path / "m")
    path = max((tmp_path / "m" / "commitlog").iterdir())
    data = bytearray(path.read_bytes())
    host = data.rindex(bytes.fromhex("c0a80114"))
    data[host] = 0
    path.write_bytes(data)
    master.log[-300:-299] = b"Y"
    with pytest.raises(MasterChanged):
        once(master, tmp_path / "m")
    assert path.read_bytes() == data
    master.log[-300:-299] = b"x"
    once(master, tmp_path / "m")
    assert log_files(tmp_path / "m") == master.files()


def test_once_does_not_end_before_all_is_compared(master, tmp_path):
    """A mirror that has everything still hears that the master has other bytes before its end."""
    master.grow(150)
    once(master, tmp_path / "m")
    master.log[-300:-299] = b"Y"
    with pytest.raises(MasterChanged) as told:
        once(master, tmp_path / "m")
    assert told.value.offset == len(master.log) - 300


def test_an_empty_last_segment_is_joined_by_the_one_before(master, tmp_path):
    master.grow(150)
    once(master, tmp_path / "m")
    last = max((tmp_path / "m" / "commitlog").iterdir())
    cut(tmp_path / "m", int(last.name))
    last.write_bytes(bytes(SEGMENT))
    once(master, tmp_path / "m")
    assert log_files(tmp_path / "m") == master.files()
    assert master.starts[1] < int(last.name)


@pytest.mark.parametrize("size", [0, 4096])
def test_a_segment_that_was_being_created_is_completed(master, tmp_path, size):
    master.grow(150)
    once(master, tmp_path / "m")
    last = max((tmp_path / "m" / "commitlog").iterdir())
    last.write_bytes(bytes(size))
    once(master, tmp_path / "m")
    assert log_files(tmp_path / "m") == master.files()


def test_a_short_segment_with_bytes_is_refused(master, tmp_path):
    master.grow(150)
    once(master, tmp_path / "m")
    last = max((tmp_path / "m" / "commitlog").iterdir())
    os.truncate(last, 4096)
    before = log_files(tmp_path / "m")
    with pytest.raises(Refused, match="has 4096 bytes; the files of this master have 65536"):
        once(master, tmp_path / "m")
    assert log_files(tmp_path / "m") == before


@pytest.mark.parametrize("begin", ["end", 70_000, "70000"])
def test_a_new_mirror_begins_where_a_segment_does(master, tmp_path, begin):
    master.grow(150)
    done = once(master, tmp_path / "m", begin=begin)
    first = max(master.files()) if begin == "end" else f"{SEGMENT:020d}"
    assert done.line["from"] == int(first)
    assert log_files(tmp_path / "m") == {name: data for name, data in master.files().items() if name >= first}


def test_an_offset_that_the_master_does_not_have_is_refused(master, tmp_path):
    master.grow(10)
    with pytest.raises(UsageError, match="the master has the log from 0 to"):
        once(master, tmp_path / "m", begin=10**9)
    assert not (tmp_path / "m").exists()


def test_from_is_for_a_new_mirror(master, tmp_path):
    master.grow(10)
    once(master, tmp_path / "m")
    with pytest.raises(UsageError, match="--from is for a new mirror"):
        once(master, tmp_path / "m", begin="start")


def test_a_master_that_was_cut_back_is_told_and_nothing_is_changed(master, tmp_path):
    master.grow(150)
    once(master, tmp_path / "m")
    before, end = log_files(tmp_path / "m"), len(master.log)
    del master.log[-5000:]
    with pytest.raises(MasterChanged) as told:
        once(master, tmp_path / "m")
    assert told.value.offset == end - 5000
    assert "lost 5000 bytes" in told.value.message
    assert log_files(tmp_path / "m") == before


def test_a_master_that_lost_messages_and_took_others_is_told(master, tmp_path):
    master.grow(150)
    once(master, tmp_path / "m")
    before, kept = log_files(tmp_path / "m"), bytes(master.log[:-5000])
    other = ScriptedMaster()
    other.grow(250, text="other")
    master.log[:] = kept + other.log[len(kept) :]
    with pytest.raises(MasterChanged) as told:
        once(master, tmp_path / "m")
    assert len(kept) <= told.value.offset < len(kept) + 200
    assert log_files(tmp_path / "m") == before


def test_a_master_that_lost_only_an_unfinished_record_is_told(master, tmp_path):
    """The mirror has half of a record; the master lost it, and wrote another one there."""
    master.grow(100)
    end = len(master.log)
    master.grow(1)
    once(master, tmp_path / "m")
    cut(tmp_path / "m", end + 600)
    before = log_files(tmp_path / "m")
    del master.log[end:]
    master.grow(5, text="else")
    with pytest.raises(MasterChanged) as told:
        once(master, tmp_path / "m")
    assert end < told.value.offset < end + 600
    assert log_files(tmp_path / "m") == before


def test_another_broker_is_refused(master, tmp_path):
    master.grow(10)
    once(master, tmp_path / "m")
    master.name = "broker-b"
    with pytest.raises(Refused, match="is the mirror of DefaultCluster/broker-a"):
        once(master, tmp_path / "m")


def test_a_directory_of_something_else_is_refused(master, tmp_path, writable_store):
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "letter").write_text("dear")
    with pytest.raises(Refused, match="not a mirror"):
        once(master, tmp_path / "m")
    with pytest.raises(Refused, match="not a mirror"):
        once(master, writable_store("49-basic"))


def test_a_gap_is_told_and_skipped(master, tmp_path):
    master.grow(150)
    once(master, tmp_path / "m")
    end = len(master.log)
    master.grow(300)
    master.min_offset = 4 * SEGMENT
    told = []
    done = once(master, tmp_path / "m", told=told.append)
    assert [one["gap"] for one in told if "gap" in one] == [{"from": end, "to": 4 * SEGMENT}]
    assert int(done.status) == 6
    assert master.files().items() <= log_files(tmp_path / "m").items()


def test_a_cut_connection_is_taken_up_again(master, tmp_path):
    master.grow(300)
    master.cuts = [1, 13, 5_000, 70_000, 70_001]
    done = once(master, tmp_path / "m")
    assert len(master.starts) == 6
    assert log_files(tmp_path / "m") == master.files()
    assert done.line["durable"] == len(master.log)


def test_a_mirror_follows_until_it_is_stopped(master, tmp_path):
    master.grow(20)
    stop, told = threading.Event(), []
    thread = threading.Thread(
        target=lambda: mirrored(master.address, tmp_path / "m", stop=stop, told=told.append, config_every="20ms")
    )
    thread.start()
    for _ in range(5):
        wait_for(lambda: master.reports and master.reports[-1] == len(master.log))
        master.grow(20)
    wait_for(lambda: master.reports[-1] == len(master.log))
    stop.set()
    wait_for_end(thread)
    assert log_files(tmp_path / "m") == master.files()
    assert told[0] == {"event": "connected", "master": master.address}


def test_without_acknowledgements_the_first_report_is_the_only_one(master, tmp_path, monkeypatch):
    monkeypatch.setattr("rmqtool.replica.slave.HEARTBEAT", 0.0)
    master.grow(100)
    once(master, tmp_path / "m", ack="never")
    assert set(master.reports) == {1}
    assert len(master.reports) > 1


def test_nothing_is_acknowledged_that_is_not_synced(master, tmp_path, monkeypatch):
    """Each report is at most where the log was when the last sync began that has ended."""
    monkeypatch.setattr("rmqtool.replica.slave._SYNC_BYTES", 20_000)
    synced, sync, report = [1], PosixWritableFile.fdatasync, Stream.report

    def fdatasync(file):
        path = Path(file.shown)
        # No record ends with a zero, so that the end of what is written can be seen.
        written = len(path.read_bytes().rstrip(b"\0")) if path.name.isdecimal() else 0
        sync(file)
        synced.append(written + int(path.name) if written else 0)

    def spy(stream, offset):
        # A segment ends with the zeros of a blank record.
        assert offset <= max(synced) or (offset % SEGMENT == 0 and max(synced) > offset - 2000)
        report(stream, offset)

    monkeypatch.setattr(PosixWritableFile, "fdatasync", fdatasync)
    monkeypatch.setattr(Stream, "report", spy)
    master.grow(400)
    once(master, tmp_path / "m")
    assert len(set(master.reports)) > 3


def test_a_failed_sync_ends_the_mirror_and_acknowledges_nothing_more(master, tmp_path, monkeypatch):
    master.grow(100)
    sync = PosixWritableFile.fdatasync

    def fdatasync(file):
        if "commitlog" in file.shown:
            raise NoSpace("the disk is full", file=file.shown)
        sync(file)

    monkeypatch.setattr(PosixWritableFile, "fdatasync", fdatasync)
    with pytest.raises(WriteFailed):
        once(master, tmp_path / "m")
    assert set(master.reports) == {1}


def test_the_configuration_is_that_of_the_master(master, tmp_path):
    master.grow(10)
    master.delay_offsets = b'{"offsetTable":{3:7}}'
    once(master, tmp_path / "m")
    config = tmp_path / "m" / "config"
    topics = json.loads((config / "topics.json").read_text())
    assert set(topics) == {"dataVersion", "topicConfigTable"}
    assert topics["topicConfigTable"]["T"]["writeQueueNums"] == 4
    assert '"T@G"' in (config / "consumerOffset.json").read_text()
    assert "7" in (config / "delayOffset.json").read_text()
    assert (
        json.loads((config / "subscriptionGroup.json").read_text())["subscriptionGroupTable"]["G"]["retryMaxTimes"]
        == 16
    )
    # The time that the master has delivered up to; its position in its timer log is not ours.
    assert (config / "timercheck").read_bytes()[:32] == b"".join(
        number.to_bytes(8, "big") for number in (1700000001000, 0, 0, 8)
    )
    assert not [path for path in config.iterdir() if path.name.startswith("timercheck.")]


@pytest.mark.parametrize(
    ("version", "settings", "is_told"),
    [
        ("V5_3_3", "inSyncReplicas=1\n", True),
        ("V5_3_3", "inSyncReplicas=2\n", False),
        ("V5_3_3", "inSyncReplicas=1\nallAckInSyncStateSet=true\n", False),
        ("V4_9_7", "", False),
    ],
)
def test_a_sync_master_that_waits_for_no_slave_is_told(master, tmp_path, version, settings, is_told):
    """Since 5.0 the master counts itself: by default it waits for nobody."""
    master.role, master.version, master.more = "SYNC_MASTER", version, settings
    master.grow(10)
    told = []
    once(master, tmp_path / "m", told=told.append)
    notes = [one["reason"] for one in told if one.get("event") == "note"]
    assert ["inSyncReplicas=2" in note for note in notes] == [True] * is_told


@pytest.mark.parametrize(
    ("version", "role", "ack", "is_told"),
    [
        ("V4_9_7", "SYNC_MASTER", "never", True),
        ("V4_9_7", "SYNC_MASTER", "durable", False),
        ("V4_9_7", "ASYNC_MASTER", "never", False),
        ("V5_3_3", "SYNC_MASTER", "never", False),
    ],
)
def test_a_sync_master_that_waits_for_nothing_is_told(master, tmp_path, version, role, ack, is_told):
    """4.9 takes each connection for a slave, also one that acknowledges nothing."""
    master.role, master.version, master.more = role, version, "inSyncReplicas=2\n"
    master.grow(10)
    told = []
    once(master, tmp_path / "m", told=told.append, ack=ack)
    notes = [one["reason"] for one in told if one.get("event") == "note"]
    assert ["waits for each connection" in note for note in notes] == [True] * is_told


def test_a_4_9_master_is_not_asked_for_what_it_does_not_know(master, tmp_path):
    master.version = "V4_9_7"
    master.grow(10)
    once(master, tmp_path / "m")
    assert not {60, 61, 402} & {one.code for one in master.requests}
    assert "rmqtool.as=4.9" in (tmp_path / "m" / "broker.conf").read_text().replace(" ", "")


def test_old_segments_are_deleted_and_the_last_one_stays(master, tmp_path):
    master.grow(300)
    done = once(master, tmp_path / "m", keep="30d")
    assert sorted(log_files(tmp_path / "m")) == [max(master.files())]
    assert done.line["from"] == int(max(master.files()))


def test_a_damaged_record_does_not_keep_all_segments_for_ever(master, tmp_path):
    """The copy has the damage of the master. It cannot be seen how old the record is with which a segment begins."""
    master.grow(300)
    master.log[SEGMENT + 4 : SEGMENT + 8] = b"\xff" * 4
    once(master, tmp_path / "m", keep="30d")
    assert sorted(log_files(tmp_path / "m")) == [max(master.files())]


def test_a_cluster_with_one_broker_needs_no_name(master, tmp_path):
    master.grow(10)
    mirrored(f"rocketmq://{master.address}", tmp_path / "m", once=True)
    assert log_files(tmp_path / "m") == master.files()


def test_nothing_is_made_where_no_master_answers(tmp_path):
    with pytest.raises(RemoteError):
        mirrored("127.0.0.1:1", tmp_path / "m", once=True)
    assert not os.path.exists(tmp_path / "m")


@pytest.fixture
def controlled():
    with in_thread(ScriptedMaster(epochs=[(1, 0), (2, SEGMENT + 1000)])) as found:
        yield found


def test_a_learner_keeps_the_epochs_of_its_masters(controlled, tmp_path):
    controlled.grow(200)
    once(controlled, tmp_path / "m")
    assert log_files(tmp_path / "m") == controlled.files()
    # Handshake, not from the last file, asynchronous learner.
    assert controlled.greetings[0][:8] == bytes.fromhex("00000001 0000 0001")
    lines = (tmp_path / "m" / "epochFileCheckpoint").read_text().splitlines()
    assert [lines[0], *lines[2:]] == ["2", "1-0", f"2-{SEGMENT + 1000}"]


def test_a_master_of_other_epochs_is_told(controlled, tmp_path):
    controlled.grow(200)
    once(controlled, tmp_path / "m")
    before = log_files(tmp_path / "m")
    controlled.epochs = [(1, 0), (3, SEGMENT + 500)]
    controlled.grow(50)
    with pytest.raises(MasterChanged) as told:
        once(controlled, tmp_path / "m")
    assert told.value.offset == SEGMENT + 500
    assert log_files(tmp_path / "m") == before


@pytest.fixture
def following(controlled, tmp_path):
    """Give a mirror of a controlled master that follows in a thread; it ends with the test."""
    stop, told = threading.Event(), []
    how = {"stop": stop, "told": told.append, "config_every": "20ms"}
    thread = threading.Thread(target=lambda: mirrored(controlled.address, tmp_path / "m", **how))
    thread.start()
    yield told
    stop.set()
    wait_for_end(thread)


def ends_at(root, master, end):
    """Return whether a mirror has the bytes of its master before ``end``, and zeros from there on."""
    has = b"".join(log_files(root).values()) if (root / "commitlog").exists() else b""
    return has[:end] == master.log[:end] and not has[end:].strip(b"\0")


@pytest.mark.parametrize("slow", [False, True])
def test_nothing_is_stored_that_is_not_confirmed(slow, controlled, following, tmp_path, monkeypatch):
    """Neither bytes nor epochs of a master that may lose them again; a heartbeat tells that they are confirmed."""
    if slow:
        monkeypatch.setattr("rmqtool.replica.slave._MUCH", 1000)
        monkeypatch.setattr("rmqtool.replica.slave._LITTLE", 100)
        monkeypatch.setattr("rmqtool.replica.slave._SLOW", 0.001)
    controlled.confirmed = 40_000
    controlled.grow(100)
    wait_for(lambda: ends_at(tmp_path / "m", controlled, 40_000))
    time.sleep(0.1)
    assert ends_at(tmp_path / "m", controlled, 40_000)
    assert max(controlled.reports) <= 40_000
    assert (tmp_path / "m" / "epochFileCheckpoint").read_text().splitlines()[2:] == ["1-0"]
    for confirmed in (40_001, 66_000, len(controlled.log)):
        controlled.confirmed = confirmed
        wait_for(lambda confirmed=confirmed: ends_at(tmp_path / "m", controlled, confirmed))
    wait_for(lambda: "2-66536" in (tmp_path / "m" / "epochFileCheckpoint").read_text())
    assert log_files(tmp_path / "m") == controlled.files()


def test_a_mirror_goes_on_with_a_master_that_lacks_what_was_not_confirmed(controlled, following, tmp_path):
    controlled.confirmed = 60_000
    controlled.grow(100)
    wait_for(lambda: ends_at(tmp_path / "m", controlled, 60_000))
    other = ScriptedMaster()
    other.grow(120, text="other")
    controlled.replaced(controlled.log[:60_000] + other.log[60_000:], [(1, 0), (3, 60_000)])
    wait_for(lambda: len(controlled.log) == len(other.log) and ends_at(tmp_path / "m", controlled, len(other.log)))
    assert (tmp_path / "m" / "epochFileCheckpoint").read_text().splitlines()[2:] == ["1-0", "3-60000"]
    assert log_files(tmp_path / "m") == controlled.files()
    assert "lost" in {one.get("event") for one in following}


def test_a_live_mirror_has_queues_while_it_grows(master, tmp_path):
    """Records are cut anywhere by the frames; whole ones are in the queues a second later."""
    master.grow(150)
    stop, root = threading.Event(), tmp_path / "m"
    how = {"stop": stop, "live": True, "config_every": "20ms"}
    thread = threading.Thread(target=lambda: mirrored(master.address, root, **how))
    thread.start()
    wait_for(lambda: queue_entries(root) == 150)
    master.grow(130)
    wait_for(lambda: queue_entries(root) == 280)
    found = rmqtool.query(str(root), "T/0@200")
    assert [one["queueOffset"] for one in found["messages"]] == [200]
    stop.set()
    wait_for_end(thread)
    assert log_files(root) == master.files()
    assert [one.code for one in rmqtool.check(str(root))] == []


def queue_entries(root):
    """Return how many entries the files of the queue have."""
    data = b"".join(path.read_bytes() for path in sorted((root / "consumequeue" / "T" / "0").glob("0*")))
    return sum(data[at + 8 : at + 12] != bytes(4) for at in range(0, len(data), 20))


def test_a_mirror_becomes_live_later_and_after_a_kill(master, tmp_path):
    master.grow(150)
    once(master, tmp_path / "m")
    master.grow(20)
    once(master, tmp_path / "m", live=True)
    cut(tmp_path / "m", len(master.log) - 300)
    (tmp_path / "m" / "abort").touch()
    master.grow(120)
    once(master, tmp_path / "m", live=True)
    assert log_files(tmp_path / "m") == master.files()
    assert queue_entries(tmp_path / "m") == 290
    assert not (tmp_path / "m" / "abort").exists()


def test_a_live_mirror_that_is_killed_before_its_first_segment_goes_on(master, tmp_path):
    """Its store was open already, so that it has ``abort``, and its log has no file."""
    master.grow(3)
    once(master, tmp_path / "m", live=True)
    for path in (tmp_path / "m/commitlog").iterdir():
        path.unlink()
    for path in (tmp_path / "m/consumequeue").rglob("0*"):
        if path.is_file():
            path.unlink()
    (tmp_path / "m/abort").touch()
    once(master, tmp_path / "m", live=True)
    assert log_files(tmp_path / "m") == master.files()
    assert queue_entries(tmp_path / "m") == 3


def test_a_live_mirror_goes_over_a_gap_and_deletes_old_segments(master, tmp_path):
    master.grow(150)
    once(master, tmp_path / "m", live=True)
    master.grow(300)
    master.min_offset = 4 * SEGMENT
    assert once(master, tmp_path / "m", live=True).has_gap
    assert queue_entries(tmp_path / "m") > 280
    once(master, tmp_path / "m", live=True, keep="30d")
    assert sorted(log_files(tmp_path / "m")) == [max(master.files())]


@pytest.fixture
def running(master, tmp_path):
    """Give a function that starts a mirror in a thread; it gives the events, and what ended the mirror. All end."""
    stop, threads = threading.Event(), []

    def start(address=master.address, **how):
        told: list[object] = []

        def run():
            try:
                mirrored(address, tmp_path / "m", stop=stop, told=told.append, config_every="20ms", **how)
            except rmqtool.RmqtoolError as error:
                told.append(error)

        threads.append(threading.Thread(target=run))
        threads[-1].start()
        return told

    yield start
    stop.set()
    wait_for_end(*threads)


def test_a_gap_that_opens_before_a_connected_mirror_is_told_and_skipped(master, running, tmp_path):
    """A master deletes segments that a slow slave still wants: it sends heartbeats from then on, and nothing else."""
    master.grow(150)
    told = running()
    wait_for(lambda: master.reports and master.reports[-1] == len(master.log))
    end = len(master.log)
    master.changed(lambda: (master.grow(300), setattr(master, "min_offset", 4 * SEGMENT)))
    wait_for(lambda: any("gap" in one for one in told))
    wait_for(lambda: master.reports[-1] == len(master.log))
    assert [one["gap"] for one in told if "gap" in one] == [{"from": end, "to": 4 * SEGMENT}]
    assert master.files().items() <= log_files(tmp_path / "m").items()


def test_where_a_mirror_began_is_not_asked_again_after_a_connection(master, running, tmp_path):
    """The master has deleted the offset of ``--from`` meanwhile."""
    master.grow(300)
    told = running(begin=SEGMENT)
    wait_for(lambda: master.reports and master.reports[-1] == len(master.log))
    master.min_offset = 3 * SEGMENT
    master.hang_up()
    wait_for(lambda: len(master.starts) == 2)
    master.grow(10)
    wait_for(lambda: master.reports[-1] == len(master.log))
    assert {one["event"] for one in told if "event" in one} == {"connected", "lost"}


def test_a_broker_that_joins_the_cluster_later_does_not_end_a_mirror(master, running, tmp_path):
    master.grow(20)
    told = running(f"rocketmq://{master.address}")
    wait_for(lambda: master.reports and master.reports[-1] == len(master.log))
    master.others, master.is_registered = ["broker-0"], False
    master.hang_up()
    wait_for(lambda: any("has no broker broker-a" in one.get("reason", "") for one in told))
    master.is_registered = True
    wait_for(lambda: len(master.starts) == 2)
    master.grow(10)
    wait_for(lambda: master.reports[-1] == len(master.log))
    assert {one["event"] for one in told if "event" in one} == {"connected", "lost"}


def test_another_broker_at_the_address_is_refused_at_the_next_connection(master, running, tmp_path):
    told = running()
    wait_for(lambda: any("durable" in one for one in told))
    master.grow(20)
    wait_for(lambda: len(master.starts) == 1)
    master.name = "broker-b"
    master.hang_up()
    wait_for(lambda: isinstance(told[-1], Refused))
    assert "is the mirror of DefaultCluster/broker-a" in told[-1].message


def test_tables_of_a_master_that_was_replaced_are_not_taken(master, tmp_path):
    """They come while the first bytes are still awaited: before it is seen that the log is another one."""
    master.grow(150)
    once(master, tmp_path / "m")
    before = {path.name: path.read_bytes() for path in (tmp_path / "m/config").iterdir()}
    other = ScriptedMaster()
    other.grow(250, text="other")
    master.log[:] = other.log
    master.plays[201] = lambda one: reply(one, body=b'{"subscriptionGroupTable":{}}')
    master.requests.clear()
    master.waits_for = lambda: len(master.asked(28)) > 4
    with pytest.raises(MasterChanged):
        once(master, tmp_path / "m", config_every="20ms")
    assert {path.name: path.read_bytes() for path in (tmp_path / "m/config").iterdir()} == before


def test_the_end_of_a_master_that_does_not_answer_is_unknown(master, running, monkeypatch):
    """Its log may grow without the mirror: nobody is told that the mirror has everything."""
    monkeypatch.setattr("rmqtool.replica.follower._LINE", 0.01)
    master.grow(20)
    told = running()
    wait_for(lambda: any(one.get("masterMax") == len(master.log) for one in told))
    master.plays[28] = lambda one: reply(one, 1, remark="no")
    wait_for(lambda: told[-1].get("masterMax", 0) is None)


def test_the_end_of_a_master_is_known_while_its_tables_do_not_come(master, running, monkeypatch):
    monkeypatch.setattr("rmqtool.replica.follower._LINE", 0.01)
    master.plays[43] = lambda _: None
    told = running()
    wait_for(lambda: master.asked(43))
    master.grow(20)
    wait_for(lambda: told[-1].get("masterMax") == len(master.log))
    assert len(master.asked(43)) == 1


def test_lines_go_on_while_the_master_is_gone(master, running, monkeypatch):
    monkeypatch.setattr("rmqtool.replica.follower._LINE", 0.01)
    master.grow(20)
    told = running()
    wait_for(lambda: any(one.get("masterMax") == len(master.log) for one in told))
    master.plays[26] = lambda one: reply(one, 1, remark="no")
    master.hang_up()
    wait_for(lambda: any(one.get("event") == "lost" for one in told))
    count = len(told)
    wait_for(lambda: len(told) > count + 3)
    assert told[-1]["masterMax"] is None
