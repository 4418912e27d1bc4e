"""What a type checker says to programs that use the library: nothing to right ones, and which line of a wrong one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import rmqtool
from rmqtool.api import shapes
from rmqtool.formats.message_json import FIELDS
from rmqtool.render import schemas

RIGHT = {
    "a glance": """
        def lag(path: str) -> int:
            queues = [of for topics in rmqtool.info(path)["groups"].values() for of in topics.values()]
            return sum(place["lag"] or 0 for of in queues for place in of.values())
    """,
    "messages and damage": """
        def bodies(path: str) -> list[str | None]:
            return [found["body"] for found in rmqtool.scan(path, topics="Orders", begin="-2h") if "body" in found]
    """,
    "a query": """
        def place(store: rmqtool.Store, key: str) -> int:
            return store.query(key, history=True)["messages"][0]["commitLogOffset"]
    """,
    "statistics": """
        def total(path: str) -> int:
            return rmqtool.stat(path, ["topic", "tag"], tags="a || b")["total"]["messages"]
    """,
    "findings": """
        def codes(path: str) -> set[str]:
            checked = rmqtool.check(path, only=["CL"], quick=True)
            return {finding.code for finding in checked if finding.severity is not None}
    """,
    "a difference": """
        def same(a: str, b: str) -> bool:
            return rmqtool.diff(a, b, by="message")["same"]
    """,
    "a repair": """
        def mend(store: rmqtool.Store) -> tuple[bool, str]:
            plan = store.repair(parts=["queues"], apply=True)
            return plan["applied"], plan["plan"]
    """,
    "a copy": """
        def split(path: str, to: str) -> int:
            return rmqtool.copy([path], to, {"renumber": True}, topics=["Orders"])["messages"]
    """,
    "a producer": """
        def send(path: str) -> list[str]:
            stored = rmqtool.put(path, {"topic": "Orders", "body": b"tea"}, create=True)
            return [one["status"] for one in stored]
    """,
    "a consumer": """
        def take(path: str) -> dict[str, str]:
            with rmqtool.open(path, version="5.3", conf={"brokerName": "a"}) as store:
                return {one["topic"]: one["storeHost"] for one in store.consume("shop", limit=10)}
    """,
}
WRONG = {
    "a member that is not there": (
        'def f(path: str) -> object:\n    return rmqtool.info(path)["topcs"]',
        "typeddict-item",
    ),
    "a keyword that is not there": ('def f(path: str) -> None:\n    rmqtool.scan(path, topic="Orders")', "call-arg"),
    "a type that is not it": (
        'def f(path: str) -> int:\n    return rmqtool.recover(path)["files"][0]["path"]',
        "return-value",
    ),
}


def _judged(tmp_path: Path, text: str) -> str:
    file = tmp_path / "program.py"
    file.write_text(f"import rmqtool\n\n{text}\n")
    cache = Path(rmqtool.__file__).parent.parent / ".mypy_cache"
    words = ["--strict", "--no-error-summary", "--config-file=", "--cache-dir", str(cache), str(file)]
    command = [sys.executable, "-m", "mypy", "--follow-imports=silent", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path).stdout


def test_right_programs_are_right(tmp_path: Path) -> None:
    from textwrap import dedent

    assert len(RIGHT) == 10
    assert _judged(tmp_path, "\n\n".join(dedent(text) for text in RIGHT.values())) == ""


def test_wrong_programs_are_wrong(tmp_path: Path) -> None:
    said = _judged(
        tmp_path, "\n\n".join(text.replace(" f(", f" f{at}(") for at, (text, _) in enumerate(WRONG.values()))
    )
    assert [code for _, code in WRONG.values()] == [
        line.rpartition("[")[2].rstrip("]") for line in said.splitlines() if ": error:" in line
    ], said


def test_the_package_says_that_it_is_typed() -> None:
    assert (Path(rmqtool.__file__).parent / "py.typed").is_file()


SHAPES: dict[str, Any] = {
    "cluster-info": shapes.ClusterInfo,
    "copied": shapes.Copied,
    "damage": shapes.Damage,
    "diff": shapes.Differences,
    "dump": shapes.Dump,
    "export": shapes.Exported,
    "finding": shapes.FindingJson,
    "groups": shapes.Groups,
    "info": shapes.Info,
    "message": shapes.Message,
    "produced": shapes.Stored,
    "query": shapes.Answer,
    "recover": shapes.Rehearsed,
    "recovered": shapes.Recovered,
    "region": shapes.Region,
    "repair": shapes.Plan,
    "repair-past": shapes.PastRepair,
    "repair-undone": shapes.Undone,
    "stat": shapes.Counts,
    "ticked": shapes.Ticked,
    "ticked-summary": shapes.TickSummary,
}


@pytest.mark.parametrize("name", SHAPES)
def test_a_type_has_the_members_of_its_schema(name: str) -> None:
    import json

    schema = json.loads((Path(schemas.__file__).parent / f"{name}.json").read_text())
    members = set(SHAPES[name].__annotations__)
    assert set(schema["properties"]) <= members
    required = {member for member, kind in SHAPES[name].__annotations__.items() if "NotRequired" not in str(kind)}
    assert set(schema["required"]) <= required


def test_the_fields_of_a_message_are_those_of_its_type() -> None:
    assert shapes.MESSAGE_FIELDS == FIELDS
