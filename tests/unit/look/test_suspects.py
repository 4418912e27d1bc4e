"""Suspects: what is damaged on purpose is named, and nothing is named where it cannot be known."""

from __future__ import annotations

import random
import struct

import pytest

from rmqtool.files.posix import PosixReadableFileSystem
from rmqtool.formats.paths import FileKind, StorePath
from rmqtool.look.dump import dump_file
from rmqtool.look.suspects import find_in_checksum, find_suspects, find_wrong_field
from tests.support.builders import crc31, properties, record, record_with_property_crc

BODY = b'{"order": 4711, "tea": "Sencha", "amount": 12.50}'
BODY_AT = 88
TOPIC = b"Orders"
TEXT = properties(("KEYS", "order-4711"), ("TAGS", "paid"))


def changed(data, at, new):
    return data[:at] + new + data[at + len(new) :]


def regions_of(tmp_path, *records):
    path = tmp_path / f"{0:020}"
    path.write_bytes(b"".join(records).ljust(8192, b"\0"))
    files = PosixReadableFileSystem(str(tmp_path))
    with files.open_read(path.name) as file:
        return list(dump_file(file, StorePath(FileKind.COMMIT_LOG, base_offset=0)).regions)


def wrong_in(region):
    inside = [found for child in region.children for found in wrong_in(child)]
    return [region, *inside] if region.right is False else inside


def test_one_changed_byte_is_found_wherever_it_is():
    draw = random.Random(5)
    for _ in range(100):
        data = draw.randbytes(draw.randrange(1, 400))
        at, bits = draw.randrange(len(data)), draw.randrange(1, 256)
        found = find_suspects(changed(data, at, bytes([data[at] ^ bits])), crc31(data))
        assert [(one.at, one.length) for one in found] == [(at, 1)]
        assert found[0].words.startswith(f"was {data[at]:02x}")


def test_two_neighbours_are_found():
    found = find_suspects(changed(BODY, 10, b"xy"), crc31(BODY))
    assert [(one.at, one.length, one.words) for one in found] == [(10, 2, "was 34 37 '47', if nothing else changed")]


def test_many_changed_letters_cannot_be_told():
    assert find_suspects(changed(BODY, 10, b"abcdefg"), crc31(BODY)) == []


@pytest.mark.parametrize(
    ("at", "new", "words"),
    [
        (12, bytes(9), "9 zeros"),
        (12, b"\xff\x00\xfe\x01\x02\xff\xfe", "not text"),
        (12, record(b"x")[:24], "another record begins here"),
    ],
)
def test_bytes_that_do_not_belong_are_named(at, new, words):
    found = find_suspects(changed(BODY, at, new), crc31(BODY))
    assert found[0].at == at
    assert found[0].words.startswith(words)


def test_zeros_from_a_page_on_are_a_page_that_was_not_written():
    data = random.Random(1).randbytes(3000)
    found = find_suspects(data[:596] + bytes(512) + data[1108:], crc31(data), base=3500)
    assert [(one.at, one.length) for one in found] == [(596, 512)]
    assert found[0].words == "512 zeros; in pages of 512 bytes, 4096 to 4607 were not written"
    found = find_suspects(data[:80] + bytes(520) + data[600:], crc31(data), base=3500)
    assert found[0].words == "520 zeros; in pages of 512 bytes, 3584 to 4095 were not written"


def test_a_changed_byte_of_the_checksum_itself_is_named():
    stored = struct.pack(">i", crc31(BODY) ^ 0x4200)
    assert (
        find_in_checksum(BODY, stored)
        == f"byte 2 of the checksum was {crc31(BODY) >> 8 & 0xFF:02x}, if nothing else changed"
    )
    assert find_in_checksum(changed(BODY, 3, b"!"), struct.pack(">i", crc31(BODY))) is None


@pytest.mark.parametrize(
    ("name", "at", "new", "value"),
    [
        ("totalSize", 0, b"\0\0\x05\0", None),
        ("totalSize", 0, bytes(3) + b"\x09", None),
        ("magic", 4, b"\xff", "0xdaa320a7"),
        ("sysFlag", 36, b"\0\0\0\x10", "0"),
        ("bodyLength", 84, b"\0\0\0\x03", str(len(BODY))),
        ("bodyLength", 84, b"\xff\xff\xff\xff", str(len(BODY))),
        ("topicLength", BODY_AT + len(BODY), b"\x7f", str(len(TOPIC))),
        ("propertiesLength", BODY_AT + len(BODY) + 1 + len(TOPIC), b"\x11\x11", str(len(TEXT))),
    ],
)
def test_the_one_field_that_is_wrong_is_named_with_its_value(tmp_path, name, at, new, value):
    sound = record(BODY, TOPIC, TEXT)
    value = value or str(len(sound))
    found = find_wrong_field(changed(sound, at, new), 0)
    assert found is not None
    assert (found.name, found.data) == (name, sound)
    following = record(BODY, TOPIC, TEXT, physical_offset=len(sound), queue_offset=1)
    damaged, after, _ = regions_of(tmp_path, changed(sound, at, new), following)
    assert (damaged.kind, damaged.length, after.kind) == ("damage", len(sound), "record")
    top, wrong = wrong_in(damaged)
    assert top is damaged
    assert (wrong.label, wrong.words) == (name, f"with {value} here the record is whole and its checksum right")


def test_two_wrong_fields_are_not_guessed():
    sound = record(BODY, TOPIC, TEXT)
    assert find_wrong_field(changed(changed(sound, 4, b"\xff"), 87, b"\x01"), 0) is None


def test_a_damaged_body_is_marked_and_its_checksum_says_what_it_covers(tmp_path):
    sound = record(BODY, TOPIC, TEXT)
    region, _ = regions_of(tmp_path, changed(sound, BODY_AT + 20, b"T"))
    found = {one.label: one for one in wrong_in(region)}
    assert set(found) == {"message V1", "bodyCRC", "body", "suspect"}
    assert found["suspect"].offset == BODY_AT + 20
    assert found["suspect"].words == "was 22 '\"', if nothing else changed"
    assert (
        f"some of the {len(BODY)} bytes 88 to {88 + len(BODY) - 1} changed, or the checksum itself"
        in found["bodyCRC"].words
    )


def test_a_damaged_checksum_leaves_the_body_alone(tmp_path):
    region, _ = regions_of(tmp_path, changed(record(BODY, TOPIC, TEXT), 9, b"\0"))
    assert [one.label for one in wrong_in(region)] == ["message V1", "bodyCRC"]


def test_a_property_checksum_names_the_field_that_changed(tmp_path):
    sound = record_with_property_crc(record(BODY, TOPIC, TEXT))
    at = sound.index(b"4711\x02") + 2
    region, _ = regions_of(tmp_path, changed(sound, at, b"9"))
    labels = [one.label for one in wrong_in(region)]
    assert labels == ["message V1", "KEYS", "__CRC32#"]
    assert "was 31 '1', if nothing else changed" in wrong_in(region)[1].words


def test_a_field_that_no_broker_writes_is_marked(tmp_path):
    region, _ = regions_of(tmp_path, changed(record(BODY, TOPIC, TEXT), 36, b"\x10"))
    top, wrong = wrong_in(region)
    assert (top.label, wrong.label, wrong.words) == (
        "message V1",
        "sysFlag",
        "the system flag 0x10000000 has undefined bits",
    )


def test_two_records_that_a_page_of_zeros_covers_are_cut_where_it_begins(tmp_path):
    sound = [record(BODY * 9, TOPIC, TEXT, physical_offset=at, queue_offset=at) for at in (0, 564, 1128, 1692)]
    assert len(sound[0]) == 564
    whole = b"".join(sound)
    first, *_ = [one for one in regions_of(tmp_path, whole[:512], bytes(512), whole[1024:]) if one.kind == "damage"]
    assert [(one.label, one.offset) for one in wrong_in(first)] == [("CL-LEN", 0), ("suspect", 512)]
    assert wrong_in(first)[1].words.endswith("zeros; in pages of 512 bytes, 512 to 1023 were not written")


def test_zeros_where_a_record_was_are_told(tmp_path):
    sound = record(BODY, TOPIC, TEXT)
    following = record(BODY, TOPIC, TEXT, physical_offset=len(sound), queue_offset=1)
    damaged, _, _ = regions_of(tmp_path, changed(sound, 100, bytes(len(sound) - 100)), following)
    assert [(one.label, one.offset, one.words) for one in wrong_in(damaged)[1:]] == [
        ("suspect", 100, f"{len(sound) - 100} zeros")
    ]
