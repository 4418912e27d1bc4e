"""``rmqtool recover``: what a broker would do at its next start."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rmqtool.commands.opening import choose_store
from rmqtool.commands.options import AsBroker, ProgressWhen, Show, Store, When, Work
from rmqtool.errors import Exit, Refused, UsageError, WriteFailed

if TYPE_CHECKING:
    from rmqtool.upstream.outcome import StartOutcome
    from rmqtool.upstream.rehearsal import Rehearsal


def recover(
    store: Store = None,
    *,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="DIR", help="Write the store as that broker would leave it into a new directory."),
    ] = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="Make the store whole ourselves: no valid message is lost by it.")
    ] = False,
    progress: ProgressWhen = When.AUTO,
    broker: AsBroker,
    show: Show,
) -> Exit:
    """Show what a broker would do to the store at its next start, and what it would destroy. Nothing is changed.

    The start is rehearsed over an overlay: lock, load, recovery of queues and log, index, dispatch, stop. Exits 1 when
    whole messages would be lost, or the broker would not come up.

    With --apply our own recovery does better: it keeps every valid message, also behind damage, cuts only a torn end,
    puts queues, index and checkpoint right, and writes nothing where nothing is wrong.
    """
    if apply:
        return _apply(store, to, broker, Work(progress=progress), show)
    from rmqtool.render.recovery import recovery_lines
    from rmqtool.storage.store import open_store
    from rmqtool.upstream.of_store import rehearse

    choice = choose_store([store] if store else [])
    opened = open_store(choice.store, version=broker.as_version, assignments=tuple(broker.conf or ()))
    with show.output() as output, rehearse(opened, contents=to is not None) as rehearsal:
        outcome = rehearsal.run()
        shown = outcome.as_json()
        output.single(shown, recovery_lines(output, shown, _lost(outcome), _rewinds(outcome), choice.store))
        if to is not None:
            _write(rehearsal, to)
            output.note(f"the store as that broker would leave it is in {to}")
    opened.close()
    return Exit.DONE if outcome.loads and outcome.starts is True and not outcome.messages_lost else Exit.NO


def _apply(store: str | None, to: str | None, broker: AsBroker, work: Work, show: Show) -> Exit:
    from rmqtool.commands.recover_apply import apply_recovery

    if to is not None:
        raise UsageError("--to writes what a broker would do, --apply does better: only one of them")
    return apply_recovery(choose_store([store] if store else []).store, broker, work, show)


def _lost(outcome: StartOutcome) -> list[dict[str, Any]]:
    return [
        {
            "topic": part.topic,
            "messages": part.messages,
            "firstStoreTimestamp": part.first_store_timestamp,
            "lastStoreTimestamp": part.last_store_timestamp,
        }
        for part in outcome.lost
    ]


def _rewinds(outcome: StartOutcome) -> list[dict[str, Any]]:
    return [
        {"topic": queue.topic, "queueId": queue.queue_id, "before": queue.max_offset_before, "after": queue.max_offset}
        for queue in outcome.queues or ()
        if queue.max_offset_before is not None and queue.max_offset < queue.max_offset_before
    ]


def _write(rehearsal: Rehearsal, target: str) -> None:
    from rmqtool.storage.posix_write import PosixWritableFileSystem

    if os.path.exists(target) and (not os.path.isdir(target) or os.listdir(target)):
        raise Refused(f"{target} exists and is not empty", file=target, hint="name a new directory")
    try:
        os.makedirs(target, exist_ok=True)
    except OSError as error:
        raise WriteFailed(f"{target} cannot be made: {error.strerror}", file=target) from error
    with PosixWritableFileSystem(target) as filesystem:
        rehearsal.overlay.write_to(filesystem)
