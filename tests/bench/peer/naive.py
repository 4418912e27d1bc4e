"""A naive Python baseline: the standard library, one core, one message at a time. It shares no code with rmqtool.

Each mode does what the mode of the same name in ``Peer.java`` does, on the first messages of a store that it made:
``naive.py STORE [--messages N] [--stored N] [--modes walk,check] [--repeat 2] [--body BYTES]``. Prints one JSON line.
"""

from __future__ import annotations

import argparse
import gc
import json
import mmap
import os
import random
import shutil
import struct
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

# size magic crc queue flag qoff phy sys born bornhost store storehost rec prep bodylen
HEAD = struct.Struct(">IIIiiqqiqQqQiqi")
MAGIC = 0xDAA320A7
UNIT = ">qiq"
ENTRY = struct.Struct(">iqii")
SLOT = struct.Struct(">i")
SLOTS, ENTRIES = 5_000_000, 4_000_000
LOCAL = 0x7F00000100002A9F  # 127.0.0.1:10911
SYNCED_PUTS = 2000
QUERIES = 1000


class Message(NamedTuple):
    """What ``decode`` gives."""

    head: tuple[int, ...]
    born_host: str
    store_host: str
    body: bytes
    topic: str
    properties: dict[str, str]


class Dispatched(NamedTuple):
    """What ``check`` gives: all that queues and index need."""

    size: int
    topic: str
    queue_id: int
    physical_offset: int
    keys: str
    unique_key: str | None
    tags_code: int


def string_hash(text: str) -> int:
    """Java's String.hashCode, unsigned."""
    hashed = 0
    for character in text:
        hashed = (hashed * 31 + ord(character)) & 0xFFFFFFFF
    return hashed


def key_hash(topic: str, key: str) -> int:
    """The hash of an index entry."""
    hashed = string_hash(f"{topic}#{key}")
    if hashed == 1 << 31:
        return 0
    return (1 << 32) - hashed if hashed >> 31 else hashed


def properties_of(text: str) -> dict[str, str]:
    """Split the property text."""
    found = {}
    for pair in text.split("\x02"):
        name, separator, value = pair.partition("\x01")
        if separator:
            found[name] = value
    return found


def host(value: int) -> str:
    """Return address and port of an IPv4 host."""
    address = value >> 32
    return "%d.%d.%d.%d:%d" % (  # noqa: UP031 - the fastest way to say it
        address >> 24,
        address >> 16 & 255,
        address >> 8 & 255,
        address & 255,
        value & 0xFFFFFFFF,
    )


def decode(log: memoryview, at: int) -> Message:
    """Decode one record whole."""
    head = HEAD.unpack_from(log, at)
    at += HEAD.size
    body = bytes(log[at : at + head[14]])
    at += head[14]
    length = log[at]
    topic = str(log[at + 1 : at + 1 + length], "utf-8")
    at += 1 + length
    length = log[at] << 8 | log[at + 1]
    text = str(log[at + 2 : at + 2 + length], "utf-8")
    return Message(head, host(head[9]), host(head[11]), body, topic, properties_of(text))


_codes: dict[str, int] = {}


def check(log: memoryview, at: int, *, checksum: bool = True) -> Dispatched | None:
    """Check one record as recovery does; without ``checksum`` as the dispatcher does."""
    size, magic, crc, queue_id, _, _, physical_offset, *_, length = HEAD.unpack_from(log, at)
    end = at + size
    if magic != MAGIC:
        return None
    at += HEAD.size
    if checksum and length and zlib.crc32(log[at : at + length]) & 0x7FFFFFFF != crc:
        return None
    at += length
    length = log[at]
    topic = str(log[at + 1 : at + 1 + length], "utf-8")
    at += 1 + length
    length = log[at] << 8 | log[at + 1]
    properties = properties_of(str(log[at + 2 : at + 2 + length], "utf-8"))
    if at + 2 + length != end:
        return None
    tag = properties.get("TAGS")
    code = _codes.get(tag, 0) if tag else 0
    if tag and not code:
        code = string_hash(tag)
        code = _codes[tag] = code - (1 << 32) if code >> 31 else code
    return Dispatched(
        size, topic, queue_id, physical_offset, properties.get("KEYS", ""), properties.get("UNIQ_KEY"), code
    )


class Log:
    """A commit log that is only ever appended to."""

    def __init__(self, path: Path, size: int) -> None:
        self.file = path.open("w+b")
        self.file.truncate(size)
        self.map = mmap.mmap(self.file.fileno(), size)
        self.end = 0
        self.next: dict[tuple[str, int], int] = {}

    def encode(self, number: int, body: bytes) -> bytes:
        """Return the bytes of message ``number``, with the topic, tag and keys of ``Peer``."""
        topic, queue_id = f"BenchTopic{number % 4}", number // 4 % 4
        name = topic.encode()
        keys, tag = f"key{100_000_000 + number}", "ABCDEFGH"[number % 8]
        text = f"KEYS\x01{keys}\x02UNIQ_KEY\x017F0000010000{number:020X}\x02TAGS\x01Tag{tag}".encode()
        queue_offset = self.next.get((topic, queue_id), 0)
        self.next[topic, queue_id] = queue_offset + 1
        now = time.time_ns() // 1_000_000
        size = HEAD.size + 3 + len(body) + len(name) + len(text)
        crc = zlib.crc32(body) & 0x7FFFFFFF
        head = (size, MAGIC, crc, queue_id, 0, queue_offset, self.end, 0, now, LOCAL, now, LOCAL, 0, 0, len(body))
        return b"".join((HEAD.pack(*head), body, bytes((len(name),)), name, len(text).to_bytes(2, "big"), text))

    def put(self, number: int, body: bytes) -> None:
        """Append through the map."""
        record = self.encode(number, body)
        self.map[self.end : self.end + len(record)] = record
        self.end += len(record)

    def put_synced(self, number: int, body: bytes) -> None:
        """Append and wait for the disk."""
        record = self.encode(number, body)
        os.pwrite(self.file.fileno(), record, self.end)
        os.fdatasync(self.file.fileno())
        self.end += len(record)

    def close(self) -> None:
        """Close and remove the file."""
        self.map.close()
        self.file.close()
        Path(self.file.name).unlink()


class Bench:
    """One store and what is asked of it. A mode returns how many messages it handled."""

    def __init__(self, store: Path, messages: int, stored: int, body: int, scratch: Path) -> None:
        self.store, self.messages, self.stored, self.scratch = store, messages, stored, scratch
        self.log = memoryview(_mapped(min((store / "commitlog").iterdir())))
        chance = random.Random(7)
        self.bodies = [chance.randbytes(body) for _ in range(min(1024, max(8, (16 << 20) // max(1, body))))]
        self.end = 0
        self.end = self.walk_to_end()

    def walk_to_end(self) -> int:
        """Return where the last message that is looked at ends."""
        unpack, at = struct.Struct(">II").unpack_from, 0
        for _ in range(self.messages):
            size, magic = unpack(self.log, at)
            if magic != MAGIC:
                break
            at += size
        return at

    def walk(self) -> int:
        """Sizes and magic codes only."""
        self.walk_to_end()
        return self.messages

    def check(self) -> int:
        """Everything that recovery checks."""
        return self._each(lambda at: check(self.log, at))

    def dispatch(self) -> int:
        """Everything that queues and index need."""
        return self._each(lambda at: check(self.log, at, checksum=False))

    def _each(self, look: Callable[[int], Dispatched | None]) -> int:
        at = 0
        while at < self.end:
            found = look(at)
            if found is None:
                raise ValueError(f"no sound record at {at}")
            at += found.size
        return self.messages

    def decode(self) -> int:
        """Body, properties, hosts."""
        at = 0
        while at < self.end:
            at += decode(self.log, at).head[0]
        return self.messages

    def put(self) -> int:
        """Append to a new log, no queues, no index."""
        return self._put(Log.put, self.messages)

    def syncput(self) -> int:
        """Append and sync each."""
        return self._put(Log.put_synced, SYNCED_PUTS)

    def _put(self, put: Callable[[Log, int, bytes], None], count: int) -> int:
        log = Log(self.scratch / "log", count * (len(self.bodies[0]) + 300))
        for number in range(count):
            put(log, number, self.bodies[number % len(self.bodies)])
        log.close()
        return count

    def get(self) -> int:
        """Every queue from its start, 32 units at a time; the records' bytes."""
        return self._get(lambda at, size: self.log[at : at + size])

    def getdecode(self) -> int:
        """The same, decoded."""
        return self._get(lambda at, _: decode(self.log, at))

    def _get(self, look: Callable[[int, int], object]) -> int:
        queues = sorted(path for path in (self.store / "consumequeue").glob("*/*") if path.is_dir())
        step = 32 * struct.calcsize(UNIT)
        done = 0
        for queue in queues:
            with min(queue.iterdir()).open("rb") as file:
                units = file.read(self.messages // len(queues) * struct.calcsize(UNIT))
            for start in range(0, len(units), step):
                for physical_offset, size, _ in struct.iter_unpack(UNIT, units[start : start + step]):
                    if size:
                        look(physical_offset, size)
                        done += 1
        return done

    def query(self) -> int:
        """Random keys through the index."""
        files = [_mapped(path) for path in sorted((self.store / "index").iterdir())]
        chance = random.Random(42)
        for number in (chance.randrange(self.stored) for _ in range(QUERIES)):
            hashed = key_hash(f"BenchTopic{number % 4}", f"key{100_000_000 + number}")
            for file in reversed(files):
                (entry,) = SLOT.unpack_from(file, 40 + hashed % SLOTS * 4)
                while entry:
                    found, physical_offset, _, entry = ENTRY.unpack_from(file, 40 + SLOTS * 4 + entry * 20)
                    if found == hashed:
                        decode(self.log, physical_offset)
        return QUERIES

    def rebuild(self) -> int:
        """Queues and one index file from the log."""
        count, at, entry = self.messages // 2, 0, 1
        queues: dict[tuple[str, int], bytearray] = {}
        with (self.scratch / "index").open("w+b") as file:
            file.truncate(40 + SLOTS * 4 + ENTRIES * 20)
            index = mmap.mmap(file.fileno(), 0)
            for _ in range(count):
                found = check(self.log, at, checksum=False)
                if found is None:
                    raise ValueError(f"no sound record at {at}")
                at += found.size
                unit = struct.pack(UNIT, found.physical_offset, found.size, found.tags_code)
                queues.setdefault((found.topic, found.queue_id), bytearray()).extend(unit)
                for key in ([found.unique_key] if found.unique_key else []) + found.keys.split():
                    hashed = key_hash(found.topic, key)
                    slot = 40 + hashed % SLOTS * 4
                    (previous,) = SLOT.unpack_from(index, slot)
                    ENTRY.pack_into(index, 40 + SLOTS * 4 + entry * 20, hashed, found.physical_offset, 0, previous)
                    SLOT.pack_into(index, slot, entry)
                    entry += 1
            index.close()
        for number, units in enumerate(queues.values()):
            (self.scratch / f"queue-{number}").write_bytes(units)
        return count


def _mapped(path: Path) -> mmap.mmap:
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)


MODES = ("walk", "check", "dispatch", "decode", "put", "syncput", "get", "getdecode", "query", "rebuild")


def measure(mode: Callable[[], int], repeat: int) -> dict[str, float]:
    """Return the best of ``repeat`` runs, per message."""
    walls, cpus, count = [], [], 1
    for _ in range(repeat):
        gc.collect()
        gc.disable()
        wall, cpu = time.perf_counter(), time.thread_time()
        count = mode()
        walls.append(time.perf_counter() - wall)
        cpus.append(time.thread_time() - cpu)
        gc.enable()
    return {"ns_msg": round(min(walls) / count * 1e9, 1), "cpu_ns_msg": round(min(cpus) / count * 1e9, 1)}


def main() -> None:
    """Measure the modes that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store", type=Path)
    parser.add_argument("--messages", type=int, default=40_000)
    parser.add_argument("--stored", type=int, default=1_000_000, help="messages in the whole store")
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--body", type=int, default=100)
    parser.add_argument("--modes", default=",".join(MODES))
    given = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(dir=given.store.parent))
    try:
        bench = Bench(given.store, given.messages, given.stored, given.body, scratch)
        found = {mode: measure(getattr(bench, mode), given.repeat) for mode in given.modes.split(",") if mode in MODES}
    finally:
        shutil.rmtree(scratch)
    print(json.dumps({"messages": given.messages, "modes": found}))


if __name__ == "__main__":
    main()
