"""The topics a store knows, from its queues and its configuration."""

from __future__ import annotations

from collections.abc import Iterator

from rmqtool.errors import OptionalMissing
from rmqtool.filters.patterns import TopicPatterns
from rmqtool.formats.paths import FileKind
from rmqtool.formats.topics import LMQ_PREFIX
from rmqtool.storage.store import Store


def find_topics(store: Store, patterns: TopicPatterns) -> list[str] | None:
    """Return the topics that are meant; None when not all are known.

    The one that is named in full is taken as it is. A light queue is left out: its messages are those of another topic.
    """
    if patterns.exact is not None:
        return [patterns.exact]
    try:
        known = {topic for topic in _iter_known(store) if not topic.startswith(LMQ_PREFIX)}
    except OptionalMissing:
        return None
    if not known:
        return None
    return sorted(patterns.select(known))


def _iter_known(store: Store) -> Iterator[str]:
    # Imported where they are needed: a topic that is named in full needs neither queues nor configuration.
    from rmqtool.inspection.queue_bounds import read_database_bounds
    from rmqtool.storage.configs import read_configs

    for kind in (FileKind.CONSUME_QUEUE, FileKind.BATCH_CONSUME_QUEUE):
        yield from (queue.topic for queue in store.listing.queues(kind))
    yield from (queue.topic for queue in read_database_bounds(store))
    yield from read_configs(store).topics


def near_topics(store: Store, topic: str) -> list[str]:
    """Return known topics whose names are like ``topic``."""
    from difflib import get_close_matches

    try:
        return get_close_matches(topic, set(_iter_known(store)), n=3)
    except OptionalMissing:
        return []
