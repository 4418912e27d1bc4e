"""The question "which messages" as keywords; times may be given as people or programs have them.

Also the notes that a store has about such a question: there is no such topic, no message matched. And a message that
``put`` gets as a dictionary.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from difflib import get_close_matches
from shlex import quote
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from rmqtool.errors import Exit, NotFound, UsageError

if TYPE_CHECKING:
    from rmqtool.engine.message import NewMessage
    from rmqtool.filters.wanted import Wanted
    from rmqtool.log.ranges import Effort
    from rmqtool.log.select import Selection
    from rmqtool.progress import Progress
    from rmqtool.store.open import Store

# Epoch milliseconds, a datetime with its zone, or a text as --begin takes it: "2026-08-23T15:00", "-2h".
Time = int | datetime | str
Json = dict[str, Any]


class Which(TypedDict, total=False):
    """Which messages: the common options of the commands. Times are store times, half-open."""

    topics: str | Sequence[str] | None
    queue: int | None
    begin: Time | None
    end: Time | None
    tags: str | None
    key: str | None
    where: str | None


class Where(TypedDict, total=False):
    """Which messages, by place and store time only: for verbs that cannot look into messages."""

    topics: str | Sequence[str] | None
    queue: int | None
    begin: Time | None
    end: Time | None


_WHICH = tuple(Which.__annotations__)
WHERE = tuple(Where.__annotations__)
# Names that other tools, or the command line, use for a keyword.
_MEANT = {
    "topic": "topics",
    "tag": "tags",
    "keys": "key",
    "since": "begin",
    "start": "begin",
    "until": "end",
    "queue_id": "queue",
    "queueId": "queue",
    "n": "limit",
    "body_encoding": "bodyEncoding",
    "delay": "delayLevel",
    "deliver_at": "deliverAt",
    "sharding_key": "shardingKey",
    # Of clients for Kafka.
    "auto_offset_reset": "start",
    "group_id": "group",
    "client_id": "group",
    "headers": "properties",
    "max_poll_records": "prefetch",
    "consumer_timeout_ms": "timeout",
    "partition_assignment_strategy": "strategy",
    "bootstrap_servers": "address",
    "value": "body",
    "payload": "body",
    "key": "sharding_key",
    "timeout_ms": "timeout",
    "max_records": "max_messages",
    "num_messages": "max_messages",
    "partition": "queue",
    "partitions": "queues",
    "num_partitions": "queues",
    "request_timeout_ms": "timeout",
    "security_protocol": "tls",
    "ssl_context": "tls",
    "sasl_plain_username": "credentials",
    "username": "credentials",
}


def wanted_of(which: Mapping[str, Any], **more: Any) -> Wanted:
    """Return the question that keywords ask."""
    from rmqtool.filters.wanted import want

    times = {name: milliseconds(which[name]) for name in ("begin", "end") if name in which}
    return want(**{**which, **times, **more})


def milliseconds(time: Time | None) -> int | None:
    """Return a time in epoch milliseconds."""
    from rmqtool.times import now_ms, parse_time

    if isinstance(time, str):
        return parse_time(time, now=now_ms())
    if isinstance(time, datetime):
        if time.tzinfo is None:
            raise UsageError(f"{time} has no time zone", hint="datetime(..., tzinfo=UTC)")
        return round(time.timestamp() * 1000)
    if time is None or (isinstance(time, int) and not isinstance(time, bool)):
        return time
    raise TypeError(f"a time is epoch milliseconds, a datetime or a text, not {time!r}")


def require_known(function: str, given: Mapping[str, Any], known: Sequence[str] = _WHICH) -> None:
    """Raise TypeError for an unknown keyword, and suggest the nearest one."""
    for name in given:
        if name not in known:
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}{meant(name, known)}")


def meant(name: str, known: Sequence[str]) -> str:
    """Return the end of an error about an unknown name: the nearest known one, or all of them."""
    near = _MEANT.get(name)
    if near not in known:
        near = next(iter(get_close_matches(name, known, n=1)), None)
    return f"; did you mean {near!r}?" if near in known else f"; it takes {', '.join(known)}"


class Working(TypedDict, total=False):
    """The number of threads, and the progress to report to."""

    jobs: int
    progress: Progress


def effort_of(jobs: int = 1, progress: Progress | None = None) -> Effort:
    """Return the number of threads with the progress to report to."""
    from rmqtool.log.ranges import Effort

    return Effort(jobs) if progress is None else Effort(jobs, progress)


class Said(NamedTuple):
    """A note of the store about a question, and the exit status that goes with it.

    ``more`` are further sentences of the note, ``hint`` what to type.
    """

    text: str
    status: Exit
    more: str | None = None
    hint: str | None = None

    @property
    def whole(self) -> str:
        """The note with its further sentences."""
        return self.text if self.more is None else f"{self.text}. {self.more}"

    def refusal(self, nothing: str) -> NotFound:
        """Return the error that says why a command did nothing: ``nothing`` is "nothing was checked"."""
        return NotFound(f"{self.text}; {nothing}", hint=self.hint)


def unknown_places(stores: Iterable[Store | None], wanted: Wanted) -> Said | None:
    """Return a note if none of the wanted topics, or not the wanted queue, exists in any store.

    A misspelt name finds nothing; without the note that would look like an empty topic.
    """
    from rmqtool.look.topic_names import describe_unknown, describe_unknown_queue

    listed, topics, queue = list(stores), wanted.topics, wanted.queue_id
    unknown = [None if store is None else describe_unknown(store, topics) for store in listed]
    if unknown and all(unknown) and unknown[0] is not None:
        what, meant, names = unknown[0]
        more = names if meant is None else f"{meant} {names}"
        return Said(what, Exit.NO, more, meant or "rmqtool topic STORE list")
    if queue is None or any(unknown):
        return None
    said = [None if store is None else describe_unknown_queue(store, topics, queue) for store in listed]
    return Said(said[0] or "", Exit.NO) if said and all(said) else None


def unread_configs(store: Store) -> list[Said]:
    """Return a note for each configuration file that could not be read: the answer lacks its content."""
    from rmqtool.errors import OptionalMissing
    from rmqtool.findings.finding import UNREAD
    from rmqtool.store.config_files import read_configs

    try:
        unread = [finding for finding in read_configs(store, tolerant=True).findings if finding.code in UNREAD]
    except OptionalMissing:
        return []
    return [Said(f"{one.file} is not in the answer: {one.message}", Exit.SKIPPED) for one in unread]


def count_there(store: Store | None, wanted: Wanted) -> int | None:
    """Return how many messages the wanted topics and queues have; None if that is not known."""
    from rmqtool.look.queue_bounds import count_messages

    return None if store is None else count_messages(store, wanted.topics, wanted.queue_id)


def unread_by(store: Store, group: str, selection: Selection) -> Selection:
    """Return a selection of what a group has not consumed: from each of its committed offsets on."""
    from dataclasses import replace

    from rmqtool.store.config_files import read_configs

    configs = read_configs(store)
    offsets = {topic: queues for (topic, name), queues in configs.offsets.items() if name == group}
    if not offsets:
        near = get_close_matches(group, sorted({name for _, name in configs.offsets}), n=1)
        hint = f"did you mean {near[0]}?" if near else f"rmqtool info {quote(store.root)} groups"
        raise NotFound(f'group "{group}" has no committed offset in {store.root}', hint=hint)
    least = {(topic, queue): offset for topic, queues in offsets.items() for queue, offset in queues.items()}
    return replace(selection, least_offsets=least)


def given_message(message: Mapping[str, Any], number: int) -> NewMessage:
    """Return the message that a dictionary describes; raise UsageError for a member that would be ignored."""
    from rmqtool.broker.producer.lines import MEMBERS, message_of
    from rmqtool.formats.message_json import FIELDS

    if not isinstance(message, Mapping):
        raise TypeError(f"message {number} is {message!r:.60}: a message is a dictionary")
    for name in message:
        if name not in MEMBERS and name not in FIELDS:
            hint = meant(str(name), MEMBERS).removeprefix("; ")
            raise UsageError(f'message {number} has an unknown member "{name}"', hint=hint)
    if message.get("body") is None and message.get("bodyEncoding") != "none":
        raise UsageError(f'message {number} has no "body"', hint='"body" is a text or bytes')
    try:
        return message_of(dict(message))
    except UsageError as error:
        raise UsageError(f"message {number}: {error.message}", hint=error.hint) from None
