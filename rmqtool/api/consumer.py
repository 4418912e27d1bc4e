"""A consumer of a live cluster, for programs: a member of a group among members of any language.

``AsyncConsumer`` works on the loop of its caller. ``Consumer`` is the same for code without asyncio.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Self, Unpack, cast

from rmqtool.api.consumer_settings import INVISIBLE, ConsumerSettings, Kept, asked_of, strategy_of
from rmqtool.api.other_names import GivenMessages, explained, given, no_attribute
from rmqtool.errors import UsageError

if TYPE_CHECKING:
    import asyncio

    from rmqtool.api.shapes import Message
    from rmqtool.broker.consumer.windows import Delivered
    from rmqtool.client.cluster import Cluster as Connections
    from rmqtool.client.face import Face
    from rmqtool.client.member import Member, Membership
    from rmqtool.client.popped_messages import PopMember
    from rmqtool.client.producer import Producer as Sends
    from rmqtool.client.producer import SendResult

# Consumes a message; a coroutine is awaited. False, or an exception, means that it failed.
Handler = Callable[["Message"], object]

_LOG: Final = logging.getLogger("rmqtool.consumer")
# Seconds between two looks for what no event tells: a failed message that is tried again, a window that opened.
_LOOK: Final = 0.2
_BATCH: Final = 32
_CONCURRENCY: Final = 20
_POLL: Final = "poll(timeout=1.0), or poll(100, timeout=1.0)"


@explained
class AsyncConsumer:
    """A member of a consumer group: ``async for`` over it, ``poll`` it, or ``run`` a function for each message.

    A message is consumed when the next one is asked for, or the next ``poll`` begins, or a handler returns. Messages
    that are not consumed when this process ends are delivered again, to any member.
    """

    def __init__(
        self,
        open_connections: Callable[[], Connections],
        topics: str | list[str],
        group: str,
        **settings: Unpack[ConsumerSettings],
    ) -> None:
        from rmqtool.api.wanted import require_known

        require_known("consumer", settings, tuple(ConsumerSettings.__annotations__))
        self._open = open_connections
        self._settings = settings
        self._asked = asked_of(topics, group, settings)
        self._strategy = strategy_of(settings.get("strategy", "average"))
        self._own_offsets: Kept | None = None
        self._connections: Connections | None = None
        self._member: Member | PopMember | None = None
        # For replies.
        self._sends: Sends | None = None
        # Messages that are out, by the identity of the object that was given.
        self._out: dict[int, tuple[Delivered, Message]] = {}
        self._is_stopped = False
        # Whether ``run`` calls a handler.
        self.is_running = False

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            await self._finish_all()
        await self.close()

    async def start(self) -> None:
        """Join the group. Raises RemoteError, and NotFound for a topic that does not exist."""
        from rmqtool.api.remote_group import membership_of
        from rmqtool.client.member import Member

        if self._member is not None:
            return
        self._connections = connections = self._open()
        try:
            membership, retries = await membership_of(connections, self._asked, follows=True)
            if self._settings.get("pop"):
                popping = self._member = self._popping(connections, membership, retries)
                await popping.join()
                return
            if self._asked.broadcasting:
                self._own_offsets = Kept(self._settings.get("offsets"), self._asked)
            self._member = member = Member(connections, self._adjusted(membership))
            await member.join()
        except BaseException:
            await self.close()
            raise

    def _popping(self, connections: Connections, membership: Membership, retries: int) -> PopMember:
        from rmqtool.api.remote_pop import pops_of
        from rmqtool.client.popped_messages import PopMember

        settings = self._settings
        topics, wanted = pops_of(membership, round(settings.get("invisible", INVISIBLE) * 1000))
        room = settings.get("prefetch", _BATCH)
        return PopMember(connections, topics, wanted, retries=retries, room=room)

    def _adjusted(self, membership: Membership) -> Membership:
        how = replace(membership.how, send_back=self._was_sent_back)
        prefetch = self._settings.get("prefetch")
        if prefetch is not None:
            how = replace(how, thresholds=replace(how.thresholds, count=prefetch))
        own = self._own_offsets
        if own is not None:
            how = replace(how, send_back=None)
        return replace(membership, how=how, strategy=self._strategy, own_offsets=None if own is None else own.offsets)

    def _was_sent_back(self, delivered: Delivered) -> bool:
        return self._joined.was_sent_back(delivered)

    @property
    def _joined(self) -> Member | PopMember:
        if self._member is None:
            raise UsageError("this consumer has not joined its group", hint="async with consumer, or await start()")
        return self._member

    async def close(self) -> None:
        """Commit, leave the group and close the connections."""
        member, self._member = self._member, None
        connections, self._connections, self._sends = self._connections, None, None
        self._out.clear()
        if member is not None:
            await member.close()
        if connections is not None:
            await connections.close()
        own, self._own_offsets = self._own_offsets, None
        if own is not None:
            own.close()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            """Say what the name of another client is called here."""
            raise no_attribute("Consumer", name)

        def __iter__(self) -> Iterator[Message]:
            """Refuse to be iterated by code without a loop."""
            raise UsageError("this consumer is for code with asyncio", hint="async for message in consumer")

    # Messages.

    def __aiter__(self) -> AsyncIterator[Message]:
        return self

    async def __anext__(self) -> Message:
        found = await self.poll(1, timeout=self._settings.get("timeout"))
        if not found:
            raise StopAsyncIteration
        return found[0]

    async def poll(self, max_messages: int = _BATCH, *, timeout: float | None = 1.0) -> list[Message]:
        """Return the next messages; those of the call before are consumed now. Nothing after ``timeout`` seconds."""
        import asyncio

        if not isinstance(max_messages, int):
            raise UsageError(f"poll takes the number of messages first, not {max_messages}", hint=_POLL)
        await self.start()
        await self._finish_all()
        loop = asyncio.get_running_loop()
        until = None if timeout is None else loop.time() + timeout
        while not (taken := self._joined.take(max_messages)):
            left = None if until is None else until - loop.time()
            if self._is_stopped or (left is not None and left <= 0):
                return GivenMessages()
            await self._wait(_LOOK if left is None else min(_LOOK, left))
        found = GivenMessages()
        for delivered in taken:
            message = given(delivered.message)
            self._out[id(message)] = delivered, message
            found.append(message)
        return found

    async def _wait(self, timeout: float, running: set[asyncio.Task[None]] | None = None) -> None:
        """Wait until there may be something to take."""
        import asyncio

        member = self._joined
        news = asyncio.ensure_future(member.news.wait())
        try:
            await asyncio.wait({news, *(running or ())}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        finally:
            news.cancel()
        member.news.clear()
        member.raise_trouble()

    async def _finish_all(self) -> None:
        out, self._out = self._out, {}
        for delivered, _ in out.values():
            await self._joined.finish(delivered, is_ok=True)

    async def retry(self, message: Message) -> None:
        """Report that a message failed: its broker delivers it again later, and after some times as a dead letter."""
        delivered, _ = self._out.pop(id(message), (None, None))
        if delivered is None:
            raise UsageError("this message is not out", hint="retry what the last iteration or poll gave")
        await self._joined.finish(delivered, is_ok=False)

    async def reply(self, message: Message, body: bytes | str, **more: Any) -> SendResult:
        """Reply to a message that ``request`` of a producer sent: its client gets ``body``, if it still waits."""
        from rmqtool.api.outgoing import answer_request
        from rmqtool.client.producer import Producer

        if self._connections is None:
            raise UsageError("this consumer has not joined its group", hint="async with consumer, or await start()")
        if self._sends is None:
            self._sends = Producer(self._connections)
        return await answer_request(self._sends, message, body, **more)

    async def commit(self) -> None:
        """Consume what was given so far, and tell the brokers now: else they learn it within five seconds."""
        await self._finish_all()
        await self._joined.commit()

    async def run(self, handler: Handler, *, concurrency: int = _CONCURRENCY) -> None:
        """Call ``handler`` for each message until ``stop``; some run at a time, in order where the group is orderly.

        A handler that is not a coroutine function runs in a thread. A message for which it returns False or raises is
        delivered again later; the exception is logged.
        """
        import asyncio

        await self.start()
        self.is_running = True
        running: set[asyncio.Task[None]] = set()
        with ThreadPoolExecutor(concurrency, "rmqtool-handler") as threads:
            call = _caller(handler, threads)
            try:
                while not self._is_stopped:
                    taken = self._joined.take(concurrency - len(running)) if len(running) < concurrency else []
                    for delivered in taken:
                        task = asyncio.create_task(self._handle(call, delivered))
                        running.add(task)
                        task.add_done_callback(running.discard)
                    if not taken:
                        await self._wait(_LOOK, running)
            finally:
                await asyncio.gather(*running)
                self.is_running = False

    async def _handle(self, call: Callable[[Message], Awaitable[object]], delivered: Delivered) -> None:
        message = given(delivered.message)
        try:
            is_ok = await call(message) is not False
        except Exception:
            place = f"{delivered.queue.topic}/{delivered.queue.queue_id}@{delivered.cached.queue_offset}"
            _LOG.exception("the handler failed for message %s", place)
            is_ok = False
        await self._joined.finish(delivered, is_ok=is_ok)

    def stop(self) -> Awaitable[None]:
        """End ``run``, or the iteration, after the messages that are being handled; awaited, it closes as well."""
        self._is_stopped = True
        if self._member is not None:
            self._member.news.set()
        return _Stopped(self)


class _Stopped(Awaitable[None]):
    """The result of ``stop``. Awaiting it closes the consumer."""

    def __init__(self, consumer: AsyncConsumer) -> None:
        self._consumer = consumer

    def __await__(self) -> Generator[Any, None, None]:
        # A handler that awaits it must not close its own consumer: run ends after the handler.
        return (_nothing() if self._consumer.is_running else self._consumer.close()).__await__()


async def _nothing() -> None:
    """Do nothing."""


def _caller(handler: Handler, threads: ThreadPoolExecutor) -> Callable[[Message], Awaitable[object]]:
    """Return a function that calls the handler on the loop, or in a thread."""
    if inspect.iscoroutinefunction(handler):
        return cast("Callable[[Message], Awaitable[object]]", handler)
    import asyncio

    loop = asyncio.get_running_loop()

    async def call(message: Message) -> object:
        found = await loop.run_in_executor(threads, handler, message)
        return await found if inspect.isawaitable(found) else found

    return call


@explained
class Consumer:
    """``AsyncConsumer`` for code without asyncio: iterate over it, ``poll`` it, or ``run`` a function."""

    def __init__(self, face: Face, consumer: AsyncConsumer) -> None:
        self._face, self._consumer = face, consumer

    def __enter__(self) -> Self:
        self._face.run(self._consumer.start())
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._face.run(self._consumer.__aexit__(kind))

    def __iter__(self) -> Iterator[Message]:
        return self

    def __next__(self) -> Message:
        found = self.poll(1, timeout=self._consumer._settings.get("timeout"))
        if not found:
            raise StopIteration
        return found[0]

    def poll(self, max_messages: int = _BATCH, *, timeout: float | None = 1.0) -> list[Message]:
        """Return the next messages; those of the call before are consumed now. Nothing after ``timeout`` seconds."""
        return self._face.run(self._consumer.poll(max_messages, timeout=timeout))

    def retry(self, message: Message) -> None:
        """Report that a message failed: its broker delivers it again later, and after some times as a dead letter."""
        self._face.run(self._consumer.retry(message))

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            """Say what the name of another client is called here."""
            raise no_attribute("Consumer", name)

        def __aiter__(self) -> AsyncIterator[Message]:
            """Refuse to be iterated by code on a loop."""
            raise UsageError(
                "this consumer is for code without asyncio", hint="rmqtool.connect_async(...).consumer(...)"
            )

    def reply(self, message: Message, body: bytes | str, **more: Any) -> SendResult:
        """Reply to a message that ``request`` of a producer sent: its client gets ``body``, if it still waits."""
        return self._face.run(self._consumer.reply(message, body, **more))

    def commit(self) -> None:
        """Consume what was given so far, and tell the brokers now: else they learn it within five seconds."""
        self._face.run(self._consumer.commit())

    def run(self, handler: Handler, *, concurrency: int = _CONCURRENCY) -> None:
        """Call ``handler`` in threads for each message until ``stop``; see ``AsyncConsumer.run``."""
        self._face.run(self._consumer.run(handler, concurrency=concurrency))

    def stop(self) -> None:
        """End ``run``, or the iteration, after the messages that are being handled."""
        self._face.call(self._consumer.stop)

    def close(self) -> None:
        """Commit, leave the group and close the connections."""
        self._face.run(self._consumer.close())
