"""A life of our client with a real name server and broker, in a network of its own; started by ``test_client_cluster``.

    unshare -Urn python -m tests.conformance.live_cluster VERSION DIRECTORY OUT [MESSAGES]

Brokers listen at all addresses of their machine, so they get a network that has the loopback interface and nothing
else. What is written to OUT is judged by the test.
"""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import rmqtool
from rmqtool.cli import main as rmqtool_main
from tests.conformance.mqadmin_commands import run_commands
from tests.conformance.oracle.packages import _OPENED, prepare

NAMES = "127.0.0.1:9876"
# A 4.9 broker has queues of them, and settings of the first one only after a minute: no client can read them before.
UNLISTED = ("RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC")
ADDRESS = f"rocketmq://{NAMES}"
TOPIC, QUEUES, MESSAGES = "Orders", 8, 8_000
SETTINGS = """brokerClusterName=DefaultCluster
brokerName=broker-a
brokerIP1=127.0.0.1
listenPort=10911
namesrvAddr=127.0.0.1:9876
mappedFileSizeCommitLog=67108864
mappedFileSizeConsumeQueue=600000
deleteWhen=99
diskMaxUsedSpaceRatio=95
autoCreateTopicEnable=true
messageDelayLevel=1s 2s 5s
"""


def java(version: str, home: Path, program: str, *words: str) -> list[str]:
    """Return the command line of one of upstream's programs."""
    oracle = prepare(version)
    properties = {
        "user.home": home,
        "java.io.tmpdir": home,
        "rocketmq.home.dir": home,
        "logback.configurationFile": oracle / "logback.xml",
        "rmq.logback.configurationFile": oracle / "logback.xml",
        "rocketmq.client.logUseSlf4j": "true",
        "user.timezone": "UTC",
    }
    named = [f"-D{name}={value}" for name, value in properties.items()]
    classes = ["-cp", f"{oracle}/classes:{oracle}/lib/*"]
    return ["java", "-Xmx768m", "-XX:+UseSerialGC", *_OPENED, *named, *classes, program, *words]


@contextlib.contextmanager
def cluster(
    version: str, directory: Path, running: list[subprocess.Popen[bytes]] | None = None, more: str = ""
) -> Iterator[Path]:
    """Start a name server and a broker; give the broker's store. ``running`` gets both processes."""
    running = [] if running is None else running
    home, store = directory / "home", directory / "store"
    (home / "conf").mkdir(parents=True)
    for name in ("namesrv", "broker", "tools"):
        # 4.9 starts only with these.
        shutil.copy(prepare(version) / "logback.xml", home / "conf" / f"logback_{name}.xml")
    conf = directory / "broker.conf"
    conf.write_text(f"{SETTINGS}{more}storePathRootDir={store}\nstorePathCommitLog={store}/commitlog\n")
    names_conf = directory / "names.conf"
    names_conf.write_text("listenPort=9876\n")
    programs = (
        java(version, home, "org.apache.rocketmq.namesrv.NamesrvStartup", "-c", str(names_conf)),
        java(version, home, "org.apache.rocketmq.broker.BrokerStartup", "-c", str(conf)),
    )
    with (directory / "out").open("wb") as out:
        try:
            for program in programs:
                running.append(subprocess.Popen(program, stdout=out, stderr=out))
                time.sleep(1)
            wait_for_broker()
            yield store
        finally:
            for process in reversed(running):
                process.terminate()
            for process in running:
                process.wait(60)


def wait_for_broker(names: str = NAMES) -> None:
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        with contextlib.suppress(rmqtool.RmqtoolError), rmqtool.connect(f"rocketmq://{names}") as client:
            if client.topics():
                return
        time.sleep(0.5)
    raise TimeoutError("the broker did not register in 90 s")


def printed(*words: object) -> tuple[int, str]:
    """Run a command and return its status and output."""
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with contextlib.redirect_stdout(out):
        status = rmqtool_main([str(word) for word in words])
    out.flush()
    assert isinstance(out.buffer, io.BytesIO)
    return status, out.buffer.getvalue().decode()


def send_all(client: rmqtool.Cluster, many: int) -> int:
    """Send messages of every kind, and return how many."""
    count = 0
    with client.producer(group="P", timeout=20) as producer:
        futures = []
        for number in range(many):
            body = bytes(range(256)) * (number % (40 if number < MESSAGES else 3)) + b"%d" % number
            parts = {
                "keys": f"key-{number}",
                "tags": f"tag{number % 3}",
                "properties": {"n": str(number), "é": "ü 汉字"},
            }
            futures.append(producer.send_async(TOPIC, body, **parts if number % 5 else {}))
            count += 1
            if len(futures) >= 1000:
                for one in futures:
                    assert one.result(30).status == "PUT_OK"
                futures.clear()
        for one in futures:
            assert one.result(30).status == "PUT_OK"
        for number in range(100):
            assert len(producer.send_batch(TOPIC, [f"b{number}-{part}" for part in range(20)], tags="batch")) == 20
            count += 20
        ordered = [producer.send(TOPIC, f"o{number}", sharding_key="customer-7") for number in range(20)]
        assert len({one.queue_id for one in ordered}) == 1
        assert [one.queue_offset for one in ordered] == sorted(one.queue_offset for one in ordered)
        producer.send(TOPIC, "later", delay_level=1)
        count += 21
    for outcome in ("commit", "rollback"):
        status, _ = printed("produce", ADDRESS, "-t", TOPIC, f"tx {outcome}", "--tx", outcome, "-g", "P")
        assert status == 0
        count += outcome == "commit"
    return count


def shown_by_mqadmin(version: str, home: Path, topics: list[str]) -> dict[str, str]:
    """Return what mqadmin shows of the broker, its topics and its groups."""
    lines = ["clusterList", "topicList", "consumerProgress", "consumerProgress -g Half"]
    lines += [f"topicStatus -t {topic}" for topic in topics]
    return dict(zip(lines, run_commands(version, home, NAMES, lines), strict=True))


def write_groups(version: str, store: Path) -> None:
    """Write groups into a new store, for the broker to read at its start."""
    sizes = {"mappedFileSizeCommitLog": "67108864", "mappedFileSizeConsumeQueue": "600000"}
    rmqtool.init(store, version=version[:3], conf=sizes)
    rmqtool.group(store, "create", "Written", {"retryMaxTimes": 3, "consumeBroadcastEnable": False})
    rmqtool.group(store, "create", "Deleted")
    rmqtool.group(store, "delete", "Deleted")


def exported(store: Path, directory: Path) -> list[int]:
    """Export the topic from the broker and from its files; return the rows of both, and how many are the same."""
    targets = directory / "live", directory / "files"
    for place, target, more in ((ADDRESS, targets[0], ()), (store, targets[1], ("--engine", "local"))):
        status, _ = printed("export", place, "-t", TOPIC, "--to", target, *more)
        assert status == 0
    live, files = (pq.read_table(target).drop_columns("broker") for target in targets)
    same = sum(one == other for one, other in zip(live.to_pylist(), files.to_pylist(), strict=False))
    return [live.num_rows, files.num_rows, same]


def life(version: str, directory: Path, many: int = MESSAGES) -> dict[str, Any]:
    """Live, and return what was seen."""
    seen: dict[str, Any] = {}
    write_groups(version, directory / "store")
    with cluster(version, directory) as store:
        with rmqtool.connect(ADDRESS) as client:
            seen["groups"] = client.groups()
            client.group("alter", "Written", {"retryMaxTimes": 5})
            client.topic("create", TOPIC, queues=QUEUES)
            wait_for_route(client)
            seen["sent"] = send_all(client, many)
            taken = printed("consume", ADDRESS, "-g", "Half", "-t", TOPIC, "-n", many // 2, "--commit", "--jsonl")
            seen["taken"] = [taken[0], taken[1].count("\n")]
            time.sleep(3)
            seen["info"] = client.info()
            hidden = [f'"topic": "{one}"' for one in UNLISTED if one not in seen["info"]["topics"]]
            message = next(iter(client.scan(topics=TOPIC, tags="tag1", limit=1)))
            asked = (message["offsetMsgId"], message["uniqKey"], message["keys"], f"@{message['commitLogOffset']}")
            seen["found"] = [
                message["commitLogOffset"] in [one["commitLogOffset"] for one in client.query(str(what))["messages"]]
                for what in asked
            ]
            # The broker writes its table at each change, and we read it beside.
            seen["altered"] = rmqtool.groups(store)["Written"]["retryMaxTimes"]
        seen["mqadmin"] = shown_by_mqadmin(version, directory / "tools", list(seen["info"]["topics"]))
        begun = time.monotonic()
        status, found = printed("cat", ADDRESS, "--jsonl")
        seen["seconds"] = time.monotonic() - begun
        expected_status, expected = printed("cat", store, "--jsonl")
        seen["statuses"] = [status, expected_status]
        seen["hidden"] = len(hidden)
        lines = found.splitlines()
        wanted = [line for line in expected.splitlines() if not any(one in line for one in hidden)]
        seen["lines"] = len(lines)
        seen["topic"] = sum(f'"topic": "{TOPIC}"' in line for line in lines)
        # The broker's own services go on writing while both are read.
        seen["same"] = lines == wanted[: len(lines)]
        seen["different"] = [pair for pair in zip(lines, wanted, strict=False) if pair[0] != pair[1]][:1]
        seen["more"] = len(wanted) - len(lines)
        seen["exported"] = exported(store, directory)
    return seen


def wait_for_route(client: rmqtool.Cluster) -> None:
    for _ in range(50):
        with contextlib.suppress(rmqtool.RmqtoolError):
            if len(client.run(client.connections.routes.find(TOPIC)).write_queues) == QUEUES:
                return
        time.sleep(0.2)
    raise TimeoutError("the topic has no route")


if __name__ == "__main__":
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    Path(sys.argv[3]).write_text(json.dumps(life(sys.argv[1], Path(sys.argv[2]), *map(int, sys.argv[4:]))))
