"""A store that grows while others read it: records laid by hand, appended to segments as a broker does.

    python -m tests.support.growing_store ROOT

appends until its standard input ends, and prints how many messages it wrote.
"""

from __future__ import annotations

import select
import sys
from pathlib import Path

from tests.support.builders import blank, properties, record

_LEAST_BLANK = 8
_PACE = 0.02
_AT_ONCE = 3


class GrowingStore:
    """A commit log of small segments. Every message has a number of its own in its body and its key."""

    def __init__(self, root: Path, segment_size: int = 16 << 10, topic: str = "Growing") -> None:
        self.root = root
        self.topic = topic.encode()
        self.segment_size = segment_size
        self.written = 0
        self.end = 0
        self._torn: tuple[int, bytes] | None = None
        (root / "commitlog").mkdir(parents=True)
        (root / "consumequeue").mkdir()
        self._add_segment()

    def append(self, count: int) -> None:
        """Append ``count`` messages; a torn one becomes whole first."""
        self.complete()
        for _ in range(count):
            data = self._next()
            self._write(self.end, data)
            self._advance(data)

    def append_torn(self) -> None:
        """Write all of the next message but the second half of its bytes."""
        data = self._next()
        self._write(self.end, data[: len(data) // 2])
        self._torn = self.end, data

    def complete(self) -> None:
        """Write the rest of a torn message."""
        if self._torn is not None:
            offset, data = self._torn
            self._write(offset, data)
            self._advance(data)
            self._torn = None

    def cut_back(self, count: int) -> None:
        """Write the last ``count`` messages of this segment anew, as a broker does that lost what was not flushed."""
        first = self.written - count
        self.end = self._offsets[first]
        self._write(self.end, bytes(self.segment_size - self.end % self.segment_size))
        self.written = first
        self._salt = "again"

    def delete_first_segment(self) -> None:
        """Do as retention does."""
        min((self.root / "commitlog").iterdir()).unlink()

    _salt = ""

    @property
    def _offsets(self) -> list[int]:
        return self.__dict__.setdefault("offsets", [])

    def _next(self) -> bytes:
        number = self.written
        data = self._record(number, self.end)
        left = self.segment_size - self.end % self.segment_size
        if left < len(data) + _LEAST_BLANK:
            self._write(self.end, blank(left))
            self.end += left
            self._add_segment()
            data = self._record(number, self.end)
        return data

    def _record(self, number: int, physical_offset: int) -> bytes:
        return record(
            f"message {number} {self._salt}".encode() * (1 + number % 5),
            self.topic,
            properties(("KEYS", f"k{number}"), ("UNIQ_KEY", f"U{number:08}")),
            queue_id=number % 4,
            queue_offset=number // 4,
            physical_offset=physical_offset,
            store_timestamp=1_700_000_000_000 + number,
        )

    def _advance(self, data: bytes) -> None:
        self._offsets[self.written :] = [self.end]
        self.end += len(data)
        self.written += 1

    def _write(self, offset: int, data: bytes) -> None:
        base = offset - offset % self.segment_size
        with (self.root / "commitlog" / f"{base:020}").open("r+b") as file:
            file.seek(offset - base)
            file.write(data)

    def _add_segment(self) -> None:
        with (self.root / "commitlog" / f"{self.end:020}").open("xb") as file:
            file.truncate(self.segment_size)


def main(root: str) -> None:
    """Append for as long as somebody holds the other end of the standard input; stop in the midst of a record."""
    store = GrowingStore(Path(root), segment_size=256 << 10)
    while not select.select([sys.stdin], [], [], _PACE)[0]:
        store.append(_AT_ONCE)
        store.append_torn()
    store.complete()
    print(store.written)


if __name__ == "__main__":
    main(sys.argv[1])
