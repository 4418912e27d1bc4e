"""The messages of a store, sent into a cluster: once each, also over interruptions.

Each queue is sent in its order, to the queue of the same number. Before some messages are sent, a file says where in
the log they begin and where the queues of the cluster end. A run that goes on reads from there, and sends only messages
whose unique key is not in the queues after those ends. A message without a unique key gets its old offset message id as
one, so that it is found again.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

from rmqtool.broker.producer.lines import Wanted
from rmqtool.client import admin
from rmqtool.client.cluster import Cluster
from rmqtool.client.connection import RequestRefused
from rmqtool.client.producer import Producer, ProducerSettings
from rmqtool.client.puller import Fetch, Span, find_bounds, records_of
from rmqtool.engine.message import NewMessage
from rmqtool.errors import NotFound, Refused, RemoteError, StoreError, UsageError
from rmqtool.files.failures import write_failed
from rmqtool.formats.message_queue import MessageQueue
from rmqtool.formats.property_names import UNIQ_KEY
from rmqtool.formats.topics import TopicKind, topic_kind
from rmqtool.log.read import Part
from rmqtool.log.sources import LogFile
from rmqtool.log.stream import iter_rows

# In seconds: for one send; how long brokers may be away; between two tries.
_TIMEOUT, PATIENCE, _PAUSE = 10.0, 60.0, 0.5
# Limits of a batch, in messages and bytes.
_BATCH, _BATCH_BYTES = 256, 512 << 10
_VERSION: Final = 1
_WANTED: Final = Wanted(keeps_ids=True)


@dataclass
class Progress:
    """How far a replay is, in a file. ``what`` identifies the replay; ``until`` is the end of what may be sent."""

    path: str
    what: dict[str, Any]
    at: int = 0
    until: int = 0
    sent: int = 0
    ends: dict[MessageQueue, int] = field(default_factory=dict)

    @classmethod
    def read(cls, path: str, what: dict[str, Any]) -> Progress:
        """Return the progress in a file, new without the file. Raises Refused for the file of another replay."""
        try:
            with open(path, encoding="utf-8") as file:
                found = json.load(file)
            if found["version"] != _VERSION:
                raise StoreError(
                    f"{path} has version {found['version']}, and this rmqtool knows version {_VERSION}",
                    file=path,
                    hint="go on with the rmqtool that wrote it, or move it away: then the copy begins again",
                )
            if found["what"] != what:
                hint = "move it away, or copy in another directory"
                raise Refused(f"{path} is the progress of another copy", file=path, hint=hint)
            ends = {
                MessageQueue(str(topic), str(broker), int(queue)): int(end)
                for topic, broker, queue, end in found["ends"]
            }
            at, until, sent = (int(found[name]) for name in ("at", "until", "sent"))
            if min(at, until, sent, *ends.values()) < 0:
                raise ValueError("a place before the log")
            return cls(path, what, at, until, sent, ends)
        except FileNotFoundError:
            return cls(path, what)
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise StoreError(f"{path} is not a progress file: {error}", file=path, hint="move it away") from error

    def write(self) -> None:
        """Replace the file."""
        rows = [[*queue, end] for queue, end in sorted(self.ends.items())]
        text = {"version": _VERSION, "what": self.what, "at": self.at, "until": self.until, "sent": self.sent}
        staged = f"{self.path}.new"
        try:
            with open(staged, "w", encoding="utf-8") as file:
                json.dump({**text, "ends": rows}, file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(staged, self.path)
        except OSError as error:
            raise write_failed("write", self.path, error) from error

    def remove(self) -> None:
        """Remove the file: the replay is complete."""
        with suppress(FileNotFoundError):
            os.unlink(self.path)


def is_sent(topic: str, named: Sequence[str]) -> bool:
    """Return whether messages of a topic are sent: of brokers' own topics and of retries only if they are named."""
    return bool(named) or topic_kind(topic) is TopicKind.NORMAL


class Replay:
    """Sends the messages of a log."""

    def __init__(self, cluster: Cluster, progress: Progress, queues: dict[str, int]) -> None:
        self.bytes = 0
        self.queues: set[tuple[str, int]] = set()
        self.created: list[str] = []
        self._cluster, self._progress, self._wanted_queues = cluster, progress, queues
        self._producer = Producer(cluster, ProducerSettings(timeout=_TIMEOUT))
        self._targets: dict[str, dict[int, MessageQueue]] = {}
        # Of a replay that goes on: the keys that are in the cluster already.
        self._resumed_until = progress.until
        self._there: dict[MessageQueue, set[str]] = {}

    async def send(self, part: Part) -> None:
        """Send the messages of a part, and remember that they are sent. Raises RemoteError."""
        await self._send(list(_messages_of(part)), int(part.records.column("physical_offset")[0]))

    async def _send(self, found: list[tuple[int, int, NewMessage]], at: int) -> None:
        by_queue: dict[MessageQueue, list[tuple[int, NewMessage]]] = defaultdict(list)
        for place, _, message in found:
            queue = await self._target(message.topic, message.queue_id)
            by_queue[queue].append((place, message))
        progress = self._progress
        last, size, _ = found[-1]
        if last >= self._resumed_until:
            ends = [await find_bounds(self._cluster, queue) for queue in by_queue]
            fresh = {queue: end for queue, (_, end) in zip(by_queue, ends, strict=True)}
            # While a replay goes on, what it sent before is looked for from the old ends.
            old = progress.ends if at < self._resumed_until else {}
            progress.at, progress.until = min(at, progress.at) if old else at, last + size
            progress.ends = {**fresh, **old}
            progress.write()
        tasks = [asyncio.create_task(self._send_queue(queue, messages)) for queue, messages in by_queue.items()]
        try:
            await asyncio.gather(*tasks)
        finally:
            # After the failure of one queue nothing more is sent to the others.
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        progress.sent += len(found)
        self.bytes += sum(size for _, size, _ in found)
        self.queues |= {(queue.topic, queue.queue_id) for queue in by_queue}

    async def _target(self, topic: str, queue_id: int) -> MessageQueue:
        """Return the queue of the cluster that has the number of a queue of the store."""
        if topic not in self._targets:
            self._targets[topic] = await self._find_queues(topic)
        queue = self._targets[topic].get(queue_id)
        if queue is None:
            raise UsageError(
                f"topic {topic} has no queue {queue_id} to write to in the cluster, and the store has messages of it",
                hint=f"rmqtool topic {self._cluster.address} alter {topic} --queues {queue_id + 1}",
            )
        return queue

    async def _find_queues(self, topic: str) -> dict[int, MessageQueue]:
        known = (await admin.find_topics(self._cluster)).get(topic)
        if known is None:
            queues = self._wanted_queues.get(topic, 1)
            await admin.create_topic(self._cluster, topic, queues=queues, perm=admin.READ_WRITE, attributes={})
            self.created.append(topic)
        found: dict[int, MessageQueue] = {}
        route = await self._route(topic)
        for queue in route:
            if queue.queue_id in found:
                raise UsageError(
                    f"topic {topic} is at several brokers, and a queue of the store goes to one",
                    hint=f"name one: {self._cluster.address}/{queue.broker_name}",
                )
            found[queue.queue_id] = queue
        return found

    async def _route(self, topic: str) -> list[MessageQueue]:
        loop = asyncio.get_running_loop()
        until = loop.time() + PATIENCE
        while True:
            # A broker tells the name server about a new topic soon after it is made.
            try:
                return (await self._cluster.routes.find(topic)).write_queues
            except NotFound:
                if loop.time() > until:
                    raise
            await asyncio.sleep(_PAUSE)

    async def _send_queue(self, queue: MessageQueue, messages: list[tuple[int, NewMessage]]) -> None:
        """Send messages of one queue in their order, again after a failure what is not there."""
        loop = asyncio.get_running_loop()
        until = loop.time() + PATIENCE
        left = [message for place, message in messages if place >= self._resumed_until]
        if len(left) < len(messages):
            there = await self._keys(queue)
            left = [one for place, one in messages if place >= self._resumed_until or key_of(one) not in there]
        while left:
            try:
                for batch in batches_of(left):
                    await (self._producer.send_batch(batch) if len(batch) > 1 else self._producer.send(batch[0]))
                return
            except RequestRefused:
                raise
            except RemoteError:
                if loop.time() > until:
                    raise
            await asyncio.sleep(_PAUSE)
            self._there.pop(queue, None)
            with suppress(RemoteError):
                there = await self._keys(queue)
                left = [one for one in left if key_of(one) not in there]

    async def _keys(self, queue: MessageQueue) -> set[str]:
        """Return the unique keys in a queue of the cluster after the end that it had."""
        if queue not in self._there:
            _, end = await find_bounds(self._cluster, queue)
            keys: set[str] = set()
            fetch = Fetch(self._cluster, [Span(queue, self._progress.ends.get(queue, end), end)], patience=PATIENCE)
            try:
                while chunks := await fetch.take():
                    records = records_of([one for one in chunks if one.body])
                    part = Part(records, LogFile(0, 0, "", "", "cluster"), None)
                    keys |= {str(row.fields["uniqKey"]) for row in iter_rows(part)}
            finally:
                fetch.close()
            self._there[queue] = keys
        return self._there[queue]


def key_of(message: NewMessage) -> str:
    """Return the unique key of a message that is replayed."""
    return message.property_map()[UNIQ_KEY]


def _messages_of(part: Part) -> Iterator[tuple[int, int, NewMessage]]:
    """Yield the physical offset and size of each message, and the message as a producer sends it."""
    for row in iter_rows(part):
        fields = row.fields
        if row.damage is not None:
            raise Refused(
                f"a body cannot be decompressed: {row.damage.message}",
                offset=fields["commitLogOffset"],
                hint="leave its queue or time out (-t, -q, -b, -e)",
            )
        place, size = fields["commitLogOffset"], fields["storeSize"]
        key, born = fields["uniqKey"] or fields["offsetMsgId"], fields["bornTimestamp"]
        message = _WANTED.message_of(fields)
        properties = {**message.property_map(), UNIQ_KEY: key}
        yield place, size, replace(message.with_properties(properties), born_timestamp=born)


def batches_of(messages: Iterable[NewMessage]) -> Iterator[list[NewMessage]]:
    """Yield messages that can be sent as one batch, which has one time of birth."""
    batch: list[NewMessage] = []
    size = 0
    for message in messages:
        length = len(message.body or b"")
        fits = batch and message.born_timestamp == batch[0].born_timestamp and message.flag == batch[0].flag
        if batch and (not fits or len(batch) == _BATCH or size + length > _BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(message)
        size += length
    if batch:
        yield batch
