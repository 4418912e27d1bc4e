"""The lines of findings: what, where, what it means, what to type; and how many there are.

Also the end of a screen: the verdict in one line, then the commands to type next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain

from rmqtool.errors import Exit
from rmqtool.findings import Finding, Severity, find_code, is_command
from rmqtool.render.output import Output, Row
from rmqtool.render.text import count, counted, display_width, hanging, neutral, wrapped


def verdict_lines(
    output: Output, headline: str, severity: Severity | None = None, next_commands: Iterable[str] = ()
) -> Iterator[str]:
    """Yield the headline, green or in the colour of the worst ``severity``, and a ``Next:`` line for each command.

    The command is never broken, so that it can be copied. A sentence that is not a command is shown after ``Fix:``.
    """
    for line in hanging(neutral(headline), output.look.width, 2):
        yield output.paint(line, severity or "good")
    for following in next_commands:
        if is_command(following):
            yield f"Next: {output.paint(neutral(following), 'command')}"
        else:
            yield from hanging(f"Fix: {neutral(following)}", output.look.width, 5)


FIELDS = ("code", "severity", "file", "offset", "length", "topic", "queueId", "message", "consequence", "broker", "fix")

_INDENT = " " * 8
# Up to this many findings of one code in a row are all shown; of more only the worst.
_ALL_SHOWN, _WORST_SHOWN = 5, 3
_ORDER = (Severity.ERROR, Severity.WARNING, Severity.NOTICE)


@dataclass(slots=True)
class FindingCounts:
    """How many findings there are of each severity, and of each kind that needs action, with its consequence."""

    errors: int = 0
    warnings: int = 0
    notices: int = 0
    kinds: Counter[tuple[Severity, str]] = field(default_factory=Counter)
    consequences: dict[tuple[Severity, str], str | None] = field(default_factory=dict)

    def add(self, finding: Finding) -> None:
        """Count a finding."""
        if finding.severity is Severity.NOTICE:
            self.notices += 1
            return
        kind = (finding.severity, finding.code)
        self.kinds[kind] += 1
        self.consequences.setdefault(kind, finding.consequence)
        if finding.severity is Severity.ERROR:
            self.errors += 1
        else:
            self.warnings += 1

    def of(self, severity: Severity) -> int:
        """Return the number of one severity."""
        return {Severity.ERROR: self.errors, Severity.WARNING: self.warnings, Severity.NOTICE: self.notices}[severity]

    def worst_kinds(self) -> list[tuple[int, str, str | None]]:
        """Return the number, code and consequence of each kind; the worst first, then the most frequent."""
        ordered = sorted(self.kinds, key=lambda kind: (_ORDER.index(kind[0]), -self.kinds[kind]))
        return [(self.kinds[kind], kind[1], self.consequences[kind]) for kind in ordered]

    def status(self, fail_on: Severity = Severity.WARNING) -> Exit:
        """Return NO if a finding is at least as bad as ``fail_on``."""
        bad = _ORDER[: _ORDER.index(fail_on) + 1]
        return Exit.NO if any(self.of(severity) for severity in bad) else Exit.DONE

    def words(self) -> str:
        """Return the counts as words: ``3 errors, 1 warning, 1 notice``."""
        return self._words(_ORDER) or "no findings"

    def problem_words(self) -> str:
        """Return the counts of the problems as words: notices are not problems."""
        return self._words(_ORDER[:2])

    def _words(self, severities: Iterable[Severity]) -> str:
        return ", ".join(f"{n} {severity}{'s' if n > 1 else ''}" for severity in severities if (n := self.of(severity)))


class _Run:
    """Findings of one code and severity: the first ones, the worst ones, and how many there are."""

    def __init__(self, first: Finding) -> None:
        self.kind = (first.severity, first.code)
        self.count = self.messages = 0
        self.first: list[Finding] = []
        self.worst: list[Finding] = []
        self.add(first)

    def add(self, finding: Finding) -> None:
        """Count a finding."""
        self.count += 1
        self.messages += _weight(finding) if "messages" in finding.data else 0
        if self.count <= _ALL_SHOWN:
            self.first.append(finding)
        # sorted() keeps the order of equal weights.
        self.worst = sorted([*self.worst, finding], key=_weight, reverse=True)[:_WORST_SHOWN]

    @property
    def shown(self) -> list[Finding]:
        """Return the findings that people see."""
        return self.first if self.count <= _ALL_SHOWN else self.worst


def _weight(finding: Finding) -> int:
    """Return how much a finding affects: messages, queue entries, or bytes."""
    for name in ("messages", "units", "records"):
        value = finding.data.get(name)
        if isinstance(value, int):
            return value
    return finding.length or 0


def show_findings(output: Output, findings: Iterable[Finding]) -> FindingCounts:
    """Show findings, and return their counts.

    Programs, and people with ``-v``, get each finding as it comes. Other people see errors as they come, then warnings,
    then notices: the meaning and the fix of a code at the first of several findings, and of many of one code the worst,
    and how many more there are.
    """
    counts = FindingCounts()
    output.rows((), FIELDS, _no_lines)
    if output.is_human and not output.look.verbose:
        _show_grouped(output, findings, counts)
        return counts
    before: Finding | None = None
    for finding in findings:
        counts.add(finding)
        before = _show_one(output, finding, before)
    return counts


def _show_grouped(output: Output, findings: Iterable[Finding], counts: FindingCounts) -> None:
    errors: _Run | None = None
    later: dict[tuple[Severity, str], _Run] = {}
    before: Finding | None = None
    try:
        for finding in findings:
            counts.add(finding)
            kind = (finding.severity, finding.code)
            if finding.severity is not Severity.ERROR:
                if kind in later:
                    later[kind].add(finding)
                else:
                    later[kind] = _Run(finding)
            elif errors is not None and errors.kind == kind:
                errors.add(finding)
            else:
                # It is taken out first, so that it is not shown twice if showing it is interrupted.
                complete, errors = errors, _Run(finding)
                before = _show_run(output, complete, before)
    finally:
        # A check that ends early, as by Ctrl-C, has found these too.
        for run in (errors, *sorted(later.values(), key=lambda run: _ORDER.index(run.kind[0]))):
            before = _show_run(output, run, before)


def _show_one(output: Output, finding: Finding, before: Finding | None) -> Finding:
    output.rows([finding.as_json()], FIELDS, partial(_lines_of, finding, before, output))
    return finding


def _show_run(output: Output, run: _Run | None, before: Finding | None) -> Finding | None:
    """Show a run of findings after ``before``; return the last one shown."""
    if run is None:
        return before
    for finding in run.shown:
        before = _show_one(output, finding, before)
    more = run.count - len(run.shown)
    if more:
        lost = f" ({counted(run.messages, 'message')} in all)" if run.messages else ""
        words = f"and {count(more)} more {run.kind[1]}{lost}; the worst are shown, -v shows each"
        for line in _wrapped(words, output.look.width):
            output.line(line)
    return before


def _lines_of(finding: Finding, before: Finding | None, output: Output, _: Row) -> Iterable[str]:
    if before is not None and (before.code, before.fix) == (finding.code, finding.fix):
        said = finding.consequence == before.consequence
        finding = replace(finding, consequence=None if said else finding.consequence, broker=None, fix=None)
        return finding_lines(finding, output)
    return chain(finding_lines(finding, output), _broker_lines(finding, output))


def _broker_lines(finding: Finding, output: Output) -> Iterator[str]:
    """Yield the lines that a broker logs in such a case, for ``-v``."""
    entry = find_code(finding.code) if output.look.verbose else None
    for line in entry.broker_lines if entry is not None else ():
        yield from _wrapped(f'broker log: "{line}"', output.look.width)


def _no_lines(_: Row) -> Iterable[str]:
    return ()


def finding_lines(finding: Finding, output: Output) -> Iterator[str]:
    """Yield the lines of one finding. Places, queues and commands to type are never broken or shortened."""
    width = output.look.width
    finding = _as_typed(finding, output.store)
    severity, code = finding.severity.ljust(7), finding.code.ljust(10)
    head = f"{output.paint(severity, finding.severity)} {output.paint(code, 'title')}"
    place, message = place_of(finding), neutral(finding.message)
    start = f"{head}  {place}" if place else head
    taken = display_width(f"{severity} {code}  {place}")
    if width is None or taken + 2 + display_width(message) <= width:
        yield f"{start}  {message}"
    elif taken <= width or not place:
        yield start
        yield from _wrapped(message, width)
    else:
        first, *others = _place_parts(finding)
        fits = display_width(f"{severity} {code}  {first}") <= width
        yield f"{head}  {first}" if fits else head.rstrip()
        yield from (_INDENT + part for part in (others if fits else [first, *others]))
        yield from _wrapped(message, width)
    if finding.consequence:
        yield from _wrapped(neutral(finding.consequence), width)
    if finding.broker:
        yield from _wrapped(f"broker: {neutral(finding.broker)}", width)
    if finding.fix and is_command(finding.fix):
        yield f"{_INDENT}fix: {output.paint(neutral(finding.fix), 'command')}"
    elif finding.fix:
        yield from _wrapped(f"fix: {neutral(finding.fix)}", width)


def _as_typed(finding: Finding, store: str) -> Finding:
    """Return a finding whose place can be pasted after ``rmqtool dump``: it begins with the store as it was typed."""
    if finding.file is None or finding.offset is None or not store or finding.file.startswith("/"):
        return finding
    return replace(finding, file=f"{store.rstrip('/')}/{finding.file}")


def place_of(finding: Finding) -> str:
    """Return the place of a finding: ``file@offset``, with topic and queue if it is about one.

    In a log the end is added, so that people see the size of the damage; ``dump`` accepts the place in this form.
    """
    return " ".join(_place_parts(finding))


def _place_parts(finding: Finding) -> list[str]:
    at = ""
    if finding.offset is not None:
        is_span = finding.length is not None and finding.code.startswith(("CL-", "DL-"))
        at = f"@{finding.offset}" + (f"-{finding.offset + (finding.length or 0)}" if is_span else "")
    parts = [neutral(finding.file or "") + at] if finding.file is not None or at else []
    if finding.topic is not None:
        parts.append(neutral(finding.topic) + (f"/{finding.queue_id}" if finding.queue_id is not None else ""))
    return parts


def _wrapped(text: str, width: int | None) -> list[str]:
    if width is None:
        return [_INDENT + text]
    return wrapped(text, width, (_INDENT, _INDENT), cut_words=False)


def keep(findings: Iterable[Finding], kept: list[Finding]) -> Iterator[Finding]:
    """Yield findings, and keep them for the report."""
    for finding in findings:
        kept.append(finding)
        yield finding
