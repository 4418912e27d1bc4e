"""Restores configuration files from what is readable: the file, its copy, and the rest of the store.

If a file is bad, a broker loads the copy, and soon overwrites that with the bad file. Without a copy it starts with an
empty table, or not at all. The best choice is, in this order: a valid file with extra bytes after its end, the copy,
the valid beginning of a truncated file. Missing topics and groups are then created from queues and offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from rmqtool.checks.case import Case, Depth
from rmqtool.checks.state import check_configs
from rmqtool.files.filesystem import WritableFileSystem, make_directories, split
from rmqtool.findings import Severity
from rmqtool.findings.finding import counted
from rmqtool.formats.config_files import decode_config, dialect_of, encode_config, new_bean, salvage_config
from rmqtool.formats.config_shapes import (
    DATA_VERSION,
    OWN_GROUPS,
    OWN_GROUPS_BEGIN,
    SUBSCRIPTION_GROUP_CONFIG,
    TOPIC_CONFIG,
)
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.paths import LOCK, SUBSCRIPTION_GROUP, TOPICS, Copy, FileKind, config_path
from rmqtool.formats.topics import TopicKind, topic_kind
from rmqtool.repairs.steps import Edit
from rmqtool.store.config_files import loads, read_configs, require_text
from rmqtool.store.open import Store

# Blanks, and the zeros that a crash leaves in a file that was never flushed.
_BLANK = b"\0 \t\r\n"
_KEPT = (TopicKind.NORMAL, TopicKind.RETRY, TopicKind.DLQ)
_BATCH = {"queue.type": "BatchCQ"}


@dataclass(frozen=True)
class _Choice:
    """The content that a file should have, and why."""

    data: bytes
    why: str
    is_whole: bool = True


def restore_configs(files: WritableFileSystem, before: Store, look: Callable[[], Store]) -> Iterator[Edit]:
    """Give each configuration file that a broker would not load the best available content.

    Yield each file and the reason.

    ``before`` is the store as it was; ``look`` returns the current content of ``files``.
    """
    names = {file.what.name for file in before.listing.of_kind(FileKind.CONFIG) if file.what.copy is not Copy.TMP}
    for name in sorted(name for name in names if name is not None):
        yield from _restore(files, name)
    if before.listing.databases():
        return
    after = look()
    try:
        yield from _remake(files, before, after)
    finally:
        after.commit_log.close()
        after.listing.open_files.close()


def _restore(files: WritableFileSystem, name: str) -> Iterator[Edit]:
    main, copy = config_path(name), config_path(name, Copy.BAK)
    text, other = _read(files, main), _read(files, copy)
    if text is None or not loads(name, text):
        choice = _best(name, text, other)
        if choice is None:
            return
        _write(files, main, choice.data)
        yield Edit(main, choice.why)
        text = choice.data
    if other is not None and other.strip(_BLANK) and not loads(name, other):
        _write(files, copy, text)
        yield Edit(copy, "CF-JSON: the copy does not parse; written from the file")


def _best(name: str, text: bytes | None, other: bytes | None) -> _Choice | None:
    """Return the best content from a bad file and its copy."""
    what = "it is missing" if text is None else "it does not parse"
    left = None if text is None else salvage_config(name, text)
    if left is not None and left.is_complete:
        assert text is not None
        rest = counted(len(text) - left.end, "byte follows", "bytes follow")
        why = f"CF-JSON: it is valid up to {left.end}; {rest}, left out{_beside(name, other)}"
        return _Choice(left.data, why)
    if other is not None and loads(name, other):
        beside = "" if left is None else f"; the file has {_entries(left.value)} up to {left.end}, where it is cut off"
        return _Choice(other, f"CF-BAK: {what}; written from .bak, {_told(name, other)}{beside}")
    if left is None and other is not None:
        left = salvage_config(name, other)
        what += ", and .bak neither"
    if left is None:
        return None
    why = f"CF-JSON: {what}; valid up to {left.end}: {_entries(left.value)}, the rest is lost"
    return _Choice(left.data, why, is_whole=False)


def _beside(name: str, other: bytes | None) -> str:
    return "" if other is None or not loads(name, other) else f"; .bak has {_told(name, other)}"


def _told(name: str, data: bytes) -> str:
    decoded = decode_config(name, data)
    return "nothing" if isinstance(decoded, Flaw) else _entries(decoded.value)


def _entries(value: dict[str, Any]) -> str:
    tables = [table for field, table in value.items() if isinstance(table, dict) and field != "dataVersion"]
    return counted(sum(map(len, tables)), "entry", "entries")


def _remake(files: WritableFileSystem, before: Store, after: Store) -> Iterator[Edit]:
    """Add topics and groups that a damaged table lacks, from queues and offsets."""
    bad = _bad_tables(before) | _bad_tables(after)
    for name, field, source, find in (
        (TOPICS, "topicConfigTable", "queues", _topics_of_queues),
        (SUBSCRIPTION_GROUP, "subscriptionGroupTable", "committed offsets", _groups_of_offsets),
    ):
        path = config_path(name)
        choice = _best(name, before.read_file(path), before.read_file(config_path(name, Copy.BAK)))
        text = _read(files, path)
        known = _value(name, text) if text is not None and loads(name, text) else {}
        table = dict(known.get(field) or {})
        added = {entry: settings for entry, settings in find(after).items() if entry not in table}
        if path not in bad or (choice is not None and choice.is_whole) or not added:
            continue
        version = after.version.value
        fresh = {"dataVersion": new_bean(DATA_VERSION, version, counter=1, timestamp=_newest_ms(before))}
        value = {**fresh, **known, field: {**table, **added}}
        _write(files, path, encode_config(name, value, dialect_of(version)))
        kept = f"{counted(len(table), 'entry is', 'entries are')} kept, " if table else ""
        yield Edit(
            path, f"{kept}{len(added)} made from the {source} with default settings: compare them with your cluster"
        )


def _bad_tables(store: Store) -> set[str]:
    """Return the configuration files that have lost content, by a check."""
    return {
        finding.file or ""
        for finding in check_configs(Case.of(store, Depth.QUICK))
        if finding.code in ("CF-JSON", "CF-EMPTY") and finding.severity is not Severity.NOTICE
    }


def _value(name: str, text: bytes) -> dict[str, Any]:
    decoded = decode_config(name, text)
    return {} if isinstance(decoded, Flaw) else decoded.value


def _topics_of_queues(store: Store) -> dict[str, Any]:
    """Return settings of each topic with queues. A broker creates its own topics itself."""
    version = store.version.value
    counts: dict[str, int] = {}
    batch = {queue.topic for queue in store.listing.queues(FileKind.BATCH_CONSUME_QUEUE)}
    for kind in (FileKind.CONSUME_QUEUE, FileKind.BATCH_CONSUME_QUEUE):
        for queue in store.listing.queues(kind):
            counts[queue.topic] = max(counts.get(queue.topic, 0), queue.queue_id + 1)
    found = {}
    for topic, count in sorted(counts.items()):
        if topic_kind(topic) in _KEPT:
            more = {"attributes": _BATCH} if topic in batch else {}
            made = {"topicName": topic, "readQueueNums": count, "writeQueueNums": count, **more}
            found[topic] = new_bean(TOPIC_CONFIG, version, **made)
    return found


def _groups_of_offsets(store: Store) -> dict[str, Any]:
    """Return settings of each group with committed offsets. A broker creates its own groups itself."""
    groups = sorted({group for _, group in read_configs(store).offsets})
    return {
        group: new_bean(SUBSCRIPTION_GROUP_CONFIG, store.version.value, groupName=group)
        for group in groups
        if group not in OWN_GROUPS and not group.startswith(OWN_GROUPS_BEGIN)
    }


def _newest_ms(store: Store) -> int:
    """Return a time that depends only on the store, so that a repeated plan is the same."""
    return max((file.mtime_ns for file in store.listing.files if file.path != LOCK), default=0) // 1_000_000


def _read(files: WritableFileSystem, path: str) -> bytes | None:
    if not files.exists(path):
        return None
    with files.open_read(path) as file:
        size = file.size()
        require_text(file.shown, size)
        return file.pread(size, 0)


def _write(files: WritableFileSystem, path: str, text: bytes) -> None:
    make_directories(files, split(path)[0])
    with files.open_write(path) if files.exists(path) else files.create(path) as file:
        file.pwrite(text, 0)
        file.truncate(len(text))
