"""Bulk on stores that real brokers wrote, whole and damaged."""

from __future__ import annotations

import hashlib
import ipaddress
import json
from base64 import b64decode
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from rmqtool.columns.dispatched import index_keys
from rmqtool.columns.index_build import Keys
from rmqtool.columns.jsonl import iter_json_lines
from rmqtool.columns.properties import decode_properties
from rmqtool.columns.queues import QueueRun, batch_units, decode_units, queue_runs
from rmqtool.columns.records import (
    Records,
    decode_records,
    have_right_crc,
    have_right_property_crc,
    lie_in_place,
)
from rmqtool.columns.starts import record_starts
from rmqtool.formats.commit_log import Blank
from rmqtool.formats.dispatch import DispatchRules, rules_of
from rmqtool.formats.topics import DEFAULT_DELAY_LEVELS, parse_delay_levels
from tests.agreement.logs import Segment, commit_log_segments
from tests.support.column_files import IndexContent, insert_keys, join_runs, queue_files
from tests.support.mutations import Mutation, apply_operation, read_catalogue
from tests.support.one_by_one import assert_like_formats, assert_like_walk
from tests.support.stores import BASES, STORES, every_store, truth

Unpacker = Callable[[str], Path]

# In this one the log was zeroed from the middle of a record on: that record is no clean data.
TORN = {"49-killed-torn": 1}
IN_SEGMENTS = [name for name in STORES if name != "49-dledger"]
CLEAN = [name for name in STORES if truth(name)["clean_shutdown"]]

# Queues of these were not written by appending what the log holds: a retention took the head of the log away, stale
# units lie behind the end (and came back to life), or tags codes point into an extension.
NOT_FROM_THE_LOG = ("49-cleaned", "53-cleaned", "49-recovered", "49-ghost", "49-ext")
WITH_WHOLE_QUEUES = [name for name in CLEAN if name not in NOT_FROM_THE_LOG and name != "49-dledger"]
# Their queues, or some, are rows of RocksDB or batch queues.
WITHOUT_SOME_QUEUE_FILES = ("53-rocksdb", "54-rocksone", "53-compress")
WITH_WHOLE_INDEX = [
    name
    for name in CLEAN
    if name not in ("49-cleaned", "53-cleaned", "49-recovered", "49-ghost", "49-dledger", "49-default-sizes")
]


class Piece(NamedTuple):
    """Records of one segment that the truth names."""

    segment: Segment
    records: Records


def read_pieces(name: str, root: Path) -> list[Piece]:
    """The records of a store, read in bulk; those behind the end of the log are left out."""
    known = {message["commitLogOffset"] for message in truth(name)["messages"]}
    pieces = []
    for segment in commit_log_segments(root):
        records, _ = decode_records(segment.data, record_starts(segment.data).file_offsets)
        wanted = [segment.base_offset + at in known for at in records.file_offsets.tolist()]
        pieces.append(Piece(segment, records.select(np.array(wanted, bool))))
    return pieces


def rules(name: str) -> DispatchRules:
    config = truth(name)["config"]
    return rules_of(
        truth(name)["broker_version"][:3],
        parse_delay_levels(config.get("messageDelayLevel", DEFAULT_DELAY_LEVELS)),
        multi_dispatch=config.get("enableMultiDispatch", False),
        lmq=config.get("enableLmq", False),
    )


@pytest.mark.parametrize("name", IN_SEGMENTS)
def test_every_record_is_what_formats_says(name: str, store: Unpacker) -> None:
    """No record is declined but the torn one, and every column equals the decoded record's field."""
    whole = 0
    for segment in commit_log_segments(store(name)):
        assert_like_walk(segment.data)
        starts = record_starts(segment.data).file_offsets.tolist()
        whole += len(assert_like_formats(segment.data, starts))
    assert whole >= len(truth(name)["messages"]) - TORN.get(name, 0)


@pytest.mark.parametrize("name", IN_SEGMENTS)
def test_clean_records_pass_every_check(name: str, store: Unpacker) -> None:
    pieces = read_pieces(name, store(name))
    for segment, records in pieces:
        assert have_right_crc(records).all()
        assert have_right_property_crc(records).all()
        assert (records.column("store_timestamp") > 0).all()
        assert lie_in_place(records, segment.base_offset).all()
    assert sum(len(records) for _, records in pieces) == len(truth(name)["messages"]) - TORN.get(name, 0)


@pytest.mark.parametrize("name", [name for name in CLEAN if name in IN_SEGMENTS])
def test_never_declines_on_clean_data(name: str, store: Unpacker) -> None:
    """Every segment is read to its blank or to where nothing was written, without a word of doubt."""
    for segment in commit_log_segments(store(name)):
        found = record_starts(segment.data)
        _, declined = decode_records(segment.data, found.file_offsets)
        assert declined is None
        if isinstance(found.stopped_by, Blank):
            assert found.stopped_at + found.stopped_by.total_size == segment.size


def same_host(java: str) -> str:
    """A host as Java spells it, spelled for people."""
    address, _, port = java.rpartition(":")
    if "." in address:
        return java
    return f"[{ipaddress.ip_address(address.strip('[]')).compressed}]:{port}"


def assert_line_is_true(line: dict[str, Any], message: dict[str, Any]) -> None:
    body = line.pop("body")
    raw = b64decode(body) if line.pop("bodyEncoding") == "base64" else body.encode()
    codec = line.pop("bodyCodec")
    if message["bodySha256"] is None:
        assert (line.pop("bodyLength"), hashlib.sha256(raw).hexdigest()) == (None, message["storedBodySha256"])
    else:
        assert (line.pop("bodyLength"), hashlib.sha256(raw).hexdigest()) == (
            message["bodyLength"],
            message["bodySha256"],
        )
        assert (codec is None) == (message["storedBodySha256"] == message["bodySha256"]) or not raw
    for key in ("bornHost", "storeHost"):
        assert line.pop(key) == same_host(message[key])
    assert line == {key: message[key] for key in line}


@every_store
def test_lines_are_what_the_real_decoder_says(name: str, store: Unpacker) -> None:
    messages = {message["commitLogOffset"]: message for message in truth(name)["messages"]}
    lines = []
    if name == "49-dledger":
        lines = dledger_lines(store(name), messages)
    for _, records in read_pieces(name, store(name)):
        lines += json_lines(records)
    assert len(lines) == len(messages) - TORN.get(name, 0)
    for text in lines:
        line = json.loads(text)
        assert_line_is_true(line, messages[line["commitLogOffset"]])


def json_lines(records: Records) -> list[str]:
    return b"".join(lines.text.tobytes() for lines in iter_json_lines(records)).decode().splitlines()


def dledger_lines(root: Path, messages: dict[int, Any]) -> list[str]:
    """Records behind the heads of DLedger's entries: their starts are given."""
    lines = []
    for segment in commit_log_segments(root):
        places = [
            place - segment.base_offset
            for place in messages
            if segment.base_offset <= place < segment.base_offset + segment.size
        ]
        records, declined = decode_records(segment.data, np.array(sorted(places), np.int64))
        assert declined is None
        assert have_right_crc(records).all()
        lines += json_lines(records)
    return lines


def all_runs(name: str, pieces: list[Piece]) -> dict[tuple[str, int], QueueRun]:
    runs = []
    for _, records in pieces:
        runs += queue_runs(records, decode_properties(records), rules(name))
    return join_runs(runs)


@pytest.mark.parametrize("name", WITH_WHOLE_QUEUES)
def test_queue_files_byte_for_byte(name: str, store: Unpacker) -> None:
    root = store(name)
    expected = {path: path.read_bytes() for path in root.glob("consumequeue/*/*/*") if path.name.isdecimal()}
    found = {}
    for (topic, queue_id), run in all_runs(name, read_pieces(name, root)).items():
        folder = root / "consumequeue" / topic / str(queue_id)
        size = next((len(data) for path, data in expected.items() if path.parent == folder), None)
        if size is None:
            assert name in WITHOUT_SOME_QUEUE_FILES
            continue
        found |= {folder / f"{at:020d}": data.ljust(size, b"\0") for at, data in queue_files(run, size // 20)}
    assert found == expected


@pytest.mark.parametrize("name", [name for name in CLEAN if name not in ("49-dledger", "49-ghost")])
def test_every_live_unit(name: str, store: Unpacker) -> None:
    """Each unit that the real store serves, given that the log still holds its record."""
    root = store(name)
    runs = all_runs(name, read_pieces(name, root))
    compared = 0
    for topic, queues in truth(name)["queues"].items():
        for queue_id, queue in queues.items():
            run = runs.get((topic, int(queue_id)))
            if queue.get("type") == "BatchCQ":
                continue
            units = {} if run is None else dict(zip(run.queue_offsets.tolist(), run.units.tolist(), strict=True))
            first = queue.get("unitsFrom", queue["minOffset"])
            for offset, unit in enumerate(queue["units"], first):
                if offset in units:
                    with_ext = name == "49-ext" and unit[2] < -(1 << 31)
                    assert units[offset][: 2 if with_ext else 3] == tuple(unit[: 2 if with_ext else 3])
                    compared += 1
                else:
                    assert unit[0] < truth(name)["min_phy"]
    assert compared or not any(queue["units"] for queues in truth(name)["queues"].values() for queue in queues.values())


def test_batch_queue_files_byte_for_byte(store: Unpacker) -> None:
    root = store("53-compress")
    folders = sorted(root.glob("batchconsumequeue/*/*"))
    assert len(folders) == 2
    for folder in folders:
        units = b""
        for _, records in read_pieces("53-compress", root):
            topic = [
                records.data[a : a + n].tobytes().decode()
                for a, n in zip(records.topic_offsets, records.topic_lengths, strict=True)
            ]
            mine = (np.array(topic) == folder.parent.name) & (records.column("queue_id") == int(folder.name))
            chosen = records.select(mine)
            units += batch_units(chosen, decode_properties(chosen), rules("53-compress")).tobytes()
        stored = b"".join(path.read_bytes() for path in sorted(folder.iterdir()))
        assert units
        assert stored == units.ljust(len(stored), b"\0")


def all_keys(name: str, pieces: list[Piece]) -> Keys:
    parts = []
    for _, records in pieces:
        found = index_keys(records, decode_properties(records), rules(name))
        places, times = records.column("physical_offset"), records.column("store_timestamp")
        parts.append((found.key_hashes, places[found.rows], times[found.rows]))
    return Keys(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


@pytest.mark.parametrize("name", WITH_WHOLE_INDEX)
def test_index_files_byte_for_byte(name: str, store: Unpacker) -> None:
    root = store(name)
    config = truth(name)["config"]
    empty = IndexContent(b"", config["maxHashSlotNum"], config["maxIndexNum"])
    built = insert_keys(empty, all_keys(name, read_pieces(name, root)))
    stored = [path.read_bytes() for path in sorted((root / "index").iterdir())]
    assert [content.data.tobytes() for content in built] == stored
    assert len(stored) == len(truth(name)["index_files"])


@pytest.mark.parametrize("name", [name for name in CLEAN if name not in ("49-dledger", "49-default-sizes")])
def test_stored_index_files_judged_without_rebuilding(name: str, store: Unpacker) -> None:
    """The entries are those that the records give, but for messages that are gone."""
    root = store(name)
    config = truth(name)["config"]
    parts = []
    for path in sorted((root / "index").iterdir()):
        content = IndexContent(path.read_bytes(), config["maxHashSlotNum"], config["maxIndexNum"])
        entries = content.entries[1 : content.next_entry]
        parts.append((entries["key_hash"].astype(np.int32), entries["phy_offset"].astype(np.int64)))
    hashes, places = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    expected = all_keys(name, read_pieces(name, root))
    found = Counter(zip(hashes.tolist(), places.tolist(), strict=True))
    due = Counter(zip(expected.key_hashes.tolist(), expected.physical_offsets.tolist(), strict=True))
    if name in WITH_WHOLE_INDEX:
        assert found == due
    elif name in ("49-cleaned", "53-cleaned"):
        assert not due - found
        assert found - due
        assert all(place < truth(name)["min_phy"] for _, place in found - due)


def test_index_of_default_size(store: Unpacker) -> None:
    """Five million slots, twenty million entries: only the part that is written is looked at."""
    root = store("49-default-sizes")
    (path,) = (root / "index").iterdir()
    built = IndexContent(b"", 5_000_000, 20_000_000)
    assert built.data.nbytes == path.stat().st_size
    keys = all_keys("49-default-sizes", read_pieces("49-default-sizes", root))
    assert built.insert(keys) == len(keys.key_hashes)
    with path.open("rb") as file:
        assert file.read(40) == built.data[:40].tobytes()
        file.seek(40 + 4 * 5_000_000)
        assert file.read(20 * 1000) == built.entries[:1000].tobytes()
        for slot in np.unique(keys.key_hashes % np.int64(5_000_000)).tolist():
            file.seek(40 + 4 * slot)
            assert file.read(4) == built.slots[slot : slot + 1].tobytes()


def damaging() -> list[tuple[str, Mutation]]:
    """A hundred mutations that change bytes of a log, spread evenly over bases and versions."""
    found = []
    for folder in sorted({base.partition("/")[0] for base in BASES if "config" not in base}):
        for file in ("mutations.jsonl", "mutations-fuzz.jsonl"):
            for mutation in read_catalogue(folder, file).values():
                if any(operation["path"].startswith("commitlog/") for operation in mutation.operations):
                    found.append((f"{folder}/base-{mutation.base}", mutation))
    return found[:: len(found) // 100][:100]


@pytest.mark.parametrize(("base", "mutation"), [pytest.param(*one, id=f"{one[0]}-{one[1].name}") for one in damaging()])
def test_damaged_logs(base: str, mutation: Mutation, store: Unpacker, tmp_path: Path) -> None:
    """Columns end where decoding one by one ends; what they hold up to there is the same."""
    source = store(base)
    (tmp_path / "commitlog").mkdir()
    for path in (source / "commitlog").iterdir():
        (tmp_path / "commitlog" / path.name).write_bytes(path.read_bytes())
    for operation in mutation.operations:
        if operation["path"].startswith("commitlog"):
            apply_operation(tmp_path, operation)
    for path in sorted((tmp_path / "commitlog").glob("*") if (tmp_path / "commitlog").is_dir() else ()):
        before = source / "commitlog" / path.name
        data = path.read_bytes() if path.is_file() else b""
        if not before.exists() or data != before.read_bytes():
            assert_like_walk(data)
            assert_like_formats(data, record_starts(data).file_offsets.tolist())


def test_units_of_a_file_are_decoded(store: Unpacker) -> None:
    path = store("53-basic") / "consumequeue/TopicB/0/00000000000000000000"
    units = truth("53-basic")["queues"]["TopicB"]["0"]["units"]
    assert decode_units(path.read_bytes()).tolist()[:30] == [tuple(unit) for unit in units[:30]]
