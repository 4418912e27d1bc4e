"""A mirror beside a real broker, in a network of its own; started by ``test_mirrors``.

    unshare -Urn python -m tests.conformance.live_mirror VERSION DIRECTORY OUT [PLAN]

A producer sends all the time. The mirror and the broker are killed and started again, and their connections are cut, as
the plan says; the broker is stopped at the end. Then the files of both logs are compared, and the mirror is recovered.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

import rmqtool
from tests.conformance.live_cluster import ADDRESS, TOPIC, cluster, printed, wait_for_broker, wait_for_route
from tests.conformance.live_outage import restart

HA_PORT = 10912
# A 4.9 broker can take this long to serve again after a kill, and a producer to hear of it.
PATIENCE = 120


class Plan(NamedTuple):
    """How often the mirror is killed, its connections are cut, and the broker is killed; and the size of the log."""

    kills: int = 10
    cuts: int = 5
    restarts: int = 0
    size: int = 0
    body: int = 3_000
    more: str = ""

    def troubles(self, chance: random.Random) -> list[str]:
        """Return what happens, in a random order."""
        found = ["kill"] * self.kills + ["cut"] * self.cuts + ["restart"] * self.restarts
        chance.shuffle(found)
        return found


class Producing:
    """Sends messages until it is ended."""

    def __init__(self, client: rmqtool.Cluster, body: int) -> None:
        self._client, self._body = client, os.urandom(body)
        self._is_ended = False
        self.acknowledged = 0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        window = min(max(4_000_000 // len(self._body), 20), 200)
        with self._client.producer(group="P", timeout=20) as producer:
            while not self._is_ended:
                sent = [producer.send_async(TOPIC, self._body, keys=f"k{number}") for number in range(window)]
                for one in sent:
                    # While the broker is away, nothing is promised.
                    with contextlib.suppress(rmqtool.RmqtoolError):
                        self.acknowledged += one.result(60).status == "PUT_OK"

    def end(self) -> None:
        self._is_ended = True
        self._thread.join()


def start(directory: Path, *words: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "rmqtool", "mirror", ADDRESS, str(directory / "mirror"), "--jsonl", *words]
    with (directory / "lines").open("ab") as lines, (directory / "errors").open("ab") as errors:
        return subprocess.Popen(command, stdout=lines, stderr=errors)


def cut_connections() -> None:
    """Reset every replication connection, as a firewall does that forgets them."""
    subprocess.run(["ss", "-K", "dport", "=", f":{HA_PORT}"], capture_output=True, check=False)


def last_line(directory: Path) -> dict[str, Any]:
    lines = [json.loads(line) for line in (directory / "lines").read_bytes().splitlines()]
    return [line for line in lines if "durable" in line][-1]


def life(version: str, directory: Path, plan: Plan) -> dict[str, Any]:
    """Live, and return what was seen."""
    seen: dict[str, Any] = {}
    chance = random.Random(31)
    running: list[subprocess.Popen[bytes]] = []
    with cluster(version, directory, running, plan.more) as store:
        with rmqtool.connect(ADDRESS) as client:
            client.topic("create", TOPIC, queues=8)
            wait_for_route(client)
            producing = Producing(client, plan.body)
            running.append(start(directory))
            for trouble in plan.troubles(chance):
                time.sleep(chance.uniform(0.5, 1.5))
                if trouble == "cut":
                    cut_connections()
                elif trouble == "restart":
                    restart(running)
                    wait_for_broker()
                else:
                    running[-1].kill()
                    running[-1].wait()
                    running.append(start(directory))
            wait_for_size(producing, plan)
            producing.end()
            if plan.size:
                wait_for_mirror(directory)
            wait_for_line(directory)
            mirror = running[-1]
            seen["memory"] = most_memory(mirror)
            mirror.terminate()
            seen["status"] = mirror.wait(60)
            seen["acknowledged"] = producing.acknowledged
            time.sleep(6)
            seen["once"] = start(directory, "--once").wait(PATIENCE)
        seen["line"] = last_line(directory)
        seen["durable"] = seen["line"]["durable"]
    seen["files"] = compare(store, directory / "mirror", seen["durable"])
    seen["lines"] = (directory / "lines").read_text()
    seen["errors"] = (directory / "errors").read_text()
    with contextlib.suppress(rmqtool.RmqtoolError):
        seen["topics"] = sorted(rmqtool.topics(str(directory / "mirror")), key=lambda one: one["topic"])
        known = {one["topic"] for one in seen["topics"]}
        seen["broker_topics"] = [one for one in rmqtool.topics(str(store)) if one["topic"] in known]
        seen["broker_topics"].sort(key=lambda one: one["topic"])
    seen["recover"] = printed("recover", directory / "mirror", "--apply")[0]
    seen["check"] = printed("check", directory / "mirror", "--fail-on", "error")
    status, out = printed("cat", directory / "mirror", "-t", TOPIC, "--count")
    seen["count"] = [status, out]
    return seen


def wait_for_size(producing: Producing, plan: Plan) -> None:
    """Wait until the producer has sent the bytes of the plan."""
    time.sleep(1)
    while producing.acknowledged * plan.body < plan.size:
        time.sleep(0.5)


def wait_for_mirror(directory: Path) -> None:
    """Wait until the mirror says that it has what the broker has. It asks the broker each second."""
    deadline = time.monotonic() + PATIENCE
    time.sleep(3)
    while last_line(directory)["lagBytes"]:
        assert time.monotonic() < deadline, last_line(directory)
        time.sleep(0.5)


def wait_for_line(directory: Path) -> None:
    """Wait for a further line: a mirror that was started a moment ago does not know signals yet."""
    size, deadline = (directory / "lines").stat().st_size, time.monotonic() + PATIENCE
    while (directory / "lines").stat().st_size == size:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def most_memory(process: subprocess.Popen[bytes]) -> int:
    """Return the most memory that a process has had, in KiB."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text())
    assert found is not None
    return int(found[1])


def compare(store: Path, mirror: Path, end: int) -> list[list[object]]:
    """Return for each file of the mirror whether it has the broker's bytes up to the durable end."""
    found: list[list[object]] = []
    for path in sorted((mirror / "commitlog").iterdir()):
        data, size = path.read_bytes(), end - int(path.name)
        other = (store / "commitlog" / path.name).read_bytes()
        found.append([path.name, len(data) == len(other) and data[:size] == other[:size]])
    return found


if __name__ == "__main__":
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    plan = sys.argv[4] if len(sys.argv) > 4 else "{}"
    Path(sys.argv[3]).write_text(json.dumps(life(sys.argv[1], Path(sys.argv[2]), Plan(**json.loads(plan)))))
