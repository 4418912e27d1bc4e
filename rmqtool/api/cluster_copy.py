"""``copy`` with a cluster: its topics into a new store, or the messages of a store into it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import replace
from shlex import quote
from typing import TYPE_CHECKING

from rmqtool.api.cluster import Cluster, opened_cluster
from rmqtool.api.store import Place, Store, is_remote, store_of
from rmqtool.api.wanted import Said
from rmqtool.errors import NotFound, Refused, StoreError, UsageError

if TYPE_CHECKING:
    from rmqtool.api.copy import How
    from rmqtool.client.replay import Progress
    from rmqtool.log.ranges import Effort
    from rmqtool.log.read import Damage, Note, Part
    from rmqtool.log.select import Selection
    from rmqtool.log.sources import Source
    from rmqtool.repairs.copy import CopyRequest, Outcome

_FILES_ONLY = ("salvage", "purge")


def copied_from_cluster(
    place: Place, request: CopyRequest, how: How, selection: Selection, effort: Effort
) -> tuple[Outcome, list[Said]]:
    """Copy topics of a cluster into a new store; return the outcome, and what to say of unknown topics."""
    from rmqtool.api.remote import plan_of
    from rmqtool.client.store_copy import ClusterCopy, copy_cluster, require_new, without_services
    from rmqtool.log.stream import Request
    from rmqtool.log.transfer import Redaction

    for name in _FILES_ONLY:
        if how.get(name):
            raise UsageError(f"--{name} needs the files of a store", hint="leave it out: -t selects topics")
    require_new(request.target)
    with opened_cluster(place) as cluster:
        connections = cluster.connections
        asked = Request(selection)
        plan, asked, unknown = cluster.run(plan_of(connections, asked, how.get("unread_by"), follows=False))
        if unknown is not None and not plan.spans:
            raise NotFound(f"{unknown.text}; nothing was copied", hint=f"rmqtool topic {connections.address} list")
        wanted = ClusterCopy(
            target=request.target,
            plan=plan if selection.topics.patterns else without_services(plan),
            request=asked,
            redaction=Redaction.of(request.redact, request.store_host),
            renumber=request.renumber,
            ids=request.ids,
        )
        effort.progress.start("copying", wanted.plan.messages, "messages")
        wanted.plan.advance = effort.progress.advance
        try:
            outcome = copy_cluster(cluster.face, connections, wanted)
        finally:
            effort.progress.finish()
    return outcome, [] if unknown is None else [unknown]


Tell = Callable[[str], None]


def copied_to_cluster(
    place: Place, to: Cluster, selection: Selection, how: How, effort: Effort, tell: Tell
) -> tuple[Outcome, list[Said]]:
    """Send the messages of a store into a cluster. ``tell`` is called with the file that has the progress."""
    from rmqtool.client.replay import Replay
    from rmqtool.log.sources import open_source
    from rmqtool.log.stream import Request, iter_parts, plan_request
    from rmqtool.repairs.copy import Outcome

    for name, value in how.items():
        if value:
            option = "--unread" if name == "unread_by" else f"--{name}"
            raise UsageError(f"{option} has no effect on a copy into a cluster", hint="copy to a new store first")
    if is_remote(place):
        raise UsageError("both places are clusters", hint="copy to a new store, then copy that into the other cluster")
    store, address = store_of(place), str(to.address)
    with opened_cluster(to) as cluster, open_source(store.path, store.reopen) as source:
        if source.store is None or source.topic is not None:
            raise StoreError(f"{store.path} is not a whole store", file=store.path, hint="name a storePathRootDir")
        progress = _progress(source.store.root, address, selection)
        state = f"{progress.sent} messages are sent already" if progress.sent else "if this copy stops"
        tell(f"{state}; the same command continues it from {progress.path}")
        connections = cluster.connections

        async def made() -> Replay:
            return Replay(connections, progress, _queue_counts(store))

        replay = cluster.run(made())
        first = replace(selection, physical_from=max(selection.physical_from, progress.at))
        notes = _notes_on_tier(source, store.path)
        # Records of a tier name offsets in the log of their queue, and a copy that goes on goes by those of one log.
        of_log = replace(source, files=[file for file in source.files if file.tier is None])
        plan, selection = plan_request(of_log, Request(first), effort)
        for event in iter_parts(plan, selection, effort):
            part = _part_of(event, store.path, selection, notes)
            if part is not None:
                cluster.run(replay.send(part))
        progress.remove()
        notes += [f"topic {topic} was created" for topic in replay.created]
    queues = len(replay.queues)
    return Outcome(target=address, messages=progress.sent, bytes=replay.bytes, queues=queues, notes=notes), []


def _notes_on_tier(source: Source, path: str) -> list[str]:
    """Return notes on the messages of a tier, which are not sent."""
    notes = [] if source.note is None else [source.note]
    tiers = {file.directory for file in source.files if file.tier is not None}
    command = f"rmqtool copy {quote(path)} NEW"
    return notes + [f"older messages in {tier} are not sent: to send them too, first {command}" for tier in tiers]


def _part_of(event: Part | Damage | Note, path: str, selection: Selection, notes: list[str]) -> Part | None:
    """Return what is sent of the next event of a log. Raises Refused for damage."""
    import numpy

    from rmqtool.client.replay import is_sent
    from rmqtool.log.read import Note, Part

    if isinstance(event, Note):
        notes.append(event.text)
        return None
    if not isinstance(event, Part):
        raise Refused(
            f"the log is damaged: {event.message}",
            file=f"{path}/{event.file}",
            offset=event.file_offset,
            hint=f"copy its valid messages, then that store: rmqtool copy {quote(path)} {quote(path)}.new --salvage",
        )
    named = selection.topics.patterns
    records = event.records.select(event.records.topics.each(lambda topic: is_sent(topic, named), numpy.bool_))
    return event._replace(records=records) if len(records) else None


def _progress(root: str, address: str, selection: Selection) -> Progress:
    """Return the progress of this copy: its file is in the current directory."""
    from rmqtool.client.replay import Progress

    which = {"topics": list(selection.topics.patterns), "queue": selection.queue_id}
    which |= {"begin": selection.begin, "end": selection.end}
    what = {"store": os.path.abspath(root), "cluster": address, "which": which}
    name = hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:12]
    return Progress.read(os.path.abspath(f"rmqtool-copy-{name}.json"), what)


def _queue_counts(store: Store) -> dict[str, int]:
    from rmqtool.api.topic import topics

    return {row["topic"]: row["writeQueueNums"] or 1 for row in topics(store)}
