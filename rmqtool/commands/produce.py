"""``rmqtool produce``: messages into a store."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import typer

from rmqtool.commands.opening import choose_store
from rmqtool.commands.options import AsBroker, Group, ProgressWhen, ShowAndRead, Topic, ToQueue, When, store_and
from rmqtool.errors import Exit, UsageError


class Flush(StrEnum):
    """When a message counts as stored."""

    SYNC = "sync"
    ASYNC = "async"


class OnError(StrEnum):
    """What to do about input that is no message."""

    SKIP = "skip"
    STOP = "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """What every message carries."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """Where messages come from."""

    file: Annotated[
        list[str] | None,
        typer.Option("--file", metavar="FILE", help="A file is a body; with --jsonl and --csv it is read instead."),
    ] = None
    keep_ids: Annotated[bool, typer.Option("--keep-ids", help="Keep the unique keys of messages that have one.")] = (
        False
    )
    on_error: Annotated[
        OnError | None,
        typer.Option("--on-error", metavar="skip|stop", help="What to do about input that is no message: stop."),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    """How messages are sent."""

    create: Annotated[bool, typer.Option("--create", help="Make a topic that is not there, as brokers do.")] = False
    batch: Annotated[int, typer.Option("--batch", metavar="N", min=1, help="Send N messages as a client's batch.")] = 1
    rate: Annotated[
        int | None, typer.Option("--rate", metavar="N", min=1, help="At most N messages a second.", show_default=False)
    ] = None
    flush: Annotated[
        Flush | None, typer.Option("--flush", metavar="sync|async", help="Wait for the disk each time, or at the end.")
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Later:
    """When messages are delivered, and whether they are transactions."""

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
    marks: Marks,
    source: Input,
    sending: Sending,
    later: Later,
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
    from rmqtool.commands.producing import later_of, open_input, run, wanted_of

    choice = choose_store(words or [], takes_words=True)
    if choice.words and source.file:
        raise UsageError("bodies are given as words or as files, not as both", hint="run the command once for each")
    wanted = wanted_of(topic, queue, marks, keeps_ids=source.keep_ids)
    given = open_input(choice.words, source.file or [], wanted, show)
    when = later_of(later, group, show.tz, sending.batch)
    return run(choice.store, given, sending, when, source.on_error, progress, broker, show)
