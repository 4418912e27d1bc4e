"""A real broker as a slave of ``serve``, in a network of its own; started by ``test_slaves``.

    unshare -Urn python -m tests.conformance.live_slave VERSION DIRECTORY OUT

The server is a SYNC_MASTER: what it acknowledges, the slave has. It is killed right after the last acknowledgement, and
the slave is started again as a master.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import rmqtool
from tests.conformance.live_cluster import ADDRESS, NAMES, SETTINGS, TOPIC, java, wait_for_broker
from tests.conformance.oracle.packages import prepare

# A 5.x slave asks for topics after a minute.
SECONDS, PATIENCE = 75, 60
FIRST, LAST = 2_000, 500
SIZES = {"mappedFileSizeCommitLog": "67108864", "mappedFileSizeConsumeQueue": "600000"}
MASTER = {"brokerName": "broker-a", "brokerIP1": "127.0.0.1", "brokerRole": "SYNC_MASTER"}


@contextmanager
def process(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program, its output added to a file; end it."""
    with log.open("ab") as out:
        running = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        yield running
    finally:
        running.terminate()
        running.wait(60)


def broker(version: str, directory: Path, *more: str) -> list[str]:
    """Return the command of a real broker on the store of the slave."""
    home, store, conf = directory / "home", directory / "store", directory / "broker.conf"
    (home / "conf").mkdir(parents=True, exist_ok=True)
    for name in ("namesrv", "broker", "tools"):
        shutil.copy(prepare(version) / "logback.xml", home / "conf" / f"logback_{name}.xml")
    settings = SETTINGS.replace("listenPort=10911", "listenPort=20911")
    paths = (f"storePathRootDir={store}", f"storePathCommitLog={store}/commitlog", "haListenPort=20912")
    conf.write_text(settings + "\n".join((*paths, *more)) + "\n")
    return java(version, home, "org.apache.rocketmq.broker.BrokerStartup", "-c", str(conf))


def send(client: rmqtool.Cluster, bodies: list[str]) -> list[str]:
    """Send messages; return those whose answer said that the slave has them too."""
    with client.producer(timeout=20) as producer:
        futures = [(body, producer.send_async(TOPIC, body)) for body in bodies]
        return [body for body, future in futures if future.result(30).status == "PUT_OK"]


def serve_and_die(version: str, directory: Path, seen: dict[str, Any]) -> list[str]:
    """Serve with a slave until the server is killed; return what was acknowledged."""
    words = ("serve", str(directory / "master"), "--names", NAMES, "--slaves", "127.0.0.1:10912", "--jsonl")
    with process([sys.executable, "-m", "rmqtool", *words], directory / "out") as server:
        while b"ready" not in (directory / "out").read_bytes():
            time.sleep(0.05)
        slave = broker(version, directory, "brokerId=1", "brokerRole=SLAVE")
        with process(slave, directory / "slave.log"), rmqtool.connect(ADDRESS) as client:
            client.topic("create", TOPIC, queues=4)
            deadline = time.monotonic() + PATIENCE
            while not (accepted := send(client, ["probe"])):
                assert time.monotonic() < deadline, "no slave came"
                time.sleep(0.5)
            accepted += send(client, [f"{number}" * 100 for number in range(FIRST)])
            time.sleep(SECONDS)
            seen["addresses"] = client.info()["brokers"]["broker-a"]["addresses"]
            accepted += send(client, [f"last {number}" for number in range(LAST)])
            server.kill()
    return accepted


def promoted(version: str, directory: Path) -> list[str]:
    """Start the slave's store as a master, and return the bodies that it serves."""
    names = directory / "names.conf"
    names.write_text("listenPort=9876\n")
    server = java(version, directory / "home", "org.apache.rocketmq.namesrv.NamesrvStartup", "-c", str(names))
    with process(server, directory / "names.log"):
        time.sleep(1)
        with process(broker(version, directory, "brokerId=0", "brokerRole=ASYNC_MASTER"), directory / "promoted.log"):
            wait_for_broker()
            with rmqtool.connect(ADDRESS) as client:
                return [message["body"] for message in client.scan(topics=TOPIC)]


def life(version: str, directory: Path) -> dict[str, Any]:
    """Live, and return what was seen."""
    seen: dict[str, Any] = {}
    master, store = directory / "master", directory / "store"
    # A SYNC_MASTER of 5.x counts itself, and waits for nobody by default.
    waiting = {} if version.startswith("4") else {"inSyncReplicas": "2"}
    rmqtool.init(master, version=version[:3], conf=SIZES | MASTER | waiting)
    accepted = serve_and_die(version, directory, seen)
    seen["accepted"] = len(accepted)
    end = rmqtool.info(str(store))["commitLog"]["maxOffset"]
    seen["log"] = [
        path.read_bytes()[: end - int(path.name)]
        == (master / "commitlog" / path.name).read_bytes()[: end - int(path.name)]
        for path in sorted((store / "commitlog").iterdir())
        if end > int(path.name)
    ]
    # The server was killed: the last entries of its queues are made of its log at the next start.
    rmqtool.recover_apply(str(master))
    seen["queues"] = [same_queue(store, master, queue) for queue in range(4)]
    seen["topics"] = [sorted(one["topic"] for one in rmqtool.topics(str(root))) for root in (master, store)]
    seen["errors"] = [line for line in (directory / "slave.log").read_text().splitlines() if " ERROR " in line]
    seen["events"] = (directory / "out").read_text()
    served = promoted(version, directory)
    seen["missing"] = sorted(set(accepted) - set(served))
    seen["served"] = len(served)
    return seen


def same_queue(store: Path, master: Path, queue: int) -> int:
    """Return how many entries the slave's queue has; -1 if they are not those of the master."""
    count = rmqtool.info(str(store))["topics"][TOPIC]["queues"][str(queue)]["maxOffset"]
    ours, theirs = ((root / "consumequeue" / TOPIC / str(queue) / f"{0:020d}").read_bytes() for root in (store, master))
    return count if ours[: count * 20] == theirs[: count * 20] else -1


if __name__ == "__main__":
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    Path(sys.argv[3]).write_text(json.dumps(life(sys.argv[1], Path(sys.argv[2]))))
