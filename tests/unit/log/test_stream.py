"""A log as a stream: every message of the truth once and in order, damage in its place, alone and in processes."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from rmqtool import kernel
from rmqtool.formats.bridges import encode_bridge
from rmqtool.formats.commit_log import Message, decode_record
from rmqtool.log import ranges as chain
from rmqtool.log import ranges as plan
from rmqtool.log import read, stream
from rmqtool.log.ranges import Answered, Effort, Plan, read_plan
from rmqtool.log.read import Damage, Note, Part
from rmqtool.log.select import Selection
from rmqtool.log.sources import logs_of
from rmqtool.store.open import open_store
from tests.support.builders import record
from tests.support.kernel_twins import damage
from tests.support.seeded_stores import make_segment
from tests.support.stores import every_store, truth

EVERYTHING = Selection()


def plan_of(root: Path, selection: Selection = EVERYTHING, *, live: bool = False) -> Plan:
    opened = open_store(str(root))
    try:
        return read_plan(logs_of(opened), selection, live=live)
    finally:
        opened.close()


def offsets(events: Iterable[Part | Damage | Note]) -> list[int]:
    return [
        at for event in events if isinstance(event, Part) for at in event.records.column("physical_offset").tolist()
    ]


def parts_of(root: Path, selection: Selection = EVERYTHING, *, live: bool = False) -> list[Part | Damage | Note]:
    return list(stream.iter_parts(plan_of(root, selection, live=live), selection, Effort()))


def lines_of(root: Path, selection: Selection = EVERYTHING, jobs: int = 1) -> tuple[list[dict[str, Any]], list[Note]]:
    """Every line as an object, damage between files included."""
    lines: list[dict[str, Any]] = []
    notes: list[Note] = []
    messages = damages = 0
    for event in stream.iter_line_answers(plan_of(root, selection), selection, Effort(jobs)):
        if isinstance(event, Answered):
            lines += map(json.loads, b"".join(event.data).splitlines())
            messages += event.found.messages
            damages += len(event.found.damages)
        elif isinstance(event, Damage):
            lines.append(event.as_json())
            damages += 1
        else:
            notes.append(event)
    assert (messages, damages) == (sum("damage" not in line for line in lines), sum("damage" in line for line in lines))
    return lines, notes


def truth_offsets(name: str) -> list[int]:
    return [message["commitLogOffset"] for message in truth(name)["messages"] if "recordCheck" not in message]


@every_store
def test_every_message_of_the_truth_once_and_in_order(name, store):
    events = parts_of(store(name))
    assert offsets(events) == truth_offsets(name)
    damages = [event.code for event in events if isinstance(event, Damage)]
    assert damages == (["CL-TORN"] if name == "49-killed-torn" else [])


@every_store
def test_counting_looks_at_no_body(name, store):
    answers = stream.iter_counts(plan_of(store(name)), EVERYTHING, Effort())
    count = sum(answer.found.messages for answer in answers if isinstance(answer, Answered))
    assert count == len(truth_offsets(name))


@pytest.fixture
def small_ranges(monkeypatch):
    """Ranges of some records, each read by one of two threads."""
    monkeypatch.setattr(plan.plan_ranges, "__defaults__", (0, 5000))
    monkeypatch.setattr(chain.nominal_ranges, "__defaults__", (0, 5000))
    monkeypatch.setattr(stream, "_COUNTED_RANGE", 20_000)


@pytest.mark.parametrize("name", ["49-basic", "53-broker", "49-dledger", "49-offpool", "49-ghost"])
def test_threads_give_the_same_lines(name, store, small_ranges):
    alone = lines_of(store(name))
    assert [line["commitLogOffset"] for line in alone[0]] == truth_offsets(name)
    assert lines_of(store(name), jobs=2) == alone


def test_counts_of_threads_add_up(store, small_ranges):
    answers = stream.iter_counts(plan_of(store("49-basic")), EVERYTHING, Effort(jobs=2))
    assert sum(answer.found.messages for answer in answers if isinstance(answer, Answered)) == 683


def write_log(root: Path, *files: tuple[int, bytes]) -> Path:
    (root / "commitlog").mkdir(parents=True)
    for base, data in files:
        (root / "commitlog" / f"{base:020d}").write_bytes(data)
    return root


@pytest.mark.parametrize("seed", [11, 16, 3, 7])
def test_a_range_that_was_begun_in_a_body_is_read_again(seed, tmp_path, small_ranges):
    made = make_segment(seed, fakes=True)
    root = write_log(tmp_path, (made.base, made.data))
    alone, _ = lines_of(root)
    assert [line["commitLogOffset"] - made.base for line in alone if "damage" not in line] == made.starts
    assert lines_of(root, jobs=2)[0] == alone


def counted(root: Path) -> tuple[int, list[tuple[str, int, int]]]:
    """The number of messages and the places of damage, as ``cat --count`` finds them."""
    messages, damages = 0, []
    for event in stream.iter_counts(plan_of(root), EVERYTHING, Effort()):
        if isinstance(event, Answered):
            messages += event.found.messages
            damages += event.found.damages
        elif isinstance(event, Damage):
            damages.append(event)
    return messages, sorted((one.code, one.file_offset, one.length) for one in damages)


@pytest.mark.skipif(kernel.NATIVE is None, reason="only the kernel skims")
def test_a_count_skims_up_to_the_first_placeholder_and_leaves_it_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Without a selection every message is wanted, so columns are made only where a placeholder may be."""
    monkeypatch.setattr(read, "_FEW", 2)
    monkeypatch.setattr(read, "_SKIMMED", 4096)
    body = b"a body as long as the name of the placeholders' topic"
    size = len(record(body))
    like = decode_record(record(body), 0)
    assert isinstance(like, Message)
    parts = [record(body, physical_offset=number * size) for number in range(100)]
    parts[60] = encode_bridge(60 * size, size, like)
    root = write_log(tmp_path, (0, b"".join(parts)))
    (log,) = plan_of(root).wanted
    reader = read.RangeReader(read.Range(log), EVERYTHING, checksums=False, skims=True)
    in_columns = sum(len(part.records) for part in reader.parts() if isinstance(part, Part))
    assert 40 < reader.skimmed <= 60
    assert reader.skimmed + in_columns == 99
    assert counted(root) == (99, [])


@pytest.mark.parametrize("seed", range(40))
def test_a_skimmed_count_is_that_of_the_columns(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With windows of some records, on whole and damaged segments, with records in bodies."""
    segment = make_segment(seed)
    rng = random.Random(seed)
    data = damage(rng, segment.data) if seed % 2 else segment.data
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / f"{segment.base:020d}").write_bytes(data)
    monkeypatch.setattr(read, "_FEW", 1 << 62)
    through_columns = counted(tmp_path)
    monkeypatch.setattr(read, "_FEW", 2)
    for window in (1 << 10, 1 << 14, 1 << 20):
        monkeypatch.setattr(read, "_SKIMMED", window)
        assert counted(tmp_path) == through_columns
