"""``browse --html``: a store as values for a page: overview, map of the log, findings with their bytes, messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

from rmqtool.api.store import Place, Store, store_of
from rmqtool.api.wanted import Json, Working
from rmqtool.errors import Exit, UsageError, worst

if TYPE_CHECKING:
    from rmqtool.findings import Finding
    from rmqtool.look.regions import Region
    from rmqtool.store.open import Store as OpenStore

REDACTABLE = ("body", "keys")
# Messages of a topic, topics with messages, and findings that a page has.
MOST_MESSAGES, MOST_TOPICS, MOST_FINDINGS = 500, 200, 500
# Bytes that are shown before and after the beginning of a finding, and on a line.
_BEFORE, _AFTER, _LINE = 32, 96, 16


@dataclass
class Report:
    """The contents of the page; ``messages`` has the newest ones of each topic.

    ``hexes`` has the bytes of each finding, ``changed`` which of them are wrong, in words.
    """

    info: Json
    span: int
    lines: dict[int, list[str | None]]
    summary: Json
    findings: list[Finding] = field(default_factory=list)
    hexes: list[tuple[int, bytes] | None] = field(default_factory=list)
    changed: list[str | None] = field(default_factory=list)
    messages: dict[str, list[Json]] = field(default_factory=dict)
    redacted: tuple[str, ...] = ()

    @property
    def status(self) -> Exit:
        """Return the exit status: 6 if part of the store could not be read."""
        return worst(Exit.DONE if self.summary["complete"] else Exit.SKIPPED)


def report(place: Place, redact: str | None = None, work: Working | None = None) -> Report:
    """Read a store for a page. ``redact`` leaves out parts of messages: body, keys, or both."""
    from rmqtool.api.check import checking
    from rmqtool.api.info import glance
    from rmqtool.api.stat import count
    from rmqtool.findings import worst_first

    redacted, store = _parse_redact(redact), store_of(place)
    info = glance(store).shown
    mapped = count(store, {"as_map": True}, work)
    with checking(store, work) as found:
        findings = worst_first(found.check)[:MOST_FINDINGS]
        summary: Any = found.check.summary.as_json()["summary"]
    made = Report(info, mapped.shown["span"], mapped.lines or {}, summary, findings, redacted=redacted)
    with store.use() as opened:
        for finding in findings:
            wrong = None if redacted else _wrong_in(opened, finding)
            at = finding.offset if wrong is None else wrong.offset
            made.hexes.append(None if redacted else _bytes_around(opened, finding, at))
            made.changed.append(None if wrong is None else _spelled(wrong))
    names = (name for name, topic in info["topics"].items() if _has_messages(topic))
    for name in islice(names, MOST_TOPICS):
        made.messages[name] = [_without(message, redacted) for message in _newest(store, name)]
    return made


def _parse_redact(text: str | None) -> tuple[str, ...]:
    words = tuple(word.strip() for word in (text or "").split(",") if word.strip())
    for word in words:
        if word not in REDACTABLE:
            raise UsageError(f'"{word}" cannot be redacted', hint=f"one or both of {','.join(REDACTABLE)}")
    return words


def _has_messages(topic: Json) -> bool:
    return any(queue["maxOffset"] > max(queue["minOffset"], 0) for queue in topic["queues"].values())


def _newest(store: Store, topic: str) -> Iterator[Json]:
    """Yield the last messages of a topic."""
    from rmqtool.api.cat import reading

    with reading(store, {"offset": -MOST_MESSAGES}, topics=topic) as found:
        for event in found:
            if isinstance(event, dict) and "damage" not in event:
                yield event


def _without(message: Json, redacted: Iterable[str]) -> Json:
    """Return a message without what is redacted."""
    shown = dict(message)
    if "body" in redacted:
        shown["body"], shown["bodyEncoding"] = "", "none"
    if "keys" in redacted:
        from rmqtool.formats.property_names import KEYS, UNIQ_KEY

        shown["keys"] = shown["uniqKey"] = None
        shown["properties"] = {
            name: value for name, value in message["properties"].items() if name not in (KEYS, UNIQ_KEY)
        }
    return shown


def _wrong_in(store: OpenStore, finding: Finding) -> Region | None:
    """Return the region that is wrong in the bytes of a finding, if one is."""
    from rmqtool.look.dump import find_wrong

    listed = store.listing.find(finding.file or "")
    if listed is None or finding.offset is None:
        return None
    with store.filesystem.open_read(listed.path) as file:
        return find_wrong(file, listed.what, (finding.offset, finding.offset + (finding.length or 1)))


def _spelled(region: Region) -> str:
    span = f"{region.offset} to {region.end - 1}" if region.length > 1 else str(region.offset)
    return f"{region.label} at {span}" + (f": {region.words}" if region.words else "")


def _bytes_around(store: OpenStore, finding: Finding, at: int | None) -> tuple[int, bytes] | None:
    """Return the bytes of the file of a finding around an offset, and the offset of the first; None without a place."""
    if not finding.file or at is None or store.listing.find(finding.file) is None:
        return None
    start = max(at - at % _LINE - _BEFORE, 0)
    with store.filesystem.open_read(finding.file) as file:
        return start, file.pread(min(at + _AFTER, file.size()) - start, start)
