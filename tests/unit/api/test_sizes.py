from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtool.api.export import ACCEPTED, parse_size
from rmqtool.errors import UsageError


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("65536", 65536),
        ("1_000_000", 1_000_000),
        ("100b", 100),
        ("1g", 1 << 30),
        ("1G", 1 << 30),
        ("64k", 65536),
        ("64KiB", 65536),
        ("64 KiB", 65536),
        ("64KB", 65536),
        ("1.5GiB", 3 << 29),
        ("0.5k", 512),
        ("2t", 2 << 40),
        ("1p", 1 << 50),
        ("0x10000", 65536),
        ("0X_ff", 255),
        (" 4m ", 4 << 20),
    ],
)
def test_a_size_as_people_type_it(text: str, number: int) -> None:
    assert parse_size(text) == number


@pytest.mark.parametrize(
    "text",
    ["", "k", "-1", "1.5", "0.1k", "1kk", "1x", "64 K iB", "0x", "0xg", "0x_", "1e3", "1,000", "１", "1.k", ".5k"],
)
def test_what_is_no_size_is_shown_what_is(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_size(text)
    assert caught.value.message == f'"{text}" is not a size in bytes'
    assert caught.value.hint == ACCEPTED


def test_every_example_of_the_hint_is_taken() -> None:
    for example in ACCEPTED.partition(";")[0].removeprefix("Try ").split(", "):
        parse_size(example)


@given(st.integers(0, 1 << 40), st.sampled_from(["", "k", "MiB", "gb"]))
def test_a_whole_number_of_a_unit_is_exact(number: int, unit: str) -> None:
    assert parse_size(f"{number}{unit}") == number * {"": 1, "k": 1 << 10, "MiB": 1 << 20, "gb": 1 << 30}[unit]
