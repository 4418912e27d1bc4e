"""The loop of a client in a thread of its own, for code without asyncio.

The thread lives as long as the client: heartbeats and answers to brokers go on between calls.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from rmqtool.errors import RemoteError, RmqtoolError, UsageError

Result = TypeVar("Result")
AnyFuture = TypeVar("AnyFuture", bound="LoopFuture[Any]")


class LoopFuture(Future[Result]):
    """The future of work on a loop. Only other threads wait for it: on the loop's own it would never be done."""

    thread: threading.Thread | None = None

    def result(self, timeout: float | None = None) -> Result:
        """Wait for the result and return it."""
        self._require_other_thread()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the end and return the error, None without one."""
        self._require_other_thread()
        return super().exception(timeout)

    def _require_other_thread(self) -> None:
        if not self.done():
            _require_other_thread(self.thread)


def _require_other_thread(thread: threading.Thread | None) -> None:
    if threading.current_thread() is thread:
        raise UsageError("this client is called from its own thread", hint="use rmqtool.connect_async and await")


class Face:
    """A loop that runs in a thread until it is closed."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._lock = threading.RLock()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="rmqtool-client", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        # Tasks that are still under way end here, such as sends whose futures nothing waits for; and what these begin.
        while left := asyncio.all_tasks(self._loop):
            for task in left:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        self._loop.close()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine to its end and return what it gives. Ctrl-C ends it."""
        future = self.begin(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def begin(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        """Start a coroutine; the future has what it gives."""
        with self._beginning(work):
            _require_other_thread(self._thread)
            return asyncio.run_coroutine_threadsafe(work, self._loop)

    def begin_for(self, future: AnyFuture, work: Coroutine[Any, Any, Any]) -> AnyFuture:
        """Start a coroutine for a future of the caller's own class. Cancelling the future ends the coroutine."""

        def start() -> None:
            task = self._loop.create_task(work)
            task.add_done_callback(lambda ended: _pass_on(ended, future))
            future.add_done_callback(lambda done: self.call(task.cancel) if done.cancelled() else None)

        with self._beginning(work):
            future.thread = self._thread
            self._loop.call_soon_threadsafe(start)
        return future

    @contextmanager
    def _beginning(self, work: Coroutine[Any, Any, Any]) -> Iterator[None]:
        """Begin work in the block, if the client is open; close the coroutine if that cannot be."""
        with self._lock:
            try:
                if self._is_closed:
                    raise RemoteError("this client is closed", hint="open another one: rmqtool.connect(...)")
                yield
            except RmqtoolError:
                work.close()
                raise

    def iterate(self, source: AsyncGenerator[Result, None]) -> Iterator[Result]:
        """Yield what an asynchronous generator yields, and close it at the end."""
        try:
            while True:
                try:
                    yield self.run(_next(source))
                except StopAsyncIteration:
                    return
        finally:
            # A generator may outlive the client. Its requests ended with the loop.
            if not self._is_closed:
                self.run(_close(source))

    def call(self, work: Callable[[], object]) -> None:
        """Call something on the loop soon; from any thread, without waiting for it."""
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(work)

    def close(self) -> None:
        """End the loop and its thread."""
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                self._loop.call_soon_threadsafe(self._loop.stop)
        if threading.current_thread() is not self._thread:
            self._thread.join()


def _pass_on(task: asyncio.Task[Any], future: Future[Any]) -> None:
    """Give a future the result of a task, or its error, unless one of the two was cancelled."""
    error = None if task.cancelled() else task.exception()
    if task.cancelled():
        future.cancel()
    # Without this call those who wait for several futures never learn that one was cancelled.
    if not future.set_running_or_notify_cancel():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(task.result())


async def _next(source: AsyncGenerator[Result, None]) -> Result:
    return await source.__anext__()


async def _close(source: AsyncGenerator[Any, None]) -> None:
    await source.aclose()
