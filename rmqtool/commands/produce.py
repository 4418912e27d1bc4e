"""``rmqtool produce``: messages into a store."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from rmqtool.commands.options import AsBroker, Group, ProgressWhen, ShowAndRead, Topic, ToQueue, When, Work, store_and
from rmqtool.commands.store_word import choose_store
from rmqtool.errors import Exit

if TYPE_CHECKING:
    from rmqtool.api.produce import Producing
    from rmqtool.render.output import Output


@dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    """What every message carries, where messages come from, how they are sent, and when they are delivered."""

    tag: Annotated[str | None, typer.Option("--tag", metavar="TAG", help="The tag.", show_default=False)] = None
    key: Annotated[list[str] | None, typer.Option("--key", metavar="KEY", help="A key to be found by; repeatable.")] = (
        None
    )
    prop: Annotated[
        list[str] | None, typer.Option("-p", "--property", metavar="NAME=VALUE", help="A property; repeatable.")
    ] = None
    shard: Annotated[
        str | None, typer.Option("--shard", metavar="KEY", help="The sharding key: one queue for equal keys.")
    ] = None
    file: Annotated[
        list[str] | None,
        typer.Option("--file", metavar="FILE", help="A file is a body; with --jsonl and --csv it is read instead."),
    ] = None
    keep_ids: Annotated[bool, typer.Option("--keep-ids", help="Keep the unique keys of messages that have one.")] = (
        False
    )
    on_error: Annotated[
        Literal["skip", "stop"] | None,
        typer.Option("--on-error", metavar="skip|stop", help="What to do about input that is no message: stop."),
    ] = None
    create: Annotated[bool, typer.Option("--create", help="Make a topic that is not there, as brokers do.")] = False
    batch: Annotated[int, typer.Option("--batch", metavar="N", min=1, help="Send N messages as a client's batch.")] = 1
    rate: Annotated[
        int | None, typer.Option("--rate", metavar="N", min=1, help="At most N messages a second.", show_default=False)
    ] = None
    flush: Annotated[
        Literal["sync", "async"] | None,
        typer.Option("--flush", metavar="sync|async", help="Wait for the disk each time, or at the end."),
    ] = None
    delay: Annotated[
        str | None,
        typer.Option("--delay", metavar="LEVEL|SPAN", help="Deliver after a delay: its level, or as long as 90s, 2h."),
    ] = None
    at: Annotated[str | None, typer.Option("--at", metavar="TIME", help="Deliver at this time.")] = None
    tx: Annotated[
        str | None,
        typer.Option(
            "--tx",
            metavar="commit|rollback|pending",
            help="Send as a transaction of the group -g: decide it, or leave it to the check.",
        ),
    ] = None


def produce(
    words: Annotated[
        list[str] | None,
        store_and("[BODY]...", "The store, and bodies; with - or none the lines of standard input."),
    ] = None,
    *,
    topic: Topic = None,
    queue: ToQueue = None,
    sending: Sending,
    group: Group = None,
    progress: ProgressWhen = When.AUTO,
    broker: AsBroker,
    show: ShowAndRead,
) -> Exit:
    """Store messages as a broker would: with ids, queues and index, so that it can take over at any moment.

    With --jsonl the lines of standard input are objects with topic and body, and optionally bodyEncoding, tags, keys,
    properties, queueId, flag, delayLevel, deliverAt, shardingKey: what `cat --jsonl` prints is valid input. With --csv
    the first line names such members. What an object says goes before the options, but for --topic: messages go to that
    topic. Nothing else happens in the store: what is due there is delivered by `tick`.
    """
    from rmqtool.api.produce import Given, producing

    choice = choose_store(words or [], takes_words=True)
    how = {**asdict(sending), "topic": topic, "queue": queue, "group": group, "zone": show.tz, "obeys": True}
    how["keys"], how["properties"], files = how.pop("key"), how.pop("prop"), how.pop("file")
    given = Given(choice.words, files or (), "jsonl" if show.jsonl else "csv" if show.csv else "bodies")
    with show.output() as output:
        bar = Work(progress=progress).bar(output)
        with producing(broker.store(choice.store), given, bar, **how) as run:
            _show(output, run)
    return run.end()


def _show(output: Output, run: Producing) -> None:
    from rmqtool.render.messages import show_sent

    for note in run.notes:
        output.note(note)
    for event in run:
        if isinstance(event, str):
            output.note(event)
        else:
            show_sent(output, event)
            output.flush()
