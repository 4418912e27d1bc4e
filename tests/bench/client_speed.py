"""Our client beside the Java client, both at one real broker, in rounds by turns; then ``cat`` beside mqadmin.

    unshare -Urn python -m tests.bench.client_speed DIRECTORY OUT ROUNDS [MEASURE...]

What is written to OUT is judged by ``test_client``: for each measure and side the messages per second, and the seconds
of processor per message that the client used.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import rmqtool
from rmqtool.client.puller import Fetch, Span, find_bounds
from rmqtool.formats.message_queue import MessageQueue
from tests.bench.one_run import AS_INSTALLED
from tests.bench.serve_speed import PUSHED, VERSION, Side, processor, real
from tests.conformance.live_cluster import ADDRESS, java

_BODY = b"x" * 100
_SECONDS = 3.0
# What ``cat`` and mqadmin print.
_PRINTED = 1_000_000
_TOPIC = "speed-push"
_FIRSTS = 15


async def _fetch() -> int:
    async with rmqtool.connect_async(ADDRESS) as client:
        cluster = client.connections
        route = await cluster.routes.find(_TOPIC)
        spans = []
        for queue in route.read_queues:
            least, most = await find_bounds(cluster, MessageQueue(*queue))
            spans.append(Span(queue, least, most))
        count = 0
        fetch = Fetch(cluster, spans)
        while chunks := await fetch.take():
            count += sum(chunk.end - chunk.begin for chunk in chunks)
        return count


async def _send(window: int) -> int:
    """Send for some seconds; return how many messages were stored. A busy broker refuses some, ours and Java's."""
    async with rmqtool.connect_async(ADDRESS) as client, client.producer(timeout=30) as producer:
        gate, stored = asyncio.Semaphore(window), 0

        def ended(future: asyncio.Future[Any]) -> None:
            nonlocal stored
            gate.release()
            stored += future.exception() is None

        begun = time.perf_counter()
        while time.perf_counter() - begun < _SECONDS:
            await gate.acquire()
            asyncio.ensure_future(producer.send_soon("speed-ours", _BODY)).add_done_callback(ended)
        for _ in range(window):
            await gate.acquire()
        return stored


async def _send_batches(workers: int) -> int:
    """Send batches of 32 for some seconds, as many at a time as there are workers."""
    async with rmqtool.connect_async(ADDRESS) as client, client.producer(timeout=30) as producer:
        end = time.perf_counter() + _SECONDS

        async def work() -> int:
            stored = 0
            while time.perf_counter() < end:
                with contextlib.suppress(rmqtool.RmqtoolError):
                    stored += len(await producer.send_batch("speed-ours", [_BODY] * 32))
            return stored

        return sum(await asyncio.gather(*(work() for _ in range(workers))))


def _ours(work: Callable[[], int]) -> dict[str, float]:
    begun, used = time.perf_counter(), time.process_time()
    messages = work()
    seconds = time.perf_counter() - begun
    return {"speed": messages / seconds, "processor": (time.process_time() - used) / messages}


def _theirs(side: Side, line: str) -> dict[str, float]:
    used = processor(side.client.pid)
    said = side.ask(line)
    used = processor(side.client.pid) - used
    return {"speed": said["messages"] / said["seconds"], "processor": used / said["messages"]}


def _timed(command: list[str], cwd: Path) -> dict[str, float]:
    """Run a command; return its seconds on the clock, and of processors."""
    quiet = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_WRONLY, 0) for number in (1, 2)]
    before = os.getcwd()
    os.chdir(cwd)
    try:
        begun = time.perf_counter()
        process = os.posix_spawnp(command[0], command, AS_INSTALLED, file_actions=quiet)
        _, status, usage = os.wait4(process, 0)
    finally:
        os.chdir(before)
    assert os.waitstatus_to_exitcode(status) == 0, command
    return {"seconds": time.perf_counter() - begun, "processor": usage.ru_utime + usage.ru_stime}


def run(directory: Path, rounds: int, measures: list[str]) -> dict[str, Any]:
    """Measure; the first round of both is not counted."""
    measured: dict[str, Any] = {"work": {}, "cat": []}
    with real(directory / "real", "ASYNC_FLUSH") as side:
        side.ask(f"fill {PUSHED}")
        both: dict[str, tuple[str, Callable[[], int]]] = {
            "fetch": (f"push {PUSHED}", lambda: asyncio.run(_fetch())),
            "async 1000": ("async 1000 3", lambda: asyncio.run(_send(1000))),
            "batch 32": ("batch 2 3", lambda: asyncio.run(_send_batches(2))),
        }
        for name, (line, own) in both.items():
            if name in measures:
                found: dict[str, list[dict[str, float]]] = {"ours": [], "theirs": []}
                for number in range(rounds + 1):
                    one = _ours(own), _theirs(side, line)
                    if number:
                        found["ours"].append(one[0])
                        found["theirs"].append(one[1])
                measured["work"][name] = found
        root = Path(__file__).parents[2]
        cat = [sys.executable, "-m", "rmqtool", "cat", ADDRESS, "-t", _TOPIC]
        if "first" in measures:
            measured["first"] = [_timed([*cat, "-n", "1"], root) for _ in range(_FIRSTS)]
        if "cat" in measures:
            side.ask(f"fill {_PRINTED - PUSHED}")
            words = ("printMsg", "-n", re.sub("rocketmq://", "", ADDRESS), "-t", _TOPIC)
            mqadmin = java(VERSION, directory / "real", "org.apache.rocketmq.tools.command.MQAdminStartup", *words)
            for _ in range(max(rounds // 2, 1)):
                measured["cat"].append({"cat": _timed([*cat, "--jsonl"], root), "printMsg": _timed(mqadmin, root)})
    return measured


if __name__ == "__main__":
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    wanted = sys.argv[4:] or ["fetch", "async 1000", "batch 32", "first", "cat"]
    Path(sys.argv[2]).write_text(json.dumps(run(Path(sys.argv[1]), int(sys.argv[3]), wanted)))
