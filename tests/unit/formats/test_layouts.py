"""The derived layouts: what was committed is what the declarations say, and every decoder reads the same fields."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from construct import Construct, Container

from rmqtool.formats import declarations, layouts
from rmqtool.formats.layout import Layout, LayoutError
from tests.support import builders
from tests.support.builders import SAMPLES
from tools import derive

LAYOUTS: dict[str, Layout[Any]] = {name: value for name, value in vars(layouts).items() if isinstance(value, Layout)}
PREFIXES = {name: layout for name, layout in LAYOUTS.items() if name.startswith("MESSAGE_PREFIX")}
HOST_BITS = {"V4V4": 0, "V4V6": builders.STORE_V6, "V6V4": builders.BORN_V6, "V6V6": 0x30}

# Sizes that the specification and upstream's own constants name.
SIZES = {
    "MESSAGE_PREFIX_V4V4": 88,
    "MESSAGE_PREFIX_V4V6": 100,
    "MESSAGE_PREFIX_V6V4": 100,
    "MESSAGE_PREFIX_V6V6": 112,
    "RECORD_START": 8,
    "BLANK_RECORD": 8,
    "CONSUME_QUEUE_UNIT": 20,
    "CONSUME_QUEUE_EXT_HEAD": 20,
    "BATCH_CONSUME_QUEUE_UNIT": 46,
    "INDEX_HEADER": 40,
    "INDEX_SLOT": 4,
    "INDEX_ENTRY": 20,
    "STORE_CHECKPOINT": 40,
    "TIMER_SLOT": 32,
    "TIMER_LOG_UNIT": 52,
    "TIMER_LOG_BLANK": 16,
    "TIMER_CHECKPOINT": 56,
    "DLEDGER_ENTRY_HEAD": 48,
    "DLEDGER_INDEX_UNIT": 32,
    "ROCKSDB_QUEUE_VALUE": 28,
    "ROCKSDB_QUEUE_KEY_TAIL": 14,
    "ROCKSDB_OFFSET_VALUE": 16,
    "ROCKSDB_DATA_VERSION": 24,
    "ROCKSDB_TIMER_VALUE": 12,
    "ROCKSDB_TRANS_VALUE": 8,
    "LONG": 8,
    "INT": 4,
    "SHORT": 2,
    "BYTE": 1,
    "TIERED_INDEX_HEADER": 28,
    "TIERED_INDEX_SLOT": 8,
    "TIERED_INDEX_ITEM": 32,
    "TIERED_SEALED_ITEM": 28,
    "TIERED_CODA": 16,
    "BATCH_ITEM_PREFIX": 20,
}

# Offsets that upstream's code names (MessageDecoder, IndexHeader, TimerLog, DLedgerEntry) or the specification does.
OFFSETS = {
    "MESSAGE_PREFIX_V4V4": {
        "total_size": 0,
        "magic": 4,
        "body_crc": 8,
        "queue_id": 12,
        "flag": 16,
        "queue_offset": 20,
        "physical_offset": 28,
        "sys_flag": 36,
        "born_timestamp": 40,
        "born_host_ip": 48,
        "store_timestamp": 56,
        "store_host_ip": 64,
        "reconsume_times": 72,
        "prepared_transaction_offset": 76,
        "body_length": 84,
    },
    "MESSAGE_PREFIX_V6V4": {"born_host_port": 64, "store_timestamp": 68, "store_host_ip": 76, "body_length": 96},
    "MESSAGE_PREFIX_V4V6": {"store_timestamp": 56, "store_host_port": 80, "body_length": 96},
    "MESSAGE_PREFIX_V6V6": {"store_timestamp": 68, "store_host_ip": 76, "body_length": 108},
    "CONSUME_QUEUE_UNIT": {"physical_offset": 0, "size": 8, "tags_code": 12},
    "CONSUME_QUEUE_EXT_HEAD": {"size": 0, "tags_code": 2, "msg_store_time": 10, "bit_map_size": 18},
    "BATCH_CONSUME_QUEUE_UNIT": {
        "tags_code": 12,
        "store_time": 20,
        "msg_base_offset": 28,
        "batch_size": 36,
        "compacted_offset": 38,
        "reserved": 42,
    },
    "INDEX_HEADER": {
        "begin_timestamp": 0,
        "end_timestamp": 8,
        "begin_phy_offset": 16,
        "end_phy_offset": 24,
        "hash_slot_count": 32,
        "index_count": 36,
    },
    "INDEX_ENTRY": {"key_hash": 0, "phy_offset": 4, "time_diff": 12, "prev_index": 16},
    "STORE_CHECKPOINT": {"index_msg_timestamp": 16, "master_flushed_offset": 24, "confirm_phy_offset": 32},
    "TIMER_SLOT": {"time": 0, "first_pos": 8, "last_pos": 16, "num": 24, "magic": 28},
    "TIMER_LOG_UNIT": {
        "prev_pos": 4,
        "magic": 12,
        "write_time": 16,
        "delay": 24,
        "offset_py": 28,
        "size_py": 36,
        "topic_hash": 40,
        "reserved": 44,
    },
    "TIMER_LOG_BLANK": {"magic": 12},
    "TIMER_CHECKPOINT": {"last_timer_queue_offset": 16, "state_version": 32, "timestamp": 40, "counter": 48},
    "DLEDGER_ENTRY_HEAD": {"entry_index": 8, "term": 16, "pos": 24, "channel": 32, "body_crc": 40, "body_length": 44},
    "DLEDGER_INDEX_UNIT": {"pos": 4, "size": 12, "entry_index": 16, "term": 24},
    "ROCKSDB_QUEUE_VALUE": {"size": 8, "tags_code": 12, "store_time": 20},
}


def declared(name: str) -> Construct[Any, Any]:
    for class_name, (declaration, _) in declarations.FIXED.items():
        if getattr(layouts, name).name == class_name:
            return declaration
    raise KeyError(name)


def flat(parsed: Container[Any], prefix: str = "") -> dict[str, Any]:
    """The fields of a parsed struct, those of a nested one under its name."""
    fields: dict[str, Any] = {}
    for name, value in parsed.items():
        if isinstance(value, Container):
            fields |= flat(value, f"{prefix}{name}_")
        elif name != "_io":
            fields[prefix + name] = value
    return fields


def by_construct(name: str, data: bytes) -> dict[str, Any]:
    """The fields as construct reads them; a prefix is completed to a record with nothing in it."""
    if name == "BATCH_ITEM_PREFIX":
        return flat(declarations.BATCH_ITEM.parse(data[:-4] + bytes(4 + 2)))
    if name not in PREFIXES:
        return flat(declared(name).parse(data))
    return flat(declarations.MESSAGE.parse(data[:-4] + bytes(4 + 1 + 2)))


def by_numpy(layout: Layout[Any], data: bytes) -> dict[str, Any]:
    (row,) = np.frombuffer(data, np.dtype(layout.dtype()))
    return {
        field.name: row[field.name].tobytes() if field.kind == "bytes" else int(row[field.name])
        for field in layout.fields
    }


def test_committed_module_is_what_the_declarations_give() -> None:
    committed = layouts.__file__
    assert committed is not None
    with open(committed, encoding="utf-8") as file:
        assert file.read() == derive.layouts_module(), "run `make docs`"


def test_the_header_of_the_kernel_is_what_the_declarations_give() -> None:
    assert derive.KERNEL_HEADER.read_text(encoding="utf-8") == derive.kernel_header(), "run `make docs`"


def test_every_layout_has_a_sample_and_a_size() -> None:
    assert set(SAMPLES) == set(SIZES) == set(LAYOUTS)


@pytest.mark.parametrize("name", SAMPLES)
def test_hand_laid_bytes(name: str) -> None:
    layout, sample = LAYOUTS[name], SAMPLES[name]
    assert layout.size == len(sample.data) == SIZES[name]
    assert tuple(layout.decode(sample.data)) == sample.values
    assert layout.encode(layout.make(*sample.values)) == sample.data
    assert layout.decode(b"\xff" * 3 + sample.data, 3) == sample.values
    assert list(layout.iter_decode(sample.data * 3 + sample.data[:-1])) == [sample.values] * 3


@pytest.mark.parametrize("name", SAMPLES)
def test_hand_laid_bytes_read_by_construct(name: str) -> None:
    parsed = by_construct(name, SAMPLES[name].data)
    expected = dict(zip((field.name for field in LAYOUTS[name].fields), SAMPLES[name].values, strict=True))
    if name in PREFIXES or name == "BATCH_ITEM_PREFIX":
        expected["body_length"] = 0
    assert {field: parsed[field] for field in expected} == expected


@pytest.mark.parametrize("name", [name for name in SAMPLES if name not in PREFIXES and name != "BATCH_ITEM_PREFIX"])
def test_construct_builds_hand_laid_bytes(name: str) -> None:
    sample = SAMPLES[name]
    assert (
        declared(name).build(dict(zip((field.name for field in LAYOUTS[name].fields), sample.values, strict=True)))
        == sample.data
    )


@pytest.mark.parametrize("name", SAMPLES)
def test_decoders_agree_on_random_bytes(name: str) -> None:
    layout, chance = LAYOUTS[name], random.Random(name)
    for _ in range(100):
        data = bytearray(chance.randbytes(layout.size))
        if name in PREFIXES:
            data[39] = data[39] & ~0x30 | HOST_BITS[name[-4:]]
        value = layout.decode(data)
        fields = value._asdict()
        assert by_numpy(layout, bytes(data)) == fields
        parsed = by_construct(name, bytes(data))
        if name in PREFIXES or name == "BATCH_ITEM_PREFIX":
            parsed["body_length"] = fields["body_length"]
        assert {field: parsed[field] for field in fields} == fields
        assert layout.encode(value) == data


@pytest.mark.parametrize("name", OFFSETS)
def test_offsets(name: str) -> None:
    assert {field: LAYOUTS[name].field(field).offset for field in OFFSETS[name]} == OFFSETS[name]


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_fields_stand_back_to_back(layout: Layout[Any]) -> None:
    at = 0
    for field in layout.fields:
        assert field.offset == at
        assert field.doc
        at += field.size
    assert at == layout.size
    assert [field.name for field in layout.fields] == [name for name, _ in layout.dtype()]
    with pytest.raises(KeyError):
        layout.field("no such field")


@pytest.mark.parametrize("example", [builders.EXAMPLE_A, builders.EXAMPLE_B, builders.EXAMPLE_C, builders.EXAMPLE_D])
def test_construct_rebuilds_the_worked_records(example: bytes) -> None:
    assert declarations.MESSAGE.build(declarations.MESSAGE.parse(example)) == example


def test_errors_of_a_layout() -> None:
    unit = layouts.CONSUME_QUEUE_UNIT
    for data, file_offset in ((bytes(19), 0), (bytes(20), 1), (bytes(40), -1), (b"", 0)):
        with pytest.raises(LayoutError, match="needs 20 bytes"):
            unit.decode(data, file_offset)
    with pytest.raises(LayoutError, match="ConsumeQueueUnit"):
        unit.encode(layouts.ConsumeQueueUnit(1 << 63, 0, 0))
    with pytest.raises(LayoutError, match="ConsumeQueueUnit"):
        unit.pack(1, 2)
