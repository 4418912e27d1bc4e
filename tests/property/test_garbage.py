"""Bytes that nobody wrote on purpose: every decoder answers, with a value of its declared kinds, and quickly.

Each decoder gets 20,000 seeded inputs: its own good examples cut, zeroed, changed, with lengths that claim 2 GiB, run
together, and plain noise. Nothing may raise, no flaw may point outside the bytes, no part of an answer may be longer
than they are.
"""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import pytest

from rmqtool.formats import (
    batches,
    checkpoints,
    commit_log,
    compression,
    consume_queue,
    dispatch,
    dledger,
    index,
    layouts,
    rocksdb_rows,
    timer,
)
from rmqtool.formats.codes import BodyCodec, sys_flag_words
from rmqtool.formats.commit_log import Blank, Message, Nothing
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.java import decode_text
from tests.support import builders

INPUTS = 20_000
MOST_BYTES = 400
RULES = [dispatch.rules_of(version, (1000, 5000)) for version in ("4.9", "5.4")]

RECORDS = (
    builders.EXAMPLE_A,
    builders.EXAMPLE_C,
    builders.EXAMPLE_D,
    builders.record(b"body", b"t" * 130, magic=builders.MAGIC_V2),
    builders.record(b"", b"SCHEDULE_TOPIC_XXXX", builders.properties(("DELAY", "3"), ("TAGS", "a"))),
    builders.record(
        b"", b"T", builders.properties(("INNER_MULTI_DISPATCH", "a,b"), ("INNER_MULTI_QUEUE_OFFSET", "1,2"))
    ),
    builders.record(b"", b"T", builders.properties(("INNER_NUM", "2"), ("INNER_BASE", "7"), ("KEYS", "a b"))),
    builders.blank(100) + bytes(92),
)
BATCH = builders.EXAMPLE_BATCH
PAGES = (builders.page(1, 2, 3, 4, 5)[:MOST_BYTES], bytes(MOST_BYTES))
STREAMS = {
    codec: (compression.compress_body(codec, b"hello " * 9), compression.compress_body(codec, bytes(3000)))
    for codec in BodyCodec
}


def check_message(data: bytes) -> object:
    """All that is said of a record that could be decoded."""
    found = commit_log.decode_record(data)
    if not isinstance(found, Message):
        return found
    assert commit_log.encode_message(found) == data[: found.total_size]
    parts: list[object] = [*found, found.topic, *found.properties.items(), found.tags, found.keys, found.uniq_key]
    for flaw in commit_log.check_record(found, data, 0, None):
        assert flaw.code in ("CL-CRC", "CL-TIME")
        assert 0 <= flaw.at <= flaw.at + flaw.length <= found.total_size
    for rules in RULES:
        parts += dispatch.queue_entries(found, rules)
        parts += dispatch.iter_index_texts(found, rules)
        assert all(0 <= index.key_hash(text) < 1 << 31 for text in dispatch.iter_index_texts(found, rules))
    layouts.BATCH_CONSUME_QUEUE_UNIT.encode(dispatch.batch_unit(found, RULES[0].delays))
    sys_flag_words(found.sys_flag)
    return parts


def all_units(data: bytes) -> list[Any]:
    """A file of each fixed layout, unit after unit, those said to be in it apart."""
    units: list[Any] = [unit for unit in layouts.CONSUME_QUEUE_UNIT.iter_decode(data) if consume_queue.is_written(unit)]
    units += [
        unit for unit in layouts.BATCH_CONSUME_QUEUE_UNIT.iter_decode(data) if consume_queue.is_batch_written(unit)
    ]
    units += [slot for slot in layouts.TIMER_SLOT.iter_decode(data) if timer.is_slot_used(slot)]
    units += layouts.INDEX_ENTRY.iter_decode(data)
    units += layouts.DLEDGER_INDEX_UNIT.iter_decode(data)
    return units


def one_row(decode: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """A key; what is not a flaw must encode to the same bytes."""
    encode: Callable[[Any], bytes] = getattr(rocksdb_rows, decode.__name__.replace("decode", "encode"))

    def decode_and_encode(data: bytes) -> object:
        found = decode(data)
        assert isinstance(found, Flaw) or encode(found) == data
        return found

    return decode_and_encode


def row_values(data: bytes) -> list[Any]:
    """A value, taken for each of the layouts."""
    return [
        rocksdb_rows.decode_row_value(layout, data)
        for layout in (
            layouts.ROCKSDB_QUEUE_VALUE,
            layouts.ROCKSDB_OFFSET_VALUE,
            layouts.ROCKSDB_DATA_VERSION,
            layouts.ROCKSDB_TIMER_VALUE,
            layouts.ROCKSDB_TRANS_VALUE,
            layouts.LONG,
        )
    ]


class Decoder(NamedTuple):
    """A decoder, good examples of what it reads, and the kinds of its answers (of each element, if it gives many)."""

    decode: Callable[[bytes], Any]
    examples: Sequence[bytes]
    kinds: tuple[type, ...]


def _rows(kind: str, *texts: str) -> Decoder:
    key_class = {"pop": "PopRowKey", "config": "ConfigRowKey", "trans": "TransRowKey"}.get(
        kind, f"{kind.title()}RowKey"
    )
    decode = one_row(getattr(rocksdb_rows, f"decode_{kind}_key"))
    return Decoder(decode, [bytes.fromhex(text) for text in texts], (getattr(rocksdb_rows, key_class), Flaw))


def _stream(codec: BodyCodec) -> Decoder:
    flag = compression.compression_flag(codec)
    return Decoder(
        lambda data: compression.inflate_body(flag, data, 1 << 12), STREAMS[codec], (compression.Inflated, Flaw)
    )


ANY = (object,)
DECODERS = {
    "decode_record": Decoder(commit_log.decode_record, RECORDS, (Message, Blank, Nothing, Flaw)),
    "decode_record in the middle": Decoder(
        lambda data: commit_log.decode_record(data, len(data) // 2, len(data) - 3),
        [b"x" * len(record) + record for record in RECORDS],
        (Message, Blank, Nothing, Flaw),
    ),
    "check_record and dispatch": Decoder(check_message, RECORDS, ANY),
    "records of garbage properties": Decoder(
        lambda data: check_message(builders.record(b"", b"SCHEDULE_TOPIC_XXXX", data)),
        [record[0x74:] for record in (builders.EXAMPLE_A, builders.EXAMPLE_C)]
        + [
            builders.properties(
                ("DELAY", "19"), ("INNER_MULTI_DISPATCH", "%LMQ%a,b"), ("INNER_MULTI_QUEUE_OFFSET", "1,2")
            )
        ],
        ANY,
    ),
    "records of garbage topics": Decoder(
        lambda data: check_message(builders.record(b"", data, magic=builders.MAGIC_V2)), (b"../../etc/passwd\0",), ANY
    ),
    "decode_ext_unit": Decoder(
        consume_queue.decode_ext_unit,
        (builders.EXAMPLE_EXT_UNIT, b"\xff\xff"),
        (consume_queue.ConsumeQueueExtUnit, consume_queue.ExtFileEnd, Flaw),
    ),
    "decode_timer_unit": Decoder(
        timer.decode_timer_unit,
        (builders.SAMPLES["TIMER_LOG_UNIT"].data, builders.SAMPLES["TIMER_LOG_BLANK"].data),
        (layouts.TimerLogUnit, layouts.TimerLogBlank, Nothing, Flaw),
    ),
    "decode_entry_head": Decoder(
        dledger.decode_entry_head,
        (builders.EXAMPLE_DLEDGER_HEAD + builders.EXAMPLE_A, b"\xff" * 4 + bytes(60)),
        (layouts.DLedgerEntryHead, dledger.DLedgerBlank, Nothing, Flaw),
    ),
    "iter_batch_items": Decoder(
        lambda data: list(batches.iter_batch_items(data)), (BATCH, BATCH * 3), (batches.BatchItem, Flaw)
    ),
    "decode_checkpoint": Decoder(checkpoints.decode_checkpoint, PAGES, (layouts.StoreCheckpoint,)),
    "decode_timer_checkpoint": Decoder(checkpoints.decode_timer_checkpoint, PAGES, (layouts.TimerCheckpoint,)),
    "check_checkpoint": Decoder(checkpoints.check_checkpoint, PAGES, (Flaw, type(None))),
    "fixed units": Decoder(all_units, [sample.data for sample in builders.SAMPLES.values()], (tuple,)),
    "decode_text": Decoder(decode_text, ("中文𝄞".encode(), b"\xed\xa0\xbd\xed\xb4\x9e"), (str,)),
    "queue key": _rows("queue", "00000009 01 546f70696354657374 01 00000001 01 0000000000000005"),
    "bound key": _rows("bound", "00000009 01 546f70696354657374 01 6d6178 01 00000001"),
    "config key": _rows(
        "config",
        "01 0001 02 0006 67726f757041 01 0009 546f70696354657374 01 00000000",
        "01 0003 02 0009 546f70696354657374",
        "01 0003 01 646174615f76657273696f6e",
    ),
    "pop key": _rows("pop", "0000018bcfe65260 67726f757041 40 546f70696341 40 00000003 40 0000000000000064"),
    "index key": _rows("index", "0000018bcfd93300 40 546f706963 40 4b 40 6b 40 55494431 40 0000000000000400"),
    "timer key": _rows("timer", "0000018bcfe65260 55494431", rocksdb_rows.TIMER_BOOKKEEPING[0].hex()),
    "trans key": _rows("trans", "0000000000000400 40 546f706963 40 55494431"),
    "row values": Decoder(row_values, [bytes(size) for size in (8, 12, 16, 24, 28)], (tuple,)),
    "config value": Decoder(rocksdb_rows.decode_config_json, (b'\1{"a":1}',), (str, Flaw)),
    **{f"inflate {codec.name}": _stream(codec) for codec in BodyCodec},
}
HUGE = [bytes.fromhex(text) for text in ("7fffffff", "80000000", "ffffffff", "7fff", "ffff", "8000", "7f", "ff", "80")]


def iter_garbage(examples: Sequence[bytes], seed: str, count: int) -> Iterator[bytes]:
    """Yield ``count`` inputs: truncations at every length and runs of zeros first, then what chance makes."""
    for example in examples:
        for length in range(len(example) + 1):
            yield example[:length]
            yield bytes(length)
            yield bytes(length) + example[length:]
            yield example[:length] + bytes(len(example) - length)
            count -= 4
    chance = random.Random(seed)
    for _ in range(count):
        kind = chance.random()
        if kind < 0.2:
            yield chance.randbytes(int(chance.random() * MOST_BYTES))
            continue
        example = examples[int(chance.random() * len(examples))]
        at = int(chance.random() * len(example))
        if kind < 0.5:
            claim = HUGE[int(chance.random() * len(HUGE))]
            yield example[:at] + claim + example[at + len(claim) :]
        elif kind < 0.8:
            noise = chance.randbytes(1 + int(chance.random() * 4))
            yield example[:at] + noise + example[at + len(noise) :]
        elif kind < 0.9:
            yield example[:at] + example
        else:
            yield example[at:] + example[: int(chance.random() * 40)]


def judge(answer: object, kinds: tuple[type, ...], data: bytes) -> None:
    """The answer is of a declared kind, points into the bytes and holds no more than they do."""
    for part in answer if type(answer) is list else (answer,):
        assert isinstance(part, kinds), type(part)
        if type(part) is Flaw:
            assert part.code[:3] in ("CL-", "CQ-", "TM-", "DL-", "CP-", "RX-", "BD-"), part.code
            assert part.at >= 0 <= part.length
            assert part.at + part.length <= len(data)
            assert len(part.message) < 400


@pytest.mark.parametrize("name", DECODERS)
def test_garbage(name: str) -> None:
    decode, examples, kinds = DECODERS[name]
    seen = 0
    for data in iter_garbage(examples, name, INPUTS):
        judge(decode(data), kinds, data)
        seen += 1
    assert seen == INPUTS


@pytest.mark.parametrize("name", DECODERS)
def test_a_length_that_lies_costs_no_memory(name: str) -> None:
    decode, examples, _ = DECODERS[name]
    inputs = [
        example[:at] + claim + example[at + len(claim) :]
        for example in examples
        for claim in HUGE[:6]
        for at in range(0, len(example), 2)
    ]
    for data in inputs[:20]:
        decode(data)
    tracemalloc.start()
    try:
        for data in inputs:
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            decode(data)
            _, peak = tracemalloc.get_traced_memory()
            # The inflaters take their output in steps; everything else has a small multiple of what it was given.
            room = 1 << 19 if name.startswith("inflate") else 40 * len(data) + (1 << 14)
            assert peak - before < room, f"{peak - before} bytes for {data.hex()}"
    finally:
        tracemalloc.stop()


def test_garbage_is_the_same_at_every_run_and_reaches_every_answer() -> None:
    first, again = (list(iter_garbage(RECORDS, "seed", 3000)) for _ in range(2))
    assert first == again
    answers = {type(commit_log.decode_record(data)) for data in iter_garbage(RECORDS, "decode_record", INPUTS)}
    assert answers == {Message, Blank, Nothing, Flaw}
