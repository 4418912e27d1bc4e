"""Messages of a cluster by ranges of queue offsets: what Spark and ``export`` plan in one process and read in others.

The plan is made of values that can be sent to another machine. Each reader opens connections of its own.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple, TypeVar

from rmqtool.client.address import find_credentials, parse_cluster
from rmqtool.client.admin import for_each
from rmqtool.client.cluster import Cluster
from rmqtool.client.connection import Manners, RequestRefused
from rmqtool.client.face import Face
from rmqtool.client.puller import Span, find_bounds, find_offset
from rmqtool.client.topic_stream import Plan, find_queues, iter_parts
from rmqtool.errors import NotFound, RemoteError, RmqtoolError, StoreError
from rmqtool.formats.message_queue import MessageQueue
from rmqtool.log.order import Order
from rmqtool.log.read import Note, Part
from rmqtool.log.select import Selection
from rmqtool.log.stream import Request

# In seconds: how long a name server or a broker may be away, as it is while it is started again.
PATIENCE: Final = 60.0
_PAUSE: Final = 0.5
LOSS: Final = 'option("failOnDataLoss", "false") continues with the messages that are left'

Result = TypeVar("Result")


class ClusterPlace(NamedTuple):
    """A cluster, and how it is opened: ``credentials`` is a file that each machine has, or None for the environment."""

    address: str
    credentials: str | None = None
    tls: bool = False

    @contextmanager
    def opened(self) -> Iterator[tuple[Face, Cluster]]:
        """Open connections for code without asyncio. Raises UsageError and StoreError for the address and the keys."""
        address, keys = parse_cluster(self.address), find_credentials(self.credentials)
        manners = Manners(credentials=keys, tls=ssl.create_default_context() if self.tls else None)

        async def connections() -> Cluster:
            return Cluster(address, manners)

        face = Face()
        try:
            cluster = face.run(connections())
            try:
                yield face, cluster
            finally:
                face.run(cluster.close())
        finally:
            face.close()


class Bounds(NamedTuple):
    """The first offset that a queue has and the one after its last; those that are wanted, half-open."""

    least: int
    most: int
    begin: int
    end: int


async def wanted_bounds(
    cluster: Cluster, selection: Selection
) -> tuple[dict[MessageQueue, Bounds], list[str], list[str]]:
    """Return the bounds of each wanted queue, notes for the user, and the topics that do not exist."""
    queues, notes, unknown = await find_queues(cluster, selection)

    async def bounds(queue: MessageQueue) -> Bounds:
        least, most = await find_bounds(cluster, queue)
        begin, end = least, most
        if selection.begin is not None and most > least:
            begin = await find_offset(cluster, queue, selection.begin)
        if selection.end is not None and most > least:
            end = await find_offset(cluster, queue, selection.end)
        first = selection.least_of(queue.topic, queue.queue_id) or 0
        begin = min(max(begin, first), most)
        return Bounds(least, most, begin, max(begin, min(end, most)))

    found = dict(zip(queues, await for_each(queues, bounds), strict=True))
    return found, [note.text for note in notes], unknown


def read_bounds(place: ClusterPlace, selection: Selection) -> tuple[dict[MessageQueue, Bounds], list[str], list[str]]:
    """Return the bounds of each wanted queue, notes for the user, and the topics that do not exist.

    A cluster that is away is waited for. Raises RemoteError where it stays away.
    """

    with place.opened() as (face, cluster):
        return face.run(_patiently(lambda: wanted_bounds(cluster, selection), RemoteError))


async def _patiently(work: Callable[[], Awaitable[Result]], *passing: type[RmqtoolError]) -> Result:
    """Do something that only asks, again while it fails in a way that may pass: the cluster is away."""
    loop = asyncio.get_running_loop()
    until = loop.time() + PATIENCE
    while True:
        try:
            return await work()
        except RequestRefused:
            raise
        except passing:
            if loop.time() > until:
                raise
        await asyncio.sleep(_PAUSE)


def split_spans(ends: Mapping[MessageQueue, tuple[int, int]], most: int) -> list[Span]:
    """Return the ranges of queues in pieces of at most ``most`` offsets, those of a queue in their order."""
    return [
        Span(queue, first, min(first + most, end))
        for queue, (begin, end) in sorted(ends.items())
        for first in range(begin, end, most)
    ]


def iter_span(place: ClusterPlace, span: Span, selection: Selection) -> Iterator[Part | Note]:
    """Yield the wanted messages of a range; a note says which of them their broker has deleted.

    A broker that is away is waited for. Raises RemoteError where it stays away.
    """
    with place.opened() as (face, cluster):
        # A name server does not know the queues of a broker that is away.
        face.run(_patiently(lambda: find_bounds(cluster, span.queue), RemoteError, NotFound))
        request = Request(selection, Order.QUEUE)
        yield from face.iterate(iter_parts(cluster, Plan([span]), request, patience=PATIENCE))


def find_loss(queue: MessageQueue, before: int, bounds: Bounds) -> StoreError | None:
    """Return what is lost of a queue that was read up to ``before``, None if it goes on there."""
    name = f"queue {queue.queue_id} of topic {queue.topic} at broker {queue.broker_name}"
    if bounds.most < before:
        return StoreError(
            f"{name} was read up to offset {before}, and now ends at {bounds.most}: the topic was deleted and created "
            "again, or its broker lost messages",
            hint=LOSS,
        )
    if bounds.least > before:
        return StoreError(
            f"{name}: messages {before} to {bounds.least - 1} were deleted before they were read", hint=LOSS
        )
    return None
