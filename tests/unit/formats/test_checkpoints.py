"""The pages ``checkpoint`` and ``timercheck``."""

from __future__ import annotations

import pytest

from rmqtool.formats import checkpoints as cp
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.layouts import StoreCheckpoint, TimerCheckpoint
from tests.support import builders

TIMES = 1700000000123, 1700000000122, 1700000000121, 1024, 1230


def test_store_checkpoint() -> None:
    page = builders.page(*TIMES)
    assert cp.decode_checkpoint(page) == StoreCheckpoint(*TIMES)
    assert cp.encode_checkpoint(StoreCheckpoint(*TIMES)) == page
    assert cp.check_checkpoint(page) is None
    assert len(page) == cp.PAGE_SIZE == 4096


def test_timer_checkpoint() -> None:
    values = 1700000000000, 52, 7, 6, 0, 1700000000123, 3
    page = builders.page(*values)
    assert cp.decode_timer_checkpoint(page) == TimerCheckpoint(*values)
    assert cp.encode_timer_checkpoint(TimerCheckpoint(*values)) == page


def test_a_checkpoint_of_4_9_has_zeros_where_later_fields_stand() -> None:
    assert cp.decode_checkpoint(builders.page(3, 2, 1)) == StoreCheckpoint(3, 2, 1, 0, 0)


@pytest.mark.parametrize("length", [0, 1, 7, 8, 15, 24, 39])
def test_a_short_page_reads_as_zeros_behind_its_end(length: int) -> None:
    whole = builders.page(*TIMES)
    assert cp.decode_checkpoint(whole[:length]) == cp.decode_checkpoint(whole[:length] + bytes(4096 - length))
    (flaw,) = [cp.check_checkpoint(whole[:length])]
    assert flaw == Flaw("CP-BAD", f"{length} bytes, a checkpoint has 4096", 0, length)


@pytest.mark.parametrize(
    ("page", "flaw"),
    [
        (bytes(4096), None),
        (bytes(4095), Flaw("CP-BAD", "4095 bytes, a checkpoint has 4096", 0, 4095)),
        (bytes(4097), Flaw("CP-BAD", "4097 bytes, a checkpoint has 4096", 0, 4097)),
        (
            bytes(40) + b"\1" + bytes(4055),
            Flaw("CP-BAD", "bytes after the last field are not zero", 40, 1),
        ),
        (
            bytes(100) + b"\1\0\2" + bytes(3993),
            Flaw("CP-BAD", "bytes after the last field are not zero", 100, 3),
        ),
        (
            bytes(4095) + b"\xff",
            Flaw("CP-BAD", "bytes after the last field are not zero", 4095, 1),
        ),
        (builders.page(1, -1, 2, 3, -4), Flaw("CP-BAD", "negative: logics_msg_timestamp, confirm_phy_offset", 0, 40)),
    ],
)
def test_what_is_wrong_with_a_page(page: bytes, flaw: Flaw | None) -> None:
    assert cp.check_checkpoint(page) == flaw


@pytest.mark.parametrize(
    ("physic", "logics", "index", "least"),
    [
        (1700000010000, 1700000005000, 1700000000000, 1700000002000),
        (1700000005000, 1700000010000, 1700000009000, 1700000002000),
        (1700000005000, 0, 1700000009000, 0),
        (3000, 3000, 3000, 0),
        (3001, 3001, 3000, 1),
        (2999, 9999, 9999, 0),
        (0, 0, 0, 0),
        (-(1 << 63), 0, 5, (1 << 63) - 3000),  # Java's subtraction wraps
    ],
)
def test_where_a_replay_begins(physic: int, logics: int, index: int, least: int) -> None:
    checkpoint = StoreCheckpoint(physic, logics, index, 0, 0)
    assert cp.min_timestamp(checkpoint) == least
