"""Units of simple, extended, batch and sparse queues."""

from __future__ import annotations

import pytest

from rmqtool.formats import consume_queue as cq
from rmqtool.formats import layouts
from rmqtool.formats.consume_queue import ConsumeQueueExtUnit, ExtFileEnd, decode_ext_unit, encode_ext_unit
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.layouts import BatchConsumeQueueUnit, ConsumeQueueUnit
from tests.support import builders

# The delayed message of the specification: at 4096, size 300, level 3, stored at 1700000000123.
DELAYED = bytes.fromhex("00 00 00 00 00 00 10 00 00 00 01 2c 00 00 01 8b cf e5 8f 8b")
SPARSE_END = bytes.fromhex(
    "ffffffffffffffff 00000000 0000000000000000 0000000000000000 0000000000000000 0000 ffffffff 00000000"
)


def test_units_of_the_specification() -> None:
    assert layouts.CONSUME_QUEUE_UNIT.decode(DELAYED) == (4096, 300, 1700000010123)
    assert layouts.CONSUME_QUEUE_UNIT.encode(cq.FILLER) == builders.FILLER_UNIT
    assert layouts.BATCH_CONSUME_QUEUE_UNIT.encode(cq.SPARSE_END) == SPARSE_END
    assert (cq.UNIT_SIZE, cq.BATCH_UNIT_SIZE) == (20, 46)


@pytest.mark.parametrize(
    ("unit", "written", "filler"),
    [
        ((1024, 203, 0), True, False),
        ((0, 91, 0), True, False),
        ((0, 1, 0), True, False),
        ((0, 0, 0), False, False),
        ((-1, 203, 0), False, False),
        ((0, -1, 0), False, False),
        ((0, 0x7FFFFFFF, 0), True, True),
        ((20, 0x7FFFFFFF, 0), True, False),
    ],
)
def test_what_the_broker_takes_for_a_unit(unit: tuple[int, int, int], written: bool, filler: bool) -> None:
    assert cq.is_written(ConsumeQueueUnit(*unit)) is written
    assert cq.is_filler(ConsumeQueueUnit(*unit)) is filler


def test_what_the_broker_takes_for_a_batch_unit() -> None:
    good = BatchConsumeQueueUnit(*builders.SAMPLES["BATCH_CONSUME_QUEUE_UNIT"].values)
    assert cq.is_batch_written(good)
    assert cq.is_batch_written(good._replace(physical_offset=0, size=1, msg_base_offset=0, batch_size=1))
    for change in ({"physical_offset": -1}, {"size": 0}, {"msg_base_offset": -1}, {"batch_size": 0}):
        assert not cq.is_batch_written(good._replace(**change)), change
    assert not cq.is_batch_written(cq.SPARSE_END)
    assert not cq.is_batch_written(layouts.BATCH_CONSUME_QUEUE_UNIT.decode(bytes(46)))


@pytest.mark.parametrize(
    ("tags_code", "is_ext"),
    [(-(1 << 63), True), (-2147483649, True), (-2147483648, False), (0, False), (2147483647, False)],
)
def test_ext_address(tags_code: int, is_ext: bool) -> None:
    assert cq.is_ext_address(tags_code) is is_ext


def test_ext_address_and_offset() -> None:
    assert cq.ext_address(0) == -(1 << 63)
    assert cq.ext_address(9223372034707292159) == -2147483649
    assert cq.ext_offset(-(1 << 63) + 34) == 34
    assert layouts.LONG.pack(cq.ext_address(0)) == bytes.fromhex("8000000000000000")


def test_ext_unit_of_the_specification() -> None:
    unit = decode_ext_unit(builders.EXAMPLE_EXT_UNIT)
    assert unit == ConsumeQueueExtUnit(28, 2598919, 1700000000123, bytes.fromhex("0000000000040201"))
    assert encode_ext_unit(unit) == builders.EXAMPLE_EXT_UNIT
    assert cq.ext_unit_size(8) == 28


@pytest.mark.parametrize("bits", [0, 1, 14, 32747])
def test_ext_unit_of_any_size(bits: int) -> None:
    data = builders.ext_unit(-7, 1700000000000, bytes([0xA5]) * bits)
    unit = decode_ext_unit(b"\0" * 3 + data, 3)
    assert unit == ConsumeQueueExtUnit(20 + bits, -7, 1700000000000, bytes([0xA5]) * bits)
    assert encode_ext_unit(unit) == data


@pytest.mark.parametrize(
    ("data", "file_offset", "found"),
    [
        (b"", 0, ExtFileEnd(False)),
        (b"\0", 0, ExtFileEnd(False)),
        (b"\0\0", 0, ExtFileEnd(False)),
        (bytes(40), 13, ExtFileEnd(False)),
        (b"\xff\xff", 0, ExtFileEnd(True)),
        (b"\xff\xff" + b"\x11" * 30, 0, ExtFileEnd(True)),
        (b"\xff\xfe", 0, ExtFileEnd(False)),
        (b"\x80\x00" + bytes(30), 0, ExtFileEnd(False)),
        (bytes(10), 10, ExtFileEnd(False)),
        (bytes(10), 99, ExtFileEnd(False)),
        (bytes(10), -1, ExtFileEnd(False)),
        (b"\x00\x01" + bytes(30), 0, Flaw("CQ-EXT", "extension entry of 1 bytes, 32 are left", 0, 32)),
        (b"\x00\x13" + bytes(30), 0, Flaw("CQ-EXT", "extension entry of 19 bytes, 32 are left", 0, 32)),
        (b"\x00\x14" + bytes(17), 0, Flaw("CQ-EXT", "extension entry of 20 bytes, 19 are left", 0, 19)),
        (b"\x7f\xff" + bytes(30), 0, Flaw("CQ-EXT", "extension entry of 32767 bytes, 32 are left", 0, 32)),
        (
            builders.EXAMPLE_EXT_UNIT[:18] + b"\x00\x07" + bytes(8),
            0,
            Flaw("CQ-EXT", "bit map of 7 bytes in an extension entry of 28", 0, 28),
        ),
        (
            builders.EXAMPLE_EXT_UNIT[:18] + b"\xff\xff" + bytes(8),
            0,
            Flaw("CQ-EXT", "bit map of -1 bytes in an extension entry of 28", 0, 28),
        ),
    ],
)
def test_what_is_no_ext_unit(data: bytes, file_offset: int, found: ExtFileEnd | Flaw) -> None:
    assert decode_ext_unit(data, file_offset) == found


def test_end_of_a_full_ext_file() -> None:
    assert cq.EXT_END_MARK == b"\xff\xff"
    assert cq.EXT_END_ROOM == 4


@pytest.mark.parametrize(
    "bad", [builders.queue_unit(-1, 90, 0), builders.queue_unit(7, 0, 0), builders.queue_unit(0, -5, 0)]
)
@pytest.mark.parametrize("row", [0, 1, 4095, 4096, 5000])
def test_the_first_entry_that_is_not_written_ends_a_file(bad: bytes, row: int) -> None:
    good = builders.queue_unit(0, 2147483647, 0) + builders.queue_unit(90, 91, -1)
    assert cq.count_written(good * 2501) == 5002
    data = bytearray(good * 2501)
    data[row * 20 : (row + 1) * 20] = bad
    assert cq.count_written(bytes(data)) == row
    assert cq.count_written(bytes(data[: row * 20 + 19])) == row
