"""The choice of an export or a read: which messages, which columns, how damage is treated, how large a task is.

Also the list of columns for users, and the paths of stores and targets: local paths, in Spark's and pyarrow's spelling
too, and addresses of object storage.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from difflib import get_close_matches
from enum import StrEnum
from typing import Any, Literal, NamedTuple, get_args

from rmqtool.columns.batches import COLUMNS, Projection
from rmqtool.errors import UsageError
from rmqtool.filters.wanted import Wanted, parse_expression, want
from rmqtool.log.select import Selection
from rmqtool.store.open import absolute, is_far

# Arrow types and their names in SQL engines.
SQL_TYPES = {
    "string": "string",
    "int32": "int",
    "int64": "bigint",
    "timestamp[ms, tz=UTC]": "timestamp",
    "timestamp[us, tz=UTC]": "timestamp",
    "binary": "binary",
    "map<string, string>": "map<string,string>",
}

ABOUT = {
    "topic": "the topic it was stored under",
    "queue_id": "the queue",
    "queue_offset": "its place in the queue",
    "commitlog_offset": "its place in the broker's log",
    "store_size": "bytes of its record",
    "store_timestamp": "when it was stored, or null",
    "born_timestamp": "when a client made it, or null",
    "born_host": "ip:port of the client",
    "store_host": "ip:port of the broker",
    "tags": "property TAGS, or null",
    "keys": "property KEYS, or null",
    "msg_id": "a client's unique key, or null",
    "body": "inflated; see also --body",
    "body_codec": "zlib, lz4 or zstd; null: plain",
    "properties": "all properties",
    "sys_flag": "flags of the broker",
    "flag": "flags of the client",
    "body_crc": "checksum of the stored body",
    "reconsume_times": "how often it was tried again",
    "prepared_transaction_offset": "physical offset of its half message",
    "offset_msg_id": "the broker's id: host and place",
    "broker": "its name, or its directory",
}


def sql_type(arrow_type: object) -> str:
    """Return the SQL name of an Arrow type of the schema."""
    return SQL_TYPES[str(arrow_type).replace(" ('entries')", "")]


def column_rows(choice: Choice) -> Iterator[dict[str, str]]:
    """Yield the columns of an export with this choice."""
    for field in choice.projection(None, "ms").schema():
        yield {"column": field.name, "type": sql_type(field.type), "about": ABOUT[field.name]}


_HERE = re.compile(r"file:(?://(?:localhost)?)?(/(?!/).*)", re.IGNORECASE | re.DOTALL)
_ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)


def store_path(text: str) -> str:
    """Return a local path or an address of object storage; raise UsageError for any other file system."""
    return absolute(text) if is_far(text) else local_path(text)


def local_path(text: str) -> str:
    """Return a local path; raise UsageError for a path on another file system."""
    here = _HERE.fullmatch(text)
    if here is not None:
        return here[1]
    if _ELSEWHERE.match(text):
        raise UsageError(
            f"{text} is not a local path; remote file systems are not supported",
            hint="mount it, or copy the files to or from a local directory",
        )
    return text


# A task of a read has 128 MiB of log. A task of an export writes a file, and files of 128 MiB and more are what readers
# work best with: a half of a usual segment gives 150 to 230.
SPLIT_SIZE, EXPORT_SPLIT_SIZE = 128 << 20, 512 << 20
LEAST_SPLIT_SIZE = 4 << 10

Body = Literal["inflated", "raw", "none"]
TimeUnit = Literal["ms", "us"]


class OnCorrupt(StrEnum):
    """The treatment of damage: end the work, leave the damage out, or leave it out and report it."""

    FAIL = "fail"
    SKIP = "skip"
    EMIT = "emit"


class QueuePlace(NamedTuple):
    """A queue offset of a queue; without a broker it is that of each broker that has the queue."""

    topic: str
    broker: str | None
    queue_id: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A plain value that is sent to other processes. Offsets are queue offsets, times are store times; both half-open.

    ``physical_begin`` and ``physical_end`` bound the physical offsets of the messages. ``version`` is the broker that
    wrote them, whose rules tell which further queues a message belongs to.
    """

    topics: tuple[str, ...] = ()
    # A regular expression for topics, instead of names and patterns.
    topic_expression: str | None = None
    queue_id: int | None = None
    begin: int | None = None
    end: int | None = None
    # Expressions about tags and, in SQL92, about properties.
    tags: str | None = None
    where: str | None = None
    start_offset: int | None = None
    end_offset: int | None = None
    # Of single queues: those of other queues are open.
    starts: tuple[QueuePlace, ...] = ()
    ends: tuple[QueuePlace, ...] = ()
    physical_begin: int = 0
    physical_end: int | None = None
    version: str = "4.9"
    columns: tuple[str, ...] = COLUMNS
    body: Body = "inflated"
    on_corrupt: OnCorrupt = OnCorrupt.FAIL
    split_size: int = SPLIT_SIZE

    @classmethod
    def of(cls, wanted: Wanted, **more: Any) -> Choice:
        """Return the choice of the messages that match a question by place, store time, tag and properties."""
        tags = None if wanted.tags is None else wanted.tags.text
        where = None if wanted.where is None else wanted.where.text
        places: Any = {"topics": wanted.topics.patterns, "queue_id": wanted.queue_id}
        return cls(**places, begin=wanted.begin, end=wanted.end, tags=tags, where=where, **more)

    def selection(self) -> Selection:
        """Return the question for a single record."""
        times: Any = {"begin": self.begin, "end": self.end}
        wanted = want(topics=self.topics, queue=self.queue_id, tags=self.tags, where=self.where, **times)
        if self.topic_expression is not None:
            wanted = replace(wanted, topics=parse_expression(self.topic_expression))
        starts = {(one.topic, one.queue_id): one.offset for one in self.starts} if self.starts else None
        return Selection.of(
            wanted,
            least_offset=self.start_offset,
            least_offsets=starts,
            physical_from=self.physical_begin,
            version=self.version,
        )

    def at(self, broker: str) -> Choice:
        """Return the choice for one broker: with the places of its own queues only."""
        if not self.starts and not self.ends:
            return self
        starts = {(one.topic, one.queue_id): one for one in self.starts if one.broker in (None, broker)}
        for one in self.starts:
            # A topic that is named is wanted from every broker.
            starts.setdefault((one.topic, 0), QueuePlace(one.topic, None, 0, 0))
        ends = tuple(one for one in self.ends if one.broker in (None, broker))
        return replace(self, starts=tuple(starts.values()), ends=ends)

    def projection(self, broker: str | None, time_unit: TimeUnit) -> Projection:
        """Return the columns of the batches of one broker's messages."""
        return Projection(columns=self.columns, body=self.body, time_unit=time_unit, broker=broker)

    def as_json(self) -> dict[str, Any]:
        """Return the chosen messages and columns; the treatment of damage and the size of tasks are not included."""
        return {
            "topics": list(self.topics),
            "queueId": self.queue_id,
            "begin": self.begin,
            "end": self.end,
            "startOffset": self.start_offset,
            "endOffset": self.end_offset,
            "columns": list(self.columns),
            "body": self.body,
        }


DEFAULT = Choice()


def check_columns(names: Iterable[str]) -> tuple[str, ...]:
    """Return the named columns in the order of the schema; raise UsageError for an unknown one."""
    wanted = set(names)
    for name in sorted(wanted - set(COLUMNS)):
        near = get_close_matches(name, COLUMNS, n=1)
        hint = f"did you mean {near[0]}?" if near else "the columns are " + ", ".join(COLUMNS)
        raise UsageError(f"there is no column {name!r}", hint=hint)
    if not wanted:
        raise UsageError("no column is given", hint="the columns are " + ", ".join(COLUMNS))
    return tuple(name for name in COLUMNS if name in wanted)


def check_body(text: str) -> Body:
    """Return the form of bodies; raise UsageError for an unknown word."""
    for word in get_args(Body):
        if word == text:
            found: Body = word
            return found
    raise UsageError(f'"{text}" is not a way to show bodies', hint="one of " + ", ".join(get_args(Body)))


def check_split_size(size: int) -> int:
    """Return the size; raise UsageError for one that is too small: planning would be most of the work."""
    if size < LEAST_SPLIT_SIZE:
        raise UsageError(f"a split of {size} bytes is too small", hint=f"the minimum is {LEAST_SPLIT_SIZE} bytes")
    return size
