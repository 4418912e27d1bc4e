"""What an operator sees at night, from the first command on: the incidents of the recipes, on damaged real stores.

After the first command comes what the screen says comes next, and so on until nothing does, or until it is nothing that
can be typed here. So the transcripts show two things: what is seen, and that no screen leads in a circle.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import pytest

from tests.docs.screens import at_home, run_command, settled
from tests.support.golden_files import check_golden
from tests.support.stores import unpack

_SEGMENT = 65536
# The most commands of one incident: a longer way would not be followed.
_MOST = 7


def _patch_file(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def _segment(root: Path, number: int) -> Path:
    return root / "commitlog" / f"{number * _SEGMENT:020d}"


def _lose_tail(root: Path) -> None:
    """The last 12 kB of the log never reached the disk, and the broker is gone."""
    _patch_file(_segment(root, 3), 25_108 - 12_000, bytes(12_000))
    (root / "abort").touch()


def _lose_tail_and_page(root: Path) -> None:
    """So, and one page before it did not either."""
    _lose_tail(root)
    _patch_file(_segment(root, 2), 8192, bytes(4096))


def _lose_segment(root: Path) -> None:
    _segment(root, 1).unlink()


def _shorten_segment(root: Path) -> None:
    os.truncate(_segment(root, 1), 30_000)


def _shorten_queue(root: Path) -> None:
    os.truncate(root / "consumequeue/T_normal/0/00000000000000000600", 313)


def _cut_topics(root: Path) -> None:
    os.truncate(root / "config/topics.json", 100)


def _cut_topics_and_copy(root: Path) -> None:
    _cut_topics(root)
    (root / "config/topics.json.bak").unlink()


def _unmount(root: Path) -> None:
    for path in (root / "commitlog").iterdir():
        path.unlink()


def _spoil_checkpoint(root: Path) -> None:
    (root / "checkpoint").write_bytes(bytes(range(1, 256)) * 16)


def _lose_queues(root: Path) -> None:
    for topic in ("T_fifo", "rmq_sys_REVIVE_LOG_DevCluster"):
        subprocess.run(["rm", "-r", root / "consumequeue" / topic], check=True)


def _nothing(_: Path) -> None:
    """A sound store, or one that is damaged as it came."""


class Incident(NamedTuple):
    """What happened to which store, and what is typed first; ``follows`` tells whether the screens are obeyed then."""

    store: str
    damage: Callable[[Path], None]
    typed: Sequence[str]
    follows: bool = True


INCIDENTS = {
    "start-torn": Incident("49-killed-torn", _nothing, ["rmqtool recover store"]),
    "start-queue-size": Incident("53-broker", _shorten_queue, ["rmqtool recover store"]),
    "start-log-size": Incident("53-broker", _shorten_segment, ["rmqtool recover store"]),
    "start-topics": Incident("53-broker", _cut_topics, ["rmqtool recover store"]),
    "start-no-topics": Incident("53-broker", _cut_topics_and_copy, ["rmqtool recover store"]),
    "start-unmounted": Incident("53-broker", _unmount, ["rmqtool recover store"]),
    "start-ghosts": Incident("49-ghost", _nothing, ["rmqtool recover store"]),
    "vanished-tail": Incident("53-broker", _lose_tail, ["rmqtool check store"]),
    "vanished-tail-and-page": Incident("53-broker", _lose_tail_and_page, ["rmqtool check store"]),
    "vanished-segment": Incident("53-broker", _lose_segment, ["rmqtool check store"]),
    "vanished-before": Incident("49-recovered", _nothing, ["rmqtool recover store"]),
    "queues-gone": Incident("53-broker", _lose_queues, ["rmqtool check store"]),
    "checkpoint": Incident("49-killed", _spoil_checkpoint, ["rmqtool info store"]),
    "disk-full": Incident(
        "53-broker",
        _nothing,
        [
            "rmqtool stat store --by topic -n 4",
            "rmqtool stat store retention",
            "rmqtool copy store rest --purge T_normal",
        ],
    ),
    "behind": Incident("53-broker", _nothing, ["rmqtool info store groups -g 'G_*'"]),
    "order": Incident(
        "53-broker",
        _nothing,
        [
            "rmqtool query store retry-99",
            "rmqtool query store retry-9 -n 1 --history",
            "rmqtool query store T_retry/7@2",
        ],
        follows=False,
    ),
    "split": Incident(
        "53-broker",
        _nothing,
        [
            "rmqtool copy store new -t T_fifo -t T_retry",
            "rmqtool diff store new --by message -t T_fifo -t T_retry",
            "rmqtool check new --only CQ",
            "rmqtool topic store delete T_fifo --yes",
            "rmqtool check store --only CF",
        ],
    ),
}


def _typed(incident: Incident) -> Iterator[tuple[str, tuple[str, ...], int]]:
    """Type what a person types, and then what each screen says comes next."""
    waiting = list(incident.typed)
    done: list[str] = []
    while waiting:
        command = waiting.pop(0)
        assert command not in done, f"in a circle: {' → '.join([*done, command])}"
        done.append(command)
        assert len(done) <= _MOST, f"no end: {' → '.join(done)}"
        shown = run_command(command)
        yield command, shown.lines, shown.status
        if incident.follows and not waiting:
            waiting = [line.removeprefix("Next: ") for line in shown.lines if line.startswith("Next: ")]
            for other in [line for line in waiting if line.startswith("cp -a ")]:
                subprocess.run(shlex.split(other), check=True)
            waiting = [line for line in waiting if line.startswith("rmqtool ") and ">" not in line]


@pytest.mark.parametrize("name", INCIDENTS)
@pytest.mark.parametrize("width", [80, pytest.param(120, marks=pytest.mark.slow)])
def test_transcript(name: str, width: int, tmp_path: Path) -> None:
    incident = INCIDENTS[name]
    root = unpack(incident.store, tmp_path)
    incident.damage(root)
    there = {path.name for path in root.glob("index/*")}
    with at_home(tmp_path), patch.dict(os.environ, COLUMNS=str(width)):
        screens = list(_typed(incident))

    def shown(line: str) -> str:
        return settled(line, str(tmp_path), there)

    text = "".join(
        "\n".join((f"$ {shown(command)}", *map(shown, lines), f"[{status}]\n", ""))
        for command, lines, status in screens
    )
    check_golden(f"incidents/{name}-{width}.txt", text)
