"""Tag expressions, ``TagA || TagB``, and the two stages in which they are evaluated.

The broker compares the hash in the queue entry, the consumer compares the text in the record. Hashes collide, so a
message can pass the first stage and fail the second. Upstream: ``FilterAPI.buildSubscriptionData``,
``ExpressionMessageFilter``, ``PullAPIWrapper.processPullResult``.
"""

from __future__ import annotations

from dataclasses import dataclass

from rmqtool.formats.java import BLANKS, int32, string_hash

ALL = "*"


@dataclass(frozen=True, slots=True)
class TagExpression:
    """A parsed tag expression. Without ``everything``, ``names`` are the tags that match and ``codes`` their hashes.

    If both are empty, nothing matches.
    """

    text: str
    names: frozenset[str] = frozenset()
    codes: frozenset[int] = frozenset()
    everything: bool = False

    def matches_code(self, tags_code: int | None) -> bool:
        """Return whether a broker passes an entry with this tags code; None if the code is in an extension that is not
        readable.

        A broker compares only the low 32 bits of the eight bytes in the entry.
        """
        return self.everything or tags_code is None or int32(tags_code) in self.codes

    def matches(self, tags: str | None) -> bool:
        """Return whether a consumer gets a message with this tag. ``TAGS`` is one tag and compared as a whole."""
        return self.everything or tags in self.names


def parse_tags(text: str | None) -> TagExpression:
    """Parse ``text``, or raise :class:`FilterSyntaxError` where upstream does: for separators only.

    Blanks around a tag are removed. ``*`` alone means every message; in a list it is a tag of that name.
    """
    if text is None or text in ("", ALL):
        return TagExpression(text or ALL, everything=True)
    if not text.replace("||", ""):
        from rmqtool.filters.sql92 import FilterSyntaxError

        raise FilterSyntaxError("a tag is expected, not a separator", text=text, position=0, hint="write TagA || TagB")
    names = frozenset(part.strip(BLANKS) for part in text.split("||")) - {""}
    return TagExpression(text, names, frozenset(map(string_hash, names)))
