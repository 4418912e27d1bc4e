"""What happens to stores: one line for each incident, done by hand to a store that a real broker wrote.

An incident is damage that stays (``damage``), surroundings that hold while commands run (``around``), or both.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import NamedTuple

from tests.guards import surroundings

Damage = Callable[[Path], object]
Around = Callable[[Path], AbstractContextManager[object]]


class Incident(NamedTuple):
    """What happened to which store. ``holes``: files so large that only holes make them possible."""

    store: str
    damage: Damage = lambda _: None
    around: Around = lambda _: nullcontext()


def segment(root: Path, number: int, directory: str = "commitlog") -> Path:
    """Return the n-th file of a log, -1 the last."""
    return sorted(path for path in (root / directory).iterdir() if path.name.isdecimal())[number]


def put(path: Path, at: int, data: bytes) -> None:
    """Write bytes over those that are there."""
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def spoil(path: Path, at: int, count: int = 4) -> None:
    """Change bytes to others."""
    before = path.read_bytes()[at : at + count]
    assert before, f"{path} has nothing at {at}"
    put(path, at, bytes(byte ^ 0x55 for byte in before))


def _records(path: Path) -> list[tuple[int, int]]:
    """Return place and size of the records at the beginning of a segment, by their lengths and magics alone."""
    data, found, at = path.read_bytes(), [], 0
    while data[at + 4 : at + 8] in (b"\xda\xa3\x20\xa7", b"\xda\xa3\x20\xab"):
        size = int.from_bytes(data[at : at + 4], "big")
        found.append((at, size))
        at += size
    assert found, f"{path} does not begin with a record"
    return found


def _end_of_log(root: Path) -> tuple[Path, int]:
    path = segment(root, -1)
    at, size = _records(path)[-1]
    return path, at + size


def _flip_body(root: Path) -> None:
    path = segment(root, 1)
    at, size = _records(path)[8]
    spoil(path, at + 100, 1)
    assert size > 100


def _tear_tail(root: Path) -> None:
    path, end = _end_of_log(root)
    put(path, end - 40, bytes(40))
    (root / "abort").touch()


def _lose_tail(root: Path) -> None:
    path, end = _end_of_log(root)
    put(path, end - 3000, bytes(3000))
    (root / "abort").touch()


def _false_blank(root: Path) -> None:
    path = segment(root, 0)
    at, _ = _records(path)[5]
    put(path, at, (path.stat().st_size - at).to_bytes(4, "big") + b"\xcb\xd4\x31\x94")


def _overlap(root: Path) -> None:
    first = segment(root, 0)
    shutil.copyfile(first, first.with_name(f"{4096:020d}"))


def _long_record(root: Path) -> None:
    """A record whose length reaches over the one after it."""
    path = segment(root, 1)
    (at, size), (_, more) = _records(path)[4:6]
    put(path, at, (size + more).to_bytes(4, "big"))


def _rename(old: str, new: str) -> Damage:
    return lambda root: (root / old).rename(root / new)


def _remove(*names: str) -> Damage:
    def remove(root: Path) -> None:
        for name in names:
            path = root / name
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()

    return remove


def _cut(name: str, size: int) -> Damage:
    return lambda root: os.truncate(root / name, size)


def _append(name: str, data: bytes) -> Damage:
    return lambda root: (root / name).write_bytes((root / name).read_bytes() + data)


def _edit(name: str, change: Callable[[dict[str, object]], object]) -> Damage:
    """Change a JSON table; ``.bak`` stays as it is."""

    def edit(root: Path) -> None:
        path = root / name
        table = json.loads(path.read_text(encoding="utf-8"))
        change(table)
        path.write_text(json.dumps(table), encoding="utf-8")

    return edit


def _both(*damages: Damage) -> Damage:
    def do(root: Path) -> None:
        for damage in damages:
            damage(root)

    return do


def _move_out(name: str) -> Damage:
    """The directory is elsewhere, and a link leads there."""

    def move(root: Path) -> None:
        target = root.parent / f"elsewhere-{name.replace('/', '-')}"
        (root / name).rename(target)
        (root / name).symlink_to(target)

    return move


def _empty(name: str) -> Damage:
    """The volume is not mounted: its directory is empty."""

    def empty(root: Path) -> None:
        shutil.rmtree(root / name)
        (root / name).mkdir()

    return empty


def _as_directory(name: str) -> Damage:
    def replace(root: Path) -> None:
        (root / name).unlink()
        (root / name).mkdir()

    return replace


def _as_fifo(name: str) -> Damage:
    def replace(root: Path) -> None:
        (root / name).unlink()
        os.mkfifo(root / name)

    return replace


def _stranger(name: str, text: bytes = b"see the runbook\n") -> Damage:
    def make(root: Path) -> None:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)

    return make


def _first_queue_file(topic: str, queue: int = 0) -> str:
    return f"consumequeue/{topic}/{queue}/{0:020d}"


def _commit_too_far(root: Path) -> None:
    path = root / "config/consumerOffset.json"
    text = path.read_text(encoding="utf-8")
    changed = re.sub(r'("T_normal@G_ok":\{[^}]*\b0:)\d+', r"\g<1>100000", text)
    assert changed != text
    path.write_text(changed, encoding="utf-8")


def _hard_link(root: Path) -> None:
    os.link(root / "config/consumerOffset.json", root / "consumerOffset.linked")


def _other_log(root: Path) -> None:
    """The volume of another broker is mounted: a whole log, which is not this store's."""
    from tests.support.stores import unpack

    other = unpack("49-broker", root.parent / "other")
    shutil.rmtree(root / "commitlog")
    (other / "commitlog").rename(root / "commitlog")


def _row(directory: str, key: bytes, value: bytes) -> Damage:
    """A row that no broker writes, in a database."""

    def write(root: Path) -> None:
        from rocksdict import Options, Rdict

        path = str(root / directory)
        families = {family: Options(raw_mode=True) for family in Rdict.list_cf(path)}
        database = Rdict(path, Options(raw_mode=True), column_families=families)
        database[key] = value
        database.close()

    return write


def _largest(root: Path, pattern: str) -> Path:
    """Return the file that has the most in it."""
    return max(root.glob(pattern), key=lambda path: (len(path.read_bytes().rstrip(b"\0")), path.name))


_CONFIG_JSON = ("topics", "consumerOffset", "subscriptionGroup", "delayOffset")
_RETRY = "consumequeue/T_retry"

INCIDENTS: dict[str, Incident] = {
    # the log
    "segment missing": Incident("53-broker", lambda root: segment(root, 1).unlink()),
    "first segment missing": Incident("53-broker", lambda root: segment(root, 0).unlink()),
    "last segment missing": Incident("53-broker", lambda root: segment(root, -1).unlink()),
    "segment cut": Incident("53-broker", lambda root: os.truncate(segment(root, 1), 30_000)),
    "last segment cut": Incident("53-broker", lambda root: os.truncate(segment(root, -1), 30_000)),
    "last segment grown": Incident("49-broker", lambda root: os.truncate(segment(root, -1), 40_960 + 4096)),
    "last segment empty": Incident("53-broker", lambda root: os.truncate(segment(root, -1), 0)),
    "segment misnamed": Incident("53-broker", _rename(f"commitlog/{65536:020d}", f"commitlog/{65537:020d}")),
    "segment with a suffix": Incident("53-broker", _rename(f"commitlog/{65536:020d}", f"commitlog/{65536:020d}.gz")),
    "segment overlaps": Incident("53-broker", _overlap),
    "segment is a directory": Incident("53-broker", _as_directory(f"commitlog/{65536:020d}")),
    "segment is a FIFO": Incident("53-broker", _as_fifo(f"commitlog/{65536:020d}")),
    "foreign file in the log": Incident("53-broker", _stranger("commitlog/README")),
    "foreign directory in the log": Incident("53-broker", lambda root: (root / "commitlog/lost+found").mkdir()),
    "body flipped": Incident("53-broker", _flip_body),
    "body flipped after a crash": Incident("53-broker", _both(_flip_body, lambda root: (root / "abort").touch())),
    "tail torn": Incident("53-broker", _tear_tail),
    "tail lost": Incident("53-broker", _lose_tail),
    "page of zeros": Incident("53-broker", lambda root: put(segment(root, 1), 8192, bytes(4096))),
    "false blank": Incident("53-broker", _false_blank),
    "record reaches over the next": Incident("53-broker", _long_record),
    "log volume not mounted": Incident("53-broker", _empty("commitlog")),
    "log directory missing": Incident("53-broker", _remove("commitlog")),
    "wrong volume": Incident(
        "53-broker", _both(_empty("commitlog"), _stranger("commitlog/pgdata/PG_VERSION", b"16\n"))
    ),
    "log of another broker": Incident("53-broker", _other_log),
    "log is a link": Incident("53-broker", _move_out("commitlog")),
    "log is a link to nothing": Incident(
        "53-broker", _both(_move_out("commitlog"), lambda root: shutil.rmtree(root.parent / "elsewhere-commitlog"))
    ),
    "segment is a link": Incident("53-broker", _move_out(f"commitlog/{65536:020d}")),
    "one of two log directories missing": Incident("49-multidir", _remove("commitlog_b")),
    # queues and index
    "queues missing": Incident("53-broker", _remove("consumequeue")),
    "queues not mounted": Incident("53-broker", _empty("consumequeue")),
    "queues of a topic missing": Incident("53-broker", _remove(_RETRY)),
    "a queue missing": Incident("53-broker", _remove("consumequeue/T_normal/2")),
    "queues are a link": Incident("53-broker", _move_out("consumequeue")),
    "queue file cut": Incident("53-broker", _cut(_first_queue_file("T_normal"), 313)),
    "queue file empty": Incident("53-broker", _cut(_first_queue_file("T_normal"), 0)),
    "queue file of zeros": Incident("53-broker", lambda root: put(root / _first_queue_file("T_normal"), 0, bytes(600))),
    "queue file beyond all offsets": Incident(
        "49-killed-torn",
        lambda root: sorted(root.glob("consumequeue/*/*/*"))[-1].rename(
            sorted(root.glob("consumequeue/*/*/*"))[-1].with_name("09223372036854775807")
        ),
    ),
    "foreign file in a queue": Incident("53-broker", _stranger("consumequeue/T_normal/0/README")),
    "foreign queue directory": Incident("53-broker", _stranger("consumequeue/T_normal/zero/README")),
    "queue file is a directory": Incident("53-broker", _as_directory(_first_queue_file("T_normal"))),
    "queue file is a FIFO": Incident("53-broker", _as_fifo(_first_queue_file("T_normal"))),
    "index missing": Incident("53-broker", _remove("index")),
    "index cut": Incident("53-broker", lambda root: os.truncate(segment(root, 0, "index"), 1000)),
    "index header zero": Incident("53-broker", lambda root: put(segment(root, 1, "index"), 0, bytes(40))),
    "foreign file in the index": Incident("53-broker", _stranger("index/README")),
    # small files
    "checkpoint missing": Incident("53-broker", _remove("checkpoint")),
    "checkpoint garbage": Incident(
        "49-killed", lambda root: (root / "checkpoint").write_bytes(bytes(range(1, 256)) * 16)
    ),
    "checkpoint empty": Incident("53-broker", _cut("checkpoint", 0)),
    "abort after a clean stop": Incident("53-broker", lambda root: (root / "abort").touch()),
    "abort is a directory": Incident("53-broker", lambda root: (root / "abort").mkdir()),
    "lock is a directory": Incident("53-broker", _as_directory("lock")),
    "topics cut": Incident("53-broker", _cut("config/topics.json", 100)),
    "topics cut, no copy": Incident(
        "53-broker", _both(_cut("config/topics.json", 100), _remove("config/topics.json.bak"))
    ),
    "topics missing": Incident("53-broker", _remove("config/topics.json", "config/topics.json.bak")),
    "topics is a directory": Incident("53-broker", _as_directory("config/topics.json")),
    "topics is huge": Incident("53-broker", lambda root: os.truncate(root / "config/topics.json", 2 << 30)),
    "topic unknown": Incident(
        "53-broker",
        _edit("config/topics.json", lambda table: table["topicConfigTable"].pop("T_normal")),  # type: ignore[attr-defined]
    ),
    "offsets with bytes after their end": Incident(
        "53-broker", _append("config/consumerOffset.json", b'"dataVersion":{"counter":1}}')
    ),
    "offsets cut, no copy": Incident(
        "53-broker", _both(_cut("config/consumerOffset.json", 200), _remove("config/consumerOffset.json.bak"))
    ),
    "offsets beyond their queue": Incident("53-broker", _commit_too_far),
    "offsets missing": Incident("53-broker", _remove("config/consumerOffset.json", "config/consumerOffset.json.bak")),
    "offsets a list": Incident("53-broker", _stranger("config/consumerOffset.json", b"[1, 2]")),
    "groups missing": Incident(
        "53-broker", _remove("config/subscriptionGroup.json", "config/subscriptionGroup.json.bak")
    ),
    "delay offsets garbage": Incident("53-broker", _stranger("config/delayOffset.json", b"\x00\x01\x02")),
    "configuration missing": Incident("53-broker", _remove("config")),
    "hard link to the offsets": Incident("53-broker", _hard_link),
    # what cannot be read, and what the disk says
    "a segment nobody may read": Incident("53-broker", around=lambda root: surroundings.unreadable(segment(root, 1))),
    "a queue file nobody may read": Incident(
        "53-broker", around=lambda root: surroundings.unreadable(root / _first_queue_file("T_normal"))
    ),
    **{
        f"{name} nobody may read": Incident(
            "53-broker",
            around=lambda root, name=name: surroundings.unreadable(root / f"config/{name}.json"),  # type: ignore[misc]
        )
        for name in _CONFIG_JSON
    },
    "checkpoint nobody may read": Incident(
        "53-broker", around=lambda root: surroundings.unreadable(root / "checkpoint")
    ),
    "an index file nobody may read": Incident(
        "53-broker", around=lambda root: surroundings.unreadable(segment(root, 0, "index"))
    ),
    "queues nobody may list": Incident("53-broker", around=lambda root: surroundings.unreadable(root / _RETRY)),
    "bad sector in the log": Incident(
        "53-broker", around=lambda root: surroundings.bad_sector(segment(root, 1), 8192, 12_288)
    ),
    "bad sector in a queue": Incident(
        "53-broker", around=lambda root: surroundings.bad_sector(root / _first_queue_file("T_normal"), 0, 4096)
    ),
    "bad sector in the index": Incident(
        "53-broker", around=lambda root: surroundings.bad_sector(segment(root, 0, "index"), 0, 4096)
    ),
    "disk nearly full": Incident("53-broker", around=lambda _: surroundings.disk_used(0.92)),
    "held by a broker": Incident("53-broker", around=surroundings.held_lock),
    # other kinds of stores
    "DLedger: queues missing": Incident("49-dledger", _remove("consumequeue")),
    "DLedger: log flipped": Incident("49-dledger", lambda root: spoil(segment(root, 0, "dledger-n0/data"), 5000, 1)),
    "DLedger: index missing": Incident("49-dledger", _remove("dledger-n0/index")),
    "RocksDB: table spoilt": Incident("53-rocksdb", lambda root: spoil(root / "consumequeue/000011.sst", 300)),
    "RocksDB: table missing": Incident("53-rocksdb", _remove("consumequeue/000011.sst")),
    "RocksDB: CURRENT missing": Incident("53-rocksdb", _remove("consumequeue/CURRENT")),
    "RocksDB: topics do not open": Incident("53-rocksdb", _remove("config/topics/CURRENT")),
    "RocksDB: offsets do not open": Incident("53-rocksdb", _remove("config/consumerOffsets/CURRENT")),
    "RocksDB: all configuration does not open": Incident("53-rocksdbv2", _remove("config/rdb/CURRENT")),
    "RocksDB: pops do not open": Incident("53-rocksdb", _remove("kvStore/CURRENT")),
    "RocksDB: timers do not open": Incident("54-combine", _remove("rocksdbstore/CURRENT")),
    "RocksDB: a setting that does not parse": Incident("53-rocksdb", _row("config/topics", b"RocksA", b"{")),
    "RocksDB: a queue row that does not parse": Incident("53-rocksdb", _row("consumequeue", b"odd", b"odd")),
    "compacted log spoilt": Incident(
        "53-compaction", lambda root: spoil(_largest(root, "compaction/compactionLog/*/*/*"), 300)
    ),
    "compacted queue spoilt": Incident(
        "53-compaction", lambda root: spoil(_largest(root, "compaction/compactionCq/*/*/*"), 2)
    ),
    "RocksDB: queues missing": Incident("53-rocksdb", _remove("consumequeue")),
    "timer log cut": Incident("53-timer", _cut("timerlog/00000000000000002600", 500)),
    "timer wheel missing": Incident("53-timer", _remove("timerwheel")),
    "timer wheel spoilt": Incident("53-timer", lambda root: put(root / "timerwheel", 0, bytes(range(256)) * 16)),
}
