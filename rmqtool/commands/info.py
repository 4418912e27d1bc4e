"""``rmqtool info``: a store at a glance."""

from __future__ import annotations

import os
from collections.abc import Iterator
from enum import StrEnum
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

from rmqtool.commands.opening import choose_store
from rmqtool.commands.options import AsBroker, Group, Scope, Show, store_and
from rmqtool.errors import Exit, UsageError, worst

if TYPE_CHECKING:
    from rmqtool.look.overview import Overview
    from rmqtool.render.output import Output
    from rmqtool.store.open import Store


class View(StrEnum):
    """What of a store is listed."""

    TOPICS = "topics"
    QUEUES = "queues"
    GROUPS = "groups"
    FILES = "files"
    CONFIG = "config"


VIEWS = "|".join(View)


def info(
    words: Annotated[list[str] | None, store_and(f"[{VIEWS}]", "The store, and what to list of it.")] = None,
    *,
    scope: Scope,
    group: Group = None,
    broker: AsBroker,
    show: Show,
) -> Exit:
    """Show what a store is and how it does: files, topics, queues, groups, lag, and what is wrong at first sight.

    Only names, sizes, headers, first and last records are read, however large the store; a running broker is not
    disturbed. Exits 0 also when something is wrong: `check` judges.
    """
    from rmqtool.look.overview import read_overview
    from rmqtool.store.open import open_store

    choice = choose_store(words or [], takes_words=list(View))
    view = _view(choice.words)
    _refuse_idle(view, scope, group)
    store = open_store(choice.store, version=broker.as_version, assignments=tuple(broker.conf or ()))
    status = Exit.DONE
    with show.output() as output:
        if show.verbose:
            output.detail(kernel_tier())
        output.store = choice.store if os.path.isdir(choice.store) else store.root
        overview = read_overview(store)
        if view is None:
            _glance(output, overview, choice.store)
        else:
            rows, status = _list(output, view, store, overview, scope, group)
            if view is View.GROUPS and output.is_human:
                _say_who_is_behind(output, rows, choice.store)
    store.close()
    if overview.missing is not None:
        raise overview.missing
    unread = any(finding.code == "ST-READ" for finding in overview.findings)
    return worst(status, Exit.SKIPPED if unread else Exit.DONE)


def kernel_tier() -> str:
    """Return which tier reads the records here; the kernel is not loaded for less."""
    from rmqtool import kernel

    return kernel.tier()


def _view(words: tuple[str, ...]) -> View | None:
    if not words:
        return None
    if len(words) > 1 or words[0] not in list(View):
        raise UsageError(f'"{" ".join(words)}" is not a view of a store', hint=f"one of {VIEWS}")
    return View(words[0])


# What narrows the rows of each view.
_NARROWING = {
    View.TOPICS: ("-t",),
    View.QUEUES: ("-t", "-q"),
    View.GROUPS: ("-t", "-q", "-g"),
    View.FILES: (),
    View.CONFIG: (),
}


def _refuse_idle(view: View | None, scope: Scope, group: str | None) -> None:
    from rmqtool.commands.selecting import refuse_idle

    given = {"-t": scope.topic, "-q": scope.queue, "-g": group}
    idle = {option: value for option, value in given.items() if view is None or option not in _NARROWING[view]}
    typed = {option for option, value in idle.items() if value is not None}
    lists = ", ".join(f"info STORE {other}" for other, taken in _NARROWING.items() if typed <= set(taken))
    what = "info without a view" if view is None else f"info {view}"
    refuse_idle(what, idle, f"it narrows the rows of {lists}")


def _glance(output: Output, overview: Overview, store: str) -> None:
    from rmqtool.formats.config_shapes import is_own_group
    from rmqtool.render.overview import overview_lines

    shown = overview.as_json()
    own = set(filter(is_own_group, overview.groups))
    lines = overview_lines(output, shown, overview.findings, own, f"rmqtool check {quote(store)}")
    output.single(shown, lines)


def _list(
    output: Output, view: View, store: Store, overview: Overview, scope: Scope, group: str | None
) -> tuple[list[dict[str, Any]], Exit]:
    from rmqtool.commands.selecting import note_unknown_topics
    from rmqtool.filters.patterns import parse_patterns
    from rmqtool.render import overview as screens

    topics = parse_patterns(scope.topic or ())
    groups = parse_patterns([group] if group else ())
    rows = {
        View.TOPICS: lambda: _topic_rows(overview),
        View.QUEUES: lambda: _queue_rows(overview),
        View.GROUPS: lambda: _group_rows(overview),
        View.FILES: lambda: _file_rows(store),
        View.CONFIG: lambda: _config_rows(store, overview),
    }[view]()
    kept = [
        row
        for row in rows
        if ("topic" not in row or topics.matches(row["topic"]))
        and ("group" not in row or groups.matches(row["group"]))
        and (scope.queue is None or row.get("queueId") == scope.queue)
    ]
    status = note_unknown_topics(output, [store], topics, scope.queue)
    if group is not None and not any(map(groups.matches, overview.groups)):
        status = _note_unknown_group(output, group, list(overview.groups))
    output.table(kept, getattr(screens, view.name), empty="nothing to list")
    return kept, status


def _note_unknown_group(output: Output, group: str, known: list[str]) -> Exit:
    from difflib import get_close_matches

    near = get_close_matches(group, known, n=1)
    output.note(f"no group here is named like {group}{f'. Did you mean {near[0]}?' if near else ''}")
    return Exit.NO


def _say_who_is_behind(output: Output, rows: list[dict[str, Any]], store: str) -> None:
    from rmqtool.formats.config_shapes import is_own_group
    from rmqtool.render.overview import behind_lines

    own = {row["group"] for row in rows if is_own_group(row["group"])}
    for line in behind_lines(output, rows, own, f"rmqtool cat {quote(store)} -g {{}} --unread"):
        output.line(line)


def _topic_rows(overview: Overview) -> Iterator[dict[str, Any]]:
    from rmqtool.formats.config_shapes import is_own_group

    lags: dict[str, list[int]] = {}
    for group, topics in overview.groups.items():
        for name, places in topics.items() if not is_own_group(group) else ():
            lags.setdefault(name, []).append(sum(max(place.lag, 0) for place in places.values()))
    for name, topic in overview.topics.items():
        yield {
            "topic": name,
            "kind": topic.kind.value,
            "queues": len(topic.queues),
            "configuredQueues": topic.configured,
            "messages": sum(bounds.max_offset - max(bounds.min_offset, 0) for bounds in topic.queues.values()),
            "groups": len(lags.get(name, ())),
            "lag": sum(lags.get(name, ())),
        }


def _queue_rows(overview: Overview) -> Iterator[dict[str, Any]]:
    for name, topic in overview.topics.items():
        for queue_id, bounds in topic.queues.items():
            yield {
                "topic": name,
                "queueId": queue_id,
                "minOffset": bounds.min_offset,
                "maxOffset": bounds.max_offset,
                "messages": bounds.max_offset - max(bounds.min_offset, 0),
                "firstAvailable": bounds.first_available,
            }


def _group_rows(overview: Overview) -> Iterator[dict[str, Any]]:
    for group, topics in overview.groups.items():
        for topic, places in topics.items():
            queues = overview.topics[topic].queues if topic in overview.topics else {}
            for queue_id, place in places.items():
                bounds = queues.get(queue_id)
                yield {
                    "group": group,
                    "topic": topic,
                    "queueId": queue_id,
                    "minOffset": bounds.min_offset if bounds else None,
                    "committed": place.committed,
                    "maxOffset": bounds.max_offset if bounds else None,
                    "lag": place.lag,
                }


def _file_rows(store: Store) -> Iterator[dict[str, Any]]:
    for file in store.listing.files:
        row = {"file": file.path, "kind": file.what.kind.value, "size": file.size}
        yield {**row, "modified": file.mtime_ns // 1_000_000}


def _config_rows(store: Store, overview: Overview) -> Iterator[dict[str, Any]]:
    """Yield the settings; what the store shows by itself stands in place of mere defaults."""
    from rmqtool.config import Origin
    from rmqtool.upstream.settings import with_found_settings

    config = with_found_settings(store.config, store.listing)
    seen = {} if overview.host is None else {"brokerIP1": overview.host[0], "listenPort": overview.host[1]}
    unstated = {name: value for name, value in seen.items() if name not in config.origins}
    for setting in config.with_values(unstated, Origin.STORE).iter_shown():
        yield {**setting._asdict(), "origin": setting.origin.value}
