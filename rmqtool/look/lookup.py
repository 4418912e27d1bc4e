"""The answer to one question: where the message is, and what proves it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

from rmqtool.errors import ReadFailed
from rmqtool.filters.wanted import EVERY_TOPIC, Wanted
from rmqtool.findings import Finding, Severity, worst_first
from rmqtool.formats.commit_log import Message
from rmqtool.formats.compression import inflate_body
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.hosts import format_host
from rmqtool.formats.ids import decode_offset_msg_id
from rmqtool.log.end import read_record
from rmqtool.look.key_search import KeySearch
from rmqtool.look.place_search import (
    LOST_UNDER_BRIDGE,
    LogSearch,
    QueueSearch,
    before_the_log,
    check_units,
    damaged_finding,
    find_at,
    find_first_since,
    find_in_queue,
)
from rmqtool.look.question import Question, QuestionKind, decoded_json
from rmqtool.look.regions import time_words
from rmqtool.look.topic_names import find_topics, near_topics, no_topic
from rmqtool.store.listing import QueueId
from rmqtool.store.open import Store
from rmqtool.store.time_search import Boundary

if TYPE_CHECKING:
    from rmqtool.log.ranges import Effort
    from rmqtool.look.time_query import TimeLookup

# Messages of an answer that are compared with their queues.
_COMPARED = 100
# Places of lost messages that an answer names at most.
_LOST_NAMED = 3
# Queues that an answer names at most.
_NAMED = 16


@dataclass
class Answer:
    """An answer: physical offsets, the structures that led there, what was searched, and findings about them.

    ``reasons`` say why nothing was found, or what else exists; ``hint`` is the command to type then. ``complete`` is
    False if messages may be missing from the answer because part of what had to be searched cannot be read.
    """

    question: Question
    kind: QuestionKind
    places: list[int] = field(default_factory=list)
    answered_by: list[str] = field(default_factory=list)
    searched: dict[str, Any] = field(default_factory=dict)
    complete: bool = True
    findings: list[Finding] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    near: list[str] = field(default_factory=list)
    queue_offsets: dict[QueueId, int] = field(default_factory=dict)
    hint: str | None = None

    @property
    def is_found(self) -> bool:
        """Whether the answer has messages or queue offsets."""
        return bool(self.places or self.queue_offsets)

    @property
    def is_settled(self) -> bool:
        """Whether no other kind need be tried: it is found, or the place that it names has a damaged record."""
        names_a_place = self.kind in (QuestionKind.OFFSET_MSG_ID, QuestionKind.PHYSICAL_OFFSET)
        return self.is_found or (names_a_place and bool(self.findings))

    def as_json(self) -> dict[str, Any]:
        """Return the object of docs/contract.md without its messages."""
        shown: dict[str, Any] = {
            "query": self.question.text,
            "kind": self.kind.value,
            "answeredBy": self.answered_by,
            "searched": self.searched,
            "complete": self.complete,
            "findings": [finding.as_json() for finding in self.findings],
        }
        if len(self.queue_offsets) == 1:
            shown["queueOffset"] = next(iter(self.queue_offsets.values()))
        elif self.queue_offsets:
            found: dict[str, dict[str, int]] = {}
            for (topic, queue_id), offset in self.queue_offsets.items():
                found.setdefault(topic, {})[str(queue_id)] = offset
            shown["queueOffsets"] = found
        for name, texts in (("reasons", self.reasons), ("near", self.near)):
            if texts:
                shown[name] = list(dict.fromkeys(texts))
        return shown

    def iter_messages(self, store: Store) -> Iterator[Message]:
        """Yield the messages in the order of the log."""
        for place in self.places:
            message = read_record(store.commit_log, place)
            if message is not None:
                yield message


@dataclass
class Lookup:
    """Answers questions about one store.

    ``as_broker``: a query by key has the window, the limit and the seconds of a broker's query, and counts hash
    collisions. ``effort`` returns how many threads search the log.
    """

    store: Store
    wanted: Wanted
    boundary: Boundary = Boundary.LOWER
    as_broker: bool = False
    effort: Callable[[], Effort] | None = None

    def find(self, question: Question) -> Answer:
        """Answer a question with the first of its kinds that is found."""
        log = LogSearch(self.store, self.effort)
        answers: list[Answer] = []
        for kind in question.kinds:
            answer = Answer(question, kind)
            answers.append(answer)
            self._find(answer, log)
            if answer.is_settled:
                break
        answer = answers[-1] if answers[-1].is_settled else answers[0]
        for other in answers:
            if other is not answer:
                answer.findings += other.findings
                answer.reasons += other.reasons
                answer.near += other.near
                answer.searched |= {name: value for name, value in other.searched.items() if name != "log"}
        messages = list(islice(answer.iter_messages(self.store), _COMPARED))
        if answer.kind is not QuestionKind.TIME:
            told = {(one.code, one.topic, one.queue_id) for one in answer.findings}
            try:
                units = check_units(self.store, messages)
                answer.findings += [one for one in units if (one.code, one.topic, one.queue_id) not in told]
            except ReadFailed as error:
                log.miss_unread(error)
        self._explain_log(answer, log)
        answer.findings += [finding for message in messages if (finding := _find_body_flaw(message)) is not None]
        answer.findings = worst_first(answer.findings)
        return answer

    def _find(self, answer: Answer, log: LogSearch) -> None:
        if answer.kind in (QuestionKind.OFFSET_MSG_ID, QuestionKind.PHYSICAL_OFFSET):
            self._find_place(answer, log)
        elif answer.kind is QuestionKind.QUEUE_OFFSET:
            self._find_queue_offset(answer, log)
        elif answer.kind is QuestionKind.TIME:
            self._find_time(answer, log)
        else:
            self._find_key(answer, log)

    def _find_place(self, answer: Answer, log: LogSearch) -> None:
        offset = answer.question.physical_offset
        assert offset is not None
        found = find_at(self.store, offset, log)
        if (
            found.message is not None
            and self._is_of_host(answer, found.message)
            and self._allows(answer, found.message)
        ):
            answer.places.append(offset)
            answer.answered_by.append("log")
        elif found.damaged is not None:
            text = f"the record at {offset} in the log is damaged"
            answer.findings.append(damaged_finding(self.store, found.damaged, text))
            answer.complete = False
        elif found.reason is not None:
            answer.reasons.append(found.reason)
            answer.near += [f"@{offset}" for offset in found.near]

    def _is_of_host(self, answer: Answer, message: Message) -> bool:
        """Return whether the host in an offset message id stored the message; else the id is of another broker."""
        if answer.kind is not QuestionKind.OFFSET_MSG_ID:
            return True
        named = decode_offset_msg_id(answer.question.text)
        host = format_host(message.store_host_ip, message.store_host_port)
        if named is None or named.host == host:
            return True
        answer.reasons.append(
            f"the message at {message.physical_offset} was stored by {host}, but the id names {named.host}"
        )
        answer.near.append(f"@{message.physical_offset}")
        return False

    def _allows(self, answer: Answer, message: Message) -> bool:
        if self.wanted.refuses(message):
            answer.reasons.append(LOST_UNDER_BRIDGE)
            return False
        if not self.wanted.allows_queue(message.topic, message.queue_id):
            answer.reasons.append(f"the message there is in {message.topic}/{message.queue_id}")
            return False
        if not self.wanted.allows_time(message.store_timestamp):
            answer.reasons.append(f"the message there was stored at {time_words(message.store_timestamp)}")
            return False
        return True

    def _find_queue_offset(self, answer: Answer, log: LogSearch) -> None:
        question = answer.question
        assert question.topic is not None
        assert question.queue_id is not None
        assert question.queue_offset is not None
        queue = QueueId(question.topic, question.queue_id)
        search = QueueSearch(self.store, queue, question.queue_offset, log)
        search.run()
        answer.findings += search.findings
        if search.found is not None and self._allows(answer, search.found):
            answer.places.append(search.found.physical_offset)
            answer.answered_by += search.answered_by
        elif search.found is None:
            try:
                bounds = self._times().bounds.get(queue)
            except ReadFailed as error:
                log.miss_unread(error)
                return
            first = 0 if bounds is None else max(bounds.min_offset, bounds.first_available or 0)
            if search.expired or question.queue_offset < first:
                answer.reasons.append(f"the message is gone: {before_the_log(self.store)}")
            if search.bridged:
                answer.reasons.append(LOST_UNDER_BRIDGE)
            if bounds is not None:
                text = f"the queue has offsets {max(bounds.min_offset, 0)} to {bounds.max_offset - 1}"
                empty = f"the queue is empty; its next offset is {bounds.max_offset}"
                answer.reasons.append(text if bounds.max_offset > max(bounds.min_offset, 0) else empty)
            else:
                self._explain_no_queue(answer, queue)

    def _find_key(self, answer: Answer, log: LogSearch) -> None:
        from difflib import get_close_matches

        search = KeySearch(self.store, answer.kind, answer.question.text, self.wanted, log, self.as_broker)
        search.run()
        answer.places = sorted(search.found)
        answer.answered_by += search.answered_by
        answer.findings += search.findings
        answer.complete = search.complete
        if search.index_files:
            answer.searched["index"] = {"files": search.index_files, "collisions": search.collisions}
        if search.has_more:
            answer.searched["limit"] = self.wanted.limit
        if answer.places:
            return
        if search.elsewhere:
            topics = ", ".join(f"{topic} ({count})" for topic, count in search.elsewhere.most_common(3))
            answer.reasons.append(f"it is in other topics or queues: {topics}")
        for place in sorted(search.bridged)[:_LOST_NAMED]:
            answer.reasons.append(f"the index has this key at {place}; {LOST_UNDER_BRIDGE}")
        if search.other_times:
            first, last = time_words(min(search.other_times)), time_words(max(search.other_times))
            answer.reasons.append(f"it was stored at other times: {first} to {last}")
        if search.damaged:
            place = min(search.damaged)
            answer.reasons.append(f"the index has this key for the record at {place} in the log, which is damaged")
            return
        if search.bridged:
            return
        if answer.question.text.isdecimal() and read_record(self.store.commit_log, int(answer.question.text)):
            answer.near.append(f"@{answer.question.text}")
        answer.near += get_close_matches(answer.question.text, search.near, n=3, cutoff=0.0)

    def _find_time(self, answer: Answer, log: LogSearch) -> None:
        timestamp = answer.question.timestamp
        assert timestamp is not None
        if not self.wanted.topics.patterns:
            found = find_first_since(self.store, timestamp, self.boundary is Boundary.UPPER, log)
            answer.places = [found.physical_offset] if found is not None else []
            answer.answered_by += ["log"] if found is not None else []
            return
        times = self._times()
        exact = self.wanted.topics.exact
        queues = [queue for queue in times.bounds if self.wanted.allows_queue(*queue)]
        for unread, error in times.unread.items():
            if unread is None or self.wanted.allows_queue(*unread):
                log.miss_unread(error)
        if exact is not None and self.wanted.queue_id is not None and not queues and not log.unread:
            queues = [QueueId(exact, self.wanted.queue_id)]
            answer.reasons.append(f"there is no queue {exact}/{self.wanted.queue_id}: a broker makes it and answers 0")
            answer.near += near_topics(self.store, exact)
        for queue in queues:
            offset = times.find(queue, timestamp, self.boundary)
            answer.queue_offsets[queue] = offset
            unit = find_in_queue(self.store, queue, offset)
            record = None if unit is None else read_record(self.store.commit_log, unit.physical_offset)
            if unit is not None and record is not None and not self.wanted.refuses(record):
                answer.places.append(unit.physical_offset)
        answer.answered_by.append("queue")
        answer.places = sorted(set(answer.places))

    def _explain_no_queue(self, answer: Answer, queue: QueueId) -> None:
        """Add the queues that the topic has as a reason; without any, add topics with similar names."""
        numbers = [str(one.queue_id) for one in sorted(self._times().bounds) if one.topic == queue.topic]
        there_is_none = f"there is no queue {queue.topic}/{queue.queue_id}"
        if numbers:
            some = "the queue" if len(numbers) == 1 else "the queues"
            more = f" and {len(numbers) - _NAMED} more" if len(numbers) > _NAMED else ""
            answer.reasons.append(f"{there_is_none}; the topic has {some} {', '.join(numbers[:_NAMED])}{more}")
            return
        answer.reasons.append(there_is_none)
        answer.near += near_topics(self.store, queue.topic)

    def _times(self) -> TimeLookup:
        # Imported when needed: it loads the configuration, and most questions are for a key.
        from rmqtool.look.time_query import TimeLookup

        return TimeLookup(self.store)

    def _explain_log(self, answer: Answer, log: LogSearch) -> None:
        if log.ranges:
            answer.searched["log"] = {
                "begin": min(start for start, _ in log.ranges),
                "end": max(end for _, end in log.ranges),
                "bytes": log.bytes,
            }
        if log.unread:
            answer.searched["unread"] = [finding.as_json() for finding in log.unread]
        answer.complete = answer.complete and not log.unread
        by_key = answer.kind in (QuestionKind.KEY, QuestionKind.UNIQ_KEY)
        if not answer.places and by_key and self.store.commit_log.min_offset > 0:
            answer.reasons.append(f"messages before that are gone: {before_the_log(self.store)}")
        patterns = self.wanted.topics.patterns
        if not answer.places and patterns and not answer.queue_offsets:
            known = find_topics(self.store, EVERY_TOPIC)
            if known is not None and not self.wanted.topics.select(known):
                answer.reasons.append(no_topic(patterns))
                near = near_topics(self.store, patterns[0])
                answer.near += near
                answer.hint = None if near else "rmqtool topic STORE list"


def _find_body_flaw(message: Message) -> Finding | None:
    inflated = inflate_body(message.sys_flag, message.raw_body)
    if not isinstance(inflated, Flaw):
        return None
    text = f"{inflated.message} (the message at {message.physical_offset})"
    return Finding(inflated.code, Severity.WARNING, text, topic=message.topic, queue_id=message.queue_id)


def answer_head(
    store: Store, answer: Answer, now: int, *, history: bool = False, group: str | None = None
) -> dict[str, Any]:
    """Return the answer for JSON, with what the id says by itself; with ``history``, the stories of the messages."""
    first = next(answer.iter_messages(store), None)
    head = answer.as_json()
    decoded = decoded_json(answer.question.text, now=now, near=first.born_timestamp if first else None)
    if decoded:
        head["decoded"] = decoded
    if history:
        from rmqtool.look.history import read_stories

        stories = read_stories(store, answer.iter_messages(store), group)
        head["history"] = [event for story in stories for event in story.events_json()]
        head["stories"] = [story.as_json() for story in stories]
    return head
