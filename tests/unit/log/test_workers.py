"""Work in several threads: the order of its results, how few wait, and what becomes of it when somebody stops."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from rmqtool.audit import reports
from rmqtool.cli import main
from rmqtool.errors import UsageError
from rmqtool.log import ranges, stream
from rmqtool.log.ranges import Write, run_in_order
from tests.support.waiting import PATIENCE, wait_for


def squared(task: int, write: Write) -> int:
    write(b"%d " % task)
    write(b"done")
    return task * task


def test_results_come_in_the_order_of_the_tasks() -> None:
    """The first task ends last."""
    others = threading.Barrier(3)

    def work(task: int, write: Write) -> int:
        if task < 3:
            others.wait(PATIENCE)
            time.sleep(0.03 * (3 - task))
        return squared(task, write)

    with closing(run_in_order([work] * 3, range(20))) as results:
        found = [(done.value, b"".join(done.data)) for done in results]
    assert found == [(number * number, b"%d done" % number) for number in range(20)]


def test_each_thread_asks_its_own_work() -> None:
    """Two at once, so that both are asked; nobody else asks either of them."""
    both = threading.Barrier(2)
    askers: list[set[int]] = [set(), set()]

    def work_of(number: int) -> Callable[[Any, Write], int]:
        def work(task: int, write: Write) -> int:
            if task < 2:
                both.wait(PATIENCE)
            askers[number].add(threading.get_ident())
            return number

        return work

    with closing(run_in_order([work_of(0), work_of(1)], range(30))) as results:
        assert {done.value for done in results} == {0, 1}
    assert [len(some) for some in askers] == [1, 1]
    assert not askers[0] & askers[1]


def test_few_results_wait() -> None:
    """Tasks are taken when there is room: no more of them than there are threads, and one."""
    taken: list[int] = []

    def tasks() -> Any:
        for number in range(1000):
            taken.append(number)
            yield number

    with closing(run_in_order([squared] * 2, tasks())) as results:
        for number, _ in zip(range(10), results, strict=False):
            assert len(taken) == number + 3


@pytest.mark.parametrize("error", [UsageError("so not"), ZeroDivisionError("nothing")])
def test_what_is_raised_in_a_thread_is_raised_in_its_turn(error: Exception) -> None:
    def work(task: int, write: Write) -> int:
        if task == 3:
            raise error
        return squared(task, write)

    before = {*threading.enumerate()}
    results = run_in_order([work] * 2, range(10))
    assert [next(results).value for _ in range(3)] == [0, 1, 4]
    with pytest.raises(type(error), match=str(error)):
        next(results)
    assert {*threading.enumerate()} <= before


def test_closing_waits_for_what_is_being_done_and_starts_no_more() -> None:
    let_go = threading.Event()
    begun: list[int] = []
    ended: list[int] = []

    def work(task: int, write: Write) -> int:
        begun.append(task)
        if task:
            assert let_go.wait(PATIENCE)
        ended.append(task)
        return squared(task, write)

    before = {*threading.enumerate()}
    results = run_in_order([work] * 2, range(100))
    assert next(results).value == 0
    wait_for(lambda: len(begun) == 3)
    before.add(timer := threading.Timer(0.02, let_go.set))
    timer.start()
    results.close()
    assert sorted(begun) == sorted(ended) == [0, 1, 2]
    wait_for(lambda: {*threading.enumerate()} <= before)


@pytest.mark.parametrize("command", ["cat --jsonl", "cat --count", "check --json", "stat --json"])
def test_commands_say_the_same_with_several_threads(
    command: str, store: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, capfdbinary: Any
) -> None:
    """Ranges are so small that the threads have something to do."""
    for function in (ranges.plan_ranges, ranges.nominal_ranges):
        monkeypatch.setattr(function, "__defaults__", (0, 5000))
    monkeypatch.setattr(stream, "_COUNTED_RANGE", 20_000)
    monkeypatch.setattr(reports, "RANGE", 20_000)
    asked: list[str] = []
    run = threading.Thread.run

    def counted(thread: threading.Thread) -> None:
        asked.append(thread.name)
        run(thread)

    monkeypatch.setattr(threading.Thread, "run", counted)
    said = {}
    for jobs in (1, 3):
        status = main([*command.split(), str(store("49-basic")), "-j", str(jobs)])
        said[jobs] = (status, capfdbinary.readouterr().out)
        assert len(asked) == (0 if jobs == 1 else 3)
    assert said[1] == said[3]
    assert said[1][1].strip()
