"""``rmqtool recover``: rehearse a broker's next start."""

from __future__ import annotations

import os
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from rmqtool.commands.options import AsBroker, ProgressWhen, Show, When, Work
from rmqtool.commands.options import Store as StoreWord
from rmqtool.commands.store_word import choose_store
from rmqtool.errors import Exit, Refused, UsageError

if TYPE_CHECKING:
    from rmqtool.render.recover import Next


def recover(
    store: StoreWord = None,
    *,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="DIR", help="Write the store as that broker would leave it to a new directory."),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="TIME", help="End the log before the first message stored then or later."),
    ] = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="Recover the store with rmqtool's own rules, which keep all valid messages.")
    ] = False,
    progress: ProgressWhen = When.AUTO,
    broker: AsBroker,
    show: Show,
) -> Exit:
    """Rehearse what a broker would do at its next start, and what it would delete. Nothing is changed.

    The rehearsal runs in memory over the store: lock, load, recovery of queues and log, index, dispatch, stop. Exits 1
    if whole messages would be lost, or if the broker would not start.

    With --apply, rmqtool recovers the store with its own rules: it keeps every valid message, also after damage, cuts
    only a torn end, repairs queues, index and checkpoint, and writes nothing if nothing is wrong. This cannot be
    undone. Use it in scripts, after a crash without damage. Damage in the log stays. `repair` shows each step first,
    can undo it, and can overwrite damage.

    With --until, the log ends before the first message of that time. The screen counts the messages after it. --to DIR
    writes the shorter store. Records, offsets and ids stay the same. Groups begin at the end of shorter queues. Other
    settings stay.
    """
    path = choose_store([store] if store else []).store
    if until is not None:
        if apply:
            beside = f"rmqtool recover {quote(path)} --until {quote(until)} --to DIR"
            raise Refused("--apply with --until would delete messages, and that cannot be undone", hint=beside)
        return _earlier(path, until, to, broker, Work(progress=progress), show)
    if apply:
        return _apply(path, to, broker, Work(progress=progress), show)
    from rmqtool.api.recover import foretell
    from rmqtool.render.recover import recovery_lines

    with show.output() as output:
        found = foretell(broker.store(path), to=to)
        for note in found.notes:
            output.note(note)
        root = _as_typed(store, found.root)
        output.single(found.shown, recovery_lines(output, found.shown, root, _next_commands(root)))
        if to is not None:
            output.note(f"the store as that broker would leave it is in {to}")
    return found.status


def _apply(path: str, to: str | None, broker: AsBroker, work: Work, show: Show) -> Exit:
    from rmqtool.api.recover import mend
    from rmqtool.render.recover import recovered_lines

    if to is not None:
        raise UsageError(
            "--to and --apply exclude each other", hint="--to rehearses the broker, --apply uses rmqtool's own rules"
        )
    with show.output("Recovered") as output:
        done = mend(broker.store(path), progress=work.bar(output))
        output.single(done.shown, recovered_lines(output, done.shown, path))
        if done.missing is not None:
            raise done.missing
    return done.status


def _earlier(path: str, until: str, to: str | None, broker: AsBroker, work: Work, show: Show) -> Exit:
    from rmqtool.api.recover import earlier
    from rmqtool.render.recover import earlier_lines
    from rmqtool.times import now_ms, parse_time, parse_zone

    time = parse_time(until, now=now_ms(), zone=parse_zone(show.tz))
    with show.output(None if to is None else "Recovered") as output:
        done = earlier(broker.store(path), time, to=to, progress=work.bar(output))
        for note in done.notes:
            output.note(note)
        output.single(done.shown, earlier_lines(output, done.shown, path, until))
    return Exit.DONE


def _as_typed(word: str | None, root: str) -> str:
    """Return the root as a user in this directory would type it: relative, if STORE was relative and does not go up."""
    relative = os.path.relpath(root)
    return root if "://" in root or not word or os.path.isabs(word) or relative.startswith(".") else relative


def _next_commands(root: str) -> dict[Next, list[str]]:
    """Return the commands to type: plan a repair that keeps what a start would delete, copy, look closer, mount."""
    from rmqtool.render.recover import Next

    store = quote(root)
    return {
        Next.PLAN: [f"rmqtool repair {store}"],
        Next.COPY: [f"cp -a {store} {quote(root + '.kept')}", f"rmqtool check {store}"],
        Next.LOOK: [f"rmqtool check {store}"],
        Next.MOUNT: [f"findmnt --target {store}/commitlog"],
    }
