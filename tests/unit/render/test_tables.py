from __future__ import annotations

from datetime import UTC
from typing import Any

import pytest
import tabulate

from rmqtool.render.tables import Column, Cut, Kind, lay_out
from rmqtool.render.text import display_width
from tests.support.golden_files import check_golden

COLUMNS = [
    Column("topic", "topic", cut=Cut.END),
    Column("producer", "producer", cut=Cut.MIDDLE),
    Column("messages", "messages", Kind.COUNT),
    Column("bytes", "bytes", Kind.SIZE),
    Column("share", "share", Kind.SHARE),
    Column("offset", "first", Kind.OFFSET),
]
WIDE = [*COLUMNS, Column("time", "last", Kind.TIME), Column("held", "held"), Column("lag", "lag", Kind.DURATION)]
ROWS: list[dict[str, Any]] = [
    {
        "topic": "Orders",
        "producer": "10.9.8.7",
        "messages": 41_220_118,
        "bytes": 33_500_000_000,
        "share": 0.867,
        "offset": 143_881_404_416,
        "time": 1787456517120,
        "held": True,
        "lag": 72_000,
    },
    {
        "topic": "%RETRY%payments-settlement-consumer-group-of-the-eastern-region",
        "producer": "fe80:0000:0000:0000:0202:b3ff:fe1e:8329",
        "messages": 0,
        "bytes": 812,
        "share": 0.0004,
        "offset": 0,
        "time": None,
        "held": False,
        "lag": None,
    },
    {
        "topic": "订单支付成功通知主题",
        "producer": "\x1b[31mred",
        "messages": 1_000,
        "offset": 9_223_372_036_854_775_807,
    },
]


@pytest.mark.parametrize("width", [80, 120, None])
def test_screens(width: int | None) -> None:
    lines = [*lay_out(ROWS, COLUMNS, width=width), "", *lay_out(ROWS, WIDE, width=width, zone=UTC)]
    check_golden(f"render/tables-{width or 'pipe'}.txt", "\n".join(lines) + "\n")


def test_a_markdown_table() -> None:
    rows = [*ROWS, {"topic": "a|b"}]
    check_golden("render/tables.md", "\n".join(lay_out(rows, WIDE, zone=UTC, markdown=True)) + "\n")


@pytest.mark.parametrize("width", [20, 60, 80, 100, 120])
def test_numbers_are_never_cut_and_text_only_as_far_as_needed(width: int) -> None:
    lines = lay_out(ROWS, COLUMNS, width=width)
    for whole in ("41,220,118", "143881404416", "9223372036854775807", "31.2 GiB", "86.7%"):
        assert whole in "\n".join(lines)
    if width >= 80:
        assert max(map(display_width, lines)) <= width
        assert "Orders" in lines[1]


def test_columns_are_aligned_whatever_their_characters() -> None:
    lines = lay_out(ROWS, COLUMNS)
    ends = {display_width(line[: line.index(" GiB") + 4]) for line in lines if " GiB" in line}
    ends |= {display_width(line[: line.index(" B ") + 2]) for line in lines if " B " in line}
    ends |= {display_width(line[: line.index("bytes") + 5]) for line in lines if "bytes" in line}
    assert len(ends) == 1


@pytest.mark.parametrize("has_wide_support", [True, False])
def test_the_layout_does_not_depend_on_an_optional_package(
    has_wide_support: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tabulate, "WIDE_CHARS_MODE", has_wide_support)
    check_golden(
        "render/tables-pipe.txt", "\n".join([*lay_out(ROWS, COLUMNS), "", *lay_out(ROWS, WIDE, zone=UTC)]) + "\n"
    )


def test_colour_changes_no_cell() -> None:
    painted = lay_out(ROWS, COLUMNS, width=80, paint=lambda text, style: f"<{style}>{text}</>")
    plain = lay_out(ROWS, COLUMNS, width=80)
    assert painted[0] != plain[0]
    assert [line.replace("<title>", "").replace("</>", "") for line in painted] == plain


def test_text_that_looks_like_the_stand_in_of_the_layout_is_kept() -> None:
    assert lay_out([{"topic": "\U000f0000x"}], [Column("topic", "t")])[1] == "\U000f0000x"
    assert lay_out([{"topic": "\u0301"}], [Column("topic", "t")])[1] == ""


def test_text_that_looks_like_a_number_stays_text() -> None:
    rows = [{"key": "1e5"}, {"key": "007"}, {"key": "-0.50"}]
    assert lay_out(rows, [Column("key", "key")]) == ["key", "1e5", "007", "-0.50"]


def test_a_table_without_rows_is_its_titles() -> None:
    assert lay_out([], COLUMNS[:2]) == ["topic  producer"]


def test_a_column_without_a_title_leaves_every_cell_in_its_row():
    columns = [Column("a", "a"), Column("b", "")]
    rows = [{"a": "é", "b": None}, {"a": "x", "b": "ü"}]
    lines = lay_out(rows, columns, paint=lambda text, _: text)
    assert [line.split() for line in lines] == [["a"], ["é", "–"], ["x", "ü"]]


def test_a_spare_column_is_left_out_where_names_could_not_be_told_apart_beside_it():
    columns = [Column("topic", "topic", cut=Cut.MIDDLE), Column("at", "at"), Column("last", "last", spare=True)]
    row = {"topic": "a-very-long-name-of-a-topic-that-is-cut", "at": "2026-08-23 11:41", "last": "2026-08-23 11:59"}
    assert lay_out([row], columns, width=64)[1] == "a-very-long-na…c-that-is-cut  2026-08-23 11:41  2026-08-23 11:59"
    assert lay_out([row], columns, width=63)[1] == "a-very-long-name-of-a-topic-that-is-cut  2026-08-23 11:41"
    short = row | {"topic": "a-name"}
    assert lay_out([short], columns, width=42)[1] == "a-name  2026-08-23 11:41  2026-08-23 11:59"


def test_spare_columns_go_one_by_one_from_the_right():
    columns = [Column("file", "file"), Column("kind", "kind", spare=True), Column("at", "at", spare=True)]
    rows = [{"file": "commitlog/0", "kind": "log", "at": "yesterday"}]
    assert lay_out(rows, columns, width=28)[1] == "commitlog/0  log   yesterday"
    assert lay_out(rows, columns, width=27)[1] == "commitlog/0  log"
    assert lay_out(rows, columns, width=16)[1] == "commitlog/0"
