"""Pulling: the messages of one queue from an offset on, at once or as soon as there are some.

Upstream: ``PullMessageProcessor``, ``PullRequestHoldService``. A pull that finds nothing and may wait becomes a
``Waiting``: its holder looks again when the queue grew, and answers it at the latest when its time is over.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Final, TypeAlias

from rmqtool.broker.one_broker import Asked, Broker
from rmqtool.broker.processors.replies import ENOUGH_FETCHES, Fetching, PlainPull
from rmqtool.config import Version
from rmqtool.engine.get import GetMessageResult, GetMessageStatus, MessageFilter, SqlFilter, TagFilter
from rmqtool.engine.message import NewMessage, QueueKey
from rmqtool.errors import UsageError
from rmqtool.files.filesystem import NotInMemory
from rmqtool.filters.sql92 import Dialect, parse_selector
from rmqtool.filters.tags import parse_tags
from rmqtool.formats.bridges import is_bridge
from rmqtool.formats.commit_log import Message, decode_record
from rmqtool.formats.property_names import DELAY, KEYS, TAGS
from rmqtool.formats.response_codes import ResponseCode
from rmqtool.formats.topics import OFFSET_MOVED_EVENT, PERM_READ, RETRY_PREFIX
from rmqtool.remoting.answers import (
    GROUP_NO_PERMISSION,
    GROUP_NOT_EXIST,
    GROUP_NOT_KNOWN,
    NO_BROADCAST,
    NO_FILTER_BY,
    PULL_FORBIDDEN,
    PULL_QUEUE_ILLEGAL,
    SUBSCRIPTION_NOT_KNOWN,
    SUBSCRIPTION_UNREADABLE,
    TOPIC_NOT_EXIST_TO_PULL,
    TOPIC_NOT_READABLE,
    AnswerTemplate,
    Refusal,
    refuse,
)
from rmqtool.remoting.bodies.clients import MessageModel, SubscriptionData
from rmqtool.remoting.command import RemotingCommand, SerializeType
from rmqtool.remoting.requests.messages import PullMessage, PullMessageAnswer

# The bits of ``sysFlag`` of a pull.
COMMITS, MAY_WAIT, HAS_SUBSCRIPTION = 1, 2, 4
TAG: Final = "TAG"
_RESET = "OFFSET_RESET"

_S = GetMessageStatus
_CODES = {
    _S.FOUND: ResponseCode.SUCCESS,
    _S.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    _S.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    _S.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    _S.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    _S.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    _S.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}


@dataclass(slots=True)
class Waiting:
    """A pull that found nothing: where it goes on, and until when (monotonic ms) it is held."""

    asked: Asked
    header: PullMessage
    message_filter: MessageFilter | None
    offset: int
    until: int

    @property
    def queue(self) -> QueueKey:
        """The queue it waits for."""
        return self.header.topic, self.header.queue_id


@lru_cache(maxsize=1024)
def filter_of(expression_type: str, expression: str, version: str) -> MessageFilter | None:
    """Return the broker's half of a subscription; None: it wants everything. Raises FilterSyntaxError."""
    if expression_type in ("", TAG):
        tags = parse_tags(expression)
        return None if tags.everything else TagFilter(tags)
    dialect = Dialect.V4 if version == Version.V4_9.value else Dialect.V5
    return SqlFilter(parse_selector(expression, dialect=dialect))


# An answer to a pull, or what it waits for.
Pulled: TypeAlias = RemotingCommand | bytes | Waiting | Fetching


@dataclass(frozen=True)
class WholeRecords:
    """Skips places of a damaged log that queue entries point to, as if the messages were not wanted.

    upstream: a broker sends the damaged bytes, and its client fails on them again and again.
    """

    wanted: MessageFilter | None

    def matches_unit(self, tags_code: int | None) -> bool:
        """Return whether the subscription may want the record."""
        return self.wanted is None or self.wanted.matches_unit(tags_code)

    def matches_record(self, data: bytes) -> bool:
        """Return whether this is a message, and the subscription wants it."""
        found = decode_record(data)
        if not isinstance(found, Message) or is_bridge(found):
            return False
        return self.wanted is None or self.wanted.matches_record(data)


class Pulling:
    """Answers the pulls of one broker's clients."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._config = broker.config
        self._reader = broker.store.reader
        self._is_4_9 = broker.config.version is Version.V4_9
        self._templates: dict[tuple[int, str, int, int], AnswerTemplate] = {}
        self._clock = broker.store.setup.clock

    def pull(self, asked: Asked) -> Pulled:
        """Answer a pull, or have it wait: for messages, or for their bytes."""
        header: PullMessage = asked.header  # type: ignore[assignment]
        found = self._check(asked, header)
        if isinstance(found, RemotingCommand):
            return found
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        commits = header.sys_flag & COMMITS and header.commit_offset >= 0
        if commits and not self._broker.offsets.has_pending_reset(group, topic, queue_id):
            self._broker.offsets.commit_offset(group, topic, queue_id, header.commit_offset)
        reset = None if self._is_4_9 else self._broker.offsets.take_reset(group, topic, queue_id)
        if reset is not None:
            low, high = self._reader.bounds(topic, queue_id)
            return self._encode(asked, ResponseCode.PULL_OFFSET_MOVED, _RESET, (reset, max(low, 0), high))
        wanted = WholeRecords(found.wanted) if self._broker.read_only else found.wanted
        return self._look_first(Waiting(asked, header, wanted, header.queue_offset, 0), 0)

    def pull_row(self, row: PlainPull) -> bytes | None:
        """Answer a plain pull that finds messages in memory, as ``pull`` does; None where it needs a closer look."""
        _, _, opaque, group, topic, queue_id, offset, most, flags, commit_offset = row
        offsets = self._broker.offsets
        if self._broker.read_only or offsets.has_pending_reset(group, topic, queue_id):
            return None
        found = self._wanted_of(group, topic, queue_id)
        if isinstance(found, tuple):
            return None
        result = self._reader.get(topic, queue_id, offset, most, found.wanted, waits=False)
        if result.status is not _S.FOUND:
            return None
        if flags & COMMITS:
            offsets.commit_offset(group, topic, queue_id, commit_offset)
        self._broker.pulled[group, topic, queue_id] = result.next_begin_offset
        bounds = result.next_begin_offset, max(result.min_offset, 0), result.max_offset
        template = self._template(ResponseCode.SUCCESS, result.status.name, group, topic)
        return template.encode(SerializeType.JSON, opaque, bounds, self._taken(result, group, topic))

    def _look_first(self, waiting: Waiting, rounds: int) -> Pulled:
        asked, header = waiting.asked, waiting.header
        try:
            result = self._look(waiting, waits=False)
        except NotInMemory as cold:
            if rounds < ENOUGH_FETCHES:
                return Fetching(cold, partial(self._look_first, waiting, rounds + 1))
            # Then what was found before the next fetch is an answer.
            so_far = cold.so_far
            result = so_far if isinstance(so_far, GetMessageResult) else self._look(waiting, waits=True)
        self._note(header, result)
        if header.sys_flag & MAY_WAIT and self._is_nothing(result, header.queue_offset):
            held = header.suspend_timeout_millis if self._config.long_polling_enable else None
            waiting.until = self._clock.monotonic() + (self._config.short_polling_time_mills if held is None else held)
            return waiting
        return self._answer(asked, result, header.queue_offset)

    def look_again(
        self, waiting: Waiting, *, is_over: bool = False, rounds: int = 0
    ) -> RemotingCommand | bytes | Fetching | None:
        """Answer a pull that waits if there is something for it now, or if its time ``is_over``; else None.

        The pull skips messages that its filter does not match; the answer says where to continue. Where bytes are not
        in memory it waits for them, and then again for messages.
        """
        try:
            result = self._look(waiting, waits=rounds >= ENOUGH_FETCHES)
        except NotInMemory as cold:
            return Fetching(cold, lambda: self.look_again(waiting, is_over=is_over, rounds=rounds + 1) or waiting)
        self._note(waiting.header, result)
        if result.status is _S.NO_MATCHED_MESSAGE and not is_over:
            waiting.offset = result.next_begin_offset
            return None
        if self._is_nothing(result, waiting.offset):
            if not is_over:
                return None
            if waiting.offset != waiting.header.queue_offset:
                result.status, result.next_begin_offset = _S.NO_MATCHED_MESSAGE, waiting.offset
        return self._answer(waiting.asked, result, waiting.offset)

    def _look(self, waiting: Waiting, *, waits: bool) -> GetMessageResult:
        header, wanted = waiting.header, waiting.message_filter
        queue = header.topic, header.queue_id
        return self._reader.get(*queue, waiting.offset, header.max_msg_nums, wanted, waits=waits)

    def _note(self, header: PullMessage, result: GetMessageResult) -> None:
        """Take note of where the group pulls next. upstream: commitPullOffset"""
        self._broker.pulled[header.consumer_group, header.topic, header.queue_id] = result.next_begin_offset

    def _is_nothing(self, result: GetMessageResult, offset: int) -> bool:
        return self._code(result.status, offset) is ResponseCode.PULL_NOT_FOUND

    @staticmethod
    def _code(status: GetMessageStatus, offset: int) -> ResponseCode:
        code = _CODES.get(status)
        if code is None:
            # The queue never had a message: a consumer at any other offset must go back to 0.
            return ResponseCode.PULL_NOT_FOUND if offset == 0 else ResponseCode.PULL_OFFSET_MOVED
        return code

    def _answer(self, asked: Asked, result: GetMessageResult, offset: int) -> bytes:
        status = result.status
        header: PullMessage = asked.header  # type: ignore[assignment]
        body = self._taken(result, header.consumer_group, header.topic) if result.count else b""
        code = self._code(status, offset)
        if self._is_4_9 and code is ResponseCode.PULL_OFFSET_MOVED:
            self._tell_that_offset_moved(asked, result.next_begin_offset)
        bounds = result.next_begin_offset, max(result.min_offset, 0), result.max_offset
        return self._encode(asked, code, status.name, bounds, body)

    def _taken(self, result: GetMessageResult, group: str, topic: str) -> bytes:
        """Return the messages of an answer, and count them."""
        counts, key = self._broker.counts, (topic, group)
        counts.get_calls[key] += 1
        counts.gets[key] += result.count
        counts.get_bytes[key] += result.size
        return result.joined()

    def _tell_that_offset_moved(self, asked: Asked, given: int) -> None:
        """Store a message about a consumer that gets another offset. upstream: 4.9; 5.x only logs it."""
        header: PullMessage = asked.header  # type: ignore[assignment]
        group, broker = header.consumer_group, self._broker
        queue = {"brokerName": self._config.broker_name, "queueId": header.queue_id, "topic": header.topic}
        event = {
            "consumerGroup": group,
            "messageQueue": queue,
            "offsetNew": given,
            "offsetRequest": header.queue_offset,
        }
        body = json.dumps(event, ensure_ascii=False, separators=(",", ":")).encode()
        properties = {TAGS: group, DELAY: "0", KEYS: group}
        broker.store.put(NewMessage(OFFSET_MOVED_EVENT, body, 0, properties, born_host=broker.address))

    def _encode(
        self, asked: Asked, code: ResponseCode, remark: str, bounds: tuple[int, int, int], body: bytes = b""
    ) -> bytes:
        header: PullMessage = asked.header  # type: ignore[assignment]
        template = self._template(code, remark, header.consumer_group, header.topic)
        return template.encode(asked.command.serialize_type, asked.command.opaque, bounds, body)

    def _template(self, code: ResponseCode, remark: str, group_name: str, topic_name: str) -> AnswerTemplate:
        topic = self._broker.topics.table.get(topic_name) or {}
        group = self._broker.groups.table.get(group_name) or {}
        key = code, remark, int(topic.get("topicSysFlag") or 0), int(group.get("groupSysFlag") or 0)
        return self._templates.get(key) or self._new_template(key)

    def _new_template(self, key: tuple[int, str, int, int]) -> AnswerTemplate:
        code, remark, topic_flag, group_flag = key
        fixed = {"suggestWhichBrokerId": "0"}
        if not self._is_4_9:
            fixed |= {"topicSysFlag": str(topic_flag), "groupSysFlag": str(group_flag)}
        holes = ("next_begin_offset", "min_offset", "max_offset")
        made = AnswerTemplate(PullMessageAnswer.decode_answer(fixed), *holes, code=code, remark=remark)
        self._templates[key] = made
        return made

    def _check(self, asked: Asked, header: PullMessage) -> _Wanted | RemotingCommand:
        """Return what the client wants, or the answer that refuses it."""
        own = None
        if header.sys_flag & HAS_SUBSCRIPTION:
            own = header.expression_type or TAG, header.subscription or ""
        found = self._wanted_of(header.consumer_group, header.topic, header.queue_id, own)
        if not isinstance(found, tuple):
            return found
        refusal, holes = found
        return refuse(asked.command, refusal, self._broker.version, **{"client": asked.client, **holes})

    def _wanted_of(
        self, group: str, topic: str, queue_id: int, own: tuple[str, str] | None = None
    ) -> _Wanted | tuple[Refusal, dict[str, object]]:
        """Return what a pull wants, or why it is refused; in upstream's order. ``own`` is its own subscription."""
        broker = self._broker
        if not self._config.broker_permission & PERM_READ:
            return PULL_FORBIDDEN, {"address": self._config.broker_ip1}
        known = broker.groups.table.get(group) or broker.groups.find_or_create(group)
        if known is None:
            return GROUP_NOT_EXIST, {"group": group}
        if not known.get("consumeEnable", True):
            return GROUP_NO_PERMISSION, {"group": group}
        config = broker.topics.table.get(topic)
        if config is None:
            return TOPIC_NOT_EXIST_TO_PULL, {"topic": topic}
        if not int(config["perm"]) & PERM_READ:
            return TOPIC_NOT_READABLE, {"topic": topic}
        if not 0 <= queue_id < int(config["readQueueNums"]):
            return PULL_QUEUE_ILLEGAL, {"queue_id": queue_id, "topic": topic, "queues": config["readQueueNums"]}
        if own is not None:
            return self._filter(topic, *own)
        members = broker.clients.consumers.get(group)
        if members is None:
            return GROUP_NOT_KNOWN, {}
        if not known.get("consumeBroadcastEnable", True) and members.message_model is MessageModel.BROADCASTING:
            return NO_BROADCAST, {"group": group}
        found = members.subscriptions.get(topic)
        if found is None:
            return SUBSCRIPTION_NOT_KNOWN, {}
        return self._filter(topic, found.expression_type or TAG, found.sub_string)

    def _filter(self, topic: str, kind: str, text: str) -> _Wanted | tuple[Refusal, dict[str, object]]:
        if kind != TAG and not self._config.enable_property_filter:
            return NO_FILTER_BY, {"expression_type": kind}
        if kind != TAG and topic.startswith(RETRY_PREFIX) and not self._config.filter_support_retry:
            return _EVERYTHING
        try:
            return _Wanted(filter_of(kind, text, self._broker.version))
        except UsageError:
            return SUBSCRIPTION_UNREADABLE, {}


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The wanted messages of a queue; without a filter all of them."""

    wanted: MessageFilter | None


_EVERYTHING = _Wanted(None)


def subscription_flaw(data: SubscriptionData, version: str) -> str | None:
    """Return why a subscription cannot be read, None where it can."""
    try:
        filter_of(data.expression_type or TAG, data.sub_string, version)
    except UsageError as error:
        return str(error)
    return None
