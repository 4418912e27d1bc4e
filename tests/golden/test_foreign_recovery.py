"""Recovery of stores with queues in RocksDB, which are written, and with a DLedger log, which is left as it is."""

from __future__ import annotations

import json
import shutil
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rmqtool.cli import main
from rmqtool.engine.recovery.recover import recover
from rmqtool.errors import Exit, OptionalMissing
from tests.support.recovered import setup_for
from tests.support.schemas import validate
from tests.support.stores import content_digest, truth

LOG = "dledger-n0/data/00000000000000000000"
SIZES = ("mappedFileSizeConsumeQueue", "maxHashSlotNum", "maxIndexNum")
IN_ROCKSDB = ("53-rocksdb", "54-rocksone", "54-combine")


def digests(root: Path, directory: str) -> dict[str, str]:
    return {
        str(path.relative_to(root)): content_digest(path)
        for path in sorted((root / directory).rglob("*"))
        if path.is_file()
    }


def overwrite(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def messages_of(name: str) -> list[dict[str, Any]]:
    return sorted(truth(name)["messages"], key=lambda message: message["commitLogOffset"])


def test_queues_and_index_of_a_dledger_store_are_made_anew(writable_store):
    root = writable_store("49-dledger")
    queues, index = digests(root, "consumequeue"), digests(root, "index")
    log = digests(root, "dledger-n0")
    for path in (*(root / "consumequeue").rglob("0000*"), *(root / "index").iterdir()):
        path.unlink()
    (root / "abort").touch()
    sizes = [f"{name}={truth('49-dledger')['config'][name]}" for name in SIZES]
    report = recover(setup_for(root, settings=sizes))
    assert (report.messages, report.max_offset, report.misfits) == (266, truth("49-dledger")["max_phy"], [])
    assert digests(root, "consumequeue") == queues
    assert len(digests(root, "index")) == len(index)
    assert digests(root, "dledger-n0") == log
    assert not (root / "abort").exists()
    assert recover(setup_for(root)).changes == {}


@pytest.mark.parametrize("is_head", [True, False])
def test_a_broken_entry_of_dledger_hides_none_behind_it(writable_store, is_head):
    """The group alone may cut: the bytes stay, the queue keeps the place, and what follows is served."""
    root = writable_store("49-dledger")
    message = messages_of("49-dledger")[20]
    at = message["commitLogOffset"] - (48 if is_head else -90)
    overwrite(root / LOG, at, b"\x7f\x7f\x7f\x7f")
    log, queues = digests(root, "dledger-n0"), digests(root, "consumequeue")
    report = recover(setup_for(root))
    assert report.messages == 265
    code, offset = ("DL-MAGIC", at) if is_head else ("CL-CRC", message["commitLogOffset"])
    assert [(one.code, one.file, one.offset) for one in report.findings] == [(code, LOG, offset)]
    assert (report.changes, report.misfits) == ({}, [])
    assert digests(root, "dledger-n0") == log
    assert digests(root, "consumequeue") == queues


def test_the_torn_end_of_a_dledger_log_is_left_to_the_group(writable_store):
    root = writable_store("49-dledger")
    last = messages_of("49-dledger")[-1]
    path = root / f"dledger-n0/data/{last['commitLogOffset'] // 65536 * 65536:020d}"
    overwrite(path, last["commitLogOffset"] % 65536 + 90, bytes(40))
    (root / "abort").touch()
    log = digests(root, "dledger-n0")
    report = recover(setup_for(root))
    assert report.messages == 265
    assert digests(root, "dledger-n0") == log
    assert last["commitLogOffset"] % 65536 in [one.offset for one in report.findings]
    settled = digests(root, "")
    assert recover(setup_for(root)).changes == {}
    assert digests(root, "") == settled


@contextmanager
def rows_of(root: Path) -> Iterator[Any]:
    """Open the queue database of a store, to damage it."""
    rocksdict = pytest.importorskip("rocksdict")
    path = str(root / "consumequeue")
    options = {family: rocksdict.Options(raw_mode=True) for family in rocksdict.Rdict.list_cf(path)}
    database = rocksdict.Rdict(path, rocksdict.Options(raw_mode=True), column_families=options)
    try:
        yield database
    finally:
        database.close()


def row_key(topic: str, queue_id: int, queue_offset: int) -> bytes:
    name = topic.encode()
    return (
        struct.pack(">i", len(name))
        + b"\x01"
        + name
        + b"\x01"
        + struct.pack(">i", queue_id)
        + b"\x01"
        + struct.pack(">q", queue_offset)
    )


@pytest.mark.parametrize("name", IN_ROCKSDB)
def test_rows_that_are_gone_or_wrong_are_written_again(name, writable_store):
    root = writable_store(name)
    before = all_rows(root)
    with rows_of(root) as database:
        family = database.get_column_family("default")
        gone, wrong = row_key("RocksA", 0, 1), row_key("RocksA", 1, 0)
        assert len(family.get(gone)) == 28
        family.delete(gone)
        family.put(wrong, struct.pack(">q", 77) + bytes(family.get(wrong))[8:])
    report = recover(setup_for(root))
    told = [(one.code, one.topic, one.queue_id, one.data["units"]) for one in report.findings]
    assert told == [("CQ-WRONG", "RocksA", 0, 1), ("CQ-WRONG", "RocksA", 1, 1)]
    assert report.misfits == []
    assert {path.split("/")[0] for path in report.changes} == {"consumequeue"}
    assert all_rows(root) == before
    assert recover(setup_for(root)).changes == {}


def all_rows(root: Path) -> dict[str, dict[bytes, bytes]]:
    """Return the rows of the queue database by family, read by RocksDB itself, from a copy."""
    rocksdict = pytest.importorskip("rocksdict")
    with tempfile.TemporaryDirectory() as copied:
        for path in (root / "consumequeue").iterdir():
            if path.is_file():
                shutil.copy(path, copied)
        options = {family: rocksdict.Options(raw_mode=True) for family in ("default", "offset")}
        database = rocksdict.Rdict(copied, rocksdict.Options(raw_mode=True), column_families=options)
        found = {family: dict(database.get_column_family(family).items()) for family in options}
        database.close()
    return found


@pytest.mark.parametrize("what", ["table", "manifest", "CURRENT", "all"])
def test_queues_that_rocksdb_cannot_read_are_built_again(writable_store, what):
    root = writable_store("53-rocksdb")
    before = all_rows(root)
    directory = root / "consumequeue"
    if what == "table":
        overwrite(directory / "000011.sst", 300, b"\xff" * 40)
    elif what == "manifest":
        overwrite(next(directory.glob("MANIFEST-*")), 10, b"\xff" * 40)
    elif what == "CURRENT":
        (directory / "CURRENT").unlink()
    else:
        shutil.rmtree(directory)
    delays = truth("53-rocksdb")["config"]["messageDelayLevel"]
    settings = ["storeType=defaultRocksDB", f"messageDelayLevel={delays}"]
    report = recover(setup_for(root, settings=settings))
    assert [one.code for one in report.findings if one.code == "RX-OPEN"] == ["RX-OPEN"] * (what != "all")
    found = all_rows(root)
    assert found["default"] == before["default"]
    # The bounds of queues that never had a message are made by whoever asks for them.
    assert {key: value for key, value in before["offset"].items() if b"\x01max\x01" in key} == found["offset"]
    assert recover(setup_for(root, settings=settings)).changes == {}


def test_what_has_no_row_yet_after_a_crash_gets_one(writable_store):
    """upstream dispatches from the last place that its queues know."""
    root = writable_store("53-rocksdb")
    rows = all_rows(root)["default"]
    last = messages_of("53-rocksdb")[-1]
    with rows_of(root) as database:
        bounds = database.get_column_family("offset")
        for bound, value in list(bounds.items()):
            if len(value) == 16 and b"\x01max\x01" in bytes(bound):
                before = struct.unpack(">q", bytes(value)[:8])[0]
                bounds.put(bound, struct.pack(">q", min(before, last["commitLogOffset"] - 1)) + bytes(value)[8:])
        queue_offset = last["queueOffset"]
        database.get_column_family("default").delete(row_key(last["topic"], last["queueId"], queue_offset))
    (root / "abort").touch()
    report = recover(setup_for(root))
    assert (report.findings, report.misfits) == ([], [])
    assert not (root / "abort").exists()
    assert all_rows(root)["default"] == rows
    assert recover(setup_for(root)).changes == {}


def test_a_torn_log_beside_rocksdb_is_cut(writable_store):
    root = writable_store("53-rocksdb")
    last = messages_of("53-rocksdb")[-1]
    base = last["commitLogOffset"] // 65536 * 65536
    overwrite(root / f"commitlog/{base:020d}", last["commitLogOffset"] - base + 90, bytes(last["storeSize"] - 90))
    (root / "abort").touch()
    report = recover(setup_for(root))
    assert (report.messages, report.max_offset) == (133, last["commitLogOffset"])
    assert "CL-TORN" in [one.code for one in report.findings]
    ahead = [(one.topic, one.queue_id) for one in report.findings if one.code == "CQ-AHEAD"]
    assert ahead == [(last["topic"], last["queueId"])]
    assert not list((root / "consumequeue").rglob("0" * 20))
    assert row_key(last["topic"], last["queueId"], last["queueOffset"]) not in all_rows(root)["default"]
    assert recover(setup_for(root)).changes == {}


def test_without_the_extra_all_else_is_done_and_that_is_said(writable_store, monkeypatch, capsysbinary):
    def refuse(*_arguments: object) -> None:
        raise OptionalMissing("consumequeue is a RocksDB database; reading it needs the extra rocksdb")

    monkeypatch.setattr("rmqtool.engine.recovery.recover.QueueRows", refuse)
    root = writable_store("53-rocksdb")
    assert main(["recover", str(root), "--apply", "--json"]) == Exit.OPTIONAL_MISSING
    captured = capsysbinary.readouterr()
    shown = json.loads(captured.out)
    validate("recovered", shown)
    assert shown["messages"] == 134
    assert b"needs the extra rocksdb" in captured.err
