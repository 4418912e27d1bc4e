"""Damage: the findings of a check as they are found, and the bytes that they are about."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from shlex import quote
from typing import Any

from rmqtool.api.check import checking
from rmqtool.browse.explorer import Explorer
from rmqtool.browse.file_pages import FilePage
from rmqtool.browse.page import Column, GrowingPage, Link, ListPage, Page, Row, Scope, line, remark
from rmqtool.findings import Finding, find_code
from rmqtool.formats import paths
from rmqtool.formats.paths import FileKind
from rmqtool.render.text import count, counted, neutral, size

_ABOUT = (Column("", 12), Column(""))
_FINDINGS = (Column("severity", 8), Column("code", 10), Column("place", 24), Column("what"))


class FindingsPage(GrowingPage):
    """The findings of a check of ``what``. ``shown`` is the row whose bytes were shown last."""

    shown = -1
    what = "the store"
    unit = "problem"
    is_wide = True

    def step(self, by: int) -> Row | None:
        """Return the next or the previous finding with bytes to show, and remember it."""
        rows = self._with_bytes()
        later = [row for row in rows if row.position > self.shown]
        earlier = [row for row in rows if row.position < self.shown]
        found = later[0] if by > 0 and later else earlier[-1] if by < 0 and earlier else None
        self.shown = self.shown if found is None else found.position
        return found

    def _with_bytes(self) -> list[Row]:
        return [row for row in list(self.listed) if row.link is not None]

    def end_words(self, by: int) -> str:
        """Return why there is no next or previous finding."""
        if self.is_growing():
            return "no further finding yet: the check goes on"
        if self.is_failed:
            return f"the check of {self.what} failed: it does not tell if more is damaged"
        number, shown = self.number, len(self._with_bytes())
        place = f"{'last' if by > 0 else 'first'} of {count(shown)}{' with bytes' * (shown < number)} in {self.what}"
        words = place if shown else f"{counted(number, 'problem')} in {self.what}, none with bytes to show"
        if not number:
            words = f"nothing found in {self.what}"
        return words + "; the check was stopped before its end" * self.is_stopped


def findings_page(explorer: Explorer, scope: Scope) -> FindingsPage:
    """Return the findings of a check, as they are found; of one topic if the page before was about one."""
    narrowed = "" if scope.topic is None else f" -t {quote(scope.topic)}"
    what = "the store" if scope.topic is None else neutral(scope.topic)
    command = f"rmqtool check {explorer.name}{narrowed}"

    def make() -> Iterator[Row]:
        with checking(explorer.named, topics=scope.topic) as found:
            kept = 0
            for finding in found.check:
                kept += 1
                yield finding_row(explorer, finding)
            summary = found.check.summary.as_json()["summary"]
            assert isinstance(summary, dict)
            yield _sum_row(summary, what, kept, is_narrowed=scope.topic is not None)

    page = FindingsPage(
        f"damage in {what}", _FINDINGS, make, command, "Enter shows the bytes; d and D go on from there"
    )
    page.scope, page.what = scope, what
    return page


def _sum_row(summary: Mapping[str, Any], what: str, kept: int, *, is_narrowed: bool) -> Row:
    """Return the last row of a check: what was read, and what was not checked. A check of a topic reads the log."""
    read, problems = counted(summary["messages"], "message"), counted(kept, "problem")
    whole = "" if summary["complete"] else "NOT COMPLETE: "
    log = f" of the log to check {what}" if is_narrowed else ""
    words = f"{whole}read {read}, {size(summary['bytes'])},{log}: {problems}".replace(",:", ":")
    left_out = (f"not checked: {neutral(text)}" for text in summary["notProven"])
    return remark("", "", "", f"{whole}{problems}; {read} read", style="title", details=(words, *left_out))


def finding_row(explorer: Explorer, finding: Finding) -> Row:
    """Return the row of a finding."""
    place = _place(finding)
    cells = (finding.severity.value, finding.code, place, neutral(finding.message))
    return line(*cells, link=to_finding(explorer, finding), style=finding.severity, details=explained(finding))


def _place(finding: Finding) -> str:
    """Return where a finding is; of a queue, its topic and number, because the names of its files say less."""
    path = finding.file or ""
    if path.startswith(f"{paths.CONSUME_QUEUE}/") and finding.topic is not None and finding.queue_id is not None:
        return f"{neutral(finding.topic)}/{finding.queue_id}"
    return neutral(path) + ("" if finding.offset is None else f"@{finding.offset}")


def explained(finding: Finding) -> tuple[str, ...]:
    """Return what a finding says, what it means for messages, and the fix."""
    entry = find_code(finding.code)
    texts = [
        finding.message,
        finding.consequence or (entry.meaning if entry else ""),
        f"fix: {finding.fix}" * bool(finding.fix),
    ]
    return tuple(neutral(text) for text in texts if text)


def to_finding(explorer: Explorer, finding: Finding) -> Link | None:
    """Return a link to the bytes that a finding is about."""
    path, at = finding.file, finding.offset or 0
    if not path:
        return None
    segment = next((one for one in explorer.log() if one.path == path), None)

    def make() -> Page:
        file = explorer.file_at(path) if segment is None else explorer.segment_file(segment)
        status = file.filesystem.find_stat(path)
        if status is None or (not file.filesystem.is_directory(path) and status.size == 0):
            rows = [line("finding", text) for text in explained(finding)]
            gone = "the file is empty" if status is not None else "the file does not exist"
            return ListPage(neutral(path), _ABOUT, [*rows, line("", gone, style="dim")], "")
        if file.filesystem.is_directory(path):
            named = paths.classify(f"{path}/{paths.segment_name(0)}")
            if named.kind is FileKind.CONSUME_QUEUE and named.topic is not None and named.queue_id is not None:
                return explorer.queue_page(named.topic, named.queue_id)
            return ListPage(neutral(path), _ABOUT, [line("finding", text) for text in explained(finding)], "")
        why = explained(finding)
        note = f"{finding.code}: {neutral(finding.message)}"
        page = FilePage(file, explorer.follow, at, note, why)
        wrong = page.wrong_in(at, at + (finding.length or 1))
        page.first_position = at if wrong is None else wrong
        return page

    return make
