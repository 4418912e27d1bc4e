"""Stores on object storage: every look, check, export and copy finds there what it finds on a disk."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from rmqtool.cli import main
from rmqtool.errors import Exit, RemoteError
from rmqtool.files import object_storage as access
from rmqtool.files import objects
from rmqtool.files.objects import ObjectReadableFile
from rmqtool.store.open import open_root
from tests.support.object_storage import SECRET, ObjectStorage, object_storage
from tests.support.stores import STORES

Unpacker = Callable[[str], Path]
# Light queues, a log in several directories, and queues in RocksDB.
IN_EACH_RUN = ("49-lmq", "53-multidir", "53-rocksdbv2")
some_stores = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in IN_EACH_RUN else pytest.mark.slow) for name in STORES]
)


@pytest.fixture(scope="module")
def storage() -> Iterator[ObjectStorage]:
    with object_storage() as served:
        yield served


@pytest.fixture(scope="module")
def address(storage: ObjectStorage, store: Unpacker) -> Callable[[str], str]:
    found: dict[str, str] = {}

    def get(name: str) -> str:
        if name not in found:
            found[name] = storage.upload(store(name), f"{name}/store")
        return found[name]

    return get


class Ran:
    """Runs a command line in this process; a store's path or address is shown as STORE."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys
        self.err = ""

    def __call__(self, command: str, store: str | Path, *words: str | Path) -> tuple[int, str]:
        status = main([command, str(store), *map(str, words)])
        out, self.err = self.capsys.readouterr()
        assert SECRET not in out + self.err
        return status, out.replace(str(store), "STORE")


@pytest.fixture
def ran(capsys: pytest.CaptureFixture[str]) -> Ran:
    return Ran(capsys)


QUESTIONS = (
    ("cat", "--jsonl"),
    ("check", "--jsonl"),
    ("info", "--json"),
)
FURTHER = (("stat", "--json"), ("cat", "--count"), ("info", "queues"), ("recover", "--json"))


def comparable(words: tuple[str, ...], text: str) -> object:
    """Return an answer without what only a disk has: how full it is."""
    if words != ("info", "--json"):
        return text
    found = json.loads(text)
    found.pop("disk", None)
    return found


# The log of one store is a gigabyte.
@pytest.mark.timeout(900)
@some_stores
def test_answers_are_those_of_the_disk(ran: Ran, store: Unpacker, address: Callable[[str], str], name: str) -> None:
    for command, *words in (*QUESTIONS, *(() if name in IN_EACH_RUN else FURTHER)):
        status, here = ran(command, store(name), *words)
        far_status, far = ran(command, address(name), *words)
        asked = (command, *words)
        assert (far_status, comparable(asked, far)) == (status, comparable(asked, here)), asked


WRITERS = (
    ("produce", "hello", "-t", "T", "--create"),
    ("consume", "-g", "G", "-t", "TopicTest", "--commit"),
    ("tick",),
    ("topic", "create", "T"),
    ("group", "create", "G"),
    ("repair",),
    ("recover", "--apply"),
    ("init",),
)


@pytest.mark.parametrize("words", WRITERS, ids=lambda words: words[0])
def test_what_writes_there_is_refused(ran: Ran, address: Callable[[str], str], words: tuple[str, ...]) -> None:
    status, _ = ran(words[0], address("53-multidir"), *words[1:])
    assert status == Exit.USAGE
    assert "is on object storage, where a store is only read" in ran.err


def test_a_copy_to_a_disk_and_none_to_there(
    ran: Ran, store: Unpacker, address: Callable[[str], str], tmp_path: Path
) -> None:
    assert ran("copy", address("53-multidir"), tmp_path / "copied", "--quiet")[0] == Exit.DONE
    assert main(["diff", str(store("53-multidir")), str(tmp_path / "copied"), "--quiet"]) == Exit.DONE
    status, _ = ran("copy", store("53-multidir"), "s3://stores/copied")
    assert (status, "is only read" in ran.err) == (Exit.USAGE, True)


def test_parts_of_a_store_and_what_is_none(ran: Ran, store: Unpacker, address: Callable[[str], str]) -> None:
    here, far = store("49-lmq"), address("49-lmq")
    (queue,) = [path.parent for path in sorted(here.glob("consumequeue/*/0/*"))][:1]
    for part in ("commitlog", queue.relative_to(here), "commitlog/00000000000000000000"):
        assert ran("cat", f"{far}/{part}", "--jsonl") == ran("cat", f"{here}/{part}", "--jsonl")
    for file in ("commitlog/00000000000000000000", "checkpoint"):
        assert ran("dump", f"{far}/{file}", "--json")[1] == ran("dump", f"{here}/{file}", "--json")[1]
    assert ran("info", "s3://stores/none")[0] == Exit.NOT_A_STORE
    assert ran("cat", "s3://stores/49-lmq")[0] == Exit.NOT_A_STORE
    assert f"but {far}" in ran.err


def test_no_credentials_in_an_address(ran: Ran) -> None:
    for address in (f"s3://me:{SECRET}@stores/x", f"s3://stores/x?secret_key={SECRET}", f"abfs://c:{SECRET}@a.net/x"):
        assert ran("info", address)[0] == Exit.USAGE
        assert "credentials do not belong" in ran.err


def test_a_server_that_refuses_is_named_with_its_reason(ran: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"AWS Error ACCESS_DENIED (HTTP status 403) during HeadObject operation: key {SECRET}"
    with pytest.raises(RemoteError, match=r"the server refuses it \(access denied \(HTTP status 403\)\)") as caught:
        access.attempt(lambda: _refuse(text), "read", "s3://stores/x")
    assert SECRET not in json.dumps(caught.value.as_json())


def _refuse(text: str) -> None:
    raise OSError(text)


def test_reserved_space_is_not_fetched(storage: ObjectStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "_WHOLE", 1 << 20)
    size, written = 8 << 20, 3 << 20
    path = tmp_path / "00000000000000000000"
    path.write_bytes(random.Random(1).randbytes(written))
    os.truncate(path, size)
    root = storage.upload(tmp_path, "reserved")
    storage.count()
    with open_root(root) as files, files.open_read(path.name) as file:
        (extent,) = file.iter_data()
        assert written <= extent.end <= written + (128 << 10)
        assert storage.count() < 70
        file.expect(0, size)
        read = b"".join(file.pread(1 << 20, at) for at in range(0, written, 1 << 20))
        assert read == path.read_bytes()[:written]
        # A reader that follows records reads what is there, whatever the samples say.
        assert file.pread(4, size - 4) == bytes(4)
    assert storage.count() < 10


def test_a_file_that_is_not_filled_from_its_beginning_has_no_reserved_space(
    storage: ObjectStorage, tmp_path: Path
) -> None:
    path = tmp_path / "timerwheel"
    path.write_bytes(bytes(3 << 20) + b"slot" + bytes(6 << 20))
    with open_root(storage.upload(tmp_path, "wheel")) as files, files.open_read("timerwheel") as file:
        assert [tuple(extent) for extent in file.iter_data()] == [(0, file.size())]


def test_an_unplugged_server_is_a_sentence(
    ran: Ran, storage: ObjectStorage, address: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "DELAYS", (0.01,))
    far = address("53-multidir")
    storage.unplug()
    try:
        status, out = ran("cat", far, "--jsonl")
    finally:
        storage.plug()
    assert (status, out) == (Exit.REMOTE, "")
    assert "the server does not answer" in ran.err


def test_a_server_that_comes_back_is_waited_for(
    ran: Ran, storage: ObjectStorage, store: Unpacker, address: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is unplugged when the third file of the log is opened, and plugged again between two attempts."""
    far, whole = address("53-multidir"), ran("cat", store("53-multidir"), "--jsonl")
    opened, failed = [], []
    open_read = ObjectReadableFile.__init__

    def open_and_pull(self: ObjectReadableFile, *place: Any) -> None:
        opened.append(place)
        if len(opened) == 3:
            storage.unplug()
        open_read(self, *place)

    def plug(delay: float) -> None:
        failed.append(delay)
        storage.plug()

    monkeypatch.setattr(ObjectReadableFile, "__init__", open_and_pull)
    monkeypatch.setattr(access.time, "sleep", plug)
    assert ran("cat", far, "--jsonl") == whole
    assert failed == [access.DELAYS[0]]


@pytest.mark.timeout(900)
@some_stores
def test_an_export_has_the_same_rows(
    ran: Ran, store: Unpacker, address: Callable[[str], str], name: str, tmp_path: Path
) -> None:
    local = ("--engine", "local", "--split-size", "64k", "--quiet")
    status, _ = ran("export", store(name), "--to", tmp_path / "here", *local)
    far_status, _ = ran("export", address(name), "--to", tmp_path / "far", *local)
    assert far_status == status
    here, far = (pq.read_table(tmp_path / where).drop_columns("broker") for where in ("here", "far"))
    assert far.equals(here)
    assert far.num_rows


def test_the_end_of_a_segment_is_searched_once(
    storage: ObjectStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each range of a segment opens it again; another object of the same name and size is searched again."""
    monkeypatch.setattr(objects, "_WHOLE", 1 << 20)
    path = tmp_path / "00000000000000000000"
    ends = []
    for written in (1 << 20, 3 << 20):
        path.write_bytes(random.Random(written).randbytes(written))
        os.truncate(path, 5 << 20)
        root = storage.upload(tmp_path, "again")
        for requests in (None, 1):
            storage.count()
            with open_root(root) as files, files.open_read(path.name) as file:
                (extent,) = file.iter_data()
            assert requests is None or storage.count() <= requests
            ends.append(extent.end >> 20)
    assert ends == [1, 1, 3, 3]
