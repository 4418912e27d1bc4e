"""The topics of a store, from its queues and its configuration, and help with names that are not among them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from rmqtool.errors import OptionalMissing, ReadFailed
from rmqtool.filters.wanted import TopicPatterns, parse_patterns
from rmqtool.formats.bridges import QUARANTINE
from rmqtool.formats.paths import FileKind
from rmqtool.formats.topics import LMQ_PREFIX, TopicKind, topic_kind
from rmqtool.store.open import Store

# Topics that a text names at most.
_MOST_NAMED = 8
# The characters of a pattern.
WILDCARDS = frozenset("*?[")
# A larger number of queues is damage.
_MOST_QUEUES = 1 << 16


def find_topics(store: Store, patterns: TopicPatterns) -> list[str] | None:
    """Return the topics that match; None if not all topics are known.

    A topic without wildcards is returned without a look at the store. Light queues are left out: their messages belong
    to other topics.
    """
    if patterns.exact is not None:
        return [patterns.exact]
    try:
        known = {topic for topic in _iter_known(store) if not topic.startswith(LMQ_PREFIX)}
    except (OptionalMissing, ReadFailed):
        return None
    if not known:
        return None
    return sorted(patterns.select(known))


def _iter_known(store: Store) -> Iterator[str]:
    # Imported when needed: most topics are known by their queue files.
    from rmqtool.store.config_files import read_configs
    from rmqtool.store.rocksdb import read_queue_bounds

    yield from _iter_in_files(store)
    yield from (queue.topic for queue in read_queue_bounds(store))
    yield from read_configs(store).topics


def _iter_in_files(store: Store) -> Iterator[str]:
    """Yield the topics with queues in files; nothing is read for them."""
    for kind in (FileKind.CONSUME_QUEUE, FileKind.BATCH_CONSUME_QUEUE):
        yield from (queue.topic for queue in store.listing.queues(kind))


def near_topics(store: Store, topic: str) -> list[str]:
    """Return known topics with similar names."""
    from difflib import get_close_matches

    try:
        return get_close_matches(topic, set(_iter_known(store)), n=3)
    except (OptionalMissing, ReadFailed):
        return []


class Unknown(NamedTuple):
    """Names or patterns that match no topic: in words, what may have been meant, and the topics that there are."""

    what: str
    meant: str | None
    topics: str


def no_topic(patterns: Sequence[str]) -> str:
    """Return a text that says that no topic matches. A name is quoted, a pattern is not."""
    if len(patterns) == 1 and not set(patterns[0]) & WILDCARDS:
        return f'there is no topic "{patterns[0]}"'
    return f"no topic matches {', '.join(patterns)}"


def describe_unknown(store: Store, patterns: TopicPatterns) -> Unknown | None:
    """Describe the patterns that match no topic of the store; None if each matches one.

    None too if the store has no known topic: messages of any topic may be in its log.
    """
    from difflib import get_close_matches

    def unmatched(topics: Iterable[str]) -> list[str]:
        return [pattern for pattern in patterns.patterns if not parse_patterns([pattern]).select(topics)]

    if not unmatched(set(_iter_in_files(store))):
        return None
    try:
        known = sorted({*_iter_known(store), *({QUARANTINE} & set(patterns.patterns))})
    except (OptionalMissing, ReadFailed):
        return None
    unknown = unmatched(known)
    if not known or not unknown:
        return None
    near = dict.fromkeys(name for pattern in unknown for name in get_close_matches(pattern, known, n=3))
    there = [topic for topic in known if topic_kind(topic) is TopicKind.NORMAL] or known
    rest = f" and {len(there) - _MOST_NAMED} more" if len(there) > _MOST_NAMED else ""
    meant = f"Did you mean {', '.join(near)}?" if near else None
    listed = f"The topics are {', '.join(there[:_MOST_NAMED])}{rest}."
    return Unknown(no_topic(unknown), meant, listed)


def describe_unknown_queue(store: Store, patterns: TopicPatterns, queue_id: int) -> str | None:
    """Return a text if no wanted topic has this queue; None if one has it, or if the queues are unknown.

    A topic has the queues of its configuration and those on disk.
    """
    from rmqtool.store.config_files import read_configs
    from rmqtool.store.rocksdb import read_queue_bounds

    try:
        queues = {*store.listing.queues(FileKind.CONSUME_QUEUE), *store.listing.queues(FileKind.BATCH_CONSUME_QUEUE)}
        queues |= read_queue_bounds(store).keys()
        configs = read_configs(store).topics
    except (OptionalMissing, ReadFailed):
        return None
    numbers = {queue.queue_id for queue in queues if patterns.matches(queue.topic)}
    for topic in patterns.select(configs) if patterns.patterns else ():
        counts = (configs[topic].get(name) for name in ("readQueueNums", "writeQueueNums"))
        numbers.update(range(min(max((n for n in counts if isinstance(n, int)), default=0), _MOST_QUEUES)))
    if not numbers or queue_id in numbers:
        return None
    named = patterns.patterns
    begin = f"{named[0]} has no queue {queue_id}" if len(named) == 1 else f"no topic here has a queue {queue_id}"
    return f"{begin}; there {_numbered(sorted(numbers))}"


def _numbered(numbers: list[int]) -> str:
    if len(numbers) == 1:
        return f"is the queue {numbers[0]}"
    if numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"are the queues {numbers[0]} to {numbers[-1]}"
    rest = f" and {len(numbers) - _MOST_NAMED} more" if len(numbers) > _MOST_NAMED else ""
    return f"are the queues {', '.join(map(str, numbers[:_MOST_NAMED]))}{rest}"
