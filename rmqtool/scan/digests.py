"""Digests of messages: of their bytes, or of what they say wherever and however they are stored.

What a message says leaves out its place in a log, how its body is compressed, the checksum over the record and the
order of its properties. So it is the same in a copy with files of another size.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rmqtool.bulk.bodies import DEFAULT_BOUNDS, iter_parts
from rmqtool.bulk.gather import Ints
from rmqtool.bulk.hosts import coded_hosts
from rmqtool.bulk.properties import decode_properties
from rmqtool.bulk.queues import have_queue_unit
from rmqtool.bulk.records import Records
from rmqtool.formats import layouts
from rmqtool.formats.codes import TRANSACTION_MASK
from rmqtool.formats.properties import CRC_PROPERTY, NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR
from rmqtool.scan.pool import Write
from rmqtool.scan.ranges import Answered
from rmqtool.scan.reading import Damage, Part, Range, RangeReader
from rmqtool.scan.selection import Selection

Hashes = npt.NDArray[np.uint64]

_PAIRS_END, _NAME_END = PROPERTY_SEPARATOR.encode(), NAME_VALUE_SEPARATOR.encode()
_CHECKSUM = CRC_PROPERTY.encode() + _NAME_END
# Names places in queues, so it changes when a message is put into another store.
_PLACES = b"INNER_MULTI_QUEUE_OFFSET" + _NAME_END
_WORD = 8


class Sense(Enum):
    """What is digested: all bytes, what a message says with its times and hosts, or only what its producer sent."""

    BYTES = "bytes"
    STORED = "stored"
    SENT = "sent"


_FIELDS = {
    Sense.STORED: ("flag", "born_timestamp", "store_timestamp", "reconsume_times"),
    Sense.SENT: ("flag", "born_timestamp"),
}
_HOSTS = {Sense.STORED: ("born_host", "store_host"), Sense.SENT: ("born_host",)}


class Digests(NamedTuple):
    """Some messages in the order of the log: their places and sizes, who they are, what they say in two words.

    ``topics`` are numbered by ``topic_codes``; ``in_queue`` tells which stand in the queue they name.
    """

    places: Ints
    sizes: Ints
    identities: Hashes
    lows: Hashes
    highs: Hashes
    topics: list[str]
    topic_codes: Ints
    queue_ids: Ints
    queue_offsets: Ints
    in_queue: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.places)


class Digested(NamedTuple):
    """What a range holds: digests, piece by piece, and what is damaged."""

    pieces: list[Digests]
    damages: list[Damage]


@dataclass(frozen=True)
class DigestWork:
    """Digests the wanted messages of ranges."""

    selection: Selection
    sense: Sense

    def __call__(self, asked: Range, write: Write) -> Answered:  # noqa: ARG002  (nothing is written)
        """Digest the messages of a range."""
        reader = RangeReader(asked, self.selection)
        pieces: list[Digests] = []
        damages: list[Damage] = []
        for found in reader.parts():
            if isinstance(found, Part):
                pieces.append(digest_records(found.records, self.sense))
            else:
                damages.append(found)
        return Answered(reader.began, reader.reached, reader.left_over, Digested(pieces, damages))


def digest_records(records: Records, sense: Sense) -> Digests:
    """Return the digests of some records."""
    topics = records.topics
    digests = list(_of_bytes(records) if sense is Sense.BYTES else _of_content(records, sense))
    words = np.frombuffer(b"".join(digests), np.uint64).reshape(len(records), 2)
    places = records.column("physical_offset").astype(np.int64)
    if sense is Sense.SENT:
        identities = np.frombuffer(b"".join(_identities(records, digests)), np.uint64)
    else:
        identities = places.view(np.uint64)
    return Digests(
        places,
        records.column("total_size").astype(np.int64),
        identities,
        words[:, 0],
        words[:, 1],
        topics.values,
        topics.codes.astype(np.int64),
        records.column("queue_id").astype(np.int64),
        records.column("queue_offset").astype(np.int64),
        have_queue_unit(records),
    )


def _of_bytes(records: Records) -> Iterator[bytes]:
    data = records.data.data
    begins, sizes = records.file_offsets.tolist(), records.column("total_size").tolist()
    return (_digest(data[at : at + size]) for at, size in zip(begins, sizes, strict=True))


def _digest(*parts: bytes | memoryview) -> bytes:
    digest = blake2b(digest_size=2 * _WORD)
    for part in parts:
        digest.update(part)
    return digest.digest()


def _of_content(records: Records, sense: Sense) -> Iterator[bytes]:
    for part in iter_parts(records, DEFAULT_BOUNDS, inflate=True):
        assert part.bodies is not None
        some = part.records
        heads = zip(_texts(some, "topic"), _fixed(some, sense), *_hosts(some, sense), strict=True)
        bodies = (memoryview(body.as_buffer()) for body in part.bodies.column)
        for head, raw, body in zip(heads, _texts(some, "properties"), bodies, strict=True):
            yield _digest(*_framed([*head, *_properties(bytes(raw), sense)]), body)


def _framed(parts: list[bytes | memoryview]) -> Iterator[bytes]:
    """Yield parts so that what belongs to one cannot be taken for what belongs to the next."""
    for part in parts:
        yield layouts.LONG.packer.pack(len(part))
        yield bytes(part)
    yield b"\xff"


def _texts(records: Records, name: str) -> Iterator[memoryview]:
    begins, lengths = getattr(records, f"{name}_offsets"), getattr(records, f"{name}_lengths")
    data = records.data.data
    return (data[at : at + length] for at, length in zip(begins.tolist(), lengths.tolist(), strict=True))


def _fixed(records: Records, sense: Sense) -> Iterator[bytes]:
    columns = [records.column(name).astype(np.int64) for name in _FIELDS[sense]]
    columns.append((records.column("sys_flag") & TRANSACTION_MASK).astype(np.int64))
    raw, width = np.stack(columns, axis=1).tobytes(), _WORD * len(columns)
    return (raw[at : at + width] for at in range(0, len(raw), width))


def _hosts(records: Records, sense: Sense) -> Iterator[list[bytes]]:
    for name in _HOSTS[sense]:
        hosts = coded_hosts(records, "born_host" if name == "born_host" else "store_host")
        values = [value.encode() for value in hosts.values]
        yield [values[code] for code in hosts.codes.tolist()]


def _properties(raw: bytes, sense: Sense) -> list[bytes]:
    """Return the properties that count, in an order of their own."""
    left_out = (_CHECKSUM, _PLACES) if sense is Sense.SENT else (_CHECKSUM,)
    return sorted(part for part in raw.split(_PAIRS_END) if part and not part.startswith(left_out))


def _identities(records: Records, digests: list[bytes]) -> Iterator[bytes]:
    """Yield who each message is: its topic and unique key, or, without one, what it says."""
    keys = decode_properties(records).raw_values("UNIQ_KEY").to_pylist()
    for topic, key, digest in zip(_texts(records, "topic"), keys, digests, strict=True):
        named = digest if not key else bytes(topic) + b"\0" + key
        yield blake2b(named, digest_size=_WORD).digest()
