"""``rmqtool serve`` beside a real broker, with the same unmodified Java client, in rounds by turns.

    unshare -Urn python -m tests.bench.serve_speed DIRECTORY OUT ROUNDS [WORK...]

Brokers listen at all addresses of their machine, so both get a network that has the loopback interface and nothing
else. What is written to OUT is judged by ``test_serve``.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.bench.one_run import AS_INSTALLED
from tests.conformance.client_programs import java_program
from tests.conformance.live_cluster import java, wait_for_broker
from tests.conformance.oracle.packages import prepare

VERSION = "5.3.3"
PUSHED = 160_000
# What is asked of the client in each round; the first round of both is not counted.
WORK = {
    "sync 1": "sync 1 3",
    "sync 16": "sync 16 3",
    "async 1000": "async 1000 4",
    "batch 32": "batch 2 3",
    "push": f"push {PUSHED}",
    "latency": "latency 150",
    "flushed 16": "sync 16 3",
}
_FILL = f"fill {PUSHED}"
_SETTINGS = {
    "brokerClusterName": "DefaultCluster",
    "brokerName": "broker-a",
    "brokerIP1": "127.0.0.1",
    "mappedFileSizeCommitLog": "268435456",
    "autoCreateTopicEnable": "true",
    "deleteWhen": "99",
}
_TICKS = os.sysconf("SC_CLK_TCK")


class Side(NamedTuple):
    """One of the two brokers: its process, how long it took until clients could come, and its client."""

    process: int
    ready: float
    client: subprocess.Popen[str]

    def ask(self, line: str) -> dict[str, Any]:
        """Have the client do something; return what it says, with the seconds of processor that the broker used."""
        assert self.client.stdin is not None
        assert self.client.stdout is not None
        before = processor(self.process)
        print(line, file=self.client.stdin, flush=True)
        said = json.loads(self.client.stdout.readline())
        said["processor"] = processor(self.process) - before
        return dict(said)


def processor(process: int) -> float:
    """Return the seconds of processor that a process has used, with all its threads."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def memory(process: int) -> float:
    """Return the MiB that a process holds now."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


@contextlib.contextmanager
def _program(
    command: list[str], home: Path, environment: dict[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    with (home / "out").open("a") as out, (home / "errors").open("a") as errors:
        process = subprocess.Popen(command, cwd=home, stdout=out, stderr=errors, env=environment, text=True)
    try:
        yield process
        process.terminate()
        process.wait(60)
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def _client(names: str, home: Path) -> Iterator[subprocess.Popen[str]]:
    command, folder = java_program("ClientSpeed", VERSION, home, "-Xmx512m", "-XX:+UseSerialGC")
    with (home / "client").open("w") as errors:
        process = subprocess.Popen(
            [*command, names, "speed-"],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "{}\n", (home / "client").read_text()
        yield process
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def real(home: Path, flush: str) -> Iterator[Side]:
    """A real name server and broker."""
    names, broker = ("127.0.0.1:9876", "10911") if flush == "ASYNC_FLUSH" else ("127.0.0.1:9877", "10931")
    (home / "conf").mkdir(parents=True)
    for name in ("namesrv", "broker", "tools"):
        shutil.copy(prepare(VERSION) / "logback.xml", home / "conf" / f"logback_{name}.xml")
    (home / "names.conf").write_text(f"listenPort={names.rpartition(':')[2]}\n")
    store = {"storePathRootDir": home / "store", "storePathCommitLog": home / "store/commitlog", "flushDiskType": flush}
    own = {"namesrvAddr": names, "listenPort": broker, "haListenPort": int(broker) + 1, **store}
    lines = [f"{name}={value}\n" for name, value in (_SETTINGS | own).items()]
    (home / "broker.conf").write_text("".join(lines))
    server = java(VERSION, home, "org.apache.rocketmq.namesrv.NamesrvStartup", "-c", str(home / "names.conf"))
    command = java(VERSION, home, "org.apache.rocketmq.broker.BrokerStartup", "-c", str(home / "broker.conf"))
    with _program(server, home):
        time.sleep(2)
        begun = time.monotonic()
        with _program(command, home) as process:
            wait_for_broker(names)
            ready = time.monotonic() - begun
            with _client(names, home) as client:
                yield Side(process.pid, ready, client)


@contextlib.contextmanager
def served(home: Path, flush: str) -> Iterator[Side]:
    """``rmqtool serve``."""
    home.mkdir(parents=True)
    words = [sys.executable, "-m", "rmqtool"]
    subprocess.run([*words, "init", str(home / "store")], check=True, stdout=subprocess.DEVNULL)
    settings = [word for name, value in _SETTINGS.items() for word in ("--conf", f"{name}={value}")]
    command = [*words, "serve", str(home / "store"), "--jsonl", "--names", "127.0.0.1:0", "--listen", "127.0.0.1:0"]
    command += [*settings, "--conf", f"flushDiskType={flush}"]
    environment = AS_INSTALLED | {"PYTHONPATH": str(Path(__file__).parents[2])}
    if os.environ.get("SERVE_PROFILE"):
        command[1:3] = ["-m", "cProfile", "-o", os.environ["SERVE_PROFILE"], "-m", "rmqtool"]
    begun = time.monotonic()
    with _program(command, home, environment) as process:
        while not (said := (home / "out").read_text()).endswith("\n"):
            assert process.poll() is None, (home / "errors").read_text()
            time.sleep(0.01)
        ready = time.monotonic() - begun
        with _client(json.loads(said.splitlines()[0])["names"], home) as client:
            yield Side(process.pid, ready, client)


def run(directory: Path, rounds: int, work: list[str]) -> dict[str, Any]:
    """Measure; return for each work and side what the client said in each round."""
    found: dict[str, Any] = {"memory": {}, "ready": {}, "work": {name: {"real": [], "serve": []} for name in work}}
    for flush, names in (
        ("ASYNC_FLUSH", [name for name in work if name != "flushed 16"]),
        ("SYNC_FLUSH", [name for name in work if name == "flushed 16"]),
    ):
        if not names:
            continue
        with contextlib.ExitStack() as stack:
            sides = {}
            for name, start in (("real", real), ("serve", served)):
                if name in os.environ.get("SIDES", "real serve"):
                    sides[name] = stack.enter_context(start(directory / f"{flush}-{name}", flush))
            for name, side in sides.items():
                found["ready"].setdefault(name, side.ready)
                if "push" in names:
                    side.ask(_FILL)
            for number in range(rounds + 1):
                for one in names:
                    for name, side in sides.items():
                        said = side.ask(WORK[one])
                        if number:
                            found["work"][one][name].append(said)
            for name, side in sides.items():
                found["memory"].setdefault(name, memory(side.process))
    return found


if __name__ == "__main__":
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    measured = run(Path(sys.argv[1]), int(sys.argv[3]), sys.argv[4:] or list(WORK))
    Path(sys.argv[2]).write_text(json.dumps(measured))
