"""An export of a live cluster: each broker is read once, in the order of its log.

The plan is the end that each queue has at the beginning; what comes later is left to the next export. ``--since-last``
goes on from the ends of the queues, which the manifest has instead of a place in a log.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final, NamedTuple
from uuid import uuid4

import numpy as np

from rmqtool.client.cluster import Cluster
from rmqtool.client.face import Face
from rmqtool.client.message_search import view_message
from rmqtool.client.offset_ranges import Bounds, wanted_bounds
from rmqtool.client.puller import Span
from rmqtool.client.topic_stream import Plan, iter_parts
from rmqtool.errors import NotFound, Refused, StoreError
from rmqtool.exports.choice import Choice, OnCorrupt
from rmqtool.exports.parquet import PartWriter
from rmqtool.exports.run import Collected, Outcome, Request, opened_for, require_same, require_same_choices
from rmqtool.exports.splits import Written, spelled
from rmqtool.exports.target import Progress, QueueEnds
from rmqtool.formats.message_queue import MessageQueue
from rmqtool.log import stream
from rmqtool.log.follow import LastRecord
from rmqtool.log.order import Order
from rmqtool.log.ranges import Effort
from rmqtool.log.read import Damage, Note, Part

# The size of a file; one broker may give any number of messages.
_MOST_BYTES: Final = 256 << 20
# Tells the progress in a cluster from that in the files of a broker of the same name.
_KIND: Final = "rocketmq:"
# The columns of a record that tell it from another one at the same place, as ``LastRecord`` has them.
_OF_LAST: Final = ("physical_offset", "total_size", "body_crc", "store_timestamp")


class LiveCluster(NamedTuple):
    """A cluster that is open, and the loop that its connections work on."""

    face: Face
    connections: Cluster

    def read_plan(self, choice: Choice) -> tuple[dict[MessageQueue, Bounds], list[str], list[str]]:
        """Return the bounds of each wanted queue, notes for the user, and the topics that do not exist."""
        return self.face.run(wanted_bounds(self.connections, choice.selection()))

    def find_record(self, broker: str, physical_offset: int, topic: str) -> LastRecord | None:
        """Return the record at a place in a broker's log, None where no record begins."""

        async def view() -> LastRecord | None:
            address = (await self.connections.masters()).get(broker)
            found = await view_message(self.connections, address, physical_offset, topic) if address else None
            return None if found is None else LastRecord.of(found)

        return self.face.run(view())

    def iter_parts(self, spans: Sequence[Span], choice: Choice) -> Iterator[Part | Note]:
        """Yield the wanted messages of a broker's queues in the order of its log."""
        asked = stream.Request(choice.selection(), Order.LOG)
        return self.face.iterate(iter_parts(self.connections, Plan(list(spans)), asked))


def run_cluster_export(request: Request, cluster: LiveCluster, effort: Effort) -> Outcome:
    """Run an export. Afterwards the target has all of it, or is as it was."""
    with opened_for(request) as target:
        previous = target.previous[-1] if target.previous else None
        require_same(request, previous)
        before = previous.read if previous is not None and request.since_last else {}
        _require_cluster(request, before)
        collected = Collected(target, request, before)
        found, notes, unknown = cluster.read_plan(request.choice)
        collected.outcome.notes += notes
        brokers = sorted({queue.broker_name for queue in found})
        for name in brokers:
            require_same_choices(request, previous, _KIND + name, name)
        _require_same_logs(cluster, found, before)
        spans = list(_spans(found, before, collected))
        effort.progress.start("reading", sum((span.end or 0) - span.begin for span in spans), "messages")
        for at, (broker, own) in enumerate(groupby(spans, lambda span: span.queue.broker_name)):
            work = _Pass(collected, cluster, effort, broker, f"part-{target.number:06}-{at:03}")
            work.run(list(own))
        effort.progress.finish()
        collected.note_choices(_KIND + name for name in brokers)
        if unknown and not collected.outcome.rows:
            raise NotFound(
                f"there is no topic {', '.join(unknown)} in the cluster; nothing was written",
                hint="rmqtool topic STORE list",
            )
        collected.outcome.notes += [f"no topic of the cluster matches {one}" for one in unknown]
        return collected.commit()


def _require_cluster(request: Request, before: Mapping[str, Progress]) -> None:
    if before and all(progress.queues is None for progress in before.values()):
        stores = ", ".join(progress.store for progress in before.values())
        raise Refused(
            f"{request.directory} was exported from files, {stores}, not from a live cluster",
            file=request.directory,
            hint="--since-last goes on from the same store; else export to another directory (--to)",
        )


def _require_same_logs(
    cluster: LiveCluster, found: Mapping[MessageQueue, Bounds], before: Mapping[str, Progress]
) -> None:
    """Raise Refused for a broker whose log is not the one that was exported: another cluster has brokers of that name.

    The last record is not there either if the broker has deleted it. Then it has deleted everything before it as well.
    """
    for key, progress in before.items():
        broker, last = key.removeprefix(_KIND), progress.last
        if last is None or progress.queues is None:
            continue
        if cluster.find_record(broker, last.physical_offset, next(iter(progress.queues))) == last:
            continue
        for queue, bounds in found.items():
            then = _end_before(queue, before)
            if queue.broker_name == broker and then is not None and bounds.least < then:
                raise Refused(
                    f"the log of {broker} is not the one that was exported: it has another message at "
                    f"{last.physical_offset}, where the last export ended",
                    hint="--mode overwrite exports it again, or export to another directory (--to)",
                )


def _spans(
    found: Mapping[MessageQueue, Bounds], before: Mapping[str, Progress], collected: Collected
) -> Iterator[Span]:
    """Yield what is read of each queue, broker by broker. Raises Refused for a queue that was made again."""
    for queue, bounds in sorted(found.items(), key=lambda one: (one[0].broker_name, one[0])):
        begin, then = bounds.begin, _end_before(queue, before)
        if then is not None:
            _require_unbroken(queue, bounds, then, collected)
            begin = max(begin, then)
        if begin < bounds.end:
            yield Span(queue, begin, bounds.end)


def _end_before(queue: MessageQueue, before: Mapping[str, Progress]) -> int | None:
    progress = before.get(_KIND + queue.broker_name)
    ends = None if progress is None else progress.queues
    return None if ends is None else ends.get(queue.topic, {}).get(str(queue.queue_id))


def _require_unbroken(queue: MessageQueue, bounds: Bounds, then: int, collected: Collected) -> None:
    name = f"queue {queue.queue_id} of topic {queue.topic} at broker {queue.broker_name}"
    if bounds.most < then:
        raise Refused(
            f"{name} was exported up to offset {then}, and now ends at {bounds.most}: the topic was deleted and "
            "created again, or its broker lost messages",
            hint="--mode overwrite exports it again, or export to another directory (--to)",
        )
    if bounds.least > then:
        take_loss(collected, f"{name}: messages {then} to {bounds.least - 1} were deleted before they were exported")


def take_loss(collected: Collected, text: str) -> None:
    """Note messages that were deleted before they were read. Raises StoreError if such a loss ends the export."""
    if collected.request.choice.on_corrupt is OnCorrupt.FAIL:
        raise StoreError(text, hint="--on-corrupt emit exports the rest")
    collected.outcome.notes.append(text)
    collected.outcome.has_lost = True


class _Pass:
    """Reads one broker into files of the target."""

    def __init__(self, collected: Collected, cluster: LiveCluster, effort: Effort, broker: str, stem: str) -> None:
        self.collected, self.cluster, self.effort = collected, cluster, effort
        self.broker, self.stem = broker, stem

    def run(self, spans: Sequence[Span]) -> None:
        """Write the messages of these queues."""
        request, target = self.collected.request, self.collected.target
        projection = request.choice.projection(self.broker, request.time_unit)
        directory = uuid4().hex
        writer = PartWriter(
            f"{target.staging}/{directory}",
            self.stem,
            projection.schema(),
            request.layout,
            most_bytes=_MOST_BYTES,
        )
        damages: list[Damage] = []
        last: LastRecord | None = None
        for found in self.cluster.iter_parts(spans, request.choice):
            if isinstance(found, Note):
                take_loss(self.collected, found.text)
                continue
            records = found.records
            self.collected.outcome.source_bytes += int(np.sum(records.column("total_size"), dtype=np.int64))
            last = LastRecord(*(int(records.column(name)[-1]) for name in _OF_LAST))
            for messages in spelled(found, projection):
                writer.write(messages.batch)
                damages += [damage for _, damage in messages.damages]
            self.effort.progress.advance(len(records))
        self.collected.take_files(self.broker, Written(directory, writer.close(), damages, 0))
        self._note_ends(spans, last)

    def _note_ends(self, spans: Sequence[Span], last: LastRecord | None) -> None:
        key, read = _KIND + self.broker, self.collected.read
        before = read.get(key)
        ends: dict[str, dict[str, int]] = {}
        for topic, known in _ends_of(before).items():
            ends[topic] = dict(known)
        for queue, _, end in spans:
            ends.setdefault(queue.topic, {})[str(queue.queue_id)] = end or 0
        total = sum(end for known in ends.values() for end in known.values())
        told = self.collected.target.previous
        earlier = told[-1].read.get(key) if told else None
        # A table's log needs a number that grows, also where an earlier part of the queues was added.
        total = max(total, 0 if earlier is None else earlier.end + 1)
        if last is None and before is not None:
            last = before.last
        read[key] = Progress(str(self.cluster.connections.address), 0, total, last, ends)


def _ends_of(progress: Progress | None) -> QueueEnds:
    return {} if progress is None or progress.queues is None else progress.queues
