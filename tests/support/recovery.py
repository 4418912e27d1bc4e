"""The recorded starts of real brokers on damaged stores, and what the model of a start says of the same stores.

``cases`` reads the catalogues of ``fixtures/recovery-*``; ``Case.recorded`` and ``Case.predict`` give the same fields,
as the contract maps the ones to the others, and the bytes of every file afterwards. What no model can know is set apart
by ``explain``: see "What is not determined" beside it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from rmqtool.config import Version
from rmqtool.files.filesystem import Kind, iter_tree
from rmqtool.files.overlay import OverlayFileSystem
from rmqtool.store.open import open_store
from rmqtool.upstream.outcome import StartOutcome
from rmqtool.upstream.rehearsal import rehearse
from tests.support.mutations import Mutation, apply_mutation, read_catalogue, set_abort
from tests.support.stores import FIXTURES, read_lines, unpack

VERSIONS = {"4.9.8": Version.V4_9, "5.3.3": Version.V5_3, "5.4.0": Version.V5_4}
# Each list of outcomes, and the settings in which its starts differ from those of the base.
LISTS = {
    "outcomes": (),
    "outcomes-fuzz": (),
    "outcomes-indexsafe": ("messageIndexSafe=true",),
    "outcomes-maxnum100": ("commitLogRecoverMaxNum=100",),
}
# Of the recorded settings, those that change a start.
SIZES = ("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue", "maxHashSlotNum", "maxIndexNum")
# The message database of 5.4 is RocksDB's matter: its files have new names at every start.
LEFT_OUT = "rocksdbstore/"

# Which files a field of bytes is about, by their first directory.
BYTES = {
    "bytes of the log": "commitlog",
    "bytes of the queues": "consumequeue",
    "bytes of the index": "index",
    "bytes of the checkpoint": "checkpoint",
}
OTHER_BYTES = "bytes of other files"
FIELDS = (
    "loads",
    "starts",
    "minPhyOffset",
    "maxPhyOffset",
    "delete",
    "create",
    "resize",
    "modify",
    "queues",
    "messagesLost",
    "messagesUnreachable",
    "logLines",
    *BYTES,
    OTHER_BYTES,
)

# Laid from the specification.
INDEX_HEADER = struct.Struct(">qqqqii")
INDEX_FIELDS = ("beginTimestamp", "endTimestamp", "beginPhyOffset", "endPhyOffset", "hashSlotCount", "indexCount")
UNIT = struct.Struct(">qiq")
CHECKPOINT = struct.Struct(">5q")

Fields = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """One recorded start."""

    version: str
    list_name: str
    mutation: Mutation
    outcome: dict[str, Any]

    @property
    def name(self) -> str:
        """The name by which a person finds the case."""
        return f"{self.version} {self.list_name} {self.outcome['id']}"

    def prepare(self, bases: Path, target: Path) -> Path:
        """Make the damaged store anew at ``target``; undamaged ones are kept below ``bases``."""
        base = bases / self.version / self.mutation.base
        if not base.exists():
            unpack(f"recovery-{self.version}/base-{self.mutation.base}", base)
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(base / "store", target)
        apply_mutation(target, self.mutation, abort=self.outcome["abort"])
        return target

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes of the files of the recorded start."""
        return base_sizes(self.version, self.mutation.base)

    @property
    def settings(self) -> list[str]:
        """The settings of the recorded start."""
        return [*sizes_as_words(self.sizes), *LISTS[self.list_name]]

    def predict(self, root: Path) -> Fields:
        """What the model says."""
        return predict(root, self.version, self.settings)

    def recorded(self, root: Path) -> Fields:
        """What the real classes did."""
        return recorded(self.outcome, root)


def sizes_as_words(sizes: dict[str, int]) -> list[str]:
    """Spell sizes as settings."""
    return [f"{name}={size}" for name, size in sizes.items()]


def base_sizes(version: str, base: str) -> dict[str, int]:
    """Return the sizes of the files of a base."""
    config = _config(version)[base]
    return {name: config[name] for name in SIZES}


@cache
def _config(version: str) -> dict[str, dict[str, Any]]:
    loaded: dict[str, dict[str, Any]] = json.loads((FIXTURES / f"recovery-{version}/config.json").read_text("utf-8"))
    return loaded


@cache
def _catalogue(version: str) -> dict[str, Mutation]:
    folder = f"recovery-{version}"
    return read_catalogue(folder) | read_catalogue(folder, "mutations-fuzz.jsonl")


def cases(version: str) -> Iterator[Case]:
    """Yield every recorded start of a version."""
    for list_name in LISTS:
        name = f"recovery-{version}/{list_name}.jsonl.xz"
        if (FIXTURES / name).exists():
            for outcome in read_lines(name):
                mutation = _catalogue(version)[f"{outcome['base']}/{outcome['mutation']}"]
                yield Case(version, list_name, mutation, outcome)


class Rehearsed(NamedTuple):
    """A start that was rehearsed, and the overlay that it left."""

    outcome: StartOutcome
    overlay: OverlayFileSystem


@contextmanager
def rehearsed(root: Path, version: str, settings: Iterable[str], *, contents: bool = True) -> Iterator[Rehearsed]:
    """Rehearse a start on the store at ``root``."""
    with (
        open_store(str(root), version=VERSIONS[version], assignments=tuple(settings)) as store,
        rehearse(store, contents=contents) as rehearsal,
    ):
        yield Rehearsed(rehearsal.run(), rehearsal.overlay)


def predict(root: Path, version: str, settings: Iterable[str]) -> Fields:
    """Return what the model says of the store at ``root``."""
    with rehearsed(root, version, settings) as (outcome, overlay):
        found: Fields = outcome.as_json()
        changes = found.pop("files")
        for action in ("delete", "create", "modify"):
            found[action] = sorted(change["path"] for change in changes if change["action"] == action)
        found["resize"] = {change["path"]: change["sizeAfter"] for change in changes if change["action"] == "resize"}
        found |= by_family(_digests(overlay))
        found["index"] = [read_index_header(overlay, path) for path in index_files(overlay)]
        found["checkpoint"] = _checkpoint(overlay)
    return found


def by_family(states: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Split files by the directory that they lie in."""
    families = {name: name_of for name_of, name in BYTES.items()}
    found: dict[str, dict[str, Any]] = {name: {} for name in (*BYTES, OTHER_BYTES)}
    for path, state in states.items():
        if not path.startswith(LEFT_OUT):
            found[families.get(path.split("/")[0], OTHER_BYTES)][path] = state
    return found


def _digests(overlay: OverlayFileSystem) -> dict[str, Any]:
    changed = {change.path for change in overlay.changes()}
    found: dict[str, Any] = {}
    for path, kind in iter_tree(overlay):
        if kind is Kind.FILE and path not in changed:
            found[path] = "="
        elif kind is Kind.FILE:
            data = _read(overlay, path)
            found[path] = [len(data), hashlib.sha256(data).hexdigest()]
    return found


def _read(overlay: OverlayFileSystem, path: str, length: int | None = None) -> bytes:
    with overlay.open_read(path) as file:
        return file.pread(file.size() if length is None else length, 0)


def index_files(overlay: OverlayFileSystem) -> Iterator[str]:
    """Yield the index files in the order in which they were made."""
    if overlay.exists("index"):
        names = [entry.name for entry in overlay.listdir("index") if entry.kind is Kind.FILE]
        yield from (f"index/{name}" for name in sorted(names, key=lambda name: (name > "A", len(name), name)))


def read_index_header(overlay: OverlayFileSystem, path: str) -> dict[str, int]:
    """Read a header; a count of 0 stands for 1, which is a file without entries."""
    data = _read(overlay, path, INDEX_HEADER.size).ljust(INDEX_HEADER.size, b"\0")
    header = dict(zip(INDEX_FIELDS, INDEX_HEADER.unpack(data), strict=True))
    return header | {"indexCount": max(header["indexCount"], 1)}


def read_units(overlay: OverlayFileSystem, topic: str, queue_id: str, begin: int, end: int) -> list[list[int]]:
    """Read the units of a queue from one queue offset to another."""
    directory = f"consumequeue/{topic}/{queue_id}"
    units = {}
    for entry in overlay.listdir(directory):
        for number, unit in enumerate(UNIT.iter_unpack(_read(overlay, f"{directory}/{entry.name}"))):
            units[int(entry.name) // UNIT.size + number] = list(unit)
    return [units[number] for number in range(begin, end)]


def _checkpoint(overlay: OverlayFileSystem) -> tuple[int, ...]:
    return CHECKPOINT.unpack(_read(overlay, "checkpoint", CHECKPOINT.size).ljust(CHECKPOINT.size, b"\0"))


def recorded(outcome: dict[str, Any], root: Path) -> Fields:
    """Return the fields of the contract that were recorded of a start on the store at ``root``."""
    load = outcome["load"]
    found: Fields = {
        "loads": load.get("result", False),
        "starts": {"started": True, "hang": "hangs"}.get(outcome["result"], False),
        "messagesLost": outcome["valid_destroyed"],
        "logLines": log_lines(outcome["log"]),
        **by_family(outcome["files_after"]),
        "modify": sorted(_modified(outcome, root)),
    }
    for name, key in (("minPhyOffset", "min_phy"), ("maxPhyOffset", "max_phy")):
        if key in load and (key == "min_phy" or "recovered_max_phy" in outcome):
            found[name] = load[key]
    if "after_load_deleted" in outcome:
        found["delete"] = _kept(outcome["after_load_deleted"])
        found["create"] = _kept(outcome["after_load_added"])
        found["resize"] = outcome["after_load_resized"]
    if "queues" in outcome:
        found["queues"] = bounds(outcome["queues"])
        found["messagesUnreachable"] = outcome["unreachable_valid"]
    return found


def _kept(names: list[str]) -> list[str]:
    return sorted(name for name in names if not name.startswith(LEFT_OUT))


def _modified(outcome: dict[str, Any], root: Path) -> Iterator[str]:
    for path, state in outcome["files_after"].items():
        if state == "=" or path in outcome.get("after_load_resized", {}) or path.startswith(LEFT_OUT):
            continue
        if (root / path).is_file():
            yield path


def log_lines(log: list[dict[str, Any]]) -> list[str]:
    """Return the templates that the store logged while it loaded, once each."""
    lines = (line["template"] for line in log if line["phase"] == "load" and line["logger"] == "RocketmqStore")
    return list(dict.fromkeys(lines))


def bounds(queues: dict[str, Any]) -> dict[str, Any]:
    """Return minimum and maximum of every queue."""
    return {
        topic: {number: {key: queue[key] for key in ("minOffset", "maxOffset")} for number, queue in numbered.items()}
        for topic, numbered in queues.items()
    }


SAME_NAME = "two index files made within one millisecond got one name, and the second took the place of the first"
RACE = "a thread that flushes the checkpoint was late, or the last that flushed it"


def undetermined(ours: Fields, theirs: Fields, outcome: dict[str, Any], index_entries: int) -> dict[str, str]:
    """Return the fields whose difference is shown to be one of those that no model can know, and why.

    Names: a new index file is called by the clock. Of two that are created within one millisecond the second opens the
    first anew and overwrites its entries in place, so there is one file less, and as many entries as it holds. In 4.9
    the header may then be overwritten by the thread that brings the full file on disk: its entries count as lost.

    Races: a thread of its own brings the checkpoint on disk when an index file is full. Two of them may finish in the
    wrong order; and where the broker never comes to its own last flush, the moment of that thread is what remains.
    """
    found: dict[str, str] = {}
    made = theirs.get("create")
    missing = [path for path in ours["create"] if path not in made] if made is not None else []
    if missing and all(path.startswith("index/NEW-") for path in missing):
        mine = [file["indexCount"] - 1 for file in ours["index"]]
        lost = sum(mine) - sum(max(file.get("indexCount", 1), 1) - 1 for file in outcome["index_after"])
        if lost == len(missing) * index_entries or (outcome["version"].startswith("4.9") and lost == mine[-1]):
            found |= {"create": SAME_NAME, "bytes of the index": SAME_NAME}
    after = outcome["checkpoint_after"]
    if after and (ours["starts"] is not False or "exception" in outcome["load"]):
        names = ("physicMsgTimestamp", "logicsMsgTimestamp", "indexMsgTimestamp", "masterFlushedOffset")
        differing = [
            name for name, mine in zip(names, ours["checkpoint"], strict=False) if after.get(name, mine) != mine
        ]
        rolled = [file["endTimestamp"] for file in ours["index"]]
        if differing == ["indexMsgTimestamp"] and after["indexMsgTimestamp"] in rolled:
            found["bytes of the checkpoint"] = RACE
        if differing == ["logicsMsgTimestamp"] and ours["starts"] is not True:
            found["bytes of the checkpoint"] = RACE
    return found


@dataclass(frozen=True)
class Flip:
    """One flipped bit in the commit log, and how many whole messages the start lost."""

    version: str
    base: str
    abort: bool
    offset: int
    bit: int
    lost: int

    @property
    def name(self) -> str:
        """Where the bit is."""
        return f"{self.version} {self.base}, bit {self.bit} at {self.offset}, {'abort' if self.abort else 'clean'}"

    def predict(self, directory: Path) -> int:
        """Return what the model says; undamaged stores are kept below ``directory``."""
        base = directory / f"{self.base}-{self.abort}"
        if not base.exists():
            set_abort(unpack(f"recovery-{self.version}/base-{self.base}", base), self.abort)
        sizes = base_sizes(self.version, self.base)
        start = self.offset - self.offset % sizes["mappedFileSizeCommitLog"]
        with (base / f"store/commitlog/{start:020d}").open("r+b") as file:
            self._flip(file, self.offset - start)
            with rehearsed(base / "store", self.version, sizes_as_words(sizes), contents=False) as (outcome, _):
                self._flip(file, self.offset - start)
                return outcome.messages_lost

    def _flip(self, file: BinaryIO, at: int) -> None:
        old = os.pread(file.fileno(), 1, at)[0]
        os.pwrite(file.fileno(), bytes([old ^ 1 << self.bit]), at)


def flips(version: str) -> Iterator[Flip]:
    """Yield every recorded flip of a version."""
    for base, abort in (("S", True), ("S", False), ("A", True)):
        path = FIXTURES / f"recovery-{version}/flips-{base}-{'abort' if abort else 'clean'}.json"
        for offset, bit, _, lost in json.loads(path.read_text("utf-8"))["rows"]:
            yield Flip(version, base, abort, offset, bit, lost)
