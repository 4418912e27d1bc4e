"""``rmqtool browse``: see a store in a terminal."""

from __future__ import annotations

import os
import sys
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from rmqtool.commands.options import BrokerOrCluster, Store, Zone, refuse_idle
from rmqtool.commands.store_word import choose_store
from rmqtool.errors import Exit, OptionalMissing, UsageError
from rmqtool.times import parse_zone

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import tzinfo

    from rmqtool.api.store import Place
    from rmqtool.browse.cluster_pages import Explorable


def browse(
    store: Store = None,
    *,
    html: Annotated[
        str | None, typer.Option("--html", metavar="FILE|DIR", help="Write a web page instead; DIR gets index.html.")
    ] = None,
    redact: Annotated[
        str | None, typer.Option("--redact", metavar="body,keys", help="Leave bodies, keys or both out of the page.")
    ] = None,
    broker: BrokerOrCluster,
    tz: Zone = "local",
) -> Exit:
    """See a store in a terminal: a tree of its parts, tables of messages, and files as bytes with names.

    Enter follows a reference, Backspace goes back; / searches, : goes to an offset or a time, f filters, d shows
    damage, y copies the command that prints the same; ? lists the keys. Only what is shown is read. The store is never
    changed, and a broker may be writing it meanwhile. It needs the extra browse. With --html it writes one page that
    loads nothing: overview, log map, findings with their bytes, and the newest 500 messages of each topic.
    """
    path = choose_store([store] if store else []).store
    zone = parse_zone(tz)
    if html is not None:
        return _write_page(broker, path, html, redact, zone)
    refuse_idle("browse without --html", {"--redact": redact}, "it leaves bodies and keys out of the page")
    run, explore = _load()
    explorer = explore(broker.place(path), zone)
    try:
        _require_terminal(path)
        run(explorer)
    finally:
        explorer.close()
    return Exit.DONE


def _write_page(broker: BrokerOrCluster, path: str, target: str, redact: str | None, zone: tzinfo | None) -> Exit:
    from rmqtool import __version__
    from rmqtool.api.browse import report
    from rmqtool.render.store_page import store_page
    from rmqtool.render.web_page import write_page

    file = os.path.join(target, "index.html") if os.path.isdir(target) or target.endswith("/") else target
    if os.path.realpath(file).startswith(os.path.realpath(path) + os.sep):
        raise UsageError(f"{file} is in the store, where browse writes nothing", hint="name a file outside it")
    made = report(broker.place(path), redact)
    if target.endswith("/"):
        os.makedirs(target, exist_ok=True)
    write_page(file, store_page(made, __version__, zone), "--html")
    return made.status


def _require_terminal(path: str) -> None:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("browse needs a terminal for input and output", hint=f"rmqtool info {quote(path)}")


def _load() -> tuple[Callable[[Explorable], None], Callable[[Place, tzinfo | None], Explorable]]:
    try:
        from rmqtool.browse.cluster_pages import explore
        from rmqtool.browse.screen import browse as run
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.partition(".")[0] != "textual":
            raise
        raise OptionalMissing("browse needs the extra browse", hint="pip install 'rmqtool[browse]'") from None
    return run, explore
