"""What is whole of a configuration file that was cut, or goes on after its end: never more than was there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rmqtool.formats.config_files import Decoded, decode_config, salvage_config
from rmqtool.formats.fastjson import whole_part

FIELDS = {
    "topics.json": "topicConfigTable",
    "subscriptionGroup.json": "subscriptionGroupTable",
    "consumerOffset.json": "offsetTable",
    "delayOffset.json": "offsetTable",
}


def table_of(name: str, data: bytes) -> dict[Any, Any]:
    decoded = decode_config(name, data)
    assert isinstance(decoded, Decoded)
    table: dict[Any, Any] = decoded.value[FIELDS[name]]
    return table


def texts(root: Path) -> list[tuple[str, bytes]]:
    return [(name, (root / "config" / name).read_bytes()) for name in FIELDS]


def test_a_file_that_is_cut_anywhere_keeps_what_is_whole_and_nothing_else(store):
    for name, data in texts(store("53-broker")):
        whole, most = table_of(name, data), 0
        assert whole
        for end in (*range(0, len(data), 13), len(data.rstrip()) - 1):
            salvaged = salvage_config(name, data[:end])
            if salvaged is None:
                continue
            assert (salvaged.is_complete, salvaged.end <= end) == (False, True)
            left = salvaged.value[FIELDS[name]]
            assert left == table_of(name, salvaged.data)
            for key, value in left.items():
                # A queue's offset is whole by itself; settings are whole only together.
                part = name == "consumerOffset.json"
                assert (value.items() <= whole[key].items()) if part else value == whole[key], (name, end, key)
            assert len(left) >= most, (name, end)
            most = len(left)
        assert most >= len(whole) - 1, name


@pytest.mark.parametrize("rest", [b"}", b"\0", b"x", b" {}", b"\xff\xff", b'"a":1}'])
def test_a_file_that_goes_on_after_its_end_keeps_all(rest, store):
    for name, data in texts(store("53-broker")):
        salvaged = salvage_config(name, data + rest)
        if rest == b"\0":  # readers pass over it, so nothing is wrong
            assert salvaged is None
            continue
        assert salvaged is not None
        assert (salvaged.is_complete, salvaged.end, salvaged.data) == (True, len(data), data)


@pytest.mark.parametrize(
    ("text", "most_open", "expected"),
    [
        ('{"a":{"b":1,"c":2', 9, '{"a":{"b":1}}'),  # 2 may be 23
        ('{"a":{"b":1,"c":2}', 9, '{"a":{"b":1,"c":2}}'),
        ('{"a":{"b":1,"c":2}', 1, None),  # whether more follows "a" is not known
        ('{"a":{"b":1,"c":2},', 1, '{"a":{"b":1,"c":2}}'),
        ('{"a":[1,2,3', 9, '{"a":[1,2]}'),
        ("{3:5,4:12\0\0\0", 9, "{3:5}"),
        ('{"a":"x', 9, None),
        ("", 9, None),
        ("{", 9, None),
        ('{"a":1}', 9, None),  # it parses
    ],
)
def test_where_a_text_is_cut(text, most_open, expected):
    found = whole_part(text, most_open)
    assert (None if found is None else found.text) == expected
