"""The question "which messages", which commands, the library, Spark and exports all fill.

``want`` makes it from what people type; every value is parsed here. ``log.select`` asks it of columns.
Patterns of topic names are such as ``order*``: ``*``, ``?`` and ``[...]`` have a meaning; ``%`` does not.
"""

from __future__ import annotations

import fnmatch
import re
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, TypedDict, Unpack

from rmqtool.errors import UsageError
from rmqtool.formats.bridges import QUARANTINE, is_bridge

if TYPE_CHECKING:
    from rmqtool.filters.sql92 import Selector
    from rmqtool.filters.tags import TagExpression
    from rmqtool.formats.commit_log import Message


_WILD = frozenset("*?[")


@dataclass(frozen=True, slots=True)
class TopicPatterns:
    """Patterns, one of which must match the whole name. Without a pattern every topic matches."""

    patterns: tuple[str, ...]
    _expression: re.Pattern[str] | None
    # Whether the only pattern is a regular expression.
    is_expression: bool = False

    @property
    def exact(self) -> str | None:
        """The one topic that is meant, if it is named without wildcards; else None."""
        if self.is_expression:
            return None
        return self.patterns[0] if len(self.patterns) == 1 and not _WILD & set(self.patterns[0]) else None

    def matches(self, topic: str) -> bool:
        return self._expression is None or self._expression.match(topic) is not None

    def select(self, topics: Iterable[str]) -> list[str]:
        """Return those of ``topics`` that match, in their order."""
        return [topic for topic in topics if self.matches(topic)]


def parse_patterns(patterns: Iterable[str]) -> TopicPatterns:
    """Compile ``patterns`` into one expression. A bracket that is not closed is an ordinary character."""
    listed = tuple(patterns)
    joined = "|".join(f"(?:{fnmatch.translate(pattern)})" for pattern in listed)
    return TopicPatterns(listed, re.compile(joined) if listed else None)


def parse_expression(text: str) -> TopicPatterns:
    """Return the pattern of a regular expression that must match the whole name. Raises UsageError."""
    try:
        return TopicPatterns((text,), re.compile(rf"(?:{text})\Z"), is_expression=True)
    except re.error as error:
        raise UsageError(f"{text!r} is not a regular expression: {error}", hint="for example: Orders-[0-9]+") from None


EVERY_TOPIC = parse_patterns(())


@dataclass(frozen=True)
class Wanted:
    """Conditions on messages; one without a value is not checked.

    ``begin`` and ``end`` bound the store time in epoch milliseconds, half-open. ``limit`` is the largest number of
    messages: the first ones of a stream, the newest ones of an answer.
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
        return (self.begin is None or store_timestamp >= self.begin) and (
            self.end is None or store_timestamp < self.end
        )

    @property
    def takes_bridges(self) -> bool:
        """Whether the placeholders that a repair wrote over damage are wanted.

        They are records, but not messages: only who names their topic gets them.
        """
        return QUARANTINE in self.topics.patterns

    def refuses(self, message: Message) -> bool:
        """Return whether a record is a placeholder, and placeholders are not wanted."""
        return is_bridge(message) and not self.takes_bridges

    def allows_queue(self, topic: str, queue_id: int) -> bool:
        return self.topics.matches(topic) and self.queue_id in (None, queue_id)


class Asked(TypedDict, total=False):
    """The question as people type it: patterns of topics, a queue, store times, expressions as text."""

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
    from rmqtool.filters.tags import parse_tags

    topics, tags, where, body = (asked.get(name) for name in ("topics", "tags", "where", "body"))
    return Wanted(
        topics=parse_patterns([topics] if isinstance(topics, str) else asked.get("topics") or ()),
        queue_id=asked.get("queue"),
        begin=asked.get("begin"),
        end=asked.get("end"),
        tags=None if tags is None else parse_tags(str(tags)),
        key=asked.get("key"),
        where=None if where is None else _selector(str(where)),
        body=None if body is None else _body_pattern(str(body)),
        limit=asked.get("limit"),
    )


def _selector(text: str) -> Selector:
    # Most questions have no expression: its parser is loaded for those that do.
    from rmqtool.filters.sql92 import parse_selector

    return parse_selector(text, whole=True)


def _body_pattern(text: str) -> BodyPattern:
    try:
        return BodyPattern(re.compile(text))
    except re.error as error:
        raise UsageError(
            f"--body-re {text!r} is not a regular expression: {error}",
            hint="put a \\ before . ? * + ( ) [ ] to match them literally",
        ) from error


# Limit of processor time for one body, in seconds. An ordinary pattern reads several MiB in a hundredth of it.
MOST_SECONDS = 5.0


class _TooLong(Exception):
    """The timer has expired."""


@dataclass(frozen=True, slots=True)
class BodyPattern:
    """A regular expression that bodies are searched for.

    Python's engine tries every way to match: ``(a+)+$`` on forty letters takes longer than anybody waits. The engine
    checks for signals while it works, so a timer of processor time can stop it. Timers belong to the main thread; in
    other threads there is no limit.
    """

    expression: re.Pattern[str]

    def search(self, texts: Iterable[str], most_seconds: float = MOST_SECONDS) -> list[bool]:
        """Return for each text whether the pattern is found in it."""
        with _timer(most_seconds) as start:
            found = []
            try:
                for text in texts:
                    start()
                    found.append(self.expression.search(text) is not None)
            except _TooLong as error:
                raise UsageError(
                    f"--body-re {self.expression.pattern!r} took more than {most_seconds:g} s on one body of "
                    f"{len(text)} characters: it backtracks too much",
                    hint="avoid nested repeats such as (a+)+; a++ and (?>a+) do not backtrack",
                ) from error
            return found


@contextmanager
def _timer(seconds: float) -> Iterator[Callable[[], object]]:
    """Give a function that restarts the timer."""
    if threading.current_thread() is not threading.main_thread():
        yield _do_nothing
        return
    previous = signal.signal(signal.SIGVTALRM, _give_up)
    try:
        yield lambda: signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, previous)


def _give_up(_number: int, _frame: FrameType | None) -> None:
    raise _TooLong


def _do_nothing() -> None:
    """Take the place of a timer where there cannot be one."""
