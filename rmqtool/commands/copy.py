"""``rmqtool copy``: messages of stores into a new one."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from rmqtool.commands.opening import keep_private
from rmqtool.commands.options import AsBroker, Filters, Group, Period, ProgressWhen, Scope, Show, When, Work
from rmqtool.commands.selecting import note_unknown_topics, select_messages, unread_by
from rmqtool.errors import Exit, StoreError, UsageError

if TYPE_CHECKING:
    from rmqtool.log.select import Selection
    from rmqtool.log.sources import Source
    from rmqtool.render.output import Output
    from rmqtool.repairs.copy import CopyRequest, Outcome
    from rmqtool.store.open import Store

_COPY = "What the copy is like"


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """How the copy differs from its sources."""

    salvage: Annotated[
        bool,
        typer.Option(
            "--salvage", help="Copy every valid message of a damaged log; save what is none.", rich_help_panel=_COPY
        ),
    ] = False
    purge: Annotated[
        list[str] | None,
        typer.Option(
            "--purge",
            metavar="TOPIC",
            help="Without this topic: no byte of it is left; * and ? match; repeatable.",
            rich_help_panel=_COPY,
        ),
    ] = None
    renumber: Annotated[
        bool,
        typer.Option(
            "--renumber", help="Queue offsets from 0, without gaps; groups move along.", rich_help_panel=_COPY
        ),
    ] = False
    rehost: Annotated[
        str | None,
        typer.Option("--rehost", metavar="IP:PORT", help="As if this broker had stored it.", rich_help_panel=_COPY),
    ] = None
    redact: Annotated[
        list[str] | None,
        typer.Option(
            "--redact", metavar="WHAT", help="Leave out: body, or a property's name; repeatable.", rich_help_panel=_COPY
        ),
    ] = None
    ids: Annotated[
        str | None,
        typer.Option(
            "--ids",
            metavar="FILE",
            help="Write old and new ids of every message, .jsonl or .csv.",
            rich_help_panel=_COPY,
        ),
    ] = None

    def store_host(self) -> tuple[bytes, int] | None:
        """Return the broker of --rehost."""
        from rmqtool.formats.hosts import parse_host

        host = parse_host(self.rehost) if self.rehost is not None else None
        if self.rehost is not None and host is None:
            raise UsageError(f'--rehost "{self.rehost}" is no IP:PORT', hint="--rehost 10.1.2.3:10911")
        return host


def copy(
    stores: Annotated[
        list[str], typer.Argument(metavar="SRC... DST", help="Stores to read, and the new one.", show_default=False)
    ],
    *,
    scope: Scope,
    group: Group = None,
    unread: Annotated[bool, typer.Option("--unread", help="Only what the group of -g has not consumed.")] = False,
    period: Period,
    filters: Filters,
    changes: Changes,
    progress: ProgressWhen = When.AUTO,
    broker: AsBroker,
    show: Show,
) -> Exit:
    """Copy messages into a new store: salvage a damaged one, split, purge, merge or move stores.

    SRC is only read, also while a broker runs on it. DST appears whole or not at all. Records stay as they are, queue
    offsets and the progress of groups too; places in the log change, and with them offset message ids. With -t,
    messages that still wait for the topic (delayed, timed, half) come along; with --purge they go as well.

    Several SRC are merged by store time; each queue keeps its order, and a topic that several of them have is numbered
    anew. Groups go on where they were, of a shared queue at the first message that one of them has not read.

    A damaged log is refused without --salvage. With it the bytes that were skipped lie in DST.lost-and-found, with a
    list; the exit status is 6 then.
    """
    from rmqtool.filters.patterns import parse_patterns
    from rmqtool.repairs.copy import run_copy

    keep_private(stores[:-1])
    request = _request(stores, scope, period.bounds(show.tz), filters, (group, unread), changes)
    with show.output() as output, ExitStack() as opened:
        sources = [opened.enter_context(_open(path, broker)) for path in stores[:-1]]
        note_unknown_topics(output, [source.store for source in sources], parse_patterns(scope.topic or ()))
        return _show(output, stores[-1], run_copy(sources, request, Work(jobs=1, progress=progress).effort(output)))


def _request(
    stores: list[str],
    scope: Scope,
    bounds: tuple[int | None, int | None],
    filters: Filters,
    reader: tuple[str | None, bool],
    changes: Changes,
) -> CopyRequest:
    from rmqtool.repairs.copy import CopyRequest

    group, unread = reader
    if len(stores) < 2:
        raise UsageError("where to? copy takes the stores to read and the new one", hint="rmqtool copy SRC DST")
    if unread != (group is not None):
        raise UsageError(
            "--unread and -g belong together", hint="-g GROUP --unread copies what the group has not consumed"
        )
    selection = select_messages(scope, bounds, filters)
    return CopyRequest(
        target=stores[-1],
        select=(lambda _store: selection) if group is None else partial(_unread, group, selection),
        purged=tuple(changes.purge or ()),
        salvage=changes.salvage,
        renumber=changes.renumber,
        redact=tuple(changes.redact or ()),
        store_host=changes.store_host(),
        ids=changes.ids,
    )


def _unread(group: str, selection: Selection, store: Store) -> Selection:
    return unread_by(store, group, selection)


def _open(path: str, broker: AsBroker) -> Source:
    from rmqtool.log.sources import open_source
    from rmqtool.store.open import open_store

    source = open_source(path, partial(open_store, version=broker.as_version, assignments=tuple(broker.conf or ())))
    if source.store is None or source.topic is not None or not source.directories:
        source.close()
        raise StoreError(f"{path} is no whole store", file=path, hint="name a storePathRootDir; -t and -q select")
    return source


def _show(output: Output, target: str, outcome: Outcome) -> Exit:
    from rmqtool.render.copy import copied_lines

    for text in outcome.notes:
        output.note(text)
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
    skipped = [
        (f"{damage.code} {store}/{damage.file}@{damage.file_offset}", damage.length, damage.message)
        for store, damage in outcome.damages
    ]
    output.single(shown, copied_lines(output, shown, skipped))
    return Exit.SKIPPED if outcome.damages else Exit.DONE
