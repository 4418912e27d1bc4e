"""The timer of 5.x: ``timerwheel`` and the files of ``timerlog/``. Big-endian.

A timer message waits in the topic ``rmq_sys_wheel_timer``. Its entry in the timer log (52 bytes)::

    0   4  size, 52                                     24  4  delivery time minus write time, ms
    4   8  position of the previous entry of its slot   28  8  physical offset of the timer message
    12  4  magic: 1 default, 2 rolled, 4 cancels        36  4  its totalSize
    16  8  time of the wheel when written, ms           40  4  hash of the real topic (then 8 bytes 0)

The wheel is an array of 32-byte slots, one for each second of two laps of seven days: delivery second (8), position of
the first entry (8), of the newest entry (8), pending messages (4), 0 (4). The entries of a slot form a chain from the
newest to the oldest. A slot whose second is not the wanted one is left over from an earlier lap. The wheel can be older
than the log, and a start rebuilds it from the log.

Upstream: ``TimerWheel``, ``Slot``, ``TimerLog``.
"""

from __future__ import annotations

from rmqtool.formats import layouts
from rmqtool.formats.codes import BLANK_MAGIC
from rmqtool.formats.commit_log import Nothing
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.layout import Buffer, bytes_left
from rmqtool.formats.layouts import TimerLogBlank, TimerLogUnit, TimerSlot

# Two laps of seven days, a slot for each second, if timerPrecisionMs has its default: a delay of up to a week never
# meets a slot of the lap before.
WHEEL_SLOTS = 2 * 7 * 24 * 3600
SLOT_SIZE = layouts.TIMER_SLOT.size
WHEEL_SIZE = WHEEL_SLOTS * SLOT_SIZE
UNIT_SIZE = layouts.TIMER_LOG_UNIT.size
BLANK_SIZE = layouts.TIMER_LOG_BLANK.size

# Bits of the magic of a timer log entry.
MAGIC_DEFAULT = 1
MAGIC_ROLL = 2
MAGIC_DELETE = 4
# A broker's check (isMagicOK) also allows the fourth bit, which has no name.
_MAGIC_KNOWN = 0xF


def wheel_slot(time_ms: int, precision_ms: int = 1000) -> int:
    """Return the number of the slot for a delivery time.

    ``precision_ms`` is the time that one slot covers (timerPrecisionMs); times two laps apart share a slot.
    """
    return time_ms // precision_ms % WHEEL_SLOTS


def is_slot_used(slot: TimerSlot) -> bool:
    """Return whether a slot was ever written; an unused slot is zeros."""
    return any(slot)


def decode_timer_unit(data: Buffer, file_offset: int = 0) -> TimerLogUnit | TimerLogBlank | Nothing | Flaw:
    """Return the entry at ``file_offset`` of a timer log, the blank, ``Nothing`` at zeros or the end, or a flaw."""
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
    """Return the magic of an entry in words, for people; a magic without a known bit as a number."""
    words = [
        word
        for bit, word in ((MAGIC_DEFAULT, "default"), (MAGIC_ROLL, "roll"), (MAGIC_DELETE, "delete"))
        if magic & bit
    ]
    return " | ".join(words) or f"unknown {magic:#x}"


def apply_to_slot(slot: TimerSlot, unit: TimerLogUnit, position: int, precision_ms: int = 1000) -> TimerSlot:
    """Return ``slot`` after the entry at ``position`` of the log was added. A start rebuilds the wheel by this rule.

    If the slot has the second of an earlier lap, the entry begins it again.
    """
    time = (unit.write_time + unit.delay) // precision_ms
    count = -1 if unit.magic & MAGIC_DELETE else 1
    if slot.time == time:
        return slot._replace(last_pos=position, num=slot.num + count)
    return TimerSlot(time, position, position, count, 0)
