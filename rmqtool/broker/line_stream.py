"""The lines of standard input and of files: taken one by one, or looked at many at once before they are."""

from __future__ import annotations

import io
import select
import time
from collections import deque
from collections.abc import Iterable, Iterator
from typing import IO, Any

# What is read for lines that are taken one by one.
_CHUNK = 1 << 18
# For so long, in seconds, more lines are waited for while there are some to send.
PATIENCE = 0.2


class Lines:
    """The lines of streams. The end of a stream ends a line."""

    def __init__(self, streams: Iterable[IO[bytes]]) -> None:
        self._streams = iter(streams)
        self._stream: Any = io.BytesIO()
        # The lines that are taken now, and how many bytes they are.
        self._current, self._size = io.BytesIO(), 0
        # Lines that were read; at so many pieces of them somebody looked.
        self._pieces: deque[bytes | bytearray] = deque()
        self._looked_at = 0
        # The beginning of a line.
        self._begun = b""

    def __iter__(self) -> Iterator[bytes]:
        while line := self.take():
            yield line

    def take(self) -> bytes:
        """Return the next line; nothing when there is none. What was looked at and not taken may be looked at anew."""
        while not (line := self._current.readline()):
            self._looked_at = 0
            piece = self._pieces.popleft() if self._pieces else self._read(_CHUNK)
            if not piece:
                return b""
            self._current, self._size = io.BytesIO(piece), len(piece)
        return line

    def look_ahead(self, most: int) -> bytes | bytearray:
        """Return the lines behind those that were looked at, about ``most`` bytes; nothing when there are none."""
        if left := self._current.read():
            self._pieces.appendleft(left)
        if self._looked_at == len(self._pieces):
            piece = self._read(most)
            if not piece:
                return piece
            self._pieces.append(piece)
        self._looked_at += 1
        return self._pieces[self._looked_at - 1]

    def pass_over(self) -> None:
        """Take the first of the pieces that were looked at."""
        self._pieces.popleft()
        self._looked_at -= 1

    def is_late(self, since: float) -> bool:
        """Tell whether whoever waits ``since`` some time for lines should go on with those that there are."""
        if self._current.tell() < self._size or len(self._pieces) > self._looked_at:
            return False
        return not self._is_ready(since)

    def _is_ready(self, since: float) -> bool:
        try:
            number = self._stream.fileno()
        except (OSError, AttributeError):
            return True
        left = max(since + PATIENCE - time.monotonic(), 0)
        return bool(select.select([number], [], [], left)[0])

    def _read(self, most: int) -> bytearray:
        """Return whole lines, at least one; nothing at the end of the last stream."""
        begun, since, end = self._begun, time.monotonic(), 0
        size = len(begun)
        data = bytearray(max(most, 2 * size))
        data[:size] = begun
        try:
            while not end or (size < most and self._is_ready(since)):
                if size == len(data):
                    data += bytes(size)
                with memoryview(data) as whole, whole[size:] as room:
                    count = self._stream.readinto(room)
                if count:
                    end = data.rfind(b"\n", size, size + count) + 1 or end
                    size += count
                elif size > end:
                    data[size : size + 1] = b"\n"
                    size = end = size + 1
                elif not self._next_stream():
                    break
        except KeyboardInterrupt:
            # Whoever interrupts wants no more to be read; half a line is none.
            self._streams, self._stream, self._begun = iter(()), io.BytesIO(), b""
            self._pieces.append(data[:end])
            raise
        self._begun = bytes(data[end:size])
        del data[end:]
        return data

    def _next_stream(self) -> bool:
        following = next(self._streams, None)
        self._stream = io.BytesIO() if following is None else getattr(following, "raw", following)
        return following is not None
