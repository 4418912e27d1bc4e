"""Messages of a tier by id, key, place or time.

A key is looked up in the index files of the tier. The newest entries are not in them: they are in a file of the store
that is not sealed. So what was stored after the last sealed file, and a little before, is searched; and everything
where a file of the index is missing or not sealed, or where no message was found.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

from rmqtool.filters.wanted import Wanted
from rmqtool.formats.commit_log import Message, decode_record
from rmqtool.formats.hosts import format_host
from rmqtool.formats.ids import decode_offset_msg_id
from rmqtool.log.ranges import Effort, read_plan
from rmqtool.log.read import Damage, Part
from rmqtool.log.select import Selection
from rmqtool.log.sources import tier_files
from rmqtool.log.stream import iter_parts
from rmqtool.look.lookup import Answer
from rmqtool.look.question import Question, QuestionKind
from rmqtool.look.tier_overview import bounds_of, find_message, iter_indexed, read_message
from rmqtool.store.listing import QueueId
from rmqtool.store.open import Store
from rmqtool.store.tiers import Tier
from rmqtool.store.time_search import Boundary

# Messages are copied into a tier some time after they were stored (tieredStoreGroupCommitTimeout: 30 s), each queue on
# its own. Messages that are older than the newest index entry by more than this, in ms, are indexed.
_LATE = 600_000


@dataclass
class TierAnswer(Answer):
    """An answer of a tier: the messages themselves, because offsets of several queues are the same."""

    messages: list[Message] = field(default_factory=list)

    def iter_messages(self, store: Store) -> Iterator[Message]:  # noqa: ARG002  (they are here)
        """Yield the messages by queue and queue offset."""
        yield from self.messages


@dataclass
class TierLookup:
    """Answers questions about a tier; ``name`` is its directory as people see it."""

    tier: Tier
    wanted: Wanted
    boundary: Boundary = Boundary.LOWER
    name: str = ""
    effort: Effort = field(default_factory=Effort)

    def find(self, question: Question) -> TierAnswer:
        """Answer a question with the first of its kinds that is found."""
        answers = []
        for kind in question.kinds:
            answers.append(TierAnswer(question, kind))
            self._find(answers[-1])
            if answers[-1].is_found:
                break
        return answers[-1] if answers[-1].is_found else answers[0]

    def _find(self, answer: TierAnswer) -> None:
        kind = answer.kind
        if kind in (QuestionKind.OFFSET_MSG_ID, QuestionKind.PHYSICAL_OFFSET):
            self._take(answer, self._at(answer.question), "log")
        elif kind is QuestionKind.QUEUE_OFFSET:
            self._find_queue_offset(answer)
        elif kind is QuestionKind.TIME:
            self._find_time(answer)
        elif kind is QuestionKind.TAG:
            self._take(answer, self._scan(answer, Selection.of(self._with(tags=answer.question.text))), "scan")
        else:
            self._find_key(answer)

    def _with(self, tags: str) -> Wanted:
        from rmqtool.filters.tags import parse_tags

        return replace(self.wanted, tags=parse_tags(tags))

    def _take(self, answer: TierAnswer, found: Iterator[Message] | list[Message], by: str) -> None:
        """Add the messages that were asked for, each once."""
        there = {_place(message): message for message in answer.messages}
        new = {_place(message): message for message in found if self._allows(message)}
        answer.messages = [message for _, message in sorted((there | new).items())]
        answer.places = [message.physical_offset for message in answer.messages]
        if new.keys() - there.keys() and by not in answer.answered_by:
            answer.answered_by.append(by)

    def _allows(self, message: Message) -> bool:
        wanted = self.wanted
        return wanted.allows_time(message.store_timestamp) and wanted.allows_queue(message.topic, message.queue_id)

    @cached_property
    def _queues(self) -> list[QueueId]:
        return [queue for queue in self.tier.queues if self.wanted.allows_queue(*queue)]

    def _at(self, question: Question) -> Iterator[Message]:
        """Yield the messages at an offset: each queue has a log of its own, so there can be several."""
        assert question.physical_offset is not None
        named = decode_offset_msg_id(question.text)
        for queue in self._queues:
            message = read_message(self.tier, queue, question.physical_offset)
            if message is not None and (
                named is None or format_host(message.store_host_ip, message.store_host_port) == named.host
            ):
                yield message

    def _find_queue_offset(self, answer: TierAnswer) -> None:
        question = answer.question
        assert question.topic is not None
        assert question.queue_id is not None
        assert question.queue_offset is not None
        queue = QueueId(question.topic, question.queue_id)
        message = find_message(self.tier, queue, question.queue_offset)
        if message is not None:
            self._take(answer, [message], "queue")
            return
        # The entry is missing or wrong: the log of the queue may have the message.
        selection = Selection.of(self.wanted, least_offsets={queue: question.queue_offset})
        found = (one for one in self._scan(answer, selection) if one.queue_offset == question.queue_offset)
        self._take(answer, found, "log")
        if answer.messages:
            return
        if queue not in self.tier.queues:
            answer.reasons.append(f"the tier has no queue {queue.topic}/{queue.queue_id}")
            return
        low, high, _ = bounds_of(self.tier, queue)
        words = f"the queue has offsets {low} to {high - 1} there" if low < high else "the queue is empty there"
        answer.reasons.append(words)

    def _find_key(self, answer: TierAnswer) -> None:
        key = answer.question.text
        since = self._look_up(answer, key)
        selection = Selection.of(replace(self.wanted, key=key))
        if answer.messages and since is not None:
            begin = max(since, self.wanted.begin or 0)
            self._take(answer, self._scan(answer, replace(selection, begin=begin)), "log")
        else:
            self._take(answer, self._scan(answer, selection), "scan")

    def _look_up(self, answer: TierAnswer, key: str) -> int | None:
        """Add what the index has; return the store time (ms) up to which it has everything, None if it is not whole."""
        since: int | None = 0
        files = collisions = 0
        topics = sorted({queue.topic for queue in self._queues})
        for found in iter_indexed(self.tier, topics, key):
            answer.findings += found.findings
            self._take(answer, found.messages, "index")
            files, collisions = files + found.is_whole, collisions + found.collisions
            since = max(since, found.end_timestamp - _LATE) if found.is_whole and since is not None else None
        answer.searched["index"] = {"files": files, "collisions": collisions}
        return since

    def _scan(self, answer: TierAnswer, selection: Selection) -> Iterator[Message]:
        """Yield the messages of the logs that are selected; damage makes the answer incomplete."""
        plan = read_plan(tier_files(self.tier, self.name), selection)
        size = sum(file.size for file in plan.wanted)
        searched = answer.searched.get("log", {"begin": 0, "end": 0, "bytes": 0})
        answer.searched["log"] = {"begin": 0, "end": size, "bytes": searched["bytes"] + size}
        for found in iter_parts(plan, selection, self.effort):
            if isinstance(found, Damage):
                answer.complete = False
                unread = answer.searched.setdefault("unread", [])
                place = {"file": found.file, "offset": found.file_offset, "length": found.length}
                unread.append({"code": found.code, **place, "message": found.message})
            elif isinstance(found, Part):
                for at in found.records.file_offsets.tolist():
                    message = decode_record(found.records.data.data, at)
                    assert isinstance(message, Message), "columns hold whole messages only"
                    yield message

    def _find_time(self, answer: TierAnswer) -> None:
        """Find the first message of each wanted queue from a time on; without a topic the first one of all."""
        assert answer.question.timestamp is not None
        found = {
            queue: offset_of_time(self.tier, queue, answer.question.timestamp, self.boundary) for queue in self._queues
        }
        there = [message for queue, at in found.items() if (message := find_message(self.tier, queue, at)) is not None]
        if self.wanted.topics.patterns:
            answer.queue_offsets = found
        else:
            there = sorted(there, key=lambda message: message.store_timestamp)[:1]
        self._take(answer, there, "queue")


def _place(message: Message) -> tuple[str, int, int]:
    return message.topic, message.queue_id, message.queue_offset


def offset_of_time(tier: Tier, queue: QueueId, timestamp: int, boundary: Boundary) -> int:
    """Return the queue offset that the real tiered store answers for a store time.

    It is the first message stored at that time or later. With the upper boundary, of messages stored at exactly that
    time it is the last one.
    """
    low, end, _ = bounds_of(tier, queue)
    high = end
    while low < high:
        middle = (low + high) // 2
        message = find_message(tier, queue, middle)
        if message is not None and message.store_timestamp < timestamp:
            low = middle + 1
        else:
            high = middle
    if boundary is Boundary.UPPER:
        while (message := find_message(tier, queue, low + 1)) is not None and message.store_timestamp == timestamp:
            low += 1
    return low
