"""Messages that a group pops: its brokers hide each for a while, and deliver it again unless it is acked.

Any number of clients pop from the same queues. None of them has a share of the queues, or an offset of its own. A
message is known by its *receipt*, which says when it was popped, for how long, and from where.

Upstream: ``DefaultMQPushConsumerImpl.popMessage``, ``MQClientAPIImpl.processPopResponse``,
``ConsumeMessagePopConcurrentlyService``.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

from rmqtool.broker.consumer.process_queue import ERROR_PAUSE, CachedMessage
from rmqtool.broker.consumer.windows import Delivered
from rmqtool.broker.services.pop import MOST_AT_ONCE, Fate, Popped, fate_of, real_topic
from rmqtool.client.cluster import Cluster, read_records
from rmqtool.client.connection import WrongAnswer
from rmqtool.client.group_state import Troubles, send_back
from rmqtool.client.puller import no_such_queue
from rmqtool.engine.clock import SystemClock
from rmqtool.errors import NotFound, RemoteError, RmqtoolError
from rmqtool.filters.tags import ALL, TagExpression, parse_tags
from rmqtool.formats.commit_log import Message
from rmqtool.formats.ids import PopReceipt, decode_pop_receipt, encode_pop_receipt
from rmqtool.formats.java import parse_long
from rmqtool.formats.message_queue import MessageQueue
from rmqtool.formats.property_names import POP_CK
from rmqtool.formats.response_codes import ResponseCode
from rmqtool.formats.topics import RETRY_PREFIX
from rmqtool.remoting.command import RemotingCommand
from rmqtool.remoting.requests.pop import AckMessage, ChangeInvisibleTime, PopMessage, PopMessageAnswer

_SUCCESS: Final = int(ResponseCode.SUCCESS)
_NONE_NOW: Final = frozenset(
    map(int, (ResponseCode.PULL_NOT_FOUND, ResponseCode.POLLING_TIMEOUT, ResponseCode.POLLING_FULL))
)
# The remark of a broker whose clock is too far ahead of its client's.
_TOO_LATE: Final = "timeout too much"
_ANY_QUEUE: Final = -1
# Where a new group begins. upstream: ConsumeInitMode
_AT_START, _AT_END = 0, 1
# In seconds: how long a broker may hold a pop, if there is room for all and else; added to it for the answer; between
# two looks for brokers; until a message that failed comes again, by how often it was delivered. upstream: popDelayLevel
_HELD, _SHORTLY, _MARGIN, _LOOK = 15.0, 1.0, 15.0, 20.0
_DELAYS: Final = (10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
# In ms: after this time other clients get a message that was not handed out here.
_AT_ONCE: Final = 100


class Wanted(NamedTuple):
    """The messages that a group pops: their filter as brokers read it, and for how long (ms) they are hidden."""

    group: str
    expression: tuple[str, str] = ("TAG", "*")
    # The tags of the expression: brokers compare their hashes only. With SQL92 everything.
    tags: TagExpression = parse_tags(ALL)
    invisible: int = 60_000
    at_end: bool = False
    queue_id: int = _ANY_QUEUE


class Pops:
    """The pops of one client for a group."""

    def __init__(self, cluster: Cluster, wanted: Wanted) -> None:
        self._cluster, self._wanted = cluster, wanted
        self._clock = SystemClock()
        # How many messages the last pop of each topic and broker left, as the broker said.
        self.left: dict[tuple[str, str], int] = {}
        # When its answer came (monotonic ms).
        self.answered: dict[tuple[str, str], int] = {}

    async def brokers(self, topic: str) -> list[str]:
        """Return the brokers of a topic. Raises NotFound."""
        route = await self._cluster.routes.find(topic)
        return sorted({queue.broker_name for queue in route.read_queues})

    async def pop(self, topic: str, broker: str, most: int, held: float = 0.0) -> list[Popped]:
        """Pop up to ``most`` messages of a topic at a broker, which may hold the request for ``held`` seconds."""
        wanted = self._wanted
        kind, text = wanted.expression
        request = PopMessage(
            consumer_group=wanted.group,
            topic=topic,
            queue_id=wanted.queue_id,
            max_msg_nums=min(most, MOST_AT_ONCE),
            invisible_time=wanted.invisible,
            poll_time=int(held * 1000),
            born_time=self._clock.now(),
            init_mode=_AT_END if wanted.at_end else _AT_START,
            exp_type=kind,
            exp=text,
        )
        address = await self._address(topic, broker)
        got = await self._cluster.ask(address, request, accept=_NONE_NOW | {_SUCCESS}, timeout=held + _MARGIN)
        self.left[topic, broker] = _left_of(got)
        self.answered[topic, broker] = self._clock.monotonic()
        if got.code == _SUCCESS:
            return await self._wanted_of(topic, _popped_of(got, broker))
        if _TOO_LATE in (got.remark or ""):
            raise RemoteError(
                f"broker {broker} takes no pop: the clock of this machine is late by half a second or more",
                hint="set the clocks of both machines; without --pop their difference does not matter",
            )
        return []

    async def _wanted_of(self, topic: str, popped: list[Popped]) -> list[Popped]:
        """Return the messages whose tags are wanted; the others are acked: no member of the group wants them.

        upstream: DefaultMQPushConsumerImpl.processPopResult
        """
        matches = self._wanted.tags.matches
        others = [one for one in popped if not matches(one.record.tags)]
        # A message without its ack comes again, and is dropped again.
        await asyncio.gather(*(self._try(self.ack(topic, one)) for one in others))
        return [one for one in popped if matches(one.record.tags)]

    @staticmethod
    async def _try(work: Awaitable[None]) -> None:
        with suppress(RemoteError, NotFound):
            await work

    async def postpone_all(self, held: Iterable[tuple[str, Popped]], invisible: int) -> None:
        """Deliver messages again after ``invisible`` ms, as far as brokers take that; else they come later."""
        await asyncio.gather(*(self._try(self.postpone(topic, one, invisible)) for topic, one in held))

    async def settle(self, topic: str, popped: Popped, fate: Fate, again: int | None = None) -> None:
        """Ack a message, or have it delivered again after ``again`` ms, else when it is visible again.

        Raises RemoteError.
        """
        if fate is Fate.CONSUMED:
            await self.ack(topic, popped)
        elif fate is Fate.DEAD:
            await self.give_up(topic, popped)
        elif again is not None:
            await self.postpone(topic, popped, again)

    async def _address(self, topic: str, broker: str) -> str:
        address = (await self._cluster.routes.find(topic)).write_address(broker)
        if address is None:
            raise no_such_queue(MessageQueue(topic, broker, max(self._wanted.queue_id, 0)))
        return address

    async def ack(self, topic: str, popped: Popped) -> None:
        """Say that a message is consumed. Raises RemoteError; the message is then delivered again."""
        request = AckMessage(**self._place(topic, popped.receipt))
        await self._cluster.ask(await self._address(topic, popped.receipt.broker_name), request)

    async def postpone(self, topic: str, popped: Popped, invisible: int) -> None:
        """Deliver a message again after ``invisible`` ms from now. Raises RemoteError."""
        request = ChangeInvisibleTime(**self._place(topic, popped.receipt), invisible_time=invisible)
        await self._cluster.ask(await self._address(topic, popped.receipt.broker_name), request)

    def _place(self, topic: str, receipt: PopReceipt) -> dict[str, Any]:
        group = self._wanted.group
        return {
            "consumer_group": group,
            "topic": real_topic(topic, group, receipt),
            "queue_id": receipt.queue_id,
            "extra_info": encode_pop_receipt(receipt),
            "offset": receipt.queue_offset,
        }

    async def give_up(self, topic: str, popped: Popped) -> None:
        """Make a dead letter of a message. Raises RemoteError."""
        record, receipt = popped
        queue = MessageQueue(topic, receipt.broker_name, record.queue_id)
        cached = CachedMessage(record.queue_offset, record.body_length, record, record.reconsume_times)
        await send_back(self._cluster, self._wanted.group, Delivered("", queue, cached), is_last=True)
        await self.ack(topic, popped)


def _left_of(answer: RemotingCommand) -> int:
    """Return how many messages are left, as an answer says; 0 where it does not."""
    return max(parse_long(answer.ext.get("restNum", "")) or 0, 0)


def _popped_of(answer: RemotingCommand, broker: str) -> list[Popped]:
    """Return the messages of an answer, each with its receipt. Raises WrongAnswer."""
    try:
        header = PopMessageAnswer.decode_answer(answer.ext)
        starts = _by_queue(header.start_offset_info)
    except ValueError as error:
        raise WrongAnswer(f"broker {broker} answered a pop with fields that cannot be read: {error}") from None
    if None in (header.pop_time, header.invisible_time, header.revive_qid):
        raise WrongAnswer(f"broker {broker} answered a pop without its times")
    found = []
    for record in read_records(answer.body, "a pop"):
        receipt = decode_pop_receipt(record.properties.get(POP_CK, ""))
        if receipt is None or receipt.queue_offset is None:
            flag = _retry_flag(record.topic)
            start = starts.get((flag, record.queue_id), record.queue_offset)
            times = header.pop_time, header.invisible_time, header.revive_qid
            receipt = PopReceipt(start, *times, flag, broker, record.queue_id, record.queue_offset)
        found.append(Popped(record, receipt))
    return found


def _by_queue(text: str | None) -> Mapping[tuple[str, int], int]:
    """Return the offset for each kind of topic and queue. Raises ValueError.

    upstream: ExtraInfoUtil.parseStartOffsetInfo
    """
    parts = [part.split(" ") for part in (text or "").split(";") if part]
    return {(flag, int(queue_id)): int(start) for flag, queue_id, start in parts}


def _retry_flag(topic: str) -> str:
    if not topic.startswith(RETRY_PREFIX):
        return "0"
    return "2" if "+" in topic else "1"


class _Held(NamedTuple):
    """A message that was popped and is not consumed, and until when (monotonic ms) it is hidden."""

    topic: str
    popped: Popped
    until: int


class PopMember:
    """A consumer that pops, with the methods of ``Member``: what is taken and fails is delivered again later.

    At most ``room`` messages wait here to be taken. After ``retries`` deliveries a message becomes a dead letter.
    """

    def __init__(self, cluster: Cluster, topics: Iterable[str], wanted: Wanted, *, retries: int, room: int) -> None:
        self.client_id = cluster.client_id
        self.news = asyncio.Event()
        self._cluster, self._topics, self._wanted = cluster, sorted(topics), wanted
        self._retries, self._room = retries, room
        self._pops = Pops(cluster, wanted)
        self._clock = SystemClock()
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[_Held] = deque()
        # By the identity of what was handed out, which is kept here.
        self._out: dict[int, tuple[_Held, CachedMessage[Message]]] = {}
        self._taken = asyncio.Event()
        self._at: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._keeper: asyncio.Task[None] | None = None
        # The room that pops under way may need.
        self._reserved = 0
        self._troubles = Troubles(self._loop.time)
        self._bug: BaseException | None = None

    async def join(self) -> None:
        """Begin to pop. Raises NotFound for a topic that does not exist, and RemoteError."""
        await self._look()
        self._keeper = self._loop.create_task(self._keep_looking())

    async def _look(self) -> None:
        for topic in self._topics:
            for broker in await self._pops.brokers(topic):
                if (topic, broker) not in self._at:
                    task = self._at[topic, broker] = self._loop.create_task(self._keep_popping(topic, broker))
                    task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Take note of an error that no broker caused. The next look for trouble raises it."""
        if not task.cancelled():
            self._bug = task.exception()
            self.news.set()

    async def _keep_looking(self) -> None:
        """Find brokers that come later."""
        while True:
            await asyncio.sleep(_LOOK)
            try:
                await self._look()
            except RmqtoolError as error:
                self._note(error)

    async def _keep_popping(self, topic: str, broker: str) -> None:
        while True:
            most = min(max(self._room // len(self._at), 1), self._room - len(self._waiting) - self._reserved)
            if most <= 0:
                self._taken.clear()
                await self._taken.wait()
                continue
            self._reserved += most
            try:
                # Without room for all brokers none may hold a pop for long: the others wait.
                held = _HELD if self._room >= len(self._at) else _SHORTLY
                found = await self._pops.pop(topic, broker, most, held)
            except RmqtoolError as error:
                self._note(error, broker)
                self._cluster.routes.forget(topic)
                found = None
            finally:
                self._reserved -= most
                self._taken.set()
            if found is None:
                await asyncio.sleep(ERROR_PAUSE / 1000)
                continue
            self._troubles.clear(broker)
            until = self._pops.answered[topic, broker] + self._wanted.invisible
            self._waiting += [_Held(topic, one, until) for one in found]
            self.news.set()
            # The next one in the queue for room has its turn.
            await asyncio.sleep(0)

    def take(self, most: int) -> list[Delivered]:
        """Hand out messages; one that waited for longer than it is hidden is left to the next pop."""
        found: list[Delivered] = []
        now = self._clock.monotonic()
        while self._waiting and len(found) < most:
            held = self._waiting.popleft()
            if now < held.until:
                record = held.popped.record
                queue = MessageQueue(held.topic, held.popped.receipt.broker_name, record.queue_id)
                cached = CachedMessage(record.queue_offset, record.body_length, record, record.reconsume_times)
                delivered = Delivered(self.client_id, queue, cached)
                self._out[id(cached)] = held, cached
                found.append(delivered)
        self._taken.set()
        return found

    async def finish(self, delivered: Delivered, *, is_ok: bool) -> bool:
        """Ack a message that is consumed. One that failed comes again later, or is a dead letter."""
        held, _ = self._out.pop(id(delivered.cached))
        fate = fate_of(held.popped.record, self._retries, is_ok=is_ok)
        delay = _DELAYS[min(delivered.cached.reconsume_times, len(_DELAYS) - 1)]
        try:
            await self._pops.settle(held.topic, held.popped, fate, delay * 1000)
        except RmqtoolError as error:
            self._note(error, held.popped.receipt.broker_name)
        return True

    def was_sent_back(self, delivered: Delivered) -> bool:  # noqa: ARG002
        """Return False: the brokers hide what is popped, and keep it."""
        return False

    async def commit(self) -> None:
        """Leave it to the acks: each message is acked by itself."""

    async def close(self) -> None:
        """Stop, and leave what was not taken to other clients."""
        tasks = [*self._at.values(), *([] if self._keeper is None else [self._keeper])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._at.clear()
        waiting, self._waiting = list(self._waiting), deque()
        now = self._clock.monotonic()
        # Other clients have those already that were hidden until now.
        await self._pops.postpone_all(((one.topic, one.popped) for one in waiting if now < one.until), _AT_ONCE)

    def raise_trouble(self) -> None:
        """Raise what a broker refuses for good, and what has failed for too long."""
        if self._bug is not None:
            raise self._bug
        self._troubles.raise_old()

    def _note(self, error: RmqtoolError, broker: str | None = None) -> None:
        self._troubles.note(error, broker)
        self.news.set()
