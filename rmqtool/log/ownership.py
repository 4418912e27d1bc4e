"""The topic that a message belongs to: its own, and the topic it waits for, is retried for, or died in.

A delayed, timer or half message is in a topic of the broker and has its real topic in a property. A retried or dead
message is in a topic of its group. A copy that takes a topic along also takes the messages that wait for it; a purge of
a topic removes them too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from rmqtool.columns.bodies import DEFAULT_BOUNDS, iter_parts
from rmqtool.columns.gather import Mask
from rmqtool.columns.pieces import Coded
from rmqtool.columns.properties import decode_properties
from rmqtool.columns.records import Records
from rmqtool.filters.wanted import TopicPatterns, parse_patterns
from rmqtool.formats.java import encode_text
from rmqtool.formats.property_names import DLQ_ORIGIN_TOPIC, INNER_MULTI_DISPATCH, REAL_TOPIC, RETRY_TOPIC
from rmqtool.formats.topics import (
    HALF_TOPIC,
    OP_HALF_TOPIC,
    RETRY_PREFIX,
    ROCKSDB_HALF_TOPIC,
    ROCKSDB_OP_HALF_TOPIC,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TopicKind,
    topic_kind,
)

# Topics whose messages wait (for a time, or for a commit) until a broker moves them to their real topic.
WAITING = (SCHEDULE_TOPIC, HALF_TOPIC, TIMER_TOPIC, ROCKSDB_HALF_TOPIC)
# Topics whose records name waiting messages by their queue offsets. A copy with such messages takes these records too.
ABOUT_WAITING = (OP_HALF_TOPIC, ROCKSDB_OP_HALF_TOPIC)

# The properties with the topic that a message waits for, is retried for, or died in.
_ORIGINS = (REAL_TOPIC, RETRY_TOPIC, DLQ_ORIGIN_TOPIC)
_NONE = parse_patterns(())


def without_match(patterns: Iterable[str], topics: Collection[str]) -> list[str]:
    """Return the patterns that match none of ``topics``."""
    return [pattern for pattern in patterns if not parse_patterns([pattern]).select(topics)]


@dataclass(frozen=True)
class Belonging:
    """The wanted and the purged topics of a copy.

    ``groups`` are needed to tell a group's retry topic from one of POP.
    """

    wanted: TopicPatterns = _NONE
    purged: TopicPatterns = _NONE
    groups: frozenset[str] = field(default_factory=frozenset)
    # Purged topics by name, as far as known: a broker's own records may contain these names.
    purged_names: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, wanted: TopicPatterns, purged_patterns: Iterable[str], topics: Iterable[str], groups: Iterable[str]
    ) -> Belonging:
        """Return the choice for a store with these topics and groups."""
        purged = parse_patterns(purged_patterns)
        found = cls(wanted, purged, frozenset(groups))
        if not purged.patterns:
            return found
        names = sorted({*filter(found.is_purged, topics), *purged.patterns})
        return cls(wanted, purged, found.groups, tuple(names))

    def is_purged(self, topic: str) -> bool:
        """Return whether all messages of a topic are removed."""
        return bool(self.purged.patterns) and any(map(self.purged.matches, self._names_of(topic)))

    def keeps(self, topic: str) -> bool:
        """Return whether a copy has a topic: a wanted one, or one of the broker's own."""
        if self.is_purged(topic):
            return False
        return self.wanted.matches(topic) or topic_kind(topic) is TopicKind.SYSTEM

    def read_topics(self) -> TopicPatterns:
        """Return the topics that can contain wanted messages; empty patterns, which match all, if all are wanted."""
        if not self.wanted.patterns:
            return self.wanted
        return parse_patterns([*self.wanted.patterns, *WAITING, *ABOUT_WAITING])

    def select(self, records: Records) -> Records:
        """Return the messages that belong to a wanted topic and to no purged one."""
        if not self.wanted.patterns and not self.purged.patterns:
            return records
        topics = records.topics
        chosen = self._wanted(records, topics)
        if self.purged.patterns:
            chosen &= ~self._purged(records, topics)
        return records if chosen.all() else records.select(chosen)

    def count_beside(self, records: Records) -> int:
        """Return how many selected messages are in topics that are not wanted themselves.

        They wait for wanted topics, are about messages that wait, or name a wanted topic as a further queue.
        """
        if not self.wanted.patterns:
            return 0
        topics = records.topics
        return int((~topics.each(self.wanted.matches, np.bool_)).sum())

    def _names_of(self, topic: str) -> Iterable[str]:
        """Yield a topic, and the topic whose retry topic it may be: POP has one for each group and topic."""
        yield topic
        if topic.startswith(RETRY_PREFIX):
            rest = topic.removeprefix(RETRY_PREFIX)
            _, plus, of = rest.partition("+")
            if plus:
                yield of
            for group in self.groups:
                if rest.startswith(group + "_") and rest not in self.groups:
                    yield rest.removeprefix(group + "_")

    def _wanted(self, records: Records, topics: Coded) -> Mask:
        """Return which messages have a wanted topic, wait to be moved to one, or name one as a further queue.

        Those about waiting messages are always among them.
        """
        if not self.wanted.patterns:
            return np.ones(len(records), np.bool_)
        wanted: Mask = topics.each(lambda topic: self.wanted.matches(topic) or topic in ABOUT_WAITING, np.bool_)
        waits = topics.each(lambda topic: topic in WAITING, np.bool_) & ~wanted
        if waits.any():
            wanted |= waits & _name(records, REAL_TOPIC, self.wanted.matches)
        if _mentions(records, INNER_MULTI_DISPATCH):
            wanted |= _target(records, self.wanted)
        return wanted

    def _purged(self, records: Records, topics: Coded) -> Mask:
        """Return which messages have or come from a purged topic, and which of a broker's own records contain its name.

        The own records of a broker are searched as bytes, because each kind names topics in another way.
        """
        purged: Mask = topics.each(self.is_purged, np.bool_)
        for name in _ORIGINS:
            purged |= _name(records, name, self.purged.matches)
        if _mentions(records, INNER_MULTI_DISPATCH):
            purged |= _target(records, self.purged)
        waits = topics.each(lambda topic: topic in WAITING, np.bool_)
        own = topics.each(_is_own, np.bool_) & ~waits
        if waits.any():  # POP's check points can wait as timers
            own |= waits & _name(records, REAL_TOPIC, _is_own)
        rows = np.flatnonzero(own & ~purged)
        if len(rows) and self.purged_names:
            purged[rows] = _spell(records.select(rows), [encode_text(name) for name in self.purged_names])
        return purged


def without_delivered(records: Records, delays: Mapping[int, int], *, with_others: bool) -> Records:
    """Return messages without the broker's own records that a merge of stores cannot take along.

    Delayed messages that are not delivered yet are kept: ``delays`` has for each delay level the queue offset of the
    first of them. ``with_others`` keeps the broker's other topics too: they refer to messages by queue offsets, which
    stay the same only if there is one source.
    """
    topics = records.topics
    own = topics.each(lambda topic: topic_kind(topic) is TopicKind.SYSTEM, np.bool_)
    if not own.any():
        return records
    waits = topics.each(lambda topic: topic == SCHEDULE_TOPIC, np.bool_)
    levels = records.column("queue_id") + 1
    least = np.array([delays.get(level, 0) for level in levels.tolist()], np.int64)
    due = waits & (records.column("queue_offset") >= least)
    kept = ~own | due | ((own & ~waits) if with_others else np.zeros(len(records), np.bool_))
    return records if kept.all() else records.select(kept)


def _mentions(records: Records, name: str) -> bool:
    """Return whether a property of this name may occur. Searching the bytes is cheap."""
    begin = int(records.file_offsets.min(initial=len(records.data)))
    end = int((records.properties_offsets + records.properties_lengths).max(initial=0))
    return bytes(records.data[begin:end]).find(name.encode("ascii") + b"\x01") >= 0


def _is_own(topic: str) -> bool:
    return topic_kind(topic) is TopicKind.SYSTEM


def _name(records: Records, name: str, is_meant: Callable[[str], bool]) -> Mask:
    """Return which records have a property with a topic that ``is_meant`` accepts."""
    if not _mentions(records, name):
        return np.zeros(len(records), np.bool_)
    values = decode_properties(records).values(name).to_pylist()
    return np.array([value is not None and is_meant(value) for value in values], np.bool_)


def _target(records: Records, patterns: TopicPatterns) -> Mask:
    """Return which records name a matching topic as a further queue."""
    values = decode_properties(records).values(INNER_MULTI_DISPATCH).to_pylist()
    return np.array(
        [any(map(patterns.matches, (value or "").split(","))) and bool(value) for value in values], np.bool_
    )


def _spell(records: Records, names: list[bytes]) -> Mask:
    """Return which records contain one of the names, in their bytes or in their decompressed bodies."""
    found: list[bool] = []
    for part in iter_parts(records, DEFAULT_BOUNDS, inflate=True):
        assert part.bodies is not None, "bodies were asked for"
        bodies = part.bodies.column.to_pylist()
        for row, body in enumerate(bodies):
            begin = int(part.records.file_offsets[row])
            end = int(part.records.properties_offsets[row] + part.records.properties_lengths[row])
            stored = part.records.data[begin:end].tobytes()
            found.append(any(name in stored or name in (body or b"") for name in names))
    return np.array(found, np.bool_)
