"""The model of a start against the real classes, on stores and damage that nobody has seen before."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.oracle.runs import make_store, read_json, start_many
from tests.support.mutations import apply_operation, set_abort
from tests.support.random_damage import Damage
from tests.support.recovered import Valid, valid_records
from tests.support.recovery import LEFT_OUT, UNIT, Fields, bounds, log_lines, rehearsed, sizes_as_words

CASES = 60
# Logged by a thread that another one ends: the loading may be over by then, or not.
RACING = "AllocateMappedFileService interrupted, possibly by shutdown."
TOPICS = ("Orders,pay.done,T_3", "a,%RETRY%grp,Zz-9,Log", "TopicQ1,TopicQ2")


def draw_sizes(dice: random.Random) -> dict[str, int]:
    """Index files have room enough that no two of them are made within a millisecond."""
    return {
        "mappedFileSizeCommitLog": dice.choice((8192, 16384, 32768, 50000)),
        "mappedFileSizeConsumeQueue": dice.choice((400, 1000, 2000, 5999)),
        "maxHashSlotNum": dice.choice((10, 37, 64)),
        "maxIndexNum": 5000,
    }


def draw_content(dice: random.Random, *, killed: bool) -> dict[str, object]:
    topics = dice.choice(TOPICS)
    content: dict[str, object] = {
        "seed": dice.randrange(10**6),
        "n": dice.choice((150, 400, 900)),
        "bursts": dice.choice((1, 4)),
        "pause": dice.choice((300, 2500)),
        "topics": topics,
        "queues": ",".join(str(dice.choice((1, 2, 4))) for _ in topics.split(",")),
        "bodyMax": dice.choice((60, 200, 700)),
    }
    return content | ({"end": "kill", "wait": 30} if killed else {})


def draw_settings(dice: random.Random, version: str) -> dict[str, str]:
    """Return what a case has beside the sizes: mostly nothing."""
    settings: dict[str, tuple[str, ...]] = {
        "messageIndexSafe": ("true",),
        "messageIndexEnable": ("false",),
        "checkCRCOnRecover": ("false",),
        "flushDiskType": ("SYNC_FLUSH",),
        "duplicationEnable": ("true",),
    }
    if version == "5.4.0":
        settings["commitLogRecoverMaxNum"] = ("1", "3", "100", "0", "-1")
    if dice.random() < 0.6:
        return {}
    return {name: dice.choice(settings[name]) for name in dice.sample(sorted(settings), dice.choice((1, 1, 2)))}


@pytest.mark.conformance
@pytest.mark.parametrize("version", ["4.9.8", "5.3.3", "5.4.0"])
def test_fresh_damage(version: str, real_classes: Callable[[str], None], tmp_path: Path) -> None:
    real_classes(version)
    seed = os.environ.get("RMQTOOL_SEED", "1")  # another one makes other cases
    wrong = []
    for killed in (False, True):
        wrong += differences(version, f"{seed} {killed}", tmp_path / str(killed), killed=killed)
    assert wrong == [], f"RMQTOOL_SEED={seed} gives these cases again"


def differences(version: str, seed: str, directory: Path, *, killed: bool) -> list[str]:
    dice = random.Random(seed)
    sizes = draw_sizes(dice)
    texts = {name: str(value) for name, value in sizes.items()}
    base = directory / "base"
    directory.mkdir()
    make_store(version, base, settings=texts, content=draw_content(dice, killed=killed))
    damaged, stores, outs, own = [], [], [], []
    for number in range(CASES // 2):
        store = directory / f"{number}" / "damaged"
        shutil.copytree(base, store)
        operations = Damage(store, f"{seed} {number}").draw()
        for operation in operations:
            apply_operation(store, operation)
        set_abort(store, dice.random() < 0.6)
        own.append(draw_settings(dice, version))
        damaged.append((store, operations))
        stores.append(shutil.copytree(store, directory / f"{number}" / "store"))
        outs.append(directory / f"{number}" / "out.json")
    start_many(version, stores, outs, settings=texts, own_settings=own)
    wrong = []
    for (root, operations), more, store, out in zip(damaged, own, stores, outs, strict=True):
        words = [*sizes_as_words(sizes), *(f"{name}={value}" for name, value in more.items())]
        ours, theirs = predicted(root, version, words), told(read_json(out), root, store)
        if theirs["loads"] and theirs["starts"] is False:
            # A thread of the failing start writes it after a second, if the process is still there.
            theirs["bytes"].pop("checkpoint", None)
            ours["bytes"].pop("checkpoint", None)
        for name, value in theirs.items():
            if ours[name] != value:
                what = f"{json.dumps(operations)[:600]} {more}"
                wrong.append(f"{root}: {what}, {name}: {ours[name]!r:.300} instead of {value!r:.300}")
    return wrong


def predicted(root: Path, version: str, settings: list[str]) -> Fields:
    with rehearsed(root, version, settings) as (outcome, overlay):
        found: Fields = outcome.as_json()
        with rehearsed(root, version, settings, contents=False) as (told_only, _):
            assert told_only == outcome
        for action in ("delete", "create", "resize", "modify"):
            found[action] = sorted(change["path"] for change in found["files"] if change["action"] == action)
        found["bytes"] = {}
        for path in (*sizes_below(root), *found["create"]):
            if overlay.exists(path):
                with overlay.open_read(path) as file:
                    found["bytes"][path] = file.pread(file.size(), 0)
    return found


def sizes_below(root: Path) -> dict[str, int]:
    files = {str(path.relative_to(root)): path.stat().st_size for path in root.rglob("*") if path.is_file()}
    return {path: size for path, size in files.items() if not path.startswith(LEFT_OUT) and path != "abort"}


def told(answer: dict[str, Any], root: Path, store: Path) -> Fields:
    """Return what happened to ``root``: ``store`` is what the real classes made of its copy."""
    before = sizes_below(root)
    load = answer.get("load", {"files": sizes_below(store)})
    after = {path: size for path, size in load["files"].items() if not path.startswith(LEFT_OUT) and path != "abort"}
    made = sorted(after.keys() - before.keys())
    names = {
        path: f"index/NEW-{1 + made.index(path) - _first_index(made)}" for path in made if path.startswith("index/")
    }
    bytes_after = {path: (store / path).read_bytes() for path in {*before, *made} if (store / path).is_file()}
    found: Fields = {
        "loads": load.get("result", False),
        "starts": "hangs" if answer["timeout"] else bool(answer.get("start", {}).get("ok")),
        "delete": sorted(before.keys() - after.keys()),
        "create": sorted(names.get(path, path) for path in made),
        "resize": sorted(path for path in before.keys() & after.keys() if before[path] != after[path]),
        "bytes": {names.get(path, path): data for path, data in bytes_after.items()},
        "logLines": [line for line in log_lines(answer["log"]) if line != RACING],
    }
    if "min_phy" in load:
        found["minPhyOffset"] = load["min_phy"]
    if found["loads"]:
        found["maxPhyOffset"] = load["max_phy"]
    valid = set(valid_records(root))
    left = valid & set(valid_records(store))
    if found["loads"]:
        left = {record for record in left if load["min_phy"] <= record.physical_offset < load["max_phy"]}
    found["messagesLost"] = len(valid) - len(left)
    if "running" in answer:
        queues = bounds(answer["running"]["queues"])
        delayed = queues.pop("SCHEDULE_TOPIC_XXXX", {})
        assert all(queue["maxOffset"] == 0 for queue in delayed.values())
        found["queues"] = queues
        low, high = load["min_phy"], load["max_phy"]
        served = {record for record in valid_records(store) if low <= record.physical_offset < high}
        found["messagesUnreachable"] = sum(1 for _ in unreached(store, served, queues))
    return found


def unreached(store: Path, records: set[Valid], queues: Fields) -> Iterator[Valid]:
    """Yield the records to which no unit leads that their queue offers."""
    units: dict[tuple[str, int], set[tuple[int, int]]] = {}
    for record in records:
        queue = record.topic, record.queue_id
        if queue not in units:
            offered = queues.get(record.topic, {}).get(str(record.queue_id))
            directory = store / "consumequeue" / record.topic / str(record.queue_id)
            units[queue] = set() if offered is None else set(_units(directory, **offered))
        if record.dispatched and (record.physical_offset, record.size) not in units[queue]:
            yield record


def _units(directory: Path, minOffset: int, maxOffset: int) -> Iterator[tuple[int, int]]:  # noqa: N803
    for path in directory.iterdir() if directory.is_dir() else ():
        if path.is_file() and path.name.isdecimal():
            for number, (offset, size, _) in enumerate(UNIT.iter_unpack(path.read_bytes())):
                if minOffset <= int(path.name) // UNIT.size + number < maxOffset:
                    yield offset, size


def _first_index(made: list[str]) -> int:
    return next(number for number, path in enumerate(made) if path.startswith("index/"))
