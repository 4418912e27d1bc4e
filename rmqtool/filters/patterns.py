"""Patterns of topic names, such as ``order*``. ``*``, ``?`` and ``[...]`` have a meaning; ``%`` does not."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable
from dataclasses import dataclass

_WILD = frozenset("*?[")


@dataclass(frozen=True, slots=True)
class TopicPatterns:
    """Patterns, one of which must match the whole name. Without a pattern every topic matches."""

    patterns: tuple[str, ...]
    _expression: re.Pattern[str] | None

    @property
    def exact(self) -> str | None:
        """The one topic that is meant, if it is named without wildcards; else None."""
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
