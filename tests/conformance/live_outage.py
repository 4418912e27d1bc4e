"""Our producer while a real broker is killed and started again, and copies over the wire; in a network of its own.

    unshare -Urn python -m tests.conformance.live_outage VERSION DIRECTORY OUT MESSAGES KILLS

What is written to OUT is judged by ``test_client_outage``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import rmqtool
from rmqtool.client.connection import NotSent
from rmqtool.client.producer import SendUnknown
from tests.conformance.live_cluster import ADDRESS, QUEUES, TOPIC, cluster, printed, wait_for_broker, wait_for_route

_WINDOW = 200
# A broker asks about an open transaction after a second.
_CHECKS = "transactionTimeOut=1000\ntransactionCheckInterval=1000\n"


def restart(running: list[subprocess.Popen[bytes]]) -> None:
    """Kill the broker, and start it again."""
    running[1].kill()
    running[1].wait()
    running[1] = subprocess.Popen(running[1].args, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


async def produce(count: int, kills: int, running: list[subprocess.Popen[bytes]]) -> dict[str, list[str]]:
    """Send messages while the broker is killed now and then; return the keys by what was said of them."""
    said: dict[str, list[str]] = {"stored": [], "unknown": [], "not stored": []}
    gate = asyncio.Semaphore(_WINDOW)
    async with rmqtool.connect_async(ADDRESS) as client, client.producer(timeout=60) as producer:

        async def send(number: int) -> None:
            try:
                await producer.send(TOPIC, str(number), keys=f"k{number}")
                said["stored"].append(f"k{number}")
            except SendUnknown:
                said["unknown"].append(f"k{number}")
            except (NotSent, rmqtool.RmqtoolError):
                said["not stored"].append(f"k{number}")
            finally:
                gate.release()

        tasks = []
        for number in range(count):
            if kills and number and number % (count // (kills + 1)) == 0:
                await asyncio.to_thread(restart, running)
            await gate.acquire()
            tasks.append(asyncio.create_task(send(number)))
        await asyncio.gather(*tasks)
    return said


def decided(running: list[subprocess.Popen[bytes]]) -> list[str]:
    """Leave transactions open, restart the broker, and return what our checks made of them."""
    with rmqtool.connect(ADDRESS) as client:

        def check(message: Any) -> str:
            return "commit" if message["keys"] == "yes" else "rollback"

        with client.producer(group="Deciding", timeout=30, check=check) as producer:
            for keys in ("yes", "no"):
                producer.send_in_transaction("Decided", keys, lambda _: "unknown", keys=keys)
            restart(running)
            until = time.monotonic() + 120
            while time.monotonic() < until:
                with contextlib.suppress(rmqtool.RmqtoolError):
                    found = [str(one["body"]) for one in client.scan(topics="Decided")]
                    if found:
                        return found
                time.sleep(0.5)
    return []


def life(version: str, directory: Path, count: int, kills: int) -> dict[str, Any]:
    """Live, and return what was seen."""
    seen: dict[str, Any] = {}
    running: list[subprocess.Popen[bytes]] = []
    with cluster(version, directory, running, _CHECKS):
        with rmqtool.connect(ADDRESS) as client:
            for topic in (TOPIC, "Decided"):
                client.topic("create", topic, queues=QUEUES)
            wait_for_route(client)
        seen["said"] = asyncio.run(produce(count, kills, running))
        wait_for_broker()
        with rmqtool.connect(ADDRESS) as client:
            seen["there"] = Counter(str(one["keys"]) for one in client.scan(topics=TOPIC))
        seen["decided"] = decided(running)
        os.chdir(directory)
        seen["copied"] = [printed("copy", ADDRESS, "copied", "-t", TOPIC)]
        with rmqtool.connect(ADDRESS) as client:
            client.topic("delete", TOPIC)
        time.sleep(2)
        seen["copied"] += [
            printed("copy", "copied", ADDRESS),
            printed("copy", ADDRESS, "back", "-t", TOPIC),
            printed("check", "back", "--quiet"),
            printed("diff", "copied", "back", "--by", "message"),
        ]
    return seen


if __name__ == "__main__":
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    found = life(sys.argv[1], Path(sys.argv[2]), int(sys.argv[4]), int(sys.argv[5]))
    Path(sys.argv[3]).write_text(json.dumps(found))
