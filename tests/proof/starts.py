"""The real classes on what a power cut leaves: they start, and serve what was promised.

A life of ``crash_lives`` loses power. Each disk that is left is started twice by the store classes of a published
broker: as it is, and after ``recover``. As it is, a broker recovers it itself, and must serve each message that was
acknowledged, at its place, and nothing that was never put; it may refuse a store in which a new file has its name and
not its size, as brokers leave such stores too. After ``recover`` it must serve what the queues lead to, by
the independent reader: that, and no more.

A JVM for each version starts the stores, several at once: a stop of a store waits for seconds, and works for none.
"""

from __future__ import annotations

import atexit
import os
import random
import shutil
import zlib
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from rmqtool.config import FlushDiskType, Version
from rmqtool.engine.parts import Setup
from rmqtool.engine.recovery.recover import recover
from rmqtool.errors import RmqtoolError
from rmqtool.files.filesystem import Kind
from tests.conformance.oracle.packages import OracleError, missing_tools, prepare
from tests.conformance.oracle.runs import Starter
from tests.crash import waiting_life
from tests.proof import reader
from tests.proof.campaign import Campaign, Outcome
from tests.proof.crash_lives import Life, Producers, Puts, Recoveries, Retention, Services
from tests.proof.crashes import Cut, lose_power
from tests.proof.model_disk import STORE, tree_of_disk
from tests.proof.workshop import workshop
from tests.support.engine_stores import SMALL, small_config
from tests.support.faulty import FaultyFileSystem
from tests.support.faulty_disk import FaultyDisk, Inode

VERSIONS = {Version.V4_9: "4.9.7", Version.V5_3: "5.3.3", Version.V5_4: "5.4.0"}
LIVES: tuple[type[Life], ...] = (Puts, Recoveries, Producers, Retention)
# Brokers of 4.9 have the delivery of delayed messages in the store: it would put some of them meanwhile.
_LIVES_OF_5 = (*LIVES, Services)
_CUTS, _DISKS = 8, 3

# Topic and queue → queue offset, physical offset and checksum of each message, in the order of the queue.
Served = dict[tuple[str, int], list[tuple[int, int, int]]]


class Left(NamedTuple):
    """A store to be started: the life that left it, how, whether it was recovered, and its files."""

    life: Life
    where: str
    is_recovered: bool
    # Where a record is damaged and whole ones follow: a broker cuts the log at the first.
    breaks: list[range]
    tree: dict[str, bytes]
    disk: FaultyDisk


@lru_cache(maxsize=1)
def missing() -> str | None:
    """Return why no real class can be started here."""
    if tools := [*missing_tools(), *(tool for tool in ("unshare", "ip") if shutil.which(tool) is None)]:
        return f"not installed: {', '.join(tools)}"
    try:
        for version in VERSIONS.values():
            prepare(version)
    except OracleError as error:
        return str(error)
    return None


@lru_cache(maxsize=len(VERSIONS))
def _starter(version: Version) -> Starter:
    """Return the JVM of a version; it ends with this process."""
    found, owner = Starter(VERSIONS[version]), os.getpid()
    atexit.register(lambda: found.close() if os.getpid() == owner else None)
    return found


def run(seed: int) -> Outcome:
    """Cut some lives of one version, and start what is left of them."""
    version = list(VERSIONS)[seed % len(VERSIONS)]
    lives = LIVES if version is Version.V4_9 else _LIVES_OF_5
    first = seed // len(VERSIONS) * _CUTS
    return start(version, [(lives[number % len(lives)], number) for number in range(first, first + _CUTS)])


def start(version: Version, lives: Sequence[tuple[type[Life], int]]) -> Outcome:
    """Let lives of these kinds and seeds lose power; start what is left of each."""
    left = [one for kind, seed in lives for one in _iter_left(kind, seed, lose_power(kind, seed, version))]
    result, place = Outcome(), workshop() / "started"
    try:
        stores = [place / f"{number}" for number in range(len(left))]
        for store, one in zip(stores, left, strict=True):
            _write(one.disk, store)
        starter = _starter(version)
        began = starter.processor_seconds()
        answers = starter.start(stores, [_settings(one.life) for one in left])
        result.seconds_elsewhere = starter.processor_seconds() - began
    finally:
        shutil.rmtree(place, ignore_errors=True)
    for one, answer in zip(left, answers, strict=True):
        result.judge(_judge(one, answer), f"{VERSIONS[version]}, {one.where}")
    return result


def _iter_left(kind: type[Life], seed: int, of: Cut) -> Iterator[Left]:
    """Yield some of the disks that may be left, each as it is and recovered."""
    for number, disk in enumerate(of.disk.iter_outcomes(_DISKS, seed=seed)):
        where = f"{kind.name}, seed {seed}, power cut in call {of.call} of {of.calls}, disk {number}"
        for is_recovered in (False, True):
            found = disk.after_crash(lambda _count: 0)
            if is_recovered and not _recover(of.life, found):
                continue
            tree = tree_of_disk(found)
            word = "recovered" if is_recovered else "as it is"
            yield Left(of.life, f"{where}, {word}", is_recovered, reader.breaks(tree), tree, found)


def _recover(life: Life, disk: FaultyDisk) -> bool:
    """Recover a store; return False for one that is refused because nobody was promised anything in it."""
    try:
        recover(_setup(life, disk))
    except RmqtoolError:
        if getattr(life, "acknowledged", True):
            raise
        return False
    return True


def _setup(life: Life, disk: FaultyDisk) -> Setup:
    if isinstance(life, Puts):
        return life.setup(disk)
    return waiting_life.setup_on(FaultyFileSystem(disk, STORE), life.version)


def _settings(life: Life) -> dict[str, object]:
    """Return the settings of a life's store, as a broker's are spelled."""
    own = waiting_life.SETTINGS if isinstance(life, Services) else {"mappedFileSizeCommitLog": 2048}
    found = {**SMALL, **own, "flushDiskType": FlushDiskType.SYNC_FLUSH.name}
    if life.version is not Version.V4_9:
        found["mapperFileSizeBatchConsumeQueue"] = small_config(life.version).mapper_file_size_batch_consume_queue
    return found


def _write(disk: FaultyDisk, place: Path) -> None:
    """Write the store of a disk into a directory."""
    place.mkdir(parents=True)
    if STORE in disk.root.names:
        _write_below(disk.root.names[STORE], place)


def _write_below(inode: Inode, place: Path) -> None:
    for name, one in inode.names.items():
        if one.kind is Kind.DIRECTORY:
            (place / name).mkdir()
            _write_below(one, place / name)
        elif one.kind is Kind.FILE:
            (place / name).write_bytes(one.data)


def _judge(left: Left, answer: Mapping[str, Any]) -> list[str]:
    """Return in words what is wrong with a start."""
    if not left.is_recovered and answer.get("load", {}).get("result") is False and _has_odd_sizes(left):
        return []
    if answer["timeout"] or not answer.get("load", {}).get("result") or not answer.get("start", {}).get("ok"):
        told = {name: answer.get(name) for name in ("timeout", "stage", "exception", "load", "start")}
        return [f"the real classes did not start it: {str(told)[:300]}; {str(answer['log'])[:600]}"]
    served, wrong = _served(answer), []
    for topic, queues in answer["running"]["queues"].items():
        wrong += [f"{topic}/{number} serves {queue['bad']}" for number, queue in queues.items() if "bad" in queue]
    if answer.get("shutdown") != "ok":
        wrong.append(f"it did not stop: {answer.get('shutdown')}")
    if isinstance(left.life, Puts):
        wrong += _missing(left, served) + _unknown(left.life, served)
    if left.is_recovered and not left.breaks:
        expected = _led_to(left.tree)
        wrong += [
            f"{topic}/{number} serves {served.get((topic, number))}, its entries lead to {messages}"
            for (topic, number), messages in expected.items()
            if served.get((topic, number), []) != messages
        ]
        wrong += [
            f"it serves {queue}, which has no entries" for queue in served.keys() - expected.keys() if served[queue]
        ]
    return wrong


def _has_odd_sizes(left: Left) -> bool:
    """Return whether a file of the log or of a queue lacks a part: brokers do not load such a store."""
    settings = _settings(left.life)
    names = {"commitlog": "mappedFileSizeCommitLog", "consumequeue": "mappedFileSizeConsumeQueue"}
    kinds = ((names.get(path.split("/")[0]), len(data)) for path, data in left.tree.items())
    return any(name is not None and size != settings[name] for name, size in kinds)


def _served(answer: Mapping[str, Any]) -> Served:
    return {
        (topic, int(number)): [tuple(one) for one in queue["messages"]]
        for topic, queues in answer["running"]["queues"].items()
        for number, queue in queues.items()
    }


def _missing(left: Left, served: Served) -> list[str]:
    """Return which acknowledged messages are not served; a broker that cuts the log need not serve those after that."""
    assert isinstance(left.life, Puts)
    return [
        f"acknowledged {topic}/{queue_id}@{queue_offset}, at {place}, is not served"
        for place, (topic, queue_id, queue_offset, body) in left.life.acknowledged.items()
        if not left.breaks or place < left.breaks[0].start
        if (queue_offset, place, _checksum(body)) not in served.get((topic, queue_id), [])
    ]


def _unknown(life: Puts, served: Served) -> list[str]:
    known = {_checksum(body) for body in life.submitted}
    return [
        f"{topic}/{queue_id}@{queue_offset} is served and was never put"
        for (topic, queue_id), messages in served.items()
        for queue_offset, _, checksum in messages
        if checksum not in known
    ]


def _checksum(body: bytes) -> int:
    return zlib.crc32(body) & 0x7FFFFFFF


def _led_to(tree: Mapping[str, bytes]) -> Served:
    """Return the messages that the queues lead to."""
    records = {record.physical_offset: record for record in reader.iter_records(tree)}
    found: Served = {}
    for topic, queue_id in reader.queues(tree):
        found[topic, queue_id] = [
            (queue_offset, place, _checksum(records[place].body))
            for queue_offset, place, _ in reader.iter_queue(tree, topic, queue_id)
            if place in records
        ]
    return found


def tried(kind: type[Life], seed: int) -> Outcome:
    """Start what is left of one life: how a canary is tried."""
    return start(random.Random(seed).choice(list(VERSIONS)), [(kind, seed)])


CAMPAIGN = Campaign("starts of the real classes", "starts", 2_000, run, missing)
