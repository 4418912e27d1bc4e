"""Which messages are wanted: the one question that commands, the library, Spark and exports ask.

``want`` makes it of what people type; each value is parsed here and nowhere else. ``log.select`` asks it of columns.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict, Unpack

from rmqtool.errors import UsageError
from rmqtool.filters.patterns import TopicPatterns, parse_patterns

if TYPE_CHECKING:
    from rmqtool.filters.body_pattern import BodyPattern
    from rmqtool.filters.sql92 import Selector
    from rmqtool.filters.tags import TagExpression

EVERY_TOPIC = parse_patterns(())


@dataclass(frozen=True)
class Wanted:
    """What is asked of messages. Without a value a question is not asked.

    ``begin`` and ``end`` bound the store time in epoch milliseconds, half-open. ``limit`` is how many are taken at
    most: the first ones of a stream, the newest ones of an answer.
    """

    topics: TopicPatterns = EVERY_TOPIC
    queue_id: int | None = None
    begin: int | None = None
    end: int | None = None
    tags: TagExpression | None = None
    key: str | None = None
    where: Selector | None = None
    body: BodyPattern | None = None
    limit: int | None = None

    def allows_time(self, store_timestamp: int) -> bool:
        """Return whether a store time is within the bounds."""
        return (self.begin is None or store_timestamp >= self.begin) and (
            self.end is None or store_timestamp < self.end
        )

    def allows_queue(self, topic: str, queue_id: int) -> bool:
        """Return whether messages of a queue are wanted."""
        return self.topics.matches(topic) and self.queue_id in (None, queue_id)


class Asked(TypedDict, total=False):
    """What people type: patterns of topics, a queue, store times, and expressions as text."""

    topics: str | Iterable[str] | None
    queue: int | None
    begin: int | None
    end: int | None
    tags: str | None
    key: str | None
    where: str | None
    body: str | None
    limit: int | None


def want(**asked: Unpack[Asked]) -> Wanted:
    """Return the question; raise UsageError for an expression that does not parse."""
    from rmqtool.filters.sql92 import parse_selector
    from rmqtool.filters.tags import parse_tags

    topics, tags, where, body = (asked.get(name) for name in ("topics", "tags", "where", "body"))
    return Wanted(
        topics=parse_patterns([topics] if isinstance(topics, str) else asked.get("topics") or ()),
        queue_id=asked.get("queue"),
        begin=asked.get("begin"),
        end=asked.get("end"),
        tags=None if tags is None else parse_tags(str(tags)),
        key=asked.get("key"),
        where=None if where is None else parse_selector(str(where), whole=True),
        body=None if body is None else _body_pattern(str(body)),
        limit=asked.get("limit"),
    )


def _body_pattern(text: str) -> BodyPattern:
    from rmqtool.filters.body_pattern import BodyPattern

    try:
        return BodyPattern(re.compile(text))
    except re.error as error:
        raise UsageError(
            f"--body-re {text!r} is not a regular expression: {error}",
            hint="put a \\ before . ? * + ( ) [ ] to match them literally",
        ) from error
