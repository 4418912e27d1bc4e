"""A mirror beside a real broker, in a network of its own; started by ``test_mirrors``.

    unshare -Urn python -m tests.conformance.live_mirror VERSION DIRECTORY OUT

A producer sends all the time. The mirror is killed and started again, its connections are cut, and the broker is
stopped at the end: then the files of both logs are compared, and the mirror is recovered.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import rmqtool
from tests.conformance.live_cluster import ADDRESS, TOPIC, cluster, printed, wait_for_route

KILLS, CUTS = 10, 5
HA_PORT = 10912


class Producing:
    """Sends messages until it is ended."""

    def __init__(self, client: rmqtool.Cluster) -> None:
        self._client = client
        self._is_ended = False
        self.acknowledged = 0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        body = os.urandom(3_000)
        with self._client.producer(group="P", timeout=20) as producer:
            while not self._is_ended:
                sent = [producer.send_async(TOPIC, body, keys=f"k{number}") for number in range(200)]
                self.acknowledged += sum(one.result(30).status == "PUT_OK" for one in sent)

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


def life(version: str, directory: Path) -> dict[str, Any]:
    """Live, and return what was seen."""
    seen: dict[str, Any] = {}
    chance = random.Random(31)
    with cluster(version, directory) as store:
        with rmqtool.connect(ADDRESS) as client:
            client.topic("create", TOPIC, queues=8)
            wait_for_route(client)
            producing = Producing(client)
            mirror = start(directory)
            for number in range(KILLS + CUTS):
                time.sleep(chance.uniform(0.5, 1.5))
                if number % 3 == 2:
                    cut_connections()
                else:
                    mirror.kill()
                    mirror.wait()
                    mirror = start(directory)
            time.sleep(1)
            producing.end()
            mirror.terminate()
            seen["status"] = mirror.wait(30)
            seen["acknowledged"] = producing.acknowledged
            time.sleep(6)
            seen["once"] = start(directory, "--once").wait(60)
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
    Path(sys.argv[3]).write_text(json.dumps(life(sys.argv[1], Path(sys.argv[2]))))
