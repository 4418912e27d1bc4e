"""``group``: list, show, create, alter and delete consumer groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

from rmqtool.api.cluster import opened_cluster
from rmqtool.api.shared import place_of
from rmqtool.api.store import Place, is_remote, opened, store_of
from rmqtool.errors import UsageError

if TYPE_CHECKING:
    from rmqtool.api.shapes import Group
    from rmqtool.files.filesystem import WritableFileSystem
    from rmqtool.store.open import Store

# The actions on groups.
ACTIONS = ("list", "show", "create", "alter", "delete")
# By upstream's names, as a mapping or as "name=value".
Settings = Mapping[str, str | bool | int] | Iterable[str]


def groups(store: Place) -> dict[str, Group]:
    """Return the consumer groups of a store by name, with their settings, committed offsets and lag."""
    return group(store, "list")


def group(store: Place, action: str, name: str = "", settings: Settings | None = None) -> dict[str, Group]:
    """List the consumer groups of a store; show, create, alter or delete one. Deleting removes its offsets too."""
    found = parse_group(action, name, settings)
    place = place_of(store, "group")
    if is_remote(place):
        with opened_cluster(place) as cluster:
            return cluster.group(action, name, found)
    if action not in ("list", "show"):
        return _changed(store, action, name, found)
    from rmqtool.broker.groups import find_named

    with opened(store) as listed:
        rows = _rows(listed)
    return rows if action == "list" else {name: find_named(rows, name)}


def parse_group(action: str, name: str, settings: Settings | None) -> dict[str, bool | int]:
    """Return settings by upstream's names, after checking that an action, a name and settings belong together."""
    from rmqtool.broker.groups import parse_setting

    if action not in ACTIONS:
        raise UsageError(f"unknown action {action!r}", hint="list, show, create, alter or delete")
    pairs: Any = settings.items() if isinstance(settings, Mapping) else map(_pair, settings or ())
    found = {setting: parse_setting(setting, value) for setting, value in pairs}
    if found and action not in ("create", "alter"):
        raise UsageError(f"{action} takes no settings", hint="create and alter do")
    if action == "alter" and not found:
        raise UsageError("nothing to alter", hint=f"rmqtool group STORE alter {name} --set retryMaxTimes=3")
    if bool(name) is (action == "list"):
        raise UsageError("list takes no group" if name else "name one group", hint="rmqtool group STORE list")
    return found


def _pair(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign:
        raise UsageError(f"{text!r} is not NAME=VALUE", hint="--set retryMaxTimes=3")
    return name, value


def _rows(store: Store) -> dict[str, Group]:
    """Return the groups with settings or progress, by name."""
    from rmqtool.look.overview import read_overview

    overview = read_overview(store)
    if overview.missing is not None:
        raise overview.missing
    configs = {} if overview.configs is None else overview.configs.groups
    names = sorted({*configs, *overview.groups})
    return {
        name: _row(
            configs.get(name),
            {
                topic: {str(queue): place.as_json() for queue, place in places.items()}
                for topic, places in overview.groups.get(name, {}).items()
            },
        )
        for name in names
    }


def _row(config: Mapping[str, Any] | None, topics: Mapping[str, Any]) -> Group:
    """Return a group. One without settings is known by its offsets only, and a setting of a later version is unset."""
    from rmqtool.broker.groups import SETTINGS
    from rmqtool.formats.config_shapes import SUBSCRIPTION_GROUP_CONFIG

    declared = SUBSCRIPTION_GROUP_CONFIG.fields
    row: dict[str, Any] = {
        name: None if config is None else config.get(name, declared[name].default) for name in SETTINGS
    }
    return cast("Group", {**row, "topics": dict(topics)})


def _changed(place: Place, action: str, name: str, settings: Mapping[str, bool | int]) -> dict[str, Group]:
    """Create, alter or delete a group, under the store's lock."""
    from rmqtool.broker.groups import SubscriptionGroups, find_named, named_group, refuse_later_settings
    from rmqtool.engine.clock import SystemClock
    from rmqtool.files.posix_write import PosixWritableFileSystem
    from rmqtool.formats.paths import SUBSCRIPTION_GROUP
    from rmqtool.store.config_files import config_text
    from rmqtool.store.listing import lock_store

    store = store_of(place)
    named_group(name)
    with store.reopen() as listed:
        root, config = listed.root, listed.config
    refuse_later_settings(settings, config.version)
    with PosixWritableFileSystem(root) as files, lock_store(files):
        with store.reopen() as listed:
            rows = _rows(listed)
        table = SubscriptionGroups(config_text(files, SUBSCRIPTION_GROUP), config, SystemClock())
        table.add_own()
        if action == "delete":
            find_named(rows, name)
            _delete(files, listed, table, name)
            return {name: cast("Group", {**rows[name], "deleted": True})}
        changed = (table.create if action == "create" else table.alter)(name, **settings)
        table.save_changed()
        return {name: _row(changed, rows[name]["topics"] if name in rows else {})}


def _delete(files: WritableFileSystem, store: Store, table: Any, name: str) -> None:
    """Forget a group: first its offsets, so that the command can be run again if it is interrupted."""
    from rmqtool.broker.groups import refuse_own
    from rmqtool.broker.offsets import ConsumerOffsets, progress_file
    from rmqtool.engine.clock import SystemClock
    from rmqtool.store.config_files import config_text

    refuse_own(name)
    lmq = store.config.enable_lmq
    text = config_text(files, progress_file(enable_lmq=lmq))
    offsets = ConsumerOffsets(text, store.version, SystemClock(), enable_lmq=lmq)
    offsets.remove(lambda _topic, group: group == name)
    offsets.save()
    if table.find(name) is not None:
        table.delete(name)
        table.save_changed()
