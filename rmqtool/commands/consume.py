"""``rmqtool consume``: messages as a group gets them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rmqtool.commands.options import AsBroker, Group, Limit, Programs, Scope, Show, Store, Tag, Where, Work
from rmqtool.commands.store_word import choose_store
from rmqtool.errors import Exit

if TYPE_CHECKING:
    from rmqtool.api.consume import Consuming
    from rmqtool.render.output import Output


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """Which messages a group gets, how it consumes them, and what program does."""

    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="first|last|OFFSET|TIME",
            help="Where to begin; with --commit only where the group has no progress.",
        ),
    ] = None
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Wait for more.")] = False
    tag: Tag = None
    where: Where = None
    limit: Limit = None
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
    way: Way,
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
    from rmqtool.api.cat import Form
    from rmqtool.api.consume import consuming

    path = choose_store([store] if store is not None else []).store
    asked = {**scope.asked(), "tags": way.tag, "where": way.where}
    with show.output() as output:
        lines = output.look.mode in ("json", "jsonl")
        how: Any = {name: value for name, value in asdict(way).items() if name not in ("tag", "where")}
        how |= {"zone": show.tz, "obeys": True, "programs": jobs, "shows": not output.is_human}
        how["form"] = Form.LINES if lines else Form.OBJECTS
        work = Work(jobs=jobs).asked(output) if lines else None
        with consuming(broker.store(path), group or "", how, work, **asked) as found:
            _show(output, found)
    return found.status


def _show(output: Output, found: Consuming) -> None:
    from rmqtool.api.cat import flag_words
    from rmqtool.render.messages import show_messages

    show_messages(output, found, found.fields, flag_words, "text")
