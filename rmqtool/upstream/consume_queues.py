"""``ConsumeQueue`` and ``ConsumeQueueStore``: how a broker loads, recovers, extends and truncates its queues.

Nothing on disk tells where a queue ends. Two scans decide it, with different tests: the one after loading stops at the
first invalid entry, the one that truncates accepts the first entry of a file without a test.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqtool.errors import StoreError
from rmqtool.formats import layouts, paths
from rmqtool.formats.commit_log import Message
from rmqtool.formats.consume_queue import FILLER, UNIT_SIZE
from rmqtool.formats.dispatch import queue_entries
from rmqtool.formats.java import decode_text, int64, parse_int, remainder
from rmqtool.formats.layouts import ConsumeQueueUnit
from rmqtool.upstream import broker_log
from rmqtool.upstream.batches import Batch, Run
from rmqtool.upstream.broker_log import BrokerLog
from rmqtool.upstream.files import StoreFiles
from rmqtool.upstream.mapped_files import LoadRefused, MappedFile, MappedFileQueue
from rmqtool.upstream.settings import StartSettings

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]
    Units = NDArray[np.void]

# Recovery reads this many files at the end of a queue.
RECOVERED_FILES = 3

_UNIT = layouts.CONSUME_QUEUE_UNIT
# Entries that are read at once.
_CHUNK = 3277 * UNIT_SIZE
# Below this, byte positions are far from Java's overflows.
_HIGHEST_OFFSET = 1 << 50


class ConsumeQueue:
    """One queue.

    ``max_physic_offset`` is the end of the last record with an entry, ``min_logic_offset`` a byte position.
    """

    def __init__(self, store: ConsumeQueueStore, topic: str, queue_id: int) -> None:
        self._files = store.files
        self._log = store.log
        self._v4_9 = store.settings.is_4_9
        self._v5_4 = store.settings.is_5_4
        self.topic = topic
        self.queue_id = queue_id
        directory = _resolved(f"{paths.CONSUME_QUEUE}/{topic}/{queue_id}")
        self.mapped = MappedFileQueue(self._files, (directory,), store.settings.queue_file_size)
        # Whether the name of the topic is the name of its directory: names like ``a/../b`` lead to others' directories.
        self._is_plain = "/" not in topic and directory == f"{paths.CONSUME_QUEUE}/{topic}/{queue_id}"
        self.max_physic_offset = -1
        self.min_logic_offset = 0

    @property
    def min_offset(self) -> int:
        """The first queue offset that the broker offers."""
        return self.min_logic_offset // UNIT_SIZE

    @property
    def max_offset(self) -> int:
        """The queue offset of the next message."""
        return self.mapped.max_offset // UNIT_SIZE

    def load(self) -> None:
        """Load the files."""
        self.mapped.load(self._log, self._v4_9)

    def recover(self) -> None:
        """Find the end of the queue in its last files."""
        files = self.mapped.mapped
        end = None
        for file in files[max(0, len(files) - RECOVERED_FILES) :]:
            written = self._written_units(file, 0)
            end = file.start + written * UNIT_SIZE
            if written:
                self._take_as_last(file, written - 1)
            if written * UNIT_SIZE < file.size:
                break
        if end is not None:
            self.mapped.truncate(end)

    def truncate(self, end: int) -> None:
        """Drop entries that point to ``end`` or later. upstream: ``truncateDirtyLogicFiles``.

        The first entry of a file is accepted as it is, unless it points to the end or later.
        """
        self.max_physic_offset = end
        while self.mapped.mapped:
            file = self.mapped.mapped[-1]
            if self._unit(file, 0).physical_offset < end:
                units = 1 + self._written_units(file, 1, end)
                file.wrote = units * UNIT_SIZE
                self._take_as_last(file, units - 1)
                return
            self.mapped.delete_last()

    def _take_as_last(self, file: MappedFile, number: int) -> None:
        unit = self._unit(file, number)
        self.max_physic_offset = int64(unit.physical_offset + unit.size)

    def _unit(self, file: MappedFile, number: int) -> ConsumeQueueUnit:
        return _UNIT.decode(self._files.read_exactly(file.path, number * UNIT_SIZE, UNIT_SIZE))

    def _written_units(self, file: MappedFile, first: int, end: int | None = None) -> int:
        """Return how many entries from ``first`` on are written and, if ``end`` is given, point before it."""
        found = 0
        for units in self._iter_units(file, first, file.size):
            written = (units["physical_offset"] >= 0) & (units["size"] > 0)
            if end is not None:
                written &= units["physical_offset"] < end
            if not written.all():
                return found + int(written.argmin())
            found += len(units)
        return found

    def _iter_units(self, file: MappedFile, first: int, end: int) -> Iterator[Any]:
        """Yield arrays of entries, from entry ``first`` to the byte position ``end`` of a file."""
        import numpy as np

        dtype = np.dtype(_UNIT.dtype())
        for at in range(first * UNIT_SIZE, end, _CHUNK):
            yield np.frombuffer(self._files.read_exactly(file.path, at, min(_CHUNK, end - at)), dtype)

    def correct_min_offset(self, min_physical_offset: int) -> None:
        """Find the first entry whose record still exists."""
        if self._v4_9:
            self._correct_min_offset_4_9(min_physical_offset)
        else:
            self._correct_min_offset_5(min_physical_offset)

    def _correct_min_offset_4_9(self, min_physical_offset: int) -> None:
        if not self.mapped.mapped:
            return
        first = self.mapped.mapped[0]
        number = 0
        for units in self._iter_units(first, 0, first.wrote):
            served = units["physical_offset"] >= min_physical_offset
            if served.any():
                self.min_logic_offset = first.start + (number + int(served.argmax())) * UNIT_SIZE
                return
            number += len(units)

    def _correct_min_offset_5(self, min_physical_offset: int) -> None:
        """Bisect the first file. If the search fails, the minimum stays as it was."""
        files = self.mapped.mapped
        if self.min_logic_offset >= self.mapped.max_offset or not files:
            return
        last = files[-1]
        if last.wrote == 0:
            # upstream: reads the entry before the first one of an empty last file, and load() ends with the exception.
            self._log.warn(broker_log.LOAD_EXCEPTION)
            raise LoadRefused(f"{last.path} is the last file of its queue, and empty", exception=True)
        if self._offset_at(last, last.wrote - UNIT_SIZE) < min_physical_offset:
            self.min_logic_offset = self.mapped.max_offset
            return
        first = files[0]
        start = max(self.min_logic_offset - first.start, 0)
        intact = self.min_logic_offset >= first.start
        if start >= first.wrote:
            self._log.warn(broker_log.CORRECT_MIN_BEYOND if start > first.wrote else broker_log.CORRECT_MIN_NOTHING)
            return
        if intact and self._offset_at(first, start) >= min_physical_offset:
            return
        low, high = start, first.wrote - UNIT_SIZE
        while high - low > UNIT_SIZE:
            middle = (low + high) // 2 // UNIT_SIZE * UNIT_SIZE
            offset = self._offset_at(first, middle)
            if offset > min_physical_offset:
                high = middle
            elif offset == min_physical_offset:
                low = high = middle
            else:
                low = middle
        for position in range(low, high + 1, UNIT_SIZE):
            if self._offset_at(first, position) >= min_physical_offset:
                self.min_logic_offset = first.start + position
                return

    def _offset_at(self, file: MappedFile, position: int) -> int:
        return self._unit(file, position // UNIT_SIZE).physical_offset

    def knows(self, physical_offset: int, size: int) -> bool:
        """Return whether the queue treats a record as known: it ends no later than the last one with an entry."""
        if int64(physical_offset + size) > self.max_physic_offset:
            return False
        if not self._v5_4:
            self._log.warn(broker_log.BUILT_BEFORE)
        return True

    def put(self, queue_offset: int, unit: ConsumeQueueUnit) -> bool:
        """Append an entry, unless it is known; return False if that is not possible.

        Upstream: ``putMessagePositionInfo``.
        """
        if self.knows(unit.physical_offset, unit.size):
            return True
        expected = int64(queue_offset * UNIT_SIZE)
        file = self.mapped.last_or_new(expected)
        if file is None:
            self._log.warn(broker_log.create_failed(f"{paths.CONSUME_QUEUE}/{self.topic}/{self.queue_id}/#"))
            self._log.warn(broker_log.CREATE_EXCEPTION)
            self._log.warn(broker_log.put_failed(self.topic))
            return False
        self._begin(file, expected)
        if queue_offset != 0 and expected < file.start + file.wrote:
            self._log.warn(broker_log.BUILT_REPEATEDLY_4_9 if self._v4_9 else broker_log.BUILT_REPEATEDLY)
            return True
        # A queue offset that is too high is only logged: the entry is appended anyway.
        self.max_physic_offset = int64(unit.physical_offset + unit.size)
        self._append(file, _UNIT.packer.pack(*unit))
        return True

    def _begin(self, file: MappedFile, expected: int) -> None:
        """Fill the first file of the queue up to its first entry."""
        if file.first_in_queue and expected != 0 and file.wrote == 0:
            self.min_logic_offset = expected
            length = remainder(expected, file.size)
            if length > 0:
                self._append(file, _UNIT.packer.pack(*FILLER) * (length // UNIT_SIZE))

    def can_take(self, queue_offset: int, units: int) -> bool:
        """Return whether ``units`` entries can be written from ``queue_offset`` on, to files that are this queue's."""
        return self._is_plain and self.mapped.can_take(int64(queue_offset * UNIT_SIZE), units * UNIT_SIZE)

    def only_appends(self, queue_offsets: Numbers, *, in_steps: bool) -> bool:
        """Return whether the entries of unknown records are all appended, one after the other, without a log line.

        ``in_steps`` says that each queue offset is one more than the one before.
        """
        import numpy as np

        size, files = self.mapped.file_size, self.mapped.mapped
        first, last = int(queue_offsets[0]), int(queue_offsets[-1])
        if size % UNIT_SIZE or first < 0 or last > _HIGHEST_OFFSET:
            return False
        begin = first * UNIT_SIZE
        if files:
            begin = files[-1].start + files[-1].wrote
            if files[-1].size != size or (files[-1].first_in_queue and not files[-1].wrote):
                return False
        if in_steps and begin <= first * UNIT_SIZE:
            return True
        if int(queue_offsets.min()) < 0 or int(queue_offsets.max()) > _HIGHEST_OFFSET:
            return False
        expected = queue_offsets * UNIT_SIZE
        ends = begin + np.arange(len(queue_offsets), dtype=np.int64) * UNIT_SIZE
        return bool(((queue_offsets == 0) | (expected >= ends)).all())

    def append(self, queue_offset: int, units: Units) -> None:
        """Append entries for which ``only_appends`` is true; ``queue_offset`` is that of the first."""
        expected = queue_offset * UNIT_SIZE
        done = 0
        while done < len(units):
            file = self.mapped.last_or_new(expected)
            assert file is not None, "callers ask first whether an append is possible"
            self._begin(file, expected)
            part = units[done : done + (file.size - file.wrote) // UNIT_SIZE]
            self._append(file, part.tobytes())
            done += len(part)
        self.max_physic_offset = int(units[-1]["physical_offset"] + units[-1]["size"])

    def _append(self, file: MappedFile, data: bytes) -> None:
        self._files.write(file.path, file.wrote, data)
        file.wrote += len(data)

    def destroy(self) -> None:
        """Delete the queue's files."""
        self.max_physic_offset = -1
        self.min_logic_offset = 0
        self.mapped.destroy()


class RunPlan(NamedTuple):
    """How the records of a run are dispatched: appended to queues, by their numbers, or one by one."""

    appended: list[tuple[ConsumeQueue, Numbers]]
    one_by_one: list[int]


class ConsumeQueueStore:
    """All queues of a store."""

    def __init__(self, files: StoreFiles, settings: StartSettings, log: BrokerLog) -> None:
        self.files = files
        self.settings = settings
        self.log = log
        self.queues: dict[tuple[str, int], ConsumeQueue] = {}
        self.rules = settings.rules
        # upstream: the flag of the store that tells whether queue entries can be written.
        self.writeable = True
        self._by_topic_bytes: dict[tuple[bytes, int], ConsumeQueue] = {}

    def load(self) -> None:
        """Load each queue of each topic. A directory whose name is not a number is ignored."""
        for topic in self.files.entries(paths.CONSUME_QUEUE):
            for entry in self.files.entries(f"{paths.CONSUME_QUEUE}/{topic.name}"):
                queue_id = parse_int(entry.name)
                if queue_id is None:
                    continue
                queue = ConsumeQueue(self, topic.name, queue_id)
                self.queues[topic.name, queue_id] = queue
                queue.load()

    def recover(self) -> None:
        """Find the end of each queue."""
        for queue in self.queues.values():
            queue.recover()

    @property
    def max_physic_offset(self) -> int:
        """The largest end of a record with a queue entry; -1 without queues."""
        return max((queue.max_physic_offset for queue in self.queues.values()), default=-1)

    def truncate(self, end: int) -> None:
        """Truncate each queue at ``end``."""
        for queue in self.queues.values():
            queue.truncate(end)

    def destroy(self) -> None:
        """Delete the files of each queue."""
        for queue in self.queues.values():
            queue.destroy()

    def correct_min_offsets(self, min_physical_offset: int) -> None:
        """Find the first valid entry of each queue."""
        for queue in self.queues.values():
            queue.correct_min_offset(min_physical_offset)

    def find_or_create(self, topic: str, queue_id: int) -> ConsumeQueue:
        """Return a queue; a new one has no files yet."""
        queue = self.queues.get((topic, queue_id))
        if queue is None:
            queue = self.queues[topic, queue_id] = ConsumeQueue(self, topic, queue_id)
        return queue

    @property
    def is_told(self) -> bool:
        """Whether dispatching a known record changes nothing at all, not even the log."""
        return self.settings.is_5_4 or not self.writeable or self.log.has(broker_log.BUILT_BEFORE)

    def plan(self, run: Run) -> RunPlan:
        """Return which records of a run only append an entry to their queue, and which must be dispatched one by one.

        The former can be done in any order. The latter write log lines or change more. The records that are left have
        no entry, or are known and that was logged already.
        """
        import numpy as np

        batch, first, last = run
        if not run.lies_apart or not self.writeable:
            return RunPlan([], list(range(first, last)))
        numbers = np.flatnonzero(batch.has_unit[first:last]) + first
        keys = batch.queue_keys[numbers].tolist()
        queues: dict[ConsumeQueue, int] = {}
        # Two keys may be of one queue: bytes that are not UTF-8 decode to the same text.
        code_of = {
            key: queues.setdefault(self.find_or_create(*batch.queue_of(key)), len(queues))
            for key in dict.fromkeys(keys)
        }
        codes = np.fromiter(map(code_of.__getitem__, keys), np.int64, len(keys))
        numbers = numbers[np.argsort(codes, kind="stable")]
        edges = [0, *np.cumsum(np.bincount(codes, minlength=len(queues))).tolist()]
        offsets, ends = batch.queue_offsets[numbers], batch.physical_ends[numbers]
        # The number of times, up to each record, that a queue offset was not one more than the one before.
        jumps = np.append(0, np.cumsum(np.diff(offsets) != 1))
        appended, told, known = [], [], []
        for queue, begin, end in zip(queues, edges, edges[1:], strict=False):
            if begin == end:
                continue
            new = begin
            if ends[begin] <= queue.max_physic_offset:
                new += int(np.searchsorted(ends[begin:end], queue.max_physic_offset, side="right"))
                known.append(int(numbers[begin]))
            if new == end:
                continue
            if not queue.can_take(int(offsets[new]), end - new):
                return RunPlan([], list(range(first, last)))
            if queue.only_appends(offsets[new:end], in_steps=bool(jumps[new] == jumps[end - 1])):
                appended.append((queue, numbers[new:end]))
            else:
                told.extend(numbers[new:end].tolist())
        if known and not self.is_told:
            told.append(min(known))
        return RunPlan(appended, sorted(told))

    def append(self, batch: Batch, appended: list[tuple[ConsumeQueue, Numbers]]) -> None:
        """Append the planned entries."""
        import numpy as np

        if not appended:
            return
        numbers = np.concatenate([numbers for _, numbers in appended])
        units = np.empty(len(numbers), np.dtype(_UNIT.dtype()))
        units["physical_offset"] = batch.physical_offsets[numbers]
        units["size"] = batch.total_sizes[numbers]
        units["tags_code"] = batch.tags_codes[numbers]
        first = 0
        for queue, mine in appended:
            queue.append(int(batch.queue_offsets[mine[0]]), units[first : first + len(mine)])
            first += len(mine)

    def _of(self, key: tuple[bytes, int]) -> ConsumeQueue:
        queue = self._by_topic_bytes.get(key)
        if queue is None:
            raw_topic, queue_id = key
            queue = self._by_topic_bytes[key] = self.find_or_create(decode_text(raw_topic), queue_id)
        return queue

    def dispatch(self, message: Message) -> bool:
        """Write the queue entries of a record; return whether that worked.

        If an entry cannot be written, a broker tries 30 times in 30 seconds, and then writes no entry of any queue
        until it is restarted.
        """
        queue = self._of((message.raw_topic, message.queue_id))
        if not self.writeable:
            return False
        if not self.rules.multi_dispatch and queue.knows(message.physical_offset, message.total_size):
            return True
        for topic, queue_id, queue_offset, unit in queue_entries(message, self.rules):
            if not self.find_or_create(topic, queue_id).put(queue_offset, unit):
                self.log.warn(broker_log.QUEUE_CAN_NOT_WRITE)
                self.writeable = False
                return False
        return True


def _resolved(path: str) -> str:
    """Return the path that the names in a record lead to."""
    names: list[str] = []
    for name in path.split("/"):
        if name == "..":
            if not names:
                raise StoreError(
                    f"the topic of a record leads to {path!r}, which is outside of the store",
                    hint="rmqtool check STORE --only CL-TOPIC",
                )
            names.pop()
        elif name not in ("", "."):
            names.append(name)
    return "/".join(names)
