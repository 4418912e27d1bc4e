"""``cat`` and what lies beneath it: against the real classes, a plain loop, and limits.

Ratios are of figures that were measured in turns; times are printed. On a machine that others use, what runs in an
interpreter loses more than what a compiler made: then ratios are printed and not asserted.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from rmqtool.columns.encode import encode_records
from rmqtool.columns.pieces import coded_texts
from rmqtool.columns.starts import record_starts
from rmqtool.files.filesystem import ReadableFile
from rmqtool.files.posix import PosixReadableFileSystem
from rmqtool.formats.commit_log import Blank, Nothing, encode_blank
from rmqtool.formats.layout import Buffer
from rmqtool.log.ranges import Effort
from rmqtool.log.read import WINDOW, Rows, SegmentScan
from rmqtool.log.select import Selection
from rmqtool.log.sources import open_source
from rmqtool.log.stream import Request, iter_numbers
from rmqtool.store.open import open_store
from tests.bench.large_store import write_large_store
from tests.bench.memory import peak_of
from tests.bench.test_bulk import outgoing, plain_line

pytestmark = pytest.mark.bench

MIB = 1 << 20
ROUNDS = 5
# What figures of one run differ by on a machine that nobody else uses.
NOISE = 0.85
# Others may use so much of one processor meanwhile.
MOST_FOREIGN = 0.2


class Cost(NamedTuple):
    """Of one command: seconds, and seconds of processor time of all its processes."""

    wall: float
    processor: float


def spawn(*words: object) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "rmqtool", "cat", *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def cat(*words: object) -> Cost:
    """Run the command; nobody reads what it says."""
    start = time.monotonic()
    process = spawn(*words)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = status
    assert status == 0, words
    return Cost(time.monotonic() - start, usage.ru_utime + usage.ru_stime)


def taken(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def busy_seconds() -> float:
    """Return the processor time of everybody on this machine."""
    fields = Path("/proc/stat").read_text().splitlines()[0].split()[1:9]
    ticks = [int(field) for field in fields]
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")


class Watch:
    """What others use of the machine from now on."""

    def __init__(self) -> None:
        self.start = time.monotonic(), busy_seconds(), sum(os.times()[:4])

    def require_quiet(self) -> None:
        """Skip the rest of the test where others took part of the time."""
        wall, busy, own = self.start
        others = (busy_seconds() - busy - sum(os.times()[:4]) + own) / (time.monotonic() - wall)
        if others > MOST_FOREIGN:
            pytest.skip(f"nothing is asserted: others used {others:.1f} processors meanwhile")


def say(text: str) -> None:
    print(f"\n{text}", end="", flush=True)


# --- against the real classes ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def peer_store() -> tuple[Path, int]:
    """A store that 4.9.8 wrote: 200,000 messages with bodies of 100 bytes."""
    from tests.bench.peer.__main__ import LIKE_A_PRODUCER
    from tests.bench.peer.build import build, peer, work
    from tests.conformance.oracle.packages import OracleError, missing_tools

    if tools := missing_tools():
        pytest.skip(f"not installed: {', '.join(tools)}")
    try:
        build()
    except OracleError as error:
        pytest.skip(str(error))
    root, count = work() / "data" / "cat" / "S1", 200_000
    if not (root / "checkpoint").exists():
        root.parent.mkdir(parents=True, exist_ok=True)
        sizes = ["--messages", str(count), "--body", "100", "--warm", str(count // 10)]
        command = peer("4.9.8", "gen", str(root), *sizes, "--keep", *LIKE_A_PRODUCER)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return root, count


def walk(read: Callable[[int, int], Buffer], size: int) -> int:
    """Every record's start, a window at a time; ``read`` gives so many bytes from an offset on."""
    at = count = 0
    while True:
        found = record_starts(read(min(WINDOW, size - at), at))
        count += len(found.file_offsets)
        at += found.stopped_at
        if isinstance(found.stopped_by, Blank | Nothing) or not found.stopped_at:
            return count


NUMBERS = (
    *("queue_id", "flag", "queue_offset", "physical_offset", "sys_flag", "born_timestamp", "store_timestamp"),
    *("reconsume_times", "prepared_transaction_offset", "body_crc", "body_length", "total_size"),
)


def decode(file: ReadableFile) -> int:
    """Every record as columns of numbers and topics, all checksums and places looked at."""
    count = 0
    for piece in SegmentScan(file, 0).pieces():
        if isinstance(piece, Rows):
            records = piece.records
            for name in NUMBERS:
                records.column(name)
            coded_texts(records.data, records.topic_offsets, records.topic_lengths)
            count += len(records)
    return count


def test_against_the_real_classes(peer_store: tuple[Path, int]) -> None:
    from tests.bench.peer.build import peer
    from tests.bench.peer.measuring import figures

    root, count = peer_store
    watch = Watch()
    command = peer("4.9.8", "scan", str(root), "--warm", "1", "--reps", "2", settings={"flags": "-XX:+AlwaysPreTouch"})
    java: dict[str, list[float]] = {"walk": [], "decode": []}
    ours: dict[str, list[float]] = {"walk": [], "read and walk": [], "decode": [], "count": []}
    with (
        PosixReadableFileSystem(str(root / "commitlog")) as files,
        files.open_read(f"{0:020d}") as file,
        open_source(str(root), open_store) as source,
    ):
        used = next(file.iter_data()).end
        data = memoryview(file.pread(used, 0))
        works = {
            "walk": lambda: walk(lambda length, at: data[at : at + length], used),
            "read and walk": lambda: walk(file.pread, used),
            "decode": lambda: decode(file),
            "count": lambda: list(iter_numbers(source, Request(Selection()), Effort())),
        }
        assert works["walk"]() == works["read and walk"]() == works["decode"]() == count
        for _ in range(ROUNDS):
            told = figures(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            for name, values in java.items():
                values.append(told[f"modes.{name}.cpu_ns_msg"])
            for name, work in works.items():
                ours[name] += [taken(work) / count * 1e9 for _ in range(3)]
    best = {name: min(values) for name, values in ours.items()}
    peers = {name: min(values) for name, values in java.items()}
    say(f"walk: {best['walk']:.0f} ns a record, the real classes {peers['walk']:.0f} (limit 60)")
    ratio = peers["decode"] / best["decode"]
    say(f"decode with checksums: {best['decode']:.0f} ns, they {peers['decode']:.0f}: ratio {ratio:.2f} (limit 0.6)")
    walks = best["count"] / best["read and walk"]
    say(f"--count: {best['count']:.0f} ns, {walks:.2f} times reading and walking (limit 2)")
    watch.require_quiet()
    assert best["walk"] <= 60 / NOISE
    assert ratio >= 0.6 * NOISE
    assert walks <= 2 / NOISE


# --- against a plain loop --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def plain_store(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    root, count = tmp_path_factory.mktemp("bench") / "store", 1_000_000
    (root / "commitlog").mkdir(parents=True)
    (root / "checkpoint").write_bytes(bytes(4096))
    slab = encode_records(outgoing(100, count), 0)
    (root / "commitlog" / f"{0:020d}").write_bytes(slab.data + encode_blank(64) + bytes(56))
    return root, count


def test_lines_against_a_plain_loop(plain_store: tuple[Path, int]) -> None:
    """The whole command, its start included, against a loop that checks and decodes the same."""
    root, count = plain_store
    data = (root / "commitlog" / f"{0:020d}").read_bytes()
    part = count // 20

    def loop() -> None:
        at = 0
        with open(os.devnull, "wb") as sink:
            for _ in range(part):
                size, crc, length = *struct.unpack_from(">I4xI", data, at), *struct.unpack_from(">I", data, at + 84)
                assert zlib.crc32(data[at + 88 : at + 88 + length]) & 0x7FFFFFFF == crc
                sink.write((plain_line(data, at) + "\n").encode())
                at += size

    assert json.loads(plain_line(data, 0))["commitLogOffset"] == 0
    plain, ours, watch = [], [], Watch()
    for _ in range(3):
        plain.append(taken(loop) / part * 1e9)
        ours.append(cat(root, "--jsonl", "-j", "1").processor / count * 1e9)
    ratio = min(plain) / min(ours)
    say(f"cat --jsonl: {min(ours):.0f} ns a message, plain loop {min(plain):.0f}: ratio {ratio:.1f} (limit 6)")
    watch.require_quiet()
    assert ratio >= 6 * NOISE


# --- on a large store ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def large_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, int]]:
    """5 GiB, forty topics of five queues each."""
    import shutil

    root = tmp_path_factory.mktemp("large") / "store"
    yield root, write_large_store(root, 5 << 30, topics=40, queues=200)
    shutil.rmtree(root)


@pytest.mark.parametrize(
    "words",
    [
        ["--jsonl", "-j", "1"],
        ["--jsonl", "-j", "2"],
        ["--count", "-j", "2"],
        ["--order", "queue", "-t", "Orders1", "--jsonl", "-j", "1"],
        ["--order", "time", "-n", "1000", "--jsonl", "-j", "1"],
        ["--sample", "1000", "-j", "1"],
        ["--template", "{keys}", "-q", "0", "-t", "Orders1"],
    ],
    ids=" ".join,
)
def test_memory_stays_flat(words: list[str], large_store: tuple[Path, int]) -> None:
    root, _ = large_store
    peak = peak_of("cat", root, *words)
    say(f"cat {' '.join(words)} on 5 GiB: at most {peak:.0f} MiB (limit 256)")
    assert peak <= 256


def test_memory_stays_flat_with_small_messages(tmp_path: Path) -> None:
    """Of these a topic of few has hundreds of thousands in what is a small part of a log."""
    root = tmp_path / "store"
    write_large_store(root, 512 << 20, body_length=64, topics=4, queues=16)
    for words in (["-t", "Orders1"], ["-t", "Orders[012]"]):
        for jobs in (1, 2):
            peak = peak_of("cat", root, *words, "--jsonl", "-j", jobs)
            say(f"cat {' '.join(words)} --jsonl -j {jobs}, small messages: at most {peak:.0f} MiB (limit 256)")
            assert peak <= 256


def test_one_topic_of_many_goes_through_its_queues(large_store: tuple[Path, int]) -> None:
    root, count = large_store
    whole, one = [], []
    for _ in range(2):
        whole.append(cat(root, "--jsonl", "-j", "1", "--body", "none", "--count").processor)
        one.append(cat(root, "-t", "Orders7", "--jsonl", "-j", "1").processor)
    through = cat(root, "--body-re", "zzzzzzzz", "--jsonl", "-j", "1").processor
    say(f"1 topic of 40 in {min(one):.1f} s, counting all {count} in {min(whole):.1f} s, reading all {through:.1f} s")
    assert min(one) < through / 3


def test_two_threads(large_store: tuple[Path, int]) -> None:
    root, _ = large_store
    walls: dict[int, list[float]] = {1: [], 2: []}
    watch = Watch()
    for _ in range(3):
        for jobs, values in walls.items():
            values.append(cat(root, "--jsonl", "-j", jobs).wall)
    ratio = min(walls[1]) / min(walls[2])
    say(f"--jsonl by one thread {min(walls[1]):.1f} s, by two {min(walls[2]):.1f} s: ratio {ratio:.2f} (limit 1.7)")
    watch.require_quiet()
    assert ratio >= 1.7
