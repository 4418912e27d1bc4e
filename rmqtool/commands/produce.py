"""``rmqtool produce``: store messages."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from rmqtool.commands.options import (
    Delay,
    Group,
    OnError,
    Outcome,
    ProgressWhen,
    ShowAndRead,
    ToCluster,
    Topic,
    ToQueue,
    When,
    Work,
    store_and,
)
from rmqtool.commands.store_word import choose_store
from rmqtool.errors import Exit

if TYPE_CHECKING:
    from rmqtool.api.produce import Producing
    from rmqtool.render.output import Output


@dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    """The defaults of messages, their input, how they are sent, and when they are delivered."""

    tag: Annotated[str | None, typer.Option("--tag", metavar="TAG", help="The tag.", show_default=False)] = None
    key: Annotated[list[str] | None, typer.Option("--key", metavar="KEY", help="Add a key; repeatable.")] = None
    prop: Annotated[
        list[str] | None, typer.Option("-p", "--property", metavar="NAME=VALUE", help="Add a property; repeatable.")
    ] = None
    shard: Annotated[
        str | None, typer.Option("--shard", metavar="KEY", help="Sharding key: equal keys go to one queue.")
    ] = None
    file: Annotated[
        list[str] | None,
        typer.Option(
            "--file", metavar="FILE", help="Send the file as a body; with --jsonl or --csv, read messages from it."
        ),
    ] = None
    keep_ids: Annotated[bool, typer.Option("--keep-ids", help="Keep the unique keys that messages already have.")] = (
        False
    )
    on_error: OnError = None
    create: Annotated[bool, typer.Option("--create", help="Create a missing topic, as brokers do.")] = False
    batch: Annotated[int, typer.Option("--batch", metavar="N", min=1, help="Send messages in client batches of N.")] = 1
    rate: Annotated[
        int | None,
        typer.Option("--rate", metavar="N", min=1, help="Send at most N messages per second.", show_default=False),
    ] = None
    flush: Annotated[
        Literal["sync", "async"] | None,
        typer.Option("--flush", metavar="sync|async", help="Flush to disk after each message, or at the end."),
    ] = None
    delay: Delay = None
    at: Annotated[str | None, typer.Option("--at", metavar="TIME", help="Deliver at this time.")] = None
    tx: Outcome = None
    replay: Annotated[
        bool, typer.Option("--replay", help="Send the dead letters of group -g to their topics again.")
    ] = False


def produce(
    words: Annotated[
        list[str] | None,
        store_and("[BODY]...", "The store and message bodies; without bodies or with -, the lines of stdin."),
    ] = None,
    *,
    topic: Topic = None,
    queue: ToQueue = None,
    sending: Sending,
    group: Group = None,
    progress: ProgressWhen = When.AUTO,
    broker: ToCluster,
    show: ShowAndRead,
) -> Exit:
    """Store messages as a broker would, with ids, queue entries and index; a broker can take over at any time.

    With --jsonl each line of standard input is an object with topic and body, and optionally bodyEncoding, tags, keys,
    properties, queueId, flag, delayLevel, deliverAt, shardingKey; the output of `cat --jsonl` is valid input. With
    --csv the first line names such fields. Values in an object override the options, except --topic. produce only
    stores messages; `tick` delivers them when they are due. With --replay the lines are dead letters, edited or not:
    produce STORE --replay -g GROUP --jsonl FILE; without FILE those in the store are sent.
    """
    from rmqtool.api.produce import Given, producing
    from rmqtool.render.messages import STORED_FIELDS

    choice = choose_store(words or [], takes_words=True)
    how = {**asdict(sending), "topic": topic, "queue": queue, "group": group, "zone": show.tz, "obeys": True}
    how["retry_unknown"] = broker.retry_unknown
    how["keys"], how["properties"], files = how.pop("key"), how.pop("prop"), how.pop("file")
    with show.output(STORED_FIELDS) as output:
        given = Given(choice.words, files or (), "jsonl" if show.jsonl else "csv" if show.csv else "bodies")
        with producing(broker.place(choice.store), given, Work(progress=progress).bar(output), **how) as run:
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
