"""Reading JSON. Which text each library reads was asked of it, with the broker's own classes as targets."""

from __future__ import annotations

from typing import Any

import pytest

from rmqtool.formats import fastjson
from rmqtool.formats.fastjson import Dialect, FastjsonError, Oddity, OddityKind, Reference, parse

SAMPLE = '{"offsetTable":{"A@g":{0:5,1:6},"B@g":{0:7}},"x":[1,2],"y":"s"}'
VALUE = {"offsetTable": {"A@g": {0: 5, 1: 6}, "B@g": {0: 7}}, "x": [1, 2], "y": "s"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (SAMPLE, VALUE),
        ("null", None),
        ("true", True),
        ('""', ""),
        (" [ ] ", []),
        ("{}", {}),
        ("\t{\r\n}\f\b", {}),
        ("-12", -12),
        ("+5", 5),
        ("005", 5),
        ("1.5e3", 1500.0),
        ("1.", 1.0),
        ("99999999999999999999", 99999999999999999999),
        ('{"a":null,"b":false}', {"a": None, "b": False}),
        ('{-1:5,"0":6,1.5:7,007:8}', {-1: 5, "0": 6, "1.5": 7, 7: 8}),
        ('"a\\u00e9\\u4E2D\\x41\\0\\7\\v\\\'\\/\\b\\f\\n\\r\\t\\\\\\""', "aé中A\0\7\v'/\b\f\n\r\t\\\""),
        ('"\\ud83d\\ude00"', "\U0001f600"),
        ('"\\ud83d"', "\ud83d"),
        ('"a\nb\0"', "a\nb\0"),
        ('"\u2028\x7f"', "\u2028\x7f"),
        ('{"":{"":[]}}', {"": {"": []}}),
    ],
)
def test_values(text: str, value: Any) -> None:
    assert parse(text) == (value, ())
    assert parse(text.encode("utf-8", "surrogatepass") if "\ud83d" not in text else text) == (value, ())


def test_keys_keep_their_type_and_order() -> None:
    value = parse('{"b":1,2:3,"1":4,0:5}').value
    assert list(value) == ["b", 2, "1", 0]


def with_insert(before: str, text: str) -> str:
    assert SAMPLE.count(before) == 1
    return SAMPLE.replace(before, text + before)


BOTH = (True, True)
ONLY_1 = (True, False)
ONLY_2 = (False, True)
NEITHER = (False, False)


@pytest.mark.parametrize(
    ("text", "kinds", "read_by"),
    [
        ("\ufeff" + SAMPLE, [OddityKind.BYTE_ORDER_MARK], BOTH),
        (SAMPLE + "\0\0\0", [OddityKind.NUL], BOTH),
        (SAMPLE + "\n\x1a", [OddityKind.NUL], BOTH),
        (with_insert('"x"', "\0"), [OddityKind.NUL], BOTH),
        ("/* c */" + SAMPLE, [OddityKind.BLOCK_COMMENT_AT_START], BOTH),
        ("// c\n" + SAMPLE, [OddityKind.LINE_COMMENT], BOTH),
        (SAMPLE + "// c", [OddityKind.LINE_COMMENT], BOTH),
        (SAMPLE + "/* c */", [OddityKind.BLOCK_COMMENT], ONLY_1),
        (with_insert('"x"', "/*c*/"), [OddityKind.BLOCK_COMMENT], ONLY_1),
        (with_insert('"x"', "//c\n"), [OddityKind.LINE_COMMENT], BOTH),
        (with_insert('"y"', "//c\n"), [OddityKind.LINE_COMMENT], BOTH),
        (with_insert('{"A@g"', "//c\n"), [OddityKind.LINE_COMMENT_NEAR_VALUE], ONLY_1),
        (with_insert("2]", "//c\n"), [OddityKind.LINE_COMMENT_NEAR_VALUE], ONLY_1),
        (with_insert(':"s"', "/*c*/"), [OddityKind.COMMENT_BEFORE_COLON], NEITHER),
        (SAMPLE.replace('"s"', "'a\"b'"), [OddityKind.SINGLE_QUOTES], BOTH),
        (SAMPLE.replace('"B@g"', "'B@g'"), [OddityKind.SINGLE_QUOTES], BOTH),
        (SAMPLE.replace('"x"', "x"), [OddityKind.UNQUOTED_NAME], ONLY_1),
        (SAMPLE.replace('"s"}', '"s",}'), [OddityKind.TRAILING_COMMA], BOTH),
        (SAMPLE.replace("{0:7}", "{0:7,}"), [OddityKind.TRAILING_COMMA], BOTH),
        (SAMPLE.replace("[1,2]", "[1,2,]"), [OddityKind.TRAILING_COMMA], BOTH),
        (with_insert('"B@g"', ","), [OddityKind.DOUBLE_COMMA], BOTH),
        ('{"a":1,,"b":2}', [OddityKind.DOUBLE_COMMA_NEAR_VALUE], ONLY_1),
        (with_insert("1:6", ","), [OddityKind.DOUBLE_COMMA_OF_NUMBERS], NEITHER),
        (SAMPLE.replace("[1,2]", "[1,,2]"), [OddityKind.STRAY_COMMA], ONLY_1),
        (SAMPLE.replace("[1,2]", "[,1]"), [OddityKind.STRAY_COMMA], ONLY_1),
        ('{,"a":1}', [OddityKind.STRAY_COMMA], ONLY_1),
        (SAMPLE.replace(',"B@g"', ' "B@g"'), [OddityKind.NO_COMMA], ONLY_2),
        (SAMPLE.replace(",1:6", " 1:6"), [OddityKind.NO_COMMA_OF_NUMBERS], BOTH),
        (SAMPLE.replace("[1,2]", "[1 2]"), [OddityKind.NO_COMMA_IN_LIST], ONLY_1),
        ('{"a":{"$ref":"$.b"}}', [OddityKind.REFERENCE], ONLY_1),
        ('{"a":1,"b":2,"a":3}', [OddityKind.DUPLICATE_NAME], BOTH),
        ("{a:1,/*c*/'b':2,}", [
            OddityKind.UNQUOTED_NAME, OddityKind.BLOCK_COMMENT, OddityKind.SINGLE_QUOTES, OddityKind.TRAILING_COMMA
        ], ONLY_1),
    ],
)  # fmt: skip
def test_oddities_and_who_reads_on(text: str, kinds: list[OddityKind], read_by: tuple[bool, bool]) -> None:
    parsed = parse(text)
    assert [oddity.kind for oddity in parsed.oddities] == kinds
    for dialect, reads in zip((Dialect.FASTJSON_1, Dialect.FASTJSON_2), read_by, strict=True):
        if reads:
            assert parse(text, dialect) == parsed
        else:
            with pytest.raises(FastjsonError, match=f"{dialect} refuses"):
                parse(text, dialect)


def test_every_oddity_is_judged() -> None:
    assert fastjson.ODDITIES.keys() == set(OddityKind)


def test_oddities_say_where() -> None:
    assert parse('{"a":1, "a":2}').oddities == (Oddity(OddityKind.DUPLICATE_NAME, 8),)
    assert parse("{a:1}").oddities == (Oddity(OddityKind.UNQUOTED_NAME, 1),)


def test_the_last_value_of_a_double_name_counts() -> None:
    parsed = parse('{"a":{0:1},"a":{1:6}}')
    assert parsed.value == {"a": {1: 6}}


def test_references_are_values() -> None:
    assert parse('{"a":{"$ref":"$.b"},"b":{"$ref":1},"c":{"$ref":"x","d":1}}').value == {
        "a": Reference("$.b"),
        "b": {"$ref": 1},
        "c": {"$ref": "x", "d": 1},
    }


@pytest.mark.parametrize(
    ("text", "message", "position"),
    [
        ("", "there is no value", 0),
        (" \n", "there is no value", 2),
        ("\0" * 696, "there is no value", 696),
        ("/* never closed", "there is no value", 15),
        (SAMPLE + "}", "there is text after the value", len(SAMPLE)),
        (SAMPLE + " x", "there is text after the value", len(SAMPLE) + 1),
        (SAMPLE + "{}", "there is text after the value", len(SAMPLE)),
        (SAMPLE[:-1], "the text ends inside an object", len(SAMPLE) - 1),
        ('{"a"', "the text ends inside an object", 4),
        ('{"a":', "the text ends where a value is expected", 5),
        ("[1,", "the text ends inside a list", 3),
        ("[", "the text ends inside a list", 1),
        ('{"a', "string without an end", 1),
        ('"a\\', "string without an end", 0),
        ('"a\\"', "string without an end", 0),
        ('"a\\qb"', "unknown escape", 2),
        ('"a\\u12"', "unknown escape", 2),
        ('"a\\uzzzz"', "unknown escape", 2),
        ('{"a" 1}', "a colon is expected", 5),
        ('{"a";1}', "a colon is expected", 4),
        ("{:1}", "a name is expected", 1),
        ("{é:1}", "a name is expected", 1),
        ('{"a":}', "a value is expected", 5),
        ("{]", "a name is expected", 1),
        ("[}", "a value is expected", 1),
        ("nul", "a value is expected", 0),
        ("nullx", "a value is expected", 0),
        ("True", "a value is expected", 0),
        ("NaN", "a value is expected", 0),
        ("--1", "a value is expected", 0),
        ("1x", "a value is expected", 0),
        ("1-1", "a value is expected", 0),
        ("0x10", "a value is expected", 0),
        ("1e", "a value is expected", 0),
        ("٣", "a value is expected", 0),
        ("1e999", "number out of range", 0),
        ("9" * 401, "number of more than 400 digits", 0),
        ("[" * 101, "nested deeper than 100", 100),
        ('{"a":' * 101, "nested deeper than 100", 500),
        ("\ufeff\ufeff{}", "a value is expected", 1),
        (";", "a value is expected", 0),
    ],
)
def test_refusals_say_what_and_where(text: str, message: str, position: int) -> None:
    with pytest.raises(FastjsonError) as caught:
        parse(text)
    assert (caught.value.message, caught.value.position) == (message, position)
    assert str(caught.value) == f"{message} at character {position}"


def test_nesting_up_to_the_bound() -> None:
    depth = fastjson.MAX_DEPTH
    value = parse("[" * depth + "]" * depth).value
    for _ in range(depth - 1):
        (value,) = value
    assert value == []


@pytest.mark.parametrize("end", range(1, len(SAMPLE)))
def test_a_text_cut_anywhere_is_refused(end: int) -> None:
    for dialect in (None, *Dialect):
        with pytest.raises(FastjsonError):
            parse(SAMPLE[:end], dialect)


def test_malformed_bytes_are_replaced_as_java_does() -> None:
    assert parse(b'{"a\xff":"\xed\xa0\x80"}').value == {"a\ufffd": "\ufffd"}
