"""What one start does to a store, as a value, and as the object that ``recover --json`` prints."""

from __future__ import annotations

from dataclasses import dataclass

from rmqtool.config import Version
from rmqtool.storage.overlay import Action, Change
from rmqtool.upstream.config_load import LoadedConfig
from rmqtool.upstream.intact import LostMessages
from rmqtool.upstream.startup import Started


@dataclass(frozen=True, slots=True)
class QueueOutcome:
    """A queue after the start, and the maximum offset it had when it was loaded; None where it was not there."""

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    max_offset_before: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StartOutcome:
    """What a broker of ``version`` does. None stands for what cannot be known."""

    version: Version
    clean: bool
    loads: bool = False
    starts: Started = False
    reason: str | None = None
    min_physical_offset: int | None = None
    max_physical_offset: int | None = None
    changes: tuple[Change, ...] = ()
    queues: tuple[QueueOutcome, ...] | None = None
    lost: tuple[LostMessages, ...] = ()
    unreachable: int | None = None
    config: tuple[LoadedConfig, ...] = ()
    log_lines: tuple[str, ...] = ()

    @property
    def messages_lost(self) -> int:
        """Whole messages that are no longer served."""
        return sum(part.messages for part in self.lost)

    def as_json(self) -> dict[str, object]:
        """Return the object of the contract."""
        found: dict[str, object] = {
            "as": str(self.version),
            "mode": "normal" if self.clean else "abnormal",
            "loads": self.loads,
            "starts": self.starts,
        }
        if self.reason is not None:
            found["reason"] = self.reason
        found |= {
            "minPhyOffset": self.min_physical_offset,
            "maxPhyOffset": self.max_physical_offset,
            "files": [_file_json(change) for change in self.changes],
            "queues": None if self.queues is None else _queues_json(self.queues),
            "messagesLost": self.messages_lost,
            "messagesUnreachable": self.unreachable,
            "config": [
                {"file": one.file, "loadedFrom": one.loaded_from, "rewritten": one.rewritten} for one in self.config
            ],
            "logLines": list(self.log_lines),
        }
        return found


def _file_json(change: Change) -> dict[str, object]:
    found: dict[str, object] = {"path": change.path, "action": change.action.value}
    if change.size_before is not None:
        found["sizeBefore"] = change.size_before
    if change.size_after is not None:
        found["sizeAfter"] = change.size_after
    return found


def _queues_json(queues: tuple[QueueOutcome, ...]) -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = {}
    for queue in queues:
        offsets = {"minOffset": queue.min_offset, "maxOffset": queue.max_offset}
        found.setdefault(queue.topic, {})[str(queue.queue_id)] = offsets
    return found


def merge_changes(after_load: list[Change], after_stop: list[Change]) -> tuple[Change, ...]:
    """Return what load() deletes, creates and resizes, then the files whose bytes differ once the broker has stopped.

    Files that start() or shutdown() add or remove are not part of it: ``abort``, backups, queue files that 4.9 builds.
    """
    structural = [change for action in _STRUCTURAL for change in after_load if change.action is action]
    resized = {change.path for change in after_load if change.action is Action.RESIZE}
    modified = [
        Change(change.path, Action.MODIFY, change.size_before, change.size_after)
        for change in after_stop
        if change.action in (Action.MODIFY, Action.RESIZE) and change.path not in resized
    ]
    return (*structural, *modified)


_STRUCTURAL = (Action.DELETE, Action.CREATE, Action.RESIZE)
