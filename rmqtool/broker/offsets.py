"""The progress of groups, as a broker keeps it: topic and group → queue → the offset to consume next.

``ConsumerOffsets`` is the table and its file. A file that was read keeps its order when it is written again. upstream:
ConsumerOffsetManager (``consumerOffset.json``), LmqConsumerOffsetManager with ``enableLmq``
(``lmqConsumerOffset.json``).

``OffsetRequests`` has the broker's answers to clients and mqadmin: query, update, reset. upstream:
ConsumerManageProcessor, Broker2Client.resetOffset (4.9), AdminBrokerProcessor.resetOffsetInner (5.x).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from rmqtool.broker.consumer.queue_view import QueueView, Residence
from rmqtool.config import Version
from rmqtool.engine.clock import Clock
from rmqtool.formats import paths
from rmqtool.formats.codes import is_since
from rmqtool.formats.config_files import (
    decode_config,
    dialect_of,
    encode_config,
    group_topic_map,
    new_bean,
    order_keys,
    with_entry,
)
from rmqtool.formats.config_shapes import (
    CONFIG_FILES,
    DATA_VERSION,
    GROUP_TOPIC_MAP,
    GROUP_TOPIC_SET_BINS,
    OFFSET_TABLE,
    QUEUE_OFFSETS,
)
from rmqtool.formats.fastjson import STRING, Bean, Table
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.response_codes import ResponseCode
from rmqtool.formats.topics import LMQ_PREFIX
from rmqtool.store.config_files import ConfigText

NOT_FOUND = -1
# 5.x raises the version of the data after this many commits.
VERSION_STEP = 500

_SEPARATOR = "@"
_LMQ_TABLE = "lmqOffsetTable"
_TOPIC_SET = Table(STRING, GROUP_TOPIC_SET_BINS, concurrent=False)


def progress_file(*, enable_lmq: bool) -> str:
    """Return the name of the file in which a broker keeps all progress."""
    return paths.LMQ_CONSUMER_OFFSET if enable_lmq else paths.CONSUMER_OFFSET


# Brokers and clients save ten seconds after they start, and then every five (ms).
FIRST_SAVE, SAVE_PERIOD = 10_000, 5_000


class SaveSchedule:
    """The times at which a table is saved: upstream's fixed rate, by a monotonic clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._due = clock.monotonic() + FIRST_SAVE

    def is_due(self) -> bool:
        """Return whether it is time to save. One save makes up for all missed times."""
        late = self._clock.monotonic() - self._due
        if late < 0:
            return False
        self._due += (late // SAVE_PERIOD + 1) * SAVE_PERIOD
        return True


class ConsumerOffsets:
    """The table of one broker. ``save`` writes it if it has changed; ``tick`` does so at the broker's times."""

    def __init__(self, text: ConfigText | None, version: Version, clock: Clock, *, enable_lmq: bool = False) -> None:
        self._text = text
        self._version = version
        self._clock = clock
        self._name = progress_file(enable_lmq=enable_lmq)
        self._bean: Bean = CONFIG_FILES[self._name].root
        self._schedule = SaveSchedule(clock)
        self._value: dict[str, Any] = {}
        self._load()
        self._changed = False
        self._commits = 0
        # Offsets that consumers were told to reset to, until they do (5.x). They are not saved.
        self._resets: dict[tuple[str, str, int], int] = {}

    @property
    def data_version(self) -> dict[str, Any]:
        """Which state of the table this is."""
        return dict(self._value["dataVersion"])

    def _load(self) -> None:
        found = (self._text.load(self._decode) if self._text is not None else None) or {}
        data_version = new_bean(DATA_VERSION, self._version, timestamp=self._clock.now())
        data_version |= {
            name: value for name, value in (found.get("dataVersion") or {}).items() if name in data_version
        }
        topics = found.get("groupTopicMap")
        self._value = {
            "dataVersion": data_version,
            "groupTopicMap": topics if isinstance(topics, dict) else {},
            "offsetTable": found.get("offsetTable") or {},
            _LMQ_TABLE: found.get(_LMQ_TABLE) or {},
        }
        # The keys that have their place in the file. New ones get theirs when the file is written.
        self._placed: dict[str, list[int]] = {key: list(queues) for key, queues in self._table.items()}
        self._placed_lmq: list[str] = list(self._value[_LMQ_TABLE])

    def _decode(self, data: bytes) -> dict[str, Any] | Flaw:
        decoded = decode_config(self._name, data)
        return decoded if isinstance(decoded, Flaw) else decoded.value

    @property
    def _table(self) -> dict[str, dict[int, int]]:
        table: dict[str, dict[int, int]] = self._value["offsetTable"]
        return table

    def _lmq_table(self, group: str) -> dict[str, int] | None:
        """Return the table of light groups if ``group`` is kept there."""
        is_lmq = _LMQ_TABLE in self._bean.fields and group.startswith(LMQ_PREFIX)
        return self._value[_LMQ_TABLE] if is_lmq else None

    def query_offset(self, group: str, topic: str, queue_id: int) -> int:
        """Return the offset to consume next, or NOT_FOUND; a pending reset counts more."""
        pending = self._resets.get((group, topic, queue_id))
        if pending is not None:
            return pending
        key = topic + _SEPARATOR + group
        lmq = self._lmq_table(group)
        if lmq is not None:
            return lmq.get(key, NOT_FOUND)
        return self._table.get(key, {}).get(queue_id, NOT_FOUND)

    def commit_offset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Set the offset to consume next. It may be smaller than before."""
        key = topic + _SEPARATOR + group
        lmq = self._lmq_table(group)
        self._changed = True
        if lmq is not None:
            lmq[key] = offset
            return
        self._table.setdefault(key, {})[queue_id] = offset
        self._commits += 1
        if self._commits % VERSION_STEP == 0 and is_since(self._version, "5.0.0"):
            data_version = self._value["dataVersion"]
            data_version["counter"] += 1
            data_version["timestamp"] = self._clock.now()

    def offsets_of(self, group: str, topic: str) -> Mapping[int, int]:
        """Return the group's offsets in all queues of a topic."""
        key = topic + _SEPARATOR + group
        lmq = self._lmq_table(group)
        if lmq is not None:
            return {0: lmq[key]} if key in lmq else {}
        return dict(self._table.get(key, {}))

    def groups_of(self, topic: str) -> list[str]:
        """Return the groups that have progress in a topic."""
        return [group for name, group in self._iter_keys(f"{topic}{_SEPARATOR}") if name == topic]

    def topics_of(self, group: str) -> list[str]:
        """Return the topics in which a group has progress."""
        return [topic for topic, name in self._iter_keys(f"{_SEPARATOR}{group}") if name == group]

    def iter_subscriptions(self) -> Iterator[tuple[str, str]]:
        """Yield (topic, group) of all progress. Keys that do not name both are left out."""
        return self._iter_keys("")

    def _iter_keys(self, text: str) -> Iterator[tuple[str, str]]:
        """Yield (topic, group) of the keys with a text in them: few of thousands are worth to be split."""
        for key in (*self._table, *self._value[_LMQ_TABLE]):
            if text in key and (parts := _split(key)) is not None:
                yield parts

    def remove(self, is_gone: Callable[[str, str], bool]) -> list[tuple[str, str]]:
        """Remove the progress of each (topic, group) that ``is_gone`` accepts; return what was removed."""
        removed = [found for found in self.iter_subscriptions() if is_gone(*found)]
        for topic, group in removed:
            key = topic + _SEPARATOR + group
            self._table.pop(key, None)
            self._placed.pop(key, None)
            self._value[_LMQ_TABLE].pop(key, None)
            self._placed_lmq = [placed for placed in self._placed_lmq if placed != key]
            for pending in [pending for pending in self._resets if pending[:2] == (group, topic)]:
                del self._resets[pending]
        self._changed = self._changed or bool(removed)
        return removed

    def remove_unsubscribed(
        self, is_subscribed: Callable[[str, str], bool], min_offset: Callable[[str, int], int]
    ) -> list[tuple[str, str]]:
        """Remove the progress of groups without consumers if it is before all messages that are left."""

        def is_gone(topic: str, group: str) -> bool:
            if is_subscribed(topic, group):
                return False
            return all(offset <= min_offset(topic, queue) for queue, offset in self.offsets_of(group, topic).items())

        return self.remove(is_gone)

    def min_offset_of_groups(
        self, topic: str, min_offset: Callable[[str, int], int], without: Collection[str] = ()
    ) -> dict[int, int]:
        """Return the smallest offset of any group in each queue of a topic.

        upstream: ``queryMinOffsetInAllGroup`` deletes the progress of the groups that it leaves out.
        """
        found: dict[int, int] = {}
        for name, group in self.iter_subscriptions():
            if name != topic or group in without:
                continue
            for queue_id, offset in self.offsets_of(group, topic).items():
                if offset >= min_offset(topic, queue_id):
                    found[queue_id] = min(offset, found.get(queue_id, offset))
        return found

    def reset_offset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Set the offset and protect it from commits until the group's next pull (5.x)."""
        self.commit_offset(group, topic, queue_id, offset)
        self._resets[group, topic, queue_id] = offset

    def has_pending_reset(self, group: str, topic: str, queue_id: int) -> bool:
        """Return whether a reset waits for the group's next pull."""
        return (group, topic, queue_id) in self._resets

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return and remove the pending reset, which answers the pull; None without one."""
        return self._resets.pop((group, topic, queue_id), None)

    def encode(self) -> bytes:
        """Return the file as a broker of the version writes it."""
        self._place_new_keys()
        value = dict(self._value)
        if is_since(self._version, "5.0.0"):
            value["groupTopicMap"] = self._value["groupTopicMap"] = self._group_topics()
        fields = self._bean.fields.items()
        shown = {name: value[name] for name, declared in fields if is_since(self._version, declared.since)}
        return encode_config(self._name, shown, dialect_of(self._version))

    def save(self) -> bool:
        """Write the file if anything changed since; return whether it did."""
        unsaved = self.unsaved()
        if unsaved is not None:
            unsaved()
        return unsaved is not None

    def unsaved(self) -> Callable[[], None] | None:
        """Return what writes the file as it is to be now; None where nothing changed since."""
        if not self._changed:
            return None
        assert self._text is not None, "a table without a file is only looked at"
        self._changed = False
        return partial(self._text.write, self.encode())

    def tick(self) -> bool:
        """Save if it is time to; return whether the file was written."""
        return self._schedule.is_due() and self.save()

    def _place_new_keys(self) -> None:
        """Give the new keys their places in the file."""
        inner = {key: _placed(queues, self._placed.get(key, []), QUEUE_OFFSETS) for key, queues in self._table.items()}
        table = _placed(inner, list(self._placed), OFFSET_TABLE)
        self._value["offsetTable"] = table
        self._placed = {key: list(queues) for key, queues in table.items()}
        # Both tables have the same number of bins.
        lmq = _placed(self._value[_LMQ_TABLE], self._placed_lmq, OFFSET_TABLE)
        self._value[_LMQ_TABLE] = lmq
        self._placed_lmq = list(lmq)

    def _group_topics(self) -> dict[str, list[str]]:
        """Return the topics of each group, which 5.x derives from the table. Known entries keep their order."""
        read: dict[str, Any] = self._value["groupTopicMap"]
        fresh = group_topic_map(self._table)
        kept = [group for group in read if group in fresh]
        groups = _placed(fresh, kept, GROUP_TOPIC_MAP)
        return {group: _in_read_order(topics, read.get(group, [])) for group, topics in groups.items()}


def _in_read_order(topics: list[str], read: Any) -> list[str]:
    # A broker does not read this value, so it can be anything.
    kept = list(dict.fromkeys(topic for topic in read if topic in topics)) if isinstance(read, list) else []
    return list(_placed(dict.fromkeys(topics), kept, _TOPIC_SET))


def _placed(entries: dict[Any, Any], placed: list[Any], table: Table) -> dict[Any, Any]:
    """Return ``entries`` with the keys of ``placed`` in that order, and the others where upstream's map has them."""
    if len(placed) == len(entries):
        return {key: entries[key] for key in placed}
    if not placed:
        return {key: entries[key] for key in order_keys(list(entries), table)}
    found = {key: entries[key] for key in placed}
    for key, value in entries.items():
        if key not in found:
            found = with_entry(found, key, value, table)
    return found


def _split(key: str) -> tuple[str, str] | None:
    """Return topic and group of a key; a broker ignores keys with another number of parts."""
    parts = key.split(_SEPARATOR)
    while parts and not parts[-1]:
        parts.pop()
    return (parts[0], parts[1]) if len(parts) == 2 else None


# A reset to the end of each queue instead of to a time.
TO_THE_END = -1


@dataclass(frozen=True)
class ResetAnswer:
    """The answer to a reset: the new offset of each queue, or an error code with its remark."""

    code: ResponseCode
    offsets: dict[int, int] = field(default_factory=dict)
    remark: str | None = None


class OffsetRequests:
    """The requests to one broker. It knows ``topics`` and ``groups``; 5.x refuses others."""

    def __init__(
        self,
        offsets: ConsumerOffsets,
        queues: QueueView,
        version: Version,
        topics: Collection[str],
        groups: Collection[str],
    ) -> None:
        self._offsets = offsets
        self.queues = queues
        self._is_5 = is_since(version, "5.0.0")
        self._topics = topics
        self._groups = groups

    def query(self, group: str, topic: str, queue_id: int, *, zero_if_not_found: bool = True) -> int | None:
        """Return the offset from which a group continues; None (QUERY_NOT_FOUND) if the client's own policy decides.

        A new group starts at 0, with any policy, as long as the queue's first message is in memory. A 5.x client can
        forbid that with ``zero_if_not_found``.
        """
        stored = self._offsets.query_offset(group, topic, queue_id)
        if stored >= 0:
            return stored
        if self.queues.min_offset(topic, queue_id) > 0:
            return None
        residence = self.queues.residence(topic, queue_id, 0)
        if self._is_5:
            return 0 if zero_if_not_found and residence is Residence.MEMORY else None
        return None if residence is Residence.DISK else 0

    def update(self, group: str, topic: str, queue_id: int | None, offset: int | None) -> ResponseCode:
        """Take a consumer's commit. While a reset waits for its next pull, the commit succeeds and is ignored."""
        if self._is_5:
            unknown = self._unknown(group, topic)
            if unknown is not None:
                return unknown
        if queue_id is None or offset is None:
            return ResponseCode.INVALID_PARAMETER if self._is_5 else ResponseCode.SYSTEM_ERROR
        if not self._offsets.has_pending_reset(group, topic, queue_id):
            self._offsets.commit_offset(group, topic, queue_id, offset)
        return ResponseCode.SUCCESS

    def _unknown(self, group: str, topic: str) -> ResponseCode | None:
        if group not in self._groups:
            return ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        return None if topic in self._topics else ResponseCode.TOPIC_NOT_EXIST

    def reset_online(
        self, group: str, topic: str, queue_ids: Iterable[int], timestamp: int, *, force: bool, is_online: bool
    ) -> ResetAnswer:
        """Return the offsets that a 4.9 broker pushes to the group's consumers, which then set them.

        Without ``force`` no queue moves forward.
        """
        found = {}
        for queue_id in queue_ids:
            current = self._offsets.query_offset(group, topic, queue_id)
            if current == NOT_FOUND:
                return ResetAnswer(ResponseCode.SYSTEM_ERROR, remark=f"THe consumer group <{group}> not exist")
            target = self._target(topic, queue_id, timestamp)
            found[queue_id] = target if force or target < current else current
        if not is_online:
            return ResetAnswer(ResponseCode.CONSUMER_NOT_ONLINE, remark=f"no consumer of {group} is online")
        return ResetAnswer(ResponseCode.SUCCESS, found)

    def reset(
        self, group: str, topic: str, queue_ids: Collection[int], *, timestamp: int = TO_THE_END, to: int | None = None
    ) -> ResetAnswer:
        """Set the offsets as 5.x does, with or without consumers: to an offset of one queue, or by time."""
        if topic not in self._topics:
            return ResetAnswer(ResponseCode.TOPIC_NOT_EXIST, remark=f"topic {topic} does not exist")
        if group not in self._groups:
            return ResetAnswer(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark=f"group {group} does not exist")
        found = {}
        for queue_id in queue_ids:
            if to is None:
                found[queue_id] = self._target(topic, queue_id, timestamp)
                continue
            least, greatest = self.queues.min_offset(topic, queue_id), self.queues.max_offset(topic, queue_id) + 1
            if len(queue_ids) != 1 or not least <= to <= greatest:
                remark = f"{to} is not an offset of one queue from {least} to {greatest}"
                return ResetAnswer(ResponseCode.SYSTEM_ERROR, remark=remark)
            found[queue_id] = to
        for queue_id, offset in found.items():
            self._offsets.reset_offset(group, topic, queue_id, offset)
        return ResetAnswer(ResponseCode.SUCCESS, found)

    def _target(self, topic: str, queue_id: int, timestamp: int) -> int:
        if timestamp < 0:
            return self.queues.max_offset(topic, queue_id)
        return max(0, self.queues.offset_by_time(topic, queue_id, timestamp))
