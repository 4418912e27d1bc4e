"""Patterns of topic names: ``order*``. Only ``*``, ``?`` and ``[…]`` mean more than themselves; ``%`` does not."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable
from dataclasses import dataclass

_WILD = frozenset("*?[")


@dataclass(frozen=True, slots=True)
class TopicPatterns:
    """Several patterns, of which one must match the whole name, in its case. No pattern at all: every topic."""

    patterns: tuple[str, ...]
    _expression: re.Pattern[str] | None

    @property
    def exact(self) -> str | None:
        """The one topic that is meant, when it is named in full."""
        return self.patterns[0] if len(self.patterns) == 1 and not _WILD & set(self.patterns[0]) else None

    def matches(self, topic: str) -> bool:
        """Tell whether ``topic`` is meant."""
        return self._expression is None or self._expression.match(topic) is not None

    def select(self, topics: Iterable[str]) -> list[str]:
        """Return those of ``topics`` that are meant, in their order."""
        return [topic for topic in topics if self.matches(topic)]


def parse_patterns(patterns: Iterable[str]) -> TopicPatterns:
    """Compile ``patterns`` once. A bracket that is not closed stands for itself."""
    listed = tuple(patterns)
    joined = "|".join(f"(?:{fnmatch.translate(pattern)})" for pattern in listed)
    return TopicPatterns(listed, re.compile(joined) if listed else None)
