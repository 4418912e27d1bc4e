"""Works that publish something, recorded by their system calls: copies, exports, batches of a stream, mirrors, serve.

A work runs once under ``strace``. At some call the power goes, what may be left is put on a real disk, read by the
independent reader, and the work is done again there as a user would: what was acknowledged is there, nothing is there
by half, and afterwards everything is there once. A torn table is no Parquet file: Arrow reads those, not rmqtool.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import ClassVar, NamedTuple

import pyarrow.parquet as pq

from rmqtool.config import Version
from rmqtool.engine.bulk_load import StagedFile, StreamBatch, import_staged, staged_file
from rmqtool.engine.load import create_store
from rmqtool.engine.store import MessageStore
from rmqtool.errors import Exit
from rmqtool.files.filesystem import Kind
from rmqtool.files.posix_write import PosixWritableFileSystem
from rmqtool.files.publish import JobDirectory
from tests.crash import test_mirror_kill, test_serve_kill
from tests.proof import forked, reader, recorded
from tests.proof.campaign import Campaign, Outcome
from tests.proof.crashes import _LEAST
from tests.proof.ledger import ROOT
from tests.proof.model_disk import settle
from tests.proof.recorded import Did, calls_of, lay, missing, replay, strace
from tests.proof.workshop import workshop
from tests.support.engine_stores import a_message, small_setup
from tests.support.faulty_disk import FaultyDisk, Inode
from tests.support.scripted_cluster import in_thread
from tests.support.scripted_master import ScriptedMaster, log_files
from tests.support.serve_process import ServeProcess
from tests.support.wire_client import WireClient, send_fields

_SMALL_SEGMENTS = {"mappedFileSizeCommitLog": 16_384}


class Work:
    """One work below a directory of its own, ``place``."""

    name: ClassVar[str]
    # Files beside the store that are there only while the work is done.
    passing: ClassVar[tuple[str, ...]] = ()

    def __init__(self, place: Path) -> None:
        self.place = place
        self.store = place / "store"

    def prepare(self) -> None:
        """Make the store and the target that the work begins with."""

    def command(self) -> list[str]:
        """Return the command line of the work."""
        raise NotImplementedError

    def perform(self, traced: Sequence[str]) -> None:
        """Do the work, its program put after the words ``traced``."""
        done = subprocess.run([*traced, *self.command()], capture_output=True, cwd=ROOT, check=False)
        assert done.returncode == 0, done.stderr

    def judge(self, told: Sequence[Did]) -> list[str]:
        """Return in words what is wrong with what is left, of which ``told`` was said, and after doing it again."""
        raise NotImplementedError

    def again(self, words: Sequence[object]) -> list[str]:
        """Do it again; return what is wrong with how that ended, and what it left beside."""
        ended = forked.run([str(word) for word in words])
        wrong = [] if ended.status == 0 else [f"again: status {ended.status}: {ended.err[-300:].decode()}"]
        return wrong + [f"{one} is left" for one in self.passing if os.path.lexists(self.place / one)]


def rmqtool(*words: object) -> list[str]:
    return [sys.executable, "-m", "rmqtool", *map(str, words)]


def put_messages(root: Path, numbers: range) -> None:
    """Put messages into a small store, which is made if it is not there."""
    is_new = not root.exists()
    root.mkdir(exist_ok=True)
    with PosixWritableFileSystem(str(root)) as files:
        setup = small_setup(Version.V5_3, files, **_SMALL_SEGMENTS)
        if is_new:
            create_store(files, setup.config)
        with MessageStore.open(setup) as store:
            for number in numbers:
                assert store.put(a_message(number, topic="TU"[number % 2], queue_id=number % 3)).is_ok


def has_said(told: Sequence[Did]) -> bool:
    """Return whether a command said its result, with which it ends."""
    return b"".join(one.data for one in told if one.name == "said").endswith(b"\n")


class Copies(Work):
    """A copy is there as a whole or not at all, and can be made again where it is not."""

    name = "copy"
    passing = (".new.rmqtool-copy",)
    _IDS = "ids.jsonl"

    def prepare(self) -> None:
        put_messages(self.store, range(40))

    def command(self) -> list[str]:
        return rmqtool(*self._words())

    def _words(self) -> list[object]:
        return ["copy", self.store, self.place / "new", "--ids", self.place / self._IDS, "--json"]

    def judge(self, told: Sequence[Did]) -> list[str]:
        self._renumber()
        if not (self.place / "new").exists():
            wrong = ["the copy was said to be there, and is not"] if has_said(told) else []
            return wrong + self.again(self._words()) + self._flaws()
        return self._flaws()

    def _renumber(self) -> None:
        """Let the note of the files that come with a copy name them by their numbers on this disk."""
        noted = self.place / ".new.rmqtool-copy/companions.json"
        if noted.exists() and (found := noted.read_bytes()):
            there = [
                (path, final, Path(path) if os.path.lexists(path) else Path(final))
                for path, final, *_ in json.loads(found)
            ]
            kept = [(path, final, one.stat().st_dev, one.stat().st_ino) for path, final, one in there if one.exists()]
            noted.write_text(json.dumps(kept), encoding="utf-8")

    def _flaws(self) -> list[str]:
        new, old = (reader.tree_of(self.place / name) for name in ("new", "store"))
        # A copy has places of its own in its log.
        made, there = ({one.identity[1:] for one in reader.iter_records(tree)} for tree in (new, old))
        wrong = [] if made == there else [f"the copy has {len(made)} of {len(there)} messages"]
        wrong += reader.misplaced(new) + [f"no queue leads to {one.physical_offset}" for one in reader.unreached(new)]
        ids = self.place / self._IDS
        lines = ids.read_bytes().splitlines() if ids.exists() else []
        if len(lines) != len(there) or not all(json.loads(line) for line in lines):
            wrong.append(f"the copy has {len(lines)} ids of {len(there)}")
        return wrong


class Exports(Work):
    """An export to a new target: all rows or none. The next one adds what is not there; then each row is there once."""

    name = "export"
    passing = (".lake.rmqtool",)
    words: ClassVar[tuple[str, ...]] = ()
    # What those that are done afterwards type.
    goes_on: ClassVar[tuple[str, ...]] = ("--since-last",)

    def prepare(self) -> None:
        put_messages(self.store, range(30))

    def command(self) -> list[str]:
        return rmqtool(*self._words(*self.words))

    def _words(self, *more: object) -> list[object]:
        lake = self.place / "lake"
        return ["export", self.store, "--engine", "local", "-j", "1", "--to", lake, "--json", "--quiet", *more]

    def expected(self) -> Counter[int]:
        return Counter(one.physical_offset for one in reader.iter_records(reader.tree_of(self.store)))

    def judge(self, told: Sequence[Did]) -> list[str]:
        wrong = self.left(self.rows(), is_done=has_said(told))
        wrong += self.again(self._words(*self.goes_on))
        return wrong + [f"again: {one}" for one in self._other_rows(self.rows())]

    def left(self, rows: Counter[int], *, is_done: bool) -> list[str]:
        """Return what is wrong with the rows that are there before anybody goes on."""
        if rows or is_done or (self.place / "lake").exists():
            return self._other_rows(rows)
        return []

    def rows(self) -> Counter[int]:
        """Return where the messages of all rows are in the log."""
        return Counter(offset for path in self.tables() for offset in offsets_of(path))

    def tables(self) -> Iterator[Path]:
        """Yield the files that readers of the target see."""
        yield from (self.place / "lake").rglob("*.parquet")

    def _other_rows(self, rows: Counter[int]) -> list[str]:
        expected = self.expected()
        wrong = [f"{len(expected - rows)} rows are missing"] if expected - rows else []
        return wrong + ([f"{sum((rows - expected).values())} rows are there twice"] if rows - expected else [])


def offsets_of(path: Path) -> list[int]:
    """Return the places in the log of the rows of a table."""
    table = pq.ParquetFile(path).read(columns=["commitlog_offset"], use_threads=False)
    return [int(value) for value in table.column(0).to_pylist()]


class MoreExports(Exports):
    """An export that adds to a target. The rows of the one before stay; no row comes twice."""

    name = "export --since-last"
    words = ("--since-last",)

    def prepare(self) -> None:
        super().prepare()
        self._first = self.expected()
        ended = forked.run([str(word) for word in self._words()])
        assert ended.status == 0, ended.err
        put_messages(self.store, range(30, 55))

    def left(self, rows: Counter[int], *, is_done: bool) -> list[str]:
        if is_done:
            return self._other_rows(rows)
        wrong = ["rows of the export before are gone"] if self._first - rows else []
        return wrong + (["rows are there twice"] if rows - self.expected() else [])


class NewExports(MoreExports):
    """An export that replaces another one."""

    name = "export --mode overwrite"
    words = ("--mode", "overwrite")

    def left(self, rows: Counter[int], *, is_done: bool) -> list[str]:
        return self._other_rows(rows) if is_done or rows not in (Counter(), self._first) else []


class PartitionedExports(MoreExports):
    """An export with a directory for each topic that adds to a target."""

    name = "export --partition-by"
    words = goes_on = ("--since-last", "--partition-by", "topic")

    def _words(self, *more: object) -> list[object]:
        return super()._words(*(more or self.words[1:]))


class DeltaExports(Exports):
    """A Delta table: what its log names is there as a whole.

    Delta's client gives a commit its name before its content is durable. Where the power goes in between, nobody can
    read the table until the next export has removed that commit, which was not acknowledged.
    """

    name = "export --format delta"
    words = ("--format", "delta")
    goes_on = ("--format", "delta", "--since-last")

    def judge(self, told: Sequence[Did]) -> list[str]:
        wrong = super().judge(told)
        return wrong + [f"again: {path.name} is torn" for path in self._log() if _actions(path) is None]

    def left(self, rows: Counter[int], *, is_done: bool) -> list[str]:
        return self._other_rows(rows) if rows or is_done else []

    def tables(self) -> Iterator[Path]:
        added: dict[str, None] = {}
        for path in self._log():
            for action in _actions(path) or ():
                if "add" in action:
                    added[action["add"]["path"]] = None
                if "remove" in action:
                    del added[action["remove"]["path"]]
        yield from (self.place / "lake" / path for path in added)

    def _log(self) -> list[Path]:
        return sorted((self.place / "lake/_delta_log").glob("*.json"))


def _actions(path: Path) -> list[dict[str, dict[str, str]]] | None:
    """Return what a commit of a Delta table does, None if it is not whole."""
    try:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] or None
    except ValueError:
        return None


class MoreDeltaExports(DeltaExports):
    """An export that adds to a Delta table."""

    name = "export --format delta --since-last"
    words = goes_on = ("--format", "delta", "--since-last")

    def prepare(self) -> None:
        super().prepare()
        self._first = self.expected()
        ended = forked.run([str(word) for word in self._words("--format", "delta")])
        assert ended.status == 0, ended.err
        put_messages(self.store, range(30, 55))

    def left(self, rows: Counter[int], *, is_done: bool) -> list[str]:
        return self._other_rows(rows) if is_done or rows != self._first else []


_BATCHES, _BATCH = 3, 20


class Sinks(Work):
    """The batches of a stream, put into a store: each is there as a whole or not at all, and once, however often asked.

    The topics differ from batch to batch, so that a batch leaves some queues as they are.
    """

    name = "sink of a stream"

    def prepare(self) -> None:
        put_messages(self.store, range(20))

    def command(self) -> list[str]:
        tell = r"lambda number: os.write(1, b'%d\n' % number)"
        lines = f"import os; from tests.proof import works; works.fill({str(self.store)!r}, {tell})"
        return [sys.executable, "-c", lines]

    def judge(self, told: Sequence[Did]) -> list[str]:
        acknowledged = max((int(one.data) + 1 for one in told if one.name == "said"), default=0)
        wrong = self._flaws(acknowledged)
        fill(str(self.store))
        return wrong + [f"again: {one}" for one in self._flaws(_BATCHES)]

    def _flaws(self, acknowledged: int) -> list[str]:
        tree = reader.tree_of(self.store)
        bodies = Counter(one.body for one in reader.iter_records(tree))
        wrong = [f"{body!r} is there {count} times" for body, count in bodies.items() if count > 1]
        counts = [sum(body.startswith(b"batch %d " % number) for body in bodies) for number in range(_BATCHES)]
        whole = next((number for number, count in enumerate(counts) if count != _BATCH), _BATCHES)
        wrong += [f"batches have {counts} messages"] if any(counts[whole:]) else []
        wrong += [f"batch {acknowledged - 1} was stored, and is not there"] if whole < acknowledged else []
        wrong += [] if sum(bodies.values()) - sum(counts) == 20 else ["messages of before are gone"]
        wrong += reader.misplaced(tree) + reader.torn(tree)
        wrong += [f"no queue leads to {one.physical_offset}" for one in reader.unreached(tree)]
        noted = self.store / "sink-batches.json"
        last = json.loads(noted.read_bytes())["queries"]["query"]["batch"] + 1 if noted.exists() else 0
        wrong += [] if last == whole else [f"{last} batches are noted, {whole} are there"]
        return wrong + [f"{path} has no messages" for path in self._hollow(tree)]

    def _hollow(self, tree: Mapping[str, bytes]) -> list[str]:
        """Return the tables that lost their content."""
        return [path for path, data in tree.items() if path.endswith(".json") and not data.strip(b"\0")]


def fill(root: str, tell: Callable[[int], object] = lambda _: None) -> None:
    """Store some batches, and tell so after each."""
    for number in range(_BATCHES):
        staging = JobDirectory(root, f"{number}")
        import_staged(staging, [staged_batch(staging, number)], StreamBatch("query", number))
        tell(number)


def staged_batch(staging: JobDirectory, number: int) -> StagedFile:
    import pyarrow as pa

    from rmqtool.columns.outgoing import Refusal, stage_messages

    rows = range(_BATCH)
    given = {
        "topic": [("Shared", f"Own{number}")[row % 2] for row in rows],
        "body": [b"batch %d message %d " % (number, row) for row in rows],
        "keys": [f"k{row}" for row in rows],
    }
    with staged_file(staging, "0") as writer:
        found = stage_messages(pa.RecordBatch.from_pydict(given))
        assert not isinstance(found, Refusal)
        writer.write(found)
    file = writer.file()
    assert file is not None
    return file


class WholeMirrors(Work):
    """A mirror that takes the log of a master and reports: what it reported is there, and it goes on without a hole."""

    name = "mirror"
    _OFFSET = 8

    def perform(self, traced: Sequence[str]) -> None:
        with _a_master() as master:
            words = [*traced, *rmqtool("mirror", master.address, self.store, "--once", "--quiet")]
            subprocess.run(words, stdout=subprocess.DEVNULL, check=True, cwd=ROOT)

    def judge(self, told: Sequence[Did]) -> list[str]:
        reports = [one.data for one in told if one.name == "sent" and len(one.data) == self._OFFSET]
        reported = max((struct.unpack(">q", one)[0] for one in reports), default=0)
        has = b"".join(data for _, data in sorted(self._files().items()))
        with _a_master() as master:
            log = bytes(master.log)
            wrong = [] if has[1:reported] == log[1:reported] else [f"it reported {reported}, and lacks bytes before it"]
            status = test_mirror_kill.start(master, self.store, "--once").wait()
            wrong += [] if status == 0 else [f"again: status {status}"]
            return wrong + ([] if self._files() == master.files() else ["again: it has another log than its master"])

    def _files(self) -> dict[str, bytes]:
        return log_files(self.store) if (self.store / "commitlog").is_dir() else {}


@contextmanager
def _a_master() -> Iterator[ScriptedMaster]:
    """Give a master that has some segments. Its log is the same each time, and no thread of it is left."""
    with in_thread(ScriptedMaster()) as master:
        assert isinstance(master, ScriptedMaster)
        master.grow(150)
        yield master


class Serves(Work):
    """Messages that clients send to ``serve``: what it acknowledged on the wire is there, once, at its place."""

    name = "serve"
    _TOPIC, _QUEUES, _COUNT, _WINDOW = "Wire", 3, 24, 4

    def __init__(self, place: Path) -> None:
        super().__init__(place)
        self.bodies: dict[tuple[int, int], bytes] = {}

    def prepare(self) -> None:
        ended = forked.run(["init", str(self.store), *_as_options(test_serve_kill.SETTINGS)])
        assert ended.status == 0, ended.err

    def perform(self, traced: Sequence[str]) -> None:
        words = [*traced, *rmqtool()]
        program = ("-c", f"import os, sys; words = {words!r}; os.execvp(words[0], words + sys.argv[1:])")
        with tempfile.TemporaryDirectory() as home:
            server = ServeProcess(self.store, Path(home), "--for", "4s", program=program)
            with WireClient(server.broker) as client:
                self._send(client)
            assert server.process.wait(60) == 0
            assert server.events("error") == []

    def _send(self, client: WireClient) -> None:
        waiting: dict[int, bytes] = {}
        for number in range(self._COUNT):
            body = b"message %d " % number * (1 + number * 7 % 40)
            waiting[client.send(310, send_fields(self._TOPIC) | {"e": number % self._QUEUES}, body)] = body
            if len(waiting) == self._WINDOW or number == self._COUNT - 1:
                while waiting:
                    answer = client.receive()
                    place = int(answer.ext["queueId"]), int(answer.ext["queueOffset"])
                    self.bodies[place] = waiting.pop(answer.opaque)
        assert len(self.bodies) == self._COUNT

    def judge(self, told: Sequence[Did]) -> list[str]:
        acknowledged = set(_places(told))
        wrong = self._missing(acknowledged)
        wrong += self._recover()
        tree = reader.tree_of(self.store)
        flaws = self._missing(acknowledged) + reader.misplaced(tree) + reader.torn(tree)
        flaws += [f"no queue leads to {one.physical_offset}" for one in reader.unreached(tree)]
        return wrong + [f"after recover: {one}" for one in flaws]

    def _recover(self) -> list[str]:
        """Recover, and go on as that says: of messages that were not acknowledged a later one alone may be there."""
        ended = forked.run(["recover", str(self.store), "--apply"])
        if ended.status == Exit.NO and b"CL-MID" in ended.out and b"Next: rmqtool repair" in ended.out:
            return self.again(["repair", self.store, "--apply", "--allow", "primary"]) + self.again(
                ["check", self.store]
            )
        return [] if ended.status == 0 else [f"recover: status {ended.status}: {ended.err[-300:].decode()}"]

    def _missing(self, acknowledged: set[tuple[int, int]]) -> list[str]:
        stored = [
            ((one.queue_id, one.queue_offset), one.body)
            for one in reader.iter_records(reader.tree_of(self.store))
            if one.topic == self._TOPIC.encode()
        ]
        counts, bodies = Counter(place for place, _ in stored), dict(stored)
        wrong = [f"acknowledged {place} is there {counts[place]} times" for place in acknowledged if counts[place] != 1]
        return wrong + [
            f"another message is at {place}" for place, body in bodies.items() if self.bodies[place] != body
        ]


def _as_options(settings: Mapping[str, str]) -> list[str]:
    return [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]


def _places(told: Sequence[Did]) -> Iterator[tuple[int, int]]:
    """Yield queue and offset of each answer to a send, from the bytes that went to the clients."""
    streams: dict[str, bytes] = {}
    for one in told:
        if one.name == "sent":
            streams[one.path] = streams.get(one.path, b"") + one.data
    for stream in streams.values():
        data = stream
        # A loop wakes itself by single zeros.
        while len(data) >= 8 and data[:4].strip(b"\0"):
            size, header = struct.unpack_from(">iI", data)
            answer = json.loads(data[8 : 8 + (header & 0xFFFFFF)])
            fields = answer.get("extFields") or {}
            if answer["code"] == 0 and "queueOffset" in fields and "queueId" in fields:
                yield int(fields["queueId"]), int(fields["queueOffset"])
            data = data[4 + size :]


WORKS: tuple[type[Work], ...] = (
    Copies,
    Exports,
    MoreExports,
    NewExports,
    PartitionedExports,
    DeltaExports,
    MoreDeltaExports,
    Sinks,
    WholeMirrors,
    Serves,
)


class Done(NamedTuple):
    """A work that was done: the disk before it, its calls, and the calls where a power cut is of interest."""

    work: Work
    disk: FaultyDisk
    calls: tuple[Did, ...]
    cuts: tuple[int, ...]


@lru_cache(maxsize=len(WORKS))
def record(kind: type[Work]) -> Done:
    """Do a work once under strace."""
    place = _emptied()
    work = kind(place)
    work.prepare()
    below = [*reader.tree_of(place, *os.listdir(place)).items()]
    directories = [os.path.relpath(path, place) for path, _, _ in os.walk(place) if Path(path) != place]
    disk = lay(dict(below), directories)
    with tempfile.NamedTemporaryFile(suffix=".strace") as trace:
        work.perform(strace(trace.name))
        calls = calls_of(trace.name, place)
    return Done(work, disk, calls, tuple(_cuts(calls)))


def _emptied() -> Path:
    """Return the directory of all works, empty: manifests and journals name where they are."""
    place = workshop() / "work"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    return place


def _cuts(calls: Sequence[Did]) -> Iterator[int]:
    """Yield the numbers of the calls after which something else comes; 1 is the first.

    A table is written in hundreds of small pieces, and nothing is in doubt between two of them but their bytes.
    """
    changes = [one for one in calls if one.name not in recorded.TOLD]
    for number, (one, following) in enumerate(zip(changes, [*changes[1:], Did("", "")], strict=True), 1):
        if one.name != "pwrite" or (one.name, one.path) != (following.name, following.path):
            yield number


def materialise(disk: FaultyDisk) -> None:
    """Put what is on a disk into the directory of the works; a file with two names has two there."""
    _write_below(disk.root, _emptied(), {})


def _write_below(inode: Inode, path: Path, names: dict[int, Path]) -> None:
    for name, one in inode.names.items():
        below = path / name
        if one.kind is Kind.DIRECTORY:
            below.mkdir()
            _write_below(one, below, names)
        elif one.number in names:
            below.hardlink_to(names[one.number])
        else:
            names[one.number] = below
            with below.open("wb") as file:
                file.write(one.data.rstrip(b"\0"))
                file.truncate(len(one.data))


def judged(work: Work, disk: FaultyDisk, told: Sequence[Did]) -> list[str]:
    """Put a disk where the work was done, and judge it."""
    materialise(disk)
    try:
        return work.judge(told)
    except Exception as error:
        return [f"{type(error).__name__}: {error}"]


Left = Callable[[Did], bool]


def walk(kind: type[Work], left_out: Left = lambda _: False, *, to_the_end: bool = True) -> Outcome:
    """Judge what a power cut inside each call would have left at the least; states that do not differ once.

    ``left_out`` says which calls are not done, as if the program had no such line. Without ``to_the_end`` the first
    failure is enough.
    """
    result, done = Outcome(), record(kind)
    calls = tuple(one for one in done.calls if not left_out(one))
    cuts, seen = set(_cuts(calls)), set[bytes]()
    waiting: list[tuple[FaultyDisk, tuple[Did, ...], str]] = []
    disk, told = done.disk.after_crash(lambda _count: 0), list[Did]()

    def look() -> None:
        if len(disk.calls) in cuts:
            for word, choosers in _LEAST.items():
                state = disk.after_crash(*choosers)
                signature = _signature(state, told)
                if signature not in seen:
                    seen.add(signature)
                    waiting.append((state, tuple(told), f"{kind.name}, power cut in call {len(disk.calls)}, {word}"))

    settle(disk)
    disk.watch = look
    replay(disk, calls, told)
    cuts.add(len(disk.calls))
    look()
    for state, said, where in waiting:
        result.judge(judged(done.work, state, said), where)
        if result.failures and not to_the_end:
            break
    return result


def _signature(disk: FaultyDisk, told: Sequence[Did]) -> bytes:
    made = hashlib.blake2b(b"%d" % len(told), digest_size=16)
    pending = [("", disk.root)]
    while pending:
        path, inode = pending.pop()
        made.update(f"{path} {inode.kind} {len(inode.data)} ".encode() + inode.data)
        pending += [(f"{path}/{name}", one) for name, one in sorted(inode.names.items())]
    return made.digest()


_STATES, _STRIDE = 8, 7919


def run(seed: int) -> Outcome:
    """Cut the power at one call of one work, or after it, and judge the disks that this may leave."""
    result, kind, turn = Outcome(), WORKS[seed % len(WORKS)], seed // len(WORKS)
    done = record(kind)
    at = turn * _STRIDE % (len(done.cuts) + 1)
    disk, told = done.disk.after_crash(lambda _count: 0), list[Did]()
    if at < len(done.cuts):
        disk.crash_at(done.cuts[at])
    replay(disk, done.calls, told)
    disk.crashed = True
    chance = random.Random(f"{kind.name} {seed}")
    for number, state in enumerate(disk.iter_outcomes(_STATES, seed=chance.randrange(1 << 30))):
        where = f"{kind.name}, seed {seed}, power cut {at} of {len(done.cuts)}, disk {number}"
        result.judge(judged(done.work, state, told), where)
    return result


CAMPAIGN = Campaign("power cuts in works that publish", "disk states", 20_000, run, missing)
