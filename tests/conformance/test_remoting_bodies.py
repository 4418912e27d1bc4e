"""Bodies are those of the real classes: what these write is read as typed values, and what we write they read alike.

Every class that a version has is filled by reflection and written by its fastjson (1 up to 5.3, 2 from 5.4 on). Our
value of it must say the same, and the real class that reads ours must write what it wrote before.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqtool.remoting.body import Body, read_json
from rmqtool.remoting.requests import REQUESTS
from tests.conformance.remoting_classes import class_path

PROGRAM = Path(__file__).parent / "java" / "BodyExchange.java"
# Bodies compared: classes that the version's client has.
COUNTS = {"4.9.7": 47, "5.3.3": 64, "5.4.0": 64, "5.5.0": 64}
# Not in the client's jars: a broker's own.
BROKERS = {"DelayOffsetSerializeWrapper", "TimerMetrics"}
# Times as texts, which Java derives from the numbers beside them.
DERIVED = "TimeStampStr"

pytestmark = [pytest.mark.conformance, pytest.mark.parametrize("version", COUNTS)]


def all_bodies(base: type[Body] = Body) -> Iterator[type[Body]]:
    assert REQUESTS
    for body in base.__subclasses__():
        if body.__module__.startswith("rmqtool."):
            yield body
            yield from all_bodies(body)


def exchange(version: str, folder: Path, *words: object) -> None:
    if shutil.which("javac") is None:
        pytest.skip("javac is not installed")
    jars = class_path(version)
    options = ["-nowarn", "-Xlint:none", "-cp", jars, "-d", str(folder)]
    subprocess.run(["javac", *options, str(PROGRAM)], check=True, stderr=subprocess.DEVNULL)
    command = ["java", "-cp", f"{folder}{os.pathsep}{jars}", "BodyExchange", *map(str, words)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def lines_of(path: Path) -> dict[str, str]:
    return dict(line.split("\t", 1) for line in path.read_text(encoding="utf-8").splitlines())  # type: ignore[misc]


def plain(data: str) -> Any:
    """Return the JSON value without what Java derives."""

    def strip(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: strip(inner) for name, inner in value.items() if not name.endswith(DERIVED)}
        return [strip(inner) for inner in value] if isinstance(value, list) else value

    return strip(read_json(data.encode()))


def test_bodies_are_exchanged_with_the_real_classes(version: str, tmp_path: Path) -> None:
    bodies = {body.__name__: body for body in all_bodies()}
    exchange(version, tmp_path, "write", tmp_path / "theirs", *sorted(bodies))
    theirs = {name: text for name, text in lines_of(tmp_path / "theirs").items() if text != "absent"}
    if version != "4.9.7":
        assert bodies.keys() - theirs.keys() == BROKERS
    ours = {name: bodies[name].decode(text.encode()).encode().decode() for name, text in theirs.items()}
    for name, text in theirs.items():
        assert plain(ours[name]) == plain(text), name
    (tmp_path / "ours").write_text("".join(f"{name}\t{text}\n" for name, text in ours.items()), encoding="utf-8")
    exchange(version, tmp_path, "read", tmp_path / "ours", tmp_path / "again")
    again = lines_of(tmp_path / "again")
    for name, text in theirs.items():
        assert plain(again[name]) == plain(text), name
    assert len(theirs) == COUNTS[version]
