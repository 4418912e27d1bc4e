"""A target appears whole or not at all: every stop, every leftover, every target that is not ours."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from rmqtool.errors import Refused, StoreError, StoreInUse, WriteFailed
from rmqtool.exports import target as module
from rmqtool.exports.parquet import PartFile
from rmqtool.exports.target import (
    Manifest,
    Mode,
    Progress,
    Target,
    decode_manifest,
    encode_manifest,
    opened_target,
    read_manifests,
)
from rmqtool.files.publish import Renames
from rmqtool.log.follow import LastRecord

TEXT = b"content"


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is durable when is not what these tests are about, and many of them wait for little else."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def manifest(target: Target, files: dict[str, str]) -> Manifest:
    read = {"broker-a": Progress("/data/store", 0, 4711, LastRecord(4600, 111, 7, 1_700_000_000_000))}
    parts = [PartFile(path, 1, len(TEXT)) for path in files]
    return Manifest(target.number, "rmqtool 1", 1, {"topics": ["T*"]}, read, parts, {"ranges": 0, "bytes": 0})


def stage(target: Target, *paths: str) -> dict[str, str]:
    """Write the files as a task would, and return where each lies."""
    files = {}
    for path in paths:
        staged = Path(target.staging) / "try-1" / path
        staged.parent.mkdir(parents=True, exist_ok=True)
        staged.write_bytes(TEXT)
        files[path] = f"try-1/{path}"
    return files


def export(directory: Path, mode: Mode, *paths: str, damage: bool = False) -> None:
    with opened_target(str(directory), mode) as target:
        files = stage(target, *paths)
        named = stage(target, "damage.parquet")["damage.parquet"] if damage else None
        target.commit(manifest(target, files), files, named)


def export_as_before(directory: Path, *paths: str) -> None:
    """Lay a target as the first version of rmqtool left it."""
    export(directory, Mode.ERROR, *paths, damage=True)
    (directory.parent / f"{directory.name}_manifest").rename(directory / "_manifests")
    (directory.parent / f"{directory.name}_damage").rename(directory / "_damage")
    (directory / "_SUCCESS").touch()


def fail_after_staging(directory: Path, mode: Mode, path: str) -> None:
    with opened_target(str(directory), mode) as target:
        stage(target, path)
        raise ZeroDivisionError


def names(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())


def test_new_target_has_data_only_and_the_manifest_is_beside_it(tmp_path: Path) -> None:
    export(tmp_path / "out", Mode.ERROR, "part-1.parquet", "dt=2026-01-01/part-1.parquet", damage=True)
    assert names(tmp_path) == [
        "out/dt=2026-01-01/part-1.parquet",
        "out/part-1.parquet",
        "out_damage/part-000001.parquet",
        "out_manifest/000001.json",
    ]
    (found,) = read_manifests(str(tmp_path / "out"))
    assert found.number == 1
    assert found.read["broker-a"].end == 4711
    assert [file.path for file in found.files] == ["part-1.parquet", "dt=2026-01-01/part-1.parquet"]


@pytest.mark.parametrize("mode", [Mode.APPEND, Mode.OVERWRITE])
def test_task_of_a_killed_export_that_still_writes_stops_nobody(
    mode: Mode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export(tmp_path / "out", Mode.ERROR, "part-1.parquet")
    (tmp_path / ".out.rmqtool" / "try-0").mkdir(parents=True)
    real = shutil.rmtree

    def busy(path: str, ignore_errors: bool = False) -> None:
        """Remove, but find a new file in the directory afterwards, as the removal of a directory in use does."""
        real(path, ignore_errors)
        if not ignore_errors:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)

    monkeypatch.setattr(module.shutil, "rmtree", busy)
    export(tmp_path / "out", mode, "part-2.parquet")
    assert "out/part-2.parquet" in names(tmp_path)


def test_failed_export_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        fail_after_staging(tmp_path / "deep" / "out", Mode.ERROR, "part-1.parquet")
    assert names(tmp_path) == []
    assert not (tmp_path / "deep" / "out").exists()


def test_failed_addition_leaves_the_target_as_it_was(tmp_path: Path) -> None:
    export(tmp_path / "out", Mode.ERROR, "a.parquet")
    before = names(tmp_path)
    with pytest.raises(ZeroDivisionError):
        fail_after_staging(tmp_path / "out", Mode.APPEND, "b.parquet")
    assert names(tmp_path) == before


def test_append_adds_and_counts(tmp_path: Path) -> None:
    export(tmp_path / "out", Mode.APPEND, "a.parquet")
    export(tmp_path / "out", Mode.APPEND, "b.parquet", "dt=x/b.parquet", damage=True)
    assert [one.number for one in read_manifests(str(tmp_path / "out"))] == [1, 2]
    assert names(tmp_path) == [
        "out/a.parquet",
        "out/b.parquet",
        "out/dt=x/b.parquet",
        "out_damage/part-000002.parquet",
        "out_manifest/000001.json",
        "out_manifest/000002.json",
    ]


def test_overwrite_replaces_and_begins_to_count_anew(tmp_path: Path) -> None:
    export(tmp_path / "out", Mode.ERROR, "a.parquet")
    export(tmp_path / "out", Mode.APPEND, "b.parquet", damage=True)
    export(tmp_path / "out", Mode.OVERWRITE, "c.parquet")
    assert names(tmp_path) == ["out/c.parquet", "out_manifest/000001.json"]


def test_failed_overwrite_keeps_the_old(tmp_path: Path) -> None:
    export(tmp_path / "out", Mode.ERROR, "a.parquet")
    before = names(tmp_path)
    with pytest.raises(ZeroDivisionError):
        fail_after_staging(tmp_path / "out", Mode.OVERWRITE, "c.parquet")
    assert names(tmp_path) == before


def test_existing_target_is_refused_and_an_empty_one_is_not(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    export(tmp_path / "empty", Mode.ERROR, "a.parquet")
    with pytest.raises(Refused, match="not empty") as refused:
        export(tmp_path / "empty", Mode.ERROR, "b.parquet")
    assert "--mode append" in (refused.value.hint or "")
    assert "b.parquet" not in names(tmp_path / "empty")


@pytest.mark.parametrize("mode", Mode)
def test_files_of_others_are_never_touched(mode: Mode, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter").write_text("dear")
    with pytest.raises(Refused):
        export(tmp_path / "home", mode, "a.parquet")
    (tmp_path / "file").write_text("dear")
    with pytest.raises(Refused, match="is a file"):
        export(tmp_path / "file", mode, "a.parquet")
    assert names(tmp_path) == ["file", "home/letter"]


@pytest.mark.parametrize("mode", [Mode.APPEND, Mode.OVERWRITE])
def test_second_export_at_the_same_time_is_told_so(mode: Mode, tmp_path: Path) -> None:
    export(tmp_path / "out", Mode.ERROR, "a.parquet")
    with opened_target(str(tmp_path / "out"), mode), pytest.raises(StoreInUse, match="another export"):
        export(tmp_path / "out", Mode.APPEND, "b.parquet")
    with opened_target(str(tmp_path / "new"), mode), pytest.raises(StoreInUse, match="another export"):
        export(tmp_path / "new", mode, "b.parquet")
    assert names(tmp_path) == ["out/a.parquet", "out_manifest/000001.json"]


def killed_export(directory: Path, mode: Mode, last: int, *paths: str, damage: bool = False) -> bool:
    """Export in a child that dies, as by SIGKILL, instead of its change number ``last``; return whether it died."""
    child = os.fork()
    if child == 0:
        left = [last]

        def dying(real: Any) -> Any:
            def call(*arguments: Any, **options: Any) -> Any:
                if left[0] == 0:
                    os._exit(99)
                left[0] -= 1
                return real(*arguments, **options)

            return call

        for name in ("rename", "unlink", "mkdir", "rmdir"):
            setattr(os, name, dying(getattr(os, name)))
        export(directory, mode, *paths, damage=damage)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 99


def parquet_names(directory: Path) -> set[str]:
    return {name for name in names(directory) if name.endswith(".parquet")}


def test_addition_killed_anywhere_is_finished_or_gone_after_the_next(tmp_path: Path) -> None:
    outcomes = set()
    last = 0
    while True:
        out = tmp_path / str(last)
        export(out, Mode.ERROR, "a.parquet")
        died = killed_export(out, Mode.APPEND, last, "b.parquet", "dt=x/b.parquet")
        export(out, Mode.APPEND, "c.parquet")
        manifests = read_manifests(str(out))
        assert parquet_names(out) == {file.path for one in manifests for file in one.files}, f"killed at {last}"
        assert [one.number for one in manifests] == list(range(1, len(manifests) + 1))
        assert not (tmp_path / f".{last}.rmqtool").exists()
        outcomes.add(len(parquet_names(out)))
        if not died:
            break
        last += 1
    assert last > 8
    assert outcomes == {2, 4}


@pytest.mark.parametrize("mode", [Mode.ERROR, Mode.OVERWRITE])
def test_new_target_killed_anywhere_is_whole_or_not_there(mode: Mode, tmp_path: Path) -> None:
    last = 0
    while True:
        out = tmp_path / f"{last}" / "out"
        old: set[str] = set()
        if mode is Mode.OVERWRITE:
            export(out, Mode.ERROR, "old.parquet")
            old = {"old.parquet"}
        died = killed_export(out, mode, last, "a.parquet", "b.parquet")
        seen = parquet_names(out) if out.exists() else set()
        assert seen in (set(), old, {"a.parquet", "b.parquet"}), f"killed at {last}"
        export(out, Mode.OVERWRITE, "c.parquet")
        assert names(out.parent) == ["out/c.parquet", "out_manifest/000001.json"]
        if not died:
            break
        last += 1
    assert last > 8


@pytest.mark.parametrize("mode", Mode)
def test_what_is_beside_a_target_appears_with_it(mode: Mode, tmp_path: Path) -> None:
    """Wherever a kill hits: data, manifests and damage tell of the same exports once the next one has run."""
    last = 0
    while True:
        out = tmp_path / f"{last}" / "out"
        if mode is not Mode.ERROR:
            export(out, Mode.ERROR, "old.parquet", damage=True)
        died = killed_export(out, mode, last, "a.parquet", damage=True)
        export(out, Mode.APPEND, "last.parquet")
        manifests = read_manifests(str(out))
        assert parquet_names(out) == {file.path for one in manifests for file in one.files}, f"killed at {last}"
        damages = parquet_names(out.parent / "out_damage") if (out.parent / "out_damage").exists() else set()
        assert damages == {f"part-{one.number:06}.parquet" for one in manifests[:-1]}, f"killed at {last}"
        assert not (out.parent / ".out.rmqtool").exists()
        if not died:
            break
        last += 1
    assert last > 8


@pytest.mark.parametrize("mode", [Mode.APPEND, Mode.OVERWRITE])
def test_target_of_the_first_version_goes_on(mode: Mode, tmp_path: Path) -> None:
    export_as_before(tmp_path / "out", "a.parquet")
    assert [one.number for one in read_manifests(str(tmp_path / "out"))] == [1]
    export(tmp_path / "out", mode, "b.parquet")
    if mode is Mode.OVERWRITE:
        assert names(tmp_path) == ["out/b.parquet", "out_manifest/000001.json"]
        return
    assert names(tmp_path) == [
        "out/a.parquet",
        "out/b.parquet",
        "out_damage/part-000001.parquet",
        "out_manifest/000001.json",
        "out_manifest/000002.json",
    ]
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["out", "out_damage", "out_manifest"]


def test_addition_that_the_first_version_left_unfinished_is_refused(tmp_path: Path) -> None:
    export_as_before(tmp_path / "out", "a.parquet")
    (tmp_path / "out" / "_manifests" / "pending.json").write_text("{}")
    before = names(tmp_path)
    with pytest.raises(Refused, match="was stopped while"):
        export(tmp_path / "out", Mode.APPEND, "b.parquet")
    assert names(tmp_path) == before
    export(tmp_path / "out", Mode.OVERWRITE, "b.parquet")
    assert names(tmp_path) == ["out/b.parquet", "out_manifest/000001.json"]


@pytest.mark.parametrize("made_anew", [True, False])
def test_what_a_removed_target_left_beside_it_does_not_count(made_anew: bool, tmp_path: Path) -> None:
    export(tmp_path / "out", Mode.ERROR, "a.parquet", damage=True)
    export(tmp_path / "out", Mode.APPEND, "b.parquet")
    shutil.rmtree(tmp_path / "out")
    if made_anew:
        (tmp_path / "out").mkdir()
    export(tmp_path / "out", Mode.APPEND, "c.parquet")
    assert names(tmp_path) == ["out/c.parquet", "out_manifest/000001.json"]


@pytest.mark.parametrize("kind", ["manifest", "damage"])
@pytest.mark.parametrize("mode", Mode)
def test_siblings_of_others_are_never_touched(kind: str, mode: Mode, tmp_path: Path) -> None:
    (tmp_path / f"out_{kind}").mkdir()
    (tmp_path / f"out_{kind}" / "letter").write_text("dear")
    with pytest.raises(Refused, match=f"out_{kind} holds files that no rmqtool export wrote"):
        export(tmp_path / "out", mode, "a.parquet")
    assert names(tmp_path) == [f"out_{kind}/letter"]


def test_mount_point_is_refused_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "out").mkdir()
    monkeypatch.setattr(module.os.path, "ismount", lambda path: path == str(tmp_path / "out"))
    with pytest.raises(Refused, match="is a mount point") as refused:
        export(tmp_path / "out", Mode.APPEND, "a.parquet")
    assert refused.value.hint == "name a directory in it (--to)"


def test_refused_rename_leaves_the_target_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    export(tmp_path / "out", Mode.ERROR, "a.parquet")
    before = names(tmp_path)
    real = os.rename

    def rename(source: str, target: str) -> None:
        if target.endswith("c.parquet"):
            raise OSError(28, "No space left on device")
        real(source, target)

    monkeypatch.setattr(module.os, "rename", rename)
    with pytest.raises(WriteFailed, match="No space left"):
        export(tmp_path / "out", Mode.APPEND, "b.parquet", "c.parquet")
    assert names(tmp_path) == before


def test_manifest_comes_back_equal_and_strange_ones_are_named(tmp_path: Path) -> None:
    one = Manifest(3, "rmqtool 1", 1, {"topics": None}, {"b": Progress("/s", 1, 2, None)}, [PartFile("p", 1, 2)], {})
    assert decode_manifest(encode_manifest(one), "x") == one
    for data in (b"", b"{}", b"[]", b"\xff", json.dumps({**one.as_json(), "read": 1}).encode()):
        with pytest.raises(StoreError, match=r"000001\.json is not an export manifest"):
            decode_manifest(data, "000001.json")
    with pytest.raises(StoreError, match="has version 2"):
        decode_manifest(json.dumps({**one.as_json(), "manifestVersion": 2}).encode(), "000001.json")


class Names:
    """The names that programs see and that a power cut could still take back, where each can come or go alone."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.came: set[str] = set()
        self.went: dict[str, str] = {}
        self.renames = 0
        self._mkdir, self._rename = os.mkdir, os.rename
        monkeypatch.setattr(os, "mkdir", self.mkdir)
        monkeypatch.setattr(os, "rename", self.rename)
        monkeypatch.setattr("rmqtool.files.publish.sync", self.sync)

    def mkdir(self, path: str, mode: int = 0o777) -> None:
        self._mkdir(path, mode)
        self.came.add(path)

    def rename(self, source: str, path: str) -> None:
        lost = [str(one) for one in Path(path).parents if str(one) in self.came]
        assert lost == [], f"{path} is renamed to where a power cut can leave no directory"
        if path in self.went:
            assert self.went[path] not in self.came, f"{path} is taken before what was there is safe"
            del self.went[path]
        self._rename(source, path)
        self.came.add(path)
        self.went[source] = path
        self.renames += 1

    def sync(self, directory: str) -> None:
        self.came = {path for path in self.came if os.path.dirname(path) != directory}


@pytest.mark.parametrize("mode", Mode)
def test_a_rename_builds_only_on_names_that_are_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: Mode
) -> None:
    directory = tmp_path / "out"
    if mode is not Mode.ERROR:
        export(directory, Mode.ERROR, "topic=A/one.parquet", damage=True)
    with opened_target(str(directory), mode) as target:
        files = stage(target, "topic=A/two.parquet", "topic=B/three.parquet")
        watched: list[Names] = []
        finish = Renames.finish
        # What is staged before the renames are announced counts for nothing after a power cut.
        monkeypatch.setattr(Renames, "finish", lambda moves: (watched.append(Names(monkeypatch)), finish(moves)))
        target.commit(manifest(target, files), files)
    (names,) = watched
    assert names.renames == {Mode.ERROR: 2, Mode.APPEND: 3, Mode.OVERWRITE: 5}[mode]
    assert names.came == set()
    assert "topic=B/three.parquet" in {str(path.relative_to(directory)) for path in directory.rglob("*.parquet")}
