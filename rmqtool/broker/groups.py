"""The subscription groups of a broker: their names and permissions.

A file that was read keeps its order when it is written again. upstream: SubscriptionGroupManager.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import partial
from typing import Any, TypeVar

from rmqtool.config import StoreConfig, Version
from rmqtool.engine.clock import Clock, SystemClock
from rmqtool.errors import NotFound, Refused, UsageError
from rmqtool.files.posix_write import PosixWritableFileSystem
from rmqtool.formats.codes import is_since
from rmqtool.formats.config_files import decode_config, dialect_of, encode_config, new_bean, with_entry
from rmqtool.formats.config_shapes import DATA_VERSION, OWN_GROUPS, SUBSCRIPTION_GROUP_CONFIG, is_own_group
from rmqtool.formats.config_shapes import SUBSCRIPTION_GROUPS as SHAPE
from rmqtool.formats.fastjson import Table
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.java import INT_MAX, LONG_MAX
from rmqtool.formats.paths import SUBSCRIPTION_GROUP
from rmqtool.formats.topics import PERM_READ, check_group_name
from rmqtool.store.config_files import ConfigText, config_text

_TABLE = SHAPE.fields["subscriptionGroupTable"].shape

GroupConfig = dict[str, Any]
Found = TypeVar("Found")

# The settings of a group that a person changes, by upstream's names, with the type of their values.
SETTINGS: Mapping[str, type] = {
    "consumeEnable": bool,
    "consumeFromMinEnable": bool,
    "consumeBroadcastEnable": bool,
    "consumeMessageOrderly": bool,
    "retryQueueNums": int,
    "retryMaxTimes": int,
    "brokerId": int,
    "whichBrokerWhenConsumeSlowly": int,
    "notifyConsumerIdsChangedEnable": bool,
}
_BOOLEANS = {"true": True, "false": False}


def parse_setting(name: str, value: str | bool | int) -> bool | int:
    """Return the value of a setting that a person typed, or a program gave."""
    kind = SETTINGS.get(name)
    if kind is None:
        near = get_close_matches(name, SETTINGS, n=1)
        meant = f"did you mean {near[0]}?" if near else f"one of {', '.join(SETTINGS)}"
        raise UsageError(f"a group has no setting {name!r}", hint=meant)
    found = value if isinstance(value, bool | int) else _BOOLEANS.get(value) if kind is bool else _number(value)
    if found is None or isinstance(found, bool) is not (kind is bool):
        raise UsageError(f"{name} cannot be {value!r}", hint="true or false" if kind is bool else "a whole number")
    return found


def find_named(groups: Mapping[str, Found], name: str) -> Found:
    """Return one of the groups. Raises NotFound."""
    if name not in groups:
        near = get_close_matches(name, groups, n=1)
        hint = f"did you mean {near[0]}?" if near else "rmqtool group STORE list"
        raise NotFound(f"there is no group {name}", hint=hint)
    return groups[name]


def refuse_later_settings(settings: Mapping[str, Any], version: str) -> None:
    """Refuse a setting that groups of this version do not have."""
    for name in settings:
        if not is_since(version, SUBSCRIPTION_GROUP_CONFIG.fields[name].since):
            hint = "leave it out, or use --as 5.3 for a newer broker"
            raise UsageError(f"groups of {version} have no {name}", hint=hint)


def _number(text: str) -> int | None:
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdecimal() else None


def refuse_disabled(group: str, config: Mapping[str, Any] | None) -> None:
    """Refuse to consume for a group with consumeEnable false, as a broker does."""
    if config is not None and not config.get("consumeEnable", True):
        raise Refused(
            f"group {group} may not consume: its consumeEnable is false (NO_PERMISSION)",
            hint=f"rmqtool cat STORE -g {group} --unread",
        )


def refuse_own(group: str) -> None:
    """Refuse to delete a group that each broker has."""
    if is_own_group(group):
        raise Refused(f"{group} is one of the broker's own groups", hint="rmqtool group STORE list")


def named_group(group: str | None) -> str:
    """Return the name of a group to write about. It must be given, and be a name that a broker accepts."""
    if not group:
        raise UsageError("missing group", hint="name the group with -g")
    refusal = check_group_name(group, Version.V5_3)
    if refusal is not None:
        raise UsageError(refusal, hint="use letters, digits, _ and -")
    return group


class SubscriptionGroups:
    """The table of one broker. Nothing is written before ``save_changed``."""

    def __init__(self, text: ConfigText, config: StoreConfig, clock: Clock) -> None:
        self._text = text
        self._version = config.version.value
        self._creates = config.auto_create_subscription_group
        self._clock = clock
        found = text.load(_decode)
        self._value: dict[str, Any] = found or {}
        fresh = new_bean(DATA_VERSION, self._version, timestamp=clock.now())
        known = {name: value for name, value in (self._value.get("dataVersion") or {}).items() if name in fresh}
        self._value["dataVersion"] = fresh | known
        self.table: dict[str, GroupConfig] = dict(self._value.get("subscriptionGroupTable") or {})
        self._is_new = found is None
        self.is_changed = False

    @property
    def data_version(self) -> dict[str, Any]:
        """Which state of the table this is."""
        return dict(self._value["dataVersion"])

    @property
    def forbidden(self) -> dict[str, dict[str, int]]:
        """The topics that groups may not read, as the file has them."""
        return dict(self._value.get("forbiddenTable") or {})

    def add_own(self) -> None:
        """Begin a table that was never written with the groups that each broker of this version has."""
        if self._is_new:
            self._is_new = False
            for name, since in OWN_GROUPS.items():
                if is_since(self._version, since):
                    self._set(name)

    def ensure(self, group: str) -> None:
        """Create the group of a consumer, as a broker does; refuse one that may not consume."""
        self.add_own()
        config = self.find_or_create(group)
        if config is None:
            raise Refused(
                f"there is no group {group}, and this broker does not create groups: "
                "autoCreateSubscriptionGroup is false",
                hint="--conf autoCreateSubscriptionGroup=true creates it",
            )
        refuse_disabled(group, config)

    def find(self, group: str) -> GroupConfig | None:
        """Return the settings of a group."""
        return self.table.get(group)

    def find_or_create(self, group: str) -> GroupConfig | None:
        """Return the settings of a group that a client names; None where this broker does not create groups.

        upstream: findSubscriptionGroupConfig
        """
        found = self.table.get(group)
        if found is None and self._creates and check_group_name(group, self._version) is None:
            found = self._set(group)
        return found

    def create(self, group: str, **settings: Any) -> GroupConfig:
        """Make a group; the name must be free."""
        refusal = check_group_name(group, self._version)
        if refusal is not None:
            raise UsageError(refusal, hint="for example: rmqtool group STORE create Billing")
        if group in self.table:
            raise Refused(f"group {group} already exists", hint=f"rmqtool group STORE alter {group}")
        return self._set(group, **_checked(settings))

    def alter(self, group: str, **settings: Any) -> GroupConfig:
        """Change settings of a group."""
        self._existing(group)
        return self._set(group, **_checked(settings))

    def delete(self, group: str) -> GroupConfig:
        """Forget a group; return its settings. Its offsets stay."""
        config = self._existing(group)
        refuse_own(group)
        del self.table[group]
        self._touch()
        return config

    def _existing(self, group: str) -> GroupConfig:
        config = self.table.get(group)
        if config is None:
            raise NotFound(f"there is no group {group}", hint="rmqtool group STORE list")
        return config

    def as_value(self) -> dict[str, Any]:
        """Return what the file says: the version of the data and all groups."""
        return {**new_bean(SHAPE, self._version), **self._value, "subscriptionGroupTable": self.table}

    def save_changed(self) -> None:
        """Write the file if anything changed."""
        if self.is_changed:
            self._text.write(self.encode())
            self.is_changed = False

    def unsaved(self) -> Callable[[], None] | None:
        """Return what writes the file as it is to be now; None where nothing changed since."""
        changed, self.is_changed = self.is_changed, False
        if not changed:
            return None
        return partial(self._text.write, self.encode())

    def encode(self) -> bytes:
        """Return the file as a broker of the version writes it."""
        return encode_config(SUBSCRIPTION_GROUP, self.as_value(), dialect_of(self._version))

    def _set(self, group: str, **settings: Any) -> GroupConfig:
        """Write settings of a group down over those that it has, or over a new group's."""
        assert isinstance(_TABLE, Table), "the shape of the file says so"
        known = self.table.get(group) or new_bean(SUBSCRIPTION_GROUP_CONFIG, self._version, groupName=group)
        config = {**known, **settings}
        self.table = with_entry(self.table, group, config, _TABLE)
        self._touch()
        return config

    def _touch(self) -> None:
        version = self._value["dataVersion"]
        version["counter"] = int(version.get("counter") or 0) + 1
        version["timestamp"] = self._clock.now()
        self.is_changed = True


_MOST_RETRY_QUEUES = 65_536


def _checked(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings that a broker would take, by its names."""
    queues = settings.get("retryQueueNums")
    if queues is not None and not 0 <= queues <= _MOST_RETRY_QUEUES:
        raise UsageError(f"a group cannot have {queues} retry queues", hint=f"use 0 to {_MOST_RETRY_QUEUES}")
    times = settings.get("retryMaxTimes")
    if times is not None and not -1 <= times <= INT_MAX:
        raise UsageError(f"a message cannot be tried again {times} times", hint="use -1 (for ever), 0 or more")
    for name in ("brokerId", "whichBrokerWhenConsumeSlowly"):
        if not 0 <= (settings.get(name) or 0) <= LONG_MAX:
            raise UsageError(f"{name} cannot be {settings[name]}", hint="0 is the master, 1 and up are its slaves")
    return {name: value for name, value in settings.items() if value is not None}


def _decode(data: bytes) -> dict[str, Any] | Flaw:
    decoded = decode_config(SUBSCRIPTION_GROUP, data)
    return decoded if isinstance(decoded, Flaw) else decoded.value


def refuse_reading(group: str, config: StoreConfig, groups: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse what a broker refuses to a consumer: any read, or reads for a group that may not consume."""
    if not config.broker_permission & PERM_READ:
        raise Refused(
            "this broker does not allow reads: see brokerPermission (NO_PERMISSION)",
            hint="rmqtool cat STORE",
        )
    refuse_disabled(group, groups.get(group))


def register_group(root: str, config: StoreConfig, group: str) -> None:
    """Write down a new group, under the lock that the caller holds; refuse one that may not consume."""
    with PosixWritableFileSystem(root) as files:
        groups = SubscriptionGroups(config_text(files, SUBSCRIPTION_GROUP), config, SystemClock())
        groups.ensure(group)
        groups.save_changed()
