"""Reads that wait for the disk, in threads, so that the loop never waits: a few at once, the others in their order.

A request whose bytes are not in memory has them fetched, and is then answered in the loop. Requests for the same bytes
share a fetch. A request that waits for its turn holds no descriptor: it looks at its bytes again when its turn comes.
A search, which reads here and there, is done by a thread as a whole; some threads are left to the others.

A request whose client has hung up is dropped, unless it changes the store.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from errno import EBADF
from queue import SimpleQueue
from threading import Thread
from typing import NamedTuple, TypeAlias

from rmqtool.broker.processors.by_code import Outcome
from rmqtool.broker.processors.replies import Fetching, Searching
from rmqtool.remoting.command import RemotingCommand
from rmqtool.server.channel import Connection

# How many reads are done at once, and how many of them may be searches.
_THREADS, _SEARCHES = 4, 2
# After this number of failed fetches in a row all requests for the same bytes fail.
_FAILURES = 4
# How many requests go on in one turn of the loop; and bytes that a client has to read before it is answered further.
_AT_ONCE, _MUCH = 64, 8 << 20
_PAUSE = 0.01

_Work: TypeAlias = "Callable[[], RemotingCommand | None]"


class _Waiting(NamedTuple):
    """A request that waits for a read, and whose it is."""

    connection: Connection
    command: RemotingCommand
    what: Fetching | Searching


class ColdReads:
    """The reads of one server. ``reply`` answers a request, or has it wait again; ``failed`` says why it cannot be."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        limits: tuple[int, int],
        reply: Callable[[Connection, RemotingCommand, Outcome], None],
        failed: Callable[[Connection, RemotingCommand, Exception], None],
        end_turn: Callable[[], None],
    ) -> None:
        self._loop, self._reply, self._failed, self._end_turn = loop, reply, failed, end_turn
        # The most requests that wait, in all and of one connection; and how many do.
        self._most, self._most_each = limits
        self._counts: Counter[Connection] = Counter()
        # The requests that wait for a turn; searches have a queue of their own.
        self._queue: deque[_Waiting] = deque()
        self._searches: deque[_Waiting] = deque()
        # Those whose bytes are there, and whether the loop will come back to them.
        self._ready: deque[_Waiting] = deque()
        self._comes_back = False
        # The requests that wait for each fetch.
        self._fetches: dict[tuple[str, int, int], list[_Waiting]] = {}
        # How often fetches of a place failed in a row. It is forgotten when no request waits.
        self._failures: Counter[tuple[str, int, int]] = Counter()
        self._running = self._searching = 0
        self._threads: list[Thread] = []
        self._work: SimpleQueue[tuple[_Work, Callable[[RemotingCommand | Exception | None], None]] | None]
        self._work = SimpleQueue()
        self._is_closed = False

    @property
    def is_busy(self) -> bool:
        """Whether requests wait."""
        return bool(self._counts)

    def take(self, connection: Connection, command: RemotingCommand, what: Fetching | Searching) -> bool:
        """Have a request wait for its read; return False if too many do, or if the server ends."""
        if self._is_closed or self._counts.total() >= self._most or self._counts[connection] >= self._most_each:
            return False
        self._counts[connection] += 1
        one = _Waiting(connection, command, what)
        sharing = self._fetches.get(what.cold.place) if isinstance(what, Fetching) else None
        if sharing is not None:
            sharing.append(one)
        elif self._running < _THREADS and (self._searching < _SEARCHES or isinstance(what, Fetching)):
            self._begin(one)
        else:
            (self._queue if isinstance(what, Fetching) else self._searches).append(one)
        return True

    def _begin(self, one: _Waiting) -> None:
        """Give a thread its read, while the file of a fetch is open."""
        what = one.what
        if isinstance(what, Searching):
            self._searching += 1
            self._start(what.search, lambda found: self._searched(one, found))
            return
        place = what.cold.place
        try:
            fetch = what.cold.begin()
        except Exception as error:
            if isinstance(error.__cause__, OSError) and error.__cause__.errno == EBADF:
                # The file was removed and forgotten meanwhile. Looked at again, the request finds another one, or none.
                self._loop.call_soon(self._look_again, one)
                return
            self._leave(one)
            self._fail(one, error)
            return
        self._fetches[place] = [one]
        self._start(fetch, lambda failure: self._fetched(place, failure))

    def _start(self, work: _Work, ended: Callable[[RemotingCommand | Exception | None], None]) -> None:
        self._running += 1
        if len(self._threads) < self._running:
            # A disk that does not answer does not keep the process: the thread is not waited for.
            thread = Thread(target=self._keep_reading, name=f"reader-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()
        self._work.put((work, ended))

    def _keep_reading(self) -> None:
        """Do what there is to read, in a thread of its own."""
        while (given := self._work.get()) is not None:
            work, ended = given
            found: RemotingCommand | Exception | None
            try:
                found = work()
            except Exception as error:
                found = error
            with suppress(RuntimeError):  # the loop has ended meanwhile
                self._loop.call_soon_threadsafe(self._ended, ended, found)

    def _ended(
        self, ended: Callable[[RemotingCommand | Exception | None], None], found: RemotingCommand | Exception | None
    ) -> None:
        self._running -= 1
        try:
            ended(found)
        finally:
            self._serve_queue()

    def _serve_queue(self) -> None:
        """Give free threads to those who wait for a turn. Some need no thread any more: they are answered in parts."""
        for _ in range(_AT_ONCE):
            if self._running >= _THREADS or (one := self._next()) is None:
                break
            if one.connection.unsent > _MUCH:
                self._be_ready([one])
            else:
                self._go_on(one)
        else:
            self._loop.call_soon(self._serve_queue)
        self._end_turn()

    def _be_ready(self, waiting: Sequence[_Waiting]) -> None:
        """Go on with requests whose bytes are there, in turns of the loop that others share."""
        self._ready.extend(waiting)
        if self._ready and not self._comes_back:
            self._comes_back = True
            self._loop.call_soon(self._go_on_in_part)

    def _go_on_in_part(self) -> None:
        part = [self._ready.popleft() for _ in range(min(len(self._ready), _AT_ONCE))]
        now = [one for one in part if one.connection.unsent <= _MUCH]
        self._ready.extend(one for one in part if one.connection.unsent > _MUCH)
        try:
            for one in now:
                self._go_on(one)
        finally:
            self._comes_back = bool(self._ready)
            if self._comes_back:
                self._loop.call_later(0 if now else _PAUSE, self._go_on_in_part)
            self._end_turn()

    def _next(self) -> _Waiting | None:
        """Take who has its turn now: a search, if not too many are under way."""
        if self._searches and self._searching < _SEARCHES:
            return self._searches.popleft()
        return self._queue.popleft() if self._queue else None

    def _searched(self, one: _Waiting, found: RemotingCommand | Exception | None) -> None:
        self._searching -= 1
        self._leave(one)
        if isinstance(found, Exception):
            self._fail(one, found)
        elif one.connection.is_open:
            self._reply(one.connection, one.command, found)

    def _fetched(self, place: tuple[str, int, int], failure: RemotingCommand | Exception | None) -> None:
        waiting = self._fetches.pop(place)
        if isinstance(failure, Exception):
            self._failures[place] += 1
            # The others may want other bytes of the same block, which can be read.
            failed = 1 if self._failures[place] < _FAILURES else len(waiting)
            for one in waiting[:failed]:
                self._leave(one)
                self._fail(one, failure)
            for one in waiting[failed:]:
                self._go_on(one)
            return
        self._failures.pop(place, None)
        self._be_ready(waiting)

    def _go_on(self, one: _Waiting) -> None:
        """Go on with a request whose bytes were fetched, or whose turn has come."""
        what = one.what
        if isinstance(what, Searching) and one.connection.is_open:
            self._begin(one)
            return
        self._leave(one)
        if isinstance(what, Fetching) and (what.outlives_client or one.connection.is_open):
            try:
                found = what.again()
            except Exception as error:
                self._fail(one, error)
            else:
                self._reply(one.connection, one.command, found)

    def _look_again(self, one: _Waiting) -> None:
        self._go_on(one)
        self._end_turn()

    def _fail(self, one: _Waiting, error: Exception) -> None:
        if one.connection.is_open:
            self._failed(one.connection, one.command, error)

    def _leave(self, one: _Waiting) -> None:
        self._counts[one.connection] -= 1
        if not self._counts[one.connection]:
            del self._counts[one.connection]
            if not self._counts:
                self._failures.clear()

    def close(self) -> None:
        """Begin no further read: who waits for a turn is refused. Reads that have begun are answered."""
        self._is_closed = True
        while self._queue or self._searches:
            one = (self._queue or self._searches).popleft()
            self._leave(one)
            self._reply(one.connection, one.command, one.what)
        for _ in self._threads:
            self._work.put(None)
