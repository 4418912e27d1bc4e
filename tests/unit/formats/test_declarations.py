"""Parsing with the declarations themselves: hand-laid bytes give the values, places and texts of the fields."""

from __future__ import annotations

import pytest

from rmqtool.formats import declarations, layouts
from rmqtool.formats.declarations import FIXED, LAYOUTS, VARIABLE, ParsedField, parse_fields
from rmqtool.formats.layout import Layout, LayoutError
from tests.support import builders
from tests.support.builders import BORN_V6_HOST, SAMPLES, STORE_V6_HOST

# Names of the samples whose declaration has one size.
CONSTANTS = {
    value.name: constant
    for constant, value in vars(layouts).items()
    if isinstance(value, Layout) and value.name in FIXED
}


def flat(fields: tuple[ParsedField, ...], prefix: str = "") -> dict[str, object]:
    """The values by name, those of a host under its name, as in the samples."""
    found: dict[str, object] = {}
    for field in fields:
        found |= flat(field.fields, f"{field.name}_") if field.fields else {prefix + field.name: field.value}
    return found


def test_every_fixed_layout_has_a_sample() -> None:
    assert set(CONSTANTS) == set(FIXED)
    assert set(CONSTANTS.values()) <= set(SAMPLES)
    assert LAYOUTS.keys() == FIXED.keys() | VARIABLE.keys()


@pytest.mark.parametrize("name", FIXED)
def test_hand_laid_bytes_have_their_values_places_and_texts(name: str) -> None:
    sample = SAMPLES[CONSTANTS[name]]
    fields = parse_fields(name, sample.data + b"what follows")
    assert tuple(field.value for field in fields) == sample.values
    at = 0
    for field in fields:
        assert (field.offset, field.fields) == (at, ())
        assert len(field.doc) >= 1
        at += field.length
    assert at == len(sample.data)


@pytest.mark.parametrize("prefix", ["V4V4", "V4V6", "V6V4", "V6V6"])
def test_a_record_of_any_hosts(prefix: str) -> None:
    sample = SAMPLES[f"MESSAGE_PREFIX_{prefix}"]
    values = dict(zip(layouts.MessagePrefix._fields, sample.values, strict=True))
    data = sample.data + b"sixteen bytes .." + b"\x01T" + b"\x00\x03a\x01b"
    fields = parse_fields("MessageRecord", data)
    rest = {
        "body": b"sixteen bytes ..",
        "topic_length": 1,
        "topic": b"T",
        "properties_length": 3,
        "properties": b"a\x01b",
    }
    assert flat(fields) == values | rest
    by_name = {field.name: field for field in fields}
    assert (by_name["born_host"].value, by_name["born_host"].offset) == (None, 48)
    born, store = (4 if word == "V4" else 16 for word in (prefix[:2], prefix[2:]))
    assert [(part.name, part.offset, part.length) for part in by_name["store_host"].fields] == [
        ("ip", 60 + born, store),
        ("port", 60 + born + store, 4),
    ]
    assert by_name["properties"].offset + by_name["properties"].length == len(data)


def test_a_topic_of_version_two_has_a_length_of_two_bytes() -> None:
    data = builders.record(
        b"body", b"T", magic=builders.MAGIC_V2, born_host=BORN_V6_HOST, store_host=STORE_V6_HOST, physical_offset=7
    )
    found = {field.name: field for field in parse_fields("MessageRecord", data)}
    assert (found["topic_length"].length, found["topic_length"].value, found["topic"].value) == (2, 1, b"T")
    assert (found["physical_offset"].value, found["body"].offset) == (7, 112)


def test_units_of_a_size_of_their_own() -> None:
    found = {field.name: field.value for field in parse_fields("ConsumeQueueExtUnit", builders.EXAMPLE_EXT_UNIT)}
    assert found == {
        "size": 28,
        "tags_code": 2598919,
        "msg_store_time": 1700000000123,
        "bit_map_size": 8,
        "filter_bit_map": bytes.fromhex("0000000000040201"),
    }
    found = {field.name: field.value for field in parse_fields("BatchItem", builders.EXAMPLE_BATCH)}
    assert (found["body"], found["properties"]) == (b"m1", b"TAGS\x01TagA\x02")


def test_bytes_that_do_not_fit_are_an_error_with_the_layouts_name() -> None:
    with pytest.raises(LayoutError, match="ConsumeQueueUnit does not fit these 19 bytes"):
        parse_fields("ConsumeQueueUnit", bytes(19))
    backwards = builders.EXAMPLE_A[:84] + b"\xff\xff\xff\xff" + builders.EXAMPLE_A[88:]
    with pytest.raises(LayoutError, match="MessageRecord does not fit"):
        parse_fields("MessageRecord", backwards)


def test_a_program_builds_what_it_parsed() -> None:
    unit = declarations.CONSUME_QUEUE_UNIT.parse(SAMPLES["CONSUME_QUEUE_UNIT"].data)
    assert declarations.CONSUME_QUEUE_UNIT.build(dict(unit, size=204)) == bytes.fromhex(
        "0000000000000400 000000cc ffffffffbe14d05d"
    )
