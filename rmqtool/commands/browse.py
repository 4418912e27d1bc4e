"""``rmqtool browse``: see a store in a terminal."""

from __future__ import annotations

import sys
from shlex import quote
from typing import TYPE_CHECKING

from rmqtool.commands.options import AsBroker, Store, Zone
from rmqtool.commands.store_word import choose_store
from rmqtool.errors import Exit, OptionalMissing, UsageError
from rmqtool.times import parse_zone

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqtool.browse.explorer import Explorer


def browse(store: Store = None, *, broker: AsBroker, tz: Zone = "local") -> Exit:
    """See a store in a terminal: a tree of its parts, tables of messages, and files as bytes with names.

    Enter follows a reference, Backspace goes back; / searches, : goes to an offset or a time, f filters, d shows
    damage, y copies the command that prints the same; ? lists the keys. Only what is shown is read. The store is never
    changed, and a broker may be writing it meanwhile. It needs the extra browse.
    """
    path = choose_store([store] if store else []).store
    zone = parse_zone(tz)
    run = _load()
    from rmqtool.browse.explorer import Explorer

    explorer = Explorer(broker.store(path), zone)
    try:
        _require_terminal(path)
        run(explorer)
    finally:
        explorer.close()
    return Exit.DONE


def _require_terminal(path: str) -> None:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("browse needs a terminal for input and output", hint=f"rmqtool info {quote(path)}")


def _load() -> Callable[[Explorer], None]:
    try:
        from rmqtool.browse.screen import browse as run
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.partition(".")[0] != "textual":
            raise
        raise OptionalMissing("browse needs the extra browse", hint="pip install 'rmqtool[browse]'") from None
    return run
