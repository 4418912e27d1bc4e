"""What a broker does by itself, at size: a million delayed messages that are due, a wheel of ten million timers.

Rates are compared by processor time, in one process, so that what else the machine does counts for nothing.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from itertools import islice
from pathlib import Path

import pytest

from rmqtool.broker.services.tick import Services
from rmqtool.config import Origin, StoreConfig, Version
from rmqtool.engine.message import NewMessage
from rmqtool.engine.parts import Setup
from rmqtool.engine.store import MessageStore
from rmqtool.files.posix_write import PosixWritableFileSystem
from rmqtool.formats import layouts
from rmqtool.formats.checkpoints import encode_timer_checkpoint
from rmqtool.formats.layouts import TimerCheckpoint, TimerSlot
from rmqtool.formats.timer import SLOT_SIZE, UNIT_SIZE, WHEEL_SIZE, wheel_slot
from tests.support.manual_clock import START, ManualClock

pytestmark = pytest.mark.bench

DELAYED, PIECE = 1_000_000, 50_000
TIMERS, SLOTS = 10_000_000, 172_800
WANTED, SECONDS, MEMORY = 0.3, 1.0, 300
# Per message nothing may be slower behind many than behind few, noise aside.
GROWTH = 1.25
ROOT = Path(__file__).resolve().parents[2]


def setup_at(root: Path, clock: ManualClock) -> Setup:
    values = {"storePathRootDir": str(root), "mappedFileSizeCommitLog": 1 << 28}
    config = StoreConfig.default(Version.V5_3).with_values(values, Origin.STORE)
    return Setup(PosixWritableFileSystem(str(root)), config, clock)


def messages(first: int, **properties: str) -> list[NewMessage]:
    return [
        NewMessage("T", b"x" * 100, one % 4, {"KEYS": f"k{one}", "UNIQ_KEY": f"{one:032X}", **properties})
        for one in range(first, first + PIECE)
    ]


def test_due_messages_are_delivered_at_a_good_part_of_the_rate_of_putting(tmp_path: Path) -> None:
    clock = ManualClock()
    with MessageStore.create(setup_at(tmp_path, clock)) as store:
        services = Services(store)
        # The first put loads what columns need: that is no part of a rate.
        store.put_many(messages(DELAYED))
        plain = 0.0
        for first in range(0, DELAYED, PIECE):
            piece = messages(first)
            started = time.process_time()
            store.put_many(piece)
            store.dispatch_now()
            plain += time.process_time() - started
            store.put_many(messages(first, DELAY="1"))
            store.dispatch_now()
        clock.advance(2000)
        halves = []
        due = services.delay.iter_due()
        for _ in range(2):
            started = time.process_time()
            assert sum(1 for _ in islice(due, DELAYED // 2)) == DELAYED // 2
            store.dispatch_now()
            halves.append(time.process_time() - started)
        assert next(due, None) is None
    delivered, growth = sum(halves), halves[1] / halves[0]
    print(f"\nput_many {DELAYED / plain:,.0f}/s, delivered {DELAYED / delivered:,.0f}/s: {plain / delivered:.2f}")
    print(f"the second half takes {growth:.2f} of the time of the first")
    assert plain / delivered >= WANTED
    assert growth <= GROWTH


def lay_wheel(root: Path) -> None:
    """Write by hand what a broker leaves that holds ten million timers."""
    setup = setup_at(root, ManualClock())
    MessageStore.create(setup).close()
    each = TIMERS // SLOTS
    with (root / "timerwheel").open("wb") as file:
        file.truncate(WHEEL_SIZE)
        for number in range(SLOTS):
            at = START + (number + 60) * 1000
            slot = TimerSlot(at // 1000, number * each * UNIT_SIZE, ((number + 1) * each - 1) * UNIT_SIZE, each, 0)
            file.seek(wheel_slot(at) * SLOT_SIZE)
            file.write(layouts.TIMER_SLOT.encode(slot))
    (root / "config").mkdir(exist_ok=True)
    check = TimerCheckpoint(START, SLOTS * each * UNIT_SIZE, 0, 0, 0, START, 1)
    (root / "config/timercheck").write_bytes(encode_timer_checkpoint(check))


def open_wheel(root: Path) -> tuple[float, int, int]:
    """Open the timers of a store; return how long that took, how many wait, and the memory of the process in MiB."""
    with MessageStore.open(setup_at(root, ManualClock())) as store:
        started = time.perf_counter()
        services = Services(store)
        first = services.timers.next_due()
        took = time.perf_counter() - started
        waiting = services.timers.waiting()
        assert first == START + 61_000
    return took, waiting, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def test_a_wheel_of_ten_million_timers_opens_at_once(tmp_path: Path) -> None:
    lay_wheel(tmp_path)
    words = [sys.executable, "-c", f"from tests.bench.test_lives import *; print(*open_wheel(Path({str(tmp_path)!r})))"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    took, waiting, memory = done.stdout.split()
    print(f"\n{int(waiting):,} timers: open in {float(took) * 1000:.1f} ms, {memory} MiB")
    assert int(waiting) == TIMERS // SLOTS * SLOTS
    assert float(took) <= SECONDS
    assert int(memory) <= MEMORY
