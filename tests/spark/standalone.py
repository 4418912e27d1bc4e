"""A standalone cluster on loopback from the pip package: a master, two workers, an export and a read on them.

    python -m tests.spark.standalone            a fixture, unpacked anew
    python -m tests.spark.standalone STORE      a store of yours
    python -m tests.spark.standalone --packed   executors with an interpreter and packages from an archive

The workers find no rmqtool of their own: the session sends it. Everything it starts it ends.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import venv
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import rmqtool
from tests.support.stores import unpack

HERE = "127.0.0.1"
_MASTER = re.compile(r"Starting Spark master at (spark://\S+)")
_WORKER = re.compile(r"Successfully registered with master")
_PATIENCE = 120


@contextmanager
def _daemon(
    directory: Path, name: str, ready: re.Pattern[str], *words: str, before: Sequence[str] = ()
) -> Iterator[str]:
    """Run a class of Spark until the end of the context; give what ``ready`` found in its log."""
    import pyspark

    from rmqtool.spark.session import find_java

    log = directory / f"{name}.log"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"JAVA_HOME": find_java().home, "SPARK_LOCAL_IP": HERE, "SPARK_NO_DAEMONIZE": "1"}
    program = Path(pyspark.__file__).parent / "bin" / "spark-class"
    with log.open("wb") as written:
        process = subprocess.Popen(
            [*before, program, *words], stdout=written, stderr=written, cwd=directory, env=environment
        )
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


# Runs a command where a directory is empty: as on a machine that does not share it. Only root may.
_BLIND = ("unshare", "--mount", "--propagation", "private", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"')


@contextmanager
def cluster(directory: Path, workers: int = 2, hidden: Path | None = None) -> Iterator[str]:
    """Run a master and its workers, each with one core; give the master's URL. The last one does not see ``hidden``."""
    ports = ("--port", "0", "--webui-port", "0")
    with ExitStack() as daemons:
        master = _daemon(directory, "master", _MASTER, "org.apache.spark.deploy.master.Master", "--host", HERE, *ports)
        url = daemons.enter_context(master)
        for number in range(workers):
            work = directory / f"work-{number}"
            size = ("--cores", "1", "--memory", "1g", "--work-dir", str(work))
            words = ("org.apache.spark.deploy.worker.Worker", "--host", HERE, *ports, *size, url)
            before = (*_BLIND, str(hidden)) if hidden is not None and number == workers - 1 else ()
            daemons.enter_context(_daemon(directory, f"worker-{number}", _WORKER, *words, before=before))
        yield url


def pack_environment(directory: Path) -> dict[str, str]:
    """Pack what executors import, as the manual says to; give the settings that send it. The wheels come from here."""
    home = directory / "environment"
    venv.create(home, symlinks=False)
    (packages,) = home.glob("lib/python*/site-packages")
    for name in ("numpy", "numpy.libs", "pyarrow", "pyarrow.libs", "lz4", "zstandard"):
        here = Path(pa.__file__).parent.parent / name
        if here.exists():
            shutil.copytree(
                here, packages / name, ignore=shutil.ignore_patterns("tests", "include", "*.pyi", "__pycache__")
            )
    with tarfile.open(directory / "environment.tar.gz", "w:gz", compresslevel=1) as archive:
        archive.add(home, ".")
    return {
        "spark.archives": f"{directory}/environment.tar.gz#environment",
        "spark.pyspark.python": "./environment/bin/python",
    }


_READ = """
import json, sys, tempfile, rmqtool.spark
with tempfile.TemporaryFile() as log:
    spark = rmqtool.spark.session(sys.argv[1], json.loads(sys.argv[3]), log=log)
    frame = spark.read.format("rocketmq").option("onCorrupt", "skip").option("splitSize", "64k").load(sys.argv[2])
    seen = spark.sparkContext.parallelize(range(8), 8).map(lambda _: __import__("sys").prefix).distinct().collect()
    print(frame.count(), "rows,", frame.select("topic").distinct().count(), "topics; interpreters of the executors:")
    print(*sorted(seen), sep="\\n")
    spark.stop()
"""


def show(words: Sequence[str | Path], directory: Path) -> subprocess.CompletedProcess[str]:
    """Run a command in ``directory``; print what it said and how long it took."""
    begun = time.monotonic()
    ours = str(Path(rmqtool.__file__).parent.parent)
    command = [sys.executable, *map(str, words)]
    environment = os.environ | {"PYTHONPATH": ours}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=directory, env=environment)
    print(done.stdout + done.stderr, end="")
    print(f"status {done.returncode}, {time.monotonic() - begun:.1f} s", flush=True)
    return done


def main(arguments: list[str]) -> int:
    """Start the cluster, export and read on it, say what came out."""
    packed, stores = "--packed" in arguments, [one for one in arguments if one != "--packed"]
    with tempfile.TemporaryDirectory(prefix="rmqtool-standalone-") as place:
        directory = Path(place)
        store = Path(stores[0]).absolute() if stores else unpack("49-basic", directory)
        settings = {"spark.executor.memory": "512m"} | (pack_environment(directory) if packed else {})
        with cluster(directory) as url:
            print(f"{url}, two workers", flush=True)
            words = ["rmqtool", "export", store, "--to", "out", "--master", url, "--split-size", "128k", "--json"]
            words += [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
            print("$", *words)
            exported = json.loads(show(["-m", *words], directory).stdout or "{}")
            executors = len({*directory.glob("work-*/app-*/*/stderr")})
            rows = pq.read_table(directory / "out").num_rows if exported else None
            print(f"{rows} rows read back by pyarrow; {executors} executors worked")
            print("$ spark.read.format('rocketmq') on the same master")
            read = show(["-c", _READ, url, store, json.dumps(settings)], directory).stdout
        return 0 if rows and rows == exported["rows"] and read.startswith(f"{rows} rows") and executors == 2 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
