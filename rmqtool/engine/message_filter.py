"""Which messages a get is for, judged in two stages: by the unit in the queue, then by the record.

Upstream: ``ExpressionMessageFilter``. A tag's hash in the unit decides for tags; collisions are the client's matter. A
SQL92 filter needs the record.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from rmqtool.filters.sql92 import Selector
from rmqtool.filters.tags import TagExpression
from rmqtool.formats.commit_log import Message, decode_record


class MessageFilter(Protocol):
    """Judges a unit by its tags code (None where that is not known), and a record by its bytes."""

    def matches_unit(self, tags_code: int | None) -> bool:
        """Tell whether the record is worth reading."""

    def matches_record(self, data: bytes) -> bool:
        """Tell whether the record belongs to the answer."""


@dataclass(frozen=True)
class TagFilter:
    """The broker's half of a tag expression."""

    expression: TagExpression

    def matches_unit(self, tags_code: int | None) -> bool:
        """Compare hashes."""
        return self.expression.matches_code(tags_code)

    def matches_record(self, data: bytes) -> bool:  # noqa: ARG002
        """Let everything pass: the text of the tag is compared by the client."""
        return True


@dataclass(frozen=True)
class SqlFilter:
    """A SQL92 selector."""

    selector: Selector

    def matches_unit(self, tags_code: int | None) -> bool:  # noqa: ARG002
        """Let every unit pass: it says nothing of properties."""
        return True

    def matches_record(self, data: bytes) -> bool:
        """Evaluate the selector on the properties."""
        message = decode_record(data)
        return isinstance(message, Message) and self.selector.matches(message.properties)
