"""``rmqtool serve``: a name server and a broker over a store."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rmqtool.commands.options import AsBroker, Show, Store
from rmqtool.commands.store_word import choose_store
from rmqtool.errors import Exit

if TYPE_CHECKING:
    from rmqtool.render.output import Output


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """Where clients come, and for how long."""

    memory: Annotated[
        bool, typer.Option("--memory", help="Serve a new store that is deleted at the end; leave out STORE.")
    ] = False
    read_only: Annotated[bool, typer.Option("--read-only", help="Write nothing into STORE; refuse producers.")] = False
    state: Annotated[
        str | None,
        typer.Option("--state", metavar="DIR", help="Keep progress here: STORE-rmqtool-state."),
    ] = None
    listen: Annotated[
        str | None,
        typer.Option(
            "--listen", metavar="HOST:PORT", help="Address of the broker: 127.0.0.1:10911; port 0: a free one."
        ),
    ] = None
    names: Annotated[
        str | None, typer.Option("--names", metavar="HOST:PORT", help="Address of the name server: 127.0.0.1:9876.")
    ] = None
    slaves: Annotated[
        str | None,
        typer.Option("--slaves", metavar="HOST:PORT", help="Let slaves and mirrors copy the log from this address."),
    ] = None
    advertise: Annotated[
        str | None,
        typer.Option("--advertise", metavar="HOST[:PORT]", help="Address that clients get for the broker."),
    ] = None
    acl: Annotated[
        str | None,
        typer.Option("--acl", metavar="FILE", help="Accounts: plain_acl.yml, or users and acls as JSON."),
    ] = None
    tls: Annotated[
        str | None,
        typer.Option("--tls", metavar="CERT,KEY", help="Take TLS connections too, with this certificate (PEM)."),
    ] = None
    tls_only: Annotated[bool, typer.Option("--tls-only", help="Refuse connections without TLS.")] = False
    allow: Annotated[
        str | None,
        typer.Option("--allow", metavar="LIST", help="open: other machines; admin: requests that delete."),
    ] = None
    limits: Annotated[
        list[str] | None,
        typer.Option("--limit", metavar="NAME=N", help="Set a limit, as in connections=2000; repeatable."),
    ] = None
    check: Annotated[
        str | None,
        typer.Option("--check", metavar="CMD", help="Decide open transactions: 0 commits, 1 rolls back."),
    ] = None
    exec: Annotated[
        str | None,
        typer.Option("--exec", metavar="CMD", help="Run a command with NAMESRV_ADDR set; exit with its status."),
    ] = None
    duration: Annotated[str | None, typer.Option("--for", metavar="SPAN", help="Stop after this time: 10m.")] = None


def serve(
    store: Store = None,
    *,
    way: Way,
    broker: AsBroker,
    show: Show,
) -> Exit | int:
    """Serve a store to RocketMQ clients: a name server and a broker in one process.

    Clients of 4.x and 5.x connect to the name server's address. While it runs, this command holds the lock of the
    store; SIGTERM or Ctrl-C ends it and closes the store. With --memory the store is new, and deleted at the end. With
    --exec the ports are free ones, and the command finds the name server in NAMESRV_ADDR and ROCKETMQ_NAMESRV.
    With --read-only nothing reaches the disk of the store. Consumers get what can be read. A terminal shows clients,
    topics, rates and lag. `produce`, `consume`, `topic` and `group` on a store that is served go through its server.
    """
    from rmqtool.api.serve import run_server
    from rmqtool.render.serve import ServeScreen, event_line

    path = None if way.memory and store is None else choose_store([store] if store else []).store
    place = None if path is None else broker.store(path)
    how: dict[str, Any] = asdict(way)
    if place is None:
        how |= {"version": broker.as_version, "conf": broker.conf}
    with show.output() as output:
        if output.is_human and way.exec is None and not output.look.quiet and sys.stdout.isatty():
            with ServeScreen() as screen:
                return run_server(place, lambda event: screen.tell(event, event_line(event)), watch=screen.show, **how)
        return run_server(place, lambda event: _tell(output, event, aside=way.exec is not None), **how)


def _tell(output: Output, event: Mapping[str, Any], *, aside: bool) -> None:
    """Show that clients may connect, and what happens; beside a command everything goes to stderr."""
    from rmqtool.render.serve import event_line

    if aside:
        if output.look.quiet:
            return
        sys.stderr.write(event_line(event) + "\n")
        sys.stderr.flush()
        return
    output.aside(event, event_line(event))
    output.flush()
