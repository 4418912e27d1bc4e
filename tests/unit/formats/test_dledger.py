"""DLedger's data and index files."""

from __future__ import annotations

import pytest

from rmqtool.formats import layouts
from rmqtool.formats.commit_log import Nothing
from rmqtool.formats.dledger import HEAD_SIZE, INDEX_UNIT_SIZE, DLedgerBlank, decode_entry_head
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.layouts import DLedgerEntryHead
from tests.support import builders

HEAD = builders.EXAMPLE_DLEDGER_HEAD
ENTRY = HEAD + builders.EXAMPLE_A


def test_entry_of_the_specification() -> None:
    head = decode_entry_head(ENTRY)
    assert head == DLedgerEntryHead(1, 251, 0, 1, 0, 0, 0, 0, 203)
    assert layouts.DLEDGER_ENTRY_HEAD.encode(head) == HEAD
    assert decode_entry_head(b"\1" * 9 + ENTRY, 9) == head
    assert builders.dledger_entry(0, 1, 0, builders.EXAMPLE_A) == ENTRY
    assert (HEAD_SIZE, INDEX_UNIT_SIZE) == (48, 32)


def test_entry_with_nothing_in_it() -> None:
    data = builders.dledger_entry(7, 2, 4096, b"")
    assert decode_entry_head(data) == DLedgerEntryHead(1, 48, 7, 2, 4096, 0, 0, 0, 0)


@pytest.mark.parametrize("magic", [1, 2, 3])
def test_kinds_of_entry(magic: int) -> None:
    head = decode_entry_head(magic.to_bytes(4, "big") + ENTRY[4:])
    assert isinstance(head, DLedgerEntryHead)
    assert head.magic == magic


@pytest.mark.parametrize(
    ("data", "file_offset", "found"),
    [
        (b"", 0, Nothing(0)),
        (b"\1" * 7, 0, Nothing(7)),
        (bytes(300), 0, Nothing(300)),
        (ENTRY, 251, Nothing(0)),
        (ENTRY, -8, Nothing(0)),
        (bytes.fromhex("ffffffff 00000200"), 0, DLedgerBlank(512)),
        (bytes.fromhex("ffffffff 80000000") + bytes(99), 0, DLedgerBlank(-(1 << 31))),
        (bytes.fromhex("00000004") + ENTRY[4:], 0, Flaw("DL-MAGIC", "entry magic 4 is not 1, 2 or 3")),
        (bytes.fromhex("00000000") + ENTRY[4:], 0, Flaw("DL-MAGIC", "entry magic 0 is not 1, 2 or 3")),
        (ENTRY[:-1], 0, Flaw("DL-SIZE", "entry of 251 bytes, 250 are left")),
        (HEAD[:8], 0, Flaw("DL-SIZE", "entry of 251 bytes, 8 are left")),
        (ENTRY[:4] + b"\0\0\0\x2f" + ENTRY[8:], 0, Flaw("DL-SIZE", "entry of 47 bytes, 251 are left")),
        (ENTRY[:4] + b"\x7f\xff\xff\xff" + ENTRY[8:], 0, Flaw("DL-SIZE", "entry of 2147483647 bytes, 251 are left")),
        (ENTRY[:4] + b"\xff\xff\xff\xff" + ENTRY[8:], 0, Flaw("DL-SIZE", "entry of -1 bytes, 251 are left")),
        (
            ENTRY[:44] + b"\0\0\0\xca" + ENTRY[48:],
            0,
            Flaw("DL-SIZE", "entry of 251 bytes with a body of 202", 0, 251),
        ),
    ],
)
def test_what_is_no_entry(data: bytes, file_offset: int, found: object) -> None:
    assert decode_entry_head(data, file_offset) == found
