"""Queue entries and index keys of many records: by the kernel in one pass, by ``formats`` for rows that it leaves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rmqtool.columns import compiled
from rmqtool.columns.gather import Ints, Mask, find_bytes
from rmqtool.columns.hashes import java_hashes
from rmqtool.columns.pieces import Coded, coded_names
from rmqtool.columns.properties import Properties
from rmqtool.columns.records import Records
from rmqtool.formats import index, layouts
from rmqtool.formats.codes import TRANSACTION_MASK, TransactionType
from rmqtool.formats.commit_log import Message, decode_record
from rmqtool.formats.dispatch import DispatchRules, iter_index_texts, tags_code
from rmqtool.formats.java import string_hash
from rmqtool.formats.property_names import KEYS, TAGS, UNIQ_KEY

_UNIT = np.dtype(layouts.CONSUME_QUEUE_UNIT.dtype())


class IndexKeys(NamedTuple):
    """Index entries of records, in their order in the file: entry i is of row ``rows[i]``, with ``key_hashes[i]``."""

    rows: Ints
    key_hashes: npt.NDArray[np.int32]


class Dispatch(NamedTuple):
    """The topic, queue entry and flags of each record, the index entries of their keys, and those of their tags.

    ``flags`` are bits of ``columns.compiled``. The entries in ``units`` are made for every record, also for those whose
    flag ``BESIDE_QUEUE`` says that they have none. Only brokers from 5.4 on write the entries in ``tag_keys``.
    ``delays`` are the delay levels (ms) that the entries of delayed messages were made with.
    """

    delays: Sequence[int]
    topics: Coded
    units: npt.NDArray[np.void]
    flags: npt.NDArray[np.uint8]
    keys: IndexKeys
    tag_keys: IndexKeys


def dispatch_of(records: Records, delays: Sequence[int] | None = None) -> Dispatch | None:
    """Return the dispatch of ``records``, which is kept for the next call; None where the kernel cannot make it.

    That is without the kernel, without records, with too many topics, or with a delay beyond a ``long``. ``delays``
    change only the entries of delayed messages; a caller that does not look at entries gives None and gets a dispatch
    with any delays.
    """
    known: Dispatch | None = records.made.get("dispatch")
    if known is not None and (delays is None or known.delays == delays):
        return known
    made = _dispatch(records, DispatchRules().delays if delays is None else delays) if len(records) else None
    if made is not None:
        records.made["dispatch"] = made
        records.made["topics"] = made.topics
    return made


def _dispatch(records: Records, delays: Sequence[int]) -> Dispatch | None:
    """Return the dispatch by the kernel, with what it leaves made by ``formats``; None as for ``dispatch_of``."""
    offsets, count = records.file_offsets, len(records)
    # Most messages have two or three keys. If four for each are not enough, make room for more than they can have: a
    # key and its blank take two bytes of the properties.
    found = compiled.dispatched(records.data, offsets, delays, 4 * count + 64)
    if found is None:
        most = 2 * count + int(records.properties_lengths.sum())
        found = compiled.dispatched(records.data, offsets, delays, most)
    if found is None:
        return None
    units = found.units.view(_UNIT)
    for row in np.flatnonzero(found.flags & compiled.ODD_TAGS).tolist():
        units["tags_code"][row] = tags_code(message_of(records, row), delays)
    tag_rows = np.flatnonzero(found.tag_hashes >= 0)
    keys = IndexKeys(found.key_rows.astype(np.int64), found.key_hashes)
    tag_keys = IndexKeys(tag_rows, found.tag_hashes[tag_rows])
    odd = np.flatnonzero(found.flags & compiled.ODD_KEYS).tolist()
    if odd:
        keys, tag_keys = _with_odd_rows(records, odd, keys, tag_keys)
    return Dispatch(delays, _topics_of(records, found), units, found.flags, keys, tag_keys)


def _topics_of(records: Records, found: compiled.Dispatched) -> Coded:
    """Return the topics of the rows as a coded column, decoded.

    The kernel compares bytes. Two of its topics that differ only in malformed bytes can decode to the same text, and
    are one topic here.
    """
    begins, lengths = records.topic_offsets[found.topic_rows].tolist(), records.topic_lengths[found.topic_rows].tolist()
    raw = [records.data[begin : begin + length].tobytes() for begin, length in zip(begins, lengths, strict=True)]
    return coded_names(found.topic_codes, raw)


def _with_odd_rows(
    records: Records, odd: list[int], keys: IndexKeys, tag_keys: IndexKeys
) -> tuple[IndexKeys, IndexKeys]:
    """Return both lists with the entries of the rows ``odd``, which the kernel left out, in the order of the rows."""
    plain, tagged = [], []
    for row in odd:
        message = message_of(records, row)
        texts = [*iter_index_texts(message, DispatchRules(tag_entries=False))]
        with_tag = [*iter_index_texts(message, DispatchRules(tag_entries=True))]
        plain += [(row, index.key_hash(text)) for text in texts]
        tagged += [(row, index.key_hash(text)) for text in with_tag[len(texts) :]]
    return _merged(keys, plain), _merged(tag_keys, tagged)


def _merged(keys: IndexKeys, more: list[tuple[int, int]]) -> IndexKeys:
    """Return ``keys`` and ``more``, pairs of row and hash, in the order of the rows."""
    if not more:
        return keys
    rows = np.concatenate((keys.rows, np.array([row for row, _ in more], np.int64)))
    hashes = np.concatenate((keys.key_hashes, np.array([hashed for _, hashed in more], np.int32)))
    order = np.argsort(rows, kind="stable")
    return IndexKeys(rows[order], hashes[order])


def message_of(records: Records, row: int) -> Message:
    """Return one of the records as ``formats`` decodes it."""
    message = decode_record(records.data.data, int(records.file_offsets[row]))
    assert isinstance(message, Message), f"the columns hold only whole messages, not {message}"
    return message


_KEY_SEPARATOR = ord(" ")
# Integer.MIN_VALUE, unsigned.
_INT_MIN = 1 << 31


def index_keys(records: Records, properties: Properties, rules: DispatchRules) -> IndexKeys:
    """Return the index entries of ``records``: for each its unique key, its keys, then its tag if tags are indexed.

    Rollbacks have none. ``properties`` are decoded only where the kernel does not make the entries.
    """
    dispatch = dispatch_of(records)
    if dispatch is not None:
        return _joined(dispatch.keys, dispatch.tag_keys) if rules.tag_entries else dispatch.keys
    topics = records.topics
    indexed = records.column("sys_flag") & TRANSACTION_MASK != int(TransactionType.ROLLBACK)
    parts = [_whole_values(properties, UNIQ_KEY, indexed), _tokens(properties, KEYS, indexed)]
    hashes = [_key_hashes(properties, part, topics, index.key_text) for part in parts]
    if rules.tag_entries:
        parts.append(_whole_values(properties, TAGS, indexed))
        hashes.append(_key_hashes(properties, parts[-1], topics, index.tag_key_text))
    rows = np.concatenate([part.rows for part in parts])
    # A stable sort keeps the parts of a record in this order.
    order = np.argsort(rows, kind="stable")
    return IndexKeys(rows[order], np.concatenate(hashes)[order])


def _joined(keys: IndexKeys, tags: IndexKeys) -> IndexKeys:
    """Return the entries of both, the tag of each record after its keys."""
    rows = np.concatenate((keys.rows, tags.rows))
    order = np.argsort(rows, kind="stable")
    return IndexKeys(rows[order], np.concatenate((keys.key_hashes, tags.key_hashes))[order])


def tag_keys(records: Records, properties: Properties) -> IndexKeys:
    """Return the entries that the tags of ``records`` get from a broker that indexes tags (5.4 and later)."""
    dispatch = dispatch_of(records)
    if dispatch is not None:
        return dispatch.tag_keys
    topics = records.topics
    indexed = records.column("sys_flag") & TRANSACTION_MASK != int(TransactionType.ROLLBACK)
    tags = _whole_values(properties, TAGS, indexed)
    return IndexKeys(tags.rows, _key_hashes(properties, tags, topics, index.tag_key_text))


class _Texts(NamedTuple):
    """Indexed texts, in the order of the records: the row of each, and its place in ``Properties.text``."""

    rows: Ints
    offsets: Ints
    lengths: Ints


def _whole_values(properties: Properties, name: str, wanted: Mask) -> _Texts:
    """Return the whole value of a property in each of the ``wanted`` records that has it."""
    found = properties.find(name)
    rows = np.flatnonzero(found.present & wanted)
    return _Texts(rows, found.offsets[rows], found.lengths[rows])


def _tokens(properties: Properties, name: str, wanted: Mask) -> _Texts:
    """Return the words of a property between single spaces; empty words are left out."""
    whole = _whole_values(properties, name, wanted)
    begins, ends = whole.offsets, whole.offsets + whole.lengths
    spaces = find_bytes(properties.text, lambda some: some == _KEY_SEPARATOR)
    if not len(spaces):
        return whole
    firsts, counts = np.searchsorted(spaces, begins), np.searchsorted(spaces, ends)
    counts -= firsts
    if not counts.any():
        return whole
    # Word i of a row begins after its space i - 1 and ends before its space i. The first word begins, and the last one
    # ends, with the value.
    rows = np.repeat(np.arange(len(begins)), counts + 1)
    words = np.arange(len(rows)) - np.repeat(np.cumsum(counts + 1) - counts - 1, counts + 1)
    spaces = np.append(spaces, 0)  # so that the places that np.where does not choose are valid too
    starts = np.where(words > 0, spaces[firsts[rows] + words - 1] + 1, begins[rows])
    stops = np.where(words < counts[rows], spaces[firsts[rows] + np.minimum(words, counts[rows])], ends[rows])
    some = stops > starts
    return _Texts(whole.rows[rows[some]], starts[some], (stops - starts)[some])


def _key_hashes(
    properties: Properties, texts: _Texts, topics: Coded, spell: Callable[[str, str], str]
) -> npt.NDArray[np.int32]:
    """Return the hashes in the index entries: those of the texts that ``spell`` makes of topic and key."""
    if not len(texts.rows):
        return np.empty(0, np.int32)
    prefixes = topics.each(lambda topic: string_hash(spell(topic, "")) & 0xFFFFFFFF, np.uint32)
    hashes = java_hashes(properties.text, texts.offsets, texts.lengths).behind(prefixes[texts.rows])
    # As in formats.index.key_hash: the absolute value, and 0 for the hash whose absolute value is not an ``int``.
    signed = np.where(hashes == _INT_MIN, 0, hashes).astype(np.uint32).view(np.int32)
    return np.abs(signed)
