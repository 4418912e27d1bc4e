"""Messages that arrive as lines of JSON, many at once: from lines to columns, and from their results to lines.

Arrow's JSON reader accepts no line that Python's refuses, and reads the others alike, with three exceptions that are
checked first: lines that are not a single object, bytes that are not UTF-8, and deep nesting, which it follows without
a limit. A piece of the input that has anything unusual is declined as a whole; the caller reads it line by line.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from rmqtool.columns.gather import Ints, as_bytes, find_bytes
from rmqtool.columns.hosts import hex_texts
from rmqtool.columns.joined_lines import TEXT, coded_pieces, join_pieces, number_pieces, text_pieces
from rmqtool.columns.pieces import Coded, coded, values_of
from rmqtool.formats import layouts
from rmqtool.formats.java import INT_MAX, INT_MIN
from rmqtool.formats.properties import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR
from rmqtool.formats.property_names import UNIQ_KEY

# A queue id of a message that names no queue.
NO_QUEUE = -1

_STRING, _LONG = pa.utf8(), pa.int64()
_PROPERTIES = "properties"
# Members that set the time of delivery. A piece with one is declined.
_LATER = ("delayLevel", "deliverAt")
# A message with this member was read from a store.
_STORED = "commitLogOffset"
# The other members that are read. Arrow gets their types, so that it refuses a value of another type.
_MEMBERS = {
    **dict.fromkeys(("topic", "body", "bodyEncoding"), _STRING),
    **dict.fromkeys(("queueId", "flag", _STORED), _LONG),
}
# The ends that a line with one object can have.
_ENDS = (b"}\n", b"}\r\n", b"}")
_NEWLINE, _OPENS, _CLOSES = b"\n{}"
# The separators of properties as JSON must escape them. No property can contain one, so the error is left to the reader
# of single lines.
_SEPARATORS = (b"\\u0001", b"\\u0002")
# Bytes that each of Arrow's threads parses at a time.
_BLOCK = 1 << 20
# Deeper nesting could overflow the stack of a reader that recurses.
_DEEPEST = 1000
# Distinct names of properties in all input: the set of names that a message has is a number of 64 bits.
_MOST_NAMES = 50
# After this number of declined pieces in a row the rest is not tried: it would be declined too.
_PATIENCE = 3
# Marks the place of a value in a template, which is cut there. No block of properties has two separators in a row.
_MARK = 2 * PROPERTY_SEPARATOR
_MARKED = re.compile(f"{_MARK}([0-9]+){_MARK}")

# The values of a property: one for all messages, or a column with nulls where a message does not have it.
Values: TypeAlias = str | pa.StringArray
Lines: TypeAlias = bytes | bytearray
# Makes the property block of one message.
TextOf: TypeAlias = Callable[[Mapping[str, str]], bytes]


class Incoming(NamedTuple):
    """Messages by columns. ``queue_ids`` may be ``NO_QUEUE``; a message has some of ``properties``, maybe not all."""

    topics: Coded
    bodies: list[bytes]
    queue_ids: Ints
    flags: Ints
    properties: dict[str, Values]

    def __len__(self) -> int:
        return len(self.bodies)


class Defaults(NamedTuple):
    """Defaults for what a message lacks, and rules for what it keeps.

    ``members`` and ``properties`` are defaults; ``own`` names the property that a member of the line sets. A message
    loses the properties ``dropped``, or ``dropped_of_stored`` if it was stored before; whether a stored message keeps
    those of ``by_topic`` depends on its topic. With ``keeps_keys`` it keeps its unique key. If ``topic`` is given,
    messages that name another one are declined.
    """

    members: Mapping[str, Any]
    properties: Mapping[str, str]
    own: Mapping[str, str]
    dropped: AbstractSet[str]
    dropped_of_stored: AbstractSet[str]
    keeps_keys: bool
    by_topic: AbstractSet[str] = frozenset()
    topic: str | None = None


def _plain_lengths(data: Lines) -> Ints | None:
    """Return the length of each line in bytes, its line break included.

    None if one does not begin and end as an object, or may nest deeper than ``_DEEPEST``.
    """
    codes = as_bytes(data)
    ends = find_bytes(codes, lambda some: some == _NEWLINE) + 1
    if not data.endswith(b"\n"):
        ends = np.append(ends, len(data))
    starts = np.concatenate((ends[:1] * 0, ends[:-1]))
    lasts = codes[np.maximum(ends - 2, 0)]
    if (codes[starts] != _OPENS).any():
        return None
    for row in np.flatnonzero(lasts != _CLOSES).tolist():
        if not data.endswith(_ENDS, starts[row], ends[row]):
            return None
    lengths = ends - starts
    # Each bracket that opens is closed again, so a line of 2 n bytes nests n deep at most.
    for row in np.flatnonzero(lengths > 2 * _DEEPEST).tolist():
        if sum(data.count(bracket, starts[row], ends[row]) for bracket in (b"{", b"[")) > _DEEPEST:
            return None
    return lengths


def _chunk(table: pa.Table, name: str) -> Any:
    """Return a column as one array; the table's chunks were combined, so there is one at most."""
    column = table.column(name)
    return column.chunk(0) if column.num_chunks else pa.array([], column.type)


def _numbers(column: Any, default: int) -> Ints | None:
    """Return a column of numbers, ``default`` for null; None if one is not a Java ``int``."""
    numbers: Ints = column.fill_null(default).to_numpy()
    return numbers if INT_MIN <= numbers.min() <= numbers.max() <= INT_MAX else None


def _add(found: dict[str, Values], name: str, column: Any) -> None:
    """Set a property; where ``column`` is null, the value that it had before stays."""
    before = found.get(name)
    if column.null_count < len(column):
        found[name] = column if before is None else pc.coalesce(column, before)


def _bodies(texts: Any, encodings: Any) -> list[bytes] | None:
    """Return the bodies as bytes; None if an encoding is unknown or a body does not have its encoding."""
    kinds = coded(encodings.fill_null(""))
    if not {"", "utf8", "base64", "none"}.issuperset(kinds.values):
        return None
    bodies: list[Any] = texts.cast(pa.binary()).to_pylist()
    if kinds.values in (["utf8"], [""], ["utf8", ""], ["", "utf8"]) and not texts.null_count:
        return bodies
    try:
        return [_body(body, kinds.values[code]) for body, code in zip(bodies, kinds.codes.tolist(), strict=True)]
    except (ValueError, TypeError):
        return None


def _body(text: bytes | None, encoding: str) -> bytes:
    """Return the bytes of a body; raise ValueError or TypeError for one that does not have its encoding."""
    if encoding == "none" or (text is None and not encoding):
        return b""
    if text is None:
        raise TypeError
    return base64.b64decode(text, validate=True) if encoding == "base64" else text


def property_texts(
    properties: Mapping[str, Values], count: int, text_of: Callable[[tuple[str, ...]], TextOf]
) -> list[bytes]:
    """Return the property block of each of ``count`` messages.

    ``text_of(names)`` returns the function that makes the block of a message with the properties of these names. It is
    called once for each set of names: the messages that have the same set are made together.
    """
    columns = {name: values for name, values in properties.items() if not isinstance(values, str)}
    partial = {name: column for name, column in columns.items() if column.null_count}
    if not partial:
        return _joined_texts(properties, count, text_of(tuple(properties)))
    have = np.zeros(count, np.int64)
    for number, column in enumerate(partial.values()):
        have |= column.is_valid().to_numpy(zero_copy_only=False).astype(np.int64) << number
    texts: list[bytes] = [b""] * count
    for pattern in np.unique(have).tolist():
        rows = np.flatnonzero(have == pattern)
        lacking = {name for number, name in enumerate(partial) if not pattern >> number & 1}
        taken = {
            name: values if isinstance(values, str) else values.take(pa.array(rows))
            for name, values in properties.items()
            if name not in lacking
        }
        for row, text in zip(rows.tolist(), _joined_texts(taken, len(rows), text_of(tuple(taken))), strict=True):
            texts[row] = text
    return texts


def _joined_texts(properties: Mapping[str, Values], count: int, text_of: TextOf) -> list[bytes]:
    """Return the property blocks of ``count`` messages that have all of ``properties``.

    ``text_of`` makes one block with marks in place of the values. It is cut at the marks, and Arrow joins the parts
    with the values of all messages.
    """
    names = list(properties)
    marked = {
        name: values if isinstance(values, str) else f"{_MARK}{number}{_MARK}"
        for number, (name, values) in enumerate(properties.items())
    }
    constants = _MARKED.split(text_of(marked).decode())
    operands: list[Any] = [pa.scalar(constants[0])]
    for number, constant in zip(constants[1::2], constants[2::2], strict=True):
        operands += [properties[names[int(number)]], pa.scalar(constant)]
    if len(operands) == 1:
        return [constants[0].encode()] * count
    joined = pc.binary_join_element_wise(*operands, pa.scalar(""))
    return joined.cast(pa.binary()).to_pylist()  # type: ignore[no-any-return]  # Arrow is not typed


class Put(Protocol):
    """The places of messages that were stored, in the order of the messages."""

    @property
    def physical_offsets(self) -> Ints:
        """The place of each message in the log."""

    @property
    def queue_offsets(self) -> Ints:
        """The number of each message in its queue."""

    @property
    def store_timestamp(self) -> int:
        """The store time of all of them, in ms."""


def spell_put(keys: pa.StringArray, topics: Coded, queue_ids: Ints, put: Put, id_prefix: str) -> bytes:
    """Return the lines that ``produce --jsonl`` prints for stored messages.

    ``id_prefix`` is the store host in hexadecimal digits, with which all their offset message ids begin.
    """
    offsets = put.physical_offsets.astype(layouts.LONG.dtype()[0][1])
    ids = hex_texts(offsets.view(np.uint8).reshape(len(offsets), -1))
    lines = join_pieces(
        [
            '{"status": "PUT_OK", "msgId": ',
            *text_pieces(keys.cast(TEXT)),
            f', "offsetMsgId": "{id_prefix}',
            ids,
            '", "topic": ',
            *coded_pieces(topics),
            ', "queueId": ',
            *number_pieces(queue_ids),
            ', "queueOffset": ',
            *number_pieces(put.queue_offsets),
            ', "commitLogOffset": ',
            *number_pieces(put.physical_offsets),
            f', "storeTimestamp": {put.store_timestamp}}}\n',
        ]
    )
    values, _ = values_of(lines)
    return values.tobytes()


class IncomingLines:
    """Reads one piece of the input after the other; names of properties found so far are the schema of the next one."""

    def __init__(self, defaults: Defaults) -> None:
        self._defaults = defaults
        self._own = {member: name for member, name in defaults.own.items() if member not in _LATER}
        self._names: list[str] = []
        # With a separator in a default no piece is tried: the reader of single lines raises the error.
        texts = "".join(map(str, (*defaults.members.values(), *defaults.properties, *defaults.properties.values())))
        is_plain = NAME_VALUE_SEPARATOR not in texts and PROPERTY_SEPARATOR not in texts
        self._declined = 0 if is_plain else _PATIENCE

    def read(self, data: Lines) -> Incoming | None:
        """Return the messages of some whole lines, or None if the lines have to be read one by one.

        After ``_PATIENCE`` declined pieces in a row the result is always None, without a look at the lines.
        """
        if self._declined >= _PATIENCE or not data:
            return None
        lengths = _plain_lengths(data)
        table = None if lengths is None else self._parse(data, int(lengths.max()))
        is_whole = lengths is not None and table is not None and table.num_rows == len(lengths)
        found = self._columns_of(table) if is_whole else None
        self._declined = 0 if found is not None else self._declined + 1
        return found

    @staticmethod
    def keys(properties: Mapping[str, Values], generated: Sequence[str]) -> pa.StringArray:
        """Return the unique key of each message: the one that it has, else the one of ``generated`` in its place."""
        made = pa.array(generated, _STRING)
        return pc.coalesce(properties[UNIQ_KEY], made) if UNIQ_KEY in properties else made

    texts = staticmethod(property_texts)
    lines = staticmethod(spell_put)

    def _parse(self, data: Lines, longest: int) -> pa.Table | None:
        """Return the lines as a table, properties as text; ``longest`` is the length of the longest line in bytes.

        None if Arrow refuses them, they are not UTF-8, have an escaped separator, or too many names of properties.
        """
        if b"\\" in data and any(separator in data for separator in _SEPARATORS):
            return None
        try:
            if not data.isascii():
                str(data, "utf-8")
            # Arrow refuses a line that touches three blocks, so a block has room for two lines.
            block = max(_BLOCK, 2 * longest)
            table = self._read_json(data, block)
            kind = table.schema.field(_PROPERTIES).type
            new = [field.name for field in kind if field.name not in self._names]
            self._names += new
            if len(self._names) > _MOST_NAMES:
                return None
            if new:
                # Arrow guessed the types of new names: read again, with all of them as text.
                table = self._read_json(data, block)
        except (pa.ArrowException, UnicodeDecodeError):
            return None
        return table

    def _read_json(self, data: Lines, block: int) -> pa.Table:
        """Return the lines as Arrow reads them; it guesses the types of members and properties with unknown names."""
        fields = {**_MEMBERS, **dict.fromkeys(self._own, _STRING)}
        fields[_PROPERTIES] = pa.struct([(name, _STRING) for name in self._names])
        reading = pj.ReadOptions(use_threads=True, block_size=block)
        parsing = pj.ParseOptions(explicit_schema=pa.schema(list(fields.items())), unexpected_field_behavior="infer")
        return pj.read_json(pa.BufferReader(data), reading, parsing).combine_chunks()

    def _columns_of(self, table: pa.Table) -> Incoming | None:
        """Return the messages of a table, or None if the lines must be read one by one.

        That is so if a line has a member that only the line reader knows (``_LATER``), a number that is not a Java
        ``int``, a body that cannot be decoded, or no topic or another one. It is also so if only some of the messages
        were stored before, or if such messages may have properties ``by_topic``.
        """
        count, defaults = table.num_rows, self._defaults.members
        columns = {name: _chunk(table, name) for name in table.column_names}
        if any(name in columns and columns[name].null_count < count for name in _LATER):
            return None
        for name, value in defaults.items():
            columns[name] = columns[name].fill_null(value)
        stored = count - columns[_STORED].null_count
        # Whether a stored message keeps these properties depends on its topic: decline, so that each is taken by
        # itself.
        if stored and not self._defaults.by_topic.isdisjoint(self._names):
            return None
        topics, queue_ids = columns["topic"], _numbers(columns["queueId"], NO_QUEUE)
        flags = _numbers(columns["flag"], 0)
        bodies = _bodies(columns["body"], columns["bodyEncoding"])
        if bodies is None or queue_ids is None or flags is None or stored not in (0, count) or topics.null_count:
            return None
        if self._defaults.topic is not None and not pc.all(pc.equal(topics, self._defaults.topic)).as_py():
            return None
        dropped = self._defaults.dropped_of_stored if stored else self._defaults.dropped
        return Incoming(coded(topics), bodies, queue_ids, flags, self._properties(columns, dropped))

    def _properties(self, columns: Mapping[str, Any], dropped: AbstractSet[str]) -> dict[str, Values]:
        """Return the properties of the messages: a member of the line wins over ``properties``, both over a default."""
        given = columns[_PROPERTIES]
        found: dict[str, Values] = dict(self._defaults.properties)
        nested = dict(zip(self._names, given.flatten(), strict=True))
        for name, column in nested.items():
            if name not in dropped:
                _add(found, name, column)
        for member, name in self._own.items():
            _add(found, name, columns[member])
        # An empty unique key counts as absent.
        if self._defaults.keeps_keys and UNIQ_KEY in nested:
            _add(found, UNIQ_KEY, pc.if_else(pc.equal(nested[UNIQ_KEY], ""), None, nested[UNIQ_KEY]))
        return found
