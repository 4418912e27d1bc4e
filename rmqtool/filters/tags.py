"""Tag expressions: ``TagA || TagB``, and the two stages in which they are judged.

The broker judges the hash in the queue unit, the consumer the text in the record. Hashes collide: what passed the first
stage may fail the second. Upstream: ``FilterAPI.buildSubscriptionData``, ``ExpressionMessageFilter``,
``PullAPIWrapper.processPullResult``.
"""

from __future__ import annotations

from dataclasses import dataclass

from rmqtool.filters.sql92 import FilterSyntaxError
from rmqtool.formats.java import BLANKS, int32, string_hash

ALL = "*"


@dataclass(frozen=True, slots=True)
class TagExpression:
    """A parsed tag expression. Without ``everything``, ``names`` are the tags that match and ``codes`` their hashes.

    Both may be empty: then nothing matches.
    """

    text: str
    names: frozenset[str] = frozenset()
    codes: frozenset[int] = frozenset()
    everything: bool = False

    def matches_code(self, tags_code: int | None) -> bool:
        """Tell whether the broker lets a queue unit with ``tags_code`` pass. None: the code could not be resolved.

        The broker looks at the low 32 bits only, whatever the eight bytes of the unit are.
        """
        return self.everything or tags_code is None or int32(tags_code) in self.codes

    def matches(self, tags: str | None) -> bool:
        """Tell whether a message with this tag reaches the consumer. ``TAGS`` is one tag, compared as a whole."""
        return self.everything or tags in self.names


def parse_tags(text: str | None) -> TagExpression:
    """Parse ``text``, or raise :class:`FilterSyntaxError` where upstream does: nothing but separators.

    Blanks around a tag are not part of it. ``*`` alone is every message; in a list it is a tag of that name.
    """
    if text is None or text in ("", ALL):
        return TagExpression(text or ALL, everything=True)
    if not text.replace("||", ""):
        raise FilterSyntaxError("a tag is expected, not a separator", text=text, position=0, hint="write TagA || TagB")
    names = frozenset(part.strip(BLANKS) for part in text.split("||")) - {""}
    return TagExpression(text, names, frozenset(map(string_hash, names)))
