"""What records get in queues and index: made by the kernel in one pass, and by ``formats`` where it leaves a row."""

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
    """The entries that records get: entry i is record ``rows[i]`` under the hash ``key_hashes[i]``."""

    rows: Ints
    key_hashes: npt.NDArray[np.int32]


class Dispatch(NamedTuple):
    """Of each record its topic, its unit, and what is out of the ordinary; of all the keys, and the keys of tags."""

    delays: Sequence[int]
    topics: Coded
    units: npt.NDArray[np.void]
    flags: npt.NDArray[np.uint8]
    keys: IndexKeys
    tag_keys: IndexKeys


def dispatch_of(records: Records, delays: Sequence[int] | None = None) -> Dispatch | None:
    """Return the dispatch of ``records``, made once; None without the kernel. With no delays units do not matter."""
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
    # Mostly two or three keys; the most there can be is one for every other byte of the properties.
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
    """Return the topics; two that differ in malformed bytes only may be one text."""
    begins, lengths = records.topic_offsets[found.topic_rows].tolist(), records.topic_lengths[found.topic_rows].tolist()
    raw = [records.data[begin : begin + length].tobytes() for begin, length in zip(begins, lengths, strict=True)]
    return coded_names(found.topic_codes, raw)


def _with_odd_rows(
    records: Records, odd: list[int], keys: IndexKeys, tag_keys: IndexKeys
) -> tuple[IndexKeys, IndexKeys]:
    """Return the keys with those of rows that the kernel left out, each in its place."""
    plain, tagged = [], []
    for row in odd:
        message = message_of(records, row)
        texts = [*iter_index_texts(message, DispatchRules(tag_entries=False))]
        with_tag = [*iter_index_texts(message, DispatchRules(tag_entries=True))]
        plain += [(row, index.key_hash(text)) for text in texts]
        tagged += [(row, index.key_hash(text)) for text in with_tag[len(texts) :]]
    return _merged(keys, plain), _merged(tag_keys, tagged)


def _merged(keys: IndexKeys, more: list[tuple[int, int]]) -> IndexKeys:
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
