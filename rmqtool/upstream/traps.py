"""Effects of a start that a broker does not log, in words."""

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
# No message needs a buffer of this size, so it is worth a warning.
_NOTABLE = 32 << 20


class Trap(NamedTuple):
    """One trap. ``loses`` if something is lost now or later, although the start may succeed."""

    name: str
    message: str
    loses: bool


def find_traps(store: MessageStore, started: Started | None, unreachable: int | None, abort_stays: bool) -> list[Trap]:
    """Return the traps of a start that was rehearsed to its end."""
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
    """Return the trap of a 4.9 broker whose heap decides the start.

    Without ``lost_with_more``, no heap is large enough.
    """
    if lost_with_more is None:
        return Trap("heap", _HEAP_KILLS.format(size), True)
    return Trap("heap", _HEAP_DECIDES.format(2 * size >> 20, lost_with_more), True)


def _limit(store: MessageStore, unreachable: int) -> Trap:
    limit, files = store.settings.recover_max_num, len(store.commit_log.mapped.mapped)
    return Trap(
        "file limit",
        f"a 5.4 broker reads only the last {limit} of the {files} log files; {counted(unreachable, 'message')} in "
        f"older files will be in no queue. commitLogRecoverMaxNum={files} makes it read all files",
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
    what = f"{names} would name a message that ends at {most}, but the log ends at {end}"
    if store.settings.is_4_9:
        stops = (
            f"{what}: until the log grows past that, new messages of ALL topics are acknowledged but never delivered"
        )
        return [Trap("dispatch off", stops, True)]
    return [Trap("blind queues", f"{what}: messages sent there until then are acknowledged but never delivered", True)]


def config_traps(load: ConfigLoad, settings: StartSettings) -> list[Trap]:
    """Return the traps of the config files."""
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
    what = "every group starts from the beginning" if config.file == _OFFSETS else "its content is lost"
    return Trap("empty table", f"{config.file} cannot be read and has no usable .bak: it is loaded empty, {what}", True)


_NO_LOG = (
    "the log has no file, so every queue is deleted. If a volume is not mounted, mount it before you start a broker"
)
_ENDLESS = "the broker accepts no connections and logs nothing more, and every further start does the same"
_ABORT_STAYS = "even after a clean stop, so that every later start recovers as after a crash"
_HEAP_KILLS = "no heap has {} bytes: every start fails like this until the size in the record is repaired"
_HEAP_DECIDES = (
    "this assumes a small heap. With -Xmx above about {} MiB the broker gets past this record: it cuts the log there "
    "and deletes {} whole messages"
)
_HEAP_NEEDED = (
    "a damaged record makes the broker allocate {} MiB at once. With less free heap it dies with an OutOfMemoryError "
    "at every start"
)
_WIPED = (
    "the start fails at {} before the offsets are loaded, and the stopping broker overwrites "
    f"{_OFFSETS} with an EMPTY table. Then only .bak is good, and a second start (by a supervisor) empties that, too"
)
_DELETED = (
    "{} cannot be read: the broker deletes it and loads its .bak, the only copy until the next save. Back up both first"
)
_ONLY_COPY = (
    "{} cannot be read and its .bak is loaded; the next save overwrites that only good copy with the damaged file. "
    "Back up the .bak first"
)
