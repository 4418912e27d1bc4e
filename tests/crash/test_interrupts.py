"""Ctrl-C inside any call to the disk: what has begun is finished, and the store closes as if nobody had pressed it."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO

import pytest

from rmqtool.cli import main
from rmqtool.config import Version
from rmqtool.engine.interrupts import INTERRUPTS
from rmqtool.engine.message import PutStatus
from rmqtool.engine.recovery.recover import recover
from rmqtool.engine.store import MessageStore
from rmqtool.errors import Exit, StoreError
from tests.crash.test_engine_crash import Life, check, check_opening, count_calls, life_setup
from tests.support.engine_stores import a_message, iter_records, small_setup
from tests.support.faulty import FaultyFileSystem
from tests.support.faulty_disk import FaultyDisk
from tests.support.recovered import setup_for
from tests.support.stores import FIXTURES

VERSION = Version.V5_4


class InterruptedDisk(FaultyDisk):
    """The signal comes inside the n-th call: before anything is done, or behind that."""

    def __init__(self, call: int, *, before: bool) -> None:
        super().__init__()
        self._interrupted_call = call
        self._is_before = before

    def begin(self, operation: str, path: str) -> int | None:
        found = super().begin(operation, path)
        self._interrupt(self._is_before)
        return found

    def end(self) -> None:
        super().end()
        self._interrupt(not self._is_before)

    def _interrupt(self, here: bool) -> None:
        if here and len(self.calls) == self._interrupted_call:
            self._interrupted_call = 0
            signal.raise_signal(signal.SIGINT)


@pytest.fixture(autouse=True)
def handler_as_it_was(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # Other tests leave stores open, whose end would be waited for.
    monkeypatch.setattr(INTERRUPTS, "_open_stores", 0)
    # A shell starts what it puts into the background with Ctrl-C switched off.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.signal(signal.SIGINT, before) is signal.default_int_handler
    assert not INTERRUPTS.pending


def assert_finished(call: int, *, before: bool) -> int:
    """Interrupt a store's life inside a call; return how many messages were acknowledged by then."""
    disk = InterruptedDisk(call, before=before)
    life = Life(disk, VERSION)
    with pytest.raises(KeyboardInterrupt):
        life.run()
    files = FaultyFileSystem(disk, "store")
    assert set(life.statuses) <= {PutStatus.PUT_OK}
    assert not files.exists("abort"), disk.calls[call - 1]
    check(files, life)
    check_opening(disk, life, VERSION)
    try:
        report = recover(life_setup(disk, VERSION))
    except StoreError:
        # The signal came before there was a store.
        assert not life.acknowledged
        return 0
    # Before there was a store, its directories may be there without the checkpoint.
    assert report.changes.keys() <= (set() if life.acknowledged else {"checkpoint"}), disk.calls[call - 1]
    # A put that was interrupted is finished, and so are the tickets that waited with it: nothing is half there.
    bodies = [body for kept in life.acknowledged for body in kept.bodies]
    stored = [one.raw_body for one in iter_records(files)]
    assert len(bodies) <= len(stored)
    return len(bodies)


@pytest.mark.parametrize("before", [True, False])
def test_an_interrupt_inside_some_calls(before: bool) -> None:
    acknowledged = [assert_finished(call, before=before) for call in range(1, count_calls(VERSION) + 1, 9)]
    assert acknowledged == sorted(acknowledged)
    assert acknowledged[-1] > acknowledged[0] == 0


@pytest.mark.slow
@pytest.mark.parametrize("before", [True, False])
def test_an_interrupt_inside_every_call(before: bool) -> None:
    for call in range(1, count_calls(VERSION) + 1):
        assert_finished(call, before=before)


def test_an_interrupted_put_is_stored_and_the_store_goes_on() -> None:
    disk = FaultyDisk()
    with MessageStore.create(small_setup(VERSION, FaultyFileSystem(disk))) as store:
        store.put(a_message(0))
        begin = disk.begin

        def interrupted(operation: str, path: str) -> int | None:
            disk.begin = begin  # type: ignore[method-assign]
            signal.raise_signal(signal.SIGINT)
            return begin(operation, path)

        disk.begin = interrupted  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            store.put(a_message(1))
        condition = store.condition()
        assert (condition.failure, condition.written_count) == (None, 2)
        assert store.put(a_message(2)).queue_offset == 2


def test_a_signal_outside_of_the_stores_calls_interrupts_at_once() -> None:
    with MessageStore.create(small_setup(VERSION)) as store:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert store.put(a_message(0)).is_ok


def test_a_handler_of_the_caller_stays() -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _frame: seen.append(number))
    try:
        with MessageStore.create(small_setup(VERSION)) as store:
            signal.raise_signal(signal.SIGINT)
            assert store.put(a_message(0)).is_ok
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen == [signal.SIGINT]


def test_a_store_takes_the_signal_though_it_was_set_back_while_another_was_open() -> None:
    with MessageStore.create(small_setup(VERSION)):
        signal.signal(signal.SIGINT, signal.default_int_handler)
        assert [assert_finished(call, before=False) for call in (19, 20)] == [0, 0]


def _feed(pipe: IO[bytes]) -> None:
    """Write messages until nobody reads them any more."""
    with suppress(BrokenPipeError), pipe:
        while True:
            pipe.write(b'{"topic": "T", "body": "x"}\n' * 100)


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGINT, Exit.INTERRUPTED), (signal.SIGTERM, -signal.SIGTERM), (signal.SIGHUP, -signal.SIGHUP)],
)
def test_produce_ends_at_a_safe_boundary(tmp_path: Path, number: int, status: int) -> None:
    root = tmp_path / "store"
    assert main(["init", str(root)]) == Exit.DONE
    words = [sys.executable, "-m", "rmqtool", "produce", str(root), "-t", "T", "--create", "--jsonl"]
    pipe = subprocess.PIPE
    # Under nohup a process ignores SIGHUP, and so do those that it starts.
    begin = partial(signal.signal, number, signal.SIG_DFL if number != signal.SIGINT else signal.default_int_handler)
    with subprocess.Popen(
        words,
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        cwd=FIXTURES.parent,
        preexec_fn=begin,  # noqa: PLW1509
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        # The input never ends, so that only the signal can end the command.
        feeding = threading.Thread(target=_feed, args=(process.stdin,))
        feeding.start()
        shown = process.stdout.readline()
        process.send_signal(number)
        out, err = process.stdout.read(), process.stderr.read()
        process.wait()
        feeding.join()
        assert process.returncode == status
        assert b"interrupted" in err
    assert not (root / "abort").exists()
    report = recover(setup_for(root))
    assert (report.changes, report.abnormal) == ({}, False)
    told = [line for line in (shown + out).splitlines() if line.endswith(b"}")]
    assert report.messages >= len(told) > 0
