"""The files that rmqtool writes for itself and reads again: damaged, each ends in a sentence, never in a bug.

Each has a command, or the function behind one, that reads it. Whatever the file says, its status is one of the table.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rmqtool.cli import main
from rmqtool.client.replay import Progress
from rmqtool.engine.bulk_load import StreamBatch, import_staged
from rmqtool.errors import Exit, RmqtoolError
from rmqtool.files.publish import JobDirectory
from rmqtool.formats.message_queue import MessageQueue
from rmqtool.repairs.substitute import substitute
from rmqtool.store.open import open_store
from rmqtool.store.owner import Owner, find_owner, write_owner
from tests.proof.works import put_messages, staged_batch

# What a value is replaced by.
_OTHERS: tuple[Any, ...] = (None, "x", -1, 1.5, 2**70, "\ud800", [], {}, [[]], {"x": 1})


class Own(NamedTuple):
    """A file, what reads it and says how that ended, and the status if the file is not readable at all."""

    path: Path
    read: Callable[[], tuple[int, str]]
    unreadable: Exit = Exit.NOT_A_STORE
    # Of the text that says so.
    says: str = ""
    # The value of the file, if it is not one text in JSON.
    value: Any = None
    before: bytes = b""
    # The name in it of the version of its format.
    version: str | None = None


Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(capsysbinary: pytest.CaptureFixture[bytes]) -> Run:
    """Run a command; give its status and what it said on standard error."""

    def run_one(*words: object) -> tuple[int, str]:
        status = main([str(word) for word in words])
        return status, capsysbinary.readouterr().err.decode()

    return run_one


def _told(act: Callable[[], object]) -> Callable[[], tuple[int, str]]:
    """Return how a function ended in the terms of commands."""

    def run_one() -> tuple[int, str]:
        try:
            act()
        except RmqtoolError as error:
            return error.exit_status, f"{error.file}: {error}\n hint: {error.hint}"
        return Exit.DONE, ""

    return run_one


def _store(place: Path) -> Path:
    put_messages(place / "store", range(6))
    return place / "store"


def _exported(place: Path, run: Run, *form: str) -> tuple[Path, Callable[[], tuple[int, str]]]:
    store, lake = _store(place), place / "lake"
    words = ("export", store, "--engine", "local", "-j", 1, "--to", lake, "--quiet", *form)
    assert run(*words)[0] == 0
    (manifest,) = (place / "lake_manifest").iterdir()
    return manifest, lambda: run(*words, "--since-last")


def a_manifest(place: Path, run: Run) -> Own:
    return Own(*_exported(place, run), says="another directory", version="manifestVersion")


def a_manifest_of_a_delta_table(place: Path, run: Run) -> Own:
    return Own(*_exported(place, run, "--format", "delta"), says="another directory", version="manifestVersion")


def announced_renames(place: Path, run: Run) -> Own:
    _, again = _exported(place, run)
    staging = place / ".lake.rmqtool"
    staging.mkdir()
    (staging / "000002.json").write_bytes((place / "lake_manifest/000001.json").read_bytes())
    value = [[".lake.rmqtool/part", "lake/part"], [".lake.rmqtool/000002.json", "lake_manifest/000002.json"]]
    return Own(staging / "pending.json", again, says="another directory", value=value)


def companions_of_a_copy(place: Path, run: Run) -> Own:
    store, staging = _store(place), place / ".new.rmqtool-copy"
    (staging / "store").mkdir(parents=True)
    (staging / "running").touch()
    value = [[str(staging / "ids.jsonl"), str(place / "ids.jsonl"), 5, 6]]
    again = lambda: run("copy", store, place / "new", "--quiet")  # noqa: E731
    return Own(staging / "companions.json", again, says="rm -r ", value=value)


def batches_of_a_sink(place: Path, run: Run) -> Own:
    store = _store(place)

    def fill() -> None:
        staging = JobDirectory(str(store), "0")
        import_staged(staging, [staged_batch(staging, 0)], StreamBatch("query", 0))

    fill()
    return Own(store / "sink-batches.json", _told(fill), says="backup", version="version")


def progress_of_a_copy_to_a_cluster(place: Path, run: Run) -> Own:
    path = place / "rmqtool-copy-0.json"
    Progress(str(path), {"store": "s"}, 5, 10, 3, {MessageQueue("T", "b", 0): 7}).write()
    return Own(path, _told(lambda: Progress.read(str(path), {"store": "s"})), says="move it away", version="version")


def owner_of_a_served_store(place: Path, run: Run) -> Own:
    # Another program's, as far as anybody can tell.
    path = write_owner(Owner(os.getpid(), 5, str(place), "127.0.0.1:1", "127.0.0.1:2", "token"))
    assert path is not None
    assert find_owner(str(place), os.getpid()) is not None
    return Own(path, _told(lambda: find_owner(str(place), os.getpid())), Exit.DONE)


def _serving_read_only(place: Path) -> Callable[[], None]:
    store = _store(place)

    def serve() -> None:
        with substitute(lambda: open_store(str(store)), str(place / "state"), lambda config: config) as found:
            assert all(one.as_json()["file"] for one in found.damage)
            with found.setup.files.create("config/new") as file:
                file.pwrite(b"hello", 0)
                file.truncate(4)
            found.setup.files.unlink("config/new")

    serve()
    return serve


def state_of_a_read_only_server(place: Path, run: Run) -> Own:
    return Own(place / "state/store.json", _told(_serving_read_only(place)), says="--state", version="version")


def _kept(place: Path, value: dict[str, Any]) -> Own:
    serve = _serving_read_only(place)
    path = place / "state/changes"
    # A torn change is left out, as a power cut may tear one.
    return Own(path, _told(serve), Exit.DONE, value=value, before=path.read_bytes())


_KEPT: tuple[dict[str, Any], ...] = (
    {"file": "config/x", "number": 9, "base": None, "below": 0, "size": 7},
    {"name": "config/x", "number": None},
    {"directory": "config/y"},
    {"write": 1, "at": 0, "length": 0, "crc": 0},
    {"cut": 1, "size": 5, "area": 0},
)


def _kept_change(value: dict[str, Any]) -> Callable[[Path, Run], Own]:
    return lambda place, _run: _kept(place, value)


_FILES: dict[str, Callable[[Path, Run], Own]] = {
    **{
        make.__name__: make
        for make in (
            a_manifest,
            a_manifest_of_a_delta_table,
            announced_renames,
            companions_of_a_copy,
            batches_of_a_sink,
            progress_of_a_copy_to_a_cluster,
            owner_of_a_served_store,
            state_of_a_read_only_server,
        )
    },
    **{f"kept_{next(iter(value))}": _kept_change(value) for value in _KEPT},
}


@pytest.fixture(params=_FILES)
def own(request: pytest.FixtureRequest, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> Iterator[Own]:
    """Give each of the files. What reads it finds the directory as it was made, but for the file."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    # What is durable when is not what these tests are about.
    for sync in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, sync, lambda descriptor: None)
    place = tmp_path / "place"
    place.mkdir()
    found = _FILES[request.param](place, run)
    if found.value is None:
        found = found._replace(value=json.loads(found.path.read_bytes()))
    kept = tmp_path / "kept"
    shutil.copytree(place, kept)

    def read() -> tuple[int, str]:
        data = found.path.read_bytes()
        shutil.rmtree(place)
        shutil.copytree(kept, place)
        found.path.parent.mkdir(exist_ok=True)
        found.path.write_bytes(data)
        found.path.chmod(0o600)
        return found.read()

    return found._replace(read=read)


def _write(own: Own, data: bytes) -> None:
    own.path.parent.mkdir(exist_ok=True)
    own.path.write_bytes(own.before + data)


def _encoded(value: Any) -> bytes:
    return json.dumps(value).encode() + b"\n"


def test_what_is_written_is_read(own: Own) -> None:
    _write(own, _encoded(own.value))
    status, said = own.read()
    assert status == Exit.DONE, said


def test_a_file_that_is_not_readable_is_said_and_stays(own: Own) -> None:
    data = _encoded(own.value)
    unreadable = {
        "empty": b"",
        "cut": data[: len(data) // 2],
        "zeros": bytes(len(data)),
        "garbled": bytes(byte ^ 0x80 for byte in data),
        "deep": b"[" * 100_000,
        "long number": b"9" * 5000,
    }
    for word, damaged in unreadable.items():
        _write(own, damaged)
        status, said = own.read()
        assert status == own.unreadable, (word, said)
        assert own.says in said, (word, said)
        if own.unreadable is Exit.NOT_A_STORE:
            name = own.path.parent.name if own.path.name == "store.json" else own.path.name
            assert name in said, (word, said)
            assert own.path.read_bytes() == damaged
    if own.version is not None:
        _write(own, _encoded({**own.value, own.version: 4711}))
        status, said = own.read()
        assert status == Exit.NOT_A_STORE
        assert re.search(r"has version 4711.* version 1", said), said
        assert "the rmqtool that" in said or "newer rmqtool" in said


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the place of each value in a value."""
    yield path
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inside:
        yield from _paths(one, (*path, key))


def _changed(value: Any, path: tuple[Any, ...], change: Callable[[Any, Any], object]) -> Any:
    """Return the value with a change to what is at ``path``, which is not empty."""
    copied = json.loads(json.dumps(value))
    holder = copied
    for key in path[:-1]:
        holder = holder[key]
    change(holder, path[-1])
    return copied


def _others(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the value with each of its values replaced, or left out; say what was done."""
    for other in _OTHERS:
        yield f"{other!r}", other
    for path in _paths(value):
        if path:
            yield f"without {path}", _changed(value, path, lambda holder, key: holder.__delitem__(key))
            for other in _OTHERS:
                replaced = _changed(value, path, lambda holder, key, other=other: holder.__setitem__(key, other))
                yield f"{other!r} at {path}", replaced


def _require_no_bug(own: Own, most: int) -> None:
    tried = list(_others(own.value))
    assert len(tried) > 20
    # Changes to one value are next to each other.
    for word, value in tried[:: max(len(tried) // most, 1)]:
        _write(own, _encoded(value))
        status, said = own.read()
        assert status in set(Exit) - {Exit.BUG}, (word, said)
        assert status == Exit.DONE or said.strip(), word


def test_no_wrong_value_is_a_bug_of_ours(own: Own) -> None:
    _require_no_bug(own, 17)


@pytest.mark.slow
def test_none_of_all_wrong_values_is_a_bug_of_ours(own: Own) -> None:
    _require_no_bug(own, 10_000)
