"""A real broker as a slave of ``serve``, in a network of its own; started by ``test_slaves``.

unshare -Urn python -m tests.conformance.live_slave VERSION DIRECTORY OUT
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import rmqtool
from tests.conformance.live_cluster import ADDRESS, NAMES, SETTINGS, TOPIC, java
from tests.conformance.oracle.packages import prepare

SECONDS = 75
SIZES = {"mappedFileSizeCommitLog": "67108864", "mappedFileSizeConsumeQueue": "600000"}


def life(version: str, directory: Path) -> dict[str, Any]:
    """Live, and return what was seen."""
    seen: dict[str, Any] = {}
    home, master, store = directory / "home", directory / "master", directory / "store"
    (home / "conf").mkdir(parents=True)
    for name in ("namesrv", "broker", "tools"):
        shutil.copy(prepare(version) / "logback.xml", home / "conf" / f"logback_{name}.xml")
    conf = directory / "slave.conf"
    settings = SETTINGS.replace("listenPort=10911", "listenPort=20911")
    conf.write_text(
        f"{settings}brokerId=1\nbrokerRole=SLAVE\nhaListenPort=20912\n"
        f"storePathRootDir={store}\nstorePathCommitLog={store}/commitlog\n"
    )
    rmqtool.init(master, version=version[:3], conf={**SIZES, "brokerName": "broker-a", "brokerIP1": "127.0.0.1"})
    words = ("serve", str(master), "--names", NAMES, "--slaves", "127.0.0.1:10912", "--jsonl")
    with (directory / "out").open("wb") as out, (directory / "slave.log").open("wb") as log:
        server = subprocess.Popen([sys.executable, "-m", "rmqtool", *words], stdout=out, stderr=out)
        try:
            while b"ready" not in (directory / "out").read_bytes():
                time.sleep(0.05)
            slave = subprocess.Popen(
                java(version, home, "org.apache.rocketmq.broker.BrokerStartup", "-c", str(conf)), stdout=log, stderr=log
            )
            try:
                with rmqtool.connect(ADDRESS) as client:
                    client.topic("create", TOPIC, queues=4)
                    with client.producer(timeout=20) as producer:
                        sent = [producer.send(TOPIC, b"%d" % number * 100) for number in range(2_000)]
                        seen["sent"] = sum(one.status == "PUT_OK" for one in sent)
                    time.sleep(SECONDS)
                    seen["addresses"] = client.info()["brokers"]["broker-a"]["addresses"]
            finally:
                slave.terminate()
                slave.wait(60)
        finally:
            server.terminate()
            seen["status"] = server.wait(60)
    ends = rmqtool.info(str(master))["commitLog"]["maxOffset"]
    seen["log"] = []
    for path in sorted((master / "commitlog").iterdir()):
        size = ends - int(path.name)
        other = store / "commitlog" / path.name
        if size > 0:
            seen["log"].append(path.read_bytes()[:size] == other.read_bytes()[:size])
    seen["queues"] = [queue_of(root) for root in (master, store)]
    seen["topics"] = [sorted(one["topic"] for one in rmqtool.topics(str(root))) for root in (master, store)]
    seen["errors"] = [line for line in (directory / "slave.log").read_text().splitlines() if " ERROR " in line]
    seen["events"] = (directory / "out").read_text()
    return seen


def queue_of(root: Path) -> list[int]:
    """Return the number of entries of each queue of the topic."""
    queues = rmqtool.info(str(root))["topics"].get(TOPIC, {"queues": {}})["queues"]
    return [queues[queue]["maxOffset"] for queue in sorted(queues)]


if __name__ == "__main__":
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    Path(sys.argv[3]).write_text(json.dumps(life(sys.argv[1], Path(sys.argv[2]))))
