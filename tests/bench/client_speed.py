"""Our client beside the Java client, both at one real broker, in rounds by turns.

    unshare -Urn python -m tests.bench.client_speed DIRECTORY ROUNDS

A line of JSON for each measure: messages by the second of each round, and the ratio of the best ones.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import rmqtool
from rmqtool.client.puller import Fetch, Span, find_bounds
from rmqtool.formats.message_queue import MessageQueue
from tests.bench.serve_speed import PUSHED, VERSION, Side, real
from tests.conformance.live_cluster import ADDRESS, java

_BODY = b"x" * 100
_SECONDS = 3.0


async def _fetch(topic: str) -> float:
    async with rmqtool.connect_async(ADDRESS) as client:
        cluster = client.connections
        route = await cluster.routes.find(topic)
        spans = []
        for queue in route.read_queues:
            least, most = await find_bounds(cluster, MessageQueue(*queue))
            spans.append(Span(queue, least, most))
        begun = time.perf_counter()
        fetch = Fetch(cluster, spans)
        count = 0
        while chunks := await fetch.take():
            count += sum(chunk.end - chunk.begin for chunk in chunks)
        return count / (time.perf_counter() - begun)


async def _send(window: int, batch: int) -> float:
    async with rmqtool.connect_async(ADDRESS) as client, client.producer(timeout=30) as producer:
        gate, count = asyncio.Semaphore(window), 0
        begun = time.perf_counter()
        while time.perf_counter() - begun < _SECONDS:
            await gate.acquire()
            sent = (
                producer.send_batch("speed-ours", [_BODY] * batch)
                if batch > 1
                else producer.send_soon("speed-ours", _BODY)
            )
            future = asyncio.ensure_future(sent)
            future.add_done_callback(lambda _: gate.release())
            count += batch
        for _ in range(window):
            await gate.acquire()
        return count / (time.perf_counter() - begun)


def _topic_of(side: Side) -> str:
    with rmqtool.connect(ADDRESS) as client:
        found = {row["topic"]: 0 for row in client.topics()}
        for topic, shown in client.info()["topics"].items():
            found[topic] = sum(one["maxOffset"] - one["minOffset"] for one in shown["queues"].values())
    assert side.process
    return max(found, key=lambda topic: found[topic])


def _timed(command: list[str], cwd: Path) -> float:
    begun = time.perf_counter()
    subprocess.run(command, cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begun


def main(directory: Path, rounds: int) -> None:
    """Measure and print."""
    with real(directory / "real", "ASYNC_FLUSH") as side:
        side.ask(f"fill {PUSHED}")
        topic = _topic_of(side)
        theirs: dict[str, Callable[[], object]] = {
            "fetch": lambda: side.ask(f"push {PUSHED}"),
            "async 1000": lambda: side.ask("async 1000 3"),
            "batch 32": lambda: side.ask("batch 2 3"),
        }
        ours: dict[str, Callable[[], float]] = {
            "fetch": lambda: asyncio.run(_fetch(topic)),
            "async 1000": lambda: asyncio.run(_send(1000, 1)),
            # Java has two threads, each with a batch under way.
            "batch 32": lambda: asyncio.run(_send(2, 32)),
        }
        for name, own in ours.items():
            found: dict[str, list[object]] = {"ours": [], "theirs": []}
            for number in range(rounds + 1):
                rates = own(), theirs[name]()
                if number:
                    found["ours"].append(round(rates[0]))
                    found["theirs"].append(rates[1])
            print(json.dumps({"measure": name, **found}), flush=True)
        cat = [sys.executable, "-m", "rmqtool", "cat", ADDRESS, "-t", topic, "--jsonl"]
        words = ("printMsg", "-n", re.sub("rocketmq://", "", ADDRESS), "-t", topic)
        mqadmin = java(VERSION, directory / "real", "org.apache.rocketmq.tools.command.MQAdminStartup", *words)
        root = Path(__file__).parents[2]
        for _ in range(rounds):
            first = _timed([*cat, "-n", "1"], root)
            whole = _timed(cat, root)
            theirs_took = _timed(mqadmin, root)
            print(json.dumps({"measure": "cat", "first": first, "whole": whole, "printMsg": theirs_took}), flush=True)


if __name__ == "__main__":
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    main(Path(sys.argv[1]), int(sys.argv[2]))
