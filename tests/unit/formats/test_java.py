"""Java's text rules: every expectation was answered by ``new String(bytes, UTF_8)`` of a JDK 17."""

from __future__ import annotations

import pytest

from rmqtool.formats.java import decode_text, int64

R = "\ufffd"


@pytest.mark.parametrize(
    ("stored", "text"),
    [
        ("eda080", R),
        ("eda0", R),
        ("edbf", R),
        ("eda0ee", R + R),
        ("e0eda0", R + R),
        ("eda0ff", R + R),
        ("eda041", R + "A"),
        ("ed80", R),
        ("edbfbf41", R + "A"),
        ("e4b841", R + "A"),
        ("f09f98", R),
        ("c0af", R + R),
        ("ff", R),
        ("f09f9880", "\U0001f600"),
    ],
)
def test_malformed_input_is_replaced_as_java_replaces_it(stored: str, text: str) -> None:
    assert decode_text(bytes.fromhex(stored)) == text


@pytest.mark.parametrize(
    ("value", "wrapped"),
    [
        (0, 0),
        ((1 << 63) - 1, (1 << 63) - 1),
        (1 << 63, -(1 << 63)),
        (-(1 << 63) - 1, (1 << 63) - 1),
        (20 << 60, 1 << 62),
    ],
)
def test_a_long_wraps(value: int, wrapped: int) -> None:
    assert int64(value) == wrapped
