"""The kernel beside the array operations that stand in for it, in turns, in one process. Ratios are asserted.

Processor time of the thread in ns a record, the least of some rounds. S1 are messages of 100 bytes with two keys, S2 of
1 KiB, as the peer writes them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from rmqtool import kernel
from rmqtool.columns.compiled import WRONG_CRC, WRONG_PROPERTY_CRC, new_table
from rmqtool.columns.dispatched import index_keys
from rmqtool.columns.encode import Outgoing, encode_records
from rmqtool.columns.index_build import Keys, hang_in, slots_of
from rmqtool.columns.jsonl import iter_json_lines
from rmqtool.columns.properties import decode_properties
from rmqtool.columns.queues import queue_entries, runs_of
from rmqtool.columns.records import decode_records, have_right_crc, have_right_property_crc
from rmqtool.columns.starts import record_starts
from rmqtool.formats.dispatch import DispatchRules
from rmqtool.formats.layouts import IndexHeader
from tests.bench.test_bulk import outgoing

NATIVE, WHY_NOT = kernel.load(True, Path(kernel.__file__).parents[1] / "native")
pytestmark = [pytest.mark.bench, pytest.mark.skipif(NATIVE is None, reason=f"there is no compiled kernel: {WHY_NOT}")]

CHUNK, ROUNDS = 8192, 5
WINDOW = 8 << 20
RULES = DispatchRules()
CHECKS = WRONG_CRC | WRONG_PROPERTY_CRC


class Log(NamedTuple):
    """Records back to back."""

    name: str
    data: bytes
    starts: Any
    messages: Outgoing

    @property
    def count(self) -> int:
        return len(self.starts)

    def chunks(self) -> list[Any]:
        return [self.starts[at : at + CHUNK] for at in range(0, self.count, CHUNK)]


@pytest.fixture(scope="module", params=["S1", "S2"])
def log(request: pytest.FixtureRequest) -> Log:
    messages = outgoing(100, 200_000) if request.param == "S1" else outgoing(1024, 60_000)
    data = bytes(encode_records(messages, 0).data)
    return Log(request.param, data, record_starts(data).file_offsets, messages)


def in_turns(work: Callable[[], object], count: int) -> tuple[float, float]:
    """Nanoseconds a record by the kernel and by the arrays, the least of some rounds in turns."""
    times: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(ROUNDS):
        for is_native, tier in ((True, NATIVE), (False, None)):
            kernel.NATIVE = tier
            begin = time.thread_time()
            work()
            times[is_native].append(time.thread_time() - begin)
    kernel.NATIVE = NATIVE
    return min(times[True]) / count * 1e9, min(times[False]) / count * 1e9


def say(what: str, log: Log, work: Callable[[], object], least: float) -> None:
    native, arrays = in_turns(work, log.count)
    print(f"\n{log.name} {what}: kernel {native:.1f} ns a record, arrays {arrays:.1f}, ratio {arrays / native:.1f}")
    assert arrays / native >= least


def test_walk(log: Log) -> None:
    say("walk", log, lambda: record_starts(log.data), 2)


def test_decode_with_checksums(log: Log) -> None:
    def decode() -> None:
        view = memoryview(log.data)
        for at in range(0, len(view), WINDOW):
            piece = view[at : at + WINDOW]
            first = int(log.starts[np.searchsorted(log.starts, at)]) - at
            found = record_starts(piece, first).file_offsets
            for begin in range(0, len(found), CHUNK):
                records, _ = decode_records(piece, found[begin : begin + CHUNK], checks=CHECKS)
                have_right_crc(records)
                have_right_property_crc(records)
                for name in ("queue_id", "physical_offset", "sys_flag", "store_timestamp", "body_length", "total_size"):
                    records.column(name)

    say("walk, columns, both checksums", log, decode, 2)


def test_kernel_alone(log: Log) -> None:
    assert NATIVE is not None
    table, times = new_table(CHUNK), []
    for _ in range(ROUNDS):
        begin, at, rows = time.thread_time(), 0, CHUNK
        while rows == CHUNK:
            rows, at = NATIVE.scan(log.data, at, table, CHUNK, 0, CHECKS)
        times.append(time.thread_time() - begin)
    print(f"\n{log.name} scan with checksums, kernel alone: {min(times) / log.count * 1e9:.1f} ns a record")
    assert at == len(log.data)


def test_queue_entries_and_keys(log: Log) -> None:
    def dispatch() -> None:
        for starts in log.chunks():
            records, _ = decode_records(log.data, starts)
            properties = decode_properties(records)
            runs_of([queue_entries(records, properties, RULES)])
            index_keys(records, properties, RULES)

    say("columns, queue entries by queue, keys", log, dispatch, 1.5)


def test_index_entries(log: Log) -> None:
    records, _ = decode_records(log.data, log.starts)
    found = index_keys(records, decode_properties(records), RULES)
    places, times = records.column("physical_offset"), records.column("store_timestamp")
    keys = Keys(found.key_hashes, places[found.rows], times[found.rows])

    def insert() -> None:
        slots, header = slots_of(bytearray(20_000_000)), IndexHeader(0, 0, 0, 0, 0, 0)
        for at in range(0, len(keys.key_hashes), 2 * CHUNK):
            header = hang_in(slots, header, keys.cut(at, at + 2 * CHUNK)).header

    say("index entries, two keys", log, insert, 1.5)


def test_lines(log: Log) -> None:
    def spell() -> None:
        for starts in log.chunks():
            for _ in iter_json_lines(decode_records(log.data, starts)[0]):
                pass

    say("lines", log, spell, 2)


def test_slabs(log: Log) -> None:
    say("slabs", log, lambda: encode_records(log.messages, 0), 1.2)


def test_two_threads(log: Log) -> None:
    """Two halves at once: the interpreter's lock is given away."""
    assert NATIVE is not None
    half = int(log.starts[log.count // 2])
    pieces = (log.data[:half], log.data[half:])

    def scan(data: bytes) -> None:
        table = new_table(CHUNK)
        for _ in range(10):
            at, rows = 0, CHUNK
            while rows == CHUNK:
                rows, at = NATIVE.scan(data, at, table, CHUNK, 0, CHECKS)

    def wall(work: Callable[[], None]) -> float:
        begin = time.perf_counter()
        work()
        return time.perf_counter() - begin

    def together() -> None:
        threads = [threading.Thread(target=scan, args=(piece,)) for piece in pieces]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    ratios = [wall(lambda: [scan(piece) for piece in pieces]) / wall(together) for _ in range(ROUNDS)]
    print(f"\n{log.name} two threads: {max(ratios):.2f} times one")
