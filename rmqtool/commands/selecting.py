"""From the words of the command line to what is asked of messages."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from rmqtool.commands.options import Filters, Scope
from rmqtool.errors import NotFound, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rmqtool.filters.patterns import TopicPatterns
    from rmqtool.render.output import Output
    from rmqtool.scan.selection import Selection
    from rmqtool.storage.store import Store


def select_messages(scope: Scope, bounds: tuple[int | None, int | None], filters: Filters) -> Selection:
    """Return what the common options ask."""
    from rmqtool.filters.patterns import parse_patterns
    from rmqtool.filters.sql92 import parse_selector
    from rmqtool.filters.tags import parse_tags
    from rmqtool.scan.selection import Selection

    return Selection(
        topics=parse_patterns(scope.topic or ()),
        queue_id=scope.queue,
        begin=bounds[0],
        end=bounds[1],
        tags=parse_tags(filters.tag) if filters.tag is not None else None,
        key=filters.key,
        where=parse_selector(filters.where, whole=True) if filters.where is not None else None,
    )


def note_unknown_topics(output: Output, stores: Iterable[Store | None], topics: TopicPatterns) -> None:
    """Say on stderr which of the wanted topics no store knows: nothing is found of a name that is misspelt."""
    from rmqtool.inspection.topic_names import describe_unknown
    from rmqtool.render.text import neutral

    said = [None if store is None else describe_unknown(store, topics) for store in stores]
    if said and all(said):
        output.note(neutral(said[0] or ""))


def parse_body_pattern(text: str) -> re.Pattern[str]:
    """Return the pattern that bodies are searched for."""
    try:
        return re.compile(text)
    except re.error as error:
        raise UsageError(
            f"--body-re {text!r} is no regular expression: {error}",
            hint="a \\ before . ? * + ( ) [ ] takes them as they are",
        ) from error


def unread_by(store: Store, group: str, selection: Selection) -> Selection:
    """Return what a group has not consumed: of every topic it has an offset in, each queue from that offset on."""
    from difflib import get_close_matches

    from rmqtool.storage.configs import read_configs

    configs = read_configs(store)
    offsets = {topic: queues for (topic, name), queues in configs.offsets.items() if name == group}
    if not offsets:
        near = get_close_matches(group, sorted({name for _, name in configs.offsets}), n=1)
        hint = f"did you mean {near[0]}?" if near else "rmqtool info STORE groups lists the groups"
        raise NotFound(f'group "{group}" has committed no offset in this store', hint=hint)
    least = {(topic, queue): offset for topic, queues in offsets.items() for queue, offset in queues.items()}
    return replace(selection, least_offsets=least)
