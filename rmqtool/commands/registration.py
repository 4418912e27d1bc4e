"""What a broker does when a consumer comes: it refuses, or makes the group known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rmqtool.errors import Refused

if TYPE_CHECKING:
    from rmqtool.config import StoreConfig


def refuse_reading(group: str, config: StoreConfig, groups: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse what a broker refuses to a consumer: to read from it at all, or for a group that may not."""
    from rmqtool.broker.groups import refuse_disabled
    from rmqtool.formats.topics import PERM_READ

    if not config.broker_permission & PERM_READ:
        raise Refused(
            "the broker gives no messages: its brokerPermission says so (NO_PERMISSION)",
            hint="rmqtool cat STORE shows them all the same",
        )
    refuse_disabled(group, groups.get(group))


def register_group(root: str, config: StoreConfig, group: str) -> None:
    """Write a group down that is new, under the lock that the caller holds; refuse one that may not consume."""
    from rmqtool.broker.groups import SubscriptionGroups
    from rmqtool.engine.clock import SystemClock
    from rmqtool.files.posix_write import PosixWritableFileSystem
    from rmqtool.formats.paths import SUBSCRIPTION_GROUP
    from rmqtool.store.config_files import config_text

    with PosixWritableFileSystem(root) as files:
        groups = SubscriptionGroups(config_text(files, SUBSCRIPTION_GROUP), config, SystemClock())
        groups.ensure(group)
        groups.save_changed()
