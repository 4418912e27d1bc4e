"""``rmqtool recover``: what a broker would do at its next start."""

from __future__ import annotations

import os
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from rmqtool.commands.new_directory import new_directory
from rmqtool.commands.opening import choose_store, whole_store
from rmqtool.commands.options import AsBroker, ProgressWhen, Show, When, Work
from rmqtool.commands.options import Store as StoreWord
from rmqtool.errors import Exit, Refused, UsageError

if TYPE_CHECKING:
    from rmqtool.render.output import Output
    from rmqtool.render.recover import Next
    from rmqtool.store.open import Store
    from rmqtool.upstream.rehearsal import Rehearsal


def recover(
    store: StoreWord = None,
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
    puts queues, index and checkpoint right, and writes nothing where nothing is wrong. It cannot be undone: `repair`
    shows the same steps first, and can take them back.
    """
    if apply:
        return _apply(store, to, broker, Work(progress=progress), show)
    from rmqtool.render.recover import recovery_lines
    from rmqtool.store.open import open_store
    from rmqtool.upstream.rehearsal import assumed, rehearse

    opened = open_store(_whole_store(store), version=broker.as_version, assignments=tuple(broker.conf or ()))
    root = _as_typed(store, opened.root)
    with show.output() as output, rehearse(opened, contents=to is not None) as rehearsal:
        outcome = rehearsal.run()
        _say_what_was_taken(output, opened, assumed(opened, outcome))
        shown = {**outcome.as_json(), "holes": _holes(opened)}
        output.single(shown, recovery_lines(output, shown, root, _next_commands(root)))
        if to is not None:
            _write(rehearsal, to)
            output.note(f"the store as that broker would leave it is in {to}")
    opened.close()
    return Exit.DONE if outcome.loses_nothing else Exit.NO


def _holes(store: Store) -> list[dict[str, int]]:
    """Return the stretches of the log that no file holds."""
    gaps = store.commit_log.gaps()
    return [{"offset": gap.start_offset, "length": gap.end_offset - gap.start_offset} for gap in gaps]


def _apply(store: str | None, to: str | None, broker: AsBroker, work: Work, show: Show) -> Exit:
    from rmqtool.commands.recover_apply import apply_recovery

    if to is not None:
        raise UsageError(
            "--to and --apply exclude each other", hint="--to writes what a broker would do, --apply does better"
        )
    return apply_recovery(_whole_store(store), broker, work, show)


def _whole_store(word: str | None) -> str:
    return whole_store(choose_store([word] if word else []).store, "recover", "a broker starts on a whole store")


def _as_typed(word: str | None, root: str) -> str:
    """Return the store's root as a person in this directory types it: relative, where STORE was and leads downwards."""
    relative = os.path.relpath(root)
    return root if not word or os.path.isabs(word) or relative.startswith(".") else relative


def _next_commands(root: str) -> dict[Next, list[str]]:
    """Return what to type: to plan what keeps what a start would destroy, to keep a copy, to look closer, to mount."""
    from rmqtool.formats.paths import COMMIT_LOG
    from rmqtool.render.recover import Next

    store = quote(root)
    return {
        Next.PLAN: [f"rmqtool repair {store}"],
        Next.COPY: [f"cp -a {store} {quote(root + '.kept')}", f"rmqtool check {store}"],
        Next.LOOK: [f"rmqtool check {store}"],
        Next.MOUNT: [f"findmnt --target {store}/{COMMIT_LOG}"],
    }


def _say_what_was_taken(output: Output, store: Store, by_default: dict[str, object]) -> None:
    """Say which broker and sizes the answer is about, where nobody stated them."""
    from rmqtool.formats.paths import CONSUME_QUEUE_EXT, LOCK

    if store.version_reason != "as asked":
        output.note(f"as a {store.version} broker ({store.version_reason}); --as asks for another")
    if not store.filesystem.is_directory(LOCK) and store.filesystem.lock_state().held:
        output.note("a broker is running on this store: this is what a start on what is on disk now would do")
    if store.filesystem.is_directory(CONSUME_QUEUE_EXT):
        output.note(
            f"{CONSUME_QUEUE_EXT}/ is left as it is here: what a start does to queue extensions is not modelled"
        )
    for gap in store.commit_log.gaps():
        span = f"from {gap.start_offset} to {gap.end_offset}"
        output.note(f"the log has a hole {span}: what stood there is gone already, and rmqtool check tells how much")
    for name, value in by_default.items():
        output.note(f"no file shows {name}: {value} is taken; --conf {name}=... states it")


def _write(rehearsal: Rehearsal, target: str) -> None:
    from rmqtool.files.posix_write import PosixWritableFileSystem

    if os.path.exists(target) and (not os.path.isdir(target) or os.listdir(target)):
        raise Refused(
            f"{target} exists and is not empty", file=target, hint="name a directory that is empty or not there yet"
        )
    with new_directory(target), PosixWritableFileSystem(target) as filesystem:
        rehearsal.overlay.write_to(filesystem)
