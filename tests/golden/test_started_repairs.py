"""A start of the broker after a repair: nothing that stands in for lost messages is a trap for it.

Delays, timers, retries and transactions have queues of their own, which brokers read in their own way.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from rmqtool.cli import main
from rmqtool.errors import Exit
from tests.golden.test_repair import run
from tests.support.stores import truth

STORES = ("49-broker", "53-broker", "53-timer", "54-broker")
INTERNAL = ("SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer", "RMQ_SYS_TRANS_HALF_TOPIC", "%RETRY%G_retry")


def last_records(name: str) -> list[dict[str, Any]]:
    """Return the last record of each queue that only the broker reads, but for the last of the log: that is cut."""
    messages = truth(name)["messages"]
    last = {
        (one["topic"], one["queueId"]): one
        for one in messages
        if one["topic"] in INTERNAL and one["tagsCodeInQueue"] is not None
    }
    return [one for one in last.values() if one is not messages[-1]]


def strike(root: Path, start: int, length: int) -> None:
    """Zero a stretch of the log."""
    for path in sorted((root / "commitlog").iterdir()):
        base, size = int(path.name), path.stat().st_size
        low, high = max(start, base), min(start + length, base + size)
        if low < high:
            with path.open("r+b") as file:
                file.seek(low - base)
                file.write(bytes(high - low))


def repaired_and_started(root: Path, name: str, capsysbinary: pytest.CaptureFixture[bytes]) -> dict[str, Any]:
    before = run(capsysbinary, "recover", root, "--as", AS[name[:2]])[1]
    run(capsysbinary, "repair", root, "--apply", "--allow", "state,primary")
    assert run(capsysbinary, "repair", root, "--allow", "state,primary")[1]["steps"] == []
    found = run(capsysbinary, "check", root)[1]
    assert [one for one in found if str(one.get("code", "")).startswith("CQ-")] == []
    start = run(capsysbinary, "recover", root, "--as", AS[name[:2]])[1]
    known = {trap["name"] for trap in before["traps"]}
    assert [trap for trap in start["traps"] if trap["name"] not in known] == []
    assert (start["starts"], start["messagesLost"], start["messagesUnreachable"]) == (True, 0, 0)
    return start


AS = {"49": "4.9", "53": "5.3", "54": "5.4"}


@pytest.mark.parametrize("name", ["49-broker", "53-broker", "54-broker"])
def test_the_last_message_of_an_internal_queue_is_lost(name, writable_store, capsysbinary):
    root = writable_store(name)
    struck = last_records(name)
    assert struck
    for record in struck:
        strike(root, record["commitLogOffset"] + 8, record["storeSize"] - 8)
    start = repaired_and_started(root, name, capsysbinary)
    for record in struck:
        queue = start["queues"][record["topic"]][str(record["queueId"])]
        assert queue["maxOffset"] == record["queueOffset"] + 1
    goes_on(root, name)


def goes_on(root: Path, name: str) -> None:
    """Our own engine opens the store, and passes over what is lost: the delays are read from their beginning."""
    (root / "config" / "delayOffset.json").unlink()
    (root / "config" / "delayOffset.json.bak").unlink(missing_ok=True)
    assert main(["tick", str(root), "--as", AS[name[:2]]]) == Exit.SKIPPED
    assert main(["produce", str(root), "-t", "Behind", "--create", "hello"]) == Exit.DONE


@pytest.mark.parametrize("name", [STORES[1], *(pytest.param(one, marks=pytest.mark.slow) for one in STORES)])
def test_stretches_of_zeros(name, writable_store, capsysbinary):
    rng = random.Random(7)
    root = writable_store(name)
    end = max(one["commitLogOffset"] + one["storeSize"] for one in truth(name)["messages"])
    for _ in range(6):
        strike(root, rng.randrange(end - 8000), rng.choice((1, 100, 4000)))
    repaired_and_started(root, name, capsysbinary)
