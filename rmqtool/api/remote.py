"""The answers of a live cluster in the shapes of the contract: what the verbs say of a store, said of a cluster.

A queue is shown by its number; where a cluster has several brokers, by ``BROKER/NUMBER``.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

from rmqtool.api.wanted import Json, Said
from rmqtool.errors import Exit, NotFound, UsageError

if TYPE_CHECKING:
    from rmqtool.api.shapes import Answer, Group, Topic
    from rmqtool.client.admin import Overview
    from rmqtool.client.cluster import Cluster
    from rmqtool.client.topic_stream import Plan
    from rmqtool.filters.wanted import Wanted
    from rmqtool.formats.message_queue import MessageQueue
    from rmqtool.log.read import Note, Part
    from rmqtool.log.stream import Request
    from rmqtool.look.question import Question
    from rmqtool.remoting.bodies.broker import SubscriptionGroupConfig
    from rmqtool.remoting.bodies.routes import TopicConfig


class Names:
    """How queues are called: by their number alone, where there is one broker."""

    def __init__(self, brokers: int) -> None:
        self._is_alone = brokers == 1

    def __call__(self, queue: MessageQueue) -> str:
        return str(queue.queue_id) if self._is_alone else f"{queue.broker_name}/{queue.queue_id}"


async def info_json(cluster: Cluster) -> Json:
    """Return the object of ``info --json`` of a cluster."""
    from rmqtool.client.admin import read_overview

    return overview_json(str(cluster.address), await read_overview(cluster))


def overview_json(address: str, found: Overview) -> Json:
    """Return an overview as the object of ``info --json``."""
    from rmqtool.formats.topics import topic_kind

    name_of = Names(len(found.addresses))
    own = {*found.addresses, *found.clusters}
    clusters = {broker: name for name, brokers in found.clusters.items() for broker in brokers}
    return {
        "cluster": address,
        "brokers": {
            name: {
                "cluster": clusters.get(name),
                "addresses": {str(broker_id): one for broker_id, one in sorted(addresses.items())},
                "version": _version(found.runtime.get(name, {})),
                "putTps": _rate(found.runtime.get(name, {}), "putTps"),
                "getTps": _rate(found.runtime.get(name, {}), "getTransferredTps", "getTransferedTps"),
            }
            for name, addresses in sorted(found.addresses.items())
        },
        "topics": {
            topic: {
                "kind": topic_kind(topic, own).value,
                "queues": {
                    name_of(queue): {"minOffset": one.min_offset, "maxOffset": one.max_offset}
                    for queue, one in queues.items()
                },
            }
            for topic, queues in found.topics.items()
        },
        "groups": {group: _places(places, name_of) for group, places in found.groups.items()},
    }


def overview_rows(found: Overview, view: str) -> Iterator[Json]:
    """Yield the rows of a view: its topics, queues or groups."""
    rows = {"topics": _topic_rows, "queues": _queue_rows, "groups": _group_rows}
    return rows[view](found)


def _topic_rows(found: Overview) -> Iterator[Json]:
    from rmqtool.formats.config_shapes import is_own_group
    from rmqtool.formats.topics import topic_kind

    own = {*found.addresses, *found.clusters}
    lags: dict[str, dict[str, int]] = {}
    for group, places in found.groups.items():
        for queue, place in places.items() if not is_own_group(group) else ():
            by_group = lags.setdefault(queue.topic, {})
            by_group[group] = by_group.get(group, 0) + max(place.lag or 0, 0)
    for name, queues in found.topics.items():
        yield {
            "topic": name,
            "kind": topic_kind(name, own).value,
            "queues": len(queues),
            "configuredQueues": len(queues),
            "messages": sum(one.max_offset - one.min_offset for one in queues.values()),
            "groups": len(lags.get(name, {})),
            "lag": sum(lags.get(name, {}).values()),
        }


def _queue_rows(found: Overview) -> Iterator[Json]:
    for name, queues in found.topics.items():
        for queue, one in queues.items():
            yield {
                "topic": name,
                "broker": queue.broker_name,
                "queueId": queue.queue_id,
                "minOffset": one.min_offset,
                "maxOffset": one.max_offset,
                "messages": one.max_offset - one.min_offset,
                "lastUpdateTimestamp": one.last_update_timestamp or None,
            }


def _group_rows(found: Overview) -> Iterator[Json]:
    for group, places in found.groups.items():
        for queue, place in places.items():
            bounds = found.topics.get(queue.topic, {}).get(queue)
            yield {
                "group": group,
                "topic": queue.topic,
                "broker": queue.broker_name,
                "queueId": queue.queue_id,
                "minOffset": None if bounds is None else bounds.min_offset,
                "committed": place.committed,
                "maxOffset": place.max_offset,
                "lag": place.lag,
                "oldestUnreadTimestamp": place.oldest_unread,
            }


def _places(places: Mapping[MessageQueue, Any], name_of: Names) -> Json:
    topics: Json = {}
    for queue, place in places.items():
        row = {"committed": place.committed, "lag": place.lag}
        if place.oldest_unread is not None:
            row["oldestUnreadTimestamp"] = place.oldest_unread
        topics.setdefault(queue.topic, {})[name_of(queue)] = row
    return topics


def _version(runtime: Mapping[str, str]) -> str | None:
    """Return the release of a broker: it says ``V5_3_3``."""
    text = runtime.get("brokerVersionDesc")
    return None if text is None else text.removeprefix("V").replace("_", ".")


def _rate(runtime: Mapping[str, str], *names: str) -> float | None:
    """Return a counter by the second: a broker gives those of the last 10 seconds, minute and 10 minutes."""
    for name in names:
        words = runtime.get(name, "").split()
        if words:
            return round(float(words[0]), 1)
    return None


async def topics_json(cluster: Cluster, name: str | None = None) -> list[Topic]:
    """Return the topics of a cluster with their settings; those of several brokers as the first has them."""
    from rmqtool.client.admin import find_topics

    found = await find_topics(cluster)
    return [_topic_row(topic, brokers) for topic, brokers in found.items() if name in (None, topic)]


async def show_topic(cluster: Cluster, name: str) -> list[Topic]:
    """Return a topic with the bounds of its queues, and the place of each group that has consumed it."""
    from rmqtool.client import admin

    found = await admin.find_topics(cluster)
    if name not in found:
        raise NotFound(f"there is no topic {name} in the cluster", hint="rmqtool topic STORE list")
    name_of = Names(len(await cluster.masters()))
    bounds = await admin.read_bounds(cluster, [(broker, name) for broker in found[name]])
    ordered = sorted(bounds.items())
    queues = {name_of(queue): {"minOffset": one.min_offset, "maxOffset": one.max_offset} for queue, one in ordered}
    groups: Json = {}
    for group, places in (await admin.read_groups(cluster, bounds, only_bounded=True)).items():
        own = _places({queue: place for queue, place in places.items() if queue.topic == name}, name_of)
        groups |= {group: own[name]} if own else {}
    return [cast("Topic", {**_topic_row(name, found[name]), "queues": queues, "groups": groups})]


def _topic_row(name: str, brokers: Mapping[str, TopicConfig]) -> Topic:
    from rmqtool.broker.topics import spell_perm

    config = next(iter(brokers.values()))
    row = {
        "topic": name,
        "readQueueNums": config.read_queue_nums,
        "writeQueueNums": config.write_queue_nums,
        "perm": spell_perm(config.perm),
        "order": bool(config.order),
        "attributes": config.attributes or {},
        "brokers": sorted(brokers),
    }
    return cast("Topic", row)


async def change_topic(cluster: Cluster, action: str, name: str, settings: Mapping[str, Any]) -> list[Topic]:
    """Create, alter or delete a topic at every broker; ``settings`` have upstream's names."""
    from rmqtool.broker.topics import DEFAULT_QUEUES
    from rmqtool.client import admin
    from rmqtool.errors import Refused
    from rmqtool.formats.topics import check_topic_name

    refusal = check_topic_name(name, "5.3")
    if refusal is not None:
        raise UsageError(refusal, hint="rmqtool topic STORE list")
    known = (await admin.find_topics(cluster)).get(name)
    if action == "create" and known is not None:
        raise Refused(f"topic {name} exists", hint=f"rmqtool topic STORE alter {name}")
    if action != "create" and known is None:
        raise NotFound(f"there is no topic {name} in the cluster", hint="rmqtool topic STORE list")
    if action == "delete":
        rows = await topics_json(cluster, name)
        await admin.delete_topic(cluster, name)
        return [cast("Topic", {**row, "deleted": True}) for row in rows]
    old = None if known is None else next(iter(known.values()))
    await admin.create_topic(
        cluster,
        name,
        queues=settings.get("writeQueueNums") or (old.write_queue_nums if old else DEFAULT_QUEUES),
        perm=settings.get("perm", old.perm if old else admin.READ_WRITE),
        attributes=settings.get("attributes") or {},
        order=bool(old and old.order),
    )
    return await topics_json(cluster, name)


async def group_rows(cluster: Cluster, name: str | None = None) -> dict[str, Group]:
    """Return the groups by name: their settings, those of several brokers as the first has them, and their places."""
    from rmqtool.client import admin

    tables = await admin.group_tables(cluster)
    topics = await admin.topic_tables(cluster)
    bounds = await admin.read_bounds(cluster, [(broker, topic) for broker in topics for topic in topics[broker]])
    places = await admin.read_groups(cluster, bounds)
    configs: dict[str, SubscriptionGroupConfig] = {}
    for table in tables.values():
        for group, config in table.items():
            configs.setdefault(group, config)
    name_of = Names(len(tables))
    return {
        group: _group_row(configs.get(group), _places(places.get(group, {}), name_of))
        for group in sorted({*configs, *places})
        if name in (None, group)
    }


def _group_row(config: SubscriptionGroupConfig | None, topics: Json) -> Group:
    """Return a group; what an earlier broker does not tell has the value that it has there."""
    from rmqtool.broker.groups import SETTINGS
    from rmqtool.formats.config_shapes import SUBSCRIPTION_GROUP_CONFIG

    known = {} if config is None else {config.fields[field].wire: value for field, value in config.given.items()}
    declared = SUBSCRIPTION_GROUP_CONFIG.fields
    settings = {name: None if config is None else known.get(name, declared[name].default) for name in SETTINGS}
    return cast("Group", {**settings, "topics": topics})


async def act_on_group(
    cluster: Cluster, action: str, name: str, settings: Mapping[str, str | bool | int] | Iterable[str] | None
) -> dict[str, Group]:
    """List or show groups; create, alter or delete one at every broker."""
    from rmqtool.api.group import parse_group
    from rmqtool.broker.groups import find_named

    found = parse_group(action, name, settings)
    if action not in ("list", "show"):
        return await _change_group(cluster, action, name, found)
    rows = await group_rows(cluster)
    return rows if action == "list" else {name: find_named(rows, name)}


async def _change_group(
    cluster: Cluster, action: str, name: str, settings: Mapping[str, bool | int]
) -> dict[str, Group]:
    """Create, alter or delete a group at every broker; ``settings`` have upstream's names."""
    from rmqtool.broker.groups import find_named, named_group, refuse_own
    from rmqtool.client import admin
    from rmqtool.errors import Refused
    from rmqtool.remoting.bodies.broker import SubscriptionGroupConfig

    named_group(name)
    known: dict[str, SubscriptionGroupConfig] = {}
    for table in (await admin.group_tables(cluster)).values():
        known.update(table)
    if action == "create" and name in known:
        raise Refused(f"group {name} already exists", hint=f"rmqtool group STORE alter {name}")
    if action == "delete":
        refuse_own(name)
        rows = await group_rows(cluster, name)
        find_named(rows, name)
        await admin.delete_group(cluster, name)
        return {name: cast("Group", {**rows[name], "deleted": True})}
    old = SubscriptionGroupConfig(group_name=name) if action == "create" else find_named(known, name)
    names = {SubscriptionGroupConfig.fields[field].wire: field for field in SubscriptionGroupConfig.fields}
    await admin.put_group(cluster, old.replace(**{names[one]: value for one, value in settings.items()}))
    return await group_rows(cluster, name)


async def answer_json(cluster: Cluster, question: Question, wanted: Wanted) -> Answer:
    """Return the object of ``query --json``."""
    from rmqtool.client.message_search import find_messages
    from rmqtool.formats.message_json import message_json

    found = await find_messages(cluster, question, wanted)
    answer: Json = {
        "query": question.text,
        "kind": found.kind.value,
        "messages": [message_json(message).fields for message in found.messages],
        "answeredBy": [_ANSWERED_BY.get(found.kind.value, "index")],
        "searched": found.searched,
        "complete": True,
        "findings": [],
    }
    if question.reasons:
        answer["reasons"] = list(question.reasons)
    if found.offsets:
        name_of = Names(len({queue.broker_name for queue in found.offsets}))
        by_topic: Json = {}
        for queue, offset in found.offsets.items():
            by_topic.setdefault(queue.topic, {})[name_of(queue)] = offset
        answer["queueOffsets"] = by_topic
        if len(found.offsets) == 1:
            answer["queueOffset"] = next(iter(found.offsets.values()))
    return cast("Answer", answer)


# The part of the store that a broker reads for the answer; for keys it is the index.
_ANSWERED_BY = {"offsetMsgId": "log", "physicalOffset": "log", "queueOffset": "queue", "time": "queue"}


async def plan_of(
    cluster: Cluster, request: Request, unread_by: str | None, *, follows: bool
) -> tuple[Plan, Request, Said | None]:
    """Return what is read for a request, and what to say of topics that do not exist."""
    from dataclasses import replace

    from rmqtool.client.topic_stream import plan_request

    begins: Mapping[MessageQueue, int] = {}
    if unread_by is not None:
        begins = await _unread(cluster, unread_by)
        least: dict[tuple[str, int], int] = {}
        for queue, offset in begins.items():
            key = queue.topic, queue.queue_id
            least[key] = min(least.get(key, offset), offset)
        request = replace(request, selection=replace(request.selection, least_offsets=least))
    plan = await plan_request(cluster, request, follows=follows, begins=begins)
    said = None
    if plan.unknown:
        known = ", ".join(plan.unknown)
        said = Said(f"no topic of the cluster matches {known}", Exit.NO)
    return plan, request, said


async def _unread(cluster: Cluster, group: str) -> dict[MessageQueue, int]:
    """Return the committed offsets of a group."""
    from rmqtool.client.admin import read_groups

    places = (await read_groups(cluster, {}, with_times=False)).get(group)
    if not places:
        raise NotFound(
            f'group "{group}" has no committed offset in this cluster',
            hint="rmqtool info STORE groups",
        )
    return {queue: place.committed for queue, place in places.items()}


def parts_of(cluster: Cluster, plan: Plan, request: Request, *, follows: bool) -> AsyncGenerator[Part | Note, None]:
    """Return the messages of a plan, as they come."""
    from rmqtool.client.topic_stream import iter_followed, iter_parts

    return iter_followed(cluster, plan, request) if follows else iter_parts(cluster, plan, request)
