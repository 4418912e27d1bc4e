"""The console blocks of a document: run one after the other in one directory, written into it, and compared."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from glob import glob
from pathlib import Path
from typing import NamedTuple

from tests.docs.screens import at_home, run_command
from tools.manual.examples import Example
from tools.manual.recipes import RECIPES

ROOT = Path(__file__).resolve().parents[2]
TOUR = ROOT / "README.md"
# The same tour with other words around it, and the recipes of the manual.
CHINESE_TOUR = ROOT / "README.zh.md"
CHINESE_RECIPES = ROOT / "docs" / "recipes.zh.md"
_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.M | re.S)
# Output that differs each time: times, ids that contain them, durations, names of plans.
_OTHER_EACH_TIME = (
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} [+-]\d\d:\d\d"), "<time>"),
    # The history of a message names the day once, and the time of each event.
    (re.compile(r"^on \d{4}-\d\d-\d\d [+-]\d\d:\d\d:$", re.MULTILINE), "on <day>:"),
    (re.compile(r"^\d\d:\d\d:\d\d\.\d{3}(?=  )", re.MULTILINE), "<hour>"),
    (re.compile(r"\b[0-9A-F]{32}\b"), "<id>"),
    (re.compile(r"\b[0-9a-f]{12}\b"), "<plan>"),
    (re.compile(r"(?<= in )\d+(\.\d+)? m?s\b"), "<span>"),
    (re.compile(r"\b\d{17}\b"), "<index>"),
    (re.compile(r"\b\d+\.\d KiB of Parquet|[\d.]+ KiB in|[\d,]+ B in"), "<size>"),
)


class Command(NamedTuple):
    """A command of a document, and the lines below it."""

    command: str
    lines: tuple[str, ...]


def commands_of(text: str) -> Iterator[Command]:
    """Yield the commands of all console blocks."""
    for block in _BLOCK.findall(text):
        for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
            command, *lines = part.rstrip("\n").split("\n")
            yield Command(command, tuple(lines))


def run_tour(text: str) -> list[Command]:
    """Run the commands of a document, and return them with what they print."""
    with tempfile.TemporaryDirectory(prefix="rmqtool-tour-") as directory:
        home = Path(directory, "broker-a")
        home.mkdir()
        with at_home(home):
            return [Command(one.command, tuple(_run(one.command, directory))) for one in commands_of(text)]


def with_output(text: str, ran: list[Command]) -> str:
    """Return the document with what the commands print below them."""
    commands = iter(ran)

    def block(match: re.Match[str]) -> str:
        shown = [next(commands) for _ in commands_of(match[0])]
        return "```console\n" + "".join("\n".join((f"$ {one.command}", *one.lines)) + "\n" for one in shown) + "```"

    return _BLOCK.sub(block, text)


def settled(lines: tuple[str, ...]) -> list[str]:
    """Return the lines with placeholders for everything that differs each time."""
    text = "\n".join(lines)
    for pattern, stand_in in _OTHER_EACH_TIME:
        text = pattern.sub(stand_in, text)
    return text.split("\n")


def _run(command: str, directory: str) -> list[str]:
    if not command.startswith("rmqtool "):
        subprocess.run(["bash", "-c", command], check=True)
        return []
    words = [next(iter(glob(word)), word) if "*" in word else word for word in command.split(" ")]
    shown = run_command(" ".join(words))
    return [line.replace(directory, "").rstrip() for line in shown.lines]


def write_tours(screen: Callable[[Example], tuple[str, ...]]) -> None:
    """Write the current output of the commands into the documents, if it has changed."""
    text = TOUR.read_text(encoding="utf-8")
    ran = run_tour(text)
    if [settled(one.lines) for one in ran] != [settled(one.lines) for one in commands_of(text)]:
        TOUR.write_text(with_output(text, ran), encoding="utf-8")
    same = list(commands_of(TOUR.read_text(encoding="utf-8")))
    recipes = [Command(example.command, screen(example)) for example in recipe_examples()]
    for path, shown in ((CHINESE_TOUR, same), (CHINESE_RECIPES, recipes)):
        path.write_text(with_output(path.read_text(encoding="utf-8"), shown), encoding="utf-8")


def recipe_examples() -> list[Example]:
    """Return the examples of the recipes, in their order."""
    return [step for _, steps in RECIPES for step in steps if isinstance(step, Example)]
