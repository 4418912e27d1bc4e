"""Queues that should be on disk and are not, and offsets outside of their queues, found without reading the log.

A record that belongs to a queue proves that the queue is missing. A few records of each file of the log are read, and
only in doubt: if ``topics.json`` has a topic without a queue, or a group has offsets of a queue that does not exist.
``check`` reads the whole log instead.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple

from rmqtool.findings import Finding, Place, Severity, new_finding
from rmqtool.findings.finding import counted
from rmqtool.formats import paths
from rmqtool.formats.commit_log import Message
from rmqtool.formats.dispatch import has_queue_unit
from rmqtool.formats.paths import FileKind
from rmqtool.formats.topics import LMQ_PREFIX, SCHEDULE_TOPIC, TopicKind, find_own_names, topic_kind
from rmqtool.log.walk import SegmentWalk, walk_dledger
from rmqtool.store.config_files import Configs, read_configs
from rmqtool.store.listing import QueueId
from rmqtool.store.open import Store
from rmqtool.store.queues import greatest_end, simple_queues
from rmqtool.store.rocksdb import has_database_queues
from rmqtool.store.segments import Segment, SegmentQueue

# Limits of the sample: bytes in all, files, and the least number of bytes of each file.
_SAMPLE = 4 << 20
_SAMPLED_FILES = 64
_LEAST = 64 << 10
# Topics that a finding names at most.
_NAMED = 6

# A store that was just created has messages before its first queue entry reaches the disk; a minute is plenty.
_NEW_STORE_MS = 60_000
_ALWAYS = (1 << 63) - 1


class Sample(NamedTuple):
    """The queues of some records, each with the physical offset of one, and whether all of the log was read."""

    queues: dict[QueueId, int]
    is_whole: bool


class Dispatched(NamedTuple):
    """The records that must have queue entries by now: before an offset, and stored before a time."""

    physical_offset: int = _ALWAYS
    store_timestamp: int = _ALWAYS

    def has(self, message: Message) -> bool:
        """Return whether a record must have its entries."""
        return message.physical_offset < self.physical_offset and message.store_timestamp < self.store_timestamp


class Absent(NamedTuple):
    """Queues that are missing although the log has messages of them, and topics that may have lost their queues.

    ``is_all``: there is no queue at all.
    """

    missing: dict[QueueId, int]
    silent: list[str]
    is_all: bool = False


def find_dispatched(queues_end: int, *, has_queues: bool, is_live: bool, is_closed: bool) -> Dispatched:
    """Return which records must have queue entries.

    ``queues_end`` is the end of the last record with an entry; it means nothing without a queue. Then every record must
    have one, except the newest of an open store, which may have been created a moment ago.
    """
    if is_closed:
        return Dispatched()
    if has_queues:
        return Dispatched(physical_offset=queues_end)
    return Dispatched(store_timestamp=find_newest_settled()) if is_live else Dispatched()


def find_newest_settled() -> int:
    """Return the store time before which messages must have a queue entry."""
    return int(time.time() * 1000) - _NEW_STORE_MS


class QueueAbsence:
    """Tells of messages whether their queue should be on disk and is not, by what is surely dispatched.

    All queues and the configuration are read once, for the first message without a queue.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    @cached_property
    def _rules(self) -> tuple[Dispatched, Configs]:
        queues = simple_queues(self._store.listing)
        return _surely_dispatched(self._store, has_queues=bool(queues)), read_configs(self._store, tolerant=True)

    def has(self, queue: QueueId, message: Message) -> bool:
        """Return whether the queue of a message is absent."""
        listing = self._store.listing
        kinds = (FileKind.CONSUME_QUEUE, FileKind.BATCH_CONSUME_QUEUE)
        if any(queue in listing.queues(kind) for kind in kinds) or has_database_queues(self._store):
            return False
        dispatched, configs = self._rules
        return dispatched.has(message) and is_known(configs, queue) and not _is_created(self._store, queue)


def find_absent_queues_of(
    store: Store, configs: Configs, queues: Collection[QueueId], topics: Collection[str]
) -> list[QueueId]:
    """Return the queues of some topics that should be on disk and are not, by what is surely dispatched."""
    doubted = [topic for topic in _doubted_topics(configs, queues) if topic in topics]
    if not doubted and not any(queue.topic in topics and queue not in queues for queue in _offset_queues(configs)):
        return []
    dispatched = _surely_dispatched(store, has_queues=bool(queues))
    missing = find_absent_queues(store, configs, queues, dispatched).missing
    return [queue for queue in sorted(missing) if queue.topic in topics and not _is_created(store, queue)]


def _surely_dispatched(store: Store, *, has_queues: bool) -> Dispatched:
    end = greatest_end(simple_queues(store.listing))
    return find_dispatched(end, has_queues=has_queues, is_live=True, is_closed=False)


def _is_created(store: Store, queue: QueueId) -> bool:
    """Return whether a broker has created the files of a queue since the store was listed."""
    directory = paths.segment_directory(FileKind.CONSUME_QUEUE, *queue)
    return store.filesystem.exists(directory) and bool(store.filesystem.listdir(directory))


def find_absent_queues(store: Store, configs: Configs, queues: Collection[QueueId], dispatched: Dispatched) -> Absent:
    """Return the queues that are not among ``queues`` and should be, by the records that are ``dispatched``."""
    doubted = _doubted_topics(configs, queues)
    offsets = [queue for queue in _offset_queues(configs) if queue not in queues and is_known(configs, queue)]
    if not len(store.commit_log) or not (doubted or offsets or not queues):
        return Absent({}, [])
    sample = _sample(store, dispatched)
    missing = {queue: at for queue, at in sample.queues.items() if queue not in queues and is_known(configs, queue)}
    silent = [topic for topic in doubted if all(queue.topic != topic for queue in missing)]
    return Absent(missing, [] if sample.is_whole else silent, is_all=not queues)


def iter_absent_queues(absent: Absent) -> Iterator[Finding]:
    """Yield findings for missing queues."""
    if absent.missing and absent.is_all:
        text = f"there is no queue, and the log holds messages of {counted(len(absent.missing), 'queue')}"
        yield new_finding("CQ-MISSING", text, Place(paths.CONSUME_QUEUE))
        return
    for queue, at in sorted(absent.missing.items()):
        text = f"the queue is not there, and the log holds messages of it; one is at {at}"
        place = Place(paths.segment_directory(FileKind.CONSUME_QUEUE, *queue), None, None, *queue)
        yield new_finding("CQ-MISSING", text, place, physicalOffset=at)
    if absent.silent:
        count = len(absent.silent)
        named = ", ".join(absent.silent[:_NAMED]) + (f" and {count - _NAMED} more" if count > _NAMED else "")
        have = "topic of topics.json has" if count == 1 else "topics of topics.json have"
        why = "either no message was ever sent to them, or their queues are gone: check reads the log and tells"
        place = Place(paths.CONSUME_QUEUE)
        text = f"{count} {have} no queue: {named}"
        yield new_finding("CQ-MISSING", text, place, severity=Severity.NOTICE, consequence=why)


def iter_odd_offsets(
    configs: Configs, bounds: Mapping[QueueId, int], missing: Collection[QueueId]
) -> Iterator[Finding]:
    """Yield findings for offsets of groups and delay levels outside of their queues.

    ``bounds`` has the next offset of every queue that exists. Queues that are ``missing`` have a finding already.
    """
    for (topic, group), queues in sorted(configs.offsets.items()):
        file = _offset_file(topic)
        absent: dict[int, int] = {}
        for queue_id, committed in sorted(queues.items()):
            queue = QueueId(topic, queue_id)
            end = bounds.get(queue)
            if committed > 0 and end is None:
                absent |= {queue_id: committed} if queue not in missing else {}
            elif not 0 <= committed <= (end or 0):
                text = f"group {group} committed {committed}, but the queue ends at {end}"
                data: dict[str, Any] = {"group": group, "committed": committed, "maxOffset": end}
                yield new_finding("OF-RANGE", text, Place(file, None, None, *queue), **data)
        if absent:
            yield _offsets_of_nothing(configs, file, (topic, group), absent)
    for level, offset in sorted(configs.delay_offsets.items()):
        queue = QueueId(SCHEDULE_TOPIC, level - 1)
        end = bounds.get(queue)
        if not 0 <= offset <= (end or 0) and queue not in missing:
            text = (
                f"delay level {level} is at {offset}, its queue {'is not there' if end is None else f'ends at {end}'}"
            )
            place = Place(paths.config_path(paths.DELAY_OFFSET), None, None, *queue)
            yield new_finding("OF-RANGE", text, place, level=level, committed=offset, maxOffset=end)


def _offsets_of_nothing(configs: Configs, file: str, owner: tuple[str, str], absent: dict[int, int]) -> Finding:
    """Return the finding for a group's offsets in missing queues of one topic."""
    topic, group = owner
    queue_id, committed = next(iter(absent.items()))
    one = len(absent) == 1
    place = Place(file, None, None, topic, queue_id if one else None)
    of = f"committed {committed} of a queue" if one else f"committed offsets of {len(absent)} queues"
    are = "is" if one else "are"
    data: dict[str, Any] = {"group": group, "committed": {str(number): offset for number, offset in absent.items()}}
    text = f"group {group} {of} that {are} not there"
    why = "consumers begin at 0 when a message comes"
    if not is_known(configs, QueueId(topic, queue_id)):
        text, why = f"{text}, and topics.json does not name the topic", "left from a topic that was deleted"
    return new_finding("OF-RANGE", text, place, severity=Severity.NOTICE, consequence=why, **data)


def _offset_file(topic: str) -> str:
    return paths.config_path(paths.LMQ_CONSUMER_OFFSET if topic.startswith(LMQ_PREFIX) else paths.CONSUMER_OFFSET)


def is_known(configs: Configs, queue: QueueId) -> bool:
    """Return whether the topic is configured. If no topic is, the configuration is lost, and every topic counts.

    A broker's own topics need no configuration.
    """
    return not configs.topics or queue.topic in configs.topics or topic_kind(queue.topic) is TopicKind.SYSTEM


def _doubted_topics(configs: Configs, queues: Iterable[QueueId]) -> list[str]:
    """Return the ordinary topics that are configured and have no queue."""
    there = {queue.topic for queue in queues}
    own = find_own_names(configs.topics)
    return sorted(topic for topic in configs.topics.keys() - there if topic_kind(topic, own) is TopicKind.NORMAL)


def _offset_queues(configs: Configs) -> Iterator[QueueId]:
    for (topic, _), queues in configs.offsets.items():
        yield from (QueueId(topic, queue_id) for queue_id, committed in queues.items() if committed > 0)


def _sample(store: Store, dispatched: Dispatched) -> Sample:
    """Read the first records of some files of the log, the first and the last file included."""
    log = store.commit_log
    files = [segment for segment in log if segment.size]
    step = max(-(-len(files) // _SAMPLED_FILES), 1)
    chosen = files[::step] + ([files[-1]] if files and files[-1] not in files[::step] else [])
    budget = max(_SAMPLE // max(len(chosen), 1), _LEAST)
    found: dict[QueueId, int] = {}
    is_whole = len(chosen) == len(files)
    for segment in chosen:
        is_whole = _look(store, log, segment, budget, dispatched, found) and is_whole
    return Sample(found, is_whole)


def _look(
    store: Store, log: SegmentQueue, segment: Segment, budget: int, dispatched: Dispatched, found: dict[QueueId, int]
) -> bool:
    """Collect the queues of a file's first records; return whether these were all its records."""
    file = log.open(segment)
    for place in (
        (entry.record for entry in walk_dledger(file, segment.base_offset))
        if store.is_dledger
        else SegmentWalk(file, segment.base_offset).places()
    ):
        if place.file_offset > budget:
            return False
        record = place.what
        if not isinstance(record, Message) or not has_queue_unit(record.sys_flag):
            continue
        if dispatched.has(record):
            found.setdefault(QueueId(record.topic, record.queue_id), record.physical_offset)
    return True
