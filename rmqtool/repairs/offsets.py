"""Sets the committed offsets of a group: to a given place, or to those in the copy of the file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from shlex import quote
from typing import TYPE_CHECKING

from rmqtool.errors import NotFound, StoreError, UsageError
from rmqtool.times import now_ms, parse_time, parse_zone

if TYPE_CHECKING:
    from rmqtool.broker.offsets import ConsumerOffsets
    from rmqtool.repairs.areas import Areas
    from rmqtool.repairs.steps import Edit, OffsetChange
    from rmqtool.store.config_files import ConfigText
    from rmqtool.store.open import Store

_ENDS = ("min", "max")


@dataclass(frozen=True)
class GroupOffsets:
    """The request: which group and topics, and the new offsets: min, max, an offset, a time, or those of the copy."""

    group: str
    topics: tuple[str, ...]
    to: str | None
    from_bak: bool
    zone: str

    def __post_init__(self) -> None:
        if (self.to is None) != self.from_bak:
            raise UsageError(
                "missing target: --to TIME, OFFSET, min or max; or --from-bak", hint="give exactly one of them"
            )
        is_time = self.to is not None and self.to not in _ENDS and not self.to.isdecimal()
        if is_time and self.timestamp() < 0:  # -5 is five milliseconds before 1970, so each queue would begin again
            raise UsageError(f"--to {self.to} is before all messages", hint="--to min, or a time as in -2h")

    def __str__(self) -> str:
        topics = "".join(f" -t {quote(topic)}" for topic in self.topics)
        return f"-g {quote(self.group)}{topics} {'--from-bak' if self.to is None else f'--to {quote(self.to)}'}"

    def timestamp(self) -> int:
        """Return the requested time."""
        return parse_time(self.to or "", now=now_ms(), zone=parse_zone(self.zone))

    def __call__(self, areas: Areas) -> Iterator[Edit]:
        """Change the offsets in the overlay; yield the changed files with reasons."""
        from rmqtool.broker.offsets import progress_file
        from rmqtool.formats.paths import config_path
        from rmqtool.repairs.steps import Edit
        from rmqtool.store.config_files import DatabaseText, config_text

        view = areas.view()
        name = progress_file(enable_lmq=view.config.enable_lmq)
        text = config_text(areas.main.overlay, name)
        database = text.path if isinstance(text, DatabaseText) else None
        if database is not None and self.from_bak:
            hint = f"use --to TIME; current offsets: rmqtool info STORE groups -g {self.group}"
            raise StoreError("the offsets of this store are in RocksDB, which keeps no copy", file=database, hint=hint)
        offsets = self._table(areas, view, text)
        topics = self._topics(topic for topic, group in offsets.iter_subscriptions() if group == self.group)
        changes = list(self._changed(offsets, view, topics))
        if changes:
            offsets.save()
            queues = "queue" if len(changes) == 1 else "queues"
            where = "as in the copy .bak" if self.to is None else f"to {self.to}"
            reason = f"{self.group}: offset set {where} in {len(changes)} {queues}"
            yield Edit(database or config_path(name), reason, tuple(changes))
            if database is None:
                yield Edit(f"{config_path(name)}.bak", "the offsets in the file before")

    @staticmethod
    def _table(areas: Areas, view: Store, text: ConfigText) -> ConsumerOffsets:
        from rmqtool.broker.offsets import ConsumerOffsets
        from rmqtool.engine.clock import FixedClock
        from rmqtool.formats.paths import LOCK

        # A repeated plan must be the same, so the time in the table is that of the newest file.
        times = [file.mtime_ns for file in areas.store.listing.files if file.path != LOCK]
        clock = FixedClock(max(times, default=0) // 1_000_000)
        return ConsumerOffsets(text, view.version, clock, enable_lmq=view.config.enable_lmq)

    def _changed(self, offsets: ConsumerOffsets, view: Store, topics: list[str]) -> Iterator[OffsetChange]:
        """Set the offsets that differ; yield the changes."""
        from rmqtool.broker.offsets import NOT_FOUND
        from rmqtool.repairs.steps import OffsetChange

        for topic, queue_id, offset in self._in_copy(view, topics) if self.from_bak else self._in_queues(view, topics):
            before = offsets.query_offset(self.group, topic, queue_id)
            if before != offset:
                offsets.commit_offset(self.group, topic, queue_id, offset)
                yield OffsetChange(self.group, topic, queue_id, None if before == NOT_FOUND else before, offset)

    def _topics(self, known: Iterable[str]) -> list[str]:
        """Return the requested topics: those in which the group has offsets, and those that are named."""
        from rmqtool.filters.wanted import parse_patterns

        patterns = parse_patterns(self.topics)
        named = {topic for topic in self.topics if not set(topic) & set("*?[")}
        topics = sorted({topic for topic in known if patterns.matches(topic)} | named)
        if not topics:
            raise NotFound(f"group {self.group} has no committed offsets here", hint="name a topic: -t TOPIC")
        return topics

    def _in_queues(self, view: Store, topics: list[str]) -> Iterator[tuple[str, int, int]]:
        """Yield topic, queue and new offset."""
        from rmqtool.look.time_query import TimeLookup
        from rmqtool.store.time_search import Boundary

        lookup = TimeLookup(view)
        by_queue = sorted(lookup.bounds.items())
        for unread, error in lookup.unread.items():
            if unread is None or unread.topic in topics:
                raise error
        for queue, bounds in by_queue:
            if queue.topic not in topics:
                continue
            if self.to == "min":
                offset = bounds.min_offset
            elif self.to == "max":
                offset = bounds.max_offset
            elif self.to is not None and self.to.isdecimal():
                offset = int(self.to)
                if not bounds.min_offset <= offset <= bounds.max_offset:
                    raise UsageError(
                        f"{queue.topic}/{queue.queue_id} has no offset {offset}",
                        hint=f"it has {bounds.min_offset} to {bounds.max_offset}; min and max fit every queue",
                    )
            else:
                offset = lookup.find(queue, self.timestamp(), Boundary.LOWER)
            yield queue.topic, queue.queue_id, offset

    def _in_copy(self, view: Store, topics: list[str]) -> Iterator[tuple[str, int, int]]:
        from rmqtool.broker.offsets import progress_file
        from rmqtool.formats.config_files import decode_config
        from rmqtool.formats.flaws import Flaw
        from rmqtool.formats.paths import Copy, config_path

        name = progress_file(enable_lmq=view.config.enable_lmq)
        path = config_path(name, Copy.BAK)
        data = view.read_file(path)
        decoded = None if data is None else decode_config(name, data)
        if decoded is None or isinstance(decoded, Flaw):
            hint = f"use --to TIME instead; current offsets: rmqtool info STORE groups -g {self.group}"
            raise NotFound(f"{path} cannot be read", file=path, hint=hint)
        for topic in topics:
            queues = (decoded.value.get("offsetTable") or {}).get(f"{topic}@{self.group}") or {}
            for queue_id, offset in queues.items():
                yield topic, int(queue_id), int(offset)
