"""Lives that a power cut may end: each lays a disk, works on it, and knows what must be left.

``lay`` makes a disk on which everything is durable. ``live`` works on it until it is done or the power is gone, and
notes each promise when it is made. ``judge`` reads what is left with the independent reader, lets rmqtool recover the
store as a user would, and reads it again.
"""

from __future__ import annotations

import copy
import json
import random
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from rmqtool.broker.groups import SubscriptionGroups
from rmqtool.broker.offsets import ConsumerOffsets
from rmqtool.broker.topics import TopicConfigs
from rmqtool.config import FlushDiskType, Version
from rmqtool.engine import bulk_load
from rmqtool.engine.load import DIRECTORIES, create_store
from rmqtool.engine.message import NewMessage
from rmqtool.engine.parts import Setup
from rmqtool.engine.put import PutTicket
from rmqtool.engine.recovery.recover import recover
from rmqtool.engine.store import MessageStore
from rmqtool.errors import RmqtoolError
from rmqtool.findings import Finding
from rmqtool.formats import paths
from rmqtool.replica.mirror_log import MirrorLog
from rmqtool.store.config_files import config_text
from tests.crash import waiting_life
from tests.crash.test_recovery_crash import check_whole, damaged_disk, setup_on
from tests.crash.test_repair_crash import a_disk, a_repaired_disk, check_repaired, repair, undo_all
from tests.proof import reader
from tests.proof.model_disk import STORE, settle, tree_of_disk
from tests.support import builders
from tests.support.engine_stores import SLOTS, SMALL, a_message, clock_of, small_setup
from tests.support.faulty import FaultyFileSystem
from tests.support.faulty_disk import Crash, FaultyDisk
from tests.support.manual_clock import ManualClock

_SYNC = {"flushDiskType": FlushDiskType.SYNC_FLUSH, "mappedFileSizeCommitLog": 2048}


class Life:
    """One life; ``chance`` decides what differs from seed to seed."""

    name: ClassVar[str]
    # Of the store, where that makes a difference.
    version = Version.V5_3

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance

    def lay(self) -> FaultyDisk:
        """Return the disk on which the life begins."""
        return FaultyDisk()

    def live(self, disk: FaultyDisk) -> None:
        """Work, and note promises."""
        raise NotImplementedError

    def judge(self, outcome: FaultyDisk) -> list[str]:
        """Return in words what is wrong with the disk that was found after the power cut."""
        raise NotImplementedError

    def promises(self) -> object:
        """Return what ``judge`` must find, as far as it grows during the life."""
        return None

    def frozen(self) -> Life:
        """Return this life with the promises that were made until now."""
        found = copy.copy(self)
        vars(found).update({name: copy.copy(value) for name, value in vars(self).items() if isinstance(value, dict)})
        return found


class Puts(Life):
    """Messages put one by one and in windows, dispatched, rolled over segments, with the checkpoint; then closed.

    A message that was acknowledged under SYNC_FLUSH is there, once, at its place. What is there is what was put.
    """

    name = "puts"

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self.version = chance.choice(list(Version))
        self.acknowledged: dict[int, tuple[str, int, int, bytes]] = {}
        self.submitted: set[bytes] = set()
        # The store was closed, and not opened since.
        self.is_closed = False
        self._lock = threading.Lock()

    def setup(self, disk: FaultyDisk) -> Setup:
        return small_setup(self.version, FaultyFileSystem(disk, STORE), **_SYNC)

    def live(self, disk: FaultyDisk) -> None:
        with MessageStore.create(self.setup(disk)) as store:
            self.work(store, 0)
        self.is_closed = True
        disk.watch()
        self.is_closed = False
        with MessageStore.open(self.setup(disk)) as store:
            self.work(store, 100)
        self.is_closed = True

    def work(self, store: MessageStore, first: int) -> None:
        number = first
        for _ in range(10):
            match self.chance.randrange(5):
                case 0 | 1:
                    self.put(store, number)
                    number += 1
                case 2:
                    messages = [self.message(number + more) for more in range(4)]
                    number += len(messages)
                    window = [(store.put_async(message), message) for message in messages]
                    for ticket, message in reversed(window):
                        store.wait(ticket)
                        self.note(ticket, message)
                case 3:
                    store.dispatch_now()
                case 4:
                    clock_of(store).advance(30_000)
                    store.tick()

    def message(self, number: int) -> NewMessage:
        body = b"message %d " % number + b"x" * self.chance.choice((0, 30, 400, 1300))
        with self._lock:
            self.submitted.add(body)
        # Few keys, so that chains of the index have several messages of one key.
        properties = {"KEYS": f"k{number % 5}", "TAGS": "TagA"}
        return a_message(number, queue_id=number % 2, body=body, properties=properties)

    def put(self, store: MessageStore, number: int) -> None:
        message = self.message(number)
        self.note(store.put(message), message)

    def note(self, ticket: PutTicket, message: NewMessage) -> None:
        """Keep the promise of an acknowledged put."""
        if ticket.is_ok:
            topic, queue_id = ticket.queue
            with self._lock:
                self.acknowledged[ticket.physical_offset] = (topic, queue_id, ticket.queue_offset, message.body or b"")

    def judge(self, outcome: FaultyDisk) -> list[str]:
        tree = tree_of_disk(outcome)
        wrong = self.missing(tree) + self.ahead(tree) + self.believed(tree)
        try:
            report = recover(self.setup(outcome))
        except RmqtoolError as error:
            return wrong + ([f"recover: {error.message}"] if self.acknowledged else [])
        tree = tree_of_disk(outcome)
        misplaced = reader.misplaced(tree, _damaged(report.findings))
        found = self.missing(tree) + misplaced + reader.torn(tree) + self.not_indexed(tree) + odd_sizes(tree)
        wrong += [f"after recover: {one}" for one in found]
        unreached = [record.physical_offset for record in reader.unreached(tree)]
        wrong += [f"after recover: no queue leads to {unreached}"] if unreached else []
        with MessageStore.open(self.setup(outcome)) as store:
            if not store.put(a_message(9999)).is_ok:
                wrong.append("after recover: a put is refused")
        return wrong

    def promises(self) -> object:
        return sorted(self.acknowledged), self.is_closed

    def missing(self, tree: Mapping[str, bytes]) -> list[str]:
        """Return what was acknowledged and is not there, and what is there and was never put."""
        found = {one.physical_offset: one for one in reader.iter_records(tree)}
        wrong = []
        for place, (topic, queue_id, queue_offset, body) in self.acknowledged.items():
            one = found.get(place)
            if one is None:
                wrong.append(f"acknowledged {topic}/{queue_id}@{queue_offset} is not at {place}")
            elif (one.topic.decode(), one.queue_id, one.queue_offset, one.body) != (
                topic,
                queue_id,
                queue_offset,
                body,
            ):
                wrong.append(f"another message than the acknowledged one is at {place}")
        wrong += [f"{one.body[:20]!r} was never put" for one in found.values() if one.body not in self.submitted]
        numbers = [(one.topic, one.queue_id, one.queue_offset) for one in found.values()]
        if len(numbers) > len(set(numbers)):
            wrong.append("two messages have the same queue offset")
        return wrong

    def ahead(self, tree: Mapping[str, bytes]) -> list[str]:
        """Return whether the checkpoint says more than is there: a recovery would begin too late."""
        log, _, _ = reader.checkpoint_times(tree)
        newest = max((one.store_timestamp for one in reader.iter_records(tree)), default=0)
        return [f"the checkpoint is at {log}, the newest record at {newest}"] if log > newest else []

    def believed(self, tree: Mapping[str, bytes]) -> list[str]:
        """Return what a broker would believe of this store before any recovery, and that is not so.

        Without its marker a store was closed: queues, index and checkpoint have all of the log. With it a broker reads
        the log from a segment on, and believes what queues have of the messages before.
        """
        if "abort" in tree:
            begin = reader.begin_of_recovery(tree)
            lost = [one for one in reader.unreached(tree) if one.physical_offset < begin]
            found = [f"no queue leads to {one.physical_offset}, and a broker begins at {begin}" for one in lost]
            return [*found, *(["the store was closed, and its marker is there"] if self.is_closed else [])]
        lost = reader.unreached(tree)
        found = [f"no queue leads to {one.physical_offset} of a closed store" for one in lost]
        log, queue, _ = reader.checkpoint_times(tree)
        newest = max((one.store_timestamp for one in reader.iter_records(tree)), default=0)
        if min(log, queue) < newest:
            found.append(f"the checkpoint of a closed store has {log} and {queue}, its newest record {newest}")
        return [f"closed: {one}" for one in found + reader.torn(tree) + _empty(tree) + self.not_indexed(tree)]

    def not_indexed(self, tree: Mapping[str, bytes]) -> list[str]:
        """Return the keys of messages that the index does not lead to, newest message first."""
        wrong = []
        places: dict[str, list[int]] = {}
        for one in reader.iter_records(tree):
            key = one.properties.partition(b"KEYS\x01")[2].partition(b"\x02")[0].decode()
            if not key:
                # A torn record that nobody was promised: its body arrived and its properties did not. Without a
                # checksum of the properties nothing tells, and brokers keep it too.
                continue
            places.setdefault(f"{one.topic.decode()}#{key}", []).insert(0, one.physical_offset)
        whole = {one.physical_offset for one in reader.iter_records(tree)}
        for text, expected in places.items():
            # The index keeps entries of messages that retention deleted and of damaged ones, and brokers skip them.
            found = [place for place in reader.index_hits(tree, text, SLOTS) if place in whole]
            if found != expected:
                wrong.append(f"the index has {found} for {text}, not {expected}")
        return wrong


def odd_sizes(tree: Mapping[str, bytes]) -> list[str]:
    """Return the files of log and queues that have another size than the settings say: brokers refuse to start."""
    sizes = {"commitlog": _SYNC["mappedFileSizeCommitLog"], "consumequeue": SMALL["mappedFileSizeConsumeQueue"]}
    wanted = {path: sizes.get(path.split("/")[0], len(data)) for path, data in tree.items()}
    return [f"{path} has {len(tree[path])} bytes" for path, size in wanted.items() if len(tree[path]) != size]


def _empty(tree: Mapping[str, bytes]) -> list[str]:
    """Return whether an empty segment follows one that is not ended by its blank record."""
    found = reader.segments(tree)
    if len(found) < 2 or any(found[max(found)]):
        return []
    base = max(set(found) - {max(found)})
    return [] if reader.is_ended(found[base], base) else ["an empty segment follows a log that ends before it"]


def _damaged(findings: Sequence[Finding]) -> list[range]:
    """Return the spans of the log that a recovery named as damaged."""
    found = []
    for one in findings:
        if one.code.startswith("CL-") and one.offset is not None and one.file is not None:
            start = int(one.file.rpartition("/")[2]) + one.offset
            found.append(range(start, start + (one.length or 1)))
    return found


class Producers(Puts):
    """Several producers at once on a store that syncs for all of them."""

    name = "producers"

    def setup(self, disk: FaultyDisk) -> Setup:
        # A thread that waits for the one that met the power cut must not wait long.
        return small_setup(self.version, FaultyFileSystem(disk, STORE), **_SYNC, syncFlushTimeout=150)

    def live(self, disk: FaultyDisk) -> None:
        met: list[BaseException] = []

        def produce(store: MessageStore, first: int) -> None:
            try:
                for number in range(first, first + 6):
                    self.put(store, number)
            except BaseException as error:
                met.append(error)

        # The disk is in memory and answers at once: only threads that take turns quickly meet each other there.
        usual = sys.getswitchinterval()
        sys.setswitchinterval(5e-6)
        try:
            with MessageStore.create(self.setup(disk)) as store:
                threads = [threading.Thread(target=produce, args=(store, 100 * number)) for number in range(3)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                self._raise(disk, met)
        finally:
            sys.setswitchinterval(usual)

    @staticmethod
    def _raise(disk: FaultyDisk, met: Sequence[BaseException]) -> None:
        if disk.crashed:
            raise Crash
        if met:
            raise met[0]


class Retention(Puts):
    """Old segments are deleted, with the queue and index files that lead to them; the young ones stay."""

    name = "retention"
    # How many segments go: the first index file leads to nothing else.
    _GOES = 5

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        # What was said to be removed.
        self.removed: tuple[str, ...] = ()

    def lay(self) -> FaultyDisk:
        disk = FaultyDisk()
        with MessageStore.create(self.setup(disk)) as store:
            number = 0
            while len(store.commit_log.segments) < self._GOES + 3:
                self.put(store, number)
                number += 1
            store.flush_now()
        settle(disk)
        return disk

    def live(self, disk: FaultyDisk) -> None:
        setup = self.setup(disk)
        made = Setup(setup.files, setup.config, setup.clock, expires=True)
        with MessageStore.open(made) as store:
            clock = clock_of(store)
            clock.advance(6 * 3_600_000)
            segments = store.commit_log.segments.segments
            first_kept = segments[self._GOES].base_offset
            for place in [place for place in self.acknowledged if place < first_kept]:
                del self.acknowledged[place]
            for segment in segments[: self._GOES]:
                old = made.files.stat(segment.path)
                then = (clock.now() - 80 * 3_600_000) * 1_000_000
                made.files.set_attributes(segment.path, type(_attributes(old))(*_attributes(old)[:3], then))
            self.removed = store.clean_now().files
            disk.watch()
            self.put(store, 900)
        self.is_closed = True

    def promises(self) -> object:
        return super().promises(), self.removed

    def judge(self, outcome: FaultyDisk) -> list[str]:
        back = sorted(tree_of_disk(outcome).keys() & set(self.removed))
        return super().judge(outcome) + [f"{path} was removed, and is there again" for path in back]


def _attributes(status: Any) -> Any:
    from rmqtool.files.filesystem import Attributes

    return Attributes.of(status)


class Recoveries(Puts):
    """A store whose writer lost power is recovered, and the recovery loses power too."""

    name = "recovery after a crash"

    def lay(self) -> FaultyDisk:
        while True:
            disk = FaultyDisk()
            self.acknowledged.clear()
            disk.crash_at(self.chance.randrange(30, 130))
            try:
                Puts.live(self, disk)
            except Crash:
                seed = self.chance.randrange(1 << 30)
                after = disk.after_crash(random.Random(seed).randrange)
                settle(after)
                if self.acknowledged:
                    return after

    def live(self, disk: FaultyDisk) -> None:
        recover(self.setup(disk))
        self.is_closed = True
        disk.watch()
        self.is_closed = False
        with MessageStore.open(self.setup(disk)) as store:
            self.put(store, 500)
        self.is_closed = True


class Services(Life):
    """Delayed, timer, transactional, retried and popped messages come, whenever the power goes."""

    name = "services"

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self.version = chance.choice((Version.V4_9, Version.V5_3))

    def lay(self) -> FaultyDisk:
        disk = FaultyDisk()
        waiting_life.lay(FaultyFileSystem(disk, STORE), self.version)
        settle(disk)
        return disk

    def live(self, disk: FaultyDisk) -> None:
        waiting_life.live_on(FaultyFileSystem(disk, STORE), self.version)

    def judge(self, outcome: FaultyDisk) -> list[str]:
        files = FaultyFileSystem(outcome, STORE)
        recover(waiting_life.setup_on(files, self.version))
        waiting_life.live_on(files, self.version)
        tree = tree_of_disk(outcome)
        came = {(one.topic.decode(), one.body.decode()) for one in reader.iter_records(tree)}
        lost = waiting_life.promised(self.version) - came
        return [f"never came: {sorted(lost)}"] if lost else reader.misplaced(tree)


class Tables(Life):
    """Topics, groups and committed offsets: after each save the file is what was saved, or what was there before."""

    name = "tables"
    _FILES = (paths.TOPICS, paths.SUBSCRIPTION_GROUP, paths.CONSUMER_OFFSET)

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        # The last durable content of each file, and that of a save that may have been cut.
        self.saved: dict[str, bytes | None] = dict.fromkeys(self._FILES)
        self.begun: dict[str, bytes | None] = dict.fromkeys(self._FILES)

    def lay(self) -> FaultyDisk:
        disk = FaultyDisk()
        files = FaultyFileSystem(disk, STORE)
        files.mkdir("config")
        settle(disk)
        return disk

    def live(self, disk: FaultyDisk) -> None:
        files, clock = FaultyFileSystem(disk, STORE), ManualClock()
        config = small_setup(Version.V5_3, files).config
        topics = TopicConfigs(config_text(files, paths.TOPICS), Version.V5_3, clock)
        groups = SubscriptionGroups(config_text(files, paths.SUBSCRIPTION_GROUP), config, clock)
        offsets = ConsumerOffsets(config_text(files, paths.CONSUMER_OFFSET), Version.V5_3, clock)
        for number in range(4):
            topics.create(f"T{number}")
            self._save(disk, paths.TOPICS, topics.encode, topics.save)
            groups.create(f"G{number}")
            self._save(disk, paths.SUBSCRIPTION_GROUP, groups.encode, groups.save_changed)
            offsets.commit_offset(f"G{number}", "T0", 0, number)
            self._save(disk, paths.CONSUMER_OFFSET, lambda: None, offsets.save)

    def _save(
        self, disk: FaultyDisk, name: str, encode: Callable[[], bytes | None], save: Callable[[], object]
    ) -> None:
        self.begun[name] = encode()
        save()
        self.saved[name] = tree_of_disk(disk)[f"config/{name}"]

    def judge(self, outcome: FaultyDisk) -> list[str]:
        tree, wrong = tree_of_disk(outcome), []
        for name in self._FILES:
            copies = [tree.get(f"config/{name}{suffix}") for suffix in ("", ".bak")]
            loaded = next((one for one in copies if one is not None and _is_json(one)), None)
            if self.saved[name] is not None and loaded is None:
                wrong.append(f"{name} was saved and cannot be loaded")
            elif self.saved[name] is not None and name == paths.CONSUMER_OFFSET:
                wrong += self._went_back(name, loaded or b"")
            elif self.saved[name] is not None and loaded not in (self.saved[name], self.begun[name]):
                wrong.append(f"{name} is neither what was saved last nor what was being saved")
        return wrong

    def promises(self) -> object:
        return self.saved, self.begun

    def _went_back(self, name: str, loaded: bytes) -> list[str]:
        """A committed offset that was saved does not go back; a save that was cut may be there already."""
        saved = self.saved[name] or b""
        return [f"{name} lost offsets"] if loaded.count(b"T0@G") < saved.count(b"T0@G") else []


class Batches(Life):
    """What a store notes of the batches of a stream: the note is always whole, the old one or the new one."""

    name = "batches of a stream"

    def lay(self) -> FaultyDisk:
        disk = FaultyDisk()
        self._note(disk, 0)
        settle(disk)
        return disk

    def live(self, disk: FaultyDisk) -> None:
        for number in range(1, 4):
            self._note(disk, number)

    @staticmethod
    def _note(disk: FaultyDisk, number: int) -> None:
        bulk_load._note_batch(FaultyFileSystem(disk, STORE), bulk_load.StreamBatch("query", number), 1_700_000_000_000)

    def judge(self, outcome: FaultyDisk) -> list[str]:
        data = tree_of_disk(outcome)[bulk_load.SINK_BATCHES]
        try:
            return [] if json.loads(data)["queries"]["query"]["batch"] in range(4) else [f"{data!r} was never noted"]
        except ValueError:
            return [f"the note of the batches is not whole: {data!r}"]


def _is_json(data: bytes) -> bool:
    """Return whether a table is a whole object; fastjson writes bare numbers as names of queues."""
    try:
        json.loads(_quote_names(data.decode()))
    except ValueError:
        return False
    return True


def _quote_names(text: str) -> str:
    import re

    return re.sub(r"([{,]\s*)(\d+)(\s*:)", r'\1"\2"\3', text)


class DamagedStore(Life):
    """A damaged store is recovered: 28 of its 30 messages are whole, and stay so."""

    name = "recovery of a damaged store"

    def lay(self) -> FaultyDisk:
        disk = damaged_disk()
        settle(disk)
        return disk

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self.is_recovered = False

    def live(self, disk: FaultyDisk) -> None:
        recover(setup_on(disk))
        self.is_recovered = True

    def promises(self) -> object:
        return self.is_recovered

    def judge(self, outcome: FaultyDisk) -> list[str]:
        if self.is_recovered:
            tree = tree_of_disk(outcome)
            lost = [f"no queue leads to {one.physical_offset} of a recovered store" for one in reader.unreached(tree)]
            if flaws := lost + reader.torn(tree) + _empty(tree):
                return flaws
        whole = {one.identity for one in reader.iter_records(tree_of_disk(outcome))}
        if len(whole) != 28:
            return [f"{len(whole)} whole messages are left of 28"]
        check_whole(outcome)
        kept = {one.identity for one in reader.iter_records(tree_of_disk(outcome))}
        return ["recovery lost whole messages"] if whole - kept else []


class Repairs(Life):
    """A repair: from any state it completes, and its undo restores each byte."""

    name = "repair"

    def lay(self) -> FaultyDisk:
        disk = a_disk()
        self.before = tree_of_disk(disk)
        return disk

    def live(self, disk: FaultyDisk) -> None:
        repair(disk)

    def judge(self, outcome: FaultyDisk) -> list[str]:
        whole = {one.identity for one in reader.iter_records(self.before)}
        if self.chance.random() < 0.5:
            repair(outcome)
            check_repaired(outcome)
            left = {one.identity for one in reader.iter_records(tree_of_disk(outcome))}
            if whole - left:
                return [f"the repair lost {len(whole - left)} whole messages"]
        undo_all(outcome)
        return [] if tree_of_disk(outcome) == self.before else ["the undo did not restore every byte"]


class Undos(Repairs):
    """The undo of a repair: cut anywhere, the next one completes it."""

    name = "undo"

    def lay(self) -> FaultyDisk:
        super().lay()
        return a_repaired_disk()

    def live(self, disk: FaultyDisk) -> None:
        undo_all(disk)


class Mirrors(Life):
    """A mirror that takes its master's log in pieces, and goes on after it ended; the master counts what it reports.

    Each reported byte is there. A mirror that goes on gets every byte of the master, and finds nothing else there.
    """

    name = "mirror"
    _SEGMENT = 8192

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self.log = self._log_of_master()
        self.reported = 0

    def _log_of_master(self) -> bytes:
        """Return a log of some segments, laid by hand; some properties fill whole sectors."""
        log = bytearray()
        while len(log) < 3 * self._SEGMENT:
            body, text = (bytes([120]) * self.chance.choice(sizes) for sizes in ((0, 40, 900), (1, 60, 1500)))
            made = builders.record(body, b"Topic", b"KEYS\x01" + text + b"\x02", physical_offset=len(log))
            room = self._SEGMENT - len(log) % self._SEGMENT
            log += made if len(made) + 8 <= room else builders.blank(room).ljust(room, b"\0")
        return bytes(log)

    def live(self, disk: FaultyDisk) -> None:
        for share in (0.4, 0.7, 1.0):
            mirror = self._opened(disk)
            while mirror.next_offset < len(self.log) * share:
                self._take(mirror, self.chance.choice((1, 100, 700, 5000)))
                if self.chance.random() < 0.3:
                    mirror.sync()
                    self.reported = max(self.reported, min(mirror.durable_offset, mirror.next_offset))
            mirror.close()
            self.reported = max(self.reported, mirror.next_offset)

    def _opened(self, disk: FaultyDisk) -> MirrorLog:
        mirror = MirrorLog(FaultyFileSystem(disk, STORE), self._SEGMENT)
        if mirror.is_empty:
            mirror.begin_at(1)
        else:
            mirror.verify()
        return mirror

    def _take(self, mirror: MirrorLog, size: int) -> None:
        at = mirror.next_offset
        mirror.take(at, memoryview(self.log)[at : at + size])

    def judge(self, outcome: FaultyDisk) -> list[str]:
        has = self._bytes(outcome)
        wrong = [] if has[1 : self.reported] == self.log[1 : self.reported] else ["bytes are missing that it reported"]
        mirror = self._opened(outcome)
        while mirror.next_offset < len(self.log):
            self._take(mirror, 3000)
        mirror.close()
        return wrong if self._bytes(outcome)[: len(self.log)] == self.log else [*wrong, "it has other bytes at its end"]

    def _bytes(self, disk: FaultyDisk) -> bytes:
        files = sorted((name, data) for name, data in tree_of_disk(disk).items() if name.startswith("commitlog/"))
        return b"".join(data for _, data in files)


class Starts(Life):
    """A store is made: once it is said to be there, its directories and settings are."""

    name = "init"

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self.is_made = False

    def live(self, disk: FaultyDisk) -> None:
        setup = small_setup(Version.V5_3, FaultyFileSystem(disk, STORE))
        create_store(setup.files, setup.config)
        self.is_made = True

    def promises(self) -> object:
        return self.is_made

    def judge(self, outcome: FaultyDisk) -> list[str]:
        files = FaultyFileSystem(outcome, STORE)
        if not self.is_made:
            return []
        wrong = [f"{one} is not there" for one in DIRECTORIES if not files.exists(one)]
        text = tree_of_disk(outcome).get("broker.conf", b"").decode()
        return wrong if f"maxHashSlotNum={SLOTS}" in text else [*wrong, "the settings are not there"]
