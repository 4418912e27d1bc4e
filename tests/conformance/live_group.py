"""Our members in a consumer group at a real broker, in a network of its own; started by ``test_client_group``.

    unshare -Urn python -m tests.conformance.live_group VERSION DIRECTORY OUT

What is written to OUT is judged by the test.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import rmqtool
from rmqtool.api.consume import How, consuming
from tests.conformance.live_cluster import ADDRESS, QUEUES, TOPIC, cluster, printed, wait_for_route

MESSAGES = 1_000


def consume(client: rmqtool.Cluster, group: str, **how: Any) -> list[dict[str, Any]]:
    wanted: How = {"commit": True, "start": "first", **how}  # type: ignore[typeddict-item]
    with consuming(client, group, wanted, topics=TOPIC) as found:
        return [event for event in found if isinstance(event, dict)]


def life(version: str, directory: Path) -> dict[str, Any]:
    """Live, and return what was seen."""
    seen: dict[str, Any] = {}
    with cluster(version, directory), rmqtool.connect(ADDRESS) as client:
        client.topic("create", TOPIC, queues=QUEUES)
        wait_for_route(client)
        with client.producer(group="P", timeout=20) as producer:
            for sent in [producer.send_async(TOPIC, str(number)) for number in range(MESSAGES)]:
                sent.result(60)
        # A broker answers before its queues have the message, and a group ends where they end.
        until(lambda: len(list(client.scan(topics=TOPIC))) == MESSAGES)
        seen["taken"] = [int(one["body"]) for one in consume(client, "Two", members=2)]
        seen["places"] = client.groups()["Two"]["topics"][TOPIC]
        ordered = consume(client, "Ordered", members=2, orderly=True)
        seen["ordered"] = [[one["queueId"], one["queueOffset"]] for one in ordered]
        client.group("create", "Failing", {"retryMaxTimes": 0})
        words = ("consume", ADDRESS, "-t", TOPIC, "-g", "Failing", "--from", "first", "--commit", "-n", "3")
        seen["failed"], _ = printed(*words, "--exec", "false")
        until(lambda: len(dead(client)) == 3)
        seen["dead"] = sorted(int(one["body"]) for one in dead(client))
        seen["shared"] = shared(directory)
    return seen


def dead(client: rmqtool.Cluster) -> list[Any]:
    return list(client.scan(topics="%DLQ%Failing"))


def shared(directory: Path) -> list[list[int]]:
    """Let two processes share a group, kill one, and return what each has printed."""
    words = ["consume", ADDRESS, "-t", TOPIC, "-g", "Processes", "--from", "first", "--commit", "-f", "--jsonl"]
    files = [directory / f"member-{number}" for number in range(2)]
    running = []
    for file in files:
        with file.open("wb") as out:
            running.append(subprocess.Popen([sys.executable, "-m", "rmqtool", *words], stdout=out))
    try:
        until(lambda: all(map(bodies, files)))
        running[0].kill()
        until(lambda: len({*bodies(files[0]), *bodies(files[1])}) == MESSAGES)
        running[1].send_signal(signal.SIGINT)
        running[1].wait(30)
    finally:
        for process in running:
            process.kill()
            process.wait()
    return [bodies(file) for file in files]


def bodies(file: Path) -> list[int]:
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    return [int(json.loads(line)["body"]) for line in lines if line.endswith("\n")]


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError("it did not happen in 60 s")
        time.sleep(0.2)


if __name__ == "__main__":
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    version, directory, out = sys.argv[1:]
    Path(directory).mkdir(parents=True)
    Path(out).write_text(json.dumps(life(version, Path(directory))), encoding="utf-8")
