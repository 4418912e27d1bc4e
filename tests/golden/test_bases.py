"""The stores that the recovery outcomes start from: no truth file, but every byte of theirs has its reason, too."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtool.formats import checkpoints, commit_log, consume_queue, dispatch, layouts
from rmqtool.formats.commit_log import Blank, Message, Nothing
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.topics import DEFAULT_DELAY_LEVELS, parse_delay_levels
from tests.agreement.logs import commit_log_segments, messages, placed, queue_files
from tests.support.stores import BASES, FIXTURES

UNIT = layouts.CONSUME_QUEUE_UNIT
RECOVERY = [name for name in BASES if "config" not in name]
MESSAGES = {"A": 1500, "A-killed": 1500, "L": 2200, "S": 2000}

Unpacker = Callable[[str], Path]


@pytest.mark.parametrize("name", RECOVERY)
def test_every_record_is_sound_and_comes_back(name: str, store: Unpacker) -> None:
    root = store(name)
    for one in placed(root):
        if isinstance(one.found, Message):
            assert commit_log.encode_message(one.found) == one.data
            assert (
                list(commit_log.check_record(one.found, one.segment.data, one.file_offset, one.physical_offset)) == []
            )
        elif isinstance(one.found, Blank):
            assert one.file_offset + one.found.total_size == one.segment.size
        else:
            assert isinstance(one.found, Nothing)
            assert one.segment in commit_log_segments(root)[-2:]
    assert len(messages(root)) == MESSAGES[name.partition("base-")[2]]


@pytest.mark.parametrize("name", RECOVERY)
def test_queues_come_from_the_log(name: str, store: Unpacker) -> None:
    root = store(name)
    version = name.partition("-")[2].partition("/")[0]
    rules = dispatch.rules_of(version, parse_delay_levels(DEFAULT_DELAY_LEVELS))
    wanted: dict[tuple[str, int], bytes] = defaultdict(bytes)
    for message in messages(root):
        for entry in dispatch.queue_entries(message, rules):
            made = wanted[entry.topic, entry.queue_id]
            assert entry.queue_offset == len(made) // UNIT.size
            wanted[entry.topic, entry.queue_id] = made + UNIT.encode(entry.unit)
    found = {
        (files.topic, files.queue_id): b"".join(segment.data.ljust(segment.size, b"\0") for segment in files.segments)
        for files in queue_files(root, "consumequeue")
    }
    assert found.keys() == wanted.keys()
    for queue, data in found.items():
        end = next(
            (at for at, unit in enumerate(UNIT.iter_decode(data)) if not consume_queue.is_written(unit)),
            len(data) // UNIT.size,
        )
        assert data[: end * UNIT.size] == wanted[queue][: end * UNIT.size], queue
        assert data[end * UNIT.size :].strip(b"\0") == b""
        if not name.endswith("killed"):
            assert end * UNIT.size == len(wanted[queue]), queue


@pytest.mark.parametrize("name", RECOVERY)
def test_checkpoint_comes_back(name: str, store: Unpacker) -> None:
    page = (store(name) / "checkpoint").read_bytes()
    assert checkpoints.check_checkpoint(page) is None
    assert checkpoints.encode_checkpoint(checkpoints.decode_checkpoint(page)) == page


# Files of flipped bits, and how many of them cost messages.
FLIPS = {
    "recovery-4.9.8/flips-A-abort.json": 77,
    "recovery-4.9.8/flips-S-abort.json": 117,
    "recovery-4.9.8/flips-S-clean.json": 36,
    "recovery-5.3.3/flips-A-abort.json": 68,
    "recovery-5.3.3/flips-S-abort.json": 119,
    "recovery-5.3.3/flips-S-clean.json": 9,
    "recovery-5.4.0/flips-A-abort.json": 68,
    "recovery-5.4.0/flips-S-abort.json": 119,
    "recovery-5.4.0/flips-S-clean.json": 9,
}


@pytest.mark.parametrize("name", FLIPS)
def test_a_flipped_bit_that_cost_a_broker_messages_is_a_flaw(name: str, store: Unpacker) -> None:
    """The broker cut the log at that record; what it trusts and we do not (its place) must not be the reason."""
    directory, _, file_name = name.partition("/")
    base = file_name.removeprefix("flips-").partition("-")[0]
    segments = commit_log_segments(store(f"{directory}/base-{base}"))
    flips = json.loads((FIXTURES / name).read_text())
    assert flips["columns"][:3] == ["offset", "bit", "record_start"]
    tried = 0
    for offset, bit, record_start, lost in flips["rows"]:
        if lost == 0:
            continue
        segment = next(one for one in reversed(segments) if one.base_offset <= record_start)
        data = bytearray(segment.data.ljust(segment.size, b"\0"))
        data[offset - segment.base_offset] ^= 1 << bit
        at = record_start - segment.base_offset
        found = commit_log.decode_record(data, at)
        if isinstance(found, Message):
            found = next(
                flaw for flaw in commit_log.check_record(found, data, at, record_start) if flaw.code != "CL-PHY"
            )
        assert isinstance(found, Flaw), (offset, bit)
        assert found.code in ("CL-MAGIC", "CL-LEN", "CL-CRC")
        tried += 1
    assert tried == FLIPS[name]
