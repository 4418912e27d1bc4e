"""Dead letters of a Java group at a real broker, edited and sent again: over the wire, then into the broker's files.

    unshare -Urn python -m tests.conformance.live_dead_letters VERSION DIRECTORY OUT

What is written to OUT is judged by ``test_dead_letters``.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import rmqtool
from tests.conformance.client_programs import java_program
from tests.conformance.live_cluster import ADDRESS, NAMES, TOPIC, cluster, printed, wait_for_broker, wait_for_route
from tests.conformance.live_outage import restart

GROUP, LETTERS = "Billing", 5


def member(version: str, home: Path, part: str) -> list[dict[str, Any]]:
    """Let a Java member of the group refuse or take the stored messages; return those that it got, by body."""
    command, _ = java_program("RefusingMember", version, home, "-Xmx256m", "-XX:+UseSerialGC")
    words = [*command, NAMES, TOPIC, GROUP, part, str(LETTERS)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=180, check=True)
    return sorted(map(json.loads, done.stdout.splitlines()), key=lambda one: str(one["body"]))


def edited(lines: str) -> str:
    """Return the dead letters with other bodies in two of them, and a property of our own in one."""
    letters = sorted(map(json.loads, lines.splitlines()), key=lambda one: str(one["keys"]))
    for letter in letters[:2]:
        letter["body"] += ", mended"
    letters[0]["properties"]["mended"] = "by hand"
    return "".join(json.dumps(letter) + "\n" for letter in letters)


def life(version: str, directory: Path) -> dict[str, Any]:
    """Live, and return what was seen."""
    seen: dict[str, Any] = {}
    running: list[subprocess.Popen[bytes]] = []
    file = directory / "letters"
    with cluster(version, directory, running) as store:
        with rmqtool.connect(ADDRESS) as client:
            client.topic("create", TOPIC, queues=8)
            wait_for_route(client)
            with client.producer(group="Sellers", timeout=20) as producer:
                for number in range(LETTERS):
                    more = {"properties": {"customer": f"c{number}"}} if number else {"flag": 7}
                    producer.send(TOPIC, f"bill {number}", keys=f"k{number} all", tags="A", **more)
        seen["refused"] = member(version, directory, "refuse")
        status, letters = printed("cat", ADDRESS, "-t", f"%DLQ%{GROUP}", "--jsonl")
        file.write_text(edited(letters))
        seen["letters"] = [status, len(letters.splitlines())]
        seen["sent"] = [printed("produce", ADDRESS, "--replay", "-g", GROUP, "--jsonl", file)]
        seen["live"] = member(version, directory, "take")
        # The broker is stopped for the second half: files can only be written while no broker has them.
        running[1].terminate()
        running[1].wait(60)
        seen["sent"] += [printed("produce", store, "--replay", "-g", GROUP, "--keep-ids", "--jsonl", file)]
        restart(running)
        wait_for_broker()
        time.sleep(1)
        seen["files"] = member(version, directory, "take")
    return seen


if __name__ == "__main__":
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    Path(sys.argv[2]).mkdir(parents=True)
    Path(sys.argv[3]).write_text(json.dumps(life(sys.argv[1], Path(sys.argv[2]))))
