"""The options of the data source: texts in, a checked choice or a target out. Nothing here needs pyspark.

Names that readers know from Spark's source for Kafka are taken where they mean the same here.
``subscribe`` names topics, ``subscribePattern`` is a regular expression. ``startingOffsets`` and ``endingOffsets`` are
``earliest``, ``latest``, or an object in JSON: by topic and queue an offset, -2 for the earliest, -1 for the latest::

    {"Orders": {"broker-a/0": 4711, "1": -2}}

A queue is named by its broker and its number, or by its number alone: that queue of each broker. Other queues of these
topics are read whole, other topics not at all.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from glob import escape, glob, has_magic
from typing import Final, NamedTuple

from rmqtool.client.address import parse_cluster
from rmqtool.client.offset_ranges import ClusterPlace
from rmqtool.config import Version
from rmqtool.errors import UsageError
from rmqtool.exports.choice import (
    DEFAULT,
    Choice,
    OnCorrupt,
    QueuePlace,
    check_body,
    check_columns,
    check_split_size,
    local_path,
    store_path,
)
from rmqtool.filters.wanted import parse_expression, want
from rmqtool.formats.topics import check_topic_name
from rmqtool.store.open import is_far

NAMES = (
    "path",
    "cluster",
    "credentials",
    "tls",
    "topic",
    "subscribe",
    "subscribePattern",
    "queueId",
    "startTime",
    "endTime",
    "tag",
    "where",
    "startingTimestamp",
    "endingTimestamp",
    "startOffset",
    "endOffset",
    "startingOffsets",
    "endingOffsets",
    "minPartitions",
    "columns",
    "body",
    "onCorrupt",
    "splitSize",
    "maxBytesPerTrigger",
    "maxOffsetsPerTrigger",
    "safetyLag",
    "failOnDataLoss",
)
EARLIEST, LATEST = -2, -1
_WORDS: Final = ("earliest", "latest")
# Options with the same meaning: of each row one may be given.
_SAME: Final = (
    ("topic", "subscribe", "subscribePattern"),
    ("startTime", "startingTimestamp"),
    ("endTime", "endingTimestamp"),
    ("startOffset", "startingOffsets", "startingTimestamp"),
    ("endOffset", "endingOffsets", "endingTimestamp"),
)
_EXAMPLE: Final = '{"Orders": {"broker-a/0": 4711, "1": -2}}'
# Options about the files of a store, and options about a cluster.
_OF_FILES = ("path", "paths", "splitSize", "maxBytesPerTrigger", "safetyLag")
_OF_CLUSTERS = ("credentials", "tls", "maxOffsetsPerTrigger")
# Options that Spark adds to those of the user.
_OF_SPARK = ("paths",)
# Options that Spark adds to those of a streaming sink.
_OF_SINKS = ("checkpointlocation", "queryname")
# Options that CREATE TABLE adds.
_OF_TABLES = ("owner", "location", "provider", "external", "is_managed_location")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SIZE = re.compile(r"([0-9]+) ?([kmgt]?)(?:i?b)?", re.IGNORECASE)
_DURATION = re.compile(r"([0-9]+) ?(ms|s|m|h|)", re.IGNORECASE)
_MILLISECONDS = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}
_BOOLEANS = {"true": True, "false": False}
_BITS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}


@dataclass(frozen=True, slots=True)
class Following:
    """How a stream follows a log: bytes per batch, delay after the store time (ms), what to do if data is gone.

    ``max_offsets`` bounds a batch of a cluster: it does not tell the size of messages before they are read.
    """

    max_bytes: int | None = None
    max_offsets: int | None = None
    safety_lag: int = 1000
    fail_on_data_loss: bool = True


@dataclass(frozen=True, slots=True)
class Options:
    """The stores to read, or the cluster; the choice, and the options of streams."""

    paths: tuple[str, ...]
    choice: Choice
    following: Following
    cluster: ClusterPlace | None = None
    # Whether a stream begins with what comes from now on.
    begins_at_end: bool = False
    # The least number of tasks; 0: as many as the sizes give.
    min_partitions: int = 0

    def of_batch(self) -> Options:
        """Return the options; raise UsageError where they are about a stream."""
        if self.begins_at_end:
            raise UsageError(
                "startingOffsets latest is for streams", hint="leave it out: a batch reads messages that exist"
            )
        if self.cluster is None and any(one.offset < 0 for one in (*self.choice.starts, *self.choice.ends)):
            raise UsageError("-1 and -2 are offsets of a cluster; these are stores", hint="leave that queue out")
        return self

    def of_stream(self) -> Options:
        """Return the options; raise UsageError where they are about a batch."""
        if self.choice.ends:
            raise UsageError("endingOffsets is for batches: a stream does not end", hint="leave it out")
        if self.choice.starts and self.cluster is None:
            raise UsageError(
                "a stream of stores begins at a place in each log, not at offsets of queues",
                hint="startingOffsets earliest or latest, or startingTimestamp",
            )
        return self


_DEFAULT = Following()


def parse_options(options: Mapping[str, str]) -> Options:
    """Parse the options of ``spark.read``; raise UsageError, naming the option, for an invalid one."""
    given = _known(options)
    _refuse_two_names(given)
    split_size, pattern = given.get("splitSize"), given.get("subscribePattern")
    wanted = want(
        topics=_words(given.get("topic", "")) or tuple(map(escape, _words(given.get("subscribe", "")))),
        queue=_number(given, "queueId"),
        begin=_time(given, "startingTimestamp" if "startingTimestamp" in given else "startTime"),
        end=_time(given, "endingTimestamp" if "endingTimestamp" in given else "endTime"),
        tags=given.get("tag"),
        where=given.get("where"),
    )
    if pattern is not None:
        parse_expression(pattern)
    starts, ends = (_offsets(name, given.get(name)) for name in ("startingOffsets", "endingOffsets"))
    if ends == "earliest":
        raise UsageError("endingOffsets earliest would read nothing", hint="latest, or JSON")
    choice = Choice.of(
        wanted,
        topic_expression=pattern,
        starts=() if isinstance(starts, str) else starts,
        ends=() if isinstance(ends, str) else ends,
        start_offset=_number(given, "startOffset"),
        end_offset=_number(given, "endOffset"),
        columns=check_columns(_words(given["columns"])) if "columns" in given else DEFAULT.columns,
        body=check_body(given.get("body", DEFAULT.body)),
        on_corrupt=_on_corrupt(given.get("onCorrupt", OnCorrupt.FAIL)),
        split_size=check_split_size(_size("splitSize", split_size)) if split_size is not None else DEFAULT.split_size,
    )
    _require_order(choice.begin, choice.end, "startTime and endTime")
    _require_order(choice.start_offset, choice.end_offset, "startOffset and endOffset")
    cluster = _cluster(given, options)
    return Options(
        () if cluster is not None else _paths(options),
        choice,
        _following(given),
        cluster,
        begins_at_end=starts == "latest",
        min_partitions=_number(given, "minPartitions") or 0,
    )


def _cluster(given: Mapping[str, str], options: Mapping[str, str]) -> ClusterPlace | None:
    """Return the cluster to read, None for stores; raise UsageError for options that the other kind takes."""
    is_cluster = "cluster" in given
    idle = {name.lower(): name for name in (_OF_FILES if is_cluster else _OF_CLUSTERS)}
    for name in options:
        if name.lower() in idle:
            why = "a cluster has no files that it could be about" if is_cluster else "it is about a cluster"
            hint = "leave it out" if is_cluster else 'name the cluster: option("cluster", "rocketmq://127.0.0.1:9876")'
            raise UsageError(f"{idle[name.lower()]} has no effect: {why}", hint=hint)
    if not is_cluster:
        return None
    parse_cluster(given["cluster"])
    return ClusterPlace(given["cluster"], given.get("credentials"), _boolean("tls", given.get("tls", "false")))


def _following(given: Mapping[str, str]) -> Following:
    most, lag, fails = (given.get(name) for name in ("maxBytesPerTrigger", "safetyLag", "failOnDataLoss"))
    max_offsets = _number(given, "maxOffsetsPerTrigger")
    if max_offsets == 0:
        raise UsageError("maxOffsetsPerTrigger: 0 would never read anything", hint="try 100000; default: everything")
    max_bytes = _size("maxBytesPerTrigger", most) if most is not None else None
    if max_bytes == 0:
        raise UsageError("maxBytesPerTrigger: 0 would never read anything", hint="try 64m, 1g; default: everything")
    return Following(
        max_bytes=max_bytes,
        max_offsets=max_offsets,
        safety_lag=_duration("safetyLag", lag) if lag is not None else _DEFAULT.safety_lag,
        fail_on_data_loss=_boolean("failOnDataLoss", fails) if fails is not None else True,
    )


class Target(NamedTuple):
    """The store that rows are written into. All rows go to ``topic``, or each to the topic that it names."""

    root: str
    topic: str | None = None


def parse_target(options: Mapping[str, str], *, of_stream: bool = False) -> Target:
    """Return what the options of writing name; raise UsageError for any other option."""
    given = {name.lower(): text for name, text in options.items()}
    for name in options:
        if name.lower() not in ("path", "topic", *(_OF_SINKS if of_stream else ())):
            raise UsageError(f"there is no option {name!r} for writing", hint="name the store: save(path)")
    topic = given.get("topic")
    refusal = None if topic is None else check_topic_name(topic, Version.V5_3.value)
    if refusal is not None:
        raise UsageError(refusal, hint='option("topic", "Orders")')
    (path,) = _paths(options)
    return Target(os.path.abspath(local_path(path)), topic)


def _known(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options by rmqtool's spelling of their names; Spark passes names in lower case."""
    ours = {name.lower(): name for name in NAMES}
    given = {}
    if any(name.lower() in _OF_TABLES for name in options):
        raise UsageError(
            "a catalog table cannot use rocketmq: Spark does not keep its options",
            hint="create a view: CREATE TEMPORARY VIEW stored USING rocketmq OPTIONS (path '/data/store')",
        )
    for name, text in options.items():
        known = ours.get(name.lower())
        if known is None and name.lower() not in _OF_SPARK:
            near = get_close_matches(name.lower(), ours, n=1)
            hint = f"did you mean {ours[near[0]]}?" if near else "the options are " + ", ".join(NAMES)
            raise UsageError(f"there is no option {name!r}", hint=hint)
        if known is not None:
            given[known] = text
    return given


def _paths(options: Mapping[str, str]) -> tuple[str, ...]:
    """Return the stores: ``load`` of one path sets ``path``, of several ``paths``, a list in JSON."""
    by_name = {name.lower(): text for name, text in options.items()}
    several = json.loads(by_name["paths"]) if "paths" in by_name else []
    found = (*([by_name["path"]] if by_name.get("path") else []), *several)
    if not found:
        raise UsageError("missing store", hint='spark.read.format("rocketmq").load("/data/store")')
    return tuple(path for text in found for path in _expanded(store_path(text)))


def _expanded(path: str) -> list[str]:
    """Return the stores that a path means: those that match it, if it is a local pattern."""
    if is_far(path) or os.path.exists(path) or not has_magic(path):
        return [path]
    matching = sorted(glob(path))
    if not matching:
        raise UsageError(f"no store matches {path}", hint="each directory that matches is read as a store")
    return matching


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _number(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name)
    if text is None:
        return None
    if not text.isdecimal():
        raise UsageError(f'{name} takes a whole number, not "{text}"', hint=f'option("{name}", 10)')
    return int(text)


def _time(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name)
    if text is None:
        return None
    if text.removeprefix("-").isdecimal():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f'{name}: "{text}" is not a time', hint="try 2026-08-23T15:00:00+08:00 (without a zone: UTC), or epoch ms"
        ) from None
    return to_milliseconds(moment)


def to_milliseconds(moment: datetime) -> int:
    """Return a moment in epoch milliseconds, rounded down; one without a zone is in UTC."""
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (aware - _EPOCH) // timedelta(milliseconds=1)


def _duration(name: str, text: str) -> int:
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise UsageError(f'{name}: "{text}" is not a duration', hint="try 500ms, 2s, 1m")
    return int(found[1]) * _MILLISECONDS[found[2].lower()]


def _boolean(name: str, text: str) -> bool:
    if text.lower() not in _BOOLEANS:
        raise UsageError(f'{name} is neither true nor false: "{text}"', hint=f'option("{name}", "true")')
    return _BOOLEANS[text.lower()]


def _size(name: str, text: str) -> int:
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise UsageError(f'{name}: "{text}" is not a size', hint="try 64m, 128MiB, 1g")
    return int(found[1]) << _BITS[found[2].lower()]


def _on_corrupt(text: str) -> OnCorrupt:
    if text.lower() not in list(OnCorrupt):
        raise UsageError(f'onCorrupt: "{text}" is not known', hint="one of " + ", ".join(OnCorrupt))
    return OnCorrupt(text.lower())


def _require_order(low: int | None, high: int | None, names: str) -> None:
    if low is not None and high is not None and low >= high:
        raise UsageError(f"the range of {names} is empty", hint="the first is inclusive, the second exclusive")


def _refuse_two_names(given: Mapping[str, str]) -> None:
    """Raise UsageError for two options that say the same."""
    for names in _SAME:
        both = [name for name in names if name in given]
        if len(both) > 1:
            raise UsageError(f"{both[0]} and {both[1]} exclude each other", hint="leave one of them out")


def _offsets(name: str, text: str | None) -> str | tuple[QueuePlace, ...]:
    """Return "earliest", "latest" or the places of queues; nothing without a text. Raises UsageError."""
    if text is None:
        return ()
    if text in _WORDS:
        return text
    try:
        found = json.loads(text)
    except ValueError:
        raise UsageError(f"{name}: {text!r} is not known", hint=f"earliest, latest, or JSON: {_EXAMPLE}") from None
    if not isinstance(found, dict) or not found:
        raise UsageError(f"{name} names no topic: {text}", hint=f"for example: {_EXAMPLE}")
    return tuple(
        _place(name, topic, queue, offset)
        for topic, queues in found.items()
        for queue, offset in (queues.items() if isinstance(queues, dict) and queues else [("", None)])
    )


def _place(name: str, topic: str, queue: str, offset: object) -> QueuePlace:
    broker, slash, number = queue.rpartition("/")
    is_offset = isinstance(offset, int) and not isinstance(offset, bool) and offset >= EARLIEST
    if not number.isdecimal() or (slash and not broker) or not is_offset:
        raise UsageError(
            f"{name}: {json.dumps({topic: {queue: offset}})} is not a queue with an offset",
            hint=f"for example: {_EXAMPLE}; -2 is the earliest offset, -1 the latest",
        )
    assert isinstance(offset, int)
    return QueuePlace(topic, broker or None, int(number), offset)
