"""The same history at a real broker and at ``serve``, and what mqadmin prints of it, in a network of its own.

    unshare -Urn python -m tests.conformance.live_mqadmin TOOLS BROKER DIRECTORY OUT

The lines of ``mqadmin_commands`` are run with the mqadmin of the version TOOLS, first at a real broker of the version
BROKER, then at ``serve``; both have the same addresses. What is written to OUT is judged by ``test_mqadmin_screens``.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.conformance.live_cluster import NAMES, cluster
from tests.conformance.mqadmin_commands import lines_for, run_commands
from tests.conformance.serving import serve

BROKER = "127.0.0.1:10911"
_TOPICS = '[{"topicName":"Listed","readQueueNums":2,"writeQueueNums":2,"perm":6}]'


def screens(tools: str, home: Path) -> list[tuple[str, str]]:
    """Run all lines; return each with what it printed."""
    home.mkdir()
    (home / "topics.json").write_text(_TOPICS)
    (home / "groups.json").write_text('[{"groupName":"ListedGroup"}]')
    # Upstream writes bodies to a place that no option changes.
    bodies = Path("/tmp/rocketmq")
    bodies.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "none", bodies], check=True)
    lines = lines_for(tools)
    given = (line.replace("BROKER", BROKER).replace("HOME", str(home)) for line in lines)
    return list(zip(lines, run_commands(tools, home, NAMES, given), strict=True))


def compare(tools: str, version: str, directory: Path) -> dict[str, list[tuple[str, str]]]:
    """Return what mqadmin prints at the real broker and at ours."""
    with cluster(version, directory / "cluster"):
        real = screens(tools, directory / "real")
    home = directory / "served"
    home.mkdir()
    own = ("brokerName=broker-a", "messageDelayLevel=1s 2s 5s", "deleteWhen=99", "diskMaxUsedSpaceRatio=95")
    settings = ["--as", version[:3], *(word for setting in own for word in ("--conf", setting))]
    with serve(home, "--names", NAMES, "--listen", BROKER, *settings, "--allow", "admin"):
        return {"real": real, "served": screens(tools, directory / "ours")}


if __name__ == "__main__":
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    Path(sys.argv[3]).mkdir(parents=True)
    Path(sys.argv[4]).write_text(json.dumps(compare(sys.argv[1], sys.argv[2], Path(sys.argv[3]))))
