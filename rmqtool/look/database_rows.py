"""The rows of a store's RocksDB databases, taken apart by what the database and the family are for."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from rmqtool.formats import layouts, paths, rocksdb_rows
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.java import decode_text
from rmqtool.formats.layout import Layout, upstream_name
from rmqtool.formats.rocksdb_rows import ConfigRowKey, decode_row_value
from rmqtool.store.open import Store
from rmqtool.store.rocksdb import open_database

KeyDecoder = Callable[[bytes], Any]


class DatabaseRow(NamedTuple):
    """One row: key and value as decoded (text for what is not known), and as stored."""

    family: str
    key: dict[str, Any] | str
    value: Any
    raw_key: bytes
    raw_value: bytes

    def as_json(self) -> dict[str, object]:
        """Return the row as plain values."""
        return {
            "family": self.family,
            "key": self.key,
            "value": self.value,
            "keyHex": self.raw_key.hex(),
            "valueHex": self.raw_value.hex(),
        }


def iter_database_rows(store: Store, directory: str) -> Iterator[DatabaseRow]:
    """Yield every row of the database in ``directory``, family by family, in the order of the keys."""
    with open_database(store, directory) as database:
        for family in database.families:
            decode_key, layout = _DECODERS.get((directory, family), (_text_key, None))
            for key, value in database.iter_rows(family):
                yield DatabaseRow(family, _plain_key(key, decode_key), _value(key, value, layout), key, value)


def _text_key(key: bytes) -> str:
    return decode_text(key)


def _plain_key(key: bytes, decode: KeyDecoder) -> dict[str, Any] | str:
    decoded = decode(key)
    if isinstance(decoded, Flaw):  # a row of bookkeeping has a plain name
        return decode_text(key)
    if isinstance(decoded, str):
        return decoded
    found = _named(decoded)
    if isinstance(decoded, ConfigRowKey):
        found["names"] = list(decoded.names)
    return found


def _named(value: Any) -> dict[str, Any]:
    return {upstream_name(name): part for name, part in value._asdict().items()}


def _value(key: bytes, value: bytes, layout: Layout[Any] | None) -> Any:
    """Return a value by its layout, as one number, as JSON, or as text."""
    for known in (layout, layouts.LONG):
        if known is not None and len(value) == known.size:
            decoded = decode_row_value(known, value)
            if not isinstance(decoded, Flaw):
                return decoded.value if known is layouts.LONG else _named(decoded)
    body = value[1:] if key[:1] == b"\x01" and value[:1] == b"\x01" else value
    if len(body) == layouts.ROCKSDB_DATA_VERSION.size and key.endswith(b"data_version"):
        return _named(layouts.ROCKSDB_DATA_VERSION.decode(body))
    try:
        return json.loads(body)
    except ValueError:
        return decode_text(value)


_DECODERS: dict[tuple[str, str], tuple[KeyDecoder, Layout[Any] | None]] = {
    (paths.CONSUME_QUEUE, "default"): (rocksdb_rows.decode_queue_key, layouts.ROCKSDB_QUEUE_VALUE),
    (paths.CONSUME_QUEUE, "offset"): (rocksdb_rows.decode_bound_key, layouts.ROCKSDB_OFFSET_VALUE),
    (f"{paths.CONFIG}/rdb", "default"): (rocksdb_rows.decode_config_key, None),
    (paths.KV_STORE, "popState"): (rocksdb_rows.decode_pop_key, None),
    (paths.ROCKSDB_STORE, "default"): (rocksdb_rows.decode_index_key, None),
    (paths.ROCKSDB_STORE, "timer"): (rocksdb_rows.decode_timer_key, layouts.ROCKSDB_TIMER_VALUE),
    (paths.ROCKSDB_STORE, "trans"): (rocksdb_rows.decode_trans_key, layouts.ROCKSDB_TRANS_VALUE),
}
