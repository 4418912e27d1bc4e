"""Which messages are wanted, as keywords: ``filters.wanted``, with times as people and programs have them.

What a store says to such a question by itself: that it has no such topic, that nothing matched.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from rmqtool.errors import Exit, NotFound, UsageError

if TYPE_CHECKING:
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
    """Which messages by where and when they were stored: all that some verbs can be asked."""

    topics: str | Sequence[str] | None
    queue: int | None
    begin: Time | None
    end: Time | None


_WHICH = tuple(Which.__annotations__)
WHERE = tuple(Where.__annotations__)
# What other tools and our own command line call them.
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
    """Raise TypeError for a keyword that would have no effect, and say which one is meant."""
    for name in given:
        if name not in known:
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}{meant(name, known)}")


def meant(name: str, known: Sequence[str]) -> str:
    """Return what to say of an unknown name: the one that is meant, or those that there are."""
    near = _MEANT.get(name) or next(iter(get_close_matches(name, known, n=1)), None)
    return f"; did you mean {near!r}?" if near in known else f"; it takes {', '.join(known)}"


class Working(TypedDict, total=False):
    """How many processes work, and who is told how far they are."""

    jobs: int
    progress: Progress


def expect_processes() -> None:
    """Load what several processes need so that they can be made; to be called before anything else is loaded."""
    from rmqtool import kernel
    from rmqtool.log.workers import load_without_threads

    # By the kernel most work needs no Arrow; what stands in for it needs it at once, and shared by all.
    load_without_threads(with_arrow=kernel.NATIVE is None)


def effort_of(jobs: int = 1, progress: Progress | None = None) -> Effort:
    """Return how many processes work, and who is told how far they are."""
    from rmqtool.log.ranges import Effort

    return Effort(jobs) if progress is None else Effort(jobs, progress)


class Said(NamedTuple):
    """What a store says to a question by itself, and what that makes of the answer."""

    text: str
    status: Exit


def unknown_places(stores: Iterable[Store | None], wanted: Wanted) -> Said | None:
    """Return which of the wanted topics, or that the wanted queue, no store knows; then the answer is no.

    Nothing is found of a name that is misspelt, and nothing found must not look like nothing there.
    """
    from rmqtool.look.topic_names import describe_unknown, describe_unknown_queue

    listed, topics, queue = list(stores), wanted.topics, wanted.queue_id
    said = [None if store is None else describe_unknown(store, topics) for store in listed]
    if queue is not None and not any(said):
        said = [None if store is None else describe_unknown_queue(store, topics, queue) for store in listed]
    return Said(said[0] or "", Exit.NO) if said and all(said) else None


def unread_configs(store: Store) -> list[Said]:
    """Return which configuration files could not be read: what they would tell is not in the answer."""
    from rmqtool.errors import OptionalMissing
    from rmqtool.store.config_files import read_configs

    try:
        unread = [finding for finding in read_configs(store, tolerant=True).findings if finding.code == "ST-READ"]
    except OptionalMissing:
        return []
    return [Said(f"{one.file} is not in the answer: {one.message}", Exit.SKIPPED) for one in unread]


def count_there(store: Store | None, wanted: Wanted) -> int | None:
    """Return how many messages there are in the wanted topics and queues; None where that is not known."""
    from rmqtool.look.queue_bounds import count_messages

    return None if store is None else count_messages(store, wanted.topics, wanted.queue_id)


def unread_by(store: Store, group: str, selection: Selection) -> Selection:
    """Return what a group has not consumed: of every topic it has an offset in, each queue from that offset on."""
    from dataclasses import replace

    from rmqtool.store.config_files import read_configs

    configs = read_configs(store)
    offsets = {topic: queues for (topic, name), queues in configs.offsets.items() if name == group}
    if not offsets:
        near = get_close_matches(group, sorted({name for _, name in configs.offsets}), n=1)
        hint = f"did you mean {near[0]}?" if near else "rmqtool info STORE groups lists the groups"
        raise NotFound(f'group "{group}" has no committed offset in this store', hint=hint)
    least = {(topic, queue): offset for topic, queues in offsets.items() for queue, offset in queues.items()}
    return replace(selection, least_offsets=least)
