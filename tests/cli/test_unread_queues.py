"""Queues and index files that cannot be read cost a look only themselves: the log is read to its end all the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rmqtool.errors import Exit
from tests.guards.incidents import spoil
from tests.guards.surroundings import bad_sector, unreadable
from tests.guards.typed import json_lines, type_words

MESSAGES = 415
QUEUE = f"consumequeue/T_normal/0/{0:020d}"
FAULTS: dict[str, Callable[[Path], AbstractContextManager[object]]] = {
    "permission": unreadable,
    "bad sector": partial(bad_sector, begin=0, end=4096),
}


@pytest.fixture
def root(writable_store: Any) -> Path:
    """Give a store without findings."""
    found: Path = writable_store("53-broker")
    return found


def victim(root: Path, kind: str) -> str:
    """Return the path of a queue file or of an index file."""
    return QUEUE if kind == "queue" else f"index/{min(path.name for path in (root / 'index').iterdir())}"


@pytest.mark.parametrize("jobs", ["1", "2"])
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("kind", ["queue", "index"])
def test_check_names_the_file_and_reads_the_log_to_its_end(root: Path, kind: str, fault: str, jobs: str) -> None:
    file = victim(root, kind)
    with FAULTS[fault](root / file):
        typed = type_words(["check", str(root), "--jsonl", "-j", jobs])
    *found, last = json_lines(typed)
    assert [(one["code"], one["file"]) for one in found] == [("ST-READ", file)]
    assert typed.status == Exit.SKIPPED
    assert (last["summary"]["messages"], last["summary"]["complete"]) == (MESSAGES, False)


def test_check_still_finds_what_is_wrong_elsewhere(root: Path) -> None:
    spoil(root / f"consumequeue/T_normal/1/{0:020d}", 27, 1)
    with unreadable(root / QUEUE):
        *found, _ = json_lines(type_words(["check", str(root), "--jsonl"]))
    assert [(one["code"], one["file"]) for one in found] == [
        ("ST-READ", QUEUE),
        ("CQ-WRONG", f"consumequeue/T_normal/1/{0:020d}"),
    ]


TIME = "2026-11-18T12:19:26Z"


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["query", "{}", TIME, "-t", "T_normal", "-q", "0", "--kind", "time"], None),
        (["query", "{}", TIME, "-t", "T_normal", "--kind", "time"], "T_normal/1   a broker answers offset 35"),
        (["stat", "{}", "retention"], "415"),
        (["diff", "{}", "{}"], "380 messages"),
        (["consume", "{}", "-g", "G", "-t", "T_normal", "--from", "first", "-n", "1"], "T_normal/1 @ 0"),
        (["info", "{}", "groups"], "G_ok"),
    ],
    ids=lambda value: " ".join(value[:1] + value[2:]) if isinstance(value, list) else "",
)
def test_a_look_goes_on_without_the_queue_and_says_so(
    root: Path, fault: str, words: list[str], answer: str | None
) -> None:
    with FAULTS[fault](root / QUEUE):
        typed = type_words([word.format(root) for word in words])
    assert typed.status == Exit.SKIPPED, typed.said
    assert answer is None or answer in typed.out
    assert QUEUE in typed.said
    assert "past the end of a queue" not in typed.said


@pytest.mark.parametrize("words", ["-t T_normal -q 0", "-t T_normal --commit"])
def test_a_queue_that_is_needed_is_not_passed_over(root: Path, words: str) -> None:
    with unreadable(root / QUEUE):
        typed = type_words(["consume", str(root), "-g", "G", *words.split()])
    assert (typed.status, typed.out) == (Exit.NOT_A_STORE, "")


def test_a_bad_sector_leads_to_a_salvage(root: Path) -> None:
    with bad_sector(root / QUEUE, 0, 4096):
        for command in ("check", "info"):
            assert f"fix: rmqtool copy {root} {root}.new --salvage" in type_words([command, str(root)]).out
        for command in ("repair", "recover --apply", "tick"):
            typed = type_words([command.split()[0], str(root), *command.split()[1:]])
            assert typed.status == Exit.NOT_A_STORE
            assert "--salvage copies what can be read" in typed.err


@pytest.mark.parametrize("fault", FAULTS)
def test_readers_of_the_log_do_not_need_the_queue(root: Path, fault: str, tmp_path: Path) -> None:
    with FAULTS[fault](root / QUEUE):
        exported = type_words(["export", str(root), "--engine", "local", "--to", str(tmp_path / "lake"), "--json"])
        salvaged = type_words(["copy", str(root), str(tmp_path / "new"), "--salvage", "--json"])
    assert exported.status == Exit.DONE
    assert json.loads(exported.out)["rows"] == MESSAGES
    assert json.loads(salvaged.out)["messages"] == MESSAGES
    assert type_words(["check", str(tmp_path / "new")]).status == Exit.DONE
