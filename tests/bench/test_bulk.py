"""Bulk against the plain loops it replaces. Ratios are asserted; times are printed."""

from __future__ import annotations

import json
import os
import struct
import time
import zlib
from collections.abc import Callable
from io import BytesIO
from typing import Any

import numpy as np
import pytest

from rmqtool.columns.batches import Projection, iter_batches
from rmqtool.columns.checksums import CRC32
from rmqtool.columns.dispatched import index_keys
from rmqtool.columns.encode import Outgoing, encode_records
from rmqtool.columns.index_build import Keys
from rmqtool.columns.jsonl import iter_json_lines
from rmqtool.columns.properties import decode_properties
from rmqtool.columns.queues import queue_runs
from rmqtool.columns.records import decode_records, have_right_crc, lie_in_place
from rmqtool.columns.starts import record_starts
from rmqtool.formats.dispatch import DispatchRules
from tests.support.column_files import IndexContent, encode_tail

pytestmark = pytest.mark.bench

COUNT = 200_000
CHUNK = 8192
ROUNDS = 5
PREFIX = struct.Struct(">IIIiiqqiqQqQiqi")
HOST = (bytes((127, 0, 0, 1)), 10911)


def properties(number: int) -> bytes:
    return b"KEYS\x01key%d\x02UNIQ_KEY\x01%032X\x02CLUSTER\x01DefaultCluster\x02TAGS\x01Tag%c\x02" % (
        100_000_000 + number,
        number,
        65 + number % 8,
    )


def outgoing(body_length: int, count: int = COUNT) -> Outgoing:
    rng = np.random.default_rng(1)
    letters = rng.integers(97, 123, body_length + count, np.uint8).tobytes()
    numbers = np.arange(count)
    return Outgoing(
        bodies=[letters[number : number + body_length] for number in range(count)],
        tails=[encode_tail(b"BenchTopic%d" % (number % 4), properties(number)) for number in range(count)],
        queue_ids=numbers // 4 % 4,
        queue_offsets=numbers // 16,
        born_timestamps=1700000000000 + numbers,
        store_timestamps=1700000000001 + numbers,
        born_hosts=[HOST],
        store_host=HOST,
    )


@pytest.fixture(scope="module")
def log() -> bytes:
    """Records with bodies of 100 bytes."""
    return encode_records(outgoing(100), 0).data


@pytest.fixture(scope="module")
def starts(log: bytes) -> Any:
    return record_starts(log).file_offsets


def best(work: Callable[[], object], count: int, rounds: int = ROUNDS) -> float:
    """Nanoseconds of processor time per record, of the best round: others may be using the machine."""
    times = []
    for _ in range(rounds):
        begin = time.process_time()
        work()
        times.append(time.process_time() - begin)
    return min(times) / count * 1e9


def say(what: str, ours: float, than: str, other: float) -> float:
    print(f"\n{what}: {ours:.0f} ns a record, {than}: {other:.0f} ns, ratio {other / ours:.1f}")
    return other / ours


def walk_one_by_one(data: bytes) -> list[int]:
    view, unpack, at, found = memoryview(data), struct.Struct(">II").unpack_from, 0, []
    while at + 8 <= len(view):
        size, magic = unpack(view, at)
        if magic != 0xDAA320A7 or not 91 <= size <= len(view) - at:
            break
        found.append(at)
        at += size
    return found


def test_walk(log: bytes) -> None:
    assert record_starts(log).file_offsets.tolist() == walk_one_by_one(log)
    ours, plain = best(lambda: record_starts(log), COUNT), best(lambda: walk_one_by_one(log), COUNT, 2)
    assert say("walk", ours, "one by one", plain) >= 3


def test_columns_with_checks(log: bytes, starts: Any) -> None:
    def check() -> None:
        for at in range(0, COUNT, CHUNK):
            records, declined = decode_records(log, starts[at : at + CHUNK])
            assert declined is None
            assert have_right_crc(records).all()
            assert lie_in_place(records, 0).all()

    def checksums() -> None:
        view = memoryview(log)
        for at in starts.tolist():
            CRC32(view[at + 88 : at + 188])

    def decode_all() -> None:
        for at in starts.tolist():
            plain_message(log, at)

    ours, limit, plain = best(check, COUNT), best(checksums, COUNT, 3), best(decode_all, COUNT, 2)
    say("columns and checks", ours, "checksums alone", limit)
    assert say("columns and checks", ours, "plain decode, no checksum", plain) >= 4


def host(value: int) -> str:
    ip = value >> 32
    return f"{ip >> 24}.{ip >> 16 & 255}.{ip >> 8 & 255}.{ip & 255}:{value & 0xFFFFFFFF}"


def plain_message(data: bytes, at: int) -> tuple[dict[str, Any], bytes, dict[str, str]]:
    """The plain struct loop: one unpack, slices, and a dict of the properties."""
    (
        size,
        magic,
        crc,
        queue,
        flag,
        queue_offset,
        place,
        sys_flag,
        born,
        born_host,
        store,
        store_host,
        times,
        prepared,
        n,
    ) = PREFIX.unpack_from(data, at)
    body = data[at + 88 : at + 88 + n]
    topic_at = at + 89 + n
    end = topic_at + data[topic_at - 1]
    pairs = {}
    for pair in str(data[end + 2 : at + size], "utf-8").split("\x02"):
        name, separator, value = pair.partition("\x01")
        if separator:
            pairs[name] = value
    fields = {
        "commitLogOffset": place,
        "storeSize": size,
        "magic": f"{magic:#010x}",
        "topic": str(data[topic_at:end], "utf-8"),
        "queueId": queue,
        "queueOffset": queue_offset,
        "flag": flag,
        "sysFlag": sys_flag,
        "bornTimestamp": born,
        "bornHost": host(born_host),
        "storeTimestamp": store,
        "storeHost": host(store_host),
        "reconsumeTimes": times,
        "preparedTransactionOffset": prepared,
        "bodyCRC": crc,
        "offsetMsgId": f"{store_host:016X}{place:016X}",
    }
    return fields, body, pairs


def plain_line(data: bytes, at: int) -> str:
    fields, body, pairs = plain_message(data, at)
    fields |= {"uniqKey": pairs.get("UNIQ_KEY"), "tags": pairs.get("TAGS"), "keys": pairs.get("KEYS")}
    fields |= {"properties": pairs, "body": body.decode(), "bodyEncoding": "utf8", "bodyCodec": None}
    fields |= {"bodyLength": len(body), "storedBodyLength": len(body)}
    return json.dumps(fields, ensure_ascii=False)


def json_body(number: int) -> bytes:
    return json.dumps(
        {"id": number, "name": "some name", "list": list(range(number % 9)), "price": number / 7}
    ).encode()


@pytest.mark.parametrize("kind", ["letters", "json"])
def test_message_lines(kind: str) -> None:
    """From the log's bytes to lines; bodies of about 100 bytes, of letters or with many quotes."""
    count = 50_000
    messages = outgoing(100, count)
    if kind == "json":
        messages.bodies = [json_body(number) for number in range(count)]
    data = encode_records(messages, 0).data

    def ours(write: Callable[[Any], object]) -> None:
        found = record_starts(data).file_offsets
        for at in range(0, count, CHUNK):
            records, _ = decode_records(data, found[at : at + CHUNK])
            for lines in iter_json_lines(records):
                write(lines.text.data)

    def plain(write: Callable[[Any], object]) -> None:
        at = 0
        while at < len(data):
            write((plain_line(data, at) + "\n").encode())
            at += struct.unpack_from(">I", data, at)[0]

    one, other = BytesIO(), BytesIO()
    ours(one.write)
    plain(other.write)
    assert one.getvalue() == other.getvalue()
    with open(os.devnull, "wb") as sink:
        times = best(lambda: ours(sink.write), count), best(lambda: plain(sink.write), count, 2)
    ratio = say(f"lines, bodies of {kind}", times[0], "plain struct and json", times[1])
    assert ratio >= (6 if kind == "letters" else 4)


def test_batches(log: bytes, starts: Any) -> None:
    def all_columns() -> None:
        for at in range(0, COUNT, CHUNK):
            records, _ = decode_records(log, starts[at : at + CHUNK])
            for _ in iter_batches(records, Projection()):
                pass

    def plain() -> None:
        for at in starts.tolist():
            plain_message(log, at)

    assert say("all Arrow columns", best(all_columns, COUNT, 3), "plain decode", best(plain, COUNT, 2)) >= 2.5


def test_queue_units_and_keys(log: bytes, starts: Any) -> None:
    def dispatch() -> None:
        for at in range(0, COUNT, CHUNK):
            records, _ = decode_records(log, starts[at : at + CHUNK])
            properties = decode_properties(records)
            queue_runs(records, properties, DispatchRules())
            index_keys(records, properties, DispatchRules())

    print(f"\nqueue units and two keys: {best(dispatch, COUNT, 3):.0f} ns a record")


def test_index_build() -> None:
    """A million keys into an index of the default geometry's shape, a tenth of its size."""
    count, slots = 1_000_000, 500_000
    rng = np.random.default_rng(2)
    hashes = rng.integers(0, 1 << 31, count, np.int32)
    places, times = np.arange(count) // 2 * 300, 1700000000000 + np.arange(count) // 20
    content = IndexContent(b"", slots, 2_000_000)

    def ours() -> None:
        content.data[:] = 0
        for at in range(0, count, 100_000):
            content.insert(Keys(hashes[at : at + 100_000], places[at : at + 100_000], times[at : at + 100_000]))

    def one_by_one() -> bytearray:
        data, entry, slot = bytearray(len(content.data)), struct.Struct(">iqii"), struct.Struct(">i")
        begin, used = int(times[0]), 0
        columns = (hashes[:200_000].tolist(), places.tolist(), times.tolist())
        for number, (key_hash, place, at) in enumerate(zip(*columns, strict=False), 1):
            slot_at = 40 + 4 * (key_hash % slots)
            (head,) = slot.unpack_from(data, slot_at)
            used += head == 0
            entry.pack_into(data, 40 + 4 * slots + 20 * number, key_hash, place, (at - begin) // 1000, head)
            slot.pack_into(data, slot_at, number)
        return data

    plain = one_by_one()
    content.insert(Keys(hashes[:200_000], places[:200_000], times[:200_000]))
    assert content.data[40:].tobytes() == plain[40:]
    ratio = say("index build, a key", best(ours, count, 3), "one by one", best(one_by_one, 200_000, 2))
    assert ratio >= 3


@pytest.mark.parametrize("body_length", [100, 1024])
def test_encode(body_length: int) -> None:
    """Slabs of some MiB, with checksums, against packing one after the other."""
    count = 100_000
    messages = outgoing(body_length, count)
    step = (4 << 20) // (body_length + 200)
    slabs = [
        Outgoing(
            messages.bodies[at : at + step],
            messages.tails[at : at + step],
            *(column[at : at + step] for column in (messages.queue_ids, messages.queue_offsets)),  # type: ignore[index]
            *(column[at : at + step] for column in (messages.born_timestamps, messages.store_timestamps)),  # type: ignore[index]
            [HOST],
            HOST,
        )
        for at in range(0, count, step)
    ]

    def ours() -> None:
        place = 0
        for slab in slabs:
            place += len(encode_records(slab, place).data)

    def plain() -> None:
        place, address = 0, 0x7F00000100002A9F
        for number, (body, tail) in enumerate(zip(messages.bodies, messages.tails, strict=True)):
            size, crc, now = 88 + len(body) + len(tail), zlib.crc32(body) & 0x7FFFFFFF, 1700000000000 + number
            head = PREFIX.pack(
                *(
                    size,
                    0xDAA320A7,
                    crc,
                    number // 4 % 4,
                    0,
                    number // 16,
                    place,
                    0,
                    now,
                    address,
                    now + 1,
                    address,
                    0,
                    0,
                ),
                len(body),
            )
            place += len(b"".join((head, body, tail)))

    ratio = say(f"encode, bodies of {body_length}", best(ours, count), "one by one", best(plain, count, 3))
    assert ratio >= 1.2
