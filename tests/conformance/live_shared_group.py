"""Our members and Java members share a group at a real broker, while they join, leave and are killed.

    unshare -Urn python -m tests.conformance.live_shared_group VERSION DIRECTORY OUT SECONDS concurrent|orderly

What is written to OUT is judged by ``test_shared_group``. After SECONDS of changes nothing changes any more, and
further messages are sent: those must come once.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import rmqtool
from tests.conformance.client_programs import member_program
from tests.conformance.live_cluster import ADDRESS, NAMES, TOPIC, cluster, wait_for_route
from tests.conformance.test_group_members import Member, wait_for

GROUP, QUEUES, STABLE = "Shared", 8, 2_000
# Seconds: between two messages of a queue, between two changes, and until the last change is over.
_PERIOD, _CHANGE, _SETTLE = 0.05, 6.0, 30.0
_MOST = 4


class Crowd:
    """The members that were ever started, and those that are there now."""

    def __init__(self, directory: Path, kind: str, chance: random.Random) -> None:
        self.directory, self.kind, self.chance = directory, kind, chance
        self.java = member_program("java", "5.3.3", directory)
        self.all: list[Member] = []
        self.here: list[Member] = []
        self.killed: list[str] = []
        self.changes: list[str] = []

    def join(self, is_ours: bool) -> None:
        """Start a member and wait until it has started."""
        name = f"{'ours' if is_ours else 'java'}-{len(self.all)}"
        ours = [sys.executable, "-m", "tests.conformance.our_member", "NAMES"]
        command = [NAMES if word == "NAMES" else word for word in (ours if is_ours else self.java)]
        home = Path(__file__).parents[2] if is_ours else self.directory
        member = Member([*command, TOPIC, GROUP, name, self.kind], home, name, self.directory)
        self.all.append(member)
        wait_for(lambda: member.started > 0 or member.process.poll() is not None, f"{name} did not start")
        if member.started:
            self.here.append(member)
            self.changes.append(f"{name} joins")
        # A Java client gives up if its first request fails, as it may on a busy machine: the next change tries again.

    def change(self) -> None:
        """Let a member join, leave, or be killed."""
        most = len(self.here) >= _MOST
        if len(self.here) < 2 or (not most and self.chance.random() < 0.5):
            # Both kinds are always there.
            are_ours = [member.name.startswith("ours") for member in self.here]
            self.join(not any(are_ours) or (all(are_ours) is False and self.chance.random() < 0.5))
            return
        member = self.here.pop(self.chance.randrange(len(self.here)))
        if self.chance.random() < 0.5:
            member.stop()
            self.changes.append(f"{member.name} leaves")
        else:
            member.kill()
            self.killed.append(member.name)
            self.changes.append(f"{member.name} is killed")

    def bodies(self) -> set[str]:
        return {str(one["body"]) for member in self.all for one in list(member.taken)}


def life(version: str, directory: Path, seconds: float, kind: str) -> dict[str, Any]:
    """Live, and return what was seen."""
    crowd = Crowd(directory, kind, random.Random(seconds))
    counts = [0] * QUEUES
    with cluster(version, directory), rmqtool.connect(ADDRESS) as client:
        client.topic("create", TOPIC, queues=QUEUES)
        wait_for_route(client)
        try:
            with client.producer(timeout=30) as producer:

                def send(until: float, period: float) -> None:
                    while time.monotonic() < until:
                        for queue in range(QUEUES):
                            producer.send(TOPIC, f"{queue}:{counts[queue]}", queue=queue)
                            counts[queue] += 1
                        time.sleep(period)

                crowd.join(True)
                crowd.join(False)
                end = time.monotonic() + seconds
                while time.monotonic() < end:
                    send(min(time.monotonic() + _CHANGE, end), _PERIOD)
                    crowd.change()
                while len(crowd.here) < 2:
                    crowd.join(not crowd.here)
                send(time.monotonic() + _SETTLE, _PERIOD)
                wait_for(lambda: len(crowd.bodies()) == sum(counts), "messages miss")
                stable = sum(counts)
                for number in range(STABLE):
                    producer.send(TOPIC, f"s{number % QUEUES}:{number // QUEUES}", queue=number % QUEUES)
            wait_for(lambda: len(crowd.bodies()) == stable + STABLE, "messages of the stable time miss")
            time.sleep(5)
            for member in crowd.here:
                member.stop()
        finally:
            for member in crowd.all:
                member.kill()
    taken = [{**one, "member": member.name} for member in crowd.all for one in member.taken]
    return {"counts": counts, "taken": taken, "changes": crowd.changes, "killed": crowd.killed}


if __name__ == "__main__":
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    Path(sys.argv[2]).mkdir(parents=True)
    seen = life(sys.argv[1], Path(sys.argv[2]), float(sys.argv[4]), sys.argv[5])
    Path(sys.argv[3]).write_text(json.dumps(seen))
