"""``rmqtool consume``: messages as a group gets them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from rmqtool.commands.opening import choose_store, named_group
from rmqtool.commands.options import AsBroker, Group, Limit, Programs, Scope, Show, Store, Tag, Where
from rmqtool.errors import Exit, UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where consumption begins and ends."""

    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="first|last|OFFSET|TIME",
            help="Where to begin; with --commit only where the group has no progress.",
        ),
    ] = None
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Wait for more.")] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How the group consumes."""

    commit: Annotated[bool, typer.Option("--commit", help="Store the group's progress; takes the store's lock.")] = (
        False
    )
    members: Annotated[int, typer.Option("--members", metavar="N", min=1, help="Members of the group.")] = 1
    orderly: Annotated[bool, typer.Option("--orderly", help="Of each queue one message after the other.")] = False
    pop: Annotated[
        bool, typer.Option("--pop", help="Pop: out of sight for some time, and back unless consumed; takes the lock.")
    ] = False
    invisible: Annotated[
        str | None,
        typer.Option("--invisible", metavar="SPAN", help="For how long what is popped is out of sight: 60s."),
    ] = None
    broadcast: Annotated[
        bool, typer.Option("--broadcast", help="Each member gets all; progress is kept below ~/.rocketmq_offsets.")
    ] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What consumes the messages."""

    exec: Annotated[
        str | None,
        typer.Option("--exec", metavar="CMD", help="Run it for each message: the body is its input, RMQ_… its fields."),
    ] = None
    timeout: Annotated[
        str, typer.Option("--timeout", metavar="SPAN", help="A program that takes longer is killed, and has failed.")
    ] = "15m"


def consume(
    store: Store = None,
    *,
    scope: Scope,
    group: Group = None,
    place: Place,
    tag: Tag = None,
    where: Where = None,
    limit: Limit = None,
    way: Way,
    program: Program,
    jobs: Programs = None,
    broker: AsBroker,
    show: Show,
) -> Exit:
    """Show the messages that a group gets next; with --commit they are consumed, with --exec a program consumes them.

    Without --commit nothing is changed and no lock is needed: it works beside a broker. The group goes on where it is;
    a new one begins as a broker has it begin. A program that ends with 0 has consumed its message; with --commit one
    that fails gets it again later, and after the retries of the group it is a dead letter. With --commit the store
    belongs to this command while it runs: `produce` beside it is refused.
    """
    from rmqtool.broker.consumer.programs import check_program
    from rmqtool.commands.consuming import run
    from rmqtool.commands.popping import run_pop

    if way.commit or way.broadcast or way.pop:
        group = named_group(group)
    if tag is not None and where is not None:
        raise UsageError("a group subscribes by tag or by SQL, not by both", hint="in SQL a tag is TAGS = 'A'")
    path = choose_store([store] if store is not None else []).store
    filters = (tag, where)
    if way.invisible is not None and not way.pop:
        raise UsageError("--invisible is for messages that are popped", hint="add --pop")
    if program.exec is not None:
        check_program(program.exec)
    return (run_pop if way.pop else run)(
        path, scope, group or "", place, filters, limit, way, program, jobs, broker, show
    )
