"""Messages for later: where a store puts them until they are due.

Upstream: ``CommitLog.asyncPutMessage`` (4.9), ``HookUtils.handleScheduleMessage`` (5.x). A delay level moves a message
to a queue of the schedule topic, a timer of 5.x to the topic of the wheel; both note where it belongs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from rmqtool.config import StoreConfig, Version
from rmqtool.engine.put_status import PutStatus
from rmqtool.formats.codes import TransactionType, transaction_type
from rmqtool.formats.java import int64, parse_int, parse_long
from rmqtool.formats.topics import SCHEDULE_TOPIC, TIMER_TOPIC

_TIMER_WISHES = ("TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS")
_SECOND = 1000


class Destination(NamedTuple):
    """Where a message is stored, and with which properties; ``rewritten`` when it is not where it was sent."""

    topic: str
    queue_id: int
    properties: Mapping[str, str]
    rewritten: bool


def is_for_later(properties: Mapping[str, str]) -> bool:
    """Return whether any property asks for a delay."""
    return "DELAY" in properties or any(name in properties for name in _TIMER_WISHES)


def find_destination(
    sent: Destination, sys_flag: int, config: StoreConfig, levels: int, now: int
) -> Destination | PutStatus:
    """Return where a message that was ``sent`` is stored, or why it is not."""
    if transaction_type(sys_flag) not in (TransactionType.NONE, TransactionType.COMMIT):
        return sent
    level = delay_level(sent.properties)
    if level is None:
        return PutStatus.MESSAGE_ILLEGAL
    if config.version is not Version.V4_9 and sent.topic != TIMER_TOPIC:
        if level > 0:
            if any(name in sent.properties for name in _TIMER_WISHES):
                kept = {name: value for name, value in sent.properties.items() if name not in _TIMER_WISHES}
                sent = sent._replace(properties=kept)
        elif "TIMER_OUT_MS" not in sent.properties and any(name in sent.properties for name in _TIMER_WISHES):
            return _by_timer(sent, config, now)
    return _by_level(sent, level, levels) if level > 0 else sent


def delay_level(properties: Mapping[str, str]) -> int | None:
    """Return the delay level of a message, 0 without one, None when it is no number."""
    text = properties.get("DELAY")
    return 0 if text is None else parse_int(text)


def _by_level(sent: Destination, level: int, levels: int) -> Destination:
    """Move a message to the schedule topic; the highest level stands for all above it."""
    level = min(level, levels)
    properties = {**sent.properties, "DELAY": str(level)}
    return Destination(SCHEDULE_TOPIC, level - 1, _belonging(properties, sent), True)


def _by_timer(sent: Destination, config: StoreConfig, now: int) -> Destination | PutStatus:
    """Move a message to the wheel's topic; one that is due is stored where it was sent."""
    if not config.timer_wheel_enable:
        return PutStatus.WHEEL_TIMER_NOT_ENABLE
    deliver = _deliver_time(sent.properties, now)
    if deliver is None:
        return PutStatus.WHEEL_TIMER_MSG_ILLEGAL
    if deliver <= now:
        return PutStatus.WHEEL_TIMER_MSG_ILLEGAL if "TIMER_DEL_UNIQKEY" in sent.properties else sent
    if deliver - now > config.timer_max_delay_sec * _SECOND:
        return PutStatus.WHEEL_TIMER_MSG_ILLEGAL
    precision = config.timer_precision_ms
    # A slot is served once the clock has passed it: one precision later.
    rounded = deliver - precision if deliver % precision == 0 else deliver - deliver % precision
    properties = {**sent.properties, "TIMER_OUT_MS": str(rounded)}
    return Destination(TIMER_TOPIC, 0, _belonging(properties, sent), True)


def _belonging(properties: dict[str, str], sent: Destination) -> dict[str, str]:
    return {**properties, "REAL_TOPIC": sent.topic, "REAL_QID": str(sent.queue_id)}


def _deliver_time(properties: Mapping[str, str], now: int) -> int | None:
    for name, unit, base in (
        ("TIMER_DELAY_SEC", _SECOND, now),
        ("TIMER_DELAY_MS", 1, now),
        ("TIMER_DELIVER_MS", 1, 0),
    ):
        if name in properties:
            number = parse_long(properties[name])
            return None if number is None else int64(base + number * unit)
    return None
