"""The loop of a client in a thread: cancelled sends, and code that must not wait where nothing can come."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future, wait
from contextlib import suppress
from typing import Any

import pytest

import rmqtool
from rmqtool.api.async_cluster import AsyncCluster, AsyncProducer
from rmqtool.api.consumer import AsyncConsumer
from rmqtool.client.face import Face, LoopFuture
from rmqtool.errors import RemoteError, UsageError
from tests.support.waiting import PATIENCE, wait_for_end


@pytest.fixture
def face() -> Iterator[Face]:
    opened = Face()
    yield opened
    opened.close()


async def forever() -> None:
    await asyncio.Event().wait()


async def soon(value: str) -> str:
    return value


async def broken() -> None:
    raise ZeroDivisionError


def test_who_waits_for_several_learns_that_one_was_cancelled(face: Face) -> None:
    cancelled, given, failed = LoopFuture[Any](), LoopFuture[Any](), LoopFuture[Any]()
    face.begin_for(cancelled, forever())
    face.begin_for(given, soon("x"))
    face.begin_for(failed, broken())
    assert cancelled.cancel()
    done, left = wait([cancelled, given, failed], timeout=PATIENCE)
    assert (len(done), len(left)) == (3, 0)
    assert given.result() == "x"
    assert isinstance(failed.exception(), ZeroDivisionError)
    with pytest.raises(CancelledError):
        cancelled.result()


def test_a_send_may_follow_another_one_but_nobody_waits_on_the_loop_for_it(face: Face) -> None:
    """A callback runs on the thread of the loop: a result that it waited for would never come."""
    second: Future[Any] = Future()

    def sent(_: Future[Any]) -> None:
        following = LoopFuture[Any]()
        face.begin_for(following, soon("second"))
        for call in (following.result, following.exception):
            with pytest.raises(UsageError, match="called from its own thread"):
                call(timeout=1)
        following.add_done_callback(lambda one: second.set_result(one.result()))

    first = LoopFuture[Any]()
    first.add_done_callback(sent)
    face.begin_for(first, soon("first"))
    assert first.result(timeout=PATIENCE) == "first"
    assert second.result(timeout=PATIENCE) == "second"


def test_nothing_is_under_way_when_a_client_is_closed() -> None:
    """Also not what was begun by what ended; and who begins something later is told."""
    opened, ended = Face(), []

    async def begins_another() -> None:
        try:
            await forever()
        finally:
            asyncio.create_task(forever()).add_done_callback(lambda task: ended.append(task.cancelled()))

    first = LoopFuture[Any]()
    opened.begin_for(first, begins_another())
    opened.begin_for(LoopFuture[Any](), soon("x")).result(timeout=PATIENCE)
    opened.close()
    assert (first.cancelled(), ended) == (True, [True])
    for begin in (opened.begin, lambda work: opened.begin_for(LoopFuture[Any](), work)):
        with pytest.raises(RemoteError, match="this client is closed"):
            begin(soon("late"))
    opened.call(ended.clear)
    opened.close()


def test_a_send_that_begins_as_the_client_closes_ends() -> None:
    for _ in range(20):
        opened, begun = Face(), []
        closing = threading.Thread(target=opened.close)

        def send(opened: Face = opened, begun: list[Future[Any]] = begun) -> None:
            with suppress(RemoteError):
                for _ in range(1000):
                    begun.append(opened.begin_for(LoopFuture[Any](), forever()))

        sending = threading.Thread(target=send)
        sending.start()
        closing.start()
        wait_for_end(closing, sending)
        assert all(one.cancelled() for one in begun)


def test_coroutine_functions_are_known_as_such() -> None:
    """Frameworks ask before they call, so that they await what comes."""
    for kind, name in ((AsyncProducer, "send"), (AsyncConsumer, "poll"), (AsyncCluster, "produce")):
        function = getattr(kind, name)
        assert inspect.iscoroutinefunction(function)
        assert asyncio.iscoroutinefunction(function)
    assert not inspect.iscoroutinefunction(rmqtool.connect)


def test_a_wrong_call_of_a_coroutine_function_says_how_it_is_called() -> None:
    async def main() -> None:
        async with rmqtool.connect_async(f"rocketmq://{served.names}") as cluster:
            with pytest.raises(TypeError, match=r"produce\(\) .* it is called as produce\(topic"):
                await cluster.produce("T", value="x")  # type: ignore[call-arg]

    with rmqtool.serve(memory=True) as served:
        asyncio.run(main())
