"""Timer wheel and timer log of 5.x.

Upstream: ``TimerWheel``, ``Slot``, ``TimerLog``. The wheel is an array of slots by delivery second, two laps of seven
days; a slot whose time is not the wanted one is left from an earlier lap. The log chains the units of one slot
backwards. The wheel may lag the log and is rebuilt from it.
"""

from __future__ import annotations

from rmqtool.formats import layouts
from rmqtool.formats.codes import BLANK_MAGIC
from rmqtool.formats.commit_log import Nothing
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.layout import Buffer, bytes_left
from rmqtool.formats.layouts import TimerLogBlank, TimerLogUnit, TimerSlot

WHEEL_SLOTS = 2 * 7 * 24 * 3600
SLOT_SIZE = layouts.TIMER_SLOT.size
WHEEL_SIZE = WHEEL_SLOTS * SLOT_SIZE
UNIT_SIZE = layouts.TIMER_LOG_UNIT.size
BLANK_SIZE = layouts.TIMER_LOG_BLANK.size

MAGIC_DEFAULT = 1
MAGIC_ROLL = 2
MAGIC_DELETE = 4
_MAGIC_KNOWN = 0xF


def wheel_slot(time_ms: int, precision_ms: int = 1000) -> int:
    """Return the slot of a delivery time."""
    return time_ms // precision_ms % WHEEL_SLOTS


def is_slot_used(slot: TimerSlot) -> bool:
    """Return whether a slot was ever written."""
    return any(slot)


def decode_timer_unit(data: Buffer, file_offset: int = 0) -> TimerLogUnit | TimerLogBlank | Nothing | Flaw:
    """Return what stands at ``file_offset`` of a timer log file."""
    left = bytes_left(data, file_offset)
    if left < BLANK_SIZE:
        return Nothing(left)
    blank = layouts.TIMER_LOG_BLANK.decode(data, file_offset)
    if blank.magic == BLANK_MAGIC:
        return blank
    if not any(blank):
        return Nothing(left)
    if blank.size != UNIT_SIZE or left < UNIT_SIZE:
        return Flaw("TM-LOG", f"timer log entry of {blank.size} bytes, one has {UNIT_SIZE}; {left} are left", 0, left)
    if blank.magic & ~_MAGIC_KNOWN:
        return Flaw("TM-LOG", f"timer log entry with magic {blank.magic:#x}", 0, UNIT_SIZE)
    return layouts.TIMER_LOG_UNIT.decode(data, file_offset)


def timer_magic_words(magic: int) -> str:
    """Return a unit's magic in words."""
    words = [
        word
        for bit, word in ((MAGIC_DEFAULT, "default"), (MAGIC_ROLL, "roll"), (MAGIC_DELETE, "delete"))
        if magic & bit
    ]
    return " | ".join(words) or f"unknown {magic:#x}"


def apply_to_slot(slot: TimerSlot, unit: TimerLogUnit, position: int, precision_ms: int = 1000) -> TimerSlot:
    """Return ``slot`` after the unit at ``position`` of the log was added: the rule a wheel is rebuilt by."""
    time = (unit.write_time + unit.delay) // precision_ms
    count = -1 if unit.magic & MAGIC_DELETE else 1
    if slot.time == time:
        return slot._replace(last_pos=position, num=slot.num + count)
    return TimerSlot(time, position, position, count, 0)
