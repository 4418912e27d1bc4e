"""Our consumer that pops, with a real broker or with ``serve``; started by ``test_client_pops``.

    python -m tests.conformance.live_pops VERSION|serve DIRECTORY OUT

What is written to OUT is judged by the test.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import rmqtool
from rmqtool.client.popped_messages import Pops, Wanted
from tests.conformance.live_cluster import NAMES, cluster, printed, wait_for_broker
from tests.conformance.serving import serve

TOPIC, QUEUES, MESSAGES = "Popped", 4, 200
# How long (ms) what is not acked is hidden, and how often that is tried.
HIDDEN, TRIES = 5_000, 4


@contextlib.contextmanager
def place(version: str, directory: Path) -> Iterator[str]:
    if version == "serve":
        with serve(directory, "--listen", "127.0.0.1:0") as names:
            yield f"rocketmq://{names}"
        return
    with cluster(version, directory):
        wait_for_broker()
        yield f"rocketmq://{NAMES}"


def fill(client: rmqtool.Cluster) -> None:
    client.topic("create", TOPIC, queues=QUEUES)
    with client.producer(timeout=20) as producer:
        for number in range(MESSAGES):
            # A broker of 5.x registers a new topic soon, not at once.
            producer.send(TOPIC, str(number), tags="odd" if number % 2 else "even", keys=f"k{number}")


def commands(address: str) -> dict[str, Any]:
    """Pop by the command: a part, the rest, by tag, and what a program refuses."""
    words = ["consume", address, "-t", TOPIC, "--pop", "--template", r"{body}\n"]
    first = printed(*words, "-g", "Parts", "-n", "50")[1].split()
    rest = printed(*words, "-g", "Parts")[1].split()
    again = printed(*words, "-g", "Parts")[1].split()
    odd = printed(*words, "-g", "Odd", "--tag", "odd")[1].split()
    sql = printed(*words, "-g", "Third", "-q", "2")[1].split()
    return {"parts": [first, rest, again], "odd": odd, "one queue": sql}


def handled(client: rmqtool.Cluster) -> dict[str, Any]:
    """Handle messages in threads; one fails once, one always: its group delivers it once more, then no more."""
    client.group("create", "Handled", {"retryMaxTimes": 1})
    seen: list[str] = []
    with client.consumer(TOPIC, "Handled", pop=True, start="first") as consumer:

        def handle(message: Any) -> bool:
            seen.append(message["body"])
            if len(seen) == MESSAGES + 2:
                consumer.stop()
            return message["body"] != "8" and not (message["body"] == "7" and seen.count("7") == 1)

        consumer.run(handle, concurrency=4)
    dead = [message["body"] for message in client.scan(topics="%DLQ%Handled")]
    return {"seen": seen, "dead": dead}


def hidden(client: rmqtool.Cluster) -> list[float]:
    """Return after how many seconds messages that are not acked come back to one who asks all the time."""
    found = []
    for number in range(TRIES):
        wanted = Wanted(f"Hidden{number}", invisible=HIDDEN)
        pops = Pops(client.connections, wanted)
        (broker,) = client.run(pops.brokers(TOPIC))
        taken = 0
        while taken < MESSAGES:
            taken += len(client.run(pops.pop(TOPIC, broker, 32)))
        begun = time.monotonic()
        while not client.run(pops.pop(TOPIC, broker, 1)):
            assert time.monotonic() - begun < 60
            time.sleep(0.05)
        found.append(time.monotonic() - begun)
    return found


def life(version: str, directory: Path) -> dict[str, Any]:
    directory.mkdir(exist_ok=True)
    with place(version, directory) as address, rmqtool.connect(address) as client:
        fill(client)
        return {"commands": commands(address), "handled": handled(client), "hidden": hidden(client)}


if __name__ == "__main__":
    if sys.argv[1] != "serve":
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    Path(sys.argv[3]).write_text(json.dumps(life(sys.argv[1], Path(sys.argv[2]))))
