"""Queue entries and index keys of many records: by the kernel in one pass, by ``formats`` for rows that it leaves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rmqtool.columns import compiled
from rmqtool.columns.gather import Ints
from rmqtool.columns.pieces import Coded, coded_names
from rmqtool.columns.records import Records
from rmqtool.formats import index, layouts
from rmqtool.formats.commit_log import Message, decode_record
from rmqtool.formats.dispatch import DispatchRules, iter_index_texts, tags_code

_UNIT = np.dtype(layouts.CONSUME_QUEUE_UNIT.dtype())


class IndexKeys(NamedTuple):
    """Index entries of records, in their order in the file: entry i has record ``rows[i]`` and ``key_hashes[i]``."""

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

    That is without the kernel, without records, or with too many topics. ``delays`` change only the entries of delayed
    messages; a caller that does not look at entries gives None and gets a dispatch with any delays.
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
    """Return the topics.

    Two that differ only in malformed bytes can decode to the same text, and are one topic then.
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
