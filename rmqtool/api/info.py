"""``info``: a store at a glance, and lists of its parts."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from shlex import quote
from typing import TYPE_CHECKING, NamedTuple, Unpack, cast

from rmqtool.api.cluster import opened_cluster
from rmqtool.api.store import Place, is_one_file, is_remote, opened_here, store_of
from rmqtool.api.wanted import WHERE, Json, Said, Where, require_known, unknown_places, wanted_of
from rmqtool.errors import Exit, UsageError, worst
from rmqtool.findings.finding import UNREAD

if TYPE_CHECKING:
    from rmqtool.api.shapes import Info
    from rmqtool.errors import OptionalMissing
    from rmqtool.findings import Finding
    from rmqtool.look.overview import Overview
    from rmqtool.store.open import Store
    from rmqtool.store.tiers import Tier


class View(StrEnum):
    """The parts of a store that can be listed."""

    TOPICS = "topics"
    QUEUES = "queues"
    GROUPS = "groups"
    FILES = "files"
    CONFIG = "config"


class Glance(NamedTuple):
    """The result of ``info``: the object of the contract, the findings, and the rows of a view.

    ``own_groups`` are groups that a broker or a client keeps for itself. ``missing`` is the optional library without
    which a part of the store could not be read.
    """

    root: str
    shown: Json
    findings: list[Finding]
    rows: list[Json]
    own_groups: frozenset[str]
    said: list[Said]
    missing: OptionalMissing | None

    @property
    def status(self) -> Exit:
        """Return the exit status: findings do not change it, files that could not be read do."""
        unread = any(finding.code in UNREAD for finding in self.findings)
        return worst(Exit.DONE, *(one.status for one in self.said), Exit.SKIPPED if unread else Exit.DONE)


def info(store: Place) -> Info:
    """Return the store at a glance: files, topics, queues, groups with their lag, problems at first sight."""
    return cast("Info", glance(store).shown)


def glance(store: Place, view: str | None = None, *, group: str | None = None, **which: Unpack[Where]) -> Glance:
    """Look at a store; with a ``view`` also list its topics, queues, groups, files or settings."""
    from rmqtool.checks import quick
    from rmqtool.formats.config_shapes import is_own_group
    from rmqtool.formats.paths import FileKind
    from rmqtool.look.overview import read_overview
    from rmqtool.store.tiers import Tier

    require_known("glance", which, WHERE)
    if is_remote(store):
        return _remote_glance(store, view, group, which)
    with opened_here(store) as found:
        if isinstance(found, Tier):
            return _tier_glance(found, view, group, which)
        if is_one_file(store_of(store).path) and found.listing.files[0].what.kind not in (
            FileKind.COMMIT_LOG,
            FileKind.UNKNOWN,
        ):
            # Of the other files, a look would call everything else missing, and nothing wrong.
            hint = f"rmqtool info {quote(found.root)}"
            raise UsageError(f"{store_of(store).path} is one file, and info is about a whole store", hint=hint)
        overview = read_overview(found)
        quick.judge(found, overview)
        if found.config.tiered_store_file_path:
            from rmqtool.look.tier_overview import add_tier

            add_tier(overview, found)
        rows: list[Json] = []
        said: list[Said] = []
        if view is not None:
            rows = list(_kept(_rows(View(view), found, overview), group, which))
            unread = [one for one in overview.findings if one.code in UNREAD]
            said = [Said(f"{one.file} is not in the answer: {one.message}", Exit.SKIPPED) for one in unread]
            said += _said(found, overview, group, which)
        own = frozenset(filter(is_own_group, overview.groups))
        return Glance(found.root, overview.as_json(), overview.findings, rows, own, said, overview.missing)


def _tier_glance(tier: Tier, view: str | None, group: str | None, which: Where) -> Glance:
    """Look at a tier of tiered storage."""
    from rmqtool.look.tier_overview import read_tier_overview

    if view in (View.GROUPS, View.CONFIG):
        raise UsageError(f"a tier has no {view}", hint="info STORE topics, queues or files; for more give its store")
    overview = read_tier_overview(tier)
    rows: list[Json] = []
    if view is not None:
        listed = {View.TOPICS: _topic_rows, View.QUEUES: _queue_rows}.get(View(view))
        rows = list(_tier_files(tier) if listed is None else _kept(listed(overview), group, which))
    said = [] if view is None else list(_unmatched(rows, group, which))
    return Glance(tier.root, overview.as_json(), overview.findings, rows, frozenset(), said, None)


def _tier_files(tier: Tier) -> Iterator[Json]:
    from rmqtool.formats.paths import classify

    queues = tier.queues.values()
    segments = [segment for queue in queues for segment in (*queue.log, *queue.entries)]
    for segment in (*segments, *tier.index):
        status = tier.filesystem.find_stat(segment.path)
        row = {"file": segment.path, "kind": classify(segment.path).kind.value, "size": segment.size}
        yield {**row, "modified": status.mtime_ns // 1_000_000 if status else None}


def _remote_glance(place: Place, view: str | None, group: str | None, which: Where) -> Glance:
    """Look at a live cluster."""
    from rmqtool.api.remote import overview_json, overview_rows
    from rmqtool.client.admin import read_overview
    from rmqtool.formats.config_shapes import is_own_group

    if view in (View.FILES, View.CONFIG):
        hint = "info STORE topics, queues or groups; for files give the storePathRootDir of a broker"
        raise UsageError(f"info {view} needs the files of a store", hint=hint)
    with opened_cluster(place) as cluster:
        overview = cluster.run(read_overview(cluster.connections))
        address = str(cluster.address)
    rows = [] if view is None else list(_kept(overview_rows(overview, view), group, which))
    said = [] if view is None else list(_unmatched(rows, group, which))
    own = frozenset(filter(is_own_group, overview.groups))
    return Glance(address, overview_json(address, overview), [], rows, own, said, None)


def _unmatched(rows: list[Json], group: str | None, which: Where) -> Iterator[Said]:
    """Yield a note where a topic, queue or group was asked for and no row is left."""
    asked = [*([f"topic {which['topics']}"] if which.get("topics") else []), *([f"group {group}"] if group else [])]
    if not rows and asked:
        yield Said(f"nothing matches {' and '.join(asked)}", Exit.NO)


def _rows(view: View, store: Store, overview: Overview) -> Iterator[Json]:
    match view:
        case View.TOPICS:
            return _topic_rows(overview)
        case View.QUEUES:
            return _queue_rows(overview)
        case View.GROUPS:
            return _group_rows(overview)
        case View.FILES:
            return _file_rows(store)
        case View.CONFIG:
            return _config_rows(store, overview)


def _kept(rows: Iterator[Json], group: str | None, which: Where) -> Iterator[Json]:
    """Yield the rows that were asked for."""
    from rmqtool.filters.wanted import parse_patterns

    asked, groups = wanted_of(which), parse_patterns([group] if group else ())
    for row in rows:
        if (
            ("topic" not in row or asked.topics.matches(row["topic"]))
            and ("group" not in row or groups.matches(row["group"]))
            and (asked.queue_id is None or row.get("queueId") == asked.queue_id)
        ):
            yield row


def _said(store: Store, overview: Overview, group: str | None, which: Where) -> Iterator[Said]:
    """Yield a note for each topic, queue or group that was asked for and does not exist."""
    from difflib import get_close_matches

    from rmqtool.filters.wanted import parse_patterns

    unknown = unknown_places([store], wanted_of(which))
    if unknown is not None:
        yield unknown
    if group is not None and not any(map(parse_patterns([group]).matches, overview.groups)):
        near = get_close_matches(group, list(overview.groups), n=1)
        yield Said(f"no group matches {group}{f'. Did you mean {near[0]}?' if near else ''}", Exit.NO)


def _topic_rows(overview: Overview) -> Iterator[Json]:
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


def _queue_rows(overview: Overview) -> Iterator[Json]:
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


def _group_rows(overview: Overview) -> Iterator[Json]:
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


def _file_rows(store: Store) -> Iterator[Json]:
    for file in store.listing.files:
        row = {"file": file.path, "kind": file.what.kind.value, "size": file.size}
        yield {**row, "modified": file.mtime_ns // 1_000_000}


def _config_rows(store: Store, overview: Overview) -> Iterator[Json]:
    """Yield the settings; a value that the files of the store show replaces a default."""
    from rmqtool.config import Origin
    from rmqtool.upstream.settings import with_found_settings

    config = with_found_settings(store.config, store.listing)
    seen = {} if overview.host is None else {"brokerIP1": overview.host[0], "listenPort": overview.host[1]}
    unstated = {name: value for name, value in seen.items() if name not in config.origins}
    for setting in config.with_values(unstated, Origin.STORE).iter_shown():
        yield {**setting._asdict(), "origin": setting.origin.value}
