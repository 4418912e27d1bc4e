"""Timer wheel and timer log."""

from __future__ import annotations

import pytest

from rmqtool.formats import layouts, timer
from rmqtool.formats.commit_log import Nothing
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.layouts import TimerLogBlank, TimerLogUnit, TimerSlot
from rmqtool.formats.timer import decode_timer_unit
from tests.support import builders

UNIT = builders.SAMPLES["TIMER_LOG_UNIT"]
BLANK = builders.SAMPLES["TIMER_LOG_BLANK"]


def test_sizes() -> None:
    assert timer.WHEEL_SLOTS == 1_209_600
    assert timer.WHEEL_SIZE == 38_707_200
    assert (timer.SLOT_SIZE, timer.UNIT_SIZE, timer.BLANK_SIZE) == (32, 52, 16)


def test_slot_of_a_time() -> None:
    assert timer.wheel_slot(1700000060000) == 512060
    assert timer.wheel_slot(1700000060999) == 512060
    assert timer.wheel_slot(1700000060000, 500) == 1024120
    assert timer.wheel_slot(1700000060000 + 1209600_000) == 512060


def test_unit_and_blank() -> None:
    assert decode_timer_unit(UNIT.data) == TimerLogUnit(*UNIT.values)
    assert decode_timer_unit(b"\7" * 5 + UNIT.data, 5) == TimerLogUnit(*UNIT.values)
    assert decode_timer_unit(BLANK.data) == TimerLogBlank(*BLANK.values)
    assert decode_timer_unit(BLANK.data + b"\xff" * 40) == TimerLogBlank(*BLANK.values)


@pytest.mark.parametrize("magic", [0, 1, 2, 3, 4, 5, 8, 15])
def test_magic_that_the_broker_takes(magic: int) -> None:
    data = UNIT.data[:12] + magic.to_bytes(4, "big") + UNIT.data[16:]
    unit = decode_timer_unit(data)
    assert isinstance(unit, TimerLogUnit)
    assert unit.magic == magic


@pytest.mark.parametrize(
    ("data", "file_offset", "found"),
    [
        (b"", 0, Nothing(0)),
        (bytes(15), 0, Nothing(15)),
        (b"\1" * 15, 0, Nothing(15)),
        (bytes(16), 0, Nothing(16)),
        (bytes(104), 52, Nothing(52)),
        (UNIT.data, -1, Nothing(0)),
        (UNIT.data, 52, Nothing(0)),
        (UNIT.data, 1000, Nothing(0)),
        (UNIT.data[:51], 0, Flaw("TM-LOG", "timer log entry of 52 bytes, one has 52; 51 are left", 0, 51)),
        (UNIT.data[:16], 0, Flaw("TM-LOG", "timer log entry of 52 bytes, one has 52; 16 are left", 0, 16)),
        (
            b"\0\0\0\x33" + UNIT.data[4:],
            0,
            Flaw("TM-LOG", "timer log entry of 51 bytes, one has 52; 52 are left", 0, 52),
        ),
        (
            b"\x7f\xff\xff\xff" + UNIT.data[4:],
            0,
            Flaw("TM-LOG", "timer log entry of 2147483647 bytes, one has 52; 52 are left", 0, 52),
        ),
        (UNIT.data[:12] + b"\0\0\0\x10" + UNIT.data[16:], 0, Flaw("TM-LOG", "timer log entry with magic 0x10", 0, 52)),
        (
            UNIT.data[:12] + b"\xff" * 4 + UNIT.data[16:],
            0,
            Flaw("TM-LOG", "timer log entry with magic 0xffffffff", 0, 52),
        ),
    ],
)
def test_what_is_no_unit(data: bytes, file_offset: int, found: Nothing | Flaw) -> None:
    assert decode_timer_unit(data, file_offset) == found


@pytest.mark.parametrize(
    ("magic", "words"),
    [
        (1, "default"),
        (3, "default | roll"),
        (5, "default | delete"),
        (7, "default | roll | delete"),
        (0, "unknown 0x0"),
    ],
)
def test_magic_words(magic: int, words: str) -> None:
    assert timer.timer_magic_words(magic) == words


def test_slot_is_used() -> None:
    assert not timer.is_slot_used(layouts.TIMER_SLOT.decode(bytes(32)))
    assert timer.is_slot_used(TimerSlot(*builders.SAMPLES["TIMER_SLOT"].values))


def test_wheel_is_rebuilt_unit_by_unit() -> None:
    second = 1700000060
    log = [
        builders.timer_unit(-1, 1, 1700000000000, 60000),
        builders.timer_unit(0, 1, 1700000001000, 59999),
        builders.timer_unit(52, 5, 1700000002500, 57500),
        builders.timer_unit(-1, 1, 1700000000000, 60000 + 1209600_000),
    ]
    slot = layouts.TIMER_SLOT.decode(bytes(32))
    expected = [
        builders.timer_slot(second, 0, 0, 1),
        # 1700000060999 falls into the same second.
        builders.timer_slot(second, 0, 52, 2),
        builders.timer_slot(second, 0, 104, 1),
        # A lap later the slot begins anew.
        builders.timer_slot(second + 1209600, 156, 156, 1),
    ]
    for position, (unit_bytes, wanted) in enumerate(zip(log, expected, strict=True)):
        unit = decode_timer_unit(unit_bytes)
        assert isinstance(unit, TimerLogUnit)
        slot = timer.apply_to_slot(slot, unit, position * 52)
        assert layouts.TIMER_SLOT.encode(slot) == wanted


def test_a_cancel_that_comes_first_counts_down() -> None:
    unit = TimerLogUnit(*UNIT.values)._replace(magic=5)
    empty = layouts.TIMER_SLOT.decode(bytes(32))
    assert timer.apply_to_slot(empty, unit, 0) == TimerSlot(1700000060, 0, 0, -1, 0)
    assert timer.apply_to_slot(empty, unit, 0, 100).time == 17000000600
