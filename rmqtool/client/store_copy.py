"""Topics of a cluster as a new store: what ``repairs.copy`` does with the files of stores.

Records are written as brokers hand them out: hosts, times, properties and bodies stay. A topic that several brokers
have gets new queue offsets, because each of them counts its own. Settings of topics and
groups, and committed offsets, come along.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rmqtool.client import admin
from rmqtool.client.cluster import Cluster
from rmqtool.client.face import Face
from rmqtool.client.puller import find_bounds
from rmqtool.client.topic_stream import Plan, find_queues, iter_parts
from rmqtool.config import StoreConfig, Version
from rmqtool.config.broker_conf import decode_properties
from rmqtool.config.settings import Origin
from rmqtool.errors import Refused
from rmqtool.files.publish import staged
from rmqtool.formats.message_queue import MessageQueue
from rmqtool.formats.topics import TopicKind, topic_kind
from rmqtool.log.order import iter_merged
from rmqtool.log.read import Note, Part
from rmqtool.log.stream import Request
from rmqtool.remoting.requests.broker import GetBrokerConfig
from rmqtool.repairs.copy import IdMap
from rmqtool.repairs.copy import Outcome as Copied
from rmqtool.repairs.target import Target

if TYPE_CHECKING:
    from rmqtool.log.transfer import Moved, Redaction, SourceMove
    from rmqtool.remoting.body import Body

# The settings that decide the sizes of files.
_SIZES = ("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue", "maxHashSlotNum", "maxIndexNum")

Texts = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class ClusterCopy:
    """A copy of a cluster; ``plan`` and ``request`` say which messages."""

    target: str
    plan: Plan
    request: Request
    redaction: Redaction
    renumber: bool = False
    ids: str | None = None


@dataclass(frozen=True)
class _State:
    """Settings of a cluster, committed offsets, and the end of each queue."""

    topics: Mapping[str, Mapping[str, Any]]
    groups: Mapping[str, Mapping[str, Any]]
    committed: Mapping[MessageQueue, Mapping[str, int]]
    ends: Mapping[MessageQueue, int]
    config: StoreConfig


def without_services(plan: Plan) -> Plan:
    """Return a plan without the topics of brokers' own services, which mean nothing without their files."""
    kept = [span for span in plan.spans if topic_kind(span.queue.topic) is not TopicKind.SYSTEM]
    return Plan(kept, plan.notes, plan.unknown)


def copy_cluster(face: Face, cluster: Cluster, wanted: ClusterCopy) -> Copied:
    """Copy messages into a new store, which appears whole or not at all."""
    from rmqtool.log.transfer import WIDEST_GAP, Numbering, SourceMove, SourceQueues

    spans = wanted.plan.spans
    brokers = sorted({span.queue.broker_name for span in spans})
    state = face.run(_read_state(cluster, wanted))
    pairs = {(queue.topic, queue.broker_name) for queue in state.ends}
    shared = {topic for topic, count in Counter(topic for topic, _ in pairs).items() if count > 1}
    numbering = Numbering(lambda topic: wanted.renumber or topic in shared)
    widest = max([WIDEST_GAP, *state.ends.values()])
    with staged(wanted.target, os.path.dirname(os.path.abspath(wanted.target)), 0) as staging:
        ids = IdMap(wanted.ids, staging) if wanted.ids is not None else None
        with Target(staging.store, state.config, frozenset(), widest) as target:
            moves = {one: SourceMove(numbering, SourceQueues((), {}), wanted.redaction) for one in brokers}
            copying = _Copying(target, moves, ids)
            copying.notes += [note.text for note in wanted.plan.notes]
            logs = [face.iterate(_log_of(cluster, wanted, broker)) for broker in brokers]
            for log, event in iter_merged(logs):
                copying.take(brokers[log], event)
            copying.finish()
            kept = {queue: end for queue, end in state.ends.items() if not numbering.begins_anew(queue.topic)}
            if target.messages:
                target.number_on({(queue.topic, queue.queue_id): end for queue, end in kept.items()})
            target.write_configs(_texts(state, target.ends(), kept))
        if ids is not None:
            ids.complete()
    return Copied(
        target=wanted.target,
        messages=target.messages,
        bytes=target.bytes,
        queues=len(numbering.next),
        moved=numbering.moved,
        notes=copying.notes,
    )


class _Copying:
    """Messages on their way into the target."""

    def __init__(self, target: Target, moves: Mapping[str, SourceMove], ids: IdMap | None) -> None:
        self.notes: list[str] = []
        self._target, self._moves, self._ids = target, moves, ids
        self._late: list[tuple[str, Moved]] = []

    def take(self, broker: str, event: Any) -> None:
        """Take the next messages of a broker."""
        if isinstance(event, Note):
            self.notes.append(event.text)
        if not isinstance(event, Part):
            return
        moved = self._moves[broker].move(event.records)
        if moved.late is not None:
            self._late.append((broker, moved))
        if len(moved.records):
            self._keep(broker, moved)

    def finish(self) -> None:
        """Append messages whose queue offset another one has."""
        for broker, moved in self._late:
            self._keep(broker, self._moves[broker].append(moved))

    def _keep(self, broker: str, moved: Moved) -> None:
        self._target.keep(moved, self._moves[broker])
        if self._ids is not None:
            self._ids.add(broker, moved)


def _log_of(cluster: Cluster, wanted: ClusterCopy, broker: str) -> AsyncGenerator[Part | Note, None]:
    spans = [span for span in wanted.plan.spans if span.queue.broker_name == broker]
    return iter_parts(cluster, Plan(spans, advance=wanted.plan.advance), wanted.request)


async def _read_state(cluster: Cluster, wanted: ClusterCopy) -> _State:
    queues, _, _ = await find_queues(cluster, wanted.request.selection)
    queues = [queue for queue in queues if topic_kind(queue.topic) is not TopicKind.SYSTEM]
    bounds = await admin.for_each(queues, lambda queue: find_bounds(cluster, queue))
    topics = await admin.find_topics(cluster)
    names = {queue.topic for queue in queues}
    places = await admin.read_groups(cluster, {}, with_times=False)
    committed: dict[MessageQueue, dict[str, int]] = {}
    for group, by_queue in places.items():
        for queue, place in by_queue.items():
            if queue.topic in names:
                committed.setdefault(queue, {})[group] = place.committed
    known: dict[str, Mapping[str, Any]] = {}
    for table in (await admin.group_tables(cluster)).values():
        known |= {name: _wire(config) for name, config in table.items()}
    return _State(
        {topic: _wire(next(iter(topics[topic].values()))) for topic in sorted(names)},
        {group: known[group] for group in sorted({one for by in committed.values() for one in by}) if group in known},
        committed,
        {queue: most for queue, (_, most) in zip(queues, bounds, strict=True)},
        await _read_config(cluster),
    )


async def _read_config(cluster: Cluster) -> StoreConfig:
    """Return the sizes of files that the first broker has: one with its settings opens the new store."""
    address = next(iter((await cluster.masters()).values()))
    found, _ = decode_properties((await cluster.ask(address, GetBrokerConfig())).body)
    stated = [f"{name}={found[name]}" for name in _SIZES if name in found]
    return StoreConfig.default(Version.V5_3).with_assignments(stated, Origin.STORE)


def _wire(body: Body) -> dict[str, Any]:
    """Return what a broker said of a topic or group, with upstream's names."""
    return {body.fields[name].wire: value for name, value in body.given.items() if value is not None}


def _texts(state: _State, ends: Mapping[tuple[str, int], int], kept: Iterable[MessageQueue]) -> Texts:
    """Return the configuration files of the new store."""
    offsets: dict[str, dict[int, int]] = {}
    for queue, group, offset in _iter_committed(state, kept):
        end = ends.get((queue.topic, queue.queue_id), 0)
        offsets.setdefault(f"{queue.topic}@{group}", {})[queue.queue_id] = min(offset, end)
    version = {"counter": 1, "stateVersion": 0, "timestamp": 0}
    return {
        "topics.json": {"dataVersion": version, "topicConfigTable": dict(state.topics)},
        "subscriptionGroup.json": {"dataVersion": version, "subscriptionGroupTable": dict(state.groups)},
        "consumerOffset.json": {"offsetTable": offsets},
    }


def _iter_committed(state: _State, kept: Iterable[MessageQueue]) -> Iterator[tuple[MessageQueue, str, int]]:
    for queue in sorted(kept):
        for group, offset in sorted(state.committed.get(queue, {}).items()):
            yield queue, group, offset


def require_new(target: str) -> None:
    """Raise Refused for a target that exists and is not empty, before a cluster is asked anything."""
    if os.path.lexists(target) and not (os.path.isdir(target) and not os.listdir(target)):
        raise Refused(f"{target} already exists; nothing was copied", file=target, hint="name another directory")
