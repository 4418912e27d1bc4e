"""A process that is killed with -9 while it stores messages; another one knows what was acknowledged."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from rmqtool.engine.recovery.recover import recover
from rmqtool.engine.store import MessageStore
from tests.crash.putting import body_of, setup_at
from tests.support.stores import FIXTURES

Acknowledged = dict[tuple[int, int], int]


def kill_after(root: Path, first: int, count: int, *way: str) -> Acknowledged:
    """Let a process put messages and kill it after so many acknowledgements; return (queue, offset) → number."""
    words = [sys.executable, "-m", "tests.crash.putting", str(root), str(first), *way]
    found: Acknowledged = {}
    with subprocess.Popen(words, stdout=subprocess.PIPE, cwd=FIXTURES.parent) as process:
        assert process.stdout is not None
        for line in process.stdout:
            number, queue_id, queue_offset = map(int, line.split())
            found[queue_id, queue_offset] = number
            if len(found) == count:
                process.kill()
        # What was acknowledged in the moment of the kill has been read too.
    assert len(found) >= count
    return found


def run_rounds(root: Path, rounds: int, *way: str) -> None:
    chance = random.Random(rounds)
    acknowledged: Acknowledged = {}
    first = 0
    for _ in range(rounds):
        new = kill_after(root, first, chance.randrange(1, 150), *way)
        acknowledged |= new
        first = max(acknowledged.values()) + 1000
        report = recover(setup_at(root))
        assert report.abnormal
        assert report.misfits == []
        assert recover(setup_at(root)).changes == {}
        check(root, new, {queue_id: min(at for one, at in new if one == queue_id) for queue_id, _ in new})
    check(root, acknowledged, {})


def check(root: Path, acknowledged: Acknowledged, begins: Mapping[int, int]) -> None:
    """Every acknowledged message is there, once, at its place, and in order; looked at from some offsets on."""
    with MessageStore.open(setup_at(root)) as store:
        seen: dict[bytes, int] = {}
        for queue_id in range(3):
            low, high = store.reader.bounds("T", queue_id)
            at, before = begins.get(queue_id, low), -1
            while at < high:
                got = store.reader.get("T", queue_id, at, 32)
                for one in got.messages:
                    message = store.reader.message_at(one.physical_offset)
                    assert message is not None
                    assert (message.queue_id, message.queue_offset) == (queue_id, one.queue_offset)
                    seen[message.raw_body] = seen.get(message.raw_body, 0) + 1
                    number = acknowledged.get((queue_id, one.queue_offset))
                    if number is not None:
                        assert message.raw_body == body_of(number)
                        assert number > before
                        before = number
                at = got.next_begin_offset
        assert [number for number in acknowledged.values() if seen.get(body_of(number)) != 1] == []


def test_five_rounds(tmp_path: Path) -> None:
    run_rounds(tmp_path, 5)


def test_a_producer_that_has_left_messages_undispatched(tmp_path: Path) -> None:
    run_rounds(tmp_path, 3, "--producer")


@pytest.mark.slow
@pytest.mark.parametrize("way", [(), ("--producer",)])
def test_two_hundred_rounds(tmp_path: Path, way: tuple[str, ...]) -> None:
    run_rounds(tmp_path, 200, *way)
