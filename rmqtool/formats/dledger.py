"""DLedger's data and index files. Big-endian.

A DLedger group keeps the commit log as entries of its own. An entry of a data file is a head of 48 bytes and one commit
log record::

    0   4  magic: 1 data, 2 no-op, 3 configuration change; -1 blank   32  4  channel, 0
    4   4  bytes of the entry, head included                          36  4  chain CRC, 0
    8   8  number of the entry                                        40  4  body CRC, 0
    16  8  term of the leader                                         44  4  bytes of the record
    24  8  position of the entry                                      48  .  the record

The physical offset in the record is the entry's position plus 48, and queue entries point to the record. A blank ends
the file: magic -1 (4), bytes left (4). An entry of the index is 32 bytes: magic (4), position (8), size (4), number
(8), term (8).

Upstream: ``DLedgerEntryCoder`` and ``DLedgerMmapFileStore`` of the dledger library.
"""

from __future__ import annotations

from typing import NamedTuple

from rmqtool.formats import layouts
from rmqtool.formats.commit_log import Nothing
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.layout import Buffer, bytes_left
from rmqtool.formats.layouts import DLedgerEntryHead

HEAD_SIZE = layouts.DLEDGER_ENTRY_HEAD.size
INDEX_UNIT_SIZE = layouts.DLEDGER_INDEX_UNIT.size

# The magics of entries: data, the blank, and for people all of them in words.
MAGIC_DATA = 1
MAGIC_BLANK = -1
MAGIC_WORDS = {MAGIC_DATA: "data", 2: "no-op", 3: "configuration change", MAGIC_BLANK: "blank to the end of the file"}


class DLedgerBlank(NamedTuple):
    """The blank that ends a data file. Its magic comes before its size, the other way round than in the commit log."""

    size: int


def decode_entry_head(
    data: Buffer, file_offset: int = 0, left: int | None = None
) -> DLedgerEntryHead | DLedgerBlank | Nothing | Flaw:
    """Return the head of the entry at ``file_offset``, the blank, ``Nothing`` where none was written, or a flaw.

    ``left`` is how many bytes the file has from there on, when ``data`` has only some of them; the head must be whole.
    """
    left = bytes_left(data, file_offset) if left is None else left
    if left < 2 * layouts.INT.size:
        return Nothing(left)
    (magic,) = layouts.INT.unpack_from(data, file_offset)
    (size,) = layouts.INT.unpack_from(data, file_offset + layouts.INT.size)
    if magic == MAGIC_BLANK:
        return DLedgerBlank(size)
    if magic == 0 and size == 0:
        return Nothing(left)
    if magic not in MAGIC_WORDS:
        return Flaw("DL-MAGIC", f"entry magic {magic} is not 1, 2 or 3")
    if size < HEAD_SIZE or size > left:
        return Flaw("DL-SIZE", f"entry of {size} bytes, {left} are left")
    head = layouts.DLEDGER_ENTRY_HEAD.decode(data, file_offset)
    if head.body_length + HEAD_SIZE != size:
        return Flaw("DL-SIZE", f"entry of {size} bytes with a body of {head.body_length}", 0, size)
    return head
