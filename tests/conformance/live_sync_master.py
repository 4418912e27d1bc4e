"""A real SYNC_MASTER and a mirror, in a network of its own; started by ``test_sync_masters``.

    unshare -Urn python -m tests.conformance.live_sync_master VERSION DIRECTORY OUT

The same messages are sent without a mirror, beside one that acknowledges nothing, beside one that acknowledges what is
durable, beside the same one with a slow disk, and while its disk fails: each sync fails from that moment on.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import rmqtool
from tests.conformance.live_cluster import ADDRESS, TOPIC, cluster, wait_for_route

MESSAGES, PATIENCE = 40, 30
# Seconds that a sync takes on the slow disk.
SLOW = 1.0


def sent(client: rmqtool.Cluster) -> list[tuple[str, float]]:
    """Send messages; return what the producer was told of each, and after how many seconds."""
    with client.producer(group="P", timeout=20) as producer:
        began = time.monotonic()
        futures = [producer.send_async(TOPIC, b"x" * 2_000, keys=f"k{number}") for number in range(MESSAGES)]
        return [(one.result(60).status, time.monotonic() - began) for one in futures]


def mirror(directory: Path, acknowledged: str) -> subprocess.Popen[bytes]:
    """Start the mirror, and return when it is connected."""
    lines, words = directory / f"lines-{acknowledged}", ("--ack", acknowledged, "--jsonl")
    with lines.open("wb") as out, (directory / "errors").open("ab") as errors:
        command = [sys.executable, "-m", "rmqtool", "mirror", ADDRESS, str(directory / "mirror"), *words]
        started = subprocess.Popen(command, stdout=out, stderr=errors)
    wait_until(lambda: b'"connected"' in lines.read_bytes())
    time.sleep(1)
    return started


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.05)


def injected(process: subprocess.Popen[bytes], directory: Path, what: str) -> subprocess.Popen[bytes]:
    """Change what ``fdatasync`` does in a process, from now on."""
    said = directory / "strace"
    words = ("-f", "-p", str(process.pid), "-e", "trace=fdatasync", "-e", f"inject=fdatasync:{what}", "-o", "/dev/null")
    with said.open("wb") as out:
        tracing = subprocess.Popen(["strace", *words], stderr=out)
    wait_until(lambda: b"attached" in said.read_bytes())
    return tracing


def life(version: str, directory: Path) -> dict[str, Any]:
    """Live, and return what was seen."""
    seen: dict[str, Any] = {}
    settings = "brokerRole=SYNC_MASTER\ninSyncReplicas=2\n"
    with cluster(version, directory, more=settings), rmqtool.connect(ADDRESS) as client:
        client.topic("create", TOPIC, queues=8)
        wait_for_route(client)
        seen["alone"] = sent(client)
        running = mirror(directory, "never")
        seen["never"] = sent(client)
        running.terminate()
        seen["status of never"] = running.wait(PATIENCE)
        time.sleep(1)
        running = mirror(directory, "durable")
        seen["durable"] = sent(client)
        tracing = injected(running, directory, f"delay_enter={SLOW * 1e6:.0f}")
        seen["slow"] = sent(client)
        tracing.terminate()
        tracing.wait(PATIENCE)
        tracing = injected(running, directory, "error=EIO")
        seen["failing"] = sent(client)
        seen["status of failing"] = running.wait(PATIENCE)
        tracing.wait(PATIENCE)
    seen["notes"] = (directory / "lines-never").read_text()
    seen["errors"] = (directory / "errors").read_text()
    return seen


if __name__ == "__main__":
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    Path(sys.argv[3]).write_text(json.dumps(life(sys.argv[1], Path(sys.argv[2]))))
