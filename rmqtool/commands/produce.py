"""``rmqtool produce``: messages into a store."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rmqtool.commands.opening import choose_store
from rmqtool.commands.options import AsBroker, Queue, Show, Topic, store_and
from rmqtool.errors import Exit, UsageError

if TYPE_CHECKING:
    from rmqtool.broker.producing import Produced
    from rmqtool.broker.saved_text import SavedText
    from rmqtool.engine.message import NewMessage
    from rmqtool.engine.store import MessageStore
    from rmqtool.render.output import Output

# So many messages are stored before their lines are shown.
_AT_ONCE = 1000


class Flush(StrEnum):
    """When a message counts as stored."""

    SYNC = "sync"
    ASYNC = "async"


def produce(
    words: Annotated[
        list[str] | None, store_and("[BODY]...", "The store, and bodies; without any the lines of standard input.")
    ] = None,
    *,
    topic: Topic = None,
    queue: Queue = None,
    tag: Annotated[str | None, typer.Option("--tag", metavar="TAG", help="The tag.", show_default=False)] = None,
    key: Annotated[
        list[str] | None, typer.Option("--key", metavar="KEY", help="A key to be found by; repeatable.")
    ] = None,
    flush: Annotated[
        Flush | None, typer.Option("--flush", metavar="sync|async", help="Wait for the disk each time, or at the end.")
    ] = None,
    create: Annotated[bool, typer.Option("--create", help="Make a topic that is not there, as brokers do.")] = False,
    broker: AsBroker,
    show: Show,
) -> Exit:
    """Store messages as a broker would: with ids, queues and index, so that it can take over at any moment.

    With --jsonl the lines of standard input are objects with topic and body, and optionally bodyEncoding, tags, keys,
    properties, queueId, flag, delayLevel, deliverAt, shardingKey: what `cat --jsonl` prints is valid input.
    """
    from rmqtool.broker.producing import open_producer
    from rmqtool.storage.store import open_store

    choice = choose_store(words or [], takes_words=True)
    given = {"topic": topic, "queueId": queue, "tags": tag, "keys": " ".join(key) if key else None}
    assignments = [f"flushDiskType={flush.value.upper()}_FLUSH"] if flush else []
    with open_store(
        choice.store, version=broker.as_version, assignments=(*assignments, *(broker.conf or ()))
    ) as opened:
        root, config = opened.root, opened.config
    messages = _messages(choice.words, show, given)
    with show.output() as output, open_producer(root, config, _text_of, creates=create) as producer:
        while chunk := list(islice(messages, _AT_ONCE)):
            _show(output, producer.send(chunk))
    if producer.failed:
        return Exit.WRITE_FAILED
    return Exit.SKIPPED if producer.refused else Exit.DONE


def _text_of(store: MessageStore, name: str) -> SavedText:
    """Return a configuration file of a store."""
    from rmqtool.storage.config_writer import config_text

    return config_text(store.setup.files, name)


def _messages(words: tuple[str, ...], show: Show, given: dict[str, Any]) -> Iterator[NewMessage]:
    """Yield the messages of the command line or of standard input; what an object says goes before the options."""
    from rmqtool.broker.message_lines import message_of

    known = {name: value for name, value in given.items() if value is not None}
    for number, value in enumerate(_values(words, show), 1):
        try:
            yield message_of({**known, **value} if isinstance(value, dict) else value)
        except UsageError as error:
            where = f"line {number}: " if not words else ""
            raise UsageError(f"{where}{error.message}", hint=error.hint) from None


def _values(words: tuple[str, ...], show: Show) -> Iterator[object]:
    if words:
        yield from ({"body": word} for word in words)
        return
    for number, line in enumerate(_lines(), 1):
        if not show.jsonl:
            yield {"body": line}
        elif line.strip():
            try:
                yield json.loads(line)
            except ValueError as error:
                raise UsageError(f"line {number} is no JSON: {error}") from None


def _lines() -> Iterable[str]:
    """Yield the lines of standard input without their ends; bytes that are no UTF-8 come out as they went in."""
    for raw in sys.stdin.buffer:
        yield raw.rstrip(b"\r\n").decode("utf-8", "surrogateescape")


def _show(output: Output, produced: Iterable[Produced]) -> None:
    from rmqtool.broker.producing import FIELDS

    output.rows((one.as_json() for one in produced), FIELDS, _screen)


def _screen(row: Any) -> Iterable[str]:
    if row["commitLogOffset"] < 0:
        return (f"{row['topic']}: {row['status']}",)
    return (f"{row['topic']}/{row['queueId']}@{row['queueOffset']}  {row['msgId']}",)
