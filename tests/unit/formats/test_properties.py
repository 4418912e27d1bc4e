"""Property text: the rules of tolerance, by literals from the specification."""

from __future__ import annotations

import pytest

from rmqtool.formats import properties, property_names
from rmqtool.formats.properties import Piece, PieceKind

# Tail of a record that 4.9.8 wrote, and of the same message from 5.3.3 with the checksum block.
TEXT_4_9 = b"KEYS\1order-1\2UNIQ_KEY\1C0A8010A10E118B4AAC247B760000007\2CLUSTER\1DefaultCluster\2TAGS\1TagA"
TEXT_5_3 = (
    b"UNIQ_KEY\1C0A8010A10E118B4AAC247B760000007\2CLUSTER\1DefaultCluster\2TAGS\1TagA\2KEYS\1order-1\2WAIT\1true\2"
    b"__CRC32#\x017638448202\2"
)


@pytest.mark.parametrize(
    ("block", "seen"),
    [
        (b"", {}),
        (b"a\1b\2", {"a": "b"}),
        (b"a\1b", {"a": "b"}),
        (b"a\1\2k\1v", {"k": "v"}),
        (b"k\1v\1w\2", {"k": "v\1w"}),
        (b"k\1v\1\2", {"k": "v\1"}),
        (b"k\1\1v\2", {"k": "\1v"}),
        (b"\1v\2", {}),
        (b"\1\2", {}),
        (b"no separator\2a\1b", {"a": "b"}),
        (b"\2\2a\1b\2\2", {"a": "b"}),
        (b"a\1first\2a\1last", {"a": "last"}),
        (b"a\1b\2a\1\2", {"a": "b"}),
        ("имя\1значение\2".encode(), {"имя": "значение"}),
        (b"a\1\xf0\x9f\x98\x80", {"a": "\U0001f600"}),
        (b"a\1\xed\xa0\xbd\xed\xb8\x80", {"a": "\ufffd\ufffd"}),
        (b"a\1\xff\2b\1\xe4\xb8", {"a": "\ufffd", "b": "\ufffd"}),
        # Batch properties glued to a text without a last separator (4.8.0 to 4.9.2).
        (b"TAGS\1TagAWAIT\1true", {"TAGS": "TagAWAIT\1true"}),
    ],
)
def test_which_pairs_are_seen(block: bytes, seen: dict[str, str]) -> None:
    assert properties.decode_properties(block) == seen
    pairs = [piece for piece in properties.iter_pieces(block) if piece.kind is PieceKind.PAIR]
    assert {piece.name(block): piece.value(block) for piece in pairs} == seen


def test_pieces_say_why_they_are_not_seen() -> None:
    block = b"ab\1cde\2\2x\2\1v\2k\1"
    assert list(properties.iter_pieces(block)) == [
        Piece(PieceKind.PAIR, 0, 2, 3, 3),
        Piece(PieceKind.NOTHING, 7, 0, 7, 0),
        Piece(PieceKind.NO_SEPARATOR, 8, 1, 9, 0),
        Piece(PieceKind.EMPTY_NAME, 10, 0, 11, 1),
        Piece(PieceKind.EMPTY_VALUE, 13, 1, 15, 0),
    ]


def test_orders_of_upstream() -> None:
    put = ("TAGS", "KEYS", "WAIT", "UNIQ_KEY", "CLUSTER")
    found = properties.decode_properties(TEXT_5_3)
    client = {name: found[name] for name in put if name != "WAIT"}
    assert tuple(properties.order_properties(client, 16)) == ("KEYS", "UNIQ_KEY", "CLUSTER", "TAGS")
    broker = {name: found[name] for name in put}
    assert tuple(properties.order_properties(broker, 128)) == ("UNIQ_KEY", "CLUSTER", "TAGS", "KEYS", "WAIT")


@pytest.mark.parametrize(
    ("left", "right", "joined"),
    [
        (b"a\1b", b"c\1d", b"a\1b\2c\1d"),
        (b"a\1b\2", b"c\1d", b"a\1b\2c\1d"),
        (b"", b"c\1d", b"c\1d"),
        (b"a\1b", b"", b"a\1b"),
    ],
)
def test_joining(left: bytes, right: bytes, joined: bytes) -> None:
    assert properties.join_properties(left, right) == joined


def test_checksum_block() -> None:
    found = properties.find_property_crc(TEXT_5_3)
    assert found == (2028448367, 20)
    assert properties.split_property_crc(TEXT_5_3) == (TEXT_5_3[:-20], found)
    assert properties.encode_property_crc(2028448367) == TEXT_5_3[-20:]
    assert properties.encode_property_crc(42) == b"__CRC32#\x012400000000\2"
    assert properties.split_property_crc(TEXT_4_9) == (TEXT_4_9, None)


@pytest.mark.parametrize(
    "block",
    [
        b"",
        b"__CRC32#\x01763844820\2",
        b"__CRC32#\x017638448202",
        b"__CRC32#\x01763844820x\2",
        b"__CRC32#\2" + b"7638448202\2",
        b"__CRC32#\x017638448202\2a\1b\2",
    ],
)
def test_what_is_no_checksum_block(block: bytes) -> None:
    assert properties.find_property_crc(block) is None


@pytest.mark.parametrize("value", [-1, 1 << 31])
def test_a_checksum_has_31_bits(value: int) -> None:
    with pytest.raises(ValueError, match="31 bits"):
        properties.encode_property_crc(value)


def test_keys_are_split_at_single_spaces() -> None:
    assert properties.key_tokens({"KEYS": " a  b a "}) == ["a", "b", "a"]
    assert properties.key_tokens({}) == []


def test_reserved_names() -> None:
    assert property_names.is_reserved("UNIQ_KEY")
    assert property_names.is_reserved("__RMQ.TRANSIENT.TOPIC_SYS_FLAG")
    assert not property_names.is_reserved("order")
    assert property_names.RESERVED_NAMES["__CRC32#"].since == "5.2.0"
    assert len(property_names.RESERVED_NAMES) == 65
