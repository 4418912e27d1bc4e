"""``rmqtool recover``: what a broker would do at its next start."""

from __future__ import annotations

import os
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from rmqtool.commands.opening import choose_store
from rmqtool.commands.options import AsBroker, Show
from rmqtool.commands.options import Store as StoreWord
from rmqtool.errors import Exit, Refused, WriteFailed

if TYPE_CHECKING:
    from rmqtool.render.output import Output
    from rmqtool.storage.store import Store
    from rmqtool.upstream.rehearsal import Rehearsal


def recover(
    store: StoreWord = None,
    *,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="DIR", help="Write the store as that broker would leave it into a new directory."),
    ] = None,
    broker: AsBroker,
    show: Show,
) -> Exit:
    """Show what a broker would do to the store at its next start, and what it would destroy. Nothing is changed.

    The start is rehearsed over an overlay: lock, load, recovery of queues and log, index, dispatch, stop. Exits 1 when
    whole messages would be lost, or the broker would not come up.
    """
    from rmqtool.render.recovery import recovery_lines
    from rmqtool.storage.store import open_store
    from rmqtool.upstream.of_store import assumed, rehearse

    choice = choose_store([store] if store else [])
    opened = open_store(choice.store, version=broker.as_version, assignments=tuple(broker.conf or ()))
    with show.output() as output, rehearse(opened, contents=to is not None) as rehearsal:
        outcome = rehearsal.run()
        _say_what_was_taken(output, opened, assumed(opened, outcome))
        shown = outcome.as_json()
        output.single(shown, recovery_lines(output, shown, choice.store, *_next_commands(choice.store)))
        if to is not None:
            _write(rehearsal, to)
            output.note(f"the store as that broker would leave it is in {to}")
    opened.close()
    return Exit.DONE if outcome.loses_nothing else Exit.NO


def _next_commands(store: str) -> tuple[str, str]:
    """Return the command that keeps what a broker's start would destroy, and the one that looks closer."""
    root = store.rstrip("/") or "/"
    return f"cp -a {quote(root)} {quote(root + '.kept')}", f"rmqtool check {quote(root)}"


def _say_what_was_taken(output: Output, store: Store, by_default: dict[str, object]) -> None:
    """Say which broker and sizes the answer is about, where nobody stated them."""
    from rmqtool.formats.paths import LOCK

    if store.version_reason != "as asked":
        output.note(f"as a {store.version} broker ({store.version_reason}); --as asks for another")
    if not store.filesystem.is_directory(LOCK) and store.filesystem.lock_state().held:
        output.note("a broker is running on this store: this is what a start on what is on disk now would do")
    for name, value in by_default.items():
        output.note(f"no file shows {name}: {value} is taken; --conf {name}=... states it")


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
