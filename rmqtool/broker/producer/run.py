"""A run of a producer over its input: in pieces, at a rate, stopped by a bad line or by Ctrl-C."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Protocol

from rmqtool.broker.producer.lines import Bad, Lines, Objects
from rmqtool.broker.producer.result import Sent, join_sent
from rmqtool.broker.producer.send import LEAST_FOR_COLUMNS, ColumnWork
from rmqtool.engine.clock import Clock
from rmqtool.engine.message import NewMessage
from rmqtool.errors import NotFound, Refused, RmqtoolError, UsageError, WriteFailed

# Messages, and bytes of them, that are stored before they are reported: few at first, so that a user sees progress
# soon.
_FIRST, _MOST, _MOST_BYTES, _GROWTH = 64, 8192, 8 << 20, 4
# Columns pay from the first number of bytes. The second fits the CPU's cache, so larger pieces are slower. The third is
# the number of lines that can have keys of their own.
_LEAST_BYTES, _BEST_BYTES, _MOST_LINES = 256 << 10, 2 << 20, 1 << 15
_SECOND = 1000
# Pieces that are held: one is stored while the next one is parsed.
_PIECES = 2
# Pieces in a second if there is a rate.
_TICKS = 10


class Stopper(Protocol):
    """Tells whether the user asked to stop. While it ``raises``, Ctrl-C is a ``KeyboardInterrupt`` at once."""

    raises: bool

    def __call__(self) -> bool:
        """Return whether to stop."""


class Sender(Protocol):
    """The place that a run sends messages to: a store that is open, or a live cluster."""

    @property
    def takes_columns(self) -> bool:
        """Whether messages may come by columns."""

    def check(self, message: NewMessage) -> None:
        """Raise UsageError, NotFound or Refused for a message that is not taken."""

    def send(self, messages: Sequence[NewMessage]) -> Sent:
        """Store messages that were checked, and say what became of each."""

    def send_batch(self, messages: Sequence[NewMessage]) -> Sent:
        """Store messages as one batch of a client."""

    def send_incoming(self, incoming: Any, work: ColumnWork) -> Sent | None:
        """Store messages that ``work`` has read; None: they must be sent one by one."""

    def full_disk(self) -> str | None:
        """Say that the disk is too full for messages, None when it is not."""


class _Pieces:
    """Parses JSON lines in pieces: one piece is parsed while the one before it is stored."""

    def __init__(self, work: ColumnWork) -> None:
        self.work = work
        self._pool = ThreadPoolExecutor(1)
        self._begun: deque[tuple[int, Future[Any]]] = deque()
        self._most = _LEAST_BYTES

    def look_ahead(self, lines: Lines, first: bytes | bytearray) -> None:
        """Start to parse the next pieces.

        ``first`` may have been read already. Waits for input only if nothing is parsed.
        """
        while len(self._begun) < _PIECES and not (self._begun and lines.is_late(0)):
            data = first or lines.look_ahead(self._most)
            if not data:
                break
            first = b""
            self._begun.append((len(data), self._pool.submit(self.work.read, data)))

    def next(self) -> Any | None:
        """Return the messages of the next piece; None at the end, or if it must be sent line by line."""
        if not self._begun:
            return None
        size, future = self._begun.popleft()
        incoming = future.result()
        if incoming is not None:
            self._most = min(_BEST_BYTES, _MOST_LINES * size // len(incoming))
        return incoming

    def forget(self) -> None:
        """Drop the started pieces, because their lines are taken one by one."""
        self._begun.clear()


@dataclass
class Run:
    """The state of a run: how many messages were taken, stored, refused, failed and skipped.

    ``batch`` is the number of messages in a client's batch, ``rate`` the most messages sent in a second. With ``skips``
    bad messages are left out; with ``refusals_stop`` the run ends at a refused message.
    """

    producer: Sender
    clock: Clock
    stopped: Stopper
    wait: Callable[[float], None]
    batch: int = 1
    rate: int | None = None
    skips: bool = False
    refusals_stop: bool = False
    # The lines of the input, if reading them can block.
    lines: Lines | None = None
    # Creates the parser of many lines at once.
    columns: Callable[[], ColumnWork] | None = None
    taken: int = 0
    stored: int = 0
    refused: int = 0
    failed: int = 0
    skipped: int = 0
    # The error that ended the run before the end of the input.
    error: RmqtoolError | None = None
    _left_out: list[Bad] = field(default_factory=list)
    _is_last: bool = False
    _pieces: _Pieces | None = None

    def iter_sent(self, messages: Iterable[NewMessage | Bad]) -> Iterator[Sent | Bad]:
        """Yield the results of the messages, piece by piece, and the messages that were left out."""
        left, size = iter(messages), _FIRST
        lines = messages if isinstance(messages, Objects) and self.batch == 1 and self.rate is None else None
        started, sent_before = self.clock.monotonic(), 0
        while not self._is_last and not self.stopped() and self.error is None:
            most = size if self.rate is None else min(size, max(self.rate // _TICKS, 1))
            sent = self._send_lines(lines) if lines is not None and most >= LEAST_FOR_COLUMNS else None
            if sent is None:
                piece = self._next_piece(left, -(-most // self.batch) * self.batch)
                sent_before += len(piece)
                sent = self._send(piece) if piece else None
            if isinstance(messages, Objects):
                self.taken = messages.taken
            if sent is not None:
                yield self._tally(sent)
            yield from self._left_out
            self._left_out.clear()
            size = min(size * _GROWTH, _MOST)
            if self.rate is not None and not self._is_last:
                due = started + sent_before * _SECOND // self.rate
                self.wait(max(due - self.clock.monotonic(), 0) / _SECOND)

    def _send_lines(self, messages: Objects) -> Sent | None:
        """Send the next lines by columns; return None if there are too few, or if they must be sent one by one."""
        if self.columns is None or not self.producer.takes_columns:
            return None
        self.stopped.raises = True
        try:
            first = b"" if self._pieces else messages.lines.look_ahead(_LEAST_BYTES)
            if self._pieces is None and len(first) < _LEAST_BYTES // 2:
                return None
            self._pieces = self._pieces or _Pieces(self.columns())
            self._pieces.look_ahead(messages.lines, first)
        except KeyboardInterrupt:
            if self._pieces is not None:
                self._pieces.forget()
            return None
        finally:
            self.stopped.raises = False
        incoming = self._pieces.next()
        sent = None if incoming is None else self.producer.send_incoming(incoming, self._pieces.work)
        if sent is None:
            self._pieces.forget()
        else:
            messages.pass_over(len(sent))
        return sent

    def _next_piece(self, left: Iterator[NewMessage | Bad], most: int) -> list[NewMessage]:
        piece: list[NewMessage] = []
        self.stopped.raises = True
        try:
            self._is_last = self._read(left, most, piece)
        except KeyboardInterrupt:
            self._is_last = True
        finally:
            self.stopped.raises = False
        return piece

    def _read(self, left: Iterator[NewMessage | Bad], most: int, piece: list[NewMessage]) -> bool:
        """Read the next messages that pass the check; return whether these were the last."""
        size, check, since = 0, self.producer.check, time.monotonic()
        while len(piece) < most:
            if piece and self._is_late(len(piece), since):
                return False
            one = next(left, None)
            if one is None:
                return True
            self.taken += 1
            if isinstance(one, NewMessage):
                try:
                    check(one)
                    piece.append(one)
                    size += len(one.body or b"")
                    if size < _MOST_BYTES or len(piece) % self.batch:
                        continue
                    break
                except (UsageError, NotFound, Refused) as error:
                    one = Bad(self.taken, error)
            if not self.skips:
                self.error = one.error
                return True
            self.skipped += 1
            self._left_out.append(one)
        return False

    def _is_late(self, count: int, since: float) -> bool:
        """Return whether to send ``count`` messages now instead of waiting for more. A batch is always completed."""
        return self.lines is not None and not count % self.batch and self.lines.is_late(since)

    def _send(self, piece: list[NewMessage]) -> Sent:
        if self.batch == 1:
            return self.producer.send(piece)
        return join_sent([self.producer.send_batch(part) for part in self._batches(piece)])

    def _tally(self, sent: Sent) -> Sent:
        self.stored += sent.stored
        self.refused += sent.refused
        self.failed += sent.failed
        if sent.error is not None:
            self.error = sent.error
        elif sent.failed:
            reasons, hint = sent.reasons(about_message=False), "check the store: rmqtool check STORE"
            if (full := self.producer.full_disk()) is not None:
                reasons, hint = (
                    full,
                    "free some space: rmqtool tick STORE lists what a broker would delete, --expire deletes it",
                )
            self.error = WriteFailed(f"{sent.failed} messages could not be stored ({reasons})", hint=hint)
        elif sent.refused and self.refusals_stop:
            self.error = UsageError(
                f"{sent.refused} messages were refused",
                hint="the notes above say why; --on-error skip leaves them out",
            )
        return sent

    def _batches(self, piece: list[NewMessage]) -> Iterator[list[NewMessage]]:
        """Yield batches of consecutive messages with the same topic."""
        for _, alike in groupby(piece, lambda message: message.topic):
            rest = list(alike)
            yield from (rest[at : at + self.batch] for at in range(0, len(rest), self.batch))
