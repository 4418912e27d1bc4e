from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable, Iterator
from itertools import chain

import pytest

from rmqtool.errors import Exit
from rmqtool.findings import Finding, Severity, worst_first
from rmqtool.render.findings import FindingCounts, place_of, show_findings, verdict_lines
from rmqtool.render.output import Look, Mode, Output
from tests.support.golden_files import check_golden

FINDINGS = [
    Finding(
        "CL-CRC",
        Severity.ERROR,
        "body CRC 7A0FC122, stored 7A0FC123",
        file="commitlog/00000000142807662592",
        offset=524_061_696,
        length=2140,
        topic="Orders",
        queue_id=3,
        consequence="if a broker starts now, this message, the 524 MiB after it and 1 whole file are deleted "
        "(612,044 messages)",
        fix="rmqtool repair /data/rocketmq/store commitlog --bridge --apply --allow primary --undo-dir /data/undo",
    ),
    Finding("CQ-MISSING", Severity.ERROR, "23 entries are missing", topic="Orders\x1b[2J", queue_id=3),
    Finding("CF-BAK", Severity.WARNING, "the file is empty; its .bak is complete", file="config/consumerOffset.json"),
    Finding("ST-ABORT", Severity.NOTICE, "abort is present and no broker runs", file="abort"),
    Finding("XX-ODD", Severity.NOTICE, "订单" * 30, offset=7),
]


@pytest.mark.parametrize("width", [80, 120, None])
def test_screens(width: int | None) -> None:
    out = io.BytesIO()
    with Output(Look(width=width), out) as output:
        counts = show_findings(output, FINDINGS)
        for line in verdict_lines(
            output, f"4 problems found: {counts.words()}", Severity.ERROR, ["rmqtool recover /data/store"]
        ):
            output.line(line)
    check_golden(f"render/findings-{width or 'pipe'}.txt", out.getvalue().decode("utf-8"))


def test_content_is_the_same_at_every_width_and_commands_are_never_broken() -> None:
    texts = []
    for width in (40, 80, 120, None):
        out = io.BytesIO()
        with Output(Look(width=width), out) as output:
            show_findings(output, FINDINGS)
        texts.append(out.getvalue().decode())
        assert FINDINGS[0].fix in texts[-1]
        assert "commitlog/00000000142807662592@524061696-524063836" in texts[-1]
        assert "\x1b" not in texts[-1]
    assert len({"".join(text.split()) for text in texts}) == 1


def test_colour_adds_to_the_words_and_replaces_none() -> None:
    out = io.BytesIO()
    with Output(Look(color=True), out) as output:
        show_findings(output, FINDINGS)
    lines = out.getvalue().decode().splitlines()
    assert lines[0].startswith("\x1b[1;31merror  \x1b[0m \x1b[1mCL-CRC    \x1b[0m  commitlog/")


def test_jsonl_is_the_object_of_the_contract() -> None:
    out = io.BytesIO()
    with Output(Look(mode=Mode.JSONL), out) as output:
        counts = show_findings(output, iter(FINDINGS))
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert lines == [finding.as_json() for finding in FINDINGS]
    assert (counts.errors, counts.warnings, counts.notices) == (2, 1, 2)


def shown_codes(findings: Iterable[Finding], *, verbose: int = 0) -> list[str]:
    out = io.BytesIO()
    with Output(Look(verbose=verbose), out) as output:
        show_findings(output, findings)
    return re.findall(r"^(?:error|warning|notice) +(\S+)", out.getvalue().decode(), re.MULTILINE)


MIXED = [
    Finding("ST-ABORT", Severity.WARNING, "abort"),
    Finding("CL-TIME", Severity.NOTICE, "time"),
    Finding("CL-CRC", Severity.ERROR, "body"),
    Finding("CQ-AHEAD", Severity.WARNING, "past the end"),
    Finding("CL-TIME", Severity.NOTICE, "time"),
    Finding("CQ-MISSING", Severity.ERROR, "missing"),
]


def test_people_see_errors_first_then_warnings_then_notices() -> None:
    ordered = ["CL-CRC", "CQ-MISSING", "ST-ABORT", "CQ-AHEAD", "CL-TIME", "CL-TIME"]
    assert shown_codes(MIXED) == ordered
    assert [finding.code for finding in worst_first(MIXED)] == ordered


@pytest.mark.parametrize("look", [Look(mode=Mode.JSONL), Look(verbose=1)], ids=["JSON lines", "-v"])
def test_each_finding_comes_as_it_is_found(look: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    """None is kept: a store may have millions."""
    shown: list[str] = []

    def found() -> Iterator[Finding]:
        for number, finding in enumerate(MIXED):
            assert shown == [earlier.code for earlier in MIXED[:number]]
            yield finding

    with Output(look, io.BytesIO()) as output:
        monkeypatch.setattr(output, "rows", lambda rows, *_: shown.extend(row["code"] for row in rows))
        counts = show_findings(output, found())
    assert (counts.errors, counts.warnings, counts.notices) == (2, 2, 2)
    assert shown == [finding.code for finding in MIXED]


def test_findings_of_one_code_are_one_group_also_where_others_are_between_them() -> None:
    others = [
        (Finding("CQ-AHEAD", Severity.WARNING, f"{n}"), Finding("IX-LOOP", Severity.WARNING, "x")) for n in range(9)
    ]
    assert shown_codes(chain(*others)) == ["CQ-AHEAD"] * 3 + ["IX-LOOP"] * 3


def test_what_was_found_before_an_interruption_is_shown() -> None:
    def found() -> Iterator[Finding]:
        yield Finding("ST-ABORT", Severity.WARNING, "abort")
        raise KeyboardInterrupt

    out = io.BytesIO()
    with pytest.raises(KeyboardInterrupt), Output(Look(), out) as output:
        show_findings(output, found())
    assert out.getvalue().startswith(b"warning ST-ABORT")


def test_csv_of_no_findings_is_a_header() -> None:
    out = io.BytesIO()
    with Output(Look(mode=Mode.CSV), out) as output:
        show_findings(output, [])
    assert out.getvalue() == b"code,severity,file,offset,length,topic,queueId,message,consequence,broker,fix\n"


@pytest.mark.parametrize(
    ("severity", "fail_on", "status"),
    [
        (Severity.NOTICE, Severity.WARNING, Exit.DONE),
        (Severity.WARNING, Severity.WARNING, Exit.NO),
        (Severity.ERROR, Severity.WARNING, Exit.NO),
        (Severity.WARNING, Severity.ERROR, Exit.DONE),
        (Severity.NOTICE, Severity.NOTICE, Exit.NO),
    ],
)
def test_the_status_is_no_from_the_threshold_up(severity: Severity, fail_on: Severity, status: Exit) -> None:
    counts = FindingCounts()
    assert counts.status(fail_on) is Exit.DONE
    counts.add(Finding("CL-CRC", severity, "bad"))
    assert counts.status(fail_on) is status


def test_what_needs_somebody_is_counted_by_kind_the_worst_first() -> None:
    counts = FindingCounts()
    for code, severity in (
        ("ST-ABORT", "warning"),
        ("CQ-AHEAD", "warning"),
        ("CL-CRC", "error"),
        ("CQ-AHEAD", "warning"),
    ):
        counts.add(Finding(code, Severity(severity), "found", consequence=f"why {code}"))
    counts.add(Finding("CL-STALE", Severity.NOTICE, "harmless"))
    assert counts.worst_kinds() == [
        (1, "CL-CRC", "why CL-CRC"),
        (2, "CQ-AHEAD", "why CQ-AHEAD"),
        (1, "ST-ABORT", "why ST-ABORT"),
    ]


def test_counts_as_words() -> None:
    assert FindingCounts().words() == "no findings"
    assert FindingCounts(errors=3, warnings=1, notices=2).words() == "3 errors, 1 warning, 2 notices"


def test_a_place_names_what_is_known() -> None:
    assert place_of(Finding("X", Severity.ERROR, "m")) == ""
    assert place_of(Finding("X", Severity.ERROR, "m", file="f", offset=0)) == "f@0"
    assert place_of(Finding("X", Severity.ERROR, "m", topic="T")) == "T"


def test_a_clean_verdict_is_green() -> None:
    assert list(verdict_lines(Output(Look(color=True), io.BytesIO()), "clean")) == ["\x1b[32mclean\x1b[0m"]
