"""``rmqtool check``: is a store sound?"""

from __future__ import annotations

import os
import time
from dataclasses import replace
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rmqtool.commands.opening import choose_store, is_one_file
from rmqtool.commands.options import AsBroker, Show, Store, Topics, Work
from rmqtool.commands.selecting import refuse_idle
from rmqtool.errors import Exit, UsageError, WriteFailed, worst
from rmqtool.findings import Severity

if TYPE_CHECKING:
    from rmqtool.checks.check import Check, CheckOptions
    from rmqtool.findings import Finding
    from rmqtool.render.findings import FindingCounts
    from rmqtool.render.output import Output
    from rmqtool.store.open import Store as OpenedStore

_PANEL = "What is checked"


def _option(*names: str, help: str, **more: Any) -> Any:  # noqa: A002  (Typer's own word)
    return typer.Option(*names, help=help, rich_help_panel=_PANEL, **more)


def check(
    store: Store = None,
    *,
    quick: Annotated[bool, _option("--quick", help="Names, sizes, edges, small files; not the messages.")] = False,
    deep: Annotated[bool, _option("--deep", help="Also inflate every body and follow every timer.")] = False,
    only: Annotated[
        list[str] | None, _option("--only", metavar="FAMILY|CODE", help="CL, CQ, IX, ... or one code; repeatable.")
    ] = None,
    topic: Topics = None,
    max_time: Annotated[str | None, _option("--max-time", metavar="SPAN", help="End after this long: 90s, 1h.")] = None,
    resume: Annotated[str | None, _option("--resume", metavar="TOKEN", help="Go on where a check ended early.")] = None,
    fail_on: Annotated[
        Severity, _option("--fail-on", metavar="SEVERITY", help="Exit 1 from notice, warning or error up.")
    ] = Severity.WARNING,
    report: Annotated[str | None, _option("--report", metavar="FILE", help="Also write a .html or .md file.")] = None,
    explain: Annotated[str | None, _option("--explain", metavar="CODE", help="What a code means; `all` lists.")] = None,
    broker: AsBroker,
    work: Work,
    show: Show,
) -> Exit:
    """Prove a store sound: every byte of the log, and every file against every other.

    Queues, index, checkpoint, configuration, timers, transactions and pop state are compared with the log, and the
    log with them. Nothing is written; of a store that a broker is writing, what is on its way is no damage.
    """
    if explain is not None:
        checking = {"--quick": quick, "--deep": deep, "--only": only, "-t": topic, "--max-time": max_time}
        checking |= {
            "--resume": resume,
            "--report": report,
            "--as": broker.as_version,
            "--conf": broker.conf,
            "--fail-on": fail_on is not Severity.WARNING,
        }
        refuse_idle("check --explain", checking, f"rmqtool check --explain {quote(explain)}")
        return _explain(show, explain)
    if quick and deep:
        raise UsageError("--quick and --deep exclude each other", hint="without either, all is read once")
    options = _options(quick, deep, (only, topic), (max_time, resume))
    report_kind(report)
    return _run(choose_store([store] if store else []).store, options, (fail_on, report), broker, (work, show))


def _options(
    quick: bool,
    deep: bool,
    wanted: tuple[list[str] | None, list[str] | None],
    time_limit: tuple[str | None, str | None],
) -> CheckOptions:
    from rmqtool.checks.case import Depth
    from rmqtool.checks.check import CheckOptions
    from rmqtool.filters.patterns import parse_patterns
    from rmqtool.times import parse_span

    max_time, resume = time_limit
    return CheckOptions(
        depth=Depth.QUICK if quick else Depth.DEEP if deep else Depth.DEFAULT,
        only=tuple(wanted[0] or ()),
        topics=parse_patterns(wanted[1] or ()),
        max_seconds=None if max_time is None else parse_span(max_time) / 1000,
        resume=resume,
    )


def report_kind(path: str | None) -> str | None:
    """Return ``.html`` or ``.md``, whichever the name of a report ends in."""
    if path is None or path.endswith((".html", ".md")):
        return None if path is None else os.path.splitext(path)[1]
    raise UsageError(f"{path} is neither .html nor .md", hint="--report writes one of the two")


def _run(
    name: str, options: CheckOptions, told: tuple[Severity, str | None], broker: AsBroker, look: tuple[Work, Show]
) -> Exit:
    from rmqtool.checks.check import Check
    from rmqtool.render.findings import show_findings
    from rmqtool.store.open import open_store

    fail_on, report = told
    work, show = look
    if report is not None and os.path.realpath(report).startswith(os.path.realpath(name) + os.sep):
        raise UsageError(f"{report} lies in the store, where check writes nothing", hint="name a place outside of it")
    started = time.monotonic()
    store = open_store(name, version=broker.as_version, assignments=tuple(broker.conf or ()))
    with show.output() as output:
        if is_one_file(name):
            options, name = _of_one_file(store, name, options, output), store.root
        output.store = name if os.path.isdir(name) else store.root
        checked = Check(store, options, work.effort(output))
        kept: list[Finding] = []
        counts = show_findings(output, (_kept(finding, kept, report) for finding in checked))
        _finish(output, checked, counts, (name, round((time.monotonic() - started) * 1000)))
    if report is not None:
        _write_report(report, name, kept, checked)
    store.close()
    if checked.case.missing is not None:
        raise checked.case.missing
    return worst(counts.status(fail_on), Exit.DONE if checked.summary.complete else Exit.SKIPPED)


def _of_one_file(store: OpenedStore, name: str, options: CheckOptions, output: Output) -> CheckOptions:
    """Return what can be checked of one file: the records of a log, without what other files say of them."""
    from rmqtool.formats.paths import FileKind

    if options.only:
        return options
    hint = f"rmqtool check {quote(store.root)}"
    if store.listing.files[0].what.kind not in (FileKind.COMMIT_LOG, FileKind.UNKNOWN):
        raise UsageError(f"{name} is one file, and it is checked against the others", hint=hint)
    output.note(f"one file: its records are checked, not what other files say of them ({hint})")
    return replace(options, only=("CL",))


def _kept(finding: Finding, kept: list[Finding], report: str | None) -> Finding:
    if report is not None:
        kept.append(finding)
    return finding


def _finish(output: Output, checked: Check, counts: FindingCounts, told: tuple[str, int]) -> None:
    from rmqtool.render.check import summary_lines

    name, elapsed_ms = told
    shown = checked.summary.as_json()
    summary = shown["summary"]
    assert isinstance(summary, dict)
    if output.is_human:
        for line in summary_lines(output, summary, counts, elapsed_ms, checked.next_commands(name)):
            output.line(line)
    else:
        output.aside(shown, f"{counts.words()}; {'complete' if checked.summary.complete else 'ended early'}")


def _write_report(path: str, name: str, findings: list[Finding], checked: Check) -> None:
    from rmqtool.render.check import report_html, report_markdown

    summary = checked.summary.as_json()["summary"]
    assert isinstance(summary, dict)
    make = report_html if report_kind(path) == ".html" else report_markdown
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(make(name, findings, summary))
    except OSError as error:
        if os.path.isfile(path):  # what there is of it is no report
            os.unlink(path)
        raise WriteFailed(
            f"{path} cannot be written: {error.strerror}", file=path, hint="name another place for --report"
        ) from error


def _explain(show: Show, word: str) -> Exit:
    from rmqtool.findings import find_code, iter_codes
    from rmqtool.render.check import CODES, code_row, explain_lines

    with show.output() as output:
        entry = find_code(word)
        if entry is not None:
            output.single(code_row(entry), explain_lines(output, entry))
            return Exit.DONE
        rows = [code_row(found) for found in iter_codes("" if word == "all" else word)]
        if not rows:
            raise UsageError(f"{word} is no code of findings", hint="rmqtool check --explain all")
        output.table(rows, CODES)
    return Exit.DONE
