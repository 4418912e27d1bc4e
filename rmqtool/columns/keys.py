"""Index keys of many records: the hash of each indexed text, in the order of the index entries."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rmqtool.columns.dispatched import IndexKeys, dispatch_of
from rmqtool.columns.gather import Ints, Mask, find_bytes
from rmqtool.columns.hashes import java_hashes
from rmqtool.columns.pieces import Coded
from rmqtool.columns.properties import Properties
from rmqtool.columns.records import Records
from rmqtool.formats import index
from rmqtool.formats.codes import TRANSACTION_MASK, TransactionType
from rmqtool.formats.dispatch import DispatchRules
from rmqtool.formats.java import string_hash
from rmqtool.formats.property_names import KEYS, TAGS, UNIQ_KEY

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
    # Word i of a row begins after its space i - 1 and ends before its space i; the first and the last have none there.
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
