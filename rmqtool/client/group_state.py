"""The part of a consumer group that brokers keep: its committed offsets, and the locks of its queues.

Upstream: ``RemoteBrokerOffsetStore``, ``RebalanceImpl.lockAll``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from rmqtool.broker.consumer.progress import ClientOffsets, LocalOffsets, Start
from rmqtool.broker.consumer.queue_view import Residence
from rmqtool.broker.consumer.subscription import ConsumeFromWhere
from rmqtool.broker.consumer.windows import Delivered
from rmqtool.broker.offsets import NOT_FOUND
from rmqtool.client.cluster import Cluster, read_body
from rmqtool.client.connection import RequestRefused
from rmqtool.client.puller import PATIENCE, ask_queue, find_bounds, find_offset
from rmqtool.errors import RmqtoolError
from rmqtool.formats.ids import encode_offset_msg_id
from rmqtool.formats.message_queue import MessageQueue, order_queues
from rmqtool.formats.response_codes import ResponseCode
from rmqtool.formats.topics import RETRY_PREFIX
from rmqtool.remoting.bodies.clients import LockBatchRequestBody, LockBatchResponseBody, UnlockBatchRequestBody
from rmqtool.remoting.requests.clients import LockBatchMq, UnlockBatchMq
from rmqtool.remoting.requests.messages import ConsumerSendMsgBack
from rmqtool.remoting.requests.offsets import QueryConsumerOffset, QueryConsumerOffsetAnswer, UpdateConsumerOffset

_OFFSET_CODES: Final = frozenset({int(ResponseCode.SUCCESS), int(ResponseCode.QUERY_NOT_FOUND)})
# The delay level of a message that is given up.
_GIVE_UP: Final = -1
# Gets an error, and the name of the broker.
Note = Callable[[RmqtoolError, str], None]


class _Answered:
    """The bounds of one queue as its broker answered them."""

    def __init__(self, low: int, high: int, by_time: int) -> None:
        self._low, self._high, self._by_time = low, high, by_time

    def min_offset(self, topic: str, queue_id: int) -> int:  # noqa: ARG002
        return self._low

    def max_offset(self, topic: str, queue_id: int) -> int:  # noqa: ARG002
        return self._high

    def offset_by_time(self, topic: str, queue_id: int, timestamp: int) -> int:  # noqa: ARG002
        return self._by_time

    def residence(self, topic: str, queue_id: int, queue_offset: int) -> Residence:  # noqa: ARG002
        return Residence.MEMORY


class GroupOffsets:
    """The offsets that a member has reached, and those that its group has committed: the progress of its windows.

    ``note`` gets the reason where a broker did not take an offset, which is committed later.
    """

    def __init__(self, cluster: Cluster, group: str, start: Start, note: Note, *, orderly: bool) -> None:
        self._cluster, self._group, self._start, self._note = cluster, group, start, note
        self._orderly = orderly
        self._reached = ClientOffsets()
        self._committed: dict[MessageQueue, int] = {}

    def begin(self, client_id: str, queue: MessageQueue) -> int:  # noqa: ARG002
        """Return the offset that was reached."""
        return self._reached.table.get(queue, 0)

    def commit(self, client_id: str, queue: MessageQueue, offset: int) -> None:  # noqa: ARG002
        """Take the offset to consume next. An ordered consumer may go back."""
        self._reached.update(queue, offset, increase_only=not self._orderly)

    def save(self) -> None:
        """Leave it to ``commit_all``."""

    def reset(self, queue: MessageQueue, offset: int) -> None:
        """Go on at an offset that a person has set, and forget what is reached until the queue begins again."""
        self._reached.update_and_freeze(queue, offset)

    def forget(self, queue: MessageQueue) -> None:
        """Forget a queue that is given back."""
        self._reached.forget(queue)
        self._committed.pop(queue, None)

    async def begin_at(self, queue: MessageQueue) -> int:
        """Return where the member begins in a queue."""
        start = self._start
        if start.goes_first and not queue.topic.startswith(RETRY_PREFIX):
            return start.of(await self._bounds(queue), queue, None)
        request = QueryConsumerOffset(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            # A person who says where to begin wants that also for a young topic.
            set_zero_if_not_found=False if start.is_asked else None,
            bname=queue.broker_name,
        )
        got = await ask_queue(self._cluster, queue, request, accept=_OFFSET_CODES)
        is_known = got.code == ResponseCode.SUCCESS
        stored = QueryConsumerOffsetAnswer.decode_answer(got.ext).offset if is_known else None
        found = start.of(await self._bounds(queue), queue, stored)
        if stored is not None:
            self._committed[queue] = stored
        return found

    async def _bounds(self, queue: MessageQueue) -> _Answered:
        low, high = await find_bounds(self._cluster, queue)
        by_time = low
        if self._start.where is ConsumeFromWhere.CONSUME_FROM_TIMESTAMP:
            by_time = await find_offset(self._cluster, queue, self._start.timestamp)
        return _Answered(low, high, by_time)

    async def commit_all(self) -> None:
        """Commit what was reached since the last commit. An offset that a broker does not take is committed later."""
        for queue, offset in list(self._reached.table.items()):
            if self._committed.get(queue) == offset:
                continue
            request = UpdateConsumerOffset(
                consumer_group=self._group,
                topic=queue.topic,
                queue_id=queue.queue_id,
                commit_offset=offset,
                bname=queue.broker_name,
            )
            try:
                await ask_queue(self._cluster, queue, request)
            except RmqtoolError as error:
                self._note(error, queue.broker_name)
                continue
            self._committed[queue] = offset


class OwnOffsets(GroupOffsets):
    """The offsets of a broadcasting member. They are in a file of its own: the brokers do not know them."""

    def __init__(self, cluster: Cluster, group: str, start: Start, note: Note, kept: LocalOffsets) -> None:
        super().__init__(cluster, group, start, note, orderly=True)
        self._kept = kept

    async def begin_at(self, queue: MessageQueue) -> int:
        """Return where the member begins in a queue."""
        known = self._kept.read_offset(queue)
        return self._start.of(await self._bounds(queue), queue, None if known == NOT_FOUND else known)

    async def commit_all(self) -> None:
        """Write the file if an offset has changed."""
        for queue, offset in self._reached.table.items():
            self._kept.offsets.update(queue, offset, increase_only=False)
        self._kept.save()


class RemoteLocks:
    """The queues that one member of an ordered group has locked at their brokers."""

    def __init__(self, cluster: Cluster, group: str, note: Note) -> None:
        self._cluster, self._group, self._note = cluster, group, note

    async def lock(self, queues: Iterable[MessageQueue]) -> set[MessageQueue]:
        """Lock queues at their brokers; return those that this member has."""
        held: set[MessageQueue] = set()
        for address, of_broker in (await self._by_broker(queues)).items():
            body = LockBatchRequestBody(
                client_id=self._cluster.client_id, consumer_group=self._group, mq_set=order_queues(of_broker)
            )
            try:
                got = await self._cluster.ask(address, LockBatchMq(), body)
            except RmqtoolError as error:
                self._note(error, of_broker[0].broker_name)
                continue
            held |= set(read_body(LockBatchResponseBody, got).lock_ok_mq_set)
        return held

    async def unlock(self, queues: Iterable[MessageQueue]) -> None:
        for address, of_broker in (await self._by_broker(queues)).items():
            body = UnlockBatchRequestBody(
                client_id=self._cluster.client_id, consumer_group=self._group, mq_set=order_queues(of_broker)
            )
            try:
                await self._cluster.ask(address, UnlockBatchMq(), body)
            except RmqtoolError as error:
                self._note(error, of_broker[0].broker_name)

    async def _by_broker(self, queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
        found: dict[str, list[MessageQueue]] = {}
        for queue in sorted(queues):
            address = (await self._cluster.routes.find(queue.topic)).write_address(queue.broker_name)
            if address is not None:
                found.setdefault(address, []).append(queue)
        return found


class Troubles:
    """The last error of a member since it heard from a broker, by a clock in seconds; and the refusals for good."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._last: RmqtoolError | None = None
        self._since: float | None = None
        # By the name of the broker; None where no broker is known.
        self._refusals: dict[str | None, RequestRefused] = {}

    def note(self, error: RmqtoolError, broker: str | None = None) -> None:
        """Take note of an error."""
        self._last = error
        if isinstance(error, RequestRefused) and not error.passes:
            self._refusals[broker] = error

    def clear(self, broker: str) -> None:
        """Forget the last error: a broker has answered. Refusals of other brokers are kept."""
        self._last = self._since = None
        self._refusals.pop(broker, None)
        self._refusals.pop(None, None)

    def raise_old(self) -> None:
        """Raise what a broker refuses for good, and what has failed for too long."""
        for refusal in self._refusals.values():
            raise refusal
        if self._last is None:
            return
        self._since = self._now() if self._since is None else self._since
        if self._now() - self._since > PATIENCE:
            raise self._last


async def send_back(cluster: Cluster, group: str, delivered: Delivered, *, is_last: bool) -> None:
    """Have the broker deliver a message again later; the ``is_last`` time it becomes a dead letter. Raises RemoteError.

    How often a message is delivered again is a setting of the group, which the broker knows.
    """
    message = delivered.message
    host = message.store_host_ip, message.store_host_port
    request = ConsumerSendMsgBack(
        offset=message.physical_offset,
        group=group,
        delay_level=_GIVE_UP if is_last else 0,
        origin_msg_id=encode_offset_msg_id(*host, message.physical_offset),
        origin_topic=message.topic,
        bname=delivered.queue.broker_name,
    )
    await ask_queue(cluster, delivered.queue, request)
