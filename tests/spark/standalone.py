"""A standalone cluster on loopback from the pip package: a master, two workers, an export and a read on them.

    python -m tests.spark.standalone            a fixture, unpacked anew
    python -m tests.spark.standalone STORE      a store of yours

The workers find no rmqtool of their own: the session sends it. Everything it starts it ends.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyarrow.parquet as pq

from tests.stores import unpack

HERE = "127.0.0.1"
_MASTER = re.compile(r"Starting Spark master at (spark://\S+)")
_WORKER = re.compile(r"Successfully registered with master")
_PATIENCE = 120


@contextmanager
def _daemon(directory: Path, name: str, ready: re.Pattern[str], *words: str) -> Iterator[str]:
    """Run a class of Spark until the end of the context; give what ``ready`` found in its log."""
    import pyspark

    from rmqtool.spark.java import find_java

    log = directory / f"{name}.log"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"JAVA_HOME": find_java().home, "SPARK_LOCAL_IP": HERE, "SPARK_NO_DAEMONIZE": "1"}
    program = Path(pyspark.__file__).parent / "bin" / "spark-class"
    with log.open("wb") as written:
        process = subprocess.Popen([program, *words], stdout=written, stderr=written, cwd=directory, env=environment)
    try:
        yield _wait_for(ready, log, process)
    finally:
        process.terminate()
        process.wait()


def _wait_for(ready: re.Pattern[str], log: Path, process: subprocess.Popen[bytes]) -> str:
    until = time.monotonic() + _PATIENCE
    while time.monotonic() < until and process.poll() is None:
        found = ready.search(log.read_text(errors="replace"))
        if found is not None:
            return found[found.re.groups]
        time.sleep(0.2)
    raise SystemExit(f"{log.name}: no sign of life\n{log.read_text(errors='replace')}")


@contextmanager
def cluster(directory: Path, workers: int = 2) -> Iterator[str]:
    """Run a master and its workers, each with one core; give the master's URL."""
    ports = ("--port", "0", "--webui-port", "0")
    with ExitStack() as daemons:
        master = _daemon(directory, "master", _MASTER, "org.apache.spark.deploy.master.Master", "--host", HERE, *ports)
        url = daemons.enter_context(master)
        for number in range(workers):
            work = directory / f"work-{number}"
            size = ("--cores", "1", "--memory", "1g", "--work-dir", str(work))
            words = ("org.apache.spark.deploy.worker.Worker", "--host", HERE, *ports, *size, url)
            daemons.enter_context(_daemon(directory, f"worker-{number}", _WORKER, *words))
        yield url


_READ = """
import sys, tempfile, rmqtool.spark
with tempfile.TemporaryFile() as log:
    spark = rmqtool.spark.session(sys.argv[1], {"spark.executor.memory": "512m"}, log=log)
    frame = spark.read.format("rocketmq").option("onCorrupt", "skip").option("splitSize", "64k").load(sys.argv[2])
    hosts = spark.sparkContext.parallelize(range(8), 8).map(lambda _: __import__("os").getcwd()).distinct().collect()
    print(frame.count(), frame.select("topic").distinct().count(), len(hosts))
    spark.stop()
"""


def main(arguments: list[str]) -> int:
    """Start the cluster, export and read on it, say what came out."""
    with tempfile.TemporaryDirectory(prefix="rmqtool-standalone-") as place:
        directory = Path(place)
        store = Path(arguments[0]) if arguments else unpack("49-basic", directory)
        with cluster(directory) as url:
            print(f"{url}, two workers")
            begun = time.monotonic()
            words = ("export", str(store), "--to", str(directory / "out"), "--master", url, "--split-size", "128k")
            settings = ("--conf", "spark.executor.memory=512m", "--json", "--progress", "never")
            done = subprocess.run(
                [sys.executable, "-m", "rmqtool", *words, *settings], capture_output=True, text=True, check=False
            )
            print(f"rmqtool export --master {url}: status {done.returncode}, {time.monotonic() - begun:.1f} s")
            print(done.stdout or done.stderr, end="")
            rows = pq.read_table(directory / "out").num_rows if done.returncode in (0, 6) else None
            executors = sorted(path.parent.parent.name for path in directory.glob("work-*/app-*/*/stderr"))
            print(f"read back: {rows} rows; executors in {', '.join(sorted({*executors}))}")
            read = subprocess.run(
                [sys.executable, "-c", _READ, url, str(store)], capture_output=True, text=True, check=False
            )
            print(f"spark.read on the cluster: rows, topics, executors = {read.stdout.strip() or read.stderr}")
        exported = json.loads(done.stdout) if done.stdout else {}
        return 0 if rows == exported.get("rows") and read.stdout.startswith(f"{rows} ") else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
