"""Which groups' SQL filters a message matches, as bits for the extension of its queue.

Upstream: ``CommitLogDispatcherCalcBitMap``, over ``config/consumerFilter.json``. A pull then passes over messages whose
bits say no without reading them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from rmqtool.config import Version
from rmqtool.engine.stored_config import read_config
from rmqtool.errors import RmqtoolError
from rmqtool.filters.bloom import BITS, make_bit_map
from rmqtool.filters.sql92 import Selector, parse_selector
from rmqtool.filters.tokens import Dialect
from rmqtool.formats import paths
from rmqtool.formats.commit_log import Message
from rmqtool.storage.filesystem import ReadableFileSystem


class _GroupFilter(NamedTuple):
    selector: Selector
    positions: tuple[int, ...]


class BitMaps:
    """Makes the bit map of a message from the filters that groups have registered."""

    def __init__(self, filters: dict[str, Any], version: Version) -> None:
        dialect = Dialect.V4 if version is Version.V4_9 else Dialect.V5
        self._by_topic: dict[str, list[_GroupFilter]] = {}
        for topic, data in (filters.get("filterDataByTopic") or {}).items():
            groups = (data.get("groupFilterData") or {}).values()
            found = [one for group in groups if (one := _group_filter(group, dialect)) is not None]
            if groups:
                self._by_topic[topic] = found

    def __call__(self, message: Message) -> bytes:
        """Return the bit map of a message; none where no group filters its topic."""
        groups = self._by_topic.get(message.topic)
        if groups is None:
            return b""
        return make_bit_map(one.positions for one in groups if one.selector.matches(message.properties))


def _group_filter(group: dict[str, Any], dialect: Dialect) -> _GroupFilter | None:
    """Return the filter of a group; none that does not parse, or whose bits are not those of these settings."""
    bloom = group.get("bloomFilterData") or {}
    if bloom.get("bitNum") != BITS or not group.get("expression"):
        return None
    try:
        selector = parse_selector(group["expression"], dialect=dialect)
    except RmqtoolError:
        return None
    return _GroupFilter(selector, tuple(bloom["bitPos"]))


def read_bit_maps(files: ReadableFileSystem, version: Version) -> BitMaps:
    """Return what the store's filters make of messages."""
    return BitMaps(read_config(files, paths.CONSUMER_FILTER), version)
