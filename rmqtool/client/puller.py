"""Messages of queues by their offsets: without a group, as many pulls under way as there are queues.

What comes back are records as they are stored. They stay bytes here: ``records_of`` makes columns of many at once.

Upstream: ``PullAPIWrapper``, ``MQClientAPIImpl.processPullResponse``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rmqtool.client.cluster import Cluster
from rmqtool.client.connection import Connection, Outcome, RequestRefused, WrongAnswer
from rmqtool.client.topic_routes import MASTER
from rmqtool.errors import NotFound, RemoteError, RmqtoolError
from rmqtool.filters.tags import ALL
from rmqtool.formats.message_queue import MessageQueue
from rmqtool.formats.response_codes import ResponseCode
from rmqtool.remoting.command import RemotingCommand
from rmqtool.remoting.declared import BoundaryType
from rmqtool.remoting.headers import Request
from rmqtool.remoting.requests.messages import PullMessage, PullMessageAnswer
from rmqtool.remoting.requests.offsets import (
    GetMaxOffset,
    GetMaxOffsetAnswer,
    GetMinOffset,
    GetMinOffsetAnswer,
    SearchOffset,
    SearchOffsetAnswer,
)

if TYPE_CHECKING:
    from rmqtool.columns.records import Records
    from rmqtool.formats.commit_log import Message

# The group that mqadmin reads with; every broker has it.
GROUP: Final = "TOOLS_CONSUMER"
PULL: Final = 11
# Bits of a pull. upstream: PullSysFlag
COMMITS, WAITS, HAS_SUBSCRIPTION = 1, 2, 4
# Asked for at most; a broker with default settings gives 32 messages, or 256 KiB.
_COUNT, _BYTES = 1024, 4 << 20
# Of each queue at first: the first message is wanted soon, and perhaps no other.
_FIRST: Final = 32
# In seconds: for an answer that the broker does not hold back; added to the time that it does; until a queue that is
# not answered for is given up; between two tries.
_TIMEOUT, _MARGIN, PATIENCE, _PAUSE = 10.0, 10.0, 10.0, 0.2
# Bytes of one queue that are fetched ahead.
_AHEAD: Final = 4 << 20

FOUND, NOT_FOUND, RETRY, MOVED = (
    int(code)
    for code in (
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    )
)
_STATUSES: Final = frozenset({FOUND, NOT_FOUND, RETRY, MOVED})
_BUSY: Final = frozenset({int(ResponseCode.SYSTEM_BUSY), int(ResponseCode.FLOW_CONTROL)})


class Span(NamedTuple):
    """A queue from one offset up to another; without an end new messages are waited for."""

    queue: MessageQueue
    begin: int
    end: int | None = None


class Chunk(NamedTuple):
    """Records of a queue from ``begin`` up to ``end``, as they are stored; none where the broker has deleted them."""

    queue: MessageQueue
    begin: int
    end: int
    body: bytes
    is_gone: bool = False


class Pulled(NamedTuple):
    """The answer to one pull: its code says which of four things it means."""

    code: int
    next_offset: int
    min_offset: int
    max_offset: int
    body: bytes
    broker_id: int


def pulled_of(answer: RemotingCommand, peer: str) -> Pulled:
    """Return what a pull brought. Raises RequestRefused, and RemoteError where the answer lacks its offsets."""
    if answer.code not in _STATUSES:
        raise RequestRefused(PULL, answer, peer)
    found = PullMessageAnswer.decode_answer(answer.ext)
    offsets = found.next_begin_offset, found.min_offset, found.max_offset
    if None in offsets:
        raise WrongAnswer(f"{peer} answered a pull without offsets")
    return Pulled(answer.code, *offsets, answer.body, found.suggest_which_broker_id or MASTER)


class _Queue:
    """How far a queue is."""

    __slots__ = ("address", "ahead", "begun", "end", "fields", "good_at", "is_waiting", "offset", "queue")

    def __init__(self, span: Span, now: float) -> None:
        self.queue, self.offset, self.end = span
        self.fields: dict[str, str] = {}
        self.address = ""
        self.ahead = 0
        self.begun = self.is_waiting = False
        self.good_at = now


class Fetch:
    """The messages of spans, in the order of each queue. ``wait`` (s): how long a broker may hold a pull back.

    A broker that does not answer is given up after ``patience`` (s). A broker leaves out messages whose tag has another
    hash than those in ``tags``, an expression, so that a few others may come.
    """

    def __init__(
        self,
        cluster: Cluster,
        spans: Iterable[Span],
        *,
        wait: float = 0.0,
        group: str = GROUP,
        patience: float = PATIENCE,
        tags: str = ALL,
    ) -> None:
        self._cluster, self._wait, self._group, self._patience = cluster, wait, group, patience
        self._tags = tags
        self._loop = asyncio.get_running_loop()
        now = self._loop.time()
        self._queues = [_Queue(span, now) for span in spans if span.end is None or span.begin < span.end]
        self._left = len(self._queues)
        self._chunks: list[Chunk] = []
        self._error: RmqtoolError | None = None
        self._news = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False
        for one in self._queues:
            self._later(self._begin(one))

    async def take(self) -> list[Chunk]:
        """Return what has come since the last call, at least one chunk; nothing at the end. Raises RemoteError."""
        while not self._chunks:
            if self._error is not None:
                raise self._error
            if not self._left:
                return []
            self._news.clear()
            await self._news.wait()
        taken, self._chunks = self._chunks, []
        for one in self._queues:
            one.ahead = 0
            if one.is_waiting:
                one.is_waiting = False
                self._pull(one)
        return taken

    def close(self) -> None:
        """Ask for no more."""
        self._is_closed = True
        for task in self._tasks:
            task.cancel()

    def _later(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _begin(self, one: _Queue, broker_id: int = MASTER, pause: float = 0.0) -> None:
        """Find the broker of a queue, and pull."""
        try:
            if pause:
                await asyncio.sleep(pause)
            route = await self._cluster.routes.find(one.queue.topic)
            address = route.read_address(one.queue.broker_name, broker_id)
            if address is None:
                raise no_such_queue(one.queue)
            one.address = address
            connection = await self._cluster.connection(address)
        except RmqtoolError as error:
            self._retry(one, error)
            return
        self._send(one, connection)

    def _pull(self, one: _Queue) -> None:
        connection = self._cluster.connection_now(one.address)
        if connection is None:
            self._later(self._begin(one))
        else:
            self._send(one, connection)

    def _send(self, one: _Queue, connection: Connection) -> None:
        if self._is_closed:
            return
        if not one.fields:
            one.fields = self._fields(one.queue)
        most = _COUNT if one.begun else _FIRST
        count = most if one.end is None else min(most, one.end - one.offset)
        fields = {**one.fields, "queueOffset": str(one.offset), "maxMsgNums": str(count)}

        def done(outcome: Outcome) -> None:
            self._take(one, outcome)

        timeout = self._wait + _MARGIN if one.end is None else _TIMEOUT
        connection.ask(PULL, fields, b"", done, timeout=timeout)

    def _fields(self, queue: MessageQueue) -> dict[str, str]:
        return PullMessage(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=0,
            max_msg_nums=_COUNT,
            sys_flag=HAS_SUBSCRIPTION | (WAITS if self._wait else 0),
            commit_offset=0,
            suspend_timeout_millis=int(self._wait * 1000),
            subscription=self._tags,
            sub_version=0,
            expression_type="TAG",
            max_msg_bytes=_BYTES,
            bname=queue.broker_name,
        ).encode()

    def _take(self, one: _Queue, outcome: Outcome) -> None:
        if self._is_closed:
            return
        if isinstance(outcome, RemoteError):
            self._retry(one, outcome)
            return
        try:
            found = pulled_of(outcome, one.address)
        except RemoteError as error:
            busy = isinstance(error, RequestRefused) and error.response_code in _BUSY
            if busy:
                self._retry(one, error)
            else:
                self._fail(error)
            return
        if self._advance(one, found):
            one.good_at = self._loop.time()
            if one.end is not None and one.offset >= one.end:
                self._left -= 1
                self._news.set()
            elif one.ahead > _AHEAD:
                one.is_waiting = True
            elif found.broker_id != MASTER:
                self._later(self._begin(one, found.broker_id))
            else:
                self._pull(one)

    def _advance(self, one: _Queue, found: Pulled) -> bool:
        """Keep what a pull brought; False where there is nothing to go on with now."""
        begin, following = one.offset, found.next_offset
        if found.code == FOUND and found.body:
            if following <= begin:
                self._fail(WrongAnswer(f"{one.address} answered a pull from {begin} with next offset {following}"))
                return False
            self._keep(one, Chunk(one.queue, begin, following, found.body))
        elif following > begin:
            # Messages that were deleted meanwhile, or queue entries without a message.
            self._keep(one, Chunk(one.queue, begin, following, b"", is_gone=found.code == MOVED))
        elif following < begin:
            why = f"queue {one.queue.queue_id} of topic {one.queue.topic} now ends at {found.max_offset}"
            hint = "was the topic deleted and created again? Then start from its beginning"
            self._fail(RemoteError(f"{why}, before {begin}", hint=hint))
            return False
        elif one.end is not None:
            self._retry(one, WrongAnswer(f"{one.address} has no message at {begin}, and said that it ends later"))
            return False
        elif not self._wait:
            self._later(self._begin(one, pause=_PAUSE))
            return False
        return True

    def _keep(self, one: _Queue, chunk: Chunk) -> None:
        one.offset, one.begun = chunk.end, True
        one.ahead += len(chunk.body)
        self._chunks.append(chunk)
        self._news.set()

    def _retry(self, one: _Queue, error: RmqtoolError) -> None:
        """Try again: a second read is harmless. After some time without an answer it is an error."""
        if self._is_closed:
            return
        # A name server forgets a broker that goes away, and then the topics that only this one had.
        passes = isinstance(error, RemoteError) or (isinstance(error, NotFound) and bool(one.address))
        if self._loop.time() - one.good_at > self._patience or self._cluster.is_closed or not passes:
            self._fail(error)
            return
        self._cluster.routes.forget(one.queue.topic)
        self._later(self._begin(one, pause=_PAUSE))

    def _fail(self, error: RmqtoolError) -> None:
        self._error = self._error or error
        self.close()
        self._news.set()


async def find_bounds(cluster: Cluster, queue: MessageQueue) -> tuple[int, int]:
    """Return the first offset that a queue has, and the one after its last."""
    least, most = await asyncio.gather(
        _offset(cluster, queue, GetMinOffset(**_place(queue))),
        _offset(cluster, queue, GetMaxOffset(**_place(queue))),
    )
    return least, most


async def find_offset(cluster: Cluster, queue: MessageQueue, timestamp: int) -> int:
    """Return the first offset of a queue whose message was stored at a time (ms) or after it."""
    request = SearchOffset(**_place(queue), timestamp=timestamp, boundary_type=BoundaryType.LOWER)
    return await _offset(cluster, queue, request)


def no_such_queue(queue: MessageQueue) -> NotFound:
    """Return the error for a queue that its broker does not have."""
    return NotFound(
        f"broker {queue.broker_name} has no queue {queue.queue_id} of topic {queue.topic}",
        hint="rmqtool topic STORE list",
    )


def _place(queue: MessageQueue) -> dict[str, Any]:
    return {"topic": queue.topic, "queue_id": queue.queue_id, "bname": queue.broker_name}


async def _offset(cluster: Cluster, queue: MessageQueue, request: Request) -> int:
    answer = await ask_queue(cluster, queue, request)
    kinds: dict[type[Request], Any] = {
        GetMinOffset: GetMinOffsetAnswer,
        GetMaxOffset: GetMaxOffsetAnswer,
        SearchOffset: SearchOffsetAnswer,
    }
    offset = kinds[type(request)].decode_answer(answer.ext).offset
    if offset is None:
        raise WrongAnswer(f"broker {queue.broker_name} answered without an offset")
    return int(offset)


async def ask_queue(
    cluster: Cluster, queue: MessageQueue, request: Request, *, accept: Collection[int] = (FOUND,)
) -> RemotingCommand:
    """Ask the broker of a queue about it."""
    route = await cluster.routes.find(queue.topic)
    address = route.read_address(queue.broker_name)
    if address is None:
        raise no_such_queue(queue)
    return await cluster.ask(address, request, accept=accept)


def records_of(chunks: Sequence[Chunk]) -> Records:
    """Return the records of chunks as columns, in their order. Raises RemoteError for bytes that are not records."""
    from rmqtool.columns.records import decode_records
    from rmqtool.columns.starts import record_starts

    data = b"".join([chunk.body for chunk in chunks])
    starts = record_starts(data)
    records, declined = decode_records(data, starts.file_offsets)
    if declined is not None or starts.stopped_at != len(data):
        brokers = ", ".join(sorted({chunk.queue.broker_name for chunk in chunks}))
        raise WrongAnswer(f"a broker ({brokers}) answered a pull with bytes that are not records")
    return records


async def pull_one(cluster: Cluster, queue: MessageQueue, offset: int) -> Message | None:
    """Return the message at an offset of a queue, else the first after it; None where there is no such message."""
    from rmqtool.formats.commit_log import Message, decode_record

    fetch = Fetch(cluster, [Span(queue, offset, offset + 1)])
    try:
        while chunks := await fetch.take():
            for chunk in chunks:
                if chunk.body:
                    record = decode_record(chunk.body, 0)
                    return record if isinstance(record, Message) else None
    finally:
        fetch.close()
    return None
