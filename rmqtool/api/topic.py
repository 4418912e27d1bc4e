"""``topic``: list, show, create, alter and delete topics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, cast

from rmqtool.api.cluster import opened_cluster
from rmqtool.api.shared import place_of
from rmqtool.api.store import Place, is_remote, opened
from rmqtool.api.wanted import require_known
from rmqtool.errors import NotFound, UsageError

if TYPE_CHECKING:
    from rmqtool.api.shapes import Topic
    from rmqtool.broker.topics import TopicConfigs
    from rmqtool.store.open import Store


class Action(StrEnum):
    """An action on topics."""

    LIST = "list"
    SHOW = "show"
    CREATE = "create"
    ALTER = "alter"
    DELETE = "delete"


class Settings(TypedDict, total=False):
    """Settings of a topic: how many queues, permission ("rw", "r", "w", "-"), attributes of 5.x.

    An attribute without a value is removed.
    """

    queues: int | None
    perm: str | None
    attributes: Mapping[str, str] | Iterable[str] | None


def topics(store: Place) -> list[Topic]:
    """Return the topics of a store, each with its settings."""
    return topic(store, "list")


def topic(store: Place, action: str, name: str = "", **settings: Unpack[Settings]) -> list[Topic]:
    """List the topics of a store; show, create, alter or delete one.

    Shown, a topic has the bounds of its queues, and the place of each group that has consumed it.
    """
    from rmqtool.broker.topics import TopicConfigs
    from rmqtool.engine.clock import SystemClock
    from rmqtool.engine.retention import remove_queues
    from rmqtool.files.posix_write import PosixWritableFileSystem
    from rmqtool.formats.paths import TOPICS
    from rmqtool.store.config_files import config_text
    from rmqtool.store.listing import lock_store

    wanted, found = parse_action(action), parse_settings(settings)
    if found and wanted not in (Action.CREATE, Action.ALTER):
        raise UsageError(f"{wanted} takes no settings", hint="create and alter do")
    place = place_of(store, "topic")
    if is_remote(place):
        with opened_cluster(place) as cluster:
            return _plain(cluster.topic(wanted, name, **settings), is_served=place is not store)
    with opened(store) as listed:
        if wanted is Action.LIST:
            return [_row(one, config) for one, config in sorted(_known(listed).items())]
        if wanted is Action.SHOW:
            return [_shown(listed, name)]
        root, version = listed.root, listed.version
    with PosixWritableFileSystem(root) as files, lock_store(files):
        configs = TopicConfigs(config_text(files, TOPICS), version, SystemClock())
        row = _change(configs, wanted, name, found)
        configs.save()
        if wanted is Action.DELETE:
            remove_queues(files, name)
        return [row]


def _plain(rows: list[Topic], *, is_served: bool) -> list[Topic]:
    """Leave out the brokers of topics in a store that is served: there is one."""
    if not is_served:
        return rows
    return [cast("Topic", {name: value for name, value in row.items() if name != "brokers"}) for row in rows]


def _shown(store: Store, name: str) -> Topic:
    """Return a topic with its queues and groups. Raises NotFound."""
    from rmqtool.look.overview import read_overview

    overview = read_overview(store)
    if overview.missing is not None:
        raise overview.missing
    configs = _known(store)
    if name not in configs and name not in overview.topics:
        raise _no_topic(name, [*configs, *overview.topics])
    there = overview.topics.get(name)
    queues = {} if there is None else there.as_json()["queues"]
    groups = {
        group: {str(queue): place.as_json() for queue, place in places[name].items()}
        for group, places in overview.groups.items()
        if name in places
    }
    row = _row(name, configs[name]) if name in configs else {**_row(name, {}), "perm": None, "order": None}
    return cast("Topic", {**row, "queues": queues, "groups": groups})


def _no_topic(name: str, known: Iterable[str]) -> NotFound:
    """Return the error for a topic that does not exist."""
    from difflib import get_close_matches

    near = get_close_matches(name, sorted(set(known)), n=1)
    return NotFound(
        f"there is no topic {name}", hint=f"did you mean {near[0]}?" if near else "rmqtool topic STORE list"
    )


def _known(store: Store) -> dict[str, dict[str, Any]]:
    """Return the topics and their settings, from the file or from a database."""
    from rmqtool.broker.topics import TopicConfigs
    from rmqtool.engine.clock import SystemClock
    from rmqtool.files.posix_write import PosixWritableFileSystem
    from rmqtool.formats.paths import CONFIG, TOPICS
    from rmqtool.store.config_files import config_text, read_configs

    if any(directory.startswith(f"{CONFIG}/") for directory in store.listing.databases()):
        return read_configs(store).topics
    with PosixWritableFileSystem(store.root) as files:
        return TopicConfigs(config_text(files, TOPICS), store.version, SystemClock()).table


def parse_action(text: str) -> Action:
    """Return the action that a word names."""
    if text not in list(Action):
        raise UsageError(f"unknown action {text!r}", hint="list, show, create, alter or delete")
    return Action(text)


def parse_settings(settings: Settings) -> dict[str, Any]:
    """Return settings by upstream's names."""
    from rmqtool.broker.topics import parse_perm

    require_known("topic", settings, tuple(Settings.__annotations__))
    found: dict[str, Any] = {}
    queues, perm, attributes = (settings.get(name) for name in ("queues", "perm", "attributes"))
    if queues is not None:
        found = {"readQueueNums": queues, "writeQueueNums": queues}
    if perm is not None:
        found["perm"] = parse_perm(str(perm))
    if attributes:
        found["attributes"] = _pairs(settings["attributes"])
    return found


def _pairs(attributes: Mapping[str, str] | Iterable[str] | None) -> dict[str, str]:
    if isinstance(attributes, Mapping):
        return dict(attributes)
    pairs = [attribute.partition("=") for attribute in attributes or ()]
    bad = next((name for name, sign, _ in pairs if not sign or not name), None)
    if bad is not None:
        raise UsageError(f"{bad!r} is not KEY=VALUE", hint="--attribute message.type=FIFO; an empty value removes it")
    return {name: value for name, _, value in pairs}


def _change(configs: TopicConfigs, action: Action, name: str, settings: dict[str, Any]) -> Topic:
    if action is Action.CREATE:
        return _row(name, configs.create(name, **settings))
    if action is Action.ALTER:
        return _row(name, configs.alter(name, **settings))
    return cast("Topic", {**_row(name, configs.delete(name)), "deleted": True})


def _row(name: str, config: dict[str, Any]) -> Topic:
    from rmqtool.broker.topics import spell_perm

    return {
        "topic": name,
        "readQueueNums": config.get("readQueueNums"),
        "writeQueueNums": config.get("writeQueueNums"),
        "perm": spell_perm(int(config.get("perm", 0))),
        "order": bool(config.get("order")),
        "attributes": config.get("attributes") or {},
    }
