"""Client batches and inner batches."""

from __future__ import annotations

import pytest

from rmqtool.formats.batches import BatchItem, encode_batch, iter_batch_items
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.layout import LayoutError
from tests.support import builders
from tests.support.builders import EXAMPLE_BATCH, batch_item

FIRST = BatchItem(0, b"m1", b"TAGS\x01TagA\x02")


def test_the_batch_of_the_specification() -> None:
    assert list(iter_batch_items(EXAMPLE_BATCH)) == [FIRST]
    assert encode_batch([FIRST]) == EXAMPLE_BATCH == batch_item(b"m1", builders.properties(("TAGS", "TagA")))


def test_several_messages() -> None:
    items = [FIRST, BatchItem(-1, b"", b""), BatchItem(7, bytes(300), b"p" * 32767), FIRST, BatchItem(0, b"", b"")]
    data = b"".join(batch_item(item.body, item.raw_properties, item.flag) for item in items)
    assert list(iter_batch_items(data)) == items
    assert list(iter_batch_items(memoryview(data))) == items
    assert encode_batch(items) == data
    assert list(iter_batch_items(b"")) == []
    assert encode_batch([]) == b""


@pytest.mark.parametrize("length", range(1, len(EXAMPLE_BATCH)))
def test_truncated(length: int) -> None:
    first, flaw = iter_batch_items(EXAMPLE_BATCH + EXAMPLE_BATCH[:length])
    assert first == FIRST
    assert isinstance(flaw, Flaw)
    assert (flaw.code, flaw.at, flaw.length) == ("CL-LEN", 34, length)


@pytest.mark.parametrize(
    ("at", "new", "message"),
    [
        (0, "7fffffff", "message of 2147483647 bytes in a batch with 34 left"),
        (0, "ffffffff", "message of -1 bytes in a batch with 34 left"),
        (0, "00000000", "message of 0 bytes in a batch with 34 left"),
        (0, "00000023", "message of 35 bytes in a batch with 34 left"),
        (0, "00000021", "the lengths in a message of a batch do not add up to its size 33"),
        (16, "7fffffff", "message of 34 bytes in a batch with 34 left"),
        (16, "ffffffff", "message of 34 bytes in a batch with 34 left"),
        (22, "8000", "the lengths in a message of a batch do not add up to its size 34"),
        (22, "0009", "the lengths in a message of a batch do not add up to its size 34"),
        (22, "000b", "the lengths in a message of a batch do not add up to its size 34"),
    ],
)
def test_lengths_that_do_not_fit(at: int, new: str, message: str) -> None:
    raw = bytes.fromhex(new)
    data = EXAMPLE_BATCH[:at] + raw + EXAMPLE_BATCH[at + len(raw) :]
    assert list(iter_batch_items(data)) == [Flaw("CL-LEN", message, 0, 34)]


def test_properties_too_long_for_their_length() -> None:
    with pytest.raises(LayoutError):
        encode_batch([BatchItem(0, b"", b"p" * 32768)])
