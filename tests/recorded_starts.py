"""Starts of real brokers on damaged stores, as recorded, in the words of ``recover --json``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.damaged import CATALOGUES
from tests.mutations import Mutation, read_catalogue
from tests.stores import FIXTURES, read_lines

VERSIONS = {"4.9.8": "4.9", "5.3.3": "5.3", "5.4.0": "5.4"}
SETTINGS = {
    "outcomes.jsonl.xz": (),
    "outcomes-fuzz.jsonl.xz": (),
    "outcomes-indexsafe.jsonl.xz": ("messageIndexSafe=true",),
    "outcomes-maxnum100.jsonl.xz": ("commitLogRecoverMaxNum=100",),
}
_BOUNDS = ("minOffset", "maxOffset")
_SIZES = ("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue", "maxHashSlotNum", "maxIndexNum")

# How many index files a start makes is not determined in these: two made within one millisecond get one name.
SAME_MILLISECOND = {
    "4.9.8": {"A/cp-empty/abort", "A/cl-missing@first+cp-missing/abort"},
    "5.3.3": {"A/cp-missing/abort", "A-killed/cp-zeros/abort"},
    "5.4.0": {
        *(
            f"A/cp-{name}/abort"
            for name in ("past-all", "negative", "short8", "empty", "zeros", "index-zero", "garbage")
        ),
        "A/cl-missing@first+cp-missing/abort",
        "A-killed/cp-missing/abort",
        "A-killed/cp-zeros/abort",
        "A-killed/rebuild-all/clean",
        "A/fuzz-042/abort",
    },
}


class RecordedStart(NamedTuple):
    """One start: the damage, the settings, what was recorded."""

    version: str
    mutation: Mutation
    settings: tuple[str, ...]
    outcome: dict[str, Any]

    @property
    def name(self) -> str:
        """The id of the outcome, with the settings that are not the base's."""
        return " ".join((self.version, self.outcome["id"], *self.settings))


def recorded_starts(version: str) -> Iterator[RecordedStart]:
    """Yield every recorded start of a version."""
    folder = f"recovery-{version}"
    every = {**read_catalogue(folder), **read_catalogue(folder, CATALOGUES[1][0])}
    for file, settings in SETTINGS.items():
        if (FIXTURES / folder / file).exists():
            for outcome in read_lines(f"{folder}/{file}"):
                mutation = every[f"{outcome['base']}/{outcome['mutation']}"]
                yield RecordedStart(version, mutation, settings, outcome)


def base_settings(version: str, base: str) -> list[str]:
    """Return the sizes of a base's files as settings."""
    config = json.loads((FIXTURES / f"recovery-{version}" / "config.json").read_text())[base]
    return [f"{name}={config[name]}" for name in _SIZES]


def expected(start: RecordedStart, root: Path) -> dict[str, Any]:
    """Return what ``recover --json`` must say, as far as the outcome recorded it; ``root`` is the damaged store."""
    outcome = start.outcome
    load = outcome["load"] or {}
    found: dict[str, Any] = {
        "loads": load.get("result", False),
        "starts": {"started": True, "hang": "hangs"}.get(outcome["result"], False),
        "messagesLost": outcome["valid_destroyed"],
        "logLines": _templates(outcome["log"]),
        "modify": sorted(_modified(outcome, root)),
    }
    for name, value in (
        ("minPhyOffset", load.get("min_phy")),
        ("maxPhyOffset", outcome.get("recovered_max_phy")),
        ("messagesUnreachable", outcome.get("unreachable_valid")),
    ):
        if value is not None:
            found[name] = value
    if "after_load_deleted" in outcome:
        found["delete"] = _ours(outcome["after_load_deleted"])
        found["create"] = _ours(outcome["after_load_added"])
        found["resize"] = outcome["after_load_resized"]
    if "queues" in outcome:
        found["queues"] = {
            topic: {
                queue: {name: bounds[name] for name in ("minOffset", "maxOffset")} for queue, bounds in queues.items()
            }
            for topic, queues in outcome["queues"].items()
        }
    if f"{outcome['id']}" in SAME_MILLISECOND[start.version]:
        found.pop("create", None)
    return found


def _ours(paths: list[str]) -> list[str]:
    return sorted(path for path in paths if not path.startswith("rocksdbstore/"))


def _modified(outcome: dict[str, Any], root: Path) -> Iterator[str]:
    for path, after in outcome["files_after"].items():
        resized = path in outcome.get("after_load_resized", {})
        if after != "=" and not resized and not path.startswith("rocksdbstore/") and (root / path).is_file():
            yield path


def _templates(log: list[dict[str, Any]]) -> list[str]:
    lines = (line["template"] for line in log if line["phase"] == "load" and line["logger"] == "RocketmqStore")
    return list(dict.fromkeys(lines))


def told(shown: dict[str, Any]) -> dict[str, Any]:
    """Return the object of ``recover --json`` with its files by action."""
    files = shown["files"]
    by_action: dict[str, Any] = {
        action: sorted(file["path"] for file in files if file["action"] == action)
        for action in ("delete", "create", "modify")
    }
    by_action["resize"] = {file["path"]: file["sizeAfter"] for file in files if file["action"] == "resize"}
    return {**shown, **by_action}
