"""What a group wants of a topic: by tag, or by a SQL92 selector.

Upstream: ``SubscriptionData``, ``PullAPIWrapper.processPullResult``. The hash of a tag is compared where the queue is
read, its text where the message is.
"""

from __future__ import annotations

from dataclasses import dataclass

from rmqtool.filters.sql92 import Selector
from rmqtool.filters.tags import TagExpression, parse_tags
from rmqtool.formats.commit_log import Message


@dataclass(frozen=True)
class Subscription:
    """A filter for one topic; with a ``selector`` the tags do not count."""

    tags: TagExpression
    selector: Selector | None = None

    @property
    def is_everything(self) -> bool:
        """Whether all messages are wanted."""
        return self.selector is None and self.tags.everything

    def wants_unit(self, tags_code: int | None) -> bool:
        """Tell whether the record of a unit is worth reading."""
        return self.selector is not None or self.tags.matches_code(tags_code)

    def wants(self, message: Message) -> bool:
        """Tell whether a message reaches the consumer."""
        if self.selector is not None:
            return self.selector.matches(message.properties)
        return self.tags.matches(message.tags)


EVERYTHING = Subscription(parse_tags("*"))
