"""JSON files of a broker (``config/*.json`` and others): bytes to values and back.

A value is what a broker has after it loaded the file: declared fields have their declared types (texts of digits become
numbers, keys of numeric maps integers), unknown fields stay as they are. Encoding gives the bytes that fastjson would
write. No reader depends on the order of keys, so existing keys keep their place, and a new key gets the place that
upstream's hash map would give it. The fields of each file are declared in ``config_shapes``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from rmqtool.formats.codes import is_since
from rmqtool.formats.config_shapes import CONFIG_FILES, FRESH, GROUP_TOPIC_MAP, GROUP_TOPIC_SET_BINS
from rmqtool.formats.fastjson import (
    MAX_DEPTH,
    Bean,
    Dialect,
    FastjsonError,
    JavaType,
    Oddity,
    Reference,
    Scalar,
    Sequence,
    Shape,
    Style,
    Table,
    parse,
    whole_part,
    write,
)
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.java import INT_MAX, INT_MIN, LONG_MAX, LONG_MIN, decode_text, encode_text, hash_map_order

# Limit for a file that is decoded as one text. The tables of a hundred thousand topics take half of it.
LARGEST_TEXT = 64 << 20
# Initial bins of a map that a JSON parser filled. A broker's tables are such maps after a restart.
PARSED_BINS = 16

# The fields beside the table for which a file exists. A salvaged file that has nothing else is of no use.
_BESIDE_THE_TABLE = frozenset({"dataVersion", "groupTopicMap", "forbiddenTable"})

# Longer numbers are out of every range, and converting thousands of digits would take long.
_WHOLE_NUMBER = re.compile(r"[+-]?\d{1,30}", re.ASCII)
_RANGES = {JavaType.INT: (INT_MIN, INT_MAX), JavaType.LONG: (LONG_MIN, LONG_MAX)}


class Decoded(NamedTuple):
    """The value of a JSON text, and the oddities that a broker accepts in it.

    ``lossy``: malformed bytes were replaced, so the value does not give back the same bytes.
    """

    value: Any
    oddities: tuple[Oddity, ...]
    lossy: bool


def dialect_of(version: str) -> Dialect:
    """Return which fastjson a broker of ``version`` uses."""
    return Dialect.FASTJSON_2 if is_since(version, "5.4.0") else Dialect.FASTJSON_1


def decode_config(name: str, data: bytes, dialect: Dialect | None = None) -> Decoded | Flaw:
    """Return the value of the configuration file ``name`` (without ``.bak``), or why a broker does not load it.

    Without a dialect, a text that either fastjson loads is accepted. An empty file is a flaw: brokers load the .bak
    then.
    """
    return decode_value(data, CONFIG_FILES[name].root, dialect)


class Salvaged(NamedTuple):
    """The sound part of a file that does not parse: bytes that do parse, and their value."""

    data: bytes
    value: dict[str, Any]
    # The file offset where the part that was dropped begins.
    end: int
    # True if the value ended properly and only bytes after it were dropped; False if entries can be missing.
    is_complete: bool


def salvage_config(name: str, data: bytes) -> Salvaged | None:
    """Return the sound part of a configuration file: what comes before the place where it does not parse.

    A table of objects (topics, groups) keeps only whole objects, a table of offsets each offset that is whole. None if
    the file parses, or if no entry of a table is left.
    """
    root = CONFIG_FILES[name].root
    tables = [field.shape for field in root.fields.values()] if isinstance(root, Bean) else [root]
    of_settings = any(isinstance(one, Table) and isinstance(one.values, Bean) for one in tables)
    text = decode_text(data)
    whole = whole_part(text, 2 if of_settings else MAX_DEPTH)
    if whole is None:
        return None
    kept = encode_text(whole.text)
    decoded = decode_config(name, kept)
    if isinstance(decoded, Flaw) or not isinstance(decoded.value, dict):
        return None
    if not any(entries for field, entries in decoded.value.items() if field not in _BESIDE_THE_TABLE):
        return None  # the result would look like a file with an empty table
    return Salvaged(kept, decoded.value, _byte_offset(data, text, whole.position), whole.is_complete)


def encode_config(name: str, value: Any, dialect: Dialect, style: Style | None = None) -> bytes:
    """Return the bytes of the configuration file ``name``.

    ``style`` overrides the file's own: a slave writes ``delayOffset.json`` COMPACT, as it got it from its master.
    """
    return encode_value(value, CONFIG_FILES[name].root, dialect, CONFIG_FILES[name].style if style is None else style)


def decode_value(data: bytes, shape: Shape, dialect: Dialect | None = None) -> Decoded | Flaw:
    """Return the value of a JSON text for an object of ``shape``, or why it does not load."""
    text = decode_text(data)
    try:
        value, oddities = parse(text, dialect)
    except FastjsonError as error:
        return Flaw("CF-JSON", error.message, _byte_offset(data, text, error.position))
    if isinstance(shape, Bean) and (value is None or (value == [] and dialect is not Dialect.FASTJSON_2)):
        # fastjson returns null here, and upstream takes that for an object without fields.
        value = {}
    try:
        value = _conform(value, shape, "$")
    except _WrongType as wrong:
        return Flaw("CF-JSON", str(wrong), 0, len(data))
    return Decoded(value, oddities, encode_text(text) != data)


def encode_value(value: Any, shape: Shape, dialect: Dialect, style: Style) -> bytes:
    return encode_text(write(value, shape, dialect, style))


def _byte_offset(data: bytes, text: str, position: int) -> int:
    """Return the file offset of the character at ``position``; approximate if malformed bytes come before it."""
    offset = position if data.isascii() else len(text[:position].encode("utf-8", "surrogatepass"))
    return min(offset, len(data))


class _WrongType(ValueError):
    """A value that does not fit its declared type, so that the whole text does not load."""

    def __init__(self, path: str, found: Any, wanted: str) -> None:
        kinds = {dict: "an object", list: "a list", Reference: "a reference to another value"}
        super().__init__(f"{path} is {kinds.get(type(found), repr(found)[:40])}, {wanted} is expected")


def _conform(value: Any, shape: Shape, path: str) -> Any:
    """Return ``value`` with its declared types, as a broker converts it; raise _WrongType where it does not load it."""
    if isinstance(shape, Scalar):
        return _CONVERSIONS[shape.java](value, path)
    if isinstance(shape, Sequence):
        if not isinstance(value, list):
            raise _WrongType(path, value, "a list")
        return [_conform(item, shape.items, f"{path}[{at}]") for at, item in enumerate(value)]
    if not isinstance(value, dict):
        raise _WrongType(path, value, "an object")
    if isinstance(shape, Table):
        return {_key(key, shape, path): _entry(item, shape, f"{path}.{key}") for key, item in value.items()}
    return {str(key): _field(item, str(key), shape, f"{path}.{key}") for key, item in value.items()}


def _field(value: Any, name: str, shape: Shape, path: str) -> Any:
    """Return a field with its declared type.

    Null and an undeclared field stay as they are, and so does an ignored field of another type.
    """
    declared = shape.fields.get(name) if isinstance(shape, Bean) else None
    if value is None or declared is None:
        return value
    try:
        return _conform(value, declared.shape, path)
    except _WrongType:
        if declared.ignored:
            return value
        raise


def _entry(value: Any, shape: Table, path: str) -> Any:
    """Return the value of an entry with its declared type; only a table that is not ``concurrent`` may have null."""
    if value is None:
        # A ConcurrentHashMap cannot hold null: the broker fails to load the file.
        if shape.concurrent:
            raise _WrongType(path, value, "a value")
        return None
    return _conform(value, shape.values, path)


def _key(key: int | str, shape: Table, path: str) -> int | str:
    if shape.numeric_keys is None:
        return str(key)
    return _to_number(shape.numeric_keys)(key, f"{path}.{key}")


def _to_number(java: JavaType) -> Callable[[Any, str], int]:
    """Return a function that converts a value, found at a path of the file, to a number of type ``java``.

    Like fastjson it takes digits in quotes for a number and cuts off a fraction. It raises _WrongType for any other
    value, and for a number outside the range of the type.
    """
    least, greatest = _RANGES[java]

    def convert(value: Any, path: str) -> int:
        if isinstance(value, str) and _WHOLE_NUMBER.fullmatch(value):
            value = int(value)
        if not isinstance(value, int | float) or not least <= value <= greatest:
            raise _WrongType(path, value, f"a number of type {java.value}")
        return int(value)

    return convert


def _to_boolean(value: Any, path: str) -> bool:
    """Return the truth value of true, false, 1 or 0, which may be in quotes and in any case; else raise _WrongType."""
    words = {"true": True, "false": False, "1": True, "0": False}
    word = value.lower() if isinstance(value, str) else str(value).lower()
    if isinstance(value, bool | int | str) and word in words:
        return words[word]
    raise _WrongType(path, value, "true or false")


def _to_string(value: Any, path: str) -> str:
    """Return a text, also for a number or a truth value, as fastjson does; raise _WrongType for any other value."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    raise _WrongType(path, value, "a text")


# How a value of a file becomes one of its declared type; each function takes the value and its path.
_CONVERSIONS: dict[JavaType, Callable[[Any, str], Any]] = {
    JavaType.INT: _to_number(JavaType.INT),
    JavaType.LONG: _to_number(JavaType.LONG),
    JavaType.BOOLEAN: _to_boolean,
    JavaType.STRING: _to_string,
    JavaType.ANY: lambda value, _path: value,
}


def new_bean(bean: Bean, version: str, **values: Any) -> dict[str, Any]:
    """Return a new object as a broker of ``version`` makes it: ``values``, and the defaults of the other fields.

    Fields that the version does not have yet and null values are left out. Raises ValueError for an undeclared name.
    """
    unknown = values.keys() - bean.fields.keys()
    if unknown:
        raise ValueError(f"no such field: {', '.join(sorted(unknown))}")
    made: dict[str, Any] = {}
    for name, declared in bean.fields.items():
        default = _fresh(declared.shape, version) if declared.default is FRESH else declared.default
        value = values.get(name, default)
        if is_since(version, declared.since) and value is not None:
            made[name] = value
    return made


def _fresh(shape: Shape, version: str) -> Any:
    """Return the value of a field of this shape in a new object: an object with its defaults, an empty list or map."""
    if isinstance(shape, Bean):
        return new_bean(shape, version)
    return [] if isinstance(shape, Sequence) else {}


def order_keys(keys: list[Any], table: Table, bins: int | None = None) -> list[Any]:
    """Return ``keys`` in the order of upstream's map, filled in the given order; ``bins`` overrides the table's."""
    bins = table.bins if bins is None else bins
    # A ConcurrentHashMap doubles when it is three quarters full, a HashMap (in hash_map_order) when it is fuller.
    while table.concurrent and len(keys) >= bins * 3 // 4:
        bins *= 2
    return hash_map_order(keys, bins)


def with_entry(entries: Mapping[Any, Any], key: Any, value: Any, table: Table) -> dict[Any, Any]:
    """Return ``entries`` with ``key`` set: an existing key keeps its place, a new one gets its place in a broker's map.

    The place of a new key depends on how many bins the map began with: those of a new map, or those of one that a JSON
    parser filled. The order of the existing keys, which stays as it is, shows which of the two it was; if it fits
    neither, the bins of a new map are taken.
    """
    found = dict(entries)
    if key in found:
        found[key] = value
        return found
    existing = list(found)
    fits = (bins for bins in (table.bins, PARSED_BINS) if order_keys(existing, table, bins) == existing)
    ordered = order_keys([*existing, key], table, next(fits, table.bins))
    before = ordered.index(key) - 1
    at = existing.index(ordered[before]) + 1 if before >= 0 else 0
    return {name: found.get(name, value) for name in (*existing[:at], key, *existing[at:])}


def group_topic_map(offset_table: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the ``groupTopicMap`` that 5.x writes beside an offset table, in upstream's order.

    A key that is not ``topic@group`` is left out.
    """
    topics: dict[str, list[str]] = {}
    for key in offset_table:
        parts = key.rstrip("@").split("@")  # Java's split drops empty parts at the end
        if len(parts) == 2:
            topics.setdefault(parts[1], []).append(parts[0])
    groups = order_keys(list(topics), GROUP_TOPIC_MAP)
    return {group: hash_map_order(topics[group], GROUP_TOPIC_SET_BINS) for group in groups}
