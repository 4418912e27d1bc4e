"""Spark on two executors reads a real broker: once as a table, then as a stream among kills; in a network of its own.

    unshare -Urn python -m tests.conformance.live_spark read VERSION DIRECTORY OUT MESSAGES
    unshare -Urn python -m tests.conformance.live_spark stream VERSION DIRECTORY OUT ROUNDS

What is written to OUT is judged by ``test_client_spark``.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import rmqtool
from rmqtool.client.producer import SendUnknown
from tests.conformance.live_cluster import ADDRESS, QUEUES, TOPIC, cluster, wait_for_broker, wait_for_route
from tests.conformance.live_kinds import send_kinds
from tests.conformance.live_outage import restart
from tests.spark import standalone

_HERE = "127.0.0.1"
_SPARK = {
    "spark.executor.memory": "512m",
    "spark.driver.memory": "1g",
    "spark.driver.host": _HERE,
    "spark.driver.bindAddress": _HERE,
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.adaptive.enabled": "false",
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BATCH = 200
# In seconds: for each thing that is waited for, on a machine with other work.
_PATIENCE = 600
# Messages are deleted when their file is three days old; the broker looks each second, at any hour.
_RETENTION = f"mappedFileSizeCommitLog=262144\ndeleteWhen={';'.join(f'{hour:02}' for hour in range(24))}\n"
_RETENTION += "cleanResourceInterval=1000\nfileReservedTime=72\n"
_OLD = 4 * 24 * 3600


def session(url: str, log: Any) -> Any:
    """Return a session on the standalone cluster."""
    from rmqtool.spark import session as spark_session

    os.environ["SPARK_LOCAL_IP"] = _HERE
    return spark_session(url, _SPARK, log=log)


# Once, as a table.


async def _fill(many: int) -> int:
    """Send plain messages in batches; return how many."""
    count = 0
    async with rmqtool.connect_async(ADDRESS) as client, client.producer(timeout=60) as producer:
        gate = asyncio.Semaphore(4)

        async def send(number: int) -> None:
            bodies = [f"{number + part} {'x' * (part % 90)}" for part in range(_BATCH)]
            more = {"tags": f"t{number % 3}", "keys": f"k{number}"} if number % 5 else {}
            found = await producer.send_batch(TOPIC, bodies, **more)
            assert len(found) == _BATCH
            gate.release()

        async with asyncio.TaskGroup() as tasks:
            for number in range(0, many, _BATCH):
                await gate.acquire()
                tasks.create_task(send(number))
                count += _BATCH
    return count


def load(url: str, to: str) -> None:
    """Read the topic on the executors of a cluster, and have them write it as Parquet."""
    with tempfile.TemporaryFile() as log:
        spark = session(url, log)
        frame = spark.read.format("rocketmq").option("cluster", ADDRESS).option("topic", TOPIC).load()
        print(frame.count())
        frame.write.parquet(to)
        spark.stop()


def read(version: str, directory: Path, many: int) -> dict[str, Any]:
    """Fill a broker, read it both ways, and return what was seen."""
    seen: dict[str, Any] = {}
    work = directory / "spark"
    with cluster(version, directory):
        with rmqtool.connect(ADDRESS, timeout=20) as client:
            client.topic("create", TOPIC, queues=QUEUES)
            wait_for_route(client)
            seen["sent"] = send_kinds(client, min(many // 10, 20_000), timers=True)
        seen["sent"] += asyncio.run(_fill(many - seen["sent"] + _BATCH))
        time.sleep(10)
        lines = directory / "cat"
        with lines.open("wb") as out:
            words = [sys.executable, "-m", "rmqtool", "cat", ADDRESS, "-t", TOPIC, "--jsonl"]
            begun = time.monotonic()
            seen["cat"] = subprocess.run(words, stdout=out, check=False).returncode
            seen["cat seconds"] = time.monotonic() - begun
        work.mkdir()
        with standalone.cluster(work) as url:
            begun = time.monotonic()
            words = [sys.executable, "-m", __spec__.name, "load", url, str(directory / "table")]
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            seen["count"], seen["errors"] = done.stdout, done.stderr[-3000:] if done.returncode else ""
            seen["spark seconds"] = time.monotonic() - begun
        logs = [path.read_text(errors="replace") for path in work.glob("work-*/app-*/*/stderr")]
        seen["tasks"] = [len(set(re.findall(r"Finished task \S+ in stage \S+", log))) for log in logs]
    return seen | _compared(lines, directory / "table")


def _compared(lines: Path, table: Path) -> dict[str, Any]:
    """Return how many lines of ``cat`` are rows of the table, in the order of the log, and the first that differ."""
    rows = pq.read_table(table)
    order = pc.sort_indices(rows["commitlog_offset"])
    same, different = 0, []
    with lines.open(encoding="utf-8") as read:
        for first in range(0, len(order), 20_000):
            for row in rows.take(order[first : first + 20_000]).to_pylist():
                line = read.readline()
                expected = _row(json.loads(line)) if line else {}
                if row == expected:
                    same += 1
                elif len(different) < 3:
                    different.append([str(row), str(expected)])
        left = sum(1 for _ in read)
    return {"rows": rows.num_rows, "same": same, "different": different, "left": left}


def _row(line: dict[str, Any]) -> dict[str, Any]:
    """Return a line of ``cat`` as the row of Spark that it must be."""
    body = line["body"].encode() if line["bodyEncoding"] == "utf8" else base64.b64decode(line["body"])
    return {
        "topic": line["topic"],
        "queue_id": line["queueId"],
        "queue_offset": line["queueOffset"],
        "commitlog_offset": line["commitLogOffset"],
        "store_size": line["storeSize"],
        "store_timestamp": _EPOCH + timedelta(milliseconds=line["storeTimestamp"]),
        "born_timestamp": _EPOCH + timedelta(milliseconds=line["bornTimestamp"]),
        "born_host": line["bornHost"],
        "store_host": line["storeHost"],
        "tags": line["tags"],
        "keys": line["keys"],
        "msg_id": line["uniqKey"],
        "body": body,
        "body_codec": line["bodyCodec"],
        "properties": [*line["properties"].items()],
        "sys_flag": line["sysFlag"],
        "flag": line["flag"],
        "body_crc": line["bodyCRC"],
        "reconsume_times": line["reconsumeTimes"],
        "prepared_transaction_offset": line["preparedTransactionOffset"],
        "offset_msg_id": line["offsetMsgId"],
        "broker": "broker-a",
    }


# As a stream.


def follow(url: str, to: str, checkpoint: str, until: str = "", loss: str = "true") -> None:
    """Follow the topic until somebody ends this process, or up to the end that it has at the start."""
    with tempfile.TemporaryFile() as log:
        spark = session(url, log)
        spark.sparkContext.setLogLevel("ERROR")
        options = {"cluster": ADDRESS, "topic": TOPIC, "maxOffsetsPerTrigger": "1500", "failOnDataLoss": loss}
        messages = spark.readStream.format("rocketmq").options(**options, minPartitions="4").load()
        kept = messages.select("keys", "queue_id", "queue_offset", "commitlog_offset")
        writer = kept.writeStream.format("parquet").option("path", to).option("checkpointLocation", checkpoint)
        writer = writer.trigger(availableNow=True) if until else writer.trigger(processingTime="0 seconds")
        try:
            writer.start().awaitTermination()
        except Exception as error:
            print(f"ended: {error}", flush=True)
            raise SystemExit(3) from None
        finally:
            spark.stop()


class Writer:
    """Sends numbered messages until it is stopped, in a thread; keys by what was said of them."""

    def __init__(self) -> None:
        self.stored: list[str] = []
        self.unknown: list[str] = []
        self.refused: list[str] = []
        self._number = 0
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._send()))
        self._thread.start()

    async def _send(self) -> None:
        async with rmqtool.connect_async(ADDRESS) as client, client.producer(timeout=90) as producer:

            async def send(number: int) -> None:
                try:
                    await producer.send(TOPIC, "x" * 100, keys=f"k{number}")
                    self.stored.append(f"k{number}")
                except SendUnknown:
                    self.unknown.append(f"k{number}")
                except rmqtool.RmqtoolError:
                    # A broker that starts is busy for some time.
                    self.refused.append(f"k{number}")

            async with asyncio.TaskGroup() as tasks:
                while not self._is_stopped.is_set():
                    for _ in range(20):
                        tasks.create_task(send(self._number))
                        self._number += 1
                    await asyncio.sleep(0.1)

    def stop(self) -> None:
        self._is_stopped.set()
        self._thread.join()


class Lake:
    """What the query has written, and the query."""

    def __init__(self, url: str, directory: Path) -> None:
        self.url, self.directory = url, directory
        self.to, self.checkpoint = directory / "lake", directory / "checkpoint"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Follow the topic in a process of its own, with all that it starts."""
        self.process = self._begin()

    def _begin(self, *words: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", __spec__.name, "follow", self.url, str(self.to), str(self.checkpoint), *words]
        with (self.directory / "driver").open("ab") as out:
            return subprocess.Popen(command, stdout=out, stderr=out, process_group=0)

    def kill(self) -> None:
        """End the driver, its JVM, and the processes beside it at once."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def catch_up(self, loss: str = "true") -> tuple[int, str]:
        """Run the query up to the present end of the topic; return its status and its last words."""
        status = self._begin("now", loss).wait(_PATIENCE)
        said = (self.directory / "driver").read_text(errors="replace").rpartition("ended: ")[2]
        return status, said[:20_000]

    def rows(self) -> pa.Table:
        """Return what was committed: files of tasks that were killed are not."""
        schema = pa.schema([("keys", pa.string()), *((name, pa.int64()) for name in _NUMBERS)])
        return pa.concat_tables([schema.empty_table(), *map(_rows_of, self._files())])

    def _files(self) -> Iterator[str]:
        logs = {int(path.name.partition(".")[0]): path for path in (self.to / "_spark_metadata").glob("[0-9]*")}
        compacted = max((number for number, path in logs.items() if path.suffix), default=-1)
        for number, path in sorted(logs.items()):
            if number >= compacted:
                for line in path.read_text().splitlines()[1:]:
                    yield json.loads(line)["path"].removeprefix("file://")

    def wait_for(self, what: str, is_so: Callable[[], bool]) -> None:
        until = time.monotonic() + _PATIENCE
        while not is_so():
            ended = self.process is not None and self.process.poll() is not None
            if ended or time.monotonic() > until:
                said = (self.directory / "driver").read_text(errors="replace")[-3000:]
                raise TimeoutError(f"{what}: {'the query ended' if ended else 'it takes too long'}\n{said}")
            time.sleep(0.5)

    def wait_for_more(self, what: str) -> None:
        """Wait until the query has committed messages that come from now on."""
        begin = self.rows().num_rows
        self.wait_for(what, lambda: self.rows().num_rows > begin + 300)


_NUMBERS = ("queue_id", "queue_offset", "commitlog_offset")


@cache
def _rows_of(path: str) -> pa.Table:
    table = pq.read_table(path)
    return pa.table([table["keys"], *(table[name].cast(pa.int64()) for name in _NUMBERS)], ["keys", *_NUMBERS])


def kill_executor() -> int:
    """Kill the JVMs of one executor or more; return how many there were."""
    found = 0
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if b"CoarseGrainedExecutorBackend" in path.read_bytes():
                found += 1
                if found == 1:
                    os.kill(int(path.parent.name), signal.SIGKILL)
    return found


def make_old(store: Path, before: int) -> int:
    """Let the files of the log before a physical offset be four days old; return the end of the last of them."""
    paths = sorted((store / "commitlog").glob("[0-9]*"))
    old = [path for path, following in pairwise(paths) if int(following.name) <= before]
    then = time.time() - _OLD
    for path in old:
        os.utime(path, (then, then))
    return int(paths[len(old)].name)


def least_offset(store: Path) -> int:
    return min((int(path.name) for path in (store / "commitlog").glob("[0-9]*")), default=0)


def read_up_to(rows: pa.Table) -> int:
    """Return the physical offset before which everything was read."""
    last: Counter[int] = Counter()
    for queue, offset in zip(rows["queue_id"].to_pylist(), rows["commitlog_offset"].to_pylist(), strict=True):
        last[queue] = max(last[queue], offset)
    return min(last.values()) if len(last) == QUEUES else 0


def stream(version: str, directory: Path, rounds: int) -> dict[str, Any]:
    """Follow a topic through kills, restarts and retention, and return what was seen."""
    seen: dict[str, Any] = {"executors": [], "deleted": []}
    running: list[subprocess.Popen[bytes]] = []
    work = directory / "spark"
    work.mkdir(parents=True)
    with cluster(version, directory, running, _RETENTION) as store, standalone.cluster(work) as url:
        with rmqtool.connect(ADDRESS) as client:
            client.topic("create", TOPIC, queues=QUEUES)
            wait_for_route(client)
        lake, writer = Lake(url, directory), Writer()
        try:
            lake.start()
            for number in range(rounds):
                lake.wait_for_more(f"round {number}, after the driver's start")
                restart(running)
                lake.wait_for_more(f"round {number}, after a killed broker")
                end = make_old(store, read_up_to(lake.rows()))
                lake.wait_for(f"round {number}, retention", lambda end=end: least_offset(store) >= end)
                seen["deleted"].append(end)
                lake.wait_for_more(f"round {number}, after retention")
                seen["executors"].append(kill_executor())
                lake.wait_for_more(f"round {number}, after a killed executor")
                running[1].terminate()
                running[1].wait(60)
                restart(running)
                lake.wait_for_more(f"round {number}, after a broker that was stopped")
                lake.kill()
                lake.start()
        finally:
            writer.stop()
            if lake.process is not None:
                lake.kill()
        wait_for_broker()
        seen["last"] = lake.catch_up()
        seen |= {
            "stored": writer.stored,
            "unknown": writer.unknown,
            "not stored": writer.refused,
            "rows": _listed(lake.rows()),
        }
        seen |= lose(store, lake)
    return seen


def lose(store: Path, lake: Lake) -> dict[str, Any]:
    """Let the broker delete messages that nobody has read; return what the query says, and what it reads after it."""
    before = lake.rows().num_rows
    asyncio.run(_fill(20_000))
    with rmqtool.connect(ADDRESS) as client:
        end = make_old(store, rmqtool.info(store)["commitLog"]["maxOffset"])
        lake.process = None
        lake.wait_for("retention at the end", lambda: least_offset(store) >= end)
        # Queues begin after what was deleted when the broker has looked at them too.
        lake.wait_for("queues begin later", lambda: _begins(client) == _begins(client, 3))
        refused = lake.catch_up()
        went_on = lake.catch_up("false")
        left = sorted([one["queueId"], one["queueOffset"]] for one in client.scan(topics=TOPIC))
    rows = _listed(lake.rows())
    return {"refused": refused, "went on": went_on, "left": left, "before": before, "all": rows}


def _begins(client: rmqtool.Cluster, pause: float = 0.0) -> list[int]:
    time.sleep(pause)
    return [queue["minOffset"] for queue in client.info()["topics"][TOPIC]["queues"].values()]


def _listed(rows: pa.Table) -> list[list[Any]]:
    return [[row["keys"], row["queue_id"], row["queue_offset"]] for row in rows.to_pylist()]


if __name__ == "__main__":
    what, *words = sys.argv[1:]
    if what == "load":
        load(*words)
    elif what == "follow":
        follow(*words)
    else:
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        life = {"read": read, "stream": stream}[what]
        Path(words[2]).write_text(json.dumps(life(words[0], Path(words[1]), int(words[3]))))
