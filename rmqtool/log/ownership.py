"""Which topic a message belongs to: its own, and the one that it waits for, was sent again for, or died in.

A delayed, timed or half message lies in a topic of the broker and names the real one in a property; a retried or dead
one lies in its group's topic. Who takes a topic along wants what still waits for it; who removes one means all of it.
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
from rmqtool.filters.patterns import TopicPatterns, parse_patterns
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

# Topics in which messages wait for another one.
WAITING = (SCHEDULE_TOPIC, HALF_TOPIC, TIMER_TOPIC, ROCKSDB_HALF_TOPIC)
# What is said there is about the messages that wait, by their offsets: it goes where they go.
ABOUT_WAITING = (OP_HALF_TOPIC, ROCKSDB_OP_HALF_TOPIC)

_ORIGINS = (REAL_TOPIC, RETRY_TOPIC, DLQ_ORIGIN_TOPIC)
_NONE = parse_patterns(())


def without_match(patterns: Iterable[str], topics: Collection[str]) -> list[str]:
    """Return the patterns that mean none of ``topics``."""
    return [pattern for pattern in patterns if not parse_patterns([pattern]).select(topics)]


@dataclass(frozen=True)
class Belonging:
    """What is wanted and what is purged, by topic. ``groups`` tell a group's retry topic from one of a topic by POP."""

    wanted: TopicPatterns = _NONE
    purged: TopicPatterns = _NONE
    groups: frozenset[str] = field(default_factory=frozenset)
    # The purged topics by name, as far as they are known: they may be spelled out in what a broker keeps for itself.
    purged_names: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, wanted: TopicPatterns, purged_patterns: Iterable[str], topics: Iterable[str], groups: Iterable[str]
    ) -> Belonging:
        """Return the choice for a store that has these topics and groups."""
        purged = parse_patterns(purged_patterns)
        found = cls(wanted, purged, frozenset(groups))
        if not purged.patterns:
            return found
        names = sorted({*filter(found.is_purged, topics), *purged.patterns})
        return cls(wanted, purged, found.groups, tuple(names))

    def is_purged(self, topic: str) -> bool:
        """Return whether nothing of a topic may be left."""
        return bool(self.purged.patterns) and any(map(self.purged.matches, self._names_of(topic)))

    def keeps(self, topic: str) -> bool:
        """Return whether a copy has a topic: a wanted one, or one of the broker's own."""
        if self.is_purged(topic):
            return False
        return self.wanted.matches(topic) or topic_kind(topic) is TopicKind.SYSTEM

    def read_topics(self) -> TopicPatterns:
        """Return the topics in which wanted messages may lie."""
        if not self.wanted.patterns:
            return self.wanted
        return parse_patterns([*self.wanted.patterns, *WAITING, *ABOUT_WAITING])

    def select(self, records: Records) -> Records:
        """Return the messages that belong to what is wanted, and to nothing that is purged."""
        if not self.wanted.patterns and not self.purged.patterns:
            return records
        topics = records.topics
        chosen = self._wanted(records, topics)
        if self.purged.patterns:
            chosen &= ~self._purged(records, topics)
        return records if chosen.all() else records.select(chosen)

    def count_beside(self, records: Records) -> int:
        """Return how many of the selected messages lie in other topics than the wanted ones: they wait for these."""
        if not self.wanted.patterns:
            return 0
        topics = records.topics
        return int((~topics.each(self.wanted.matches, np.bool_)).sum())

    def _names_of(self, topic: str) -> Iterable[str]:
        """Yield a topic, and the one that it is the retry topic of: POP has one for each group and topic."""
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
        purged: Mask = topics.each(self.is_purged, np.bool_)
        for name in _ORIGINS:
            purged |= _name(records, name, self.purged.matches)
        if _mentions(records, INNER_MULTI_DISPATCH):
            purged |= _target(records, self.purged)
        waits = topics.each(lambda topic: topic in WAITING, np.bool_)
        own = topics.each(_is_own, np.bool_) & ~waits
        if waits.any():  # what POP has to remember may wait as a timer
            own |= waits & _name(records, REAL_TOPIC, _is_own)
        rows = np.flatnonzero(own & ~purged)
        if len(rows) and self.purged_names:
            purged[rows] = _spell(records.select(rows), [encode_text(name) for name in self.purged_names])
        return purged


def without_delivered(records: Records, delays: Mapping[int, int], *, with_others: bool) -> Records:
    """Return messages without those of a broker's own topics that a merge cannot take along.

    Of delayed messages those that are not delivered yet go along: ``delays`` has the progress of each level. The other
    topics of the broker's own name messages by their numbers, and only those of one store can keep these.
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
    """Return whether a property of this name may be there: a look at the bytes costs little."""
    begin = int(records.file_offsets.min(initial=len(records.data)))
    end = int((records.properties_offsets + records.properties_lengths).max(initial=0))
    return bytes(records.data[begin:end]).find(name.encode("ascii") + b"\x01") >= 0


def _is_own(topic: str) -> bool:
    return topic_kind(topic) is TopicKind.SYSTEM


def _name(records: Records, name: str, is_meant: Callable[[str], bool]) -> Mask:
    """Return which records name a topic that is meant in a property."""
    if not _mentions(records, name):
        return np.zeros(len(records), np.bool_)
    values = decode_properties(records).values(name).to_pylist()
    return np.array([value is not None and is_meant(value) for value in values], np.bool_)


def _target(records: Records, patterns: TopicPatterns) -> Mask:
    """Return which records name one of the topics as a further queue."""
    values = decode_properties(records).values(INNER_MULTI_DISPATCH).to_pylist()
    return np.array(
        [any(map(patterns.matches, (value or "").split(","))) and bool(value) for value in values], np.bool_
    )


def _spell(records: Records, names: list[bytes]) -> Mask:
    """Return which records have one of the names in their bytes, or in their bodies when these are inflated."""
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
