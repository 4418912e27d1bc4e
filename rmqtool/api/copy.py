"""``copy``: copy messages of stores into a new one, to salvage, split, merge, purge or move them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypedDict, Unpack, cast

from rmqtool.api.cluster import Cluster
from rmqtool.api.store import Place, is_remote, store_of
from rmqtool.api.wanted import (
    Said,
    Which,
    Working,
    effort_of,
    require_known,
    unknown_places,
    unread_by,
    wanted_of,
)
from rmqtool.errors import Exit, StoreError, UsageError, worst

if TYPE_CHECKING:
    from rmqtool.api.shapes import Copied
    from rmqtool.log.ranges import Effort
    from rmqtool.log.select import Selection
    from rmqtool.log.sources import Source
    from rmqtool.repairs.copy import CopyRequest, Outcome
    from rmqtool.store.open import Store


class How(TypedDict, total=False):
    """How the copy differs from its sources.

    ``salvage`` copies every valid message of a damaged log. ``purge`` leaves out topics; ``redact`` removes bodies
    ("body") or properties. ``renumber`` counts queue offsets from 0, ``rehost`` names another broker
    ("10.1.2.3:10911"). ``ids`` is a file for old and new ids. ``unread_by`` names a group: only messages that it has
    not consumed.
    """

    salvage: bool
    purge: Sequence[str] | None
    renumber: bool
    rehost: str | None
    redact: Sequence[str] | None
    ids: str | None
    unread_by: str | None


class Done(NamedTuple):
    """The result of a copy: the object of the contract, notes for the user, what was skipped of damaged logs."""

    shown: Copied
    said: list[Said]
    notes: list[str]
    skipped: list[tuple[str, int, str]]

    @property
    def status(self) -> Exit:
        """Return the exit status of the command."""
        skipped = Exit.SKIPPED if self.skipped else Exit.DONE
        return worst(skipped, *(said.status for said in self.said))


def copy(
    stores: Place | Iterable[Place],
    to: str | os.PathLike[str] | Cluster,
    how: How | None = None,
    **which: Unpack[Which],
) -> Copied:
    """Copy messages into a new store, which appears whole or not at all. The sources are only read.

    The one source, or the target, may be a live cluster.
    """
    require_known("copy", which)
    is_one = isinstance(stores, str | os.PathLike | Cluster) or not isinstance(stores, Iterable)
    listed = [cast("Place", stores)] if is_one else list(cast("Iterable[Place]", stores))
    return copied(listed, to, how or {}, **which).shown


def copied(
    stores: Sequence[Place],
    to: str | os.PathLike[str] | Cluster,
    how: How,
    work: Working | None = None,
    tell: Callable[[str], None] = lambda _: None,
    **which: Unpack[Which],
) -> Done:
    """Copy messages; the result also has the notes for the user. ``tell`` gets what must be known at the start."""
    from rmqtool.repairs.copy import run_copy
    from rmqtool.store.open import require_disk

    request = _request(str(to.address) if isinstance(to, Cluster) else os.fspath(to), how, which)
    if not is_remote(to):
        require_disk(request.target)
    if is_remote(to) or any(map(is_remote, stores)):
        return _copied_over_the_wire(stores, to, request, how, effort_of(**(work or {})), tell, which)
    with ExitStack() as opened:
        sources = [opened.enter_context(_open(place)) for place in stores]
        unknown = unknown_places([source.store for source in sources], wanted_of({"topics": which.get("topics")}))
        outcome = run_copy(sources, request, effort_of(**(work or {})))
    return _done(outcome, request.target, [] if unknown is None else [unknown])


def _copied_over_the_wire(
    stores: Sequence[Place],
    to: str | os.PathLike[str] | Cluster,
    request: CopyRequest,
    how: How,
    effort: Effort,
    tell: Callable[[str], None],
    which: Which,
) -> Done:
    """Copy topics of a cluster into a new store, or a store into a cluster."""
    from rmqtool.api.cluster_copy import copied_from_cluster, copied_to_cluster
    from rmqtool.log.select import Selection

    if len(stores) != 1:
        raise UsageError("a cluster is copied alone, and one store is copied into it", hint="copy one after the other")
    (place,) = stores
    selection = Selection.of(wanted_of(which))
    if is_remote(to):
        cluster = to if isinstance(to, Cluster) else Cluster(os.fspath(to))
        outcome, said = copied_to_cluster(place, cluster, selection, how, effort, tell)
    else:
        outcome, said = copied_from_cluster(place, request, how, selection, effort)
    return _done(outcome, request.target, said)


def _request(target: str, how: How, which: Which) -> CopyRequest:
    from rmqtool.log.select import Selection
    from rmqtool.repairs.copy import CopyRequest

    selection, group = Selection.of(wanted_of(which)), how.get("unread_by")
    return CopyRequest(
        target=target,
        select=(lambda _store: selection) if group is None else partial(_unread, group, selection),
        purged=tuple(how.get("purge") or ()),
        salvage=how.get("salvage", False),
        renumber=how.get("renumber", False),
        redact=tuple(how.get("redact") or ()),
        store_host=_store_host(how.get("rehost")),
        ids=how.get("ids"),
    )


def _unread(group: str, selection: Selection, store: Store) -> Selection:
    return unread_by(store, group, selection)


def _store_host(text: str | None) -> tuple[bytes, int] | None:
    """Return the broker that --rehost names."""
    from rmqtool.formats.hosts import parse_host

    host = parse_host(text) if text is not None else None
    if text is not None and host is None:
        raise UsageError(f'--rehost "{text}" is not IP:PORT', hint="--rehost 10.1.2.3:10911")
    return host


def _open(place: Place) -> Source:
    from rmqtool.log.sources import open_source

    store = store_of(place)
    source = open_source(store.path, store.reopen)
    if source.store is None or source.topic is not None or not source.directories:
        source.close()
        raise StoreError(
            f"{store.path} is not a whole store", file=store.path, hint="name a storePathRootDir; -t and -q select"
        )
    return source


def _done(outcome: Outcome, target: str, said: list[Said]) -> Done:
    shown = {
        "to": target,
        "messages": outcome.messages,
        "bytes": outcome.bytes,
        "queues": outcome.queues,
        "moved": outcome.moved,
        "beside": outcome.beside,
        "skipped": {
            "ranges": len(outcome.damages),
            "bytes": sum(damage.length for _, damage in outcome.damages),
        },
        "lostAndFound": outcome.lost_and_found,
    }
    skipped = list(_iter_skipped(outcome))
    return Done(cast("Copied", shown), said, outcome.notes, skipped)


def _iter_skipped(outcome: Outcome) -> Iterator[tuple[str, int, str]]:
    for store, damage in outcome.damages:
        where = f"@{damage.file_offset}" if damage.length else ""
        yield f"{damage.code} {store}/{damage.file}{where}", damage.length, damage.message
