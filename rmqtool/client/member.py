"""A member of a consumer group, among members of any language.

It says which topics it wants with its heartbeats, learns from a broker who else is in the group, and takes its share of
the queues by the same strategy as the others. Each of its queues is pulled from while there is room in its window; the
windows, the strategies and what happens to a message that fails are those of ``broker.consumer``. Everything happens on
the loop of its connections.

Upstream: ``DefaultMQPushConsumerImpl``, ``RebalanceImpl``, ``PullMessageService``, ``RemoteBrokerOffsetStore``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from rmqtool.broker.consumer.consume_message import RENEW_PERIOD, is_lock_held
from rmqtool.broker.consumer.process_queue import (
    ERROR_PAUSE,
    PULL_BATCH_SIZE,
    CachedMessage,
    ProcessQueue,
)
from rmqtool.broker.consumer.progress import LocalOffsets, Start
from rmqtool.broker.consumer.rebalance import UNBALANCED_PERIOD, WAIT_PERIOD, Average, Change, Strategy
from rmqtool.broker.consumer.subscription import Subscription
from rmqtool.broker.consumer.windows import Consumption, Delivered, Reading, Windows
from rmqtool.client.cluster import Cluster, read_body, read_records
from rmqtool.client.connection import Connection
from rmqtool.client.group_state import GroupOffsets, OwnOffsets, RemoteLocks, Troubles, send_back
from rmqtool.client.heartbeats import Heartbeats
from rmqtool.client.puller import (
    FOUND,
    HAS_SUBSCRIPTION,
    NOT_FOUND,
    PULL,
    WAITS,
    Pulled,
    pulled_of,
)
from rmqtool.client.puller import GROUP as LOOKS
from rmqtool.client.topic_routes import MASTER, Route
from rmqtool.engine.clock import SystemClock
from rmqtool.errors import NotFound, RemoteError, RmqtoolError
from rmqtool.formats.commit_log import Message
from rmqtool.formats.message_queue import MessageQueue
from rmqtool.remoting.bodies.clients import ConsumeFromWhere as WireStart
from rmqtool.remoting.bodies.clients import (
    ConsumerData,
    ConsumeType,
    GetConsumerListByGroupResponseBody,
    MessageModel,
    ResetOffsetBody,
    SubscriptionData,
)
from rmqtool.remoting.command import RemotingCommand
from rmqtool.remoting.requests.clients import GetConsumerListByGroup
from rmqtool.remoting.requests.messages import PullMessage

# Requests of brokers to their clients. upstream: NOTIFY_CONSUMER_IDS_CHANGED, RESET_CONSUMER_CLIENT_OFFSET
_CHANGED, _RESET = 40, 220
# In seconds: how long a broker may hold a pull back, as upstream; added to it for the answer; between two commits;
# between two pulls of a queue that has no more messages, where none is held back.
_HELD, _MARGIN, _COMMIT, _PAUSE = 15.0, 15.0, 5.0, 0.1
_BYTES: Final = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Membership:
    """The wishes of a member. ``expressions`` are the filters as brokers read them: a kind and a text, by topic.

    Without ``waits`` no pull is held back, so that the end of a queue is known at once. With ``among`` the member joins
    nothing and commits nothing: it looks at what the group gets next, and shares the queues with those clients.
    """

    how: Consumption
    start: Start
    expressions: Mapping[str, tuple[str, str]]
    strategy: Strategy = field(default_factory=Average)
    waits: bool = True
    among: Sequence[str] = ()
    queue_id: int | None = None
    # The file of a broadcasting member, which takes every queue.
    own_offsets: LocalOffsets | None = None


class Member:
    """One member. ``join`` makes it one, ``close`` ends it; ``news`` is set when there may be something to take."""

    def __init__(self, cluster: Cluster, membership: Membership) -> None:
        self.membership = membership
        self.client_id = cluster.client_id
        self.news = asyncio.Event()
        # Queues that came and went, until the caller clears the list.
        self.changes: list[Change] = []
        self._troubles = Troubles(asyncio.get_running_loop().time)
        self._cluster = cluster
        self._loop = asyncio.get_running_loop()
        self._clock = SystemClock()
        self._heartbeats = Heartbeats(cluster)
        self._sent_back: dict[tuple[MessageQueue, int], bool] = {}
        how = membership.how
        self._group = how.group
        own = membership.own_offsets
        self._offsets = (
            GroupOffsets(cluster, how.group, membership.start, self._note, orderly=how.orderly)
            if own is None
            else OwnOffsets(cluster, how.group, membership.start, self._note, own)
        )
        self._locks = RemoteLocks(cluster, how.group, self._note)
        self.windows = Windows(
            how,
            self._offsets,
            self._clock,
            is_lock_held if how.orderly else lambda _window, _now: True,
        )
        self._at_end: set[MessageQueue] = set()
        self._pulls: dict[MessageQueue, asyncio.Task[None]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._due = asyncio.Event()
        self._sharing = asyncio.Lock()
        self._is_shared_out = False
        cluster.handlers[_CHANGED] = self._take_change
        cluster.handlers[_RESET] = self._take_reset

    # In the group.

    async def join(self) -> None:
        """Join the group and take queues. Raises RemoteError."""
        if not self.membership.among:
            await self._heartbeats.consume(self._subscriptions())
        async with self._sharing:
            self._is_shared_out = await self._share_out()
        self._tasks = [self._loop.create_task(self._keep_share()), self._loop.create_task(self._keep_committing())]
        if self.membership.how.orderly:
            self._tasks.append(self._loop.create_task(self._keep_locks()))

    def _subscriptions(self) -> ConsumerData:
        wanted = [
            SubscriptionData(
                topic=topic,
                sub_string=text,
                tags_set=[],
                code_set=[],
                sub_version=self._clock.now(),
                expression_type=kind,
                class_filter_mode=False,
            )
            for topic, (kind, text) in self.membership.expressions.items()
        ]
        return ConsumerData(
            group_name=self._group,
            consume_type=ConsumeType.CONSUME_PASSIVELY,
            message_model=MessageModel.BROADCASTING if self._is_alone else MessageModel.CLUSTERING,
            consume_from_where=WireStart(self.membership.start.where.value),
            subscription_data_set=wanted,
            unit_mode=False,
        )

    async def close(self) -> None:
        """Commit, give the queues back and leave the group."""
        await self._end_tasks(self._tasks)
        for queue in list(self._pulls):
            await self._drop(queue)
        await self.commit()
        await self._heartbeats.close()

    @staticmethod
    async def _end_tasks(tasks: Iterable[asyncio.Task[None]]) -> None:
        ended = list(tasks)
        for task in ended:
            task.cancel()
        await asyncio.gather(*ended, return_exceptions=True)

    def _take_change(self, _connection: Connection, _command: RemotingCommand) -> None:
        """A member came or went: share out again now."""
        self._due.set()

    async def _keep_share(self) -> None:
        while True:
            is_balanced = await self.share_out()
            period = WAIT_PERIOD if is_balanced else UNBALANCED_PERIOD
            self._due.clear()
            # Not wait_for: with Python 3.11 it loses a cancellation that comes together with the event.
            with suppress(TimeoutError):
                async with asyncio.timeout(period / 1000):
                    await self._due.wait()

    async def share_out(self) -> bool:
        """Take the queues that are this member's now, and give the others back; return whether all was done."""
        try:
            async with self._sharing:
                self._is_shared_out = await self._share_out()
            return self._is_shared_out
        except RmqtoolError as error:
            self._note(error)
            return False
        finally:
            self.news.set()

    async def _share_out(self) -> bool:
        wanted: set[MessageQueue] = set()
        for topic in self.membership.expressions:
            wanted |= await self._share_of(topic)
        is_balanced = True
        now = self._clock.monotonic()
        for queue in list(self._pulls):
            reading = self.windows.find(self.client_id, queue)
            is_stuck = reading is not None and reading.window.is_pull_expired(now)
            if queue in wanted and not is_stuck:
                continue
            if reading is not None and reading.is_busy:
                # Its message is being consumed in order: the next member must not begin before it ends.
                is_balanced = False
            else:
                await self._drop(queue)
        new = sorted(wanted - self._pulls.keys())
        held = await self._locks.lock(new) if self.membership.how.orderly else set(new)
        for queue in sorted(held):
            await self._begin(queue)
        return is_balanced and len(held) == len(new)

    async def _share_of(self, topic: str) -> set[MessageQueue]:
        """Return which queues of a topic are this member's."""
        try:
            route = await self._cluster.routes.find(topic)
        except NotFound:
            return set()
        only = self.membership.queue_id
        queues = sorted(queue for queue in route.read_queues if only in (None, queue.queue_id))
        if self._is_alone:
            return set(queues)
        members = sorted(self.membership.among or await self._members_at(route))
        shares = self.membership.strategy.allocate(queues, members) if queues and members else {}
        return set(shares.get(self.client_id, ()))

    @property
    def _is_alone(self) -> bool:
        """Whether this member takes every queue."""
        return self.membership.own_offsets is not None

    async def _members_at(self, route: Route) -> set[str]:
        """Ask a broker of a topic who is in the group."""
        for broker in sorted({queue.broker_name for queue in route.read_queues}):
            address = route.read_address(broker)
            if address is not None:
                got = await self._cluster.ask(address, GetConsumerListByGroup(consumer_group=self._group))
                return set(read_body(GetConsumerListByGroupResponseBody, got).consumer_id_list)
        return set()

    async def _begin(self, queue: MessageQueue) -> None:
        offset = await self._offsets.begin_at(queue)
        window = ProcessQueue[Message](self._clock.monotonic())
        window.is_locked = self.membership.how.orderly
        reading = self.windows.begin(self.client_id, queue, window, offset)
        self._pulls[queue] = self._loop.create_task(self._keep_pulling(reading))
        self.changes.append(Change(self.client_id, queue, is_taken=True))

    async def _drop(self, queue: MessageQueue) -> None:
        """Give a queue back: commit first, so that the next member goes on there."""
        await self._end_tasks([self._pulls.pop(queue)])
        reading = self.windows.find(self.client_id, queue)
        self.windows.end(self.client_id, queue)
        if reading is not None:
            reading.window.is_dropped = True
        await self.commit()
        if self.membership.how.orderly:
            await self._locks.unlock([queue])
        self._offsets.forget(queue)
        self._at_end.discard(queue)
        self.changes.append(Change(self.client_id, queue, is_taken=False))

    async def commit(self) -> None:
        """Commit what was reached since the last commit."""
        if not self.membership.among:
            await self._offsets.commit_all()

    async def _keep_committing(self) -> None:
        while True:
            await asyncio.sleep(_COMMIT)
            await self.commit()

    def _take_reset(self, _connection: Connection, command: RemotingCommand) -> None:
        """Go on at the offsets that a person set at the broker: drop the queues, so that they begin again."""
        table = ResetOffsetBody.decode(command.body).offset_table
        for queue, offset in table.items():
            if queue in self._pulls:
                self._offsets.reset(queue, offset)
                reading = self.windows.find(self.client_id, queue)
                if reading is not None:
                    reading.window.last_pull = -(1 << 62)
        self._due.set()

    # Messages.

    async def _keep_pulling(self, reading: Reading) -> None:
        broker_id = MASTER
        while not reading.window.is_dropped:
            refusal = self.windows.refusal(reading)
            if refusal is not None or not self._has_room(reading):
                await asyncio.sleep((refusal.pause or ERROR_PAUSE) / 1000 if refusal is not None else _PAUSE / 10)
                # While the window is full, the next pull is not late.
                reading.window.last_pull = self._clock.monotonic()
                continue
            try:
                found = await self._pull(reading, broker_id)
            except RmqtoolError as error:
                self._note(error, reading.queue.broker_name)
                self._cluster.routes.forget(reading.queue.topic)
                await asyncio.sleep(ERROR_PAUSE / 1000)
                continue
            broker_id = found.broker_id
            self._troubles.clear(reading.queue.broker_name)
            self._take(reading, found)
            if found.code != FOUND and not self.membership.waits:
                await asyncio.sleep(_PAUSE)

    def _has_room(self, reading: Reading) -> bool:
        return reading.window.count < self.membership.how.thresholds.count

    async def _pull(self, reading: Reading, broker_id: int) -> Pulled:
        queue = reading.queue
        kind, text = self.membership.expressions[queue.topic]
        route = await self._cluster.routes.find(queue.topic)
        address = route.read_address(queue.broker_name, broker_id)
        if address is None:
            raise RemoteError(f"broker {queue.broker_name} of topic {queue.topic} is away", hint="it is tried again")
        held = _HELD if self.membership.waits else 0.0
        request = PullMessage(
            consumer_group=LOOKS if self.membership.among else self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=reading.next_offset,
            max_msg_nums=PULL_BATCH_SIZE,
            sys_flag=HAS_SUBSCRIPTION | (WAITS if held else 0),
            commit_offset=0,
            suspend_timeout_millis=int(held * 1000),
            subscription=text,
            sub_version=0,
            expression_type=kind,
            max_msg_bytes=_BYTES,
            bname=queue.broker_name,
        )
        reading.window.last_pull = self._clock.monotonic()
        connection = await self._cluster.connection(address)
        got = await connection.call(PULL, request.encode(), timeout=held + _MARGIN)
        return pulled_of(got, address)

    def _take(self, reading: Reading, found: Pulled) -> None:
        """Put what came into the window."""
        if reading.window.is_dropped:
            return
        queue = reading.queue
        wanted = self.membership.how.subscriptions[queue.topic]
        messages = list(_messages_of(found.body, wanted)) if found.code == FOUND else []
        reading.next_offset = found.next_offset
        self.windows.put(reading, messages)
        if found.code == NOT_FOUND and found.next_offset >= found.max_offset:
            self._at_end.add(queue)
        else:
            self._at_end.discard(queue)
        self.news.set()

    def take(self, most: int) -> list[Delivered]:
        """Hand out messages."""
        return self.windows.take(most)

    async def finish(self, delivered: Delivered, *, is_ok: bool) -> bool:
        """Report the result of a message. One that failed is sent back to its broker, or tried again here."""
        key = delivered.queue, delivered.cached.queue_offset
        if not is_ok and self.windows.goes_back(delivered):
            try:
                await send_back(self._cluster, self._group, delivered, is_last=self.membership.how.orderly)
                self._sent_back[key] = True
            except RmqtoolError as error:
                self._note(error, delivered.queue.broker_name)
        try:
            return self.windows.finish(delivered, is_ok=is_ok)
        finally:
            self._sent_back.pop(key, None)

    def was_sent_back(self, delivered: Delivered) -> bool:
        """Return whether a message that is being finished was taken back by its broker: the windows ask this."""
        return self._sent_back.get((delivered.queue, delivered.cached.queue_offset), False)

    @property
    def is_at_end(self) -> bool:
        """Whether nothing is left in the queues of this member."""
        return self._is_shared_out and all(
            one.is_stuck or (one.window.count == 0 and one.queue in self._at_end) for one in self.windows
        )

    # Locks of an ordered group.

    async def _keep_locks(self) -> None:
        while True:
            await asyncio.sleep(RENEW_PERIOD / 1000)
            held = await self._locks.lock(self._pulls)
            now = self._clock.monotonic()
            for queue in self._pulls:
                reading = self.windows.find(self.client_id, queue)
                if reading is None:
                    continue
                reading.window.is_locked = queue in held
                if queue in held:
                    reading.window.last_lock = now

    def raise_trouble(self) -> None:
        """Raise what a broker refuses for good, and what has failed for too long."""
        self._troubles.raise_old()

    def _note(self, error: RmqtoolError, broker: str | None = None) -> None:
        self._troubles.note(error, broker)
        self.news.set()


def _messages_of(body: bytes, wanted: Subscription) -> Iterable[CachedMessage[Message]]:
    """Yield the messages of a pull that the group wants: a broker compares hashes of tags only."""
    for record in read_records(body, "a pull"):
        if wanted.wants(record):
            yield CachedMessage(record.queue_offset, record.body_length, record, record.reconsume_times)
