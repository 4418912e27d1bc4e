"""Garbage into every decoder of text: a value or a flaw, never an exception, never a hang, never much memory."""

from __future__ import annotations

import itertools
import random
import time
import tracemalloc
from collections.abc import Callable, Iterator
from datetime import UTC
from functools import partial
from typing import Any

import pytest

from rmqtool.formats import config_files, config_shapes, control_texts, fastjson, hosts, ids, paths, properties, topics
from rmqtool.formats.fastjson import Dialect, FastjsonError
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.ids import PopTag
from rmqtool.formats.java import decode_text
from rmqtool.formats.paths import FileKind
from rmqtool.formats.system_bodies import decode_op_body, decode_pop_body

# Whole texts to damage, and crumbs to throw together.
SEEDS = [
    b"KEYS\1order-1\2UNIQ_KEY\1C0A8010A10E118B4AAC247B760000007\2TAGS\1TagA\2__CRC32#\x017638448202\2",
    b'{"dataVersion":{"counter":3},"groupTopicMap":{"g":["A","B"]},"offsetTable":{"A@g":{0:5,1:6\n\t\t}}}',
    b'{"table":{"T@g":{0:{"a":"x","o":[1,2],"oc":{100:1}}}},"topicConfigTable":{"T":{"perm":6,"order":false}}}',
    b"2\n773307083\n7-7000\n8-8000\n",
    b"committedIndex=265\nendIndex=265\n",
    b"DefaultCluster#broker-a#1",
    b"C0A8011400002A9F0000000000000400",
    b"20010DB800000000000000000000002000002A9F0000000000000400",
    b"T@2@[100, 101]@g@1700000000000@bAck",
    b"5 1700000000000 60000 3 0 broker-a 2 77",
    b"[2001:db8::6]:4006",
    b"consumequeue/%RETRY%g+T/3/00000000001073741824",
    b"timerwheel.5200.tmp",
    b"20231114221320123",
    b"12,13,14,",
]
CRUMBS = [
    b"\1", b"\2", b"{", b"}", b"[", b"]", b":", b",", b'"', b"'", b"\\", b"\\u12", b"//", b"/*", b"*/", b"\0", b"\x1a",
    b"\n", b"@", b"#", b"=", b"-", b"/", b"%", b"0", b"9" * 30, b"9223372036854775808", b"2147483648", b"-1", b"1e99",
    b"null", b"true", b"$ref", b'"$ref":"$"', b"__CRC32#", b"\xff", b"\xed\xa0\x80", b"\xed\xa0", b"\xf0\x9f\x98",
    "😀".encode(), "٣".encode(), b"ck", b"::", b"config/", b"timerwheel.",
]  # fmt: skip


def garbage(seed: int, count: int) -> Iterator[bytes]:
    """Yield noise, heaps of crumbs, and whole texts with bytes changed, cut, doubled or moved."""
    chance = random.Random(seed)
    for number in range(count):
        kind = number % 4
        if kind == 0:
            yield chance.randbytes(chance.choice((0, 1, 7, 60, 300)))
        elif kind == 1:
            yield b"".join(chance.choices(CRUMBS, k=chance.randrange(40)))
        else:
            text = bytearray(chance.choice(SEEDS))
            for _ in range(chance.randrange(1, 5)):
                at = chance.randrange(len(text) + 1)
                change = chance.randrange(4)
                if change == 0 and at < len(text):
                    text[at] = chance.randrange(256)
                elif change == 1:
                    text[at:at] = chance.choice(CRUMBS)
                elif change == 2:
                    del text[at : at + chance.randrange(1, 9)]
                else:
                    text[at:at] = text[chance.randrange(len(text) + 1) :]
            yield bytes(text)


def read_json(dialect: Dialect | None, data: bytes) -> object:
    """Parse; the parser's own error is an answer."""
    try:
        return fastjson.parse(data, dialect)
    except FastjsonError as error:
        answer = error
    assert 0 <= answer.position <= len(data)
    return answer


def read_config(name: str, data: bytes) -> object:
    """Decode, and write what came out as every library does."""
    decoded = config_files.decode_config(name, data)
    if isinstance(decoded, Flaw):
        assert 0 <= decoded.at <= len(data)
    else:
        shape = config_shapes.CONFIG_FILES[name].root
        for dialect, style in itertools.product(config_files.Dialect, config_files.Style):
            assert config_files.encode_value(decoded.value, shape, dialect, style)
    return decoded


def read_pieces(data: bytes) -> object:
    pieces = list(properties.iter_pieces(data))
    pairs = {piece.name(data): piece.value(data) for piece in pieces if piece.kind is properties.PieceKind.PAIR}
    assert pairs == properties.decode_properties(data)
    assert sum(piece.length + 1 for piece in pieces) in (len(data), len(data) + 1)
    return pieces


def read_path(data: bytes) -> object:
    text = decode_text(data)
    found = paths.classify(text)
    assert found.kind is not FileKind.UNKNOWN or found.name == text
    return found


def read_uniq_key_time(data: bytes) -> object:
    number = int.from_bytes(data[:8], "big", signed=True)
    return ids.uniq_key_time(5, number, UTC), ids.nearest_uniq_key_time(5, number, UTC)


def of_text(read: Callable[[str], object]) -> Callable[[bytes], object]:
    """Return a decoder of text as one of bytes."""
    return lambda data: read(decode_text(data))


DECODERS: dict[str, Callable[[bytes], Any]] = {
    "properties": properties.decode_properties,
    "pieces": read_pieces,
    "checksum block": properties.split_property_crc,
    "json": partial(read_json, None),
    "json of fastjson 1": partial(read_json, Dialect.FASTJSON_1),
    "json of fastjson 2": partial(read_json, Dialect.FASTJSON_2),
    **{f"config {name}": partial(read_config, name) for name in (paths.TOPICS, paths.CONSUMER_OFFSET)},
    "config consumerOrderInfo.json": partial(read_config, paths.CONSUMER_ORDER_INFO),
    **{f"pop body {tag}": partial(decode_pop_body, tag) for tag in PopTag},
    "op body": decode_op_body,
    "abort": control_texts.decode_abort,
    "lock": control_texts.check_lock,
    "epochs": control_texts.decode_epoch_file,
    "identity": control_texts.decode_broker_identity,
    "dledger checkpoint": partial(control_texts.decode_dledger_state, "checkpoint"),
    "dledger currterm": partial(control_texts.decode_dledger_state, "currterm"),
    "offset message id": of_text(ids.decode_offset_msg_id),
    "unique key": of_text(ids.decode_uniq_key),
    "pop id": of_text(ids.decode_pop_id),
    "pop receipt": of_text(ids.decode_pop_receipt),
    "any id": of_text(ids.guess_id),
    "time of a unique key": read_uniq_key_time,
    "host": of_text(hosts.parse_host),
    "path": read_path,
    "numeric name": of_text(paths.parse_numeric_name),
    "topic kind": of_text(topics.topic_kind),
    "topic name": of_text(lambda text: topics.check_topic_name(text, "5.4")),
    "namespace": of_text(topics.split_namespace),
}


@pytest.mark.parametrize("decoder", DECODERS)
def test_garbage(decoder: str) -> None:
    for data in garbage(1, 2_000):
        DECODERS[decoder](data)


@pytest.mark.slow
@pytest.mark.parametrize("decoder", DECODERS)
def test_much_garbage(decoder: str) -> None:
    for data in garbage(2, 20_000):
        DECODERS[decoder](data)


# Texts that could make a parser work or allocate out of proportion: about 30 kB each.
LARGE = {
    "brackets": b"[" * 30_000,
    "objects": b'{"a":' * 5_000,
    "digits": b"9" * 30_000,
    "digits in a name": b"{" + b"9" * 30_000 + b":1}",
    "open string": b'"' + b"a" * 30_000,
    "open string of escapes": b'"' + b"\\\\" * 15_000 + b"\\",
    "commas": b"[" + b"," * 30_000,
    "commas between numbers": b"{0:1" + b",,1:1" * 5_000,
    "names": b'{"a":1' + b',"a":1' * 5_000 + b"}",
    "comments": b"/**/" * 8_000,
    "line comments": b"//\n" * 10_000,
    "nul": b"\0" * 30_000,
    "blanks": b" " * 30_000,
    "separators": b"\1" * 30_000,
    "pieces": b"\2" * 30_000,
    "pairs": b"a\1b\2" * 8_000,
    "lines": b"1-1\n" * 8_000,
    "announced": b"2147483647\n0\n1-1\n",
    "parts": b"@" * 30_000,
    "offsets": b"1," * 15_000,
    "count": b'{"so":0,"n":2147483647}',
    "colons": b":" * 30_000,
    "slashes": b"/" * 30_000,
}


@pytest.mark.parametrize("text", LARGE)
def test_large_garbage_costs_no_more_than_it_weighs(text: str) -> None:
    data = LARGE[text]
    for decoder, decode in DECODERS.items():
        started = time.process_time()
        decode(data)
        assert time.process_time() - started < 5, decoder


@pytest.mark.parametrize(
    "text", ["brackets", "digits", "open string of escapes", "names", "pieces", "announced", "count"]
)
def test_large_garbage_takes_memory_in_proportion(text: str) -> None:
    data = LARGE[text]
    for decoder, decode in DECODERS.items():
        tracemalloc.start()
        decode(data)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 400 * len(data) + 1_000_000, decoder


def test_decoding_is_not_slower_for_longer_texts() -> None:
    """Ten times the text takes about ten times as long, nothing like a hundred times."""
    entries = {f"Topic{number}@group": dict.fromkeys(range(4), number) for number in range(2_000)}
    small, large = (
        config_files.encode_config(
            paths.CONSUMER_OFFSET, {"offsetTable": dict(list(entries.items())[:count])}, Dialect.FASTJSON_1
        )
        for count in (200, 2_000)
    )

    def cost(data: bytes) -> float:
        times = []
        for _ in range(3):
            started = time.process_time()
            assert not isinstance(config_files.decode_config(paths.CONSUMER_OFFSET, data), Flaw)
            times.append(time.process_time() - started)
        return min(times)

    assert cost(large) < 40 * cost(small) + 0.05
