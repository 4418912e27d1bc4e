"""Measure the peer: everything interleaved, round after round, so that a busy minute falls on all alike.

    python -m tests.bench.peer [--rounds 5] [--only REGEX] [--scale 1.0] [--out FILE]
    python -m tests.bench.peer.report [FILE]          the tables

To put another tool beside the peer, add a task: a command that prints a JSON line last. Compare ratios within one run
only, and never a wall time with that of another run.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from tests.bench.peer.build import HERE, VERSIONS, build, mqadmin, peer, rocketmq_home, work
from tests.bench.peer.measuring import figures, read_into_cache, run, summary

PRETOUCHED = {"flags": "-XX:+AlwaysPreTouch"}
LIKE_A_PRODUCER = ["--keys", "--tags", "--uniq"]
STORES = {"S1": (1_000_000, 100), "S2": (500_000, 1024), "S3": (2_000, 262_144)}
STUB_PORT = "10911"
ONE_KEY = 500_001

# name: messages, options. Those called warmup are there for the JIT. "warm" files have their pages touched before the
# clock runs: the only put figures that do not depend on how fast the host hands out memory.
PUTS = {
    "warmup": (1_000_000, "--body 100 --segment 268435456"),
    "warmup8": (200_000, "--body 1024 --threads 8 --segment 268435456"),
    "warmupb": (200_000, "--body 100 --batch 100 --segment 268435456"),
    "async1_100": (200_000, "--warm 20000 --body 100"),
    "async8_100": (200_000, "--warm 20000 --body 100 --threads 8"),
    "async1_1k": (80_000, "--warm 8000 --body 1024"),
    "async8_1k": (80_000, "--warm 8000 --body 1024 --threads 8"),
    "async1_256k": (500, "--warm 50 --body 262144"),
    "batch1_100": (200_000, "--warm 20000 --body 100 --batch 100"),
    "batch1_1k": (80_000, "--warm 8000 --body 1024 --batch 100"),
    "async1_100_warm": (300_000, "--warmfile --segment 268435456 --warm 20000 --body 100"),
    "async1_1k_warm": (120_000, "--warmfile --segment 268435456 --warm 8000 --body 1024"),
    "async1_256k_warm": (600, "--warmfile --segment 268435456 --warm 50 --body 262144"),
    "async1_100_plain": (200_000, "--warm 20000 --body 100"),
    "sync1_100": (2_400, "--warm 200 --body 100 --sync"),
    "sync8_100": (9_000, "--warm 1000 --body 100 --sync --threads 8"),
    "syncpipe_100": (60_000, "--warm 5000 --body 100 --sync --window 512"),
}


class Task(NamedTuple):
    """One thing to measure. ``store`` is read into the cache before; ``awaited`` ends the answer of a chatty tool."""

    name: str
    command: list[str]
    store: Path | None = None
    environment: Mapping[str, str] = {}
    awaited: str | None = None


def store_of(version: str, name: str, scale: float) -> Path:
    """Return where a generated store lies."""
    return work() / "data" / f"{scale:g}" / version / name


def size_of(name: str, scale: float) -> int:
    """Return the number of messages of a generated store."""
    return max(100, int(STORES[name][0] * scale))


def generate(version: str, name: str, scale: float) -> Path:
    """Return a store that the real classes wrote, now or before."""
    store = store_of(version, name, scale)
    if not (store / "checkpoint").exists():
        store.parent.mkdir(parents=True, exist_ok=True)
        count, body = size_of(name, scale), STORES[name][1]
        sizes = ["--messages", str(count), "--body", str(body), "--warm", str(count // 10)]
        print(f"writing {store} ...", file=sys.stderr, flush=True)
        command = peer(version, "gen", str(store), *sizes, "--keep", *LIKE_A_PRODUCER)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return store


def one_key(scale: float) -> tuple[str, str]:
    """Return topic and key of a message in the middle of S1."""
    number = min(ONE_KEY, size_of("S1", scale) // 2)
    return f"BenchTopic{number % 4}", f"key{100_000_000 + number}"


def java_tasks(version: str, scale: float) -> Iterator[Task]:
    """Yield what is asked of the real classes."""
    suite = []
    for name, (count, options) in PUTS.items():
        producer = [] if name.endswith("_plain") else LIKE_A_PRODUCER
        messages = max(50, int(count * scale) // 100 * 100)
        suite.append(" ".join([name, "--messages", str(messages), options, *producer]))
    scratch = str(work() / "data" / f"scratch-{version}")
    yield Task(f"put.{version}", peer(version, "suite", scratch, *suite, settings=PRETOUCHED))
    first = store_of(version, "S1", scale)
    for name in STORES:
        store = store_of(version, name, scale)
        scan = peer(version, "scan", str(store), "--warm", "1", "--reps", "2", settings=PRETOUCHED)
        yield Task(f"scan.{name}.{version}", scan, store)
    yield Task(f"rebuild.S1.{version}", peer(version, "rebuild", str(first), settings=PRETOUCHED), first)
    for name in ("S1", "S2"):
        store = store_of(version, name, scale)
        yield Task(f"recover.{name}.{version}", peer(version, "recover", str(store)), store)
    yield Task(f"load_clean.S1.{version}", peer(version, "recover", str(first), "--clean"), first)
    keys = ["--range", str(size_of("S1", scale))]
    yield Task(f"query.S1.{version}", peer(version, "query", str(first), *keys), first)
    get = peer(version, "get", str(first), "--warm", "1", "--reps", "2", settings=PRETOUCHED)
    yield Task(f"get.S1.{version}", get, first)
    for name, flags in (("queryone", []), ("queryone_light", ["--light"])):
        yield Task(f"{name}.S1.{version}", peer(version, "queryone", str(first), *one_key(scale), *flags), first)


def mqadmin_tasks(version: str, message_id: str) -> Iterator[Task]:
    """Yield what is asked of upstream's tool. Nothing listens at the name server's port."""
    home = {"ROCKETMQ_HOME": str(rocketmq_home())}
    yield Task(f"mqadmin_help.{version}", mqadmin(version), environment=home)
    topic = ["-t", "BenchTopic1"] if version == "5.3.3" else []
    by_id = mqadmin(version, "queryMsgById", "-n", "127.0.0.1:9", "-i", message_id, *topic)
    yield Task(f"mqadmin_queryMsgById.{version}", by_id, environment=home, awaited="OffsetID")


def other_tasks(scale: float, naive_messages: int) -> Iterator[Task]:
    """Yield the limits of the machine and the naive loop."""
    data = work() / "data"
    second = store_of("4.9.8", "S2", scale)
    log = second / "commitlog" / "00000000000000000000"
    used = str(int(609_500_000 * min(scale, 1)))
    yield Task("java_noop", ["java", "-cp", str(work() / "classes" / "noop"), "Noop"])
    yield Task("python_noop", [sys.executable, "-c", "pass"])
    yield Task("limits", [str(work() / "limits"), str(log), str(data), used], second)
    yield Task("checksums", [sys.executable, str(HERE / "checksums.py"), str(log), used], second)
    for name, modes in (
        ("S1", "walk,check,dispatch,decode,put,syncput,get,getdecode,query,rebuild"),
        ("S2", "walk,check,decode,put"),
    ):
        store, stored = store_of("4.9.8", name, scale), size_of(name, scale)
        sizes = ["--messages", str(min(naive_messages, stored)), "--stored", str(stored)]
        sizes += ["--body", str(STORES[name][1]), "--modes", modes]
        yield Task(f"naive.{name}", [sys.executable, str(HERE / "naive.py"), str(store), *sizes], store)


@contextmanager
def stub_broker(scale: float) -> Iterator[str]:
    """Serve S1 as a broker would answer ``queryMsgById``; give the id of a message."""
    store = store_of("4.9.8", "S1", scale)
    command = peer("4.9.8", "queryone", str(store), *one_key(scale), "--light")
    found = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    serve = peer("4.9.8", "serve", str(store), "--port", STUB_PORT, settings={"heap": "-Xmx256m"})
    with subprocess.Popen(
        serve, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield json.loads(found.splitlines()[-1])["msgId"]
        finally:
            process.stdin.close()


def measure(task: Task) -> dict[str, float]:
    """Run a task once and return its figures."""
    if task.store is not None:
        read_into_cache(task.store)
    errors = work() / "home" / "errors"
    cost = run(task.command, errors, task.environment, task.awaited)
    found = figures(cost.output)
    if cost.status and task.awaited is None and not task.name.startswith("mqadmin"):
        print(f"FAILED {task.name}: {cost.status}\n{errors.read_text(errors='replace')[-800:]}", file=sys.stderr)
    found |= {"process_wall_s": cost.wall, "process_cpu_s": cost.cpu, "foreign_cores": cost.foreign_cores}
    return found | ({} if cost.answered is None else {"answer_s": cost.answered})


def measure_all(tasks: Sequence[Task], rounds: int) -> dict[str, Any]:
    """Run every task once a round; return a summary of every figure."""
    collected: dict[str, dict[str, list[float]]] = {task.name: {} for task in tasks}
    for number in range(rounds):
        for task in tasks:
            found = measure(task)
            shown = " ".join(
                f"{name} {found[name]:.2f}" for name in ("process_wall_s", "process_cpu_s", "foreign_cores")
            )
            print(f"round {number + 1}: {task.name}: {shown}", file=sys.stderr, flush=True)
            for name, value in found.items():
                collected[task.name].setdefault(name, []).append(round(value, 6))
    return {name: {key: summary(values) for key, values in found.items()} for name, found in collected.items()}


def main() -> None:
    """Build, generate, measure, and leave the figures in a file."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.peer", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", metavar="REGEX", help="of the names of tasks")
    parser.add_argument("--scale", type=float, default=1.0, help="of the numbers of messages")
    parser.add_argument("--naive", type=int, default=40_000, metavar="MESSAGES")
    parser.add_argument("--out", type=Path, default=None, help="the figures")
    given = parser.parse_args()
    work().mkdir(parents=True, exist_ok=True)
    build()
    for version, name in product(VERSIONS, STORES):
        generate(version, name, given.scale)
    with stub_broker(given.scale) as message_id:
        tasks = [task for version in VERSIONS for task in java_tasks(version, given.scale)]
        tasks += [task for version in VERSIONS for task in mqadmin_tasks(version, message_id)]
        tasks += other_tasks(given.scale, given.naive)
        found = measure_all([task for task in tasks if re.search(given.only, task.name)], given.rounds)
    answer = {
        "when": time.strftime("%Y-%m-%dT%H:%M:%S"),
        "rounds": given.rounds,
        "scale": given.scale,
        "cpus": os.cpu_count(),
        "python": sys.version.split()[0],
        "figures": found,
    }
    out = given.out or work() / "results.json"
    out.write_text(json.dumps(answer, indent=1) + "\n")
    print(out)


if __name__ == "__main__":
    main()
