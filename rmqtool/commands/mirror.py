"""``rmqtool mirror``: a live copy of a broker's log."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer

from rmqtool.commands.options import CredentialsFile, Show, Tls
from rmqtool.errors import Exit


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """The range that is copied, and for how long."""

    begin: Annotated[
        str | None,
        typer.Option("--from", metavar="start|end|OFFSET", help="Begin a new mirror there; default: start."),
    ] = None
    ack: Annotated[
        str, typer.Option("--ack", metavar="never|durable", help="Acknowledge what is durable, or nothing.")
    ] = "durable"
    once: Annotated[bool, typer.Option("--once", help="Stop when everything is copied that is there now.")] = False
    config_every: Annotated[
        str, typer.Option("--config-every", metavar="SPAN", help="Copy topics, groups and offsets this often.")
    ] = "10s"
    keep: Annotated[
        str | None,
        typer.Option("--keep", metavar="SPAN", help="Delete segments whose messages are all older; default: never."),
    ] = None
    live: Annotated[bool, typer.Option("--live", help="Build queues and index while the log grows.")] = False
    credentials: CredentialsFile = None
    tls: Tls = False


def mirror(
    master: Annotated[
        str,
        typer.Argument(
            metavar="MASTER", help="rocketmq://NAMESERVER[/BROKER], or a broker's HOST:PORT.", show_default=False
        ),
    ],
    directory: Annotated[
        str, typer.Argument(metavar="DIR", help="A new directory, or that of a mirror.", show_default=False)
    ],
    *,
    way: Way,
    show: Show,
) -> Exit | int:
    """Copy a broker's log to disk while it grows, with topics, groups and offsets, as a slave does.

    DIR is a store with the files of the master's log, byte for byte. A mirror continues where it ended. It compares
    bytes before its end with the master's. It stops if they differ: the master lost messages, or was replaced. Nothing
    is overwritten. If the master has deleted missing bytes, the gap is shown and the exit status is 6.

    Only bytes that survive a power cut are acknowledged: a SYNC_MASTER counts the mirror as a slave. With --ack never
    it does not. One of 4.9 waits for it in vain. In controller mode bytes are stored once the in-sync set has them.
    SIGTERM or Ctrl-C ends the mirror, with all copied bytes on disk.
    """
    from rmqtool.api.mirror import run_mirror
    from rmqtool.render.mirror import MirrorLines

    how: dict[str, Any] = asdict(way)
    with show.output() as output:
        with MirrorLines(output) as lines:
            done, status = run_mirror(master, directory, told=lines.tell, **how)
        lines.end(done.line, directory, live=way.live)
    return status
