"""``rmqtool check``: find damage in a store."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rmqtool.commands.options import AsBroker, Show, Store, Topics, Work, refuse_idle
from rmqtool.commands.store_word import choose_store
from rmqtool.errors import Exit, UsageError, worst
from rmqtool.findings import Severity

if TYPE_CHECKING:
    from rmqtool.api.check import Checking, How
    from rmqtool.findings import Finding
    from rmqtool.render.output import Output


def _option(*names: str, help: str, **more: Any) -> Any:  # noqa: A002  (Typer's own word)
    return typer.Option(*names, help=help, rich_help_panel="What is checked", **more)


@dataclass(frozen=True, slots=True, kw_only=True)
class What:
    """The parts to check, and how closely."""

    quick: Annotated[bool, _option("--quick", help="Check files, but read no messages.")] = False
    deep: Annotated[bool, _option("--deep", help="Also decompress every body and follow every timer.")] = False
    only: Annotated[
        list[str] | None,
        _option("--only", metavar="FAMILY|CODE", help="Report only CL, CQ, ... or one code; repeatable."),
    ] = None
    topic: Topics = None
    max_time: Annotated[str | None, _option("--max-time", metavar="SPAN", help="Stop after this time: 90s, 1h.")] = None
    resume: Annotated[str | None, _option("--resume", metavar="TOKEN", help="Continue an earlier check.")] = None


def check(
    store: Store = None,
    *,
    what: What,
    fail_on: Annotated[
        Severity | None, _option("--fail-on", metavar="SEVERITY", help="Exit 1 from this severity; default: warning.")
    ] = None,
    report: Annotated[str | None, _option("--report", metavar="FILE", help="Also write a .html or .md file.")] = None,
    explain: Annotated[str | None, _option("--explain", metavar="CODE", help="Explain a code; `all` lists.")] = None,
    broker: AsBroker,
    work: Work,
    show: Show,
) -> Exit:
    """Check a store: every record of the log, and every file against the log.

    Queues, index, checkpoint, configuration, timers, transactions and pop state are compared with the log in both
    directions. Nothing is written. Unfinished writes of a running broker are not reported as damage.
    """
    from rmqtool.api.check import checking

    if explain is not None:
        idle = {"--report": report, "--as": broker.as_version, "--conf": broker.conf}
        return _explain(show, explain, what, {**idle, "--fail-on": fail_on})
    how: How = {"quick": what.quick, "deep": what.deep, "only": what.only, "topics": what.topic}
    how["max_time"], how["resume"] = what.max_time, what.resume
    path = choose_store([store] if store else []).store
    _require_place(report, path)
    with show.output() as output:
        with checking(broker.store(path), work.asked(output), **how) as found:
            status = _show(output, found, path, fail_on or Severity.WARNING, report)
        if found.check.missing is not None:
            raise found.check.missing
    return worst(status, Exit.DONE if found.check.summary.complete else Exit.SKIPPED)


def _require_place(report: str | None, store: str) -> None:
    if report is not None and not report.endswith((".html", ".md")):
        raise UsageError(f"{report} is neither .html nor .md", hint="--report writes one of the two")
    if report is not None and os.path.realpath(report).startswith(os.path.realpath(store) + os.sep):
        raise UsageError(f"{report} is in the store, where check writes nothing", hint="name a file outside it")


def _show(output: Output, found: Checking, path: str, fail_on: Severity, report: str | None) -> Exit:
    from rmqtool.render.check import report_text, show_summary
    from rmqtool.render.findings import keep, show_findings
    from rmqtool.render.web_page import write_page

    started = time.monotonic()
    # A file or a directory of a store leads to the store: places and commands are those of the whole.
    is_part = os.path.isdir(path) and os.path.isdir(found.root) and not os.path.samefile(path, found.root)
    name = found.root if found.note is not None or is_part else path
    if found.note is not None:
        output.note(found.note)
    output.store = name if os.path.isdir(name) else found.root
    kept: list[Finding] = []
    checked = found.check
    counts = show_findings(output, checked if report is None else keep(checked, kept))
    summary = checked.summary.as_json()
    show_summary(output, summary, counts, round((time.monotonic() - started) * 1000), checked.next_commands(name))
    if report is not None:
        write_page(report, report_text(report, name, kept, summary), "--report")
    return counts.status(fail_on)


def _explain(show: Show, word: str, what: What, idle: dict[str, object]) -> Exit:
    from rmqtool.api.check import explain
    from rmqtool.render.check import CODES, code_row, explain_lines

    checking: dict[str, object] = {"--quick": what.quick, "--deep": what.deep, "--only": what.only, "-t": what.topic}
    checking |= {"--max-time": what.max_time, "--resume": what.resume, **idle}
    refuse_idle("check --explain", checking, f"rmqtool check --explain {quote(word)}")
    with show.output() as output:
        entry, listed = explain(word)
        if entry is not None:
            output.single(code_row(entry), explain_lines(output, entry))
        else:
            output.table([code_row(found) for found in listed], CODES)
    return Exit.DONE
