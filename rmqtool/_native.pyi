"""The compiled kernel (native/native.c): buffers in, arrays of the caller out, plain numbers back.

Arrays of offsets and lengths are contiguous int64, codes and hashes int32. A buffer that is too short or not aligned is
a ValueError. No function looks outside ``data``, whatever the offsets and the bytes are.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from typing_extensions import Buffer

Fields = TypeVar("Fields", bound=tuple[Any, ...])

SOURCES: int
"""A checksum of the sources it was compiled from."""
ROW_SIZE: int
"""The bytes of a row of a table."""
CRC: str
"""How it computes checksums on this processor."""
COLUMNS: str
"""The names of a table's columns, in their order."""

def crc32(data: Buffer, /) -> int:
    """CRC-32, as zlib's."""

def crc32_each(data: Buffer, offsets: Buffer, lengths: Buffer, crcs: Buffer, /) -> None:
    """Fill ``crcs`` (uint32) with the checksum of each piece of ``data``."""

def walk(data: Buffer, at: int, starts: Buffer, /) -> tuple[int, int]:
    """Fill ``starts`` with where records start, by magic and size; return how many, and where the walk is."""

def scan(
    data: Buffer, at: int, table: Buffer, capacity: int, first_physical_offset: int, checks: int, /
) -> tuple[int, int]:
    """Fill a table with the records from ``at`` on; return the rows, and where the last one ends."""

def decode(data: Buffer, offsets: Buffer, table: Buffer, first_physical_offset: int, checks: int, /) -> int:
    """Fill a table with the records at ``offsets``; return the rows before the first that is no whole message."""

def sound(data: Buffer, offsets: Buffer, first_physical_offset: int, /) -> int:
    """Return the number of messages at ``offsets`` before the first that is not one; checksums are not computed."""

def dispatch(
    data: Buffer,
    offsets: Buffer,
    delays: Buffer,
    topic_codes: Buffer,
    units: Buffer,
    flags: Buffer,
    topic_rows: Buffer,
    key_hashes: Buffer,
    key_rows: Buffer,
    tag_hashes: Buffer,
    /,
) -> tuple[int, int, int]:
    """Fill what queues and index get; return the rows done, the topics and the keys."""

def dispatch_one(
    data: Buffer, offset: int, first_physical_offset: int, delays: Buffer, /
) -> tuple[int, bytes, int, int, int, bytes, tuple[int, ...], int] | None:
    """Return what the queue and the index get of one record, or None where ``formats`` has to say it.

    That is its size, topic, queue id, queue offset and store time, the queue entry (empty where it has none), the
    hashes of its keys, and of its tag (-1 where there is none).
    """

def span(units: Buffer, starts: Buffer, /) -> tuple[int, int, int, int] | None:
    """Return the range of the log from the first entry's record to the last one's, and the sum of the records' sizes.

    ``starts`` gets where each record starts in it. None: a record is outside, or an entry names none.
    """

def group(topic_codes: Buffer, queue_ids: Buffer, order: Buffer, codes: Buffer, ends: Buffer, firsts: Buffer, /) -> int:
    """Sort rows by queue; return how many queues there are, -1 where that is more than ``ends`` holds."""

def number_texts(data: Buffer, offsets: Buffer, lengths: Buffer, codes: Buffer, firsts: Buffer, /) -> int:
    """Number texts by their first appearance.

    ``codes`` gets the number of each row, ``firsts`` a row of each number. Return how many differ, or -1 for more than
    ``firsts`` can hold.
    """

def property_columns(
    data: Buffer,
    offsets: Buffer,
    lengths: Buffer,
    ends: Buffer,
    name_ends: Buffer,
    names: Buffer,
    value_ends: Buffer,
    values: Buffer,
    wanted: Buffer,
    wanted_ends: Buffer,
    wanted_values: Buffer,
    /,
) -> int:
    """Fill columns of texts with the properties at some offsets; return how many properties there are.

    ``wanted`` are names with 0x02 after each; their values are columns too, one after the other in the same arrays.
    Return -1 where a text is not UTF-8, a record repeats a name, or has too many properties.
    """

def hang_in(
    entries: Buffer,
    slots: Buffer,
    key_hashes: Buffer,
    physical_offsets: Buffer,
    store_timestamps: Buffer,
    first: int,
    begin_timestamp: int,
    /,
) -> int:
    """Make the entries of an index file from number ``first`` on, change its slots; return how many were empty."""

def json_lines(data: Buffer, offsets: Buffer, row: int, ends: Buffer, out: Buffer, /) -> tuple[int, int]:
    """Put Message lines into ``out`` from ``row`` on; return the row it stopped at and the bytes put."""

def encode(*values: Any) -> bytearray:
    """Return a record that lacks its place.

    Values: magic, queue_id, flag, sys_flag, born_timestamp, born_ip, born_port, store_ip, store_port, reconsume_times,
    prepared_transaction_offset, body, topic with its length before it, properties, has_crc.
    """

def encode_batch(*values: Any) -> tuple[bytearray, int] | None:
    """Return the records of a client's batch back to back, without their places, and their number.

    Values: magic, queue_id, sys_flag, born_timestamp, born_ip, born_port, store_ip, store_port, reconsume_times,
    prepared_transaction_offset, the batch, topic with its length before it, properties that each message gets, size of
    the largest record. None where ``formats`` has to judge a message, or there is none.
    """

def place_batch(
    records: bytearray, queue_offset: int, physical_offset: int, store_timestamp: int, places: Buffer, /
) -> None:
    """Put their places into records that are back to back, and into ``places`` where each begins."""

def encode_slab(
    bodies: list[bytes],
    tails: list[bytes],
    numbers: tuple[Buffer | int, ...],
    born_hosts: list[bytes],
    store_host: list[bytes],
    physical_offset: int,
    sizes: Buffer,
    /,
) -> bytearray:
    """Return records back to back, the first at ``physical_offset``; ``sizes`` gets their sizes."""

def place(record: bytearray, queue_offset: int, physical_offset: int, store_timestamp: int, has_crc: bool, /) -> None:
    """Put into a record what only its writer knows."""

def decoder(kind: type[Fields], fields: tuple[int, ...], other: Callable[..., Any], /) -> Callable[..., Fields | Any]:
    """Return a function of data, file_offset and end that makes tuples of some fields of a record, by their numbers.

    ``other`` is called with the same where no message is, or where a text is malformed.
    """

def decoder_of_many(
    kind: type[Fields], fields: tuple[int, ...], other: Callable[..., Any], /
) -> Callable[[Buffer, Buffer], list[Fields | Any]]:
    """Return a function of data and offsets that makes such a tuple of the record at each offset.

    ``other`` is called with the data and an offset.
    """

def text_maker(
    names: tuple[str, ...], is_terminated: bool, other: Callable[..., bytes], /
) -> Callable[[Mapping[str, str]], bytes]:
    """Return a function that spells properties in the order of ``names``; ``other`` spells what is no dict of texts."""

def record_kind(*values: Any) -> object:
    """Return what plain messages of one topic with the same property names have in common, for ``plain_record``.

    Values: magic, topic with its length before it, store_ip, store_port, names in the order of the text, a tuple with
    the value of each (None where it is the message's), the number of the unique key's name or -1, is_terminated, size
    of the largest record.
    """

def plain_record(kind: object, properties: Any, *values: Any) -> bytearray | None:
    """Return the whole record of a plain message; None where ``formats`` has to make it, or refuse it.

    Values: unique key, body, flag, queue_id, queue_offset, physical_offset, born_timestamp, store_timestamp,
    born_host (None for that of the store).
    """

def header_fields(data: Buffer, at: int, end: int, most: int, /) -> dict[str, str] | None:
    """Return the fields of a ROCKETMQ header between two places; None: malformed, or more than ``most``."""

def json_header(
    data: Buffer, at: int, end: int, most: int, /
) -> tuple[int, dict[str, str] | None, int, int, str | None, int, str | None] | None:
    """Return the code, fields, opaque, flag, language, version and remark of a JSON header between two places.

    None: it has more than texts and ints, or more than ``most`` fields, or is none.
    """

def typed_fields(ext: dict[str, str], types: Mapping[str, tuple[str, int]], /) -> dict[str, Any] | None:
    """Return the values of a header's fields by attribute, without those that ``types`` does not name.

    A type is 0 a text, 1 an int, 2 a long, 3 a boolean. None: a text is not the usual spelling of its type.
    """

def plain_requests(
    data: Buffer, at: int, most_frame: int, most_header: int, /
) -> tuple[
    list[
        tuple[int, int, int, str, int, int, int, dict[str, str], bytes]
        | tuple[int, int, int, str, str, int, int, int, int, int]
    ],
    int,
]:
    """Return the frames from ``at`` on that are plain requests to store a message or to read some, and where they end.

    A row of the first kind is begin, end, opaque, topic, queue_id, born_timestamp, flag, properties and body; one of
    the second is begin, end, opaque, group, topic, queue_id, queue_offset, max_msg_nums, sys_flag and commit_offset.
    """

def answer_frame(
    parts: tuple[bytes, ...], values: tuple[int | str, ...], body: bytes, most: int, most_frame: int, /
) -> bytes | None:
    """Return the frame with a JSON header: parts of its text, and between each two a value.

    None: a text is not written in JSON as it is, or the header has more than ``most`` bytes, or the frame too many.
    """
