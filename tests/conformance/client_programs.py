"""Unmodified clients of RocketMQ, and our programs in ``clients/`` that take them through journeys.

Each is fetched the way its users do (Maven, Go modules, npm, a wheel), kept beside the oracle's packages, and run as
``PROGRAM NAMES PREFIX JOURNEY...``. What it prints are JSON lines.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rmqtool.remoting.command import RemotingCommand
from tests.conformance.oracle.packages import cache, source_for
from tests.conformance.remoting_classes import class_path
from tests.support.remoting_calls import ask

_CLIENTS = Path(__file__).parent / "clients"
_JSON = Path(__file__).parent / "oracle" / "java" / "J.java"
_LIMIT = 300
_JOURNEYS = "ClientJourneys"
_QUEUES = 4


class Client(NamedTuple):
    """A client, the journeys that it can make, and whether topics must be there before it comes."""

    name: str
    journeys: tuple[str, ...]
    needs_topics: bool = False

    def run(self, names: str, prefix: str, home: Path) -> list[dict[str, Any]]:
        """Make all journeys at the broker that a name server knows; return what the client said, in order."""
        if self.needs_topics:
            create_topics(names, [prefix + journey for journey in self.journeys])
        return run_program(self, self._program(home), names, prefix, home)

    def _program(self, home: Path) -> tuple[list[str], Path]:
        """Return the command that starts the program, and the directory to start it in."""
        kind, _, version = self.name.partition(" ")
        return {"java": _java, "go": _go, "cpp": _cpp, "node": _node}[kind](version, home)


def run_program(
    client: Client, program: tuple[list[str], Path], names: str, prefix: str, home: Path
) -> list[dict[str, Any]]:
    """Make a client's journeys with a program that is started in a certain way; return what it said."""
    command, folder = program
    out, errors = home / f"{prefix}.jsonl", home / f"{prefix}.errors"
    with out.open("w") as lines, errors.open("w") as problems:
        done = subprocess.run(
            [*command, names, prefix, *client.journeys], cwd=folder, stdout=lines, stderr=problems, timeout=_LIMIT,
            env=os.environ | {"HOME": str(home), "PYTHONPATH": str(folder)}, check=False,
        )  # fmt: skip
    assert done.returncode == 0, f"{client.name} ended with {done.returncode}: {errors.read_text()[-2000:]}"
    return [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]


_JAVA_JOURNEYS = (
    "transaction", "retry", "dead", "delay", "two", "suspended", "orderly", "push", "tag", "sql", "broadcast", "query",
    "pull", "lite", "assign", "reply", "trace", "send",
)  # fmt: skip
CLIENTS = (
    Client("java 4.9.7", _JAVA_JOURNEYS),
    Client("java 5.3.3", ("timer", "unacked", "pop", *_JAVA_JOURNEYS)),
    Client("java 5.4.0", ("timer", "unacked", "pop", *_JAVA_JOURNEYS)),
    Client("java 5.5.0", ("timer", "unacked", "pop", *_JAVA_JOURNEYS)),
    Client("go 2.1.2", ("send", "push", "tag", "orderly", "broadcast", "retry", "transaction", "pull")),
    Client("cpp 0.4.4", ("send", "push", "orderly", "retry")),
    Client("node 2.0.1", ("send", "push", "tag", "broadcast"), needs_topics=True),
)


def create_topics(names: str, topics: Iterable[str]) -> None:
    """Create topics as mqadmin does: ask the name server for the broker, and the broker for the topic."""
    route = json.loads(ask(names, RemotingCommand(105, {"topic": "TBW102"})).body)
    broker = route["brokerDatas"][0]["brokerAddrs"]["0"]
    for topic in topics:
        fields = {"topic": topic, "defaultTopic": "TBW102", "perm": "6", "topicFilterType": "SINGLE_TAG"}
        fields |= {"readQueueNums": str(_QUEUES), "writeQueueNums": str(_QUEUES), "topicSysFlag": "0", "order": "false"}
        assert ask(broker, RemotingCommand(17, fields)).code == 0


@contextmanager
def built(name: str, sources: Iterable[Path]) -> Iterator[tuple[Path, bool]]:
    """Give the directory of a client that is kept, and whether it must be made: at first, or for other sources."""
    home = cache() / "clients" / name
    home.mkdir(parents=True, exist_ok=True)
    wanted = hashlib.sha256(b"\0".join(path.read_bytes() for path in sources)).hexdigest()
    stamp = home / "ready"
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stale = not stamp.exists() or stamp.read_text() != wanted
        yield home, stale
        stamp.write_text(wanted)


def make(*command: str, cwd: Path) -> None:
    """Run a command that fetches or compiles; the test is skipped where it cannot."""
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=_LIMIT, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip(f"{' '.join(command[:2])} does not end")
    if done.returncode:
        pytest.skip(f"{' '.join(command[:2])}: {(done.stderr or done.stdout).strip()[-300:]}")


def java_program(name: str, version: str, home: Path, *options: str) -> tuple[list[str], Path]:
    """Compile a program of ``clients/`` against a version; return the command that starts it, and where."""
    jars = class_path(version)
    programs = (_CLIENTS / f"{name}.java", _JSON)
    with built(f"java-{version}" if name == _JOURNEYS else f"java-{version}-{name}", programs) as (folder, stale):
        if stale:
            for path in programs:
                (folder / path.name).write_text(source_for(version, path), encoding="utf-8")
            make("javac", "-nowarn", "-cp", jars, "-d", ".", *(path.name for path in programs), cwd=folder)
            (folder / "logback.xml").write_text("<configuration><root level='OFF'/></configuration>")
    quiet = [f"-D{prefix}logback.configurationFile={folder}/logback.xml" for prefix in ("", "rmq.")]
    words = [*options, f"-Duser.home={home}", *quiet, "-Drocketmq.client.logUseSlf4j=true"]
    return ["java", *words, "-cp", f"{folder}{os.pathsep}{jars}", name], folder


def _java(version: str, home: Path) -> tuple[list[str], Path]:
    return java_program(_JOURNEYS, version, home, "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def member_program(kind: str, version: str, home: Path) -> list[str]:
    """Return the command of a member of a group; what follows are TOPIC GROUP MEMBER and the kind of consumption."""
    if kind == "go":
        return [*_go(version, home)[0], "NAMES", "member"]
    return [*java_program("GroupMember", version, home, "-Xmx256m", "-XX:+UseSerialGC")[0], "NAMES"]


def _go(version: str, home: Path) -> tuple[list[str], Path]:
    sources = sorted((_CLIENTS / "go").iterdir())
    with built(f"go-{version}", sources) as (folder, stale):
        if stale:
            for path in sources:
                shutil.copy(path, folder)
            make("go", "build", "-o", "journeys", ".", cwd=folder)
    return [str(folder / "journeys")], folder


def _cpp(version: str, home: Path) -> tuple[list[str], Path]:
    with built(f"cpp-{version}", ()) as (folder, stale):
        if stale:
            wheel = ("--no-deps", "--no-input", "--quiet", f"rocketmq=={version}")
            make(sys.executable, "-m", "pip", "install", "--target", str(folder), *wheel, cwd=folder)
    return [sys.executable, str(_CLIENTS / "cpp_journeys.py")], folder


def _node(version: str, home: Path) -> tuple[list[str], Path]:
    program = _CLIENTS / "node" / "journeys.js"
    with built(f"node-{version}", (program,)) as (folder, stale):
        if stale:
            shutil.copy(program, folder)
            make("npm", "install", "--no-audit", "--no-fund", "--silent", f"rocketmq@{version}", cwd=folder)
    return ["node", str(folder / "journeys.js")], folder
