"""What a start does that its log does not say: the traps of the three versions, in words."""

from __future__ import annotations

from typing import NamedTuple

from rmqtool.config import Version
from rmqtool.findings.finding import counted
from rmqtool.formats import paths
from rmqtool.upstream.config_files import ConfigLoad, LoadedConfig
from rmqtool.upstream.settings import StartSettings
from rmqtool.upstream.startup import HANGS, MessageStore, Started

_OFFSETS = paths.config_path(paths.CONSUMER_OFFSET)
_NAMED = 5
# A buffer of this size is nothing that a message needs.
_NOTABLE = 32 << 20


class Trap(NamedTuple):
    """One of them. ``loses`` says that something is lost, or will be, although the start may succeed."""

    name: str
    message: str
    loses: bool


def find_traps(store: MessageStore, started: Started | None, unreachable: int | None, abort_stays: bool) -> list[Trap]:
    """Return what is to be known about a start that came to its end."""
    found = []
    if not store.commit_log.mapped.mapped and started is not None and store.loaded_max_offsets:
        found.append(Trap("no log", _NO_LOG, True))
    if started == HANGS:
        found.append(Trap("endless start", _ENDLESS, True))
    if store.commit_log.limited and unreachable:
        found.append(_limit(store, unreachable))
    if started is True:
        found += _blind(store)
        if abort_stays and not store.settings.duplication:
            found.append(Trap("abort stays", _ABORT_STAYS, False))
    if store.settings.is_4_9 and store.commit_log.check.most_allocated > _NOTABLE:
        found.append(Trap("heap", _HEAP_NEEDED.format(store.commit_log.check.most_allocated >> 20), False))
    return found


def heap_trap(size: int, lost_with_more: int | None) -> Trap:
    """Return what is to be known when the heap of 4.9 decides; ``lost_with_more`` is None where none is enough."""
    if lost_with_more is None:
        return Trap("heap", _HEAP_KILLS.format(size), True)
    return Trap("heap", _HEAP_DECIDES.format(2 * size >> 20, lost_with_more), True)


def _limit(store: MessageStore, unreachable: int) -> Trap:
    limit, files = store.settings.recover_max_num, len(store.commit_log.mapped.mapped)
    return Trap(
        "file limit",
        f"a 5.4 broker looks at the last {limit} of the {files} log files and no further; what older files hold and no "
        f"queue leads to ({counted(unreachable, 'message')} in all) stays unread. "
        f"commitLogRecoverMaxNum={files} looks at all",
        False,
    )


def _blind(store: MessageStore) -> list[Trap]:
    end = store.commit_log.mapped.max_offset
    beyond = {
        f"{topic}/{queue_id}": queue.max_physic_offset
        for (topic, queue_id), queue in sorted(store.queues.queues.items())
        if queue.max_physic_offset > end
    }
    if not beyond:
        return []
    names = ", ".join(list(beyond)[:_NAMED]) + (f" and {len(beyond) - _NAMED} more" if len(beyond) > _NAMED else "")
    most = max(beyond.values())
    what = f"{names} would know a message that ends at {most}, and the log ends at {end}"
    if store.settings.is_4_9:
        stops = f"{what}: until the log has grown past that, new messages of ALL topics are acknowledged and never seen"
        return [Trap("dispatch off", stops, True)]
    return [Trap("blind queues", f"{what}: what is sent there until then is acknowledged and never seen", True)]


def config_traps(load: ConfigLoad, settings: StartSettings) -> list[Trap]:
    """Return what is to be known about the config files."""
    found = []
    offsets = next(config for config in load.files if config.file == _OFFSETS)
    if load.unreadable is not None and settings.version is Version.V4_9 and offsets.rewritten:
        found.append(Trap("offsets wiped", _WIPED.format(load.unreadable), True))
    for config in load.files:
        if load.unreadable is None and config.damaged:
            found.append(_damaged(config, deleted=config.file in load.deleted))
    return found


def _damaged(config: LoadedConfig, *, deleted: bool) -> Trap:
    if config.loaded_from == "bak":
        return Trap("only copy", (_DELETED if deleted else _ONLY_COPY).format(config.file), False)
    what = "every group begins anew" if config.file == _OFFSETS else "all of it is forgotten"
    return Trap("empty table", f"{config.file} cannot be read and has no usable .bak: it loads empty, {what}", True)


_NO_LOG = (
    "the log has no file, so every queue is deleted. Is a volume not mounted? Then mount it before anything is started"
)
_ENDLESS = "the broker takes no connection, logs nothing more, and every further start does the same"
_ABORT_STAYS = "even after a clean stop, so that every later start recovers abnormally"
_HEAP_KILLS = "no heap holds {} bytes: every start ends like this until the record's size is mended"
_HEAP_DECIDES = (
    "the answer is that of a small heap. With -Xmx of more than about {} MiB the broker gets past this record: it cuts "
    "the log there and destroys {} whole messages"
)
_HEAP_NEEDED = (
    "a damaged record makes the broker allocate {} MiB at once. With less than that free on its heap it ends in an "
    "OutOfMemoryError, at every start"
)
_WIPED = (
    "{} ends the start before the offsets are loaded, and the stopping broker writes an EMPTY table over "
    f"{_OFFSETS}. The good copy is then in .bak alone, and a second attempt (a supervisor) empties that too"
)
_DELETED = (
    "{} cannot be read: the broker deletes it and takes its .bak, the only copy until the next save. Keep both first"
)
_ONLY_COPY = (
    "{} cannot be read and its .bak is taken; the next save copies the damaged file over that only good copy. "
    "Keep the .bak first"
)
