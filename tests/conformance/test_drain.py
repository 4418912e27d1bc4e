"""Stores that are served read-only: an unmodified Java client gets every message that ``cat`` shows, and commits."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import rmqtool
from tests.conformance.client_programs import java_program
from tests.support.damaged import VERSIONS, Workshop, mutations, sample
from tests.support.stores import STORES, left_alone

pytestmark = [pytest.mark.conformance, pytest.mark.slow, pytest.mark.timeout(1800)]
DAMAGED = 150
# A broker gives consumers of a compacted topic the last message of each key; the others are in the log only.
COMPACTED = ("53-compaction", "CompactT")
# A Java client drops the rest of an answer after a body that it cannot inflate.
DROPPED = {"49-compressed-batch": {"ZipTopic 0 31"}}
# Messages of transactions that are open or rolled back: no queue has them.
HALF, HELD = 0b1100, (0b0100, 0b1100)
# A queue is a directory, whose name has at most so many bytes: longer topics are in the log only.
LONGEST_TOPIC = 255


class Drainer:
    """A Java client that reads all queues of a broker on demand."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, what: str, names: str, topics: list[str]) -> dict[str, Any]:
        """Return what it says: the places of the messages it got, or the offsets that are committed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\t".join([what, names, *topics]) + "\n")
        self._process.stdin.flush()
        said: dict[str, Any] = json.loads(self._process.stdout.readline())
        assert "error" not in said, said["error"]
        return said


@pytest.fixture(scope="module")
def drainer(real_classes: Callable[[str], None], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drainer]:
    real_classes("5.4.0")
    home = tmp_path_factory.mktemp("drainer")
    command, _ = java_program("Drain", "5.4.0", home, "-Xmx512m", "-XX:+UseSerialGC")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=home, text=True) as process:
        yield Drainer(process)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(60) == 0


def shown(root: Path) -> set[str]:
    """Return the places of the messages that ``cat`` shows, but for bodies that no client can inflate."""
    found = rmqtool.scan(str(root))
    return {
        f"{one['topic']} {one['queueId']} {one['queueOffset']}"
        for one in found
        if "topic" in one
        and one["bodyLength"] is not None
        and len(one["topic"]) <= LONGEST_TOPIC
        and one["sysFlag"] & HALF not in HELD
    }


def topics_of(places: set[str]) -> list[str]:
    return sorted({place.split()[0] for place in places})


@contextmanager
def served(root: Path, state: Path) -> Iterator[str]:
    with left_alone(root), rmqtool.serve(root, read_only=True, state=str(state)) as running:
        yield running.names


@pytest.mark.parametrize("name", STORES)
def test_a_java_client_drains_a_store(
    name: str, drainer: Drainer, store: Callable[[str], Path], tmp_path: Path
) -> None:
    root, state = store(name), tmp_path / "state"
    wanted = shown(root)
    topics = topics_of(wanted)
    with served(root, state) as names:
        got = drainer.ask("drain", names, topics)["places"]
        lacking = wanted - set(got)
        if name == COMPACTED[0]:
            lacking = {place for place in lacking if place.split()[0] != COMPACTED[1]}
            assert sum(place.startswith(COMPACTED[1]) for place in got) == 134
        assert lacking == DROPPED.get(name, set())
        assert len(got) == len(set(got))
        committed = drainer.ask("committed", names, topics)["offsets"]
    assert all(offset >= 0 for offset in committed.values())
    with served(root, state) as names:
        assert drainer.ask("committed", names, topics)["offsets"] == committed


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    return Workshop(tmp_path_factory.mktemp("drained"))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_java_client_drains_damaged_stores(
    version: str, drainer: Drainer, workshop: Workshop, tmp_path: Path
) -> None:
    compared, refused, missing = 0, [], {}
    for number, name in enumerate(sample(version, DAMAGED // len(VERSIONS), seed=29)):
        with workshop.damaged(version, mutations(version)[name], abort=bool(number % 2)) as root:
            try:
                wanted = shown(root)
                with served(root, tmp_path / f"state-{number}") as names:
                    got = set(drainer.ask("drain", names, topics_of(wanted))["places"])
            except rmqtool.RmqtoolError as error:
                refused.append(f"{name}: {error}")
                continue
            compared += len(wanted)
            if lacking := wanted - got:
                missing[name] = sorted(lacking)[:5]
    assert missing == {}
    assert refused == []
    assert compared > 1000
