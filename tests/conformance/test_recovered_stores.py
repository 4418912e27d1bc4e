"""Damaged stores after our recovery, started by the real classes: they load them, and serve what we serve."""

from __future__ import annotations

import hashlib
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtool.engine.message import NewMessage
from rmqtool.engine.recovery.recover import recover
from rmqtool.engine.store import MessageStore
from rmqtool.files.posix_write import PosixWritableFileSystem
from rmqtool.formats.codes import FILLER_SIZE
from tests.conformance.oracle.runs import read_json, start_many
from tests.support.engine_stores import units
from tests.support.recovered import setup_for, valid_records
from tests.support.recovery import VERSIONS, Case, cases, rehearsed, sizes_as_words

pytestmark = pytest.mark.conformance
EACH = 20
# Nothing is recovered: no log, or a lock that cannot be taken.
REFUSED = ("cl-missing@all", "cl-dir-missing", "lock-dir")
# What lies where brokers look for nothing of theirs is left to a person.
UNLOADABLE = ("stray-subdir@commitlog",)


def sample(version: str) -> list[Case]:
    every = {(case.mutation.key, case.outcome["abort"]): case for case in cases(version) if case.mutation.base == "A"}
    usable = [case for _, case in sorted(every.items()) if case.mutation.name not in (*REFUSED, *UNLOADABLE)]
    return random.Random(f"recovered {version}").sample(usable, EACH)


def served_places(root: Path) -> dict[tuple[str, str], list[int]]:
    """Return the places that our queues lead to, in their order; those of messages that are lost may be among them."""
    files = PosixWritableFileSystem(str(root))
    found = {}
    for topic in files.listdir("consumequeue"):
        for queue in files.listdir(f"consumequeue/{topic.name}") if topic.kind.value == "directory" else ():
            if queue.name.isdecimal():
                placed = [u for u in units(files, topic.name, int(queue.name)) if u.size != FILLER_SIZE]
                found[topic.name, queue.name] = [unit.physical_offset for unit in placed]
    return found


@pytest.mark.parametrize("version", sorted(VERSIONS))
def test_the_real_classes_serve_what_we_recovered(
    version: str, real_classes: Callable[[str], None], tmp_path: Path
) -> None:
    real_classes(version)
    stores: list[tuple[Case, Path, int]] = []
    odd: set[str] = set()
    for number, case in enumerate(sample(version)):
        root = case.prepare(tmp_path / "bases", tmp_path / f"{number}" / "store")
        before = valid_records(root)
        report = recover(setup_for(root, VERSIONS[version], case.settings))
        assert valid_records(root) == before
        with MessageStore.open(setup_for(root, VERSIONS[version], case.settings)) as store:
            assert store.put(NewMessage("AfterRecovery", b"new", 0)).is_ok
        with rehearsed(root, version, case.settings) as rehearsal:
            lost = rehearsal.outcome.messages_lost or 0
        # Damage that is kept makes a broker cut the log: the model says how much, the command warns of it.
        stores.append((case, root, lost))
        if report.misfits:
            odd.add(case.name)
        assert lost == 0 or any(finding.code.startswith("CL-") for finding in report.findings), case.name
    outs = [tmp_path / f"{number}.json" for number in range(len(stores))]
    expected = [served_places(root) for _, root, _ in stores]
    settings = dict(word.split("=") for word in sizes_as_words(stores[0][0].sizes))
    copies = []
    for _, root, _ in stores:
        copies.append(root.parent / "started")
        shutil.copytree(root, copies[-1])
    start_many(version, copies, outs, settings=settings)
    compared, wrong = 0, []
    for (case, root, lost), out, places in zip(stores, outs, expected, strict=True):
        valid = {record.physical_offset for record in valid_records(root)}
        answer = read_json(out)
        assert (case.name, answer["load"].get("result")) == (case.name, True)
        if lost:
            continue
        for (topic, queue_id), own in places.items():
            queue = answer["running"]["queues"].get(topic, {}).get(queue_id)
            if queue is None:
                assert (case.name, topic, own) == (case.name, topic, [])
                continue
            whole = [place for place in own if place in valid]
            # Behind a record whose own number is wrong, the reader of the real classes believes no number any more.
            count = queue["served" if case.name in odd else "readable"]
            if count < len(whole):
                wrong.append((case.name, topic, queue_id, count, len(whole)))
            elif len(whole) == len(own):
                digest = hashlib.sha256("".join(f"{place}," for place in own).encode()).hexdigest()
                if queue["served"] != len(own) or not digest.startswith(queue["servedPhySha256"][:16]):
                    wrong.append((case.name, topic, queue_id, queue["served"], len(own)))
        compared += 1
    assert wrong == []
    assert compared >= EACH // 2
