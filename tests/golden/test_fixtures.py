"""The fixtures are what they were, and unpacking gives what the brokers left."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.stores import (
    BASES,
    FIXTURES,
    STORES,
    content_digest,
    every_store,
    left_alone,
    tree_state,
    truth,
    unpack,
)

WITH_TIMES = [name for name in STORES if "fileMtimes" in truth(name)]


def test_every_file_has_its_digest() -> None:
    expected = {}
    for line in (FIXTURES / "SHA256SUMS").read_text().splitlines():
        digest, _, name = line.partition("  ")
        expected[name] = digest
    found = {
        str(path.relative_to(FIXTURES)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in FIXTURES.rglob("*")
        if path.is_file() and path.name not in ("SHA256SUMS", "README.md")
    }
    assert found == expected


def test_all_are_there() -> None:
    assert len(STORES) == 33
    assert len(BASES) == 14


def test_readme_names_every_store() -> None:
    readme = (FIXTURES / "README.md").read_text()
    assert [name for name in STORES if f"`{name}`" not in readme] == []


@every_store
def test_truth_belongs_to_its_store(name: str) -> None:
    written_by = {"49": "4.9.7", "53": "5.3.3", "54": "5.4.0"}[name[:2]]
    assert (truth(name)["name"], truth(name)["broker_version"]) == (name, written_by)
    assert truth(name)["messages"]


@pytest.mark.parametrize("name", WITH_TIMES)
def test_sizes_and_times_are_those_the_broker_left(name: str, store: Callable[[str], Path]) -> None:
    root = store(name)
    found = {}
    for path in truth(name)["fileMtimes"]:
        status = (root / path).stat()
        found[path] = [status.st_size, status.st_mtime_ns // 1_000_000]
    assert found == truth(name)["fileMtimes"]


def test_times_are_kept_to_the_nanosecond(store: Callable[[str], Path]) -> None:
    status = (store("49-basic") / "commitlog/00000000000000000000").stat()
    assert status.st_mtime_ns == 1795003441_075804509


@pytest.mark.parametrize("name", ["49-default-sizes", "49-dledger", "53-timer"])
def test_holes_stay_holes(name: str, store: Callable[[str], Path]) -> None:
    files = [path.stat() for path in store(name).rglob("*") if path.is_file()]
    assert sum(status.st_size for status in files) > 30_000_000
    assert sum(status.st_blocks * 512 for status in files) < 5_000_000


def test_digest_of_content_does_not_see_holes(tmp_path: Path) -> None:
    sparse, dense, other = tmp_path / "sparse", tmp_path / "dense", tmp_path / "other"
    size = 300_000
    content = bytes(200_000) + b"x" + bytes(size - 200_001)
    dense.write_bytes(content)
    other.write_bytes(content[1:] + b"\0")
    with sparse.open("wb") as file:
        file.truncate(size)
        os.pwrite(file.fileno(), b"x", 200_000)
    assert content_digest(sparse) == content_digest(dense)
    assert content_digest(sparse) != content_digest(other)


def rewrite_same_bytes(root: Path) -> None:
    path = root / "checkpoint"
    before = path.stat()
    path.write_bytes(path.read_bytes())
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


CHANGES = {
    "write": lambda root: (root / "checkpoint").write_bytes(b"x"),
    "create": lambda root: (root / "new").touch(),
    "delete": lambda root: (root / "lock").unlink(),
    "chmod": lambda root: (root / "commitlog").chmod(0o700),
    "touch": lambda root: os.utime(root / "lock"),
    "rewrite the same bytes, times put back": rewrite_same_bytes,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_guard_sees(change: Callable[[Path], object], tmp_path: Path) -> None:
    root = unpack("53-basic", tmp_path)
    with pytest.raises(AssertionError, match="was not left alone"), left_alone(root):
        change(root)


def test_guard_allows_reading(store: Callable[[str], Path]) -> None:
    with left_alone(store("53-basic")):
        assert [path for path in store("53-basic").rglob("*") if path.is_file() and path.read_bytes()]


def test_same_archive_gives_the_same_store(tmp_path: Path) -> None:
    one, two = (tree_state(unpack("49-basic", tmp_path / side)) for side in "ab")
    without_change_time = [{path: state._replace(ctime_ns=0) for path, state in side.items()} for side in (one, two)]
    assert without_change_time[0] == without_change_time[1]
