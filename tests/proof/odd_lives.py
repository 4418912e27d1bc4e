"""Lives on stores that are odd before they begin: wrong names and sizes, a lost end, leftovers, a topic that goes."""

from __future__ import annotations

import random

from rmqtool.config import Version
from rmqtool.engine.recovery.recover import recover
from rmqtool.engine.retention import remove_queues
from rmqtool.engine.store import MessageStore
from tests.proof import reader
from tests.proof.crash_lives import Life, Puts, odd_sizes
from tests.proof.model_disk import STORE, settle, tree_of_disk
from tests.support.engine_stores import SLOTS, a_message, small_setup
from tests.support.faulty import FaultyFileSystem
from tests.support.faulty_disk import FaultyDisk


class OddFiles(Puts):
    """Segments and queue files with wrong names and sizes, and strangers among them, are put right by a recovery."""

    name = "recovery of odd files"
    _SEGMENT = 2048
    _STRANGERS = ("commitlog/notes.txt", "commitlog/00000000000000000777")

    def lay(self) -> FaultyDisk:
        disk = FaultyDisk()
        with MessageStore.create(self.setup(disk)) as store:
            number = 0
            # Queues of several files: the size of most is that of all.
            while len(store.commit_log.segments) < 4 or number < 60:
                self.put(store, number)
                number += 1
        files = FaultyFileSystem(disk, STORE)
        names = sorted(one.name for one in files.listdir("commitlog"))
        files.rename(f"commitlog/{names[1]}", f"commitlog/{int(names[1]) + 1:020d}")
        for path in self._STRANGERS:
            with files.create(path) as file:
                file.pwrite(b"notes", 0)
        # The removal of either syncs the same directory: what one makes durable must not hide what the other forgets.
        if self.chance.random() < 0.5:
            files.mkdir("commitlog/empty")
        else:
            files.create(f"commitlog/{len(names) * self._SEGMENT:020d}").close()
        for path, more in ((f"commitlog/{names[0]}", 4096), (f"consumequeue/T/0/{0:020d}", 20)):
            with files.open_write(path) as file:
                file.truncate(file.size() + more)
        files.create("abort").close()
        settle(disk)
        return disk

    def live(self, disk: FaultyDisk) -> None:
        recover(self.setup(disk))
        self.is_closed = True

    def judge(self, outcome: FaultyDisk) -> list[str]:
        wrong = self._odd(outcome) if self.is_closed else []
        recover(self.setup(outcome))
        return wrong + [f"after recover: {one}" for one in self._odd(outcome)]

    def _odd(self, outcome: FaultyDisk) -> list[str]:
        tree = tree_of_disk(outcome)
        wrong = self.missing(tree) + reader.misplaced(tree) + (["its marker is there"] if "abort" in tree else [])
        wrong += [f"no queue leads to {one.physical_offset}" for one in reader.unreached(tree)]
        wrong += odd_sizes(tree)
        if self.version is Version.V4_9 and FaultyFileSystem(outcome, STORE).exists("commitlog/empty"):
            wrong.append("a directory is among the segments")
        kept = [path for path in self._STRANGERS if tree.get(f"quarantine/{path}") == b"notes"]
        return wrong if len(kept) == len(self._STRANGERS) else [*wrong, f"of the strangers only {kept} are kept"]


class _LaidStore(Puts):
    """A closed store with some small messages in one queue, which something has happened to since."""

    _MESSAGES = 4

    def lay(self) -> FaultyDisk:
        disk = FaultyDisk()
        with MessageStore.create(self.setup(disk)) as store:
            for number in range(self._MESSAGES):
                self._put_small(store, number)
        files = FaultyFileSystem(disk, STORE)
        self.damage(files, tree_of_disk(disk))
        settle(disk)
        return disk

    def _put_small(self, store: MessageStore, number: int) -> None:
        message = a_message(number, body=b"message %d" % number)
        self.submitted.add(message.body or b"")
        self.note(store.put(message), message)

    def damage(self, files: FaultyFileSystem, tree: dict[str, bytes]) -> None:
        """Do to the store what has happened to it."""
        raise NotImplementedError

    def forget(self, first: int) -> None:
        """Promise nothing of the messages from a physical offset on: they are lost before the life begins."""
        for place in [place for place in self.acknowledged if place >= first]:
            self.submitted.discard(self.acknowledged.pop(place)[3])


class CutSegment(_LaidStore):
    """A segment that ends within the properties of its last record: zeros after it would make that look whole."""

    name = "recovery of a cut segment"

    def damage(self, files: FaultyFileSystem, tree: dict[str, bytes]) -> None:
        last = list(reader.iter_records(tree))[-1]
        with files.open_write("commitlog/" + "0" * 20) as file:
            file.truncate(last.physical_offset + last.size - self.chance.randrange(1, 12))
        self.forget(last.physical_offset)
        files.create("abort").close()

    def live(self, disk: FaultyDisk) -> None:
        recover(self.setup(disk))
        self.is_closed = True

    def judge(self, outcome: FaultyDisk) -> list[str]:
        wrong = self.missing(tree_of_disk(outcome))
        recover(self.setup(outcome))
        return wrong + [f"after recover: {one}" for one in self.missing(tree_of_disk(outcome))]


class LostEnd(_LaidStore):
    """The log has lost its end, and the last index file leads to nothing else: it goes, and stays away."""

    name = "recovery of a lost end"
    _MESSAGES = 20

    def damage(self, files: FaultyFileSystem, tree: dict[str, bytes]) -> None:
        names = sorted(path for path in tree if path.startswith("index/"))
        first = min(reader.index_places({names[-1]: tree[names[-1]]}, SLOTS))
        for base, data in reader.segments(tree).items():
            path = f"commitlog/{base:020d}"
            if base > first:
                files.unlink(path)
            elif first < base + len(data):
                with files.open_write(path) as file:
                    file.pwrite(bytes(base + len(data) - first), first - base)
        self.forget(first)
        files.create("abort").close()

    def live(self, disk: FaultyDisk) -> None:
        recover(self.setup(disk))
        self.is_closed = True

    def judge(self, outcome: FaultyDisk) -> list[str]:
        wrong = self._beyond(outcome) if self.is_closed else []
        recover(self.setup(outcome))
        return wrong + [f"after recover: {one}" for one in self._beyond(outcome)]

    def _beyond(self, outcome: FaultyDisk) -> list[str]:
        tree = tree_of_disk(outcome)
        end = max(one.physical_offset + one.size for one in reader.iter_records(tree))
        beyond = [place for place in reader.index_places(tree, SLOTS) if place >= end]
        return self.missing(tree) + ([f"the index leads to {beyond}, the log ends at {end}"] if beyond else [])


class Leftovers(_LaidStore):
    """A broker cut off damaged records and left their bytes: where the next record begins, nothing of them stays."""

    name = "leftovers of a broker"
    _CUT_OFF = 2

    def damage(self, files: FaultyFileSystem, tree: dict[str, bytes]) -> None:
        records = list(reader.iter_records(tree))[-self._CUT_OFF :]
        with files.open_write("commitlog/" + "0" * 20) as file:
            for record in records:
                file.pwrite(b"?", record.physical_offset + 90)
        for path in [path for path in tree if path.startswith("index/")]:
            files.unlink(path)
        self.forget(records[0].physical_offset)

    def live(self, disk: FaultyDisk) -> None:
        with MessageStore.open(self.setup(disk)) as store:
            self._put_small(store, 7)
        self.is_closed = True

    def judge(self, outcome: FaultyDisk) -> list[str]:
        tree = tree_of_disk(outcome)
        wrong = self.missing(tree)
        end = max(one.physical_offset + one.size for one in reader.iter_records(tree))
        if self.is_closed and any(tree["commitlog/" + "0" * 20][end : end + 8]):
            wrong.append(f"the store was closed, and a record that was cut off begins at {end}, its end")
        return wrong


class DeletedTopic(Life):
    """The queues of a topic are removed, and stay away; those of another one stay."""

    name = "a deleted topic"
    _GONE = "consumequeue/T/"

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self.is_deleted = False
        self.others: dict[str, bytes] = {}

    def lay(self) -> FaultyDisk:
        disk = FaultyDisk()
        with MessageStore.create(small_setup(Version.V5_3, FaultyFileSystem(disk, STORE))) as store:
            for number in range(12):
                assert store.put(a_message(number, topic="TU"[number % 2], queue_id=number % 4)).is_ok
        settle(disk)
        self.others = {path: data for path, data in tree_of_disk(disk).items() if not path.startswith(self._GONE)}
        return disk

    def live(self, disk: FaultyDisk) -> None:
        remove_queues(FaultyFileSystem(disk, STORE), "T")
        self.is_deleted = True

    def promises(self) -> object:
        return self.is_deleted

    def judge(self, outcome: FaultyDisk) -> list[str]:
        tree = tree_of_disk(outcome)
        back = [path for path in tree if path.startswith(self._GONE)] if self.is_deleted else []
        wrong = [f"{path} was deleted, and is there again" for path in back]
        return wrong + [f"{path} is not as it was" for path, data in self.others.items() if tree.get(path) != data]
