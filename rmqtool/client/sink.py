"""A cluster as the place where a run of a producer puts its messages: what ``broker.producer.send`` is for a store.

Each call sends its messages at the same time and waits for all of them. Each has its row, also where one of them
failed: a message that may be stored is never reported as one that is not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

from rmqtool.broker.producer.client import Outgoing, check_message
from rmqtool.broker.producer.later import Outcome, Wish
from rmqtool.broker.producer.result import Row, Sent
from rmqtool.broker.services.transactions import TransactionState
from rmqtool.client.admin import for_each
from rmqtool.client.cluster import Cluster, read_body
from rmqtool.client.connection import NotSent, RequestRefused
from rmqtool.client.face import Face
from rmqtool.client.half_messages import end, send_half
from rmqtool.client.producer import Producer, SendResult, SendUnknown
from rmqtool.config import Version
from rmqtool.engine.message import NewMessage
from rmqtool.engine.put import is_for_later
from rmqtool.errors import NotFound, RemoteError, RmqtoolError, UsageError
from rmqtool.formats.codes import is_since
from rmqtool.formats.property_names import DELAY, TIMER_DELAY_MS, TIMER_DELIVER_MS
from rmqtool.formats.response_codes import code_name
from rmqtool.remoting.bodies.routes import KVTable
from rmqtool.remoting.requests.broker import GetBrokerRuntimeInfo

UNKNOWN, NOT_SENT = "UNKNOWN", "NOT_SENT"
_NO_PLACE: Final = (-1, -1, None)
# Messages under way at a time.
_WINDOW: Final = 1000

Result = TypeVar("Result")


class ClusterSink:
    """Sends what a run gives it. Without ``creates`` only topics that exist are sent to."""

    def __init__(
        self,
        face: Face,
        cluster: Cluster,
        producer: Producer,
        *,
        creates: bool = False,
        find_time: Callable[[int], int | None] | None = None,
    ) -> None:
        self._face, self._cluster, self._producer = face, cluster, producer
        # Tells when a message was stored, by its physical offset: a broker does not.
        self._find_time = find_time
        self._creates = creates
        self._wish: tuple[str, str] | None = None
        self._outcome: Outcome | None = None
        self._topics: set[str] = set()

    def deliver(self, wish: Wish, outcome: Outcome | None) -> None:
        """Say when messages are delivered that do not say it, and what becomes of each as a transaction."""
        self._outcome = outcome
        if wish.level is not None:
            self._wish = DELAY, str(wish.level)
        elif wish.span is not None or wish.at is not None:
            self._face.run(self._require_timers())
            self._wish = (TIMER_DELIVER_MS, str(wish.at)) if wish.span is None else (TIMER_DELAY_MS, str(wish.span))

    async def _require_timers(self) -> None:
        """Raise UsageError where a broker knows levels only, and would deliver at once."""
        masters = await self._cluster.masters()

        async def version(address: str) -> str:
            table = read_body(KVTable, await self._cluster.ask(address, GetBrokerRuntimeInfo())).table
            return table.get("brokerVersionDesc", "").removeprefix("V").replace("_", ".")

        for name, found in zip(masters, await for_each(masters.values(), version), strict=True):
            if not is_since(found or "4.9.0", "5.0.0"):
                hint = "--delay LEVEL, without a unit, is one of its levels"
                raise UsageError(f"broker {name} is of {found or '4.x'} and delays only by levels", hint=hint)

    # Called by a run.

    @property
    def takes_columns(self) -> bool:
        """Whether messages may come by columns."""
        return False

    def send_incoming(self, _incoming: Any, _work: Any) -> Sent | None:
        """Send messages that came by columns: they want to be sent one by one."""
        return None

    def full_disk(self) -> str | None:
        """Say that the disk is too full: a broker says so itself."""
        return None

    def check(self, message: NewMessage) -> None:
        """Raise what a client says to a message that it does not send."""
        refusal = check_message(Outgoing(message.topic, message.body or b""), Version.V5_4)
        if refusal is not None:
            raise UsageError(refusal, hint="--on-error skip leaves such messages out")
        if message.topic not in self._topics:
            self._face.run(self._find(message.topic))
            self._topics.add(message.topic)

    async def _find(self, topic: str) -> None:
        try:
            await self._cluster.routes.find(topic, creates=self._creates)
        except NotFound as error:
            if self._creates:
                raise
            raise NotFound(error.message, hint="--create creates it, where the brokers allow that") from None

    def send(self, messages: Sequence[NewMessage]) -> Sent:
        """Send messages and say what became of each."""
        wished = [self._wished(message) for message in messages]
        return self._face.run(self._send([[one] for one in wished], is_batch=False))

    def send_batch(self, messages: Sequence[NewMessage]) -> Sent:
        """Send messages as one batch."""
        return self._face.run(self._send([list(messages)], is_batch=True))

    def _wished(self, message: NewMessage) -> NewMessage:
        if self._wish is None or is_for_later(message.property_map()):
            return message
        return message.with_properties({**message.property_map(), self._wish[0]: self._wish[1]})

    # On the loop.

    async def _send(self, groups: list[list[NewMessage]], *, is_batch: bool) -> Sent:
        gate = asyncio.Semaphore(_WINDOW)

        async def one(group: list[NewMessage]) -> list[SendResult] | RmqtoolError:
            async with gate:
                return await _caught(self._producer.send_batch(group) if is_batch else self._one(group[0]))

        sent, rows = Sent([]), []
        results = await asyncio.gather(*map(one, groups))
        for group, found in zip(groups, results, strict=True):
            if isinstance(found, RmqtoolError):
                rows += [_failed(message, found) for message in group]
                sent.failed += len(group)
                sent.error = sent.error or found
            else:
                rows += [
                    _row(one, None if self._find_time is None else self._find_time(one.physical_offset))
                    for one in found
                ]
        sent.rows = rows
        return sent

    async def _one(self, message: NewMessage) -> list[SendResult]:
        if self._outcome is None:
            return [await self._producer.send(message)]
        half = await send_half(self._producer, self._cluster, message)
        if self._outcome is not Outcome.PENDING:
            await end(self._cluster, half, TransactionState(self._outcome.value))
        return [half.result]


async def _caught(work: Awaitable[Result]) -> Result | RmqtoolError:
    try:
        return await work
    except RmqtoolError as error:
        return error


def _row(result: SendResult, stored_at: int | None) -> Row:
    place = result.queue_offset, result.physical_offset, stored_at
    return (result.status, result.msg_id, result.offset_msg_id, result.topic, result.queue_id, *place)


def _failed(message: NewMessage, error: RmqtoolError) -> Row:
    """Return the row of a message that is not known to be stored."""
    if isinstance(error, RequestRefused):
        status = code_name(error.response_code)
    else:
        status = UNKNOWN if isinstance(error, RemoteError) and not isinstance(error, NotSent) else NOT_SENT
    key = error.key if isinstance(error, SendUnknown) else ""
    return (status, key, "", message.topic, message.queue_id, *_NO_PLACE)
