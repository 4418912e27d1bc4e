"""Frames of the remoting protocol: literals of the specification, every split, every wrong length, the limits."""

from __future__ import annotations

import json
import struct
import tracemalloc
from collections.abc import Iterator

import pytest

from rmqtool.remoting.command import (
    FrameError,
    Language,
    RemotingCommand,
    SerializeType,
    version_name,
    version_ordinal,
)
from rmqtool.remoting.frames import FrameDecoder, decode_frame, encode_frame

# As unmodified clients and brokers sent them.
ROUTE_REQUEST = bytes.fromhex(
    "0000008700000083"
    "7b22636f6465223a3130352c226578744669656c6473223a7b22746f706963223a22546f70696354657374227d2c22666c6167223a302c"
    "226c616e6775616765223a224a415641222c226f7061717565223a312c2273657269616c697a655479706543757272656e74525043223a"
    "224a534f4e222c2276657273696f6e223a3430397d"
)
BINARY_REQUEST = bytes.fromhex(
    "0000002d010000290069000199000000000000000000000000000000140005746f70696300000009546f70696354657374"
)
BINARY_ANSWER = bytes.fromhex("000000270100002300000000000000000500000001000000000000000e00066f6666736574000000023132")

SAMPLES = {
    ROUTE_REQUEST: RemotingCommand(105, {"topic": "TopicTest"}, opaque=1, version=409),
    BINARY_REQUEST: RemotingCommand(105, {"topic": "TopicTest"}, version=409, serialize_type=SerializeType.ROCKETMQ),
    BINARY_ANSWER: RemotingCommand(
        0, {"offset": "12"}, opaque=5, flag=1, version=0, serialize_type=SerializeType.ROCKETMQ
    ),
}


def framed(header: bytes, body: bytes = b"", kind: int = 0) -> bytes:
    """Lay a frame by hand."""
    return struct.pack(">iI", 4 + len(header) + len(body), kind << 24 | len(header)) + header + body


@pytest.mark.parametrize(("data", "command"), SAMPLES.items(), ids=["json", "binary request", "binary answer"])
def test_what_was_recorded_is_read_and_written(data: bytes, command: RemotingCommand) -> None:
    assert decode_frame(data) == command
    assert encode_frame(command) == data


def test_an_answer_of_another_language_is_read() -> None:
    header = b'{"code":0,"flag":1,"language":"PYTHON","opaque":1,"version":409}'
    command = decode_frame(bytes.fromhex("0000004600000040") + header + b"{}")
    assert command == RemotingCommand(0, None, b"{}", 1, 1, Language.PYTHON, 409)
    assert command.is_answer
    assert not command.is_oneway


def test_flags() -> None:
    oneway = decode_frame(encode_frame(RemotingCommand(15, flag=2)))
    assert (oneway.is_answer, oneway.is_oneway) == (False, True)
    both = decode_frame(encode_frame(RemotingCommand(0, flag=3)))
    assert (both.is_answer, both.is_oneway) == (True, False)


def test_every_split_of_several_frames_gives_the_same_commands() -> None:
    with_body = encode_frame(RemotingCommand(310, {"a": "PG"}, b"hello", 7))
    data = ROUTE_REQUEST + BINARY_REQUEST + with_body + BINARY_ANSWER
    wanted = [SAMPLES[ROUTE_REQUEST], SAMPLES[BINARY_REQUEST], decode_frame(with_body), SAMPLES[BINARY_ANSWER]]
    for first in range(len(data) + 1):
        decoder = FrameDecoder()
        assert [*decoder.feed(data[:first]), *decoder.feed(data[first:])] == wanted
        assert decoder.pending == 0
    for step in (1, 2, 3, 7, 8, 9, 64):
        decoder = FrameDecoder()
        found = [command for at in range(0, len(data), step) for command in decoder.feed(data[at : at + step])]
        assert found == wanted
        assert decoder.pending == 0


def test_what_is_not_complete_is_counted() -> None:
    decoder = FrameDecoder()
    assert list(decoder.feed(ROUTE_REQUEST + BINARY_REQUEST[:20])) == [SAMPLES[ROUTE_REQUEST]]
    assert decoder.pending == 20


WRONG_HEADS = {
    "shorter than its own head": ("0000000300000000", "claims 3 bytes"),
    "negative": ("ffffffff00000000", "claims -1 bytes"),
    "one byte too long": ("00fffffd00000000", "claims 16777213 bytes"),
    "a header longer than the frame": ("0000000500000002", "header that claims 2 bytes in a frame of 5"),
    "a header beyond the limit": ("0020000000100001", "header that claims 1048577 bytes"),
    "a type that nobody has": ("0000000802000004", "unknown type 2"),
    "TLS": ("1603010200010001", "TLS handshake"),
}


@pytest.mark.parametrize(("head", "message"), WRONG_HEADS.values(), ids=WRONG_HEADS)
def test_a_length_that_cannot_be_is_refused_before_its_bytes_come(head: str, message: str) -> None:
    data = bytes.fromhex(head)
    for cut in range(len(data)):
        decoder = FrameDecoder()
        assert list(decoder.feed(data[:cut])) == []
        with pytest.raises(FrameError, match=message):
            list(decoder.feed(data[cut:]))


def test_the_longest_frame_is_read() -> None:
    body = bytes((16 << 20) - 8 - 13)
    data = framed(b'{"code":310 }', body)
    assert len(data) == 16 << 20
    assert decode_frame(data).body == body
    with pytest.raises(ValueError, match="beyond the limits"):
        encode_frame(RemotingCommand(310, None, bytes(16 << 20)))


def test_commands_before_a_bad_frame_are_given() -> None:
    frames = FrameDecoder().feed(ROUTE_REQUEST + bytes(8))
    assert next(frames) == SAMPLES[ROUTE_REQUEST]
    with pytest.raises(FrameError):
        next(frames)


WRONG_HEADERS = {
    "nothing": (b"", "not JSON"),
    "cut": (b'{"code":1', "not JSON"),
    "a list": (b"[]", "not a JSON object"),
    "more behind": (b'{"code":1}x', "bytes after the end"),
    "a code that is a text": (b'{"code":"1"}', "code of the header is not an int"),
    "a code beyond int": (b'{"code":2147483648}', "code of the header is not an int"),
    "an opaque that is a fraction": (b'{"code":1,"opaque":1.5}', "opaque of the header is not an int"),
    "a number of 5000 digits": (b'{"code":' + b"1" * 5000 + b"}", "not JSON"),
    "fields that are a list": (b'{"extFields":[]}', "extFields of the header is not an object"),
    "257 fields": (json.dumps({"extFields": {f"f{n}": "" for n in range(257)}}).encode(), "257 fields"),
    "33 deep": (b'{"x":' + b"[" * 32 + b"]" * 32 + b"}", "deeper than 32"),
    "a million lists": (b'{"x":[' + b"[]," * 300_000 + b"[]]}", "more than 320 values"),
    "a million brackets": (b'{"x":' + b"[" * 1_000_000, "deeper than 32"),
    "long and not plain": (b'{"remark":"' + b"x" * 70_000 + "é".encode() + b'"}', "not all ASCII"),
}


@pytest.mark.parametrize(("header", "message"), WRONG_HEADERS.values(), ids=WRONG_HEADERS)
def test_a_wrong_json_header_is_refused(header: bytes, message: str) -> None:
    with pytest.raises(FrameError, match=message):
        decode_frame(framed(header))


def binary_header(fields: bytes = b"", remark: bytes = b"", claimed: int | None = None) -> bytes:
    length = len(fields) if claimed is None else claimed
    return struct.pack(">hbhiii", 11, 0, 409, 5, 0, len(remark)) + remark + struct.pack(">i", length) + fields


def pair(name: bytes, value: bytes) -> bytes:
    return struct.pack(">h", len(name)) + name + struct.pack(">i", len(value)) + value


WRONG_BINARY = {
    "nothing": (b"", "ends within a field"),
    "cut": (binary_header()[:-1], "ends within a field"),
    "fields beyond the header": (binary_header(claimed=5), "fields of 5 bytes"),
    "negative fields": (binary_header(pair(b"a", b"b"), claimed=-1), "fields of -1 bytes"),
    "remark beyond the header": (struct.pack(">hbhiii", 11, 0, 409, 5, 0, 99), "a remark of 99 bytes"),
    "negative remark": (struct.pack(">hbhiiii", 11, 0, 409, 5, 0, -1, 0), "a remark of -1 bytes"),
    "a name beyond the fields": (binary_header(b"\x00\x09a"), "ends within a field"),
    "a negative name": (binary_header(b"\xff\xffa"), "ends within a field"),
    "a value beyond the fields": (binary_header(b"\x00\x01a\x00\x00\x00\x09b"), "a value of 9 bytes"),
    "a negative value": (binary_header(b"\x00\x01a\xff\xff\xff\xffb"), "a value of -1 bytes"),
    "257 fields": (binary_header(b"".join(pair(b"%d" % n, b"x") for n in range(257))), "more than 256 fields"),
    "long and not plain": (binary_header(pair(b"a", b"x" * 70_000) + pair(b"b", "é".encode())), "not all ASCII"),
}


@pytest.mark.parametrize(("header", "message"), WRONG_BINARY.values(), ids=WRONG_BINARY)
def test_a_wrong_binary_header_is_refused(header: bytes, message: str) -> None:
    with pytest.raises(FrameError, match=message):
        decode_frame(framed(header, kind=1))


def test_numbers_and_booleans_become_the_texts_java_makes_of_them() -> None:
    fields = '{"d":4,"k":false,"m":true,"l":null,"r":1.50,"a":"PG","o":{"x":[1,"y"]}}'
    command = decode_frame(framed(f'{{"code":310,"extFields":{fields}}}'.encode()))
    assert command.ext == {"d": "4", "k": "false", "m": "true", "r": "1.50", "a": "PG", "o": '{"x":[1,"y"]}'}


def test_what_is_absent_has_a_value_and_what_is_unknown_none() -> None:
    command = decode_frame(framed(b' {"language":"KLINGON","later":{"x":1},"extFields":null,"remark":7} '))
    assert command == RemotingCommand(0, None, b"", 0, 0, None, 0, "7")
    assert command.ext == {}
    assert b'"language"' not in encode_frame(command)


def test_an_empty_text_of_a_binary_header_is_no_text() -> None:
    header = binary_header(pair(b"i", b"") + pair(b"", b"x") + pair(b"a", b"b"))
    assert decode_frame(framed(header, kind=1)).ext == {"a": "b"}
    assert decode_frame(framed(header, kind=1)).remark is None


def test_texts_that_are_no_unicode_do_not_stop_anything() -> None:
    lone = decode_frame(framed(b'{"extFields":{"a":"\\ud800"}}'))
    assert decode_frame(encode_frame(lone)).ext == {"a": "?"}
    assert decode_frame(framed(b'{"remark":"\xff"}')).remark == "\ufffd"
    assert decode_frame(framed(binary_header(pair(b"\xff", b"\xfe")), kind=1)).ext == {"\ufffd": "\ufffd"}


def test_brackets_and_commas_in_texts_are_text() -> None:
    text = '{"x":[1,2]},' * 200
    command = RemotingCommand(310, {"i": text, "j": text.replace('"', '\\"')}, opaque=3)
    assert decode_frame(encode_frame(command)) == command


def test_a_code_of_pop_does_not_fit_a_binary_header() -> None:
    with pytest.raises(ValueError, match="200050 does not fit"):
        encode_frame(RemotingCommand(200050, serialize_type=SerializeType.ROCKETMQ))


def test_versions_have_numbers() -> None:
    assert [version_ordinal(v) for v in ("4.0.0", "4.6.0", "4.9.3", "4.9.8", "5.0.0", "5.3.3")] == [
        213, 333, 399, 409, 413, 479,
    ]  # fmt: skip
    assert [version_name(n) for n in (232, 409, 478, 479, 611)] == [
        "4.1.0-SNAPSHOT", "4.9.8", "5.3.3-SNAPSHOT", "5.3.3", "5.9.9",
    ]  # fmt: skip
    assert [version_name(n) for n in (0, 78, 212, 612, 9999)] == [None] * 5
    for ordinal in range(213, 612, 2):
        name = version_name(ordinal)
        assert name is not None
        assert version_ordinal(name) == ordinal


HOSTILE = {
    "a body of 8 MiB": framed(b'{"code":310}', bytes(8 << 20)),
    "a header of 1 MiB": framed(b'{"code":310,"extFields":{"i":"' + b"x" * ((1 << 20) - 40) + b'"}}'),
    "a binary header of 1 MiB": framed(binary_header(pair(b"i", b"x" * ((1 << 20) - 40))), kind=1),
    "a million lists": framed(b'{"x":[' + b"[]," * 340_000 + b"[]]}"),
    "a million escapes": framed(b'{"x":"' + b'\\"' * 500_000 + b'"}'),
    "a million quotes that open": framed(b'{"x":"' + b'\\"' * 500_000),
    "texts of four bytes": framed(b'{"remark":"' + b"x" * 1_000_000 + "\U0001f600".encode() + b'"}'),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("step", [1000, 65536])
def test_a_hostile_frame_costs_no_more_memory_than_twice_its_bytes(data: bytes, step: int) -> None:
    def chunks() -> Iterator[bytes]:
        for at in range(0, len(data), step):
            yield data[at : at + step]

    decoder = FrameDecoder()
    tracemalloc.start()
    try:
        for chunk in chunks():
            list(decoder.feed(chunk))
    except FrameError:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    # A frame of a few bytes becomes objects of a few hundred.
    assert peak <= 2 * len(data) + 4 * step + 65536


def test_a_claimed_length_alone_costs_nothing() -> None:
    decoder = FrameDecoder()
    tracemalloc.start()
    assert list(decoder.feed(struct.pack(">iI", (16 << 20) - 4, 100) + b"x")) == []
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10_000
