"""The oracle says of a store what its truth file holds: the answers can be had again for any store."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.oracle.comparison import differences
from tests.conformance.oracle.packages import VERSIONS, generation
from tests.conformance.oracle.runs import read_json, start, truth
from tests.support.mutations import apply_mutation, read_catalogue
from tests.support.stores import FIXTURES, left_alone, read_lines

RealClasses = Callable[[str], None]


@pytest.mark.conformance
@pytest.mark.parametrize(("name", "version"), [("49-basic", "4.9.8"), ("53-basic", "5.3.3"), ("54-broker", "5.4.0")])
def test_truth_is_as_recorded(
    name: str, version: str, store: Callable[[str], Path], real_classes: RealClasses, tmp_path: Path
) -> None:
    real_classes(version)
    recorded, out = FIXTURES / f"{name}.truth.json.xz", tmp_path / "out.json"
    with left_alone(store(name)):
        assert truth(version, store(name), out, config=recorded, queries=recorded) == 0
    assert differences(recorded, out) == []
    assert read_json(out)["read_by"] == version


@pytest.mark.conformance
def test_every_queue_takes_another_message(
    store: Callable[[str], Path], real_classes: RealClasses, tmp_path: Path
) -> None:
    real_classes("4.9.8")
    recorded, out = FIXTURES / "49-ipv6.truth.json.xz", tmp_path / "out.json"
    assert truth("4.9.8", store("49-ipv6"), out, config=recorded, queries=recorded, put=True) == 0
    answers = read_json(out)["putProbe"]
    assert [(put["queueId"], put["status"], put["queueOffset"], put["readBack"]) for put in answers] == [
        (0, "PUT_OK", 60, True),
        (1, "PUT_OK", 60, True),
        (2, "PUT_OK", 60, True),
    ]
    assert [line.partition(":")[0] for line in differences(recorded, out)] == ["/putProbe"]


def queues_of(answer: dict[str, Any]) -> dict[str, Any]:
    """Return the queues that hold something, their digests cut as in the recorded outcomes."""
    return {
        topic: {
            queue: found | ({"servedPhySha256": found["servedPhySha256"][:16]} if found["served"] else {})
            for queue, found in queues.items()
        }
        for topic, queues in answer.items()
        if any(found["served"] for found in queues.values())
    }


@pytest.mark.conformance
@pytest.mark.parametrize("key", ["A/none/clean", "A/body-flip@last-mid/abort"])
@pytest.mark.parametrize("version", ["4.9.8", "5.3.3", "5.4.0"])
def test_start_is_as_recorded(
    version: str, key: str, writable_store: Callable[[str], Path], real_classes: RealClasses, tmp_path: Path
) -> None:
    real_classes(version)
    folder, out, kept = f"recovery-{version}", tmp_path / "out.json", tmp_path / "kept"
    mutation, _, abort = key.rpartition("/")
    root = writable_store(f"{folder}/base-A")
    apply_mutation(root, read_catalogue(folder)[mutation], abort=abort == "abort")
    settings = {name: str(value) for name, value in read_json(FIXTURES / folder / "config.json")["A"].items()}
    with left_alone(root):
        assert start(version, root, out, keep=kept, settings=settings) == 0
    recorded = next(outcome for outcome in read_lines(f"{folder}/outcomes.jsonl.xz") if outcome["id"] == key)
    answer = read_json(out)
    assert answer["load"]["result"] is True
    assert answer["load"]["max_phy"] == recorded["recovered_max_phy"]
    assert queues_of(answer["running"]["queues"]) == recorded["queues"]
    assert not (kept / "abort").exists()


def test_differences_are_named(tmp_path: Path) -> None:
    one, other = tmp_path / "one.json", tmp_path / "other.json"
    one.write_text(json.dumps({"name": "a", "min_phy": 0, "messages": [{"topic": "T", "flag": 1}], "blanks": []}))
    other.write_text(json.dumps({"name": "b", "min_phy": 0, "messages": [{"topic": "T", "flag": 2}], "blanks": [{}]}))
    assert differences(one, other) == ["/blanks: [] != [{}]", "/messages/0/flag: 1 != 2"]
    assert differences(one, one) == []


def test_every_version_has_a_generation() -> None:
    assert {version: generation(version) for version in VERSIONS} == {
        "4.9.7": "4",
        "4.9.8": "4",
        "5.3.3": "5",
        "5.4.0": "5",
    }
