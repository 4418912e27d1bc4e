"""A run of a producer over all its input: in pieces, at a rate, stopped at a bad line or by Ctrl-C."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Protocol

from rmqtool.broker.message_lines import Bad, Objects
from rmqtool.broker.producing import LEAST_FOR_COLUMNS, ColumnWork, Producer
from rmqtool.broker.sent import Sent, join_sent
from rmqtool.engine.clock import Clock
from rmqtool.engine.message import NewMessage
from rmqtool.errors import NotFound, Refused, RmqtoolError, UsageError, WriteFailed

# So many messages, or bytes of them, are stored before they are shown: first few, so that somebody who waits sees them.
_FIRST, _MOST, _MOST_BYTES, _GROWTH = 64, 8192, 8 << 20, 4
# By columns so many bytes pay, and so many lines at most have keys of their own.
_LEAST_BYTES, _MOST_LINES = 256 << 10, 1 << 15
_SECOND = 1000
# With a rate, so many pieces a second.
_TICKS = 10


class Stopper(Protocol):
    """Tells whether somebody wants an end. While it ``raises``, that is a ``KeyboardInterrupt`` at once."""

    raises: bool

    def __call__(self) -> bool:
        """Return whether to stop."""


@dataclass
class Run:
    """What was made of the input so far: how much of it was read, stored, refused, failed and left out.

    ``batch`` is how many messages go as one client batch, ``rate`` how many are sent in a second at most. ``skips``
    leaves out what is bad and goes on; ``refusals_stop`` ends at a message that is refused.
    """

    producer: Producer
    clock: Clock
    stopped: Stopper
    wait: Callable[[float], None]
    batch: int = 1
    rate: int | None = None
    skips: bool = False
    refusals_stop: bool = False
    # Makes what takes many lines at once.
    columns: Callable[[], ColumnWork] | None = None
    taken: int = 0
    stored: int = 0
    refused: int = 0
    failed: int = 0
    skipped: int = 0
    # What ended the run before its input did.
    error: RmqtoolError | None = None
    _left_out: list[Bad] = field(default_factory=list)
    _is_last: bool = False
    _work: ColumnWork | None = None
    _bytes_ahead: int = _LEAST_BYTES

    def iter_sent(self, messages: Iterable[NewMessage | Bad]) -> Iterator[Sent | Bad]:
        """Yield what becomes of the messages, piece by piece, and what was left out."""
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
        """Send the next lines by columns; None: there are too few, or they want to be sent one by one."""
        if self.columns is None:
            return None
        self.stopped.raises = True
        try:
            data = messages.look_ahead(self._bytes_ahead)
        except KeyboardInterrupt:
            return None
        finally:
            self.stopped.raises = False
        if len(data) < _LEAST_BYTES and self._work is None:
            return None
        self._work = self._work or self.columns()
        sent = self.producer.send_lines(data, self._work)
        if sent is not None:
            messages.pass_over(len(sent))
            self._bytes_ahead = min(_MOST_BYTES, _MOST_LINES * len(data) // len(sent))
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
        """Read the next messages that may be sent; tell whether these were the last."""
        size, check = 0, self.producer.check
        while len(piece) < most:
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

    def _send(self, piece: list[NewMessage]) -> Sent:
        if self.batch == 1:
            return self.producer.send(piece)
        return join_sent([self.producer.send_batch(part) for part in self._batches(piece)])

    def _tally(self, sent: Sent) -> Sent:
        self.stored += sent.stored
        self.refused += sent.refused
        self.failed += sent.failed
        if sent.failed:
            self.error = WriteFailed(
                f"{sent.failed} messages could not be stored", hint="see what the store says: rmqtool check STORE"
            )
        elif sent.refused and self.refusals_stop:
            self.error = UsageError(
                f"{sent.refused} messages were refused",
                hint="the notes above say why; --on-error skip goes on without them",
            )
        return sent

    def _batches(self, piece: list[NewMessage]) -> Iterator[list[NewMessage]]:
        """Yield batches: messages that follow each other, of one topic."""
        for _, alike in groupby(piece, lambda message: message.topic):
            rest = list(alike)
            yield from (rest[at : at + self.batch] for at in range(0, len(rest), self.batch))
