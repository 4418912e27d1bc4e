"""Digests of messages, to compare two large collections of them in little memory.

A digest is over all bytes of a record, or over what it says in any store: the physical offset, the compression of the
body, the property checksum and the order of properties are left out then, so a copy with segments of another size has
the same digests.

To compare, each message becomes an *item*: an identity and two words of digest. Items go into buckets by identity, and
a bucket keeps sums of its items only. Buckets with equal sums on both sides hold equal items. The items of the other
buckets are read a second time and matched one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rmqtool.columns.bodies import DEFAULT_BOUNDS, are_compressed, iter_parts
from rmqtool.columns.gather import Ints, Mask
from rmqtool.columns.hosts import coded_hosts
from rmqtool.columns.properties import decode_properties
from rmqtool.columns.queues import have_queue_unit
from rmqtool.columns.records import Records
from rmqtool.formats import layouts
from rmqtool.formats.codes import TRANSACTION_MASK
from rmqtool.formats.properties import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR
from rmqtool.formats.property_names import INNER_MULTI_QUEUE_OFFSET, PROPERTY_CRC32, UNIQ_KEY
from rmqtool.log.ranges import Answered, Write
from rmqtool.log.read import Damage, Part, Range, RangeReader
from rmqtool.log.select import Selection

Hashes = npt.NDArray[np.uint64]

_PAIRS_END, _NAME_END = PROPERTY_SEPARATOR.encode(), NAME_VALUE_SEPARATOR.encode()
# The checksum of a record, which is not content.
_CHECKSUM = PROPERTY_CRC32.encode() + _NAME_END
# This property has queue offsets, which change when a message is put into another store.
_PLACES = INNER_MULTI_QUEUE_OFFSET.encode() + _NAME_END
# Bytes of a word of a digest.
_WORD = 8


class Sense(Enum):
    """Contents of a digest: all bytes; the content with times and hosts; or only the content that the producer sent."""

    BYTES = "bytes"
    STORED = "stored"
    SENT = "sent"


# The number fields of a digest of content; the transaction type is in it too.
_FIELDS = {
    Sense.STORED: ("flag", "born_timestamp", "store_timestamp", "reconsume_times"),
    Sense.SENT: ("flag", "born_timestamp"),
}
# The born host is not what the producer sent: if another machine sends the message again, it changes.
_HOSTS: dict[Sense, tuple[str, ...]] = {Sense.STORED: ("born_host", "store_host"), Sense.SENT: ()}


class Digests(NamedTuple):
    """Messages in the order of the log: physical offset, size, identity, and the digest in two words.

    ``topic_codes`` are indexes into ``topics``; ``in_queue`` marks messages that have an entry in their queue.
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
    """The result of one range: digests in pieces, and damage."""

    pieces: list[Digests]
    damages: list[Damage]


@dataclass(frozen=True)
class DigestWork:
    """Makes the digests of the wanted messages of a range; see ``ranges.RangeWork``."""

    selection: Selection
    sense: Sense

    def __call__(self, asked: Range, write: Write) -> Answered:  # noqa: ARG002  (nothing is written)
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
    """Return the digests of some records.

    Messages are identified by physical offset; as SENT by topic and unique key, which are the same in every store, or
    by their digest if they have no unique key.
    """
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
    """Return the digest of all bytes of each record."""
    data = records.data.data
    begins, sizes = records.file_offsets.tolist(), records.column("total_size").tolist()
    return (_digest(data[at : at + size]) for at, size in zip(begins, sizes, strict=True))


def _digest(*parts: bytes | memoryview) -> bytes:
    digest = blake2b(digest_size=2 * _WORD)
    for part in parts:
        digest.update(part)
    return digest.digest()


def _of_content(records: Records, sense: Sense) -> Iterator[bytes]:
    """Yield the digest of what each message says in any store, its body as consumers get it."""
    for some, bodies in _with_bodies(records):
        heads = zip(_texts(some, "topic"), _fixed(some, sense), *_hosts(some, sense), strict=True)
        for head, raw, body in zip(heads, _texts(some, "properties"), bodies, strict=True):
            yield _digest(*_framed([*head, *_properties(bytes(raw), sense)]), body)


def _with_bodies(records: Records) -> Iterator[tuple[Records, Iterator[memoryview]]]:
    """Yield records with their inflated bodies, in parts. Bodies that are not compressed are not copied."""
    if not are_compressed(records).any():
        yield records, _texts(records, "body")
        return
    for part in iter_parts(records, DEFAULT_BOUNDS, inflate=True):
        assert part.bodies is not None
        yield part.records, (memoryview(body.as_buffer()) for body in part.bodies.column)


def _framed(parts: list[bytes | memoryview]) -> Iterator[bytes]:
    """Yield each part after its length, and an end mark, so that no two lists of parts give the same bytes."""
    for part in parts:
        yield layouts.LONG.packer.pack(len(part))
        yield bytes(part)
    yield b"\xff"


def _texts(records: Records, name: str) -> Iterator[memoryview]:
    """Yield the bytes of one part of each record; ``name`` is topic, body or properties."""
    begins, lengths = getattr(records, f"{name}_offsets"), getattr(records, f"{name}_lengths")
    data = records.data.data
    return (data[at : at + length] for at, length in zip(begins.tolist(), lengths.tolist(), strict=True))


def _fixed(records: Records, sense: Sense) -> Iterator[bytes]:
    """Yield the compared number fields of each record, and its transaction type."""
    columns = [records.column(name).astype(np.int64) for name in _FIELDS[sense]]
    columns.append((records.column("sys_flag") & TRANSACTION_MASK).astype(np.int64))
    raw, width = np.stack(columns, axis=1).tobytes(), _WORD * len(columns)
    return (raw[at : at + width] for at in range(0, len(raw), width))


def _hosts(records: Records, sense: Sense) -> Iterator[list[bytes]]:
    """Yield a column of texts for each host that is compared."""
    for name in _HOSTS[sense]:
        hosts = coded_hosts(records, "born_host" if name == "born_host" else "store_host")
        values = [value.encode() for value in hosts.values]
        yield [values[code] for code in hosts.codes.tolist()]


def _properties(raw: bytes, sense: Sense) -> list[bytes]:
    """Return the properties that are compared, sorted: all but the checksum and, as ``SENT``, queue offsets.

    Brokers append the properties of a batch to those of each message, so that one may be there twice.
    """
    left_out = (_CHECKSUM, _PLACES) if sense is Sense.SENT else (_CHECKSUM,)
    found = [part for part in raw.split(_PAIRS_END) if part and not part.startswith(left_out)]
    return sorted(set(found) if sense is Sense.SENT else found)


def _identities(records: Records, digests: list[bytes]) -> Iterator[bytes]:
    """Yield an identity for each message: topic and unique key; without a key, its digest."""
    keys = decode_properties(records).raw_values(UNIQ_KEY).to_pylist()
    for topic, key, digest in zip(_texts(records, "topic"), keys, digests, strict=True):
        named = digest if not key else bytes(topic) + b"\0" + key
        yield blake2b(named, digest_size=_WORD).digest()


# Sums of this many buckets take 1.5 MiB for each side.
BUCKETS = 1 << 16
# Limit for the items of both sides in memory. A pass exceeds it by less than one bucket.
MOST_ITEMS = 1 << 21

# Multiplying by 2**64 divided by the golden ratio spreads similar numbers; the upper 16 bits are the bucket.
_MIX = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(48)


class Items(NamedTuple):
    """Items as columns. An item is a message, or an entry of a queue.

    ``places`` and ``sizes`` are the physical offset and the size of the message; the place of an entry without a
    message is -1. ``queues`` and ``offsets`` are the number of the queue and the queue offset, -1 in an item of no
    queue.
    """

    identities: Hashes
    lows: Hashes
    highs: Hashes
    places: Ints
    sizes: Ints
    queues: Ints
    offsets: Ints

    def __len__(self) -> int:
        return len(self.identities)

    def select(self, rows: Mask | Ints) -> Items:
        columns: list[Any] = [column[rows] for column in self]
        return Items(*columns)


def items_of(digests: Digests) -> Items:
    """Return messages as items that belong to no queue."""
    none = np.full(len(digests), -1, np.int64)
    return Items(digests.identities, digests.lows, digests.highs, digests.places, digests.sizes, none, none)


def join_items(parts: Iterable[Items]) -> Items:
    """Return the items of all parts, in order."""
    kept = [part for part in parts if len(part)]
    if not kept:
        words, numbers = np.zeros(0, np.uint64), np.zeros(0, np.int64)
        return Items(words, words, words, numbers, numbers, numbers, numbers)
    columns: list[Any] = [np.concatenate(some) for some in zip(*kept, strict=True)]
    return Items(*columns)


def bucket_of(identities: Hashes) -> Ints:
    """Return the bucket of each identity. Its bits are mixed first: physical offsets differ in few of them."""
    found: Ints = (((identities ^ (identities >> np.uint64(29))) * _MIX) >> _SHIFT).astype(np.int64)
    return found


class Buckets:
    """For each bucket the number of its items and the sums of their digests."""

    def __init__(self) -> None:
        self.counts: Ints = np.zeros(BUCKETS, np.int64)
        self._sums: Hashes = np.zeros((2, BUCKETS), np.uint64)

    def add(self, items: Items) -> None:
        """Add items. A word is mixed with its identity and the word before it, so swapped words change the sums."""
        rows = bucket_of(items.identities)
        bound = items.identities * _MIX
        np.add.at(self.counts, rows, 1)
        for sums, words in zip(self._sums, (items.lows, items.highs), strict=True):
            mixed = (words ^ bound) * _MIX
            bound = mixed ^ (mixed >> np.uint64(32))
            np.add.at(sums, rows, bound)

    def differing(self, other: Buckets) -> Mask:
        """Return which buckets do not have the same items on both sides."""
        found: Mask = (self.counts != other.counts) | (self._sums != other._sums).any(axis=0)
        return found


def passes(a: Buckets, b: Buckets) -> Iterator[Mask]:
    """Yield the differing buckets, in groups whose items fit into memory together."""
    differing = np.flatnonzero(a.differing(b))
    counts = np.cumsum((a.counts + b.counts)[differing])
    for number in np.unique(counts // MOST_ITEMS).tolist():
        wanted = np.zeros(BUCKETS, np.bool_)
        wanted[differing[counts // MOST_ITEMS == number]] = True
        yield wanted


class Pair(NamedTuple):
    """Rows of two items that differ; -1 where one side has no such item."""

    a: int
    b: int


def match(a: Items, b: Items) -> Iterator[Pair]:
    """Yield items that only one side has, and items with equal identity and different digests."""
    left = (np.flatnonzero(_unpaired(a, b)).tolist(), np.flatnonzero(_unpaired(b, a)).tolist())
    names_a, names_b = a.identities, b.identities
    of_b: dict[int, list[int]] = {}
    for row in left[1]:
        of_b.setdefault(int(names_b[row]), []).append(row)
    for row in left[0]:
        others = of_b.get(int(names_a[row]))
        yield Pair(row, others.pop(0) if others else -1)
    yield from (Pair(-1, row) for rows in of_b.values() for row in rows)


def _unpaired(mine: Items, others: Items) -> Mask:
    """Return which of ``mine`` have no equal among ``others``. Equal items are paired off one to one."""
    split = len(mine)
    keys = [np.concatenate((getattr(mine, name), getattr(others, name))) for name in ("identities", "lows", "highs")]
    is_other = np.arange(len(keys[0])) >= split
    order = np.lexsort((~is_other, *keys))
    changes = np.zeros(len(order), np.bool_)
    changes[:1] = True
    for key in keys:
        changes[1:] |= key[order][1:] != key[order][:-1]
    runs = np.cumsum(changes) - 1
    others_of = np.bincount(runs, is_other[order]).astype(np.int64) if len(runs) else np.zeros(0, np.int64)
    ranks = np.arange(len(order)) - np.flatnonzero(changes)[runs] if len(runs) else np.zeros(0, np.int64)
    unpaired = np.zeros(len(order), np.bool_)
    # In a run of equal items the others come first. So the rank of one of mine is the number of others plus that of
    # mine before it. It has a partner if fewer of mine are before it than there are others.
    unpaired[order] = ~is_other[order] & (ranks >= 2 * others_of[runs])
    return unpaired[:split]
