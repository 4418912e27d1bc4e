"""Selections: the question "which messages" asked of columns.

Cheap questions are asked first, so that columns for expensive ones are made only for the rows that are left.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from rmqtool import kernel
from rmqtool.columns.bodies import DEFAULT_BOUNDS, iter_parts
from rmqtool.columns.gather import Ints, Mask
from rmqtool.columns.pieces import Coded
from rmqtool.columns.properties import Properties, decode_properties
from rmqtool.columns.records import Records, are_bridges
from rmqtool.filters.wanted import Wanted
from rmqtool.formats.commit_log import Message, decode_record, fields_decoder
from rmqtool.formats.dispatch import DispatchRules, dispatch_targets, rules_of
from rmqtool.formats.java import decode_text, encode_text
from rmqtool.formats.properties import key_tokens
from rmqtool.formats.property_names import INNER_MULTI_DISPATCH

# Topic and queue id.
Queue = tuple[str, int]

# In the bytes of every message that names further queues.
_TARGETS = re.compile(b"INNER_MULTI_DISPATCH\x01")


@dataclass(frozen=True)
class Selection(Wanted):
    """A question with the bounds on places that a log can use.

    ``least_offset`` is the first wanted offset of each wanted queue. ``least_offsets`` has queues with their first
    wanted offset: other queues of their topics are wanted entirely, other topics not at all. ``physical_from`` is a
    lower bound for the first wanted message. Where topics are named, a message counts also for the further queues
    (property INNER_MULTI_DISPATCH) to which a broker of release ``version`` dispatched it.
    """

    least_offset: int | None = None
    least_offsets: Mapping[Queue, int] | None = None
    physical_from: int = 0
    version: str = "4.9"

    @classmethod
    def of(cls, wanted: Wanted, **places: Any) -> Selection:
        """Return what ``wanted`` asks for, within the bounds ``places``: fields of this class by name."""
        return cls(**{one.name: getattr(wanted, one.name) for one in fields(Wanted)}, **places)

    @property
    def names_queues(self) -> bool:
        """Whether only messages of certain topics are wanted, or of certain queues from an offset on."""
        return bool(self.topics.patterns) or self.least_offsets is not None

    def scope(self) -> Selection:
        """Return the selection with only the conditions on the topic, the queue and the offsets of a message."""
        return replace(self, begin=None, end=None, tags=None, key=None, where=None, body=None)

    @cached_property
    def _rules(self) -> DispatchRules:
        """The rules by which a broker of ``version`` dispatched; made on demand, as few logs need them."""
        return rules_of(self.version)

    @cached_property
    def _unread_topics(self) -> frozenset[str] | None:
        """The topics of the queues in ``least_offsets``; no others are wanted. None without such a limit."""
        return None if self.least_offsets is None else frozenset(topic for topic, _ in self.least_offsets)

    def wants_queue(self, topic: str, queue_id: int) -> bool:
        """Return whether messages of a queue may be wanted."""
        if self.queue_id is not None and queue_id != self.queue_id:
            return False
        if self._unread_topics is not None and topic not in self._unread_topics:
            return False
        return self.topics.matches(topic)

    def least_of(self, topic: str, queue_id: int) -> int | None:
        """Return the first wanted offset of a queue; None means from its first message."""
        if self.least_offsets is not None:
            return self.least_offsets.get((topic, queue_id), 0)
        return self.least_offset

    def select(self, records: Records) -> Records:
        """Return the wanted ones of ``records``, in their order."""
        for ask in self._questions:
            if not len(records):
                break
            wanted = ask(records)
            if not wanted.all():
                records = records.select(wanted)
        return records

    @property
    def wants_all(self) -> bool:
        """Whether nothing is asked of a message, so that all are wanted; placeholders of a repair are not messages."""
        return all(question is _are_messages for question in self._questions)

    @cached_property
    def _questions(self) -> list[Callable[[Records], Mask]]:
        """The questions to ask, the cheapest first."""
        asked: list[tuple[bool, Callable[[Records], Mask]]] = [
            (self.physical_from > 0 or self.begin is not None or self.end is not None, self._in_bounds),
            (not self.takes_bridges, _are_messages),
            (self.queue_id is not None or self.least_offset is not None or self.names_queues, self._in_queues),
            (self.tags is not None and not self.tags.everything, self._with_tags),
            (self.key is not None, self._with_key),
            (self.where is not None, self._matching),
            (self.body is not None, self._with_body),
        ]
        return [question for is_asked, question in asked if is_asked]

    def _in_bounds(self, records: Records) -> Mask:
        """Return which messages are in the bounds of physical offset and store time."""
        times = records.column("store_timestamp")
        wanted: Mask = records.column("physical_offset") >= self.physical_from
        if self.begin is not None:
            wanted &= times >= self.begin
        if self.end is not None:
            wanted &= times < self.end
        return wanted

    def _in_queues(self, records: Records) -> Mask:
        """Return which messages are in a wanted queue: their own, or a further one that they name."""
        topics = records.topics
        wanted = self._in_own_queue(records, topics)
        if self.names_queues:
            for row in _rows_with_targets(records, ~wanted):
                wanted[row] = any(
                    self._is_place(*place) for place in dispatch_targets(_message(records, row), self._rules)
                )
        return wanted

    def _in_own_queue(self, records: Records, topics: Coded) -> Mask:
        """Return which messages are wanted by their own topic, queue id and queue offset."""
        queue_ids, offsets = records.column("queue_id"), records.column("queue_offset")
        wanted: Mask = topics.each(self.topics.matches, np.bool_)
        if self.queue_id is not None:
            wanted &= queue_ids == self.queue_id
        if self.least_offsets is not None:
            wanted &= topics.each(lambda topic: topic in (self._unread_topics or ()), np.bool_)
            least = np.zeros(len(records), np.int64)
            for (topic, queue_id), offset in self.least_offsets.items():
                if topic in topics.values:
                    least[(topics.codes == topics.values.index(topic)) & (queue_ids == queue_id)] = offset
            wanted &= offsets >= least
        elif self.least_offset is not None:
            wanted &= offsets >= self.least_offset
        return wanted

    def _is_place(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        """Return whether a message at this queue offset is wanted, as far as its place tells."""
        if not self.wants_queue(topic, queue_id):
            return False
        least = self.least_of(topic, queue_id)
        return least is None or queue_offset >= least

    def _with_tags(self, records: Records) -> Mask:
        """Return which messages have a wanted tag: with the kernel by the decoded tags alone, else by columns."""
        assert self.tags is not None
        if kernel.NATIVE is None:
            from rmqtool.filters.columns import match_tags

            return match_tags(self.tags, _Columns(records))
        names, found = self.tags.names, _fields(records, "tags")
        return np.fromiter((tags in names for (tags,) in found), np.bool_, len(records))

    def _matching(self, records: Records) -> Mask:
        from rmqtool.filters.columns import match_columns

        assert self.where is not None
        return match_columns(self.where, _Columns(records))

    def _with_key(self, records: Records) -> Mask:
        """Return which messages have the key, as their unique key or among their keys."""
        assert self.key is not None
        wanted = np.zeros(len(records), np.bool_)
        # Few messages have the text in their properties; only those are decoded.
        for row in _rows_that_spell(records, encode_text(self.key)):
            message = _message(records, row)
            wanted[row] = message.uniq_key == self.key or self.key in key_tokens(message.properties)
        return wanted

    def _with_body(self, records: Records) -> Mask:
        """Return which messages have a body, as consumers get it, that the search finds."""
        assert self.body is not None
        found: list[bool] = []
        for part in iter_parts(records, DEFAULT_BOUNDS, inflate=True):
            assert part.bodies is not None
            found += self.body.search(map(decode_text, part.bodies.column.to_pylist()))
        return np.array(found, np.bool_)

    def queue_places(self, records: Records) -> tuple[Coded, Ints, Ints]:
        """Return topic, queue and queue offset of each of ``records``, in its own queue if that one is wanted.

        Else they are those of the first further queue that is wanted. All ``records`` must be selected by this.
        """
        topics = records.topics
        queue_ids = records.column("queue_id").astype(np.int64)
        offsets = records.column("queue_offset").copy()
        rows = _rows_with_targets(records, ~self._in_own_queue(records, topics)) if self.names_queues else []
        if not rows:
            return topics, queue_ids, offsets
        names = topics.each(lambda topic: topic, np.object_)
        for row in rows:
            places = dispatch_targets(_message(records, row), self._rules)
            names[row], queue_ids[row], offsets[row] = next(place for place in places if self._is_place(*place))
        distinct = sorted(set(names.tolist()))
        number = {name: code for code, name in enumerate(distinct)}
        return Coded(np.array([number[name] for name in names], np.int32), distinct), queue_ids, offsets

    def may_want(self, message: Message) -> bool:
        """Return whether a damaged message may be a wanted one, as far as its queue and time tell."""
        queues = [(message.topic, message.queue_id), *(place[:2] for place in dispatch_targets(message, self._rules))]
        if not any(self.wants_queue(*queue) for queue in queues):
            return False
        time = message.store_timestamp
        if time <= 0:
            return True
        return (self.begin is None or time >= self.begin) and (self.end is None or time < self.end)


@dataclass(frozen=True)
class _Columns:
    """The properties of some messages, in the form that filters take."""

    records: Records

    @property
    def rows(self) -> int:
        return len(self.records)

    @cached_property
    def _properties(self) -> Properties:
        return decode_properties(self.records)

    def column(self, name: str) -> Any:
        """Return the values of a property as a column of text."""
        return self._properties.values(name)


def _are_messages(records: Records) -> Mask:
    # A bridge is a record, but not a message: a repair wrote it over damage.
    return ~are_bridges(records)


def _rows_with_targets(records: Records, among: Mask) -> list[int]:
    """Return those rows of ``among`` whose messages name further queues.

    Few logs have any, so the bytes are searched first.
    """
    begin = int(records.file_offsets.min(initial=len(records.data)))
    end = int((records.properties_offsets + records.properties_lengths).max(initial=0))
    if not among.any() or not _TARGETS.search(records.data.data[begin:end]):
        return []
    named = decode_properties(records).find(INNER_MULTI_DISPATCH).present
    rows: list[int] = np.flatnonzero(named & among).tolist()
    return rows


def _message(records: Records, row: int) -> Message:
    """Return one row as ``formats`` decodes it."""
    message = decode_record(records.data.data, int(records.file_offsets[row]))
    assert isinstance(message, Message), f"columns hold whole messages only, not {message}"
    return message


def _fields(records: Records, *names: str) -> Sequence[tuple[Any, ...]]:
    """Return the fields ``names`` of each message; faster than a ``Message`` for each."""
    offsets: Any = np.ascontiguousarray(records.file_offsets, np.int64)
    return [one for one in fields_decoder(names)(records.data.data, offsets) if one is not None]


def _rows_that_spell(records: Records, text: bytes) -> list[int]:
    """Return the rows whose properties contain ``text`` anywhere.

    All records are searched at once, bodies too, because one long search is faster than many short ones. Then the hits
    outside of properties are dropped.
    """
    starts, ends = records.properties_offsets, records.properties_offsets + records.properties_lengths
    if not text or not len(starts):
        return []
    begin = int(starts.min())
    searched = records.data[begin : int(ends.max())].tobytes()
    found, at = [], searched.find(text)
    while at >= 0:
        found.append(begin + at)
        at = searched.find(text, at + 1)
    order = np.argsort(starts, kind="stable")
    places = np.array(found, np.int64)
    rows = order[np.searchsorted(starts[order], places, "right") - 1]
    hits: list[int] = np.unique(rows[(places >= starts[rows]) & (places + len(text) <= ends[rows])]).tolist()
    return hits
