"""Commit log records: every form, every tolerance, every flaw with its code and place."""

from __future__ import annotations

import mmap
import pickle
from collections.abc import Callable

import pytest

from rmqtool.formats import commit_log, layouts
from rmqtool.formats.commit_log import (
    Blank,
    Message,
    Nothing,
    check_record,
    decode_record,
    encode_blank,
    encode_message,
    record_size,
)
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.layout import LayoutError
from tests.support import builders
from tests.support.builders import EXAMPLE_A, EXAMPLE_B, EXAMPLE_C, EXAMPLE_D, MAGIC_V1, MAGIC_V2, record

HOSTS = {
    "v4v4": (builders.BORN_V4_HOST, builders.STORE_V4_HOST, 88),
    "v4v6": (builders.BORN_V4_HOST, builders.STORE_V6_HOST, 100),
    "v6v4": (builders.BORN_V6_HOST, builders.STORE_V4_HOST, 100),
    "v6v6": (builders.BORN_V6_HOST, builders.STORE_V6_HOST, 112),
}


def decoded(data: bytes) -> Message:
    message = decode_record(data)
    assert isinstance(message, Message)
    return message


def put(data: bytes, at: int, new: str) -> bytes:
    """``data`` with the bytes at ``at`` replaced."""
    raw = bytes.fromhex(new)
    return data[:at] + raw + data[at + len(raw) :]


def flaws(data: bytes, physical_offset: int | None = None) -> list[Flaw]:
    return list(check_record(decoded(data), data, 0, physical_offset))


def test_example_a() -> None:
    message = decoded(EXAMPLE_A)
    assert message._asdict() == {
        "total_size": 203,
        "magic": MAGIC_V1,
        "body_crc": 1250039395,
        "queue_id": 1,
        "flag": 0,
        "queue_offset": 5,
        "physical_offset": 1024,
        "sys_flag": 0,
        "born_timestamp": 1700000000000,
        "born_host_ip": bytes([192, 168, 1, 10]),
        "born_host_port": 54321,
        "store_timestamp": 1700000000123,
        "store_host_ip": bytes([192, 168, 1, 20]),
        "store_host_port": 10911,
        "reconsume_times": 0,
        "prepared_transaction_offset": 0,
        "body_length": 16,
        "raw_body": b"Hello RocketMQ 2",
        "raw_topic": b"TopicTest",
        "raw_properties": EXAMPLE_A[0x74:],
    }
    assert message.topic == "TopicTest"
    assert (message.tags, message.keys, message.uniq_key) == ("TagA", "order-1", "C0A8010A10E118B4AAC247B760000007")
    assert message.properties == {
        "KEYS": "order-1",
        "UNIQ_KEY": "C0A8010A10E118B4AAC247B760000007",
        "CLUSTER": "DefaultCluster",
        "TAGS": "TagA",
    }
    assert flaws(EXAMPLE_A, 1024) == []


def test_example_b_has_the_same_properties_and_one_more() -> None:
    message = decoded(EXAMPLE_B)
    assert message.total_size == 214
    assert message.properties == decoded(EXAMPLE_A).properties | {"WAIT": "true"}
    assert flaws(EXAMPLE_B, 1024) == []


def test_example_c_carries_its_own_checksum() -> None:
    message = decoded(EXAMPLE_C)
    assert message.total_size == 234
    assert message.properties["__CRC32#"] == "7638448202"
    assert flaws(EXAMPLE_C, 1024) == []


def test_example_d_is_empty_with_long_hosts() -> None:
    message = decoded(EXAMPLE_D)
    assert (message.sys_flag, message.total_size, message.body_length) == (0x30, 124, 0)
    assert message.born_host_ip == bytes.fromhex("fe800000000000000000000000000001")
    assert (message.born_host_port, message.store_host_port) == (54321, 10911)
    assert (message.raw_body, message.topic, message.raw_properties, message.properties) == (b"", "TopicTest", b"", {})
    assert (message.tags, message.keys, message.uniq_key) == (None, None, None)
    assert flaws(EXAMPLE_D, 1024) == []


@pytest.mark.parametrize("magic", [MAGIC_V1, MAGIC_V2])
@pytest.mark.parametrize("hosts", HOSTS)
@pytest.mark.parametrize("body", [b"", b"body"])
def test_every_form(magic: int, hosts: str, body: bytes) -> None:
    born, store, prefix = HOSTS[hosts]
    topic = b"%RETRY%" + b"g" * (200 if magic == MAGIC_V2 else 120)
    text = builders.properties(("TAGS", "a"), ("KEYS", "k1 k2"))
    data = record(body, topic, text, magic=magic, born_host=born, store_host=store, physical_offset=7, queue_offset=-1)
    for place in (0, 5):
        message = decode_record(b"\xee" * place + data + b"\xee" * 9, place)
        assert isinstance(message, Message)
        assert (message.raw_body, message.raw_topic, message.raw_properties) == (body, topic, text)
        assert (message.born_host_ip, message.store_host_ip) == (born.ip, store.ip)
        assert message.queue_offset == -1
        assert encode_message(message) == data
        assert (
            message.total_size
            == len(data)
            == prefix + len(body) + len(topic) + len(text) + (3 if magic == MAGIC_V1 else 4)
        )
        assert record_size(message.sys_flag, magic, len(body), len(topic), len(text)) == len(data)
    assert flaws(data, 7) == []


def test_the_smallest_record_and_the_longest_lengths() -> None:
    assert decoded(record(topic=b"")).total_size == 91 == commit_log.MIN_RECORD_SIZE
    assert decoded(record(topic=b"t" * 127)).topic == "t" * 127
    assert decoded(record(topic=b"t" * 32767, magic=MAGIC_V2)).topic == "t" * 32767
    assert decoded(record(property_text=b"x" * 32767)).raw_properties == b"x" * 32767


def kinds_of_buffer(data: bytes) -> dict[str, bytes | bytearray | memoryview | mmap.mmap]:
    mapped = mmap.mmap(-1, len(data))
    mapped.write(data)
    return {"bytes": data, "bytearray": bytearray(data), "memoryview": memoryview(data), "mmap": mapped}


@pytest.mark.parametrize("kind", ["bytes", "bytearray", "memoryview", "mmap"])
def test_any_buffer_gives_bytes(kind: str) -> None:
    data = kinds_of_buffer(EXAMPLE_A + EXAMPLE_D)[kind]
    for place, expected in ((0, EXAMPLE_A), (len(EXAMPLE_A), EXAMPLE_D)):
        message = decode_record(data, place)  # type: ignore[arg-type]
        assert isinstance(message, Message)
        assert {type(part) for part in (message.raw_body, message.raw_topic, message.raw_properties)} == {bytes}
        assert encode_message(message) == expected
        assert list(check_record(message, data, place, 1024)) == []  # type: ignore[arg-type]


def test_message_survives_pickle_and_replace() -> None:
    message = decoded(EXAMPLE_A)
    assert message.topic == "TopicTest"
    again = pickle.loads(pickle.dumps(message))
    assert type(again) is Message
    assert again == message
    assert again._replace(queue_id=3).queue_id == 3


def test_blank() -> None:
    data = builders.blank(512) + b"stale bytes of before"
    assert decode_record(data) == Blank(512)
    assert encode_blank(512) == data[:8] == bytes.fromhex("00000200cbd43194")
    # Its length is not trusted and not judged here.
    assert decode_record(builders.blank(-5)) == Blank(-5)
    assert decode_record(builders.blank(1 << 30)) == Blank(1 << 30)


@pytest.mark.parametrize("length", range(8))
def test_too_few_bytes_for_anything(length: int) -> None:
    assert decode_record(EXAMPLE_A[:length]) == Nothing(length)
    assert decode_record(EXAMPLE_A, 0, length) == Nothing(length)


def test_nothing_was_written() -> None:
    assert decode_record(bytes(4096)) == Nothing(4096)
    assert decode_record(bytes(4096), 4000) == Nothing(96)
    assert decode_record(bytes(4096), 4000, 4090) == Nothing(90)
    assert decode_record(bytes(8)) == Nothing(8)


@pytest.mark.parametrize("place", [-1, -203, -1000, 203, 204, 10_000])
def test_a_place_outside_the_bytes(place: int) -> None:
    assert decode_record(EXAMPLE_A, place) == Nothing(0)


def test_nothing_behind_the_end_is_looked_at() -> None:
    data = EXAMPLE_A + EXAMPLE_A
    assert isinstance(decode_record(data, 0, 203), Message)
    assert decode_record(data, 0, 202) == Flaw("CL-LEN", "size 203 is more than the 202 bytes left", 0, 202)
    # An end beyond the bytes is the end of the bytes.
    assert decode_record(EXAMPLE_A[:200], 0, 5000) == Flaw("CL-LEN", "size 203 is more than the 200 bytes left", 0, 200)
    assert isinstance(decode_record(EXAMPLE_A, 0, 5000), Message)


@pytest.mark.parametrize("length", range(8, 203))
def test_truncated_record(length: int) -> None:
    assert decode_record(EXAMPLE_A[:length]) == Flaw(
        "CL-LEN", f"size 203 is more than the {length} bytes left", 0, length
    )


@pytest.mark.parametrize(
    ("data", "message", "length"),
    [
        (put(EXAMPLE_A, 0, "00000000"), "size 0 is below the smallest record's 91", 8),
        (put(EXAMPLE_A, 0, "0000005a"), "size 90 is below the smallest record's 91", 8),
        (put(EXAMPLE_A, 0, "ffffffff"), "size -1 is below the smallest record's 91", 8),
        (put(EXAMPLE_A, 0, "80000000"), "size -2147483648 is below the smallest record's 91", 8),
        (put(EXAMPLE_A, 0, "7fffffff"), "size 2147483647 is more than the 203 bytes left", 203),
        (put(EXAMPLE_A, 0, "000000cc"), "size 204 is more than the 203 bytes left", 203),
        (put(EXAMPLE_A, 0, "000000ca"), "the record header says 202 bytes, its fields add up to 203", 202),
        (put(EXAMPLE_A, 0x54, "80000000"), "body length -2147483648 is more than the record size 203 allows", 203),
        (put(EXAMPLE_A, 0x54, "ffffffff"), "body length -1 is more than the record size 203 allows", 203),
        (put(EXAMPLE_A, 0x54, "7fffffff"), "body length 2147483647 is more than the record size 203 allows", 203),
        (put(EXAMPLE_A, 0x54, "00000071"), "body length 113 is more than the record size 203 allows", 203),
        (put(EXAMPLE_A, 0x68, "ff"), "topic length -1 is more than the record size 203 allows", 203),
        (put(EXAMPLE_A, 0x68, "61"), "topic length 97 is more than the record size 203 allows", 203),
        (put(EXAMPLE_A, 0x72, "0056"), "the record header says 203 bytes, its fields add up to 202", 203),
        (put(EXAMPLE_A, 0x72, "0058"), "the record header says 203 bytes, its fields add up to 204", 203),
        (put(EXAMPLE_A, 0x72, "8057"), f"the record header says 203 bytes, its fields add up to {203 - 32768}", 203),
        (put(EXAMPLE_A, 0x72, "ffff"), "the record header says 203 bytes, its fields add up to 115", 203),
        (put(record(topic=b""), 84, "00000001"), "body length 1 is more than the record size 91 allows", 91),
        (put(record(b"12345", b""), 93, "01"), "topic length 1 is more than the record size 96 allows", 96),
        (put(record(topic=b"ttt"), 92, "0001"), "the record header says 94 bytes, its fields add up to 95", 94),
        # A host bit too many: the length is read 12 bytes later, where "cket" of the body stands.
        (put(EXAMPLE_A, 0x24, "00000010"), "body length 1667982708 is more than the record size 203 allows", 203),
        (
            put(record(topic=b""), 0x24, "00000030"),
            "size 91 is below the 115 that these hosts and this version need",
            91,
        ),
        (
            put(record(topic=b""), 4, f"{MAGIC_V2:08x}"),
            "size 91 is below the 92 that these hosts and this version need",
            91,
        ),
        (
            put(record(topic=b"t" * 9, magic=MAGIC_V2), 88, "ffff"),
            "topic length -1 is more than the record size 101 allows",
            101,
        ),
        (
            put(record(topic=b"t" * 9, magic=MAGIC_V2), 88, "7fff"),
            "topic length 32767 is more than the record size 101 allows",
            101,
        ),
    ],
)
def test_lengths_that_do_not_fit(data: bytes, message: str, length: int) -> None:
    assert decode_record(data) == Flaw("CL-LEN", message, 0, length)


@pytest.mark.parametrize(("length", "read_as"), [(128, -128), (200, -56), (255, -1)])
def test_a_topic_length_above_127_is_negative_in_version_1(length: int, read_as: int) -> None:
    size = 91 + length
    data = size.to_bytes(4, "big") + record()[4:88] + bytes([length]) + b"t" * length + bytes(2)
    text = f"topic length {read_as} is more than the record size {size} allows"
    assert decode_record(data) == Flaw("CL-LEN", text, 0, size)


@pytest.mark.parametrize("length", [32768, 40000, 65535])
def test_a_properties_length_above_32767_is_negative(length: int) -> None:
    size = 91 + length
    data = size.to_bytes(4, "big") + record(topic=b"")[4:89] + length.to_bytes(2, "big") + bytes(length)
    assert len(data) == size
    assert decode_record(data) == Flaw(
        "CL-LEN", f"the record header says {size} bytes, its fields add up to {size - 65536}", 0, size
    )


@pytest.mark.parametrize(
    "magic", ["00000000", "daa320a6", "daa320aa", "cbd43195", "daa220a7", "ffffffff", "00000001", "daa320af"]
)
def test_unknown_magic(magic: str) -> None:
    assert decode_record(put(EXAMPLE_A, 4, magic)) == Flaw("CL-MAGIC", f"magic 0x{magic} is not a record magic", 0, 8)


def test_a_size_of_zero_alone_is_not_nothing() -> None:
    assert decode_record(b"\0\0\0\0\0\0\0\1" + bytes(100)) == Flaw(
        "CL-MAGIC", "magic 0x00000001 is not a record magic", 0, 8
    )
    assert decode_record(b"\0\0\0\1" + bytes(100)) == Flaw("CL-MAGIC", "magic 0x00000000 is not a record magic", 0, 8)


def test_a_torn_record_keeps_its_structure_and_fails_its_checksum() -> None:
    data = record(b"x" * 400, property_text=builders.properties(("TAGS", "a")))
    torn = data[:300] + bytes(100) + data[400:]
    (flaw,) = flaws(torn, 0)
    assert (flaw.code, flaw.at, flaw.length) == ("CL-CRC", 88, 400)


@pytest.mark.parametrize(("hosts", "body_at"), [(name, prefix) for name, (_, _, prefix) in HOSTS.items()])
def test_body_checksum(hosts: str, body_at: int) -> None:
    born, store, _ = HOSTS[hosts]
    data = record(b"hello", born_host=born, store_host=store)
    assert flaws(data) == []
    assert flaws(put(data, body_at + 4, "00")) == [
        Flaw("CL-CRC", "body checksum 0x6b1dda4f, the record says 0x3610a686", body_at, 5)
    ]
    assert flaws(put(data, 8, "b610a686")) == [
        Flaw("CL-CRC", "body checksum 0x3610a686, the record says 0xb610a686", body_at, 5)
    ]
    # CommitLog.checkMessageAndReturnSize and MessageDecoder.decode compare where there is a body.
    assert flaws(record(b"", body_crc=1)) == []


def test_place() -> None:
    assert flaws(EXAMPLE_A, 1024) == []
    assert flaws(EXAMPLE_A, None) == []
    assert flaws(EXAMPLE_A, 1025) == [Flaw("CL-PHY", "the record is at 1025, but names 1024 as its offset", 28, 8)]
    assert flaws(EXAMPLE_A, 0) == [Flaw("CL-PHY", "the record is at 0, but names 1024 as its offset", 28, 8)]


@pytest.mark.parametrize("at", [12, 20, 28, 40, 56, 0x70, 0x7A, 0xD4])
def test_property_checksum_covers_the_whole_record(at: int) -> None:
    changed = EXAMPLE_C[:at] + bytes([EXAMPLE_C[at] ^ 1]) + EXAMPLE_C[at + 1 :]
    (flaw,) = flaws(changed)
    assert (flaw.code, flaw.at, flaw.length) == ("CL-CRC", 214, 20)
    assert flaw.message.startswith("property checksum 2028448367, the bytes of the record give ")


def test_property_checksum_at_another_place_in_a_buffer() -> None:
    data = b"\x01" * 77 + EXAMPLE_C + b"\x02" * 5
    message = decode_record(data, 77)
    assert isinstance(message, Message)
    assert list(check_record(message, data, 77, 1024)) == []
    assert builders.record_with_property_crc(EXAMPLE_B) == EXAMPLE_C


def test_property_checksum_of_a_compacted_record_is_that_of_before() -> None:
    moved = put(EXAMPLE_C, 28, "0000000000000000")
    assert [flaw.at for flaw in flaws(moved, 0)] == [214]
    assert list(check_record(decoded(moved), moved, 0, 0, compacted=True)) == []
    changed = put(moved, 88, "00")
    assert [flaw.code for flaw in check_record(decoded(changed), changed, 0, 0, compacted=True)] == ["CL-CRC"]


def test_several_flaws_come_in_order() -> None:
    data = put(EXAMPLE_C, 8, "00000000")
    assert [flaw.code for flaw in flaws(data, 0)] == ["CL-CRC", "CL-PHY", "CL-CRC"]


@pytest.mark.parametrize(
    "change",
    [
        lambda message: message._replace(total_size=message.total_size + 1),
        lambda message: message._replace(body_length=15),
        lambda message: message._replace(raw_topic=b"t" * 128),
        lambda message: message._replace(raw_properties=b"p" * 32768),
        lambda message: message._replace(raw_body=message.raw_body + b"!"),
        lambda message: message._replace(queue_id=1 << 31),
    ],
)
def test_encode_refuses_what_would_be_no_record(change: Callable[[Message], layouts.MessageRecord]) -> None:
    with pytest.raises(LayoutError):
        encode_message(change(decoded(EXAMPLE_A)))


def test_malformed_text_is_replaced_as_java_does() -> None:
    message = decoded(record(topic=b"a\xed\xa0\xbdb", property_text=b"k\x01\xff\x02"))
    assert message.topic == "a\ufffdb"
    assert message.properties == {"k": "\ufffd"}
    assert message.raw_topic == b"a\xed\xa0\xbdb"
