"""Writing JSON byte for byte. ``tests/golden/fastjson`` holds what fastjson 1.2.83 and 2.0.43 made of one object."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rmqtool.formats import fastjson
from rmqtool.formats.fastjson import (
    ANY,
    Bean,
    BeanField,
    Dialect,
    JavaType,
    Kind,
    Reference,
    Sequence,
    Shape,
    Style,
    Table,
    write,
)
from rmqtool.formats.java import encode_text

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "fastjson"
FILES = {
    (Dialect.FASTJSON_1, Style.PRETTY): "1-pretty.json",
    (Dialect.FASTJSON_1, Style.COMPACT): "1-compact.json",
    (Dialect.FASTJSON_1, Style.BROWSER): "1-browser.json",
    (Dialect.FASTJSON_2, Style.PRETTY): "2-pretty.json",
    (Dialect.FASTJSON_2, Style.COMPACT): "2-compact.json",
    (Dialect.FASTJSON_2, Style.BROWSER): "2-browser.json",
}

NUMBERS = Bean({"n": BeanField(ANY)})
SHAPE = Bean(
    {
        "array": BeanField(Sequence(ANY, Kind.ARRAY)),
        "beanSet": BeanField(Sequence(NUMBERS, Kind.SET)),
        "beans": BeanField(Sequence(Bean({"s": BeanField(ANY), "z": BeanField(ANY)}))),
        "deep": BeanField(Table(NUMBERS, 16, JavaType.INT)),
        "deepLists": BeanField(Table(Sequence(NUMBERS), 16, JavaType.INT)),
        "longs": BeanField(Sequence(ANY)),
        "noArray": BeanField(Sequence(ANY, Kind.ARRAY)),
        "noBeans": BeanField(Sequence(NUMBERS)),
        "noLongs": BeanField(Sequence(ANY)),
        "noMap": BeanField(Table(ANY)),
        "noTexts": BeanField(Sequence(ANY, Kind.SET)),
        "none": BeanField(Table(NUMBERS)),
        "numbers": BeanField(Table(ANY, 16, JavaType.INT)),
        "textSet": BeanField(Sequence(ANY, Kind.SET)),
        "texts": BeanField(Sequence(ANY)),
    }
)
VALUE: dict[str, Any] = {
    "array": [1, 2],
    "beanSet": [{"n": 1}, {"n": 2}],
    "beans": [{"s": 'a/é中\U0001f600\x7f\u2028\x01\x1f"\\\b\f\n\r\t', "z": 1}],
    "deep": {0: {"n": 1}, 7: {"n": 2}},
    "deepLists": {0: [{"n": 1}, {"n": 2}]},
    "flag": True,
    "least": -(1 << 53),
    "longs": [1, 2],
    "noArray": [],
    "noBeans": [],
    "noLongs": [],
    "noMap": {},
    "noTexts": [],
    "none": {"x": None},
    "numbers": {3: 5, 0: 6},
    "safe": (1 << 53) - 1,
    "textSet": ["a", "b"],
    "texts": ["a", "b"],
    "unsafe": 1 << 53,
}


@pytest.mark.parametrize(("dialect", "style"), FILES)
def test_an_object_with_everything(dialect: Dialect, style: Style) -> None:
    golden = (GOLDEN / FILES[dialect, style]).read_bytes()
    assert encode_text(write(VALUE, SHAPE, dialect, style)) == golden


@pytest.mark.parametrize(("dialect", "style"), FILES)
def test_what_is_written_is_read_without_oddities(dialect: Dialect, style: Style) -> None:
    parsed = fastjson.parse((GOLDEN / FILES[dialect, style]).read_bytes(), dialect)
    assert parsed.oddities == ()
    assert parsed.value["beans"] == VALUE["beans"]
    assert list(parsed.value) == list(VALUE)
    numeric = style is not Style.BROWSER
    assert parsed.value["numbers"] == ({3: 5, 0: 6} if numeric else {"3": 5, "0": 6})


def escapes(dialect: Dialect, style: Style) -> dict[int, str]:
    """Return the BMP characters that are not written as they are."""
    texts = {code: write(chr(code), ANY, dialect, style)[1:-1] for code in range(0x10000)}
    return {code: text for code, text in texts.items() if text != chr(code)}


SHORT = {8: "\\b", 9: "\\t", 10: "\\n", 12: "\\f", 13: "\\r", 34: '\\"', 92: "\\\\"}
CONTROLS = [code for code in range(32) if code not in SHORT]


def test_characters_that_each_library_escapes() -> None:
    """Counted over all characters with the libraries themselves."""
    upper = {code: f"\\u{code:04X}" for code in [*CONTROLS, *range(0x7F, 0xA0), 0x2028, 0x2029]}
    for style in (Style.PRETTY, Style.COMPACT):
        assert escapes(Dialect.FASTJSON_1, style) == SHORT | upper
    everything = {code: f"\\u{code:04X}" for code in [*CONTROLS, *range(0x7F, 0x10000)]}
    assert escapes(Dialect.FASTJSON_1, Style.BROWSER) == SHORT | everything | {47: "\\/"}
    lower = {code: f"\\u{code:04x}" for code in CONTROLS}
    for style in Style:
        assert escapes(Dialect.FASTJSON_2, style) == SHORT | lower


@pytest.mark.parametrize(
    ("value", "shape", "dialect", "text"),
    [
        ({}, ANY, Dialect.FASTJSON_1, "{}"),
        ({}, ANY, Dialect.FASTJSON_2, "{\n\t\n}"),
        ({0: {1: 2}}, ANY, Dialect.FASTJSON_1, "{0:{1:2\n\t}\n}"),
        ({0: {1: 2}}, ANY, Dialect.FASTJSON_2, "{\n\t0:{\n\t\t1:2\n\t}\n}"),
        ([[1], {"a": []}], ANY, Dialect.FASTJSON_1, '[\n\t[\n\t\t1\n\t],\n\t{\n\t\t"a":[]\n\t}\n]'),
        ([[1], {"a": []}], ANY, Dialect.FASTJSON_2, '[\n\t[1],\n\t{\n\t\t"a":[]\n\t}\n]'),
        (Reference("$.a"), ANY, Dialect.FASTJSON_1, '{\n\t"$ref":"$.a"\n}'),
        ([None, False, 1.5], ANY, Dialect.FASTJSON_2, "[null,false,1.5]"),
        ("\ud800", ANY, Dialect.FASTJSON_1, '"\ud800"'),
    ],
)
def test_values_of_unknown_shape(value: Any, shape: Shape, dialect: Dialect, text: str) -> None:
    assert write(value, shape, dialect) == text
