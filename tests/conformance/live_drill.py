"""Disasters, in a network of its own; started by ``test_drills``: the disk of a real master is gone, a mirror is left.

    unshare -Urn python -m tests.conformance.live_drill VERSION DIRECTORY OUT SEED

A producer sends to a SYNC_MASTER whose only slave is a mirror: what it acknowledges, the mirror has. At a random moment
the master is killed and its directory deleted. Then the recipe of ``rmqtool man recipes`` is typed, a broker started on
the mirror, and the group goes on.
"""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import rmqtool
from tests.conformance.live_cluster import (
    ADDRESS,
    NAMES,
    TOPIC,
    cluster,
    java,
    printed,
    wait_for_broker,
    wait_for_route,
)

GROUP, FIRST, PATIENCE = "G", 200, 90


class Producing:
    """Sends messages until it is ended; ``accepted`` are the bodies of those that the mirror has acknowledged."""

    def __init__(self, client: rmqtool.Cluster, chance: random.Random) -> None:
        self._client, self._chance = client, chance
        self._is_ended = False
        self.accepted: list[str] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        with self._client.producer(timeout=3) as producer:
            while not self._is_ended:
                bodies = [f"m{number + more} " + "x" * self._chance.randrange(3_000) for more in range(50)]
                number += len(bodies)
                futures = [(body, producer.send_async(TOPIC, body)) for body in bodies]
                for body, future in futures:
                    with contextlib.suppress(rmqtool.RmqtoolError):
                        if future.result(30).status == "PUT_OK":
                            self.accepted.append(body.partition(" ")[0])

    def wait_for(self, count: int) -> None:
        """Wait until so many messages are acknowledged."""
        deadline = time.monotonic() + PATIENCE
        while len(self.accepted) < count:
            assert time.monotonic() < deadline, f"{len(self.accepted)} messages were acknowledged"
            time.sleep(0.05)

    def end(self) -> None:
        self._is_ended = True
        self._thread.join()


def consume(*words: str) -> tuple[int, list[str]]:
    """Consume as the group; return the status and the names of the messages."""
    words = ("consume", ADDRESS, "-g", GROUP, "-t", TOPIC, "--commit", *words)
    status, out = printed(*words, "--template", r"{body}\n")
    return status, [line.partition(" ")[0] for line in out.splitlines()]


def life(version: str, directory: Path, seed: int) -> dict[str, Any]:
    """Live, and return what was seen."""
    seen: dict[str, Any] = {"recipe": []}
    chance, mirror = random.Random(seed), directory / "mirror"
    running: list[subprocess.Popen[bytes]] = []
    with cluster(version, directory, running, "brokerRole=SYNC_MASTER\ninSyncReplicas=2\n") as store:
        with rmqtool.connect(ADDRESS) as client:
            client.topic("create", TOPIC, queues=8)
            wait_for_route(client)
            command = (
                sys.executable,
                "-m",
                "rmqtool",
                "mirror",
                ADDRESS,
                str(mirror),
                "--config-every",
                "1s",
                "--quiet",
            )
            copying = subprocess.Popen(command, stderr=(directory / "errors").open("wb"))
            running.append(copying)
            producing = Producing(client, chance)
            producing.wait_for(2 * FIRST)
            seen["consumed"] = consume("--from", "first", "-n", str(FIRST))
            time.sleep(3 + chance.uniform(0, 4))
            running[1].kill()
            running[1].wait()
            shutil.rmtree(store)
            producing.end()
        copying.terminate()
        seen["mirror"] = copying.wait(60)
        seen["accepted"] = producing.accepted
        for words in (("check", mirror), ("recover", mirror, "--apply"), ("check", mirror)):
            seen["recipe"].append([words[0], *printed(*words)])
        conf = mirror / "broker.conf"
        with conf.open("a") as text:
            # The address of the lost broker.
            text.write(f"namesrvAddr={NAMES}\nbrokerIP1=127.0.0.1\nlistenPort=10911\n")
        with (directory / "restored").open("wb") as out:
            main = java(version, directory / "home", "org.apache.rocketmq.broker.BrokerStartup", "-c", str(conf))
            running[1] = subprocess.Popen(main, stdout=out, stderr=out)
        wait_for_broker()
        with rmqtool.connect(ADDRESS) as client:
            wait_for_route(client)
        seen["went on"] = consume()
    return seen


if __name__ == "__main__":
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    Path(sys.argv[3]).write_text(json.dumps(life(sys.argv[1], Path(sys.argv[2]), int(sys.argv[4]))))
