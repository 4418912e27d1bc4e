"""``ReputMessageService`` of 4.9: start() dispatches what the queues lack, and waits for it, for ever if need be.

5.x dispatches while it recovers, and starts reput at the end of the log.
"""

from __future__ import annotations

from rmqtool.formats.commit_log import Message
from rmqtool.upstream.batches import Run
from rmqtool.upstream.commit_log import CommitLog, Taker
from rmqtool.upstream.record_check import EndOfFile, OutOfMemory, Unreadable


class Hangs(Exception):
    """start() never returns; the argument says why."""


class Reput:
    """One run of the dispatcher from ``offset`` to the end of the log."""

    def __init__(self, commit_log: CommitLog, offset: int, taker: Taker) -> None:
        self._log = commit_log
        self._queue = commit_log.mapped
        self.offset = offset
        self._taker = taker

    @property
    def behind(self) -> int:
        """Bytes that are not dispatched; negative when the queues know more than the log holds."""
        return self._queue.max_offset - self.offset

    def run(self) -> None:
        """Dispatch until nothing is behind."""
        try:
            while self.behind > 0:
                self._pass()
        except OutOfMemory as error:
            raise Hangs(f"the dispatcher runs out of memory on a record that claims {error.total_size} bytes") from None

    def _pass(self) -> None:
        self.offset = max(self.offset, self._queue.min_offset)
        file = self._queue.find(self.offset, first_if_none=self.offset == 0)
        position = self.offset % self._queue.file_size
        if file is None or position >= file.wrote:
            raise Hangs(f"the dispatcher finds no data at {self.offset}, and start() waits until it has passed it")
        self.offset = file.start + position
        # Two counts that part ways after a record whose lengths do not add up: the reading goes on where it stopped,
        # the bytes of that record are not counted as read.
        at = position
        read = 0
        window = self._log.window(file)
        while read < file.wrote - position:
            for found in self._log.iter_at(window, at, file.wrote, crc=False, body=False):
                if isinstance(found, Run | Message):
                    size = self._dispatch(found)
                    self.offset += size
                    read += size
                    at += size
            if isinstance(found, EndOfFile):
                size = self._queue.file_size
                self.offset += size - self.offset % size
                return
            if isinstance(found, Unreadable):
                if found.size <= 0:
                    self.offset += file.wrote - position - read
                    return
                self.offset += found.size
                at += found.consumed

    def _dispatch(self, found: Run | Message) -> int:
        """Dispatch one record, or a run of them; return the bytes of that."""
        if isinstance(found, Run):
            self._taker.run(found)
            return found.size
        self._taker.one(found)
        return found.total_size
