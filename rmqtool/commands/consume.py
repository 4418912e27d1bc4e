"""``rmqtool consume``: read messages as a consumer group."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rmqtool.commands.options import BrokerOrCluster, Group, Limit, Programs, Scope, Show, Store, Tag, Where, Work
from rmqtool.commands.store_word import choose_store
from rmqtool.errors import Exit

if TYPE_CHECKING:
    from rmqtool.api.consume import Consuming
    from rmqtool.render.output import Output


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """Which messages a group gets, how it consumes them, and the program for them."""

    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="first|last|OFFSET|TIME",
            help="Where to begin; with --commit: if the group has no committed offset.",
        ),
    ] = None
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Wait for new messages.")] = False
    tag: Tag = None
    where: Where = None
    limit: Limit = None
    commit: Annotated[bool, typer.Option("--commit", help="Commit the group's offsets; takes the store's lock.")] = (
        False
    )
    members: Annotated[int, typer.Option("--members", metavar="N", min=1, help="Number of members in the group.")] = 1
    orderly: Annotated[bool, typer.Option("--orderly", help="Consume each queue strictly in order.")] = False
    pop: Annotated[
        bool,
        typer.Option(
            "--pop", help="Pop messages: hidden for --invisible, redelivered unless acked; of files takes the lock."
        ),
    ] = False
    invisible: Annotated[
        str | None,
        typer.Option("--invisible", metavar="SPAN", help="How long popped messages stay hidden: 60s."),
    ] = None
    broadcast: Annotated[
        bool, typer.Option("--broadcast", help="Give every member all messages; keep offsets in ~/.rocketmq_offsets.")
    ] = False
    dlq: Annotated[bool, typer.Option("--dlq", help="Show the dead letters of the group; nothing is consumed.")] = False
    exec: Annotated[
        str | None,
        typer.Option("--exec", metavar="CMD", help="Run a program per message: body on stdin, fields in RMQ_…"),
    ] = None
    timeout: Annotated[
        str, typer.Option("--timeout", metavar="SPAN", help="Kill a program that takes longer; the message has failed.")
    ] = "15m"


def consume(
    store: Store = None,
    *,
    scope: Scope,
    group: Group = None,
    way: Way,
    jobs: Programs = None,
    broker: BrokerOrCluster,
    show: Show,
) -> Exit:
    """Show the messages that a group gets next; with --commit consume them, with --exec run a program for each.

    Name a group (-g; `rmqtool info STORE groups` lists them), a topic (-t), or both. Without --commit nothing is
    changed and no lock is needed, so it works next to a running broker. The group continues from its committed offsets;
    a new group starts where a broker would start it. A program that exits with 0 has consumed its message. With
    --commit, a failed message is delivered again later, and after the retries of the group it becomes a dead letter.
    With --commit this command holds the lock of the store while it runs, so `produce` is refused meanwhile. On a live
    cluster, and on a store that `serve` holds, it is a member of the group among others.
    """
    from rmqtool.api.cat import Form
    from rmqtool.api.consume import consuming
    from rmqtool.api.shapes import MESSAGE_FIELDS
    from rmqtool.render.messages import consumed_fields

    path = choose_store([store] if store is not None else []).store
    asked = {**scope.asked(), "tags": way.tag, "where": way.where}
    how: Any = {name: value for name, value in asdict(way).items() if name not in ("tag", "where")}
    fields = consumed_fields(MESSAGE_FIELDS, members=way.members, pops=way.pop, executes=way.exec is not None)
    with show.output(fields) as output:
        lines = output.look.mode in ("json", "jsonl")
        how |= {"zone": show.tz, "obeys": True, "programs": jobs, "shows": not output.is_human}
        how["form"] = Form.LINES if lines else Form.OBJECTS
        work = Work(jobs=jobs).asked(output) if lines else None
        with consuming(broker.place(path), group or "", how, work, **asked) as found:
            _show(output, found, fields)
    return found.status


def _show(output: Output, found: Consuming, fields: tuple[str, ...]) -> None:
    from rmqtool.api.cat import flag_words
    from rmqtool.render.messages import show_messages

    show_messages(output, found, fields, flag_words, "text")
