"""The table of the kernel's goals: ours, the real classes or another measure beside it, and how fast ours has to be.

Both sides are measured in turns, and the medians are compared: by processor time, or by the clock where threads or the
disk are the point. Java is the faster of the real 4.9.8 and 5.3.3, on the same data. A row below its goal fails, unless
it has a ``floor``: a share that was measured and taken apart; the reason stands beside it.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import NamedTuple

import pytest
from tabulate import tabulate

from rmqtool import kernel
from rmqtool.columns.compiled import WRONG_CRC, WRONG_PROPERTY_CRC, new_table
from rmqtool.columns.encode import encode_records
from rmqtool.columns.starts import record_starts
from rmqtool.files.posix import PosixReadableFileSystem
from rmqtool.formats.commit_log import Blank, Nothing, encode_blank
from rmqtool.log.ranges import Effort
from rmqtool.log.read import WINDOW
from rmqtool.log.select import Selection
from rmqtool.log.sources import open_source
from rmqtool.log.stream import Request, iter_numbers
from rmqtool.store.open import open_store
from tests.bench.large_store import write_large_store
from tests.bench.memory import peak_of
from tests.bench.one_run import AS_INSTALLED
from tests.bench.peer.__main__ import LIKE_A_PRODUCER, PRETOUCHED, PUTS
from tests.bench.peer.build import VERSIONS, build, peer, work
from tests.bench.test_bulk import outgoing, plain_line
from tests.bench.test_check import checked, read_all
from tests.bench.test_engine import ours, real_classes, run

__all__ = ["real_classes"]

NATIVE = kernel.NATIVE
pytestmark = [
    pytest.mark.bench,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(NATIVE is None, reason=f"there is no compiled kernel: {kernel.WHY_NOT}"),
]

ROUNDS, PUT_ROUNDS = 3, 5
# What figures of one run differ by on a machine that nobody else uses.
NOISE = 0.9
CHUNK = 8192
ROOT = Path(__file__).resolve().parents[2]
# The last commit whose scans, checks and exports ran on numpy alone, with worker processes.
NUMPY_TIER = "5a1945c9e6b61a7b0191092dbbf8f03be10e77ef"
CPU, WALL = "process_cpu_us_msg", "us_msg"


class Row(NamedTuple):
    """One line of the table: how many times as fast as what is beside it ours is, and has to be."""

    says: str
    unit: str
    ours: list[float]
    beside: str
    theirs: list[float]
    wanted: float
    floor: float | None = None

    @property
    def times(self) -> float:
        return median(self.theirs) / median(self.ours)

    @property
    def is_missed(self) -> bool:
        return self.times < (self.wanted if self.floor is None else self.floor) * NOISE

    def cells(self) -> list[str]:
        """Return the cells of the line."""
        mine, other = f"{median(self.ours):.4g} {self.unit}", f"{median(self.theirs):.4g}"
        floor = "" if self.floor is None else f" (floor {self.floor:g})"
        return [self.says, mine, self.beside, other, f"{self.times:.2f}", f"{self.wanted:g}{floor}"]


class Table:
    """The rows of all tests, printed at the end."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def add(self, *rows: Row) -> None:
        """Keep rows; fail for those that miss what is wanted."""
        self.rows += rows
        missed = [row.cells() for row in rows if row.is_missed]
        assert not missed, missed


@pytest.fixture(scope="module")
def table() -> Iterator[Table]:
    found = Table()
    yield found
    head = ["", "ours", "beside", "theirs", "times", "wanted"]
    lines = [row.cells() for row in found.rows]
    sys.stderr.write("\n" + tabulate(lines, headers=head, tablefmt="github", disable_numparse=True) + "\n")


@pytest.fixture(scope="module")
def scratch(real_classes: Callable[[str], None]) -> Iterator[Path]:
    """A directory on the disk, and the real classes ready."""
    for version in VERSIONS:
        real_classes(version)
    build()
    directory = work() / "data" / "goals"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    yield directory
    shutil.rmtree(directory)


@pytest.fixture(scope="module")
def written(scratch: Path) -> Callable[[int, int], Path]:
    """Stores that the real 4.9.8 has written, by the number of messages and the length of their bodies."""

    def write(messages: int, body: int) -> Path:
        root = scratch / f"{messages}-{body}"
        if not root.exists():
            sizes = ["--messages", str(messages), "--body", str(body), "--keep"]
            run(peer("4.9.8", "gen", str(root), *sizes, *LIKE_A_PRODUCER))
        return root

    return write


def faster(figures: dict[str, list[float]]) -> tuple[str, list[float]]:
    """Return which of the real classes are faster, and their figures."""
    version = min(figures, key=lambda one: median(figures[one]))
    return f"Java {version}", figures[version]


# --- walk and decode -------------------------------------------------------------------------------------------------

SCANS = {100: (500_000, {"walk": 2.0, "decode": 8.0}), 1024: (200_000, {"walk": 2.0, "decode": 4.0})}
# The goal for 100 bytes was set where Java decoded in 246 ns; where the floor was measured it takes 155 to 167. Of the
# kernel's 22 to 24 ns, 15 go into proving a record and into its 22 columns, 6 into its checksum.
DECODE_FLOORS = {100: 6.5, 1024: None}
# Of 1 KiB records each header is a miss in all caches: 16 ns, and 4 once the third cache has them. More walks at once
# (24, 32, 48, 60), larger blocks, and starts in memory that is used again change less than the noise.
WALK_FLOORS = {100: None, 1024: 1.2}


def walk(log: list[bytes]) -> int:
    """Return how many records start in the log, found a window at a time as a scan does."""
    count = 0
    for data in log:
        view, at, found = memoryview(data), 0, WINDOW
        while found:
            starts = record_starts(view[at : at + WINDOW])
            found = starts.stopped_at
            count += len(starts.file_offsets)
            at += found
    return count


def decode(log: list[bytes]) -> int:
    """Return how many records were decoded to columns, with their checksums."""
    assert NATIVE is not None
    columns, count = new_table(CHUNK), 0
    for data in log:
        at, rows = 0, CHUNK
        while rows == CHUNK:
            rows, at = NATIVE.scan(data, at, columns, CHUNK, 0, WRONG_CRC | WRONG_PROPERTY_CRC)
            count += rows
    return count


def spent(function: Callable[[list[bytes]], int], log: list[bytes], messages: int) -> float:
    """Return the processor time in ns a message."""
    start = time.thread_time()
    assert function(log) == messages
    return (time.thread_time() - start) / messages * 1e9


@pytest.mark.parametrize("body", SCANS)
def test_walk_and_decode(body: int, table: Table, written: Callable[[int, int], Path]) -> None:
    messages, wanted = SCANS[body]
    root = written(messages, body)
    log = [path.read_bytes() for path in sorted((root / "commitlog").iterdir())]
    mine: dict[str, list[float]] = {"walk": [], "decode": []}
    java: dict[str, dict[str, list[float]]] = {mode: {version: [] for version in VERSIONS} for mode in mine}
    for _ in range(ROUNDS):
        for mode, function in (("walk", walk), ("decode", decode)):
            mine[mode].append(spent(function, log, messages))
        for version in VERSIONS:
            found = run(peer(version, "scan", str(root), "--warm", "1", "--reps", "2", settings=PRETOUCHED))
            for mode, by_version in java.items():
                by_version[version].append(found[f"modes.{mode}.cpu_ns_msg"])
    says = {"walk": f"walk, {body} B", "decode": f"decode to columns with CRC, {body} B"}
    floors = {"walk": WALK_FLOORS[body], "decode": DECODE_FLOORS[body]}
    table.add(*(Row(says[mode], "ns", mine[mode], *faster(java[mode]), wanted[mode], floors[mode]) for mode in mine))


def test_two_threads(table: Table, written: Callable[[int, int], Path]) -> None:
    """Two halves at once: the interpreter's lock is given away."""
    messages, _ = SCANS[100]
    data = next((written(messages, 100) / "commitlog").iterdir()).read_bytes()
    starts = record_starts(data).file_offsets
    half, end = int(starts[len(starts) // 2]), int(starts[-1])
    pieces = [data[:half]] * 10, [data[half:end]] * 10
    alone, together = [], []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for piece in pieces:
            decode(piece)
        alone.append((time.perf_counter() - start) * 1000)
        threads = [threading.Thread(target=decode, args=(piece,)) for piece in pieces]
        start = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        together.append((time.perf_counter() - start) * 1000)
    table.add(Row("decode by two threads", "ms", together, "one thread", alone, 1.8))


# --- commands --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def plain_store(scratch: Path) -> tuple[Path, int]:
    """Two million messages of 100 bytes in one segment, without queues."""
    root, part, parts = scratch / "plain", 250_000, 8
    (root / "commitlog").mkdir(parents=True)
    (root / "checkpoint").write_bytes(bytes(4096))
    with (root / "commitlog" / f"{0:020d}").open("wb") as file:
        for _ in range(parts):
            file.write(encode_records(outgoing(100, part), file.tell()).data)
        file.write(encode_blank(64) + bytes(56))
    return root, part * parts


@pytest.fixture(scope="module")
def large_store(scratch: Path) -> tuple[Path, int]:
    """2 GiB with bodies of 1 KiB, 200 queues and an index."""
    root = scratch / "large"
    root.mkdir()
    return root, write_large_store(root, 2 << 30)


class Cost(NamedTuple):
    """Seconds of one command: on the clock, and of processors."""

    wall: float
    processor: float


def command(*words: object, tree: Path = ROOT, **settings: str) -> Cost:
    """Run the tool of a source tree; what it prints goes through a pipe and is dropped."""
    environment = {**AS_INSTALLED, "PYTHONPATH": str(tree), **settings}
    line = [sys.executable, "-m", "rmqtool", *map(str, words)]
    start = time.monotonic()
    process = subprocess.Popen(line, env=environment, cwd="/", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    with process.stdout, open(os.devnull, "wb") as sink:
        while os.splice(process.stdout.fileno(), sink.fileno(), 1 << 20):
            pass
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = status
    assert status == 0, words
    return Cost(time.monotonic() - start, usage.ru_utime + usage.ru_stime)


def test_check_against_reading(table: Table, large_store: tuple[Path, int]) -> None:
    root, messages = large_store
    reading: list[float] = []
    taken: dict[int, list[float]] = {1: [], 2: []}
    read_all(root)
    for _ in range(ROUNDS):
        reading.append(read_all(root))
        for jobs, times in taken.items():
            seconds, findings, seen, _ = checked(root, jobs)
            assert (findings, seen) == (0, messages)
            times.append(seconds)
    # Of 480 ns a message reading takes 185, the kernel 70; the rest is numpy and Python for each window, and for each
    # queue in each batch. Larger and smaller batches and no collection of garbage gain nothing; windows of 8 MiB gain
    # 7 % and cost memory. Two threads share that rest, at which they take turns.
    table.add(
        Row("check, 1 KiB, one core", "s", taken[1], "reading the files", reading, 0.45, 0.35),
        Row("check, 1 KiB, two cores", "s", taken[2], "reading the files", reading, 0.8, 0.39),
    )


def plain_loop(data: bytes, messages: int) -> None:
    """Check and spell messages with struct, zlib and json."""
    at = 0
    with open(os.devnull, "wb") as sink:
        for _ in range(messages):
            size, crc, length = *struct.unpack_from(">I4xI", data, at), *struct.unpack_from(">I", data, at + 84)
            assert zlib.crc32(data[at + 88 : at + 88 + length]) & 0x7FFFFFFF == crc
            sink.write((plain_line(data, at) + "\n").encode())
            at += size


def test_lines(table: Table, plain_store: tuple[Path, int]) -> None:
    root, count = plain_store
    part = 50_000
    with (root / "commitlog" / f"{0:020d}").open("rb") as file:
        data = file.read(part * 400)
    mine, plain = [], []
    for _ in range(ROUNDS):
        start = time.process_time()
        plain_loop(data, part)
        plain.append((time.process_time() - start) / part * 1e9)
        mine.append(command("cat", root, "--jsonl", "-j", "1").processor / count * 1e9)
    # 340 to 430 ns: the line itself 125, the pipe 100 to 165, reading and decoding 55, start-up 70.
    table.add(Row("cat --jsonl, 2 M messages to a pipe", "ns", mine, "struct and json", plain, 25, 20))


def read_and_walk(root: Path) -> int:
    """Read the log a window at a time and find every start."""
    with (
        PosixReadableFileSystem(str(root / "commitlog")) as files,
        files.open_read(f"{0:020d}") as file,
    ):
        at = count = 0
        while True:
            found = record_starts(file.pread(WINDOW, at))
            count += len(found.file_offsets)
            at += found.stopped_at
            if isinstance(found.stopped_by, Blank | Nothing) or not found.stopped_at:
                return count


def test_count(table: Table, plain_store: tuple[Path, int]) -> None:
    root, count = plain_store
    mine, walks, numbers = [], [], []
    for _ in range(ROUNDS):
        start = time.process_time()
        assert read_and_walk(root) == count
        walks.append((time.process_time() - start) / count * 1e9)
        with open_source(str(root), open_store) as source:
            start = time.process_time()
            numbers = list(iter_numbers(source, Request(Selection()), Effort()))
            mine.append((time.process_time() - start) / count * 1e9)
    assert numbers
    # 21 ns with 13.4 to read and walk: 4 ns look at the lengths, which are on other cache lines than the sizes of the
    # walk; the rest is the last window of each range, which is decoded, and what is done once for each range. Windows
    # from 256 KiB to 4 MiB were tried: 1 MiB is the best.
    table.add(Row("cat --count", "ns", mine, "read and walk", walks, round(1 / 1.3, 2), 0.55))


# --- a working store -------------------------------------------------------------------------------------------------

SCENARIOS = ("warmup", "async1_100", "batch1_100", "warmup8", "sync8_100", "syncpipe_100")
MESSAGES = {"producer": 100_000, "many": 300_000, "columns": 500_000, "sync": 20_000, "pipelined": 100_000}


def theirs(version: str, directory: Path) -> dict[str, float]:
    """Measure the real store: all scenarios in one machine that has warmed up."""
    suite = [" ".join([name, f"--messages {PUTS[name][0]}", PUTS[name][1], *LIKE_A_PRODUCER]) for name in SCENARIOS]
    return run(peer(version, "suite", str(directory), *suite, settings=PRETOUCHED))


def test_puts(table: Table, scratch: Path) -> None:
    mine: dict[str, list[dict[str, float]]] = {scenario: [] for scenario in MESSAGES}
    java: dict[str, list[dict[str, float]]] = {version: [] for version in VERSIONS}
    for _ in range(PUT_ROUNDS):
        for scenario, messages in MESSAGES.items():
            mine[scenario].append(ours(scenario, scratch / "ours", "--messages", messages))
        for version in VERSIONS:
            java[version].append(theirs(version, scratch / "theirs"))

    def row(
        says: str, scenario: str, key: str, beside: str, wanted: float, versions: tuple[str, ...] = VERSIONS
    ) -> Row:
        name = f"scenarios.{beside}.{WALL if key == 'us_msg' else CPU}"
        figures = {version: [found[name] for found in java[version]] for version in versions}
        return Row(says, "us", [found[key] for found in mine[scenario]], *faster(figures), wanted)

    first = VERSIONS[:1]
    one_by_one = row(
        "put one by one through Producer, with dispatch", "producer", "cpu_us_msg", "async1_100", 0.9, first
    )
    table.add(
        # 4.2 to 4.8 us where Java takes 3.5: the write itself 0.8 to 1.2, making and checking the message 0.5, the
        # kernel's record 0.2, dispatch in passes 0.3, and 2 of Python for key, queue, lock, numbers and result.
        one_by_one._replace(floor=0.75),
        row("put_many, with dispatch", "many", "cpu_us_msg", "async1_100", 1.2),
        row("put_columns beside batches of 100", "columns", "cpu_us_msg", "batch1_100", 1.8),
        row("sync put, 8 producers, processor time", "sync", "cpu_us_msg", "sync8_100", round(1 / 0.6, 2), first),
        row("sync put, window of 512", "pipelined", "us_msg", "syncpipe_100", 1.2, first),
    )


_GET = """
import json, sys, time
from pathlib import Path
from rmqtool.config import Version
from rmqtool.engine.store import MessageStore
from rmqtool.formats.commit_log import Message
from tests.support.recovered import setup_for

def whole(got):
    for message in got.decoded():
        assert type(message) is Message

def three(got):
    total = 0
    for queue_offset, tags, body in got.fields("queue_offset", "tags", "raw_body"):
        total += queue_offset + len(tags) + len(body)

times = {}
with MessageStore.open(setup_for(Path(sys.argv[1]), Version.V4_9)) as store:
    for work in (whole, three) * 3:
        start, seen = time.process_time(), 0
        for queue in store.queues():
            offset = 0
            while offset < queue.max_offset:
                got = store.reader.get(*queue.key, offset)
                work(got)
                seen += got.count
                offset = got.next_begin_offset
        times.setdefault(work.__name__, []).append((time.process_time() - start) / seen * 1e9)
print(json.dumps({"seen": seen} | {name: min(found) for name, found in times.items()}))
"""


def program(text: str, root: Path) -> dict[str, float]:
    """Run a program on a store in a process of its own; return what it printed."""
    done = subprocess.run([sys.executable, "-c", text, str(root)], cwd=ROOT, check=True, capture_output=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def test_gets(table: Table, written: Callable[[int, int], Path]) -> None:
    messages, _ = SCANS[100]
    root = written(messages, 100)
    mine: dict[str, list[float]] = {"whole": [], "three": []}
    java: dict[str, list[float]] = {"decode": [], "three": []}
    for _ in range(ROUNDS):
        found = run(
            peer(
                "4.9.8", "get", str(root), "--warm", "1", "--reps", "2", "--modes", "decode,three", settings=PRETOUCHED
            )
        )
        for mode, figures in java.items():
            figures.append(found[f"modes.{mode}.cpu_ns_msg"])
        told = program(_GET, root)
        assert told["seen"] == messages
        for name, times in mine.items():
            times.append(told[name])
    table.add(
        Row("get of 32, whole", "ns", mine["whole"], "Java 4.9.8", java["decode"], 0.5),
        Row("get of 32, queue offset, tags and body", "ns", mine["three"], "Java 4.9.8", java["three"], 0.7),
    )


def test_rebuild(table: Table, scratch: Path) -> None:
    messages = 500_000
    sizes = ["--messages", str(messages), "--body", "100", "--keep"]
    # Each rebuilds a store of its own: copying one reads its reserved room, which costs time from then on.
    ours("columns", scratch / "built", "--messages", messages)
    run(peer("4.9.8", "gen", str(scratch / "4.9.8"), *sizes, *LIKE_A_PRODUCER))
    mine, java = [], []
    for _ in range(ROUNDS):
        mine.append(ours("rebuild", scratch / "built")[WALL])
        java.append(1e6 / run(peer("4.9.8", "rebuild", str(scratch / "4.9.8"), settings=PRETOUCHED))["msg_s_ready"])
    # 0.32 us: 0.06 load numpy and the rooms that use it, 0.09 find the end of the log. A shorter walk to that end gains
    # 3 %; with smaller pieces there glibc returns memory to the system, which the dispatch then has to take again.
    table.add(Row("rebuild of queues and index", "us", mine, "Java 4.9.8", java, 4, 3.2))


# --- the tier without a kernel, and memory ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def numpy_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources of the numpy tier."""
    directory = tmp_path_factory.mktemp("numpy-tier")
    packed = subprocess.run(["git", "archive", NUMPY_TIER, "rmqtool"], cwd=ROOT, capture_output=True, check=False)
    if packed.returncode:
        pytest.skip(f"the history of this clone does not have {NUMPY_TIER}")
    subprocess.run(["tar", "-x", "-C", str(directory)], input=packed.stdout, check=True)
    return directory


def test_the_pure_tier(
    table: Table, numpy_tree: Path, plain_store: tuple[Path, int], large_store: tuple[Path, int], tmp_path: Path
) -> None:
    works: dict[str, Callable[[], tuple[object, ...]]] = {
        "cat --jsonl": lambda: ("cat", plain_store[0], "--jsonl", "-j", "2"),
        "check": lambda: ("check", large_store[0], "--quiet", "-j", "2"),
        "export": lambda: ("export", large_store[0], "--to", tmp_path / "out", "--engine", "local", "-j", "2"),
    }
    rows = []
    for name, words in works.items():
        pure, numpy = [], []
        for _ in range(ROUNDS):
            for tree, settings, times in ((ROOT, {"RMQTOOL_PURE": "1"}, pure), (numpy_tree, {}, numpy)):
                times.append(command(*words(), tree=tree, **settings).wall)
                shutil.rmtree(tmp_path / "out", ignore_errors=True)
        rows.append(Row(f"{name} -j2, pure tier", "s", pure, "numpy tier", numpy, 0.5))
    table.add(*rows)


MOST_MIB = 200


def test_memory(table: Table, large_store: tuple[Path, int], tmp_path: Path) -> None:
    root, _ = large_store
    scans: dict[str, tuple[object, ...]] = {
        "cat --jsonl": ("cat", root, "--jsonl"),
        "cat --count": ("cat", root, "--count"),
        "stat": ("stat", root),
        "check": ("check", root, "--quiet"),
        "export": ("export", root, "--to", tmp_path / "out", "--engine", "local"),
    }
    rows = []
    for name, words in scans.items():
        peaks = []
        for _ in range(ROUNDS):
            peaks.append(peak_of(*words, "-j", "2"))
            shutil.rmtree(tmp_path / "out", ignore_errors=True)
        rows.append(Row(f"memory of {name} -j2", "MiB", peaks, "limit", [MOST_MIB], 1))
    table.add(*rows)
