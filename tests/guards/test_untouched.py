"""Whatever writes and cannot, or may not, leaves every byte as it was: names, modes and contents, beside the store too.

Each writing command meets input that it refuses, a full disk, a disk that is read-only, and a lock that another process
holds. The disks are real file systems where mounting is allowed, and system calls that fail everywhere.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from rmqtool.cli import command_tree
from rmqtool.commands.table import COMMANDS, Panel
from rmqtool.errors import Exit
from tests.guards import surroundings
from tests.guards.incidents import put, segment, spoil
from tests.guards.typed import at, type_words
from tests.support.stores import content_digest, unpack

_FILLER = "filler"
_LINES = b'{"topic": "T_normal", "body": "one"}\n{"topic": "T_normal", "body": "two"}\n'


class Writer(NamedTuple):
    """A command that writes into a store, or beside it, and what each surrounding makes of it.

    ``words`` gives the command line for a store's root. ``refused`` are lines that it must refuse, with their status.
    ``locked`` is DONE for what only reads the store that is held. ``makes_room``: on a disk that is really full it may
    be done all the same, because it deletes more than it makes, and the journal's last block may have space left.
    """

    words: Callable[[Path], Sequence[object]]
    refused: Sequence[tuple[Callable[[Path], Sequence[object]], Exit]]
    prepare: Callable[[Path], object] = lambda _: None
    given: bytes = b""
    full: Exit = Exit.WRITE_FAILED
    read_only: Exit = Exit.WRITE_FAILED
    locked: Exit = Exit.IN_USE
    makes_room: bool = False


def _flip(root: Path) -> None:
    spoil(segment(root, 1), 8300, 1)


def _lose_queue(root: Path) -> None:
    shutil.rmtree(root / "consumequeue/T_normal")


def _tear(root: Path) -> None:
    put(segment(root, -1), 25_000, bytes(108))
    (root / "abort").touch()


def _repaired(root: Path) -> None:
    """A store whose repair can be taken back, which makes a file again."""
    put(segment(root, 1, "index"), 0, bytes(40))
    assert type_words(["repair", str(root), "--apply"]).status == Exit.DONE


def _journal(root: Path) -> Path:
    (found,) = (root.parent / f"{root.name}-rmqtool-undo").iterdir()
    return found


def _crashed(root: Path) -> None:
    (root / "abort").touch()


def _occupied(name: str) -> Callable[[Path], None]:
    def occupy(root: Path) -> None:
        (root.parent / name).mkdir()
        (root.parent / name / "kept").write_bytes(b"kept")

    return occupy


# Some messages of the store were stored then or later.
_TIME = "2026-11-18T12:19:25.600Z"


def _beside(root: Path, name: str) -> Path:
    return root.parent / name


WRITERS: dict[str, Writer] = {
    "produce": Writer(
        lambda root: ["produce", root, "-t", "T_normal", "hello"],
        [
            (lambda root: ["produce", root, "-t", "NoSuch", "hello"], Exit.NO),
            (lambda root: ["produce", root, "-t", "T_normal", "-p", "novalue", "hello"], Exit.USAGE),
            (lambda root: ["produce", root, "-t", "T_normal", "-q", "99", "hello"], Exit.USAGE),
            (lambda root: ["produce", root, "hello"], Exit.USAGE),
        ],
    ),
    "produce --jsonl": Writer(
        lambda root: ["produce", root, "--jsonl"],
        [
            (lambda root: ["produce", root, "--jsonl", "--file", _beside(root, "bad.jsonl")], Exit.USAGE),
            (lambda root: ["produce", root, "--jsonl", "--file", _beside(root, "missing.jsonl")], Exit.NOT_A_STORE),
        ],
        prepare=lambda root: _beside(root, "bad.jsonl").write_bytes(b'{"topic": "T_normal"\n'),
        given=_LINES,
    ),
    "produce --replay": Writer(
        lambda root: ["produce", root, "--replay", "-g", "G_retry"],
        [
            (lambda root: ["produce", root, "--replay", "-g", "G_none"], Exit.NO),
            (lambda root: ["produce", root, "--replay"], Exit.USAGE),
            (
                lambda root: ["produce", root, "--replay", "-g", "G_ok", "--jsonl", _beside(root, "bad.jsonl")],
                Exit.USAGE,
            ),
        ],
        prepare=lambda root: _beside(root, "bad.jsonl").write_bytes(_LINES),
    ),
    "consume --commit": Writer(
        lambda root: ["consume", root, "-g", "G_new", "-t", "T_normal", "--from", "first", "--commit", "-n", "3"],
        [
            (lambda root: ["consume", root, "-g", "G_new", "-t", "NoSuch", "--commit"], Exit.NO),
            (lambda root: ["consume", root, "-g", "bad group", "-t", "T_normal", "--commit"], Exit.USAGE),
        ],
    ),
    "tick": Writer(
        lambda root: ["tick", root],
        [
            (lambda root: ["tick", root, "--at", "nonsense"], Exit.USAGE),
            (lambda root: ["tick", root, "--check", "no-such-program"], Exit.USAGE),
        ],
    ),
    "tick after a crash": Writer(
        lambda root: ["tick", root], [(lambda root: ["tick", root], Exit.REFUSED)], _crashed, full=Exit.REFUSED
    ),
    "produce after a crash": Writer(
        lambda root: ["produce", root, "-t", "T_normal", "hello"],
        [(lambda root: ["produce", root, "-t", "T_normal", "hello"], Exit.REFUSED)],
        _crashed,
        full=Exit.REFUSED,
    ),
    "topic create": Writer(
        lambda root: ["topic", root, "create", "New"],
        [
            (lambda root: ["topic", root, "create", "bad name"], Exit.USAGE),
            (lambda root: ["topic", root, "create", "New", "--queues", "0"], Exit.USAGE),
        ],
    ),
    "topic alter": Writer(
        lambda root: ["topic", root, "alter", "T_normal", "--queues", "8"],
        [(lambda root: ["topic", root, "alter", "NoSuch", "--queues", "8"], Exit.NO)],
    ),
    "topic delete": Writer(
        lambda root: ["topic", root, "delete", "T_normal", "--yes"],
        [
            (lambda root: ["topic", root, "delete", "T_normal"], Exit.REFUSED),
            (lambda root: ["topic", root, "delete", "NoSuch", "--yes"], Exit.NO),
        ],
    ),
    "group create": Writer(
        lambda root: ["group", root, "create", "New", "--set", "retryMaxTimes=3"],
        [
            (lambda root: ["group", root, "create", "bad name"], Exit.USAGE),
            (lambda root: ["group", root, "create", "New", "--set", "retryQueueNums=-1"], Exit.USAGE),
            (lambda root: ["group", root, "create", "G_ok"], Exit.REFUSED),
        ],
    ),
    "group alter": Writer(
        lambda root: ["group", root, "alter", "G_ok", "--set", "retryMaxTimes=3"],
        [
            (lambda root: ["group", root, "alter", "NoSuch", "--set", "retryMaxTimes=3"], Exit.NO),
            (lambda root: ["group", root, "alter", "G_ok", "--set", "nothing=3"], Exit.USAGE),
        ],
    ),
    "group delete": Writer(
        lambda root: ["group", root, "delete", "G_ok", "--yes"],
        [
            (lambda root: ["group", root, "delete", "G_ok"], Exit.REFUSED),
            (lambda root: ["group", root, "delete", "NoSuch", "--yes"], Exit.NO),
        ],
    ),
    "init": Writer(
        lambda root: ["init", _beside(root, "new")],
        [
            (lambda root: ["init", root], Exit.REFUSED),
            (lambda root: ["init", _beside(root, "taken")], Exit.REFUSED),
            (lambda root: ["init", _beside(root, "new"), "--conf", "mappedFileSizeCommitLog=-1"], Exit.USAGE),
        ],
        prepare=_occupied("taken"),
        locked=Exit.DONE,
    ),
    "repair --apply": Writer(
        lambda root: ["repair", root, "--apply"],
        [
            (lambda root: ["repair", root, "--apply", "--plan", "000000000000"], Exit.REFUSED),
            (lambda root: ["repair", root, "--apply", "--allow", "everything"], Exit.USAGE),
            (lambda root: ["repair", root, "nothing", "--apply"], Exit.USAGE),
        ],
        _lose_queue,
    ),
    "repair --apply --allow primary": Writer(
        lambda root: ["repair", root, "--apply", "--allow", "state,primary"],
        [(lambda root: ["repair", root, "--apply", "--truncate"], Exit.REFUSED)],
        _flip,
    ),
    "repair offsets": Writer(
        lambda root: ["repair", root, "offsets", "-g", "G_ok", "--to", "min", "--apply", "--allow", "state"],
        [
            (lambda root: ["repair", root, "offsets", "-g", "G_nobody", "--to", "min", "--apply"], Exit.NO),
            (lambda root: ["repair", root, "offsets", "-g", "G_ok", "--to", "nonsense", "--apply"], Exit.USAGE),
        ],
    ),
    "repair --undo": Writer(
        lambda root: ["repair", root, "--undo", _journal(root)],
        [
            (lambda root: ["repair", root, "--undo", _beside(root, "nowhere")], Exit.USAGE),
            (lambda root: ["repair", root, "queues", "--undo", _journal(root)], Exit.USAGE),
        ],
        _repaired,
        makes_room=True,
    ),
    "recover --apply": Writer(
        lambda root: ["recover", root, "--apply"],
        [(lambda root: ["recover", root, "--apply", "--to", _beside(root, "new")], Exit.USAGE)],
        _tear,
    ),
    "recover --to": Writer(
        lambda root: ["recover", root, "--to", _beside(root, "new")],
        [(lambda root: ["recover", root, "--to", _beside(root, "taken")], Exit.REFUSED)],
        _occupied("taken"),
        locked=Exit.DONE,
    ),
    "recover --until --to": Writer(
        lambda root: ["recover", root, "--until", _TIME, "--to", _beside(root, "new")],
        [
            (lambda root: ["recover", root, "--until", _TIME, "--to", _beside(root, "taken")], Exit.REFUSED),
            (lambda root: ["recover", root, "--until", _TIME, "--apply"], Exit.REFUSED),
            (lambda root: ["recover", root, "--until", "2020-01-01", "--to", _beside(root, "new")], Exit.REFUSED),
            (lambda root: ["recover", root, "--until", "soon", "--to", _beside(root, "new")], Exit.USAGE),
        ],
        _occupied("taken"),
    ),
    "copy": Writer(
        lambda root: ["copy", root, _beside(root, "new")],
        [
            (lambda root: ["copy", root, _beside(root, "taken")], Exit.REFUSED),
            (lambda root: ["copy", root, root], Exit.REFUSED),
            (lambda root: ["copy", root], Exit.USAGE),
        ],
        _occupied("taken"),
        locked=Exit.DONE,
    ),
    "copy --salvage": Writer(
        lambda root: ["copy", root, _beside(root, "new"), "--salvage"],
        [(lambda root: ["copy", root, _beside(root, "new")], Exit.REFUSED)],
        _flip,
        locked=Exit.SKIPPED,
    ),
    "export": Writer(
        lambda root: ["export", root, "--engine", "local", "--to", _beside(root, "lake"), "--progress", "never"],
        [
            (lambda root: ["export", root, "--engine", "local", "--to", _beside(root, "taken")], Exit.REFUSED),
            (lambda root: ["export", root, "--engine", "local"], Exit.USAGE),
        ],
        _occupied("taken"),
        locked=Exit.DONE,
    ),
    "export --since-last": Writer(
        lambda root: ["export", root, "--engine", "local", "--to", _beside(root, "lake"), "--since-last"],
        [
            (
                lambda root: ["export", root, "--engine", "local", "--to", _beside(root, "taken"), "--since-last"],
                Exit.REFUSED,
            ),
        ],
        _occupied("taken"),
        locked=Exit.DONE,
    ),
    "consume --pop": Writer(
        lambda root: ["consume", root, "-g", "G_new", "-t", "T_normal", "--pop", "-n", "3"],
        [(lambda root: ["consume", root, "-g", "G_new", "-t", "T_normal", "--pop", "--commit"], Exit.USAGE)],
    ),
    "check --report": Writer(
        lambda root: ["check", root, "--report", _beside(root, "report.html")],
        [(lambda root: ["check", root, "--report", _beside(root, "report.txt")], Exit.USAGE)],
        locked=Exit.DONE,
    ),
}


# Commands of these panels write, but for a tour that makes a store of its own and the pages of the manual.
_WRITING_PANELS, _NO_WRITERS = (Panel.FIX, Panel.USE), {"demo", "man"}
# The actions of a command that only look.
_LOOKS = {"list", "show"}


def test_every_command_that_writes_meets_every_surrounding() -> None:
    """The commands and their actions come from their declarations."""
    writing = {entry.name for entry in COMMANDS if entry.panel in _WRITING_PANELS} - _NO_WRITERS
    command_group = command_tree(COMMANDS)
    for name in ("topic", "group"):
        command = command_group.get_command(None, name)  # type: ignore[arg-type]
        assert command is not None
        actions = next(word for param in command.params if "|" in (word := param.metavar or ""))
        actions = next(word for word in actions.split() if "|" in word)
        writing = writing - {name} | {f"{name} {action}" for action in actions.split("|") if action not in _LOOKS}
    covered = {" ".join(words[:count]) for words in map(str.split, WRITERS) for count in (1, 2)}
    assert writing - covered == set()


def digest(place: Path) -> dict[str, str]:
    """Return name, mode and content of everything below a directory."""
    found = {}
    for path in sorted(place.rglob("*")):
        if path.name == _FILLER:
            continue
        status = path.lstat()
        content = os.readlink(path) if path.is_symlink() else content_digest(path) if path.is_file() else ""
        found[str(path.relative_to(place))] = f"{status.st_mode:o} {hashlib.sha256(content.encode()).hexdigest()}"
    return found


def changes(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """Return the names of what is not as it was."""
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a store of a broker that stopped in order."""
    return unpack("53-broker", tmp_path_factory.mktemp("clean"))


def _prepared(clean: Path, writer: Writer, parent: Path) -> Path:
    """Copy the store below ``parent``, holes as holes (a full disk has none left to give), and prepare it."""
    parent.mkdir(exist_ok=True)
    root = parent / "store"
    subprocess.run(["cp", "-a", "--sparse=always", clean, root], check=True)
    writer.prepare(root)
    return root


@contextmanager
def _injected(root: Path, number: int) -> Iterator[Path]:
    with surroundings.failing_calls(root, number):
        yield root


def _disk(kind: str, real: bool, parent: Path, prepare: Callable[[Path], Path]) -> AbstractContextManager[Path]:
    if kind == "full":
        if real:
            return surroundings.full_tmpfs(parent, prepare, megabytes=6)
        return _injected(prepare(parent / "there"), errno.ENOSPC)
    root = prepare(parent / "there")
    return surroundings.read_only_mount(root) if real else _injected(root, errno.EROFS)


def _words(writer: Writer, root: Path) -> list[str]:
    return [str(word) for word in writer.words(root)]


@pytest.mark.parametrize("name", WRITERS)
def test_refused_input_changes_nothing(name: str, clean: Path, tmp_path: Path) -> None:
    writer = WRITERS[name]
    root = _prepared(clean, writer, tmp_path / "there")
    before = digest(root.parent)
    with at(tmp_path):
        for words, status in writer.refused:
            line = [str(word) for word in words(root)]
            typed = type_words(line, writer.given)
            assert (typed.status, changes(before, digest(root.parent))) == (status, []), f"{line}\n{typed.said}"


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("real", [True, False], ids=["mounted", "injected"])
@pytest.mark.parametrize("kind", ["full", "read-only"])
def test_a_disk_that_takes_nothing_is_left_as_it_is(
    kind: str, real: bool, name: str, clean: Path, tmp_path: Path
) -> None:
    if real and not surroundings.can_mount():
        pytest.skip("mounting is not allowed here")
    writer = WRITERS[name]
    with _disk(kind, real, tmp_path, lambda parent: _prepared(clean, writer, parent)) as root:
        before = digest(root.parent)
        with at(tmp_path):
            typed = type_words(_words(writer, root), writer.given)
        after = digest(root.parent)
    if real and kind == "full" and writer.makes_room and typed.status == Exit.DONE:
        return
    expected = writer.full if kind == "full" else writer.read_only
    assert (typed.status, changes(before, after)) == (expected, []), typed.said


@pytest.mark.parametrize("name", WRITERS)
def test_a_store_that_another_process_holds_is_left_as_it_is(name: str, clean: Path, tmp_path: Path) -> None:
    writer = WRITERS[name]
    root = _prepared(clean, writer, tmp_path / "there")
    before = digest(root)
    with at(tmp_path), surroundings.held_lock(root):
        typed = type_words(_words(writer, root), writer.given)
    assert changes(before, digest(root)) == [], typed.said
    assert typed.status == writer.locked, typed.said
