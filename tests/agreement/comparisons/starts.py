"""What a broker does at start-up: the model against recorded starts of the real classes."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from rmqtool.config import Version
from rmqtool.files.posix import PosixReadableFileSystem
from rmqtool.upstream.config_files import load_config
from rmqtool.upstream.files import StoreView
from tests.agreement.ledger import Subject, comparison
from tests.support.mutations import apply_mutation, read_catalogue
from tests.support.recovery import (
    FIELDS,
    INDEX_FIELDS,
    SIZES,
    VERSIONS,
    Rehearsed,
    cases,
    flips,
    index_files,
    read_index_header,
    read_units,
    rehearsed,
    sizes_as_words,
    undetermined,
)
from tests.support.stores import read_lines, unpack

STARTS = tuple(f"recovery-{version}" for version in VERSIONS)
CONFIGS = {"recovery-config-4.9.7": Version.V4_9, "recovery-config-5.3.3": Version.V5_3}
KILLED = {"49-killed": "4.9.8", "49-killed-torn": "4.9.8", "49-killed-broker": "4.9.8", "53-killed": "5.3.3"}


class Compared(NamedTuple):
    """One field of one start, and why it is not determined, if it is not."""

    name: str
    ours: Any
    theirs: Any
    undetermined: dict[str, str]


def _rehearse_part(version: str, part: int, parts: int) -> list[tuple[str, Compared]]:
    """Rehearse every so-manieth recorded start of a version, once for all fields."""
    found = []
    with tempfile.TemporaryDirectory(prefix="rmqtool-starts-") as directory:
        for case in islice(cases(version), part, None, parts):
            root = case.prepare(Path(directory) / "bases", Path(directory) / "store")
            ours, theirs = case.predict(root), case.recorded(root)
            unknown = undetermined(ours, theirs, case.outcome, case.sizes["maxIndexNum"] - 1)
            for field in FIELDS:
                if field in theirs:
                    reason = {field: unknown[field]} if field in unknown else {}
                    found.append((field, Compared(case.name, ours[field], theirs[field], reason)))
    return found


@cache
def _starts(version: str) -> dict[str, list[Compared]]:
    """Rehearse every recorded start of a version."""
    found: dict[str, list[Compared]] = {field: [] for field in FIELDS}
    parts = len(os.sched_getaffinity(0))
    with ProcessPoolExecutor(parts, get_context("spawn")) as pool:
        for part in pool.map(_rehearse_part, [version] * parts, range(parts), [parts] * parts):
            for field, compared in part:
                found[field].append(compared)
    return found


def _register(field: str) -> None:
    @comparison(f"start: {field}", rows="starts", subjects=STARTS, long=True)
    def compare(subject: Subject) -> None:
        for compared in _starts(subject.name.removeprefix("recovery-"))[field]:
            ours, theirs = {field: compared.ours}, {field: compared.theirs}
            subject.compare(compared.name, ours, theirs, compared.undetermined)


for _field in FIELDS:
    _register(_field)


@comparison("start: messages lost to one flipped bit", rows="starts", subjects=STARTS, long=True)
def flipped_bits(subject: Subject) -> None:
    """Of 600 flips of one bit each, every eighth: how many whole messages the start destroys."""
    version = subject.name.removeprefix("recovery-")
    with tempfile.TemporaryDirectory(prefix="rmqtool-flips-") as directory:
        for flip in list(flips(version))[::8]:
            lost = flip.predict(Path(directory))
            subject.compare(flip.name, {"messagesLost": lost}, {"messagesLost": flip.lost})


@comparison("start: config files", rows="starts", subjects=tuple(CONFIGS))
def config_files(subject: Subject) -> None:
    """Where topics, offsets and groups are taken from, which files are written over, and whether the broker starts."""
    catalogue = read_catalogue(subject.name)
    for outcome in read_lines(f"{subject.name}/outcomes.jsonl"):
        with tempfile.TemporaryDirectory(prefix="rmqtool-config-") as directory:
            root = unpack(f"{subject.name}/base-CFG", Path(directory))
            apply_mutation(root, catalogue[f"CFG/{outcome['mutation']}"], abort=False)
            with PosixReadableFileSystem(str(root)) as files:
                load = load_config(StoreView(files), CONFIGS[subject.name])
        ours = {one.file: (one.loaded_from, one.rewritten) for one in load.files}
        subject.compare(outcome["mutation"], ours | {"starts": load.unreadable is None}, _config_of(outcome))


def _config_of(outcome: dict[str, Any]) -> dict[str, Any]:
    """The base has 8 topics and groups, its copies 7; its offsets begin at 200, those of the copy at 150."""
    offsets = outcome["offsetTable"] or {}
    first = next(iter(offsets.values()))["0"] if offsets else None
    counted = {8: "main", 7: "bak", 0: "empty"}
    sources = {
        "topics.json": counted[len(outcome["user_topics"] or ())],
        "consumerOffset.json": {200: "main", 150: "bak", None: "empty"}[first],
        "subscriptionGroup.json": counted[len(outcome["user_groups"] or ())],
    }
    after = outcome["config_files_after"]
    found: dict[str, Any] = {
        f"config/{name}": (source, name in after and after[name] != "=") for name, source in sources.items()
    }
    return found | {"starts": outcome["result"] == "started"}


@comparison("start of a killed store: queues", rows="queues")
def killed_queues(subject: Subject) -> None:
    """Bounds and units of every queue after the recovery of a store whose broker was killed."""
    for rehearsal, told in _killed(subject):
        queues = {(queue.topic, str(queue.queue_id)): queue for queue in rehearsal.outcome.queues or ()}
        for topic, numbered in told["queues"].items():
            for number, theirs in numbered.items():
                queue = queues.pop((topic, number))
                units = read_units(rehearsal.overlay, topic, number, queue.min_offset, queue.max_offset)
                subject.compare(
                    f"{topic}/{number}",
                    {"min": queue.min_offset, "max": queue.max_offset, "units": units},
                    {"min": theirs["minOffset"], "max": theirs["maxOffset"], "units": theirs["units"]},
                )
        assert not queues


@comparison("start of a killed store: bounds of the log, index files", rows="files and bounds")
def killed_files(subject: Subject) -> None:
    """Where the log begins and ends, and the headers of the index files, those that the recovery made included."""
    for rehearsal, told in _killed(subject):
        outcome = rehearsal.outcome
        bounds = {"min": outcome.min_physical_offset, "max": outcome.max_physical_offset}
        subject.compare("log", bounds, {"min": told["min_phy"], "max": told["max_phy"]})
        headers = [read_index_header(rehearsal.overlay, path) for path in index_files(rehearsal.overlay)]
        for number, theirs in enumerate(told["index_files"]):
            subject.compare(f"index file {number}", headers[number], {name: theirs[name] for name in INDEX_FIELDS})
        assert len(headers) == len(told["index_files"])


def _killed(subject: Subject) -> Iterator[tuple[Rehearsed, dict[str, Any]]]:
    if subject.name in KILLED:
        sizes = {name: subject.truth["config"][name] for name in SIZES}
        with rehearsed(subject.root, KILLED[subject.name], sizes_as_words(sizes)) as rehearsal:
            yield rehearsal, subject.truth["after_recovery"]
