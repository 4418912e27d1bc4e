"""From the words of the command line to what is asked of messages."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from rmqtool.commands.options import Filters, Scope
from rmqtool.errors import Exit, NotFound, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rmqtool.filters.body_pattern import BodyPattern
    from rmqtool.filters.patterns import TopicPatterns
    from rmqtool.log.select import Selection
    from rmqtool.render.output import Output
    from rmqtool.store.open import Store


def refuse_idle(what: str, given: Mapping[str, object], hint: str) -> None:
    """Refuse options that have no effect on ``what``: somebody who typed one expects something of it."""
    for option, value in given.items():
        if value is not None and value is not False and value != []:
            raise UsageError(f"{option} has no effect on {what}", hint=hint)


def select_messages(scope: Scope, bounds: tuple[int | None, int | None], filters: Filters) -> Selection:
    """Return what the common options ask."""
    from rmqtool.filters.patterns import parse_patterns
    from rmqtool.filters.sql92 import parse_selector
    from rmqtool.filters.tags import parse_tags
    from rmqtool.log.select import Selection

    return Selection(
        topics=parse_patterns(scope.topic or ()),
        queue_id=scope.queue,
        begin=bounds[0],
        end=bounds[1],
        tags=parse_tags(filters.tag) if filters.tag is not None else None,
        key=filters.key,
        where=parse_selector(filters.where, whole=True) if filters.where is not None else None,
    )


def note_unknown_topics(
    output: Output, stores: Iterable[Store | None], topics: TopicPatterns, queue_id: int | None = None
) -> Exit:
    """Say on stderr which of the wanted topics, or that the wanted queue, no store knows; then the answer is no.

    Nothing is found of a name that is misspelt, and nothing found must not look like nothing there.
    """
    from rmqtool.look.topic_names import describe_unknown, describe_unknown_queue
    from rmqtool.render.text import neutral

    listed = list(stores)
    said = [None if store is None else describe_unknown(store, topics) for store in listed]
    if queue_id is not None and not any(said):
        said = [None if store is None else describe_unknown_queue(store, topics, queue_id) for store in listed]
    if said and all(said):
        output.note(neutral(said[0] or ""))
        return Exit.NO
    return Exit.DONE


def note_nothing_matched(output: Output, store: Store | None, scope: Selection) -> None:
    """Say on stderr that no message matched, and of how many that lie in the wanted topics and queues."""
    from rmqtool.look.queue_bounds import count_messages
    from rmqtool.render.text import count

    there = None if store is None else count_messages(store, scope.topics, scope.queue_id)
    output.note("no message matched" if there is None else f"0 of {count(there)} messages matched")


def note_unread_configs(output: Output, store: Store) -> Exit:
    """Say on stderr which configuration files could not be read: what they would tell is not in the answer."""
    from rmqtool.errors import OptionalMissing
    from rmqtool.render.text import neutral
    from rmqtool.store.config_files import read_configs

    try:
        unread = [finding for finding in read_configs(store, tolerant=True).findings if finding.code == "ST-READ"]
    except OptionalMissing:
        return Exit.DONE
    for finding in unread:
        output.note(neutral(f"{finding.file} is not in the answer: {finding.message}"))
    return Exit.SKIPPED if unread else Exit.DONE


def parse_body_pattern(text: str) -> BodyPattern:
    """Return the pattern that bodies are searched for."""
    from rmqtool.filters.body_pattern import BodyPattern

    try:
        return BodyPattern(re.compile(text))
    except re.error as error:
        raise UsageError(
            f"--body-re {text!r} is no regular expression: {error}",
            hint="a \\ before . ? * + ( ) [ ] takes them as they are",
        ) from error


def unread_by(store: Store, group: str, selection: Selection) -> Selection:
    """Return what a group has not consumed: of every topic it has an offset in, each queue from that offset on."""
    from difflib import get_close_matches

    from rmqtool.store.config_files import read_configs

    configs = read_configs(store)
    offsets = {topic: queues for (topic, name), queues in configs.offsets.items() if name == group}
    if not offsets:
        near = get_close_matches(group, sorted({name for _, name in configs.offsets}), n=1)
        hint = f"did you mean {near[0]}?" if near else "rmqtool info STORE groups lists the groups"
        raise NotFound(f'group "{group}" has committed no offset in this store', hint=hint)
    least = {(topic, queue): offset for topic, queues in offsets.items() for queue, offset in queues.items()}
    return replace(selection, least_offsets=least)
