"""Pop consumption in order: a queue is blocked until what was popped of it is acked, or visible again.

There are no check points. A table keeps for each queue of a group what was popped last, which of it is acked, and when
the rest is visible again. The group's offset moves with the acks. The same attempt of a client gets the same messages
again: its first answer may have been lost. upstream: ConsumerOrderInfoManager, whose file has the short names that
``formats.config_shapes`` explains.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from heapq import heappop, heappush
from typing import Any, NamedTuple

from rmqtool.formats.config_files import decode_config, dialect_of, encode_config, new_bean, with_entry
from rmqtool.formats.config_shapes import CONSUMER_ORDER_INFO as SHAPE
from rmqtool.formats.config_shapes import ORDER_INFO
from rmqtool.formats.fastjson import Table
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.paths import CONSUMER_ORDER_INFO
from rmqtool.store.config_files import ConfigText

# The queue of check points that receipts of ordered pops name. upstream: KeyBuilder.POP_ORDER_REVIVE_QUEUE
REVIVE_QUEUE = 999
# Answers to an ack in place of an offset: the receipt names no message of the last pop; there is a later pop.
ILLEGAL, NO_COMMIT = -1, -2

_TABLE = SHAPE.fields["table"].shape

OrderInfo = dict[str, Any]


class GroupQueue(NamedTuple):
    """A queue of a topic, as one group consumes it."""

    topic: str
    group: str
    queue_id: int


class OrderedPops:
    """The table of one broker. Nothing is written before ``unsaved``."""

    def __init__(self, text: ConfigText, version: str, now: Callable[[], int]) -> None:
        self._text = text
        self._version = version
        self._now = now
        self._value: dict[str, Any] = text.load(_decode) or {}
        self._table: dict[str, dict[int, OrderInfo]] = dict(self._value.get("table") or {})
        self._changed = False
        # When which queue may be free.
        self._free: list[tuple[int, GroupQueue]] = []
        for key, queues in self._table.items():
            topic, _, group = key.partition("@")
            for queue_id, info in queues.items():
                heappush(self._free, (_free_at(info), GroupQueue(topic, group, queue_id)))

    def is_blocked(self, place: GroupQueue, invisible: int, attempt_id: str | None = None) -> bool:
        """Return whether messages of the last pop are neither acked nor visible again."""
        info = self._find(place)
        if info is None or not info.get("o") or (info.get("a") is not None and info["a"] == attempt_id):
            return False
        if (info.get("i") or 0) <= 0:
            info["i"] = invisible
        now = self._now()
        return any(now < visible for visible in _visible_times(info))

    def take(
        self, place: GroupQueue, offsets: Sequence[int], popped: tuple[int, int], attempt_id: str | None
    ) -> list[tuple[str, int]]:
        """Take note of a pop: its offsets, and its time with how long it is invisible.

        Returns how often messages were consumed before: for ``qo<queue>%<offset>`` of each that was, then for the queue
        as a whole, as older clients want it.
        """
        before, (pop_time, invisible) = self._find(place), popped
        first, *others = offsets
        info = new_bean(
            ORDER_INFO, self._version, popTime=pop_time, i=invisible, o=[first, *(one - first for one in others)]
        )
        info["l"] = self._now()
        if attempt_id is not None:
            info["a"] = attempt_id
        counts: dict[int, int] = {}
        if before is not None:
            counts = dict(before.get("oc") or {})
            if before.get("a") is None or before["a"] != attempt_id:
                again = set(_offsets(before))
                counts = {offset: counts.get(offset, 0) + 1 for offset in offsets if offset in again}
            info["oc"] = counts
        self._set(place, info)
        least = min(counts.values(), default=0) if len(counts) == len(offsets) else 0
        told = [(f"qo{place.queue_id}%{offset}", count) for offset, count in counts.items()]
        return [*told, (str(place.queue_id), least)]

    def ack(self, place: GroupQueue, offset: int, pop_time: int) -> int:
        """Take note of an ack; return the offset to commit, ILLEGAL, or NO_COMMIT."""
        info = self._find(place)
        if info is None:
            return offset + 1
        offsets = _offsets(info)
        if not offsets:
            return ILLEGAL
        if pop_time != info.get("popTime"):
            return NO_COMMIT
        if offset not in offsets:
            return ILLEGAL
        self._set(place, {**info, "cm": int(info.get("cm") or 0) | 1 << offsets.index(offset)})
        return next(iter(_unacked(self._table[_key(place)][place.queue_id])), offsets[-1] + 1)

    def postpone(self, place: GroupQueue, offset: int, pop_time: int, visible: int) -> None:
        """Set when a message of the last pop is visible again."""
        info = self._find(place)
        if info is not None and pop_time == info.get("popTime"):
            self._set(place, {**info, "ot": {**(info.get("ot") or {}), offset: visible}})

    def clear(self, place: GroupQueue) -> None:
        """Forget the last pop: the offset of the group was reset."""
        if self._table.get(_key(place), {}).pop(place.queue_id, None) is not None:
            self._changed = True

    def iter_free(self) -> Iterator[GroupQueue]:
        """Yield the queues that became free since the last call, because messages are visible again."""
        now = self._now()
        while self._free and self._free[0][0] <= now:
            _, place = heappop(self._free)
            if not self.is_blocked(place, 0):
                yield place

    def unsaved(self) -> Callable[[], None] | None:
        """Return what writes the file as it is to be now; None where nothing changed since."""
        if not self._changed:
            return None
        self._changed = False
        value = {**new_bean(SHAPE, self._version), **self._value, "table": self._table}
        return partial(self._text.write, encode_config(CONSUMER_ORDER_INFO, value, dialect_of(self._version)))

    def save(self) -> None:
        """Write the file if anything changed."""
        unsaved = self.unsaved()
        if unsaved is not None:
            unsaved()

    def _find(self, place: GroupQueue) -> OrderInfo | None:
        return self._table.get(_key(place), {}).get(place.queue_id)

    def _set(self, place: GroupQueue, info: OrderInfo) -> None:
        assert isinstance(_TABLE, Table), "the shape of the file says so"
        assert isinstance(_TABLE.values, Table), "the shape of the file says so"
        info = {name: info[name] for name in ORDER_INFO.fields if name in info}
        queues = with_entry(self._table.get(_key(place), {}), place.queue_id, info, _TABLE.values)
        self._table = with_entry(self._table, _key(place), queues, _TABLE)
        self._changed = True
        heappush(self._free, (_free_at(info), place))


def _key(place: GroupQueue) -> str:
    return f"{place.topic}@{place.group}"


def _offsets(info: OrderInfo) -> list[int]:
    first, *others = info.get("o") or [0]
    return [first, *(first + one for one in others)] if info.get("o") else []


def _unacked(info: OrderInfo) -> list[int]:
    acked = int(info.get("cm") or 0)
    return [offset for index, offset in enumerate(_offsets(info)) if not acked >> index & 1]


def _visible_times(info: OrderInfo) -> list[int]:
    """Return when each message that is not acked is visible again."""
    usual, own = int(info["popTime"]) + int(info.get("i") or 0), info.get("ot") or {}
    return [own.get(offset, usual) for offset in _unacked(info)]


def _free_at(info: OrderInfo) -> int:
    return max(_visible_times(info), default=0)


def _decode(data: bytes) -> dict[str, Any] | Flaw:
    decoded = decode_config(CONSUMER_ORDER_INFO, data)
    return decoded if isinstance(decoded, Flaw) else decoded.value
