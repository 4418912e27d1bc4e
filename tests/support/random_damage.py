"""Random damage to a store, as operations of ``tests.support.mutations``: what a bad disk, a crash or a person leaves.

Made from a seed, so that a case can be had again. Damage prefers the end of the log, where recovery looks.
"""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.support.builders import MAGIC_BLANK, MAGIC_V1, MAGIC_V2, blank, queue_unit

Operation = dict[str, Any]
UNIT = len(queue_unit(0, 0, 0))
# Places of the numbers of a record with IPv4 hosts: offset and length.
FIELDS = (
    (0, 4),
    (4, 4),
    (8, 4),
    (12, 4),
    (16, 4),
    (20, 8),
    (28, 8),
    (36, 4),
    (40, 8),
    (56, 8),
    (72, 4),
    (76, 8),
    (84, 4),
)
ODD_NUMBERS = (0, -1, 1, 2, 7, 8, 100, 255, -5, 1 << 20, (1 << 31) - 1, -(1 << 31))
ODD_LONGS = (1 << 40, 1 << 62, -(1 << 62), (1 << 63) - 1, -(1 << 63))
MAGICS = (MAGIC_BLANK, MAGIC_V2, MAGIC_V1, 0)


class Damage:
    """Draws operations on one store, never two on a file that the first has taken away."""

    def __init__(self, root: Path, seed: str) -> None:
        self._root = root
        self._random = random.Random(seed)
        self._log = self._files("commitlog")
        self._queues = self._files("consumequeue")
        self._index = self._files("index")
        self._records = list(self._walk())
        self._gone: list[str] = []
        self._made: list[str] = []

    def _files(self, directory: str) -> list[str]:
        paths = (path for path in (self._root / directory).rglob("*") if path.is_file())
        return sorted(str(path.relative_to(self._root)) for path in paths)

    def _walk(self) -> Iterator[tuple[str, int, int]]:
        for path in self._log:
            data = (self._root / path).read_bytes()
            at = 0
            while at + 8 <= len(data):
                size, magic = struct.unpack_from(">iI", data, at)
                if magic not in (MAGIC_V1, MAGIC_V2) or size <= 0:
                    break
                yield path, at, size
                at += size

    def draw(self) -> list[Operation]:
        """Return one to four kinds of damage."""
        kinds: list[Callable[[], Iterator[Operation]]] = [
            *[self._flip, self._number, self._zeros, self._noise, self._tail, self._copied_record] * 2,
            *[self._unit, self._last_units, self._queue_file, self._queue_directory] * 2,
            *[self._segment, self._checkpoint] * 2,
            *[self._several_segments, self._pages, self._longer_record, self._queue_shift, self._every_queue],
            *[self._index_file, self._index_directory, self._topic, self._stranger, self._settings_file, self._lock],
        ]
        found: list[Operation] = []
        for kind in self._random.choices(kinds, k=self._random.choice((1, 1, 1, 2, 2, 3, 4))):
            for operation in kind():
                if self._is_possible(operation):
                    found.append(operation)
        return found

    def _is_possible(self, operation: Operation) -> bool:
        """Return whether what an operation works on is as it was, and remember what is not any more."""
        path, makes = operation["path"], operation["op"] in ("create", "mkdir")
        touched = [path, *([operation["to"]] if operation["op"] == "copyrange" else [])]
        if makes:
            possible = path not in self._made
            self._made.append(path)
        else:
            possible = not any(one == gone or one.startswith(gone + "/") for one in touched for gone in self._gone)
        if possible and (makes or operation["op"] in ("delete", "move", "truncate")):
            self._gone.append(path)
        return possible

    def _size(self, path: str) -> int:
        return (self._root / path).stat().st_size

    def _record(self) -> tuple[str, int, int]:
        if self._random.random() < 0.5:
            back = int(self._random.expovariate(12 / len(self._records)))
            return self._records[max(0, len(self._records) - 1 - back)]
        return self._random.choice(self._records)

    def _flip(self) -> Iterator[Operation]:
        path, at, size = self._record()
        part = self._random.choice(("head", "any", "end"))
        within = {"head": min(size, 92), "any": size, "end": size}[part]
        place = size - 1 - self._random.randrange(min(40, size)) if part == "end" else self._random.randrange(within)
        yield {"op": "flip", "path": path, "offset": at + place, "bit": self._random.randrange(8)}

    def _number(self) -> Iterator[Operation]:
        path, at, size = self._record()
        place, length = self._random.choice(FIELDS)
        numbers = [*ODD_NUMBERS, size, size - 1, size + 1, 2 * size, self._random.randrange(-(1 << 31), 1 << 31)]
        value = self._random.choice([*numbers, *ODD_LONGS] if length == 8 else numbers)
        if place == 4:
            value = self._random.choice(MAGICS)
        yield _write(path, at + place, (value & (1 << 8 * length) - 1).to_bytes(length, "big"))

    def _zeros(self) -> Iterator[Operation]:
        path, at, size = self._record()
        length = self._random.choice((4, 8, 91, size, 512, 4096, 20000))
        yield {"op": "zero", "path": path, "offset": at, "len": min(length, self._size(path) - at)}

    def _noise(self) -> Iterator[Operation]:
        path = self._random.choice(self._log)
        length = min(self._random.choice((1, 8, 100, 3000)), self._size(path))
        at = self._random.randrange(self._size(path) - length + 1)
        yield _write(path, at, self._random.randbytes(length))

    def _topic(self) -> Iterator[Operation]:
        """Put a character into a topic that makes another directory of it."""
        path, at, _ = self._record()
        data = (self._root / path).read_bytes()
        (body_length,) = struct.unpack_from(">i", data, at + 84)
        length = data[at + 88 + body_length]
        place = at + 89 + body_length + self._random.randrange(length)
        yield _write(path, place, self._random.choice((b".", b"%", b"/", b"\xc3", b" ", b"\x01")))

    def _tail(self) -> Iterator[Operation]:
        path, at, size = self._records[-1]
        end, left = at + size, self._size(path) - at - size
        kind = self._random.choice(("blank", "noise", "half", "head", "copy"))
        if kind == "half":
            yield {"op": "zero", "path": path, "offset": at + size // 2, "len": size - size // 2}
        elif kind == "blank" and left >= 8:
            yield _write(path, end, blank(self._random.choice((left, left + 5, 8, 0))))
        elif kind == "noise" and left:
            yield _write(path, end, self._random.randbytes(min(left, 200)))
        elif kind == "head" and left > 100:
            number = self._random.choice((91, 300, 0, -1, (1 << 31) - 1))
            yield _write(path, end, struct.pack(">iI", number, MAGIC_V1) + self._random.randbytes(60))
        else:
            yield from self._copy(self._random.choice(self._records), path, end)

    def _copied_record(self) -> Iterator[Operation]:
        path, at, _ = self._record()
        yield from self._copy(self._random.choice(self._records), path, at)

    def _copy(self, record: tuple[str, int, int], path: str, at: int) -> Iterator[Operation]:
        source, offset, size = record
        if at + size <= self._size(path):
            yield {"op": "copyrange", "path": source, "offset": offset, "len": size, "to": path, "to_offset": at}

    def _unit(self) -> Iterator[Operation]:
        path = self._random.choice(self._queues)
        units = self._size(path) // UNIT
        at = self._random.choice((0, self._random.randrange(units), self._random.randrange(units))) * UNIT
        offset = self._random.choice((-1, 10**7, 1 << 40, 1 << 62, self._random.randrange(1 << 20)))
        size = self._random.choice((0, -1, 1, 100, 10**6, (1 << 31) - 1))
        kind = self._random.choice(("zero", "offset", "size", "both", "copy"))
        if kind == "zero":
            length = min(self._random.choice((1, 1, 2, 5)) * UNIT, self._size(path) - at)
            yield {"op": "zero", "path": path, "offset": at, "len": length}
        elif kind == "copy":
            other = self._random.choice(self._queues)
            place = self._random.randrange(self._size(other) // UNIT) * UNIT
            yield {"op": "copyrange", "path": other, "offset": place, "len": UNIT, "to": path, "to_offset": at}
        else:
            unit = queue_unit(offset, size, 0)
            begin, end = {"offset": (0, 8), "size": (8, 12), "both": (0, 12)}[kind]
            yield _write(path, at + begin, unit[begin:end])

    def _last_units(self) -> Iterator[Operation]:
        """Take the last units of some queues, as a crash does."""
        directories = sorted({os.path.dirname(path) for path in self._queues})
        for directory in self._random.sample(directories, self._random.randint(1, len(directories))):
            path = max(path for path in self._queues if os.path.dirname(path) == directory)
            data = (self._root / path).read_bytes()
            written = sum(1 for _, size, _ in struct.iter_unpack(">qiq", data) if size > 0)
            lost = min(self._random.choice((1, 1, 2, 3, 8)), written)
            if lost:
                yield {"op": "zero", "path": path, "offset": (written - lost) * UNIT, "len": lost * UNIT}

    def _queue_file(self) -> Iterator[Operation]:
        path = self._random.choice(self._queues)
        size = self._size(path)
        kind = self._random.choice(("delete", "delete", "zero", "short", "empty", "long", "extra"))
        if kind == "delete":
            yield {"op": "delete", "path": path}
        elif kind == "zero":
            yield {"op": "zero", "path": path, "offset": 0, "len": size}
        elif kind == "extra":
            start = max(int(os.path.basename(other)) for other in self._queues if _beside(other, path)) + size
            yield {"op": "create", "path": f"{os.path.dirname(path)}/{start:020d}", "len": size}
        elif kind == "long":
            yield {"op": "extend", "path": path, "len": UNIT}
        else:
            left = 0 if kind == "empty" else size - self._random.choice((1, UNIT, size // 2))
            yield {"op": "truncate", "path": path, "size": left}

    def _queue_directory(self) -> Iterator[Operation]:
        directory = os.path.dirname(self._random.choice(self._queues))
        kind = self._random.choice(("queue", "queue", "topic", "all", "copy", "blank", "number"))
        if kind == "copy":
            number = self._random.choice(("0", "3", "007", "-1", "abc"))
            yield {"op": "copy", "path": directory, "to": f"consumequeue/Copied{len(self._gone)}/{number}"}
        elif kind == "blank":
            units = queue_unit(0, (1 << 31) - 1, 0) * self._random.choice((0, 3))
            size = self._size(self._queues[0])
            yield {"op": "create", "path": f"consumequeue/Blank/0/{0:020d}", "hex": units.ljust(size, b"\0").hex()}
        elif kind == "number":
            yield {"op": "create", "path": f"{os.path.dirname(directory)}/99", "len": self._random.choice((0, 12))}
        else:
            path = {"queue": directory, "topic": os.path.dirname(directory), "all": "consumequeue"}[kind]
            yield {"op": "delete", "path": path}

    def _segment(self) -> Iterator[Operation]:
        path = self._random.choice(self._log[-4:] if self._random.random() < 0.6 else self._log)
        size, last = self._size(path), int(os.path.basename(self._log[-1]))
        kind = self._random.choice(("delete", "delete", "zero", "short", "long", "empty", "copy", "next", "name"))
        if kind == "delete":
            yield {"op": "delete", "path": path}
        elif kind == "long":
            yield {"op": "extend", "path": path, "len": self._random.choice((1, 4096))}
        elif kind == "zero":
            yield {"op": "zero", "path": path, "offset": 0, "len": size}
        elif kind == "copy":
            other = self._random.choice(self._log)
            yield {"op": "copyrange", "path": other, "offset": 0, "len": size, "to": path, "to_offset": 0}
        elif kind == "next":
            start = last + size * self._random.choice((1, 1, 2, 10**6))
            length = self._random.choice((size, size, size, size // 2, 0))
            yield {"op": "create", "path": f"commitlog/{start:0{self._random.choice((20, 20, 19))}d}", "len": length}
        elif kind == "name":
            start = int(os.path.basename(path)) + self._random.choice((1, 8, size // 2))
            name = self._random.choice((f"{start:020d}", f"{start:020d}", f"{os.path.basename(path)}.delete"))
            yield {"op": "move", "path": path, "to": f"commitlog/{name}"}
        else:
            left = 0 if kind == "empty" else size - self._random.choice((1, size // 2))
            yield {"op": "truncate", "path": path, "size": left}

    def _several_segments(self) -> Iterator[Operation]:
        count = self._random.randint(1, len(self._log))
        kind = self._random.choice(("first", "last", "swap", "directory"))
        if kind == "directory":
            yield {"op": "delete", "path": "commitlog"}
        elif kind == "swap" and len(self._log) > 1:
            one, other = self._random.sample(self._log, 2)
            for path, to in ((one, "commitlog/aside"), (other, one), ("commitlog/aside", other)):
                yield {"op": "move", "path": path, "to": to}
        else:
            for path in self._log[:count] if kind == "first" else self._log[-count:]:
                yield {"op": "delete", "path": path}

    def _pages(self) -> Iterator[Operation]:
        """Lose a page at the begin or the end of a segment."""
        path = self._random.choice(self._log[-3:] if self._random.random() < 0.6 else self._log)
        length = min(4096, self._size(path))
        at = self._random.choice((0, self._size(path) - length))
        yield {"op": "zero", "path": path, "offset": at, "len": length}

    def _longer_record(self) -> Iterator[Operation]:
        """Let a record reach into the next one: its lengths add up, only the checksum of its body does not."""
        path, at, size = self._record()
        (body_length,) = struct.unpack_from(">i", (self._root / path).read_bytes(), at + 84)
        more = self._random.choice((1, 8, 100, -1))
        yield _write(path, at, struct.pack(">i", size + more))
        yield _write(path, at + 84, struct.pack(">i", body_length + more))

    def _queue_shift(self) -> Iterator[Operation]:
        path = self._random.choice(self._queues)
        begin, end = self._random.choice(((0, UNIT), (UNIT, 0)))
        yield {
            "op": "copyrange",
            "path": path,
            "offset": begin,
            "len": self._size(path) - UNIT,
            "to": path,
            "to_offset": end,
        }

    def _every_queue(self) -> Iterator[Operation]:
        """Lose the last file of each queue, or what stands in it, or in all of them."""
        kind = self._random.choice(("delete", "zero", "all"))
        for directory in sorted({os.path.dirname(path) for path in self._queues}):
            paths = [path for path in self._queues if os.path.dirname(path) == directory]
            for path in paths if kind == "all" else paths[-1:]:
                if kind == "delete":
                    yield {"op": "delete", "path": path}
                else:
                    yield {"op": "zero", "path": path, "offset": 0, "len": self._size(path)}

    def _checkpoint(self) -> Iterator[Operation]:
        times = struct.unpack_from(">3q", (self._root / "checkpoint").read_bytes())
        kind = self._random.choice(
            ("delete", "back", "back", "back", "pick", "pick", "same", "zero", "future", "short", "long", "noise")
        )
        if kind == "delete":
            yield {"op": "delete", "path": "checkpoint"}
        elif kind == "back":
            back = self._random.randrange(20000)
            yield _write("checkpoint", 0, struct.pack(">3q", *(max(0, time - back) for time in times)))
        elif kind == "pick":
            chosen = self._random.choice(sorted({path for path, _, _ in self._records}))
            path, at, _ = next(record for record in self._records if record[0] == chosen)
            (time,) = struct.unpack_from(">q", (self._root / path).read_bytes(), at + 56)
            yield _write("checkpoint", 0, struct.pack(">2q", *[time + 3000 - self._random.randrange(2)] * 2))
        elif kind == "same":
            yield _write("checkpoint", 0, struct.pack(">3q", *[self._random.choice((-1, 1000, 0, 1 << 44))] * 3))
        elif kind == "long":
            yield {"op": "extend", "path": "checkpoint", "len": 4096}
        elif kind == "zero":
            yield {"op": "zero", "path": "checkpoint", "offset": 8 * self._random.randrange(5), "len": 8}
        elif kind == "future":
            yield _write("checkpoint", 8 * self._random.randrange(3), struct.pack(">q", 1 << 44))
        elif kind == "short":
            yield {"op": "truncate", "path": "checkpoint", "size": self._random.choice((0, 8, 20, 40))}
        else:
            yield _write("checkpoint", 0, self._random.randbytes(48))

    def _index_file(self) -> Iterator[Operation]:
        if not self._index:
            return
        path = self._random.choice(self._index)
        kind = self._random.choice(("delete", "count", "offset", "time", "short", "long", "zero"))
        if kind == "delete":
            yield {"op": "delete", "path": path}
        elif kind == "count":
            yield _write(path, 36, struct.pack(">i", self._random.choice((0, -1, 1, 5, 10**6))))
        elif kind == "offset":
            yield _write(path, 24, struct.pack(">q", self._random.randrange(1 << 20)))
        elif kind == "time":
            yield _write(path, 8, struct.pack(">q", self._random.choice((0, 1 << 44, 1700000000000))))
        elif kind == "short":
            yield {"op": "truncate", "path": path, "size": self._random.choice((0, 10, self._size(path) // 2))}
        elif kind == "long":
            yield {"op": "extend", "path": path, "len": 7}
        else:
            yield {"op": "zero", "path": path, "offset": 0, "len": 40}

    def _index_directory(self) -> Iterator[Operation]:
        kind = self._random.choice(("delete", "number", "all short"))
        if kind == "delete":
            yield {"op": "delete", "path": "index"}
        elif kind == "number":
            yield {"op": "create", "path": "index/123", "len": self._random.choice((0, 39, 5000))}
        else:
            for path in self._index:
                yield {"op": "truncate", "path": path, "size": self._size(path) // 2}

    def _stranger(self) -> Iterator[Operation]:
        queue = os.path.dirname(self._random.choice(self._queues))
        directory = self._random.choice(("commitlog", "consumequeue", "index", os.path.dirname(queue), queue))
        if self._random.random() < 0.7:
            name = self._random.choice(("README", ".gitkeep", "zzz"))
            size = self._size((self._log if directory == "commitlog" else self._queues)[0])
            yield {"op": "create", "path": f"{directory}/{name}", "len": self._random.choice((0, 12, size))}
        else:
            yield {"op": "mkdir", "path": f"{directory}/{self._random.choice(('sub', '77', 'zzz'))}"}

    def _settings_file(self) -> Iterator[Operation]:
        """Leave something else in the files that services of the store keep beside it."""
        path = self._random.choice(
            ("config/delayOffset.json", "config/delayOffset.json.bak", "compaction/position-checkpoint")
        )
        texts = (b"", b'{"of', b"{}", b"[]", b"null", b'{"offsetTable":{"1":5,"3":0}}', b'{"offsetTable":{"7":2}}x')
        yield {"op": "create", "path": path, "hex": self._random.choice(texts).hex()}

    def _lock(self) -> Iterator[Operation]:
        kind = self._random.choice(("delete", "noise", "directory", "abort", "abort directory"))
        if kind == "noise":
            yield {"op": "create", "path": "lock", "hex": self._random.randbytes(100).hex()}
        elif kind == "abort":
            yield {"op": "create", "path": "abort", "hex": b"123456789".hex()}
        else:
            path = "abort" if kind == "abort directory" else "lock"
            if (self._root / path).exists():
                yield {"op": "delete", "path": path}
            if kind != "delete":
                yield {"op": "mkdir", "path": path}


def _write(path: str, offset: int, data: bytes) -> Operation:
    return {"op": "write", "path": path, "offset": offset, "hex": data.hex()}


def _beside(one: str, other: str) -> bool:
    return os.path.dirname(one) == os.path.dirname(other)
