from __future__ import annotations

import csv
import fcntl
import io
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from rmqtool.errors import StoreError, UsageError, WriteFailed
from rmqtool.render.output import Look, Mode, Output
from rmqtool.render.progress import TerminalProgress
from rmqtool.render.tables import Column, Kind

ROWS = [{"topic": "Orders", "queueId": 3, "keys": "k1"}, {"topic": "订单", "queueId": 0, "keys": None}]
FIELDS = ("topic", "queueId", "keys")


class Terminal(io.BytesIO):
    def isatty(self) -> bool:
        return True


def screen(row: Mapping[str, object]) -> Iterable[str]:
    return [f"{row['topic']}/{row['queueId']}", "  body"]


def spelled(mode: Mode, rows: Iterable[Mapping[str, Any]], *, terminal: bool = False, **look: Any) -> str:
    out = Terminal() if terminal else io.BytesIO()
    with Output(Look(mode=mode, **look), out, io.StringIO()) as output:
        output.rows(rows, FIELDS, screen)
    return out.getvalue().decode("utf-8")


def test_people_see_screens() -> None:
    assert spelled(Mode.HUMAN, ROWS) == "Orders/3\n  body\n订单/0\n  body\n"


def test_jsonl_is_one_object_per_line() -> None:
    assert spelled(Mode.JSONL, ROWS) == (
        '{"topic": "Orders", "queueId": 3, "keys": "k1"}\n{"topic": "订单", "queueId": 0, "keys": null}\n'
    )


@pytest.mark.parametrize("count", [0, 1, 2, 255, 256, 257, 1000])
def test_json_is_the_lines_as_one_array(count: int) -> None:
    rows = [{"topic": "T", "queueId": n} for n in range(count)]
    lines = spelled(Mode.JSONL, rows)
    array = spelled(Mode.JSON, rows)
    assert json.loads(array) == [json.loads(line) for line in lines.splitlines()] == rows
    assert array == ("[\n" + ",\n".join(lines.splitlines()) + "\n]\n" if count else "[]\n")


def test_several_batches_and_asides_make_one_array() -> None:
    out = io.BytesIO()
    with Output(Look(mode=Mode.JSON), out) as output:
        output.rows(ROWS[:1], FIELDS, screen)
        output.aside({"damage": {"code": "CL-CRC"}}, "damaged")
        output.json_lines([b'{"a": 1}\n{"a": 2}\n', b'{"a": 3}\n'])
        output.rows(ROWS[1:], FIELDS, screen)
    assert json.loads(out.getvalue()) == [
        ROWS[0],
        {"damage": {"code": "CL-CRC"}},
        {"a": 1},
        {"a": 2},
        {"a": 3},
        ROWS[1],
    ]


def test_json_lines_are_passed_on_as_they_are() -> None:
    out = io.BytesIO()
    with Output(Look(mode=Mode.JSONL), out) as output:
        output.json_lines([b'{"a":1}\n', b'{"a":"\xe8\xae\xa2"}\n'])
    assert out.getvalue() == b'{"a":1}\n{"a":"\xe8\xae\xa2"}\n'


@pytest.mark.skipif(not hasattr(fcntl, "F_SETPIPE_SZ"), reason="this system has no sizes of pipes")
def test_a_pipe_gets_room_for_many_lines_and_what_is_no_pipe_stays_as_it_is(tmp_path: Path) -> None:
    read, write = os.pipe()
    with open(read, "rb") as reader, open(write, "wb") as out:
        before = fcntl.fcntl(write, fcntl.F_GETPIPE_SZ)
        with Output(Look(mode=Mode.JSONL), out) as output:
            output.json_lines([b"{}\n"])
        after = fcntl.fcntl(write, fcntl.F_GETPIPE_SZ)
        assert os.read(read, 8) == b"{}\n"
        assert not reader.closed
    most = int(Path("/proc/sys/fs/pipe-max-size").read_text())
    assert after == min(1 << 20, most) > before
    with (tmp_path / "file").open("wb") as file, Output(Look(mode=Mode.JSONL), file) as output:
        output.json_lines([b"{}\n"])
    assert (tmp_path / "file").read_bytes() == b"{}\n"


@pytest.mark.skipif(not hasattr(fcntl, "F_SETPIPE_SZ"), reason="this system has no sizes of pipes")
def test_a_larger_pipe_is_not_made_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqtool.render.output._PIPE", 8192)
    read, write = os.pipe()
    with open(read, "rb"), open(write, "wb") as out:
        before = fcntl.fcntl(write, fcntl.F_GETPIPE_SZ)
        with Output(Look(mode=Mode.JSONL), out) as output:
            output.json_lines([b"{}\n"])
        assert fcntl.fcntl(write, fcntl.F_GETPIPE_SZ) == before > 8192


def test_half_a_surrogate_pair_is_an_escape_and_the_line_is_utf8() -> None:
    row = {"topic": "a\ud83d", "\udc00": "订"}
    line = spelled(Mode.JSONL, [row])
    assert line == '{"topic": "a\\ud83d", "\\udc00": "订"}\n'
    assert json.loads(line) == row


def test_what_has_no_json_form_is_refused_and_any_mapping_is_an_object() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        spelled(Mode.JSONL, [{"x": float("nan")}])
    with pytest.raises(TypeError, match="bytes has no JSON form"):
        spelled(Mode.JSONL, [{"x": b""}])
    assert spelled(Mode.JSONL, [MappingProxyType({"x": MappingProxyType({"y": 1})})]) == '{"x": {"y": 1}}\n'


def test_a_terminal_gets_equal_json_without_control_characters() -> None:
    row = {"topic": "\x9b31m\x7f\u202e\x1b[0m订单"}
    raw, shown = spelled(Mode.JSONL, [row]), spelled(Mode.JSONL, [row], terminal=True)
    assert "\x9b" in raw
    assert "\\u009b31m\\u007f\\u202e\\u001b[0m订单" in shown
    assert json.loads(raw) == json.loads(shown) == row


def test_one_object_is_no_array() -> None:
    for mode in (Mode.JSON, Mode.JSONL):
        out = io.BytesIO()
        with Output(Look(mode=mode), out) as output:
            output.single({"a": {"b": [1, 2]}}, iter(["not shown"]))
        assert out.getvalue() == b'{"a": {"b": [1, 2]}}\n'


def test_one_object_is_a_screen_to_people_and_its_screen_is_made_for_nobody_else() -> None:
    def lines() -> Iterator[str]:
        made.append(True)
        yield "the store"

    made: list[bool] = []
    out = io.BytesIO()
    with Output(Look(), out) as output:
        output.single({"a": 1}, lines())
    assert (out.getvalue(), made) == (b"the store\n", [True])
    with Output(Look(mode=Mode.JSON), io.BytesIO()) as output:
        output.single({"a": 1}, lines())
    assert made == [True]


def test_one_object_in_csv_is_its_rows_or_itself() -> None:
    out = io.BytesIO()
    with Output(Look(mode=Mode.CSV), out) as output:
        output.single({"rows": []}, [], [{"t": "a", "n": 1}], [Column("t", "topic"), Column("n", "number", Kind.COUNT)])
    assert out.getvalue() == b"t,n\na,1\n"
    out = io.BytesIO()
    with Output(Look(mode=Mode.CSV), out) as output:
        output.single({"t": "a", "inner": {"x": [1]}}, [])
    assert out.getvalue() == b't,inner\na,"{""x"": [1]}"\n'


def test_csv_has_a_header_and_no_formula_starts_in_it() -> None:
    rows = [{"topic": "=HYPERLINK(1)", "queueId": -5, "keys": 'a,"b"\nc'}, {"topic": "-x", "queueId": True, "other": 1}]
    text = spelled(Mode.CSV, rows)
    assert list(csv.reader(io.StringIO(text))) == [
        ["topic", "queueId", "keys"],
        ["'=HYPERLINK(1)", "-5", 'a,"b"\nc'],
        ["'-x", "true", ""],
    ]


def test_csv_of_nothing_is_its_header_once() -> None:
    out = io.BytesIO()
    with Output(Look(mode=Mode.CSV), out) as output:
        output.rows([], FIELDS, screen)
        output.rows(ROWS[:1], FIELDS, screen)
    assert out.getvalue() == b"topic,queueId,keys\nOrders,3,k1\n"


def test_what_is_no_row_is_a_note_where_rows_are_columns() -> None:
    for mode, template in ((Mode.CSV, None), (Mode.TEMPLATE, "{topic}\\n")):
        out, err = io.BytesIO(), io.StringIO()
        with Output(Look(mode=mode, template=template), out, err) as output:
            output.aside({"damage": {}}, "damaged: commitlog/0@96")
        assert (out.getvalue(), err.getvalue()) == (b"", "damaged: commitlog/0@96\n")


def test_a_template_shows_names_of_the_json() -> None:
    rows = [{"topic": "T", "queueId": 3, "keys": None, "properties": {"a.b": "x"}}]
    out = io.BytesIO()
    with Output(
        Look(mode=Mode.TEMPLATE, template=r"{topic:>4}/{queueId:03d} [{keys}] {properties.a.b}\t{{}}\n"), out
    ) as o:
        o.rows(rows, [*FIELDS, "properties"], screen)
    assert out.getvalue() == b"   T/003 [] x\t{}\n"


@pytest.mark.parametrize(
    ("template", "message", "hint"),
    [
        ("{topik}", "unknown template field {topik}", "did you mean {topic}?"),
        ("{zzz}", "unknown template field {zzz}", "names: topic, queueId, keys"),
        ("{topic", "does not parse", "for example"),
        ("{}", "not a plain name", "for example"),
        ("{topic!r}", "not a plain name", "for example"),
        ("{topic:{keys}}", "not a plain name", "for example"),
        ("{topic:d}", "Unknown format code", "for example"),
        ("{topic.__class__.__mro__}{topic[0]}", "unknown template field {topic[0]}", ""),
    ],
)
def test_a_wrong_template_says_what_is_wrong(template: str, message: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        spelled(Mode.TEMPLATE, ROWS, template=template)
    assert message in caught.value.message
    assert hint in (caught.value.hint or "")


def test_an_absent_value_takes_any_format() -> None:
    assert spelled(Mode.TEMPLATE, [{"topic": None, "queueId": None}], template="{topic:>4}|{queueId:03d}|") == "    ||"


def test_a_template_reaches_nothing_of_python() -> None:
    assert spelled(Mode.TEMPLATE, ROWS[:1], template="<{topic.__class__}>") == "<>"


def test_values_in_templates_are_neutral_on_a_terminal_and_exact_elsewhere_and_those_of_csv_everywhere() -> None:
    row = [{"topic": "\x1b[31m", "queueId": 1, "keys": "a\nb"}]
    assert spelled(Mode.TEMPLATE, row, template="{topic}{keys}") == "\x1b[31ma\nb"
    assert spelled(Mode.TEMPLATE, row, template="{topic}{keys}", terminal=True) == "\\x1b[31ma\nb"
    assert "\x1b" not in spelled(Mode.CSV, row)
    assert "\x1b" not in spelled(Mode.CSV, row, terminal=True)


@pytest.mark.parametrize(
    ("limit", "shown", "noted"), [(None, 5, False), (5, 5, False), (9, 5, False), (4, 4, True), (0, 0, True)]
)
def test_a_limit_stops_and_says_so_when_there_was_more(limit: int | None, shown: int, noted: bool) -> None:
    out, err = io.BytesIO(), io.StringIO()
    with Output(Look(mode=Mode.JSONL), out, err) as output:
        rows = ({"n": n} for n in range(5))
        assert output.rows(rows, ("n",), screen, limit) == shown
    assert len(out.getvalue().splitlines()) == shown
    assert err.getvalue() == (f"stopped after {limit} (--limit); there is more\n" if noted else "")


def test_notes_are_for_stderr_and_quiet_drops_them() -> None:
    for look, expected in (
        (Look(), "note \\x1b[0m\n"),
        (Look(quiet=True), ""),
        (Look(verbose=1), "note \\x1b[0m\ndetail\n"),
        (Look(verbose=2), "note \\x1b[0m\ndetail\nmore\n"),
    ):
        out, err = io.BytesIO(), io.StringIO()
        with Output(look, out, err) as output:
            output.note("note \x1b[0m")
            output.detail("detail")
            output.detail("more", level=2)
        assert (out.getvalue(), err.getvalue()) == (b"", expected)


@pytest.mark.parametrize("mode", [Mode.JSON, Mode.JSONL])
def test_with_json_notes_wait_for_the_end_and_an_error_stands_alone(mode: Mode) -> None:
    err = io.StringIO()
    with Output(Look(mode=mode), io.BytesIO(), err) as output:
        output.note("a note")
        assert err.getvalue() == ""
    assert err.getvalue() == "a note\n"

    def failing() -> None:
        with Output(Look(mode=mode), io.BytesIO(), err) as output:
            output.note("another note")
            raise StoreError("gone")

    with pytest.raises(StoreError):
        failing()
    assert err.getvalue() == "a note\n"


def test_lines_are_for_people_only() -> None:
    for mode in (Mode.JSON, Mode.JSONL, Mode.CSV):
        out = io.BytesIO()
        with Output(Look(mode=mode), out) as output:
            output.line("words")
        assert out.getvalue() == (b"[]\n" if mode is Mode.JSON else b"")


def test_a_table_is_laid_out_for_people_and_raw_for_programs() -> None:
    columns = [Column("topic", "topic"), Column("n", "messages", Kind.COUNT)]
    rows = [{"topic": "T", "n": 1234, "extra": 1}]
    for mode, expected in (
        (Mode.HUMAN, "topic  messages\nT         1,234\n"),
        (Mode.CSV, "topic,n\nT,1234\n"),
        (Mode.JSONL, '{"topic": "T", "n": 1234, "extra": 1}\n'),
    ):
        out = io.BytesIO()
        with Output(Look(mode=mode), out) as output:
            assert output.table(iter(rows), columns, empty="no topics") == 1
        assert out.getvalue().decode() == expected
    out = io.BytesIO()
    with Output(Look(), out) as output:
        assert output.table([], columns, empty="no topics") == 0
    assert out.getvalue() == b"no topics\n"


def test_a_stream_reaches_a_terminal_row_by_row_and_a_pipe_when_told() -> None:
    seen: list[int] = []

    def rows(out: io.BytesIO) -> Iterator[dict[str, object]]:
        for n in range(3):
            yield {"topic": "T", "queueId": n}
            seen.append(len(out.getvalue().splitlines()))

    for mode in (Mode.JSONL, Mode.CSV):
        seen.clear()
        terminal = Terminal()
        Output(Look(mode=mode), terminal).rows(rows(terminal), FIELDS, screen)
        header = mode is Mode.CSV
        assert seen == [1 + header, 2 + header, 3 + header]
    seen.clear()
    pipe = io.BytesIO()
    output = Output(Look(mode=Mode.JSONL), pipe)
    output.rows(rows(pipe), FIELDS, screen)
    assert seen == [0, 0, 0]
    output.flush()
    assert len(pipe.getvalue().splitlines()) == 3


@pytest.mark.parametrize("mode", [Mode.HUMAN, Mode.JSON, Mode.JSONL, Mode.CSV])
@pytest.mark.parametrize("error", [StoreError("gone"), KeyboardInterrupt()])
def test_rows_that_were_taken_are_written_whatever_comes_next(mode: Mode, error: BaseException) -> None:
    def failing() -> Iterator[Mapping[str, object]]:
        yield from ROWS
        raise error

    out = io.BytesIO()

    def show() -> None:
        with Output(Look(mode=mode), out) as output:
            output.rows(failing(), FIELDS, screen)

    with pytest.raises(type(error)):
        show()
    assert out.getvalue().decode("utf-8") == spelled(mode, ROWS)


def test_an_error_before_the_first_row_leaves_nothing() -> None:
    out = io.BytesIO()

    def show() -> None:
        with Output(Look(mode=Mode.JSON), out):
            raise StoreError("gone")

    with pytest.raises(StoreError):
        show()
    assert out.getvalue() == b""


def test_a_stream_that_waits_can_hand_over_what_it_has() -> None:
    out = io.BytesIO()
    output = Output(Look(mode=Mode.JSONL), out)

    def following() -> Iterator[Mapping[str, object]]:
        yield ROWS[0]
        output.flush()
        seen.append(out.getvalue())
        yield ROWS[1]

    seen: list[bytes] = []
    output.rows(following(), FIELDS, screen)
    assert seen == [spelled(Mode.JSONL, ROWS[:1]).encode("utf-8")]


class Broken(io.BytesIO):
    def __init__(self, error: OSError) -> None:
        super().__init__()
        self.error = error

    def write(self, data: Any) -> int:
        raise self.error


def test_a_write_that_fails_is_an_error_and_a_closed_pipe_is_not_one_of_ours() -> None:
    for error, expected in (
        (OSError(28, "No space left on device"), WriteFailed),
        (BrokenPipeError(32, "Broken pipe"), BrokenPipeError),
    ):
        with pytest.raises(expected), Output(Look(), Broken(error)) as output:
            output.line("x")


def test_a_bar_is_hidden_while_rows_go_to_the_same_terminal() -> None:
    events: list[str] = []

    class Bar:
        @contextmanager
        def paused(self) -> Iterator[None]:
            events.append("hidden")
            yield
            events.append("shown")

        def finish(self) -> None:
            events.append("ended")

    class Watched(Terminal):
        def write(self, data: Any) -> int:
            events.append("write")
            return super().write(data)

    for out, expected in ((Watched(), ["hidden", "write", "shown"]), (io.BytesIO(), [])):
        events.clear()
        with Output(Look(), out) as output:
            output.beside(Bar())
            output.line("finding")
            output.flush()
            assert events == expected


def test_a_bar_ends_with_its_output_whatever_happens() -> None:
    stderr = io.StringIO()

    def interrupted() -> None:
        with Output(Look(), io.BytesIO()) as output:
            bar = TerminalProgress(stderr)
            output.beside(bar)
            bar.start("working", 10, "messages")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    # The cursor, hidden while the bar is drawn, is shown again.
    assert stderr.getvalue().rindex("\x1b[?25h") > stderr.getvalue().rindex("\x1b[?25l")


def test_colour_is_only_where_it_was_asked_for() -> None:
    assert Output(Look(), io.BytesIO()).paint("error", "error") == "error"
    painted = Output(Look(color=True), io.BytesIO()).paint("error", "error")
    assert painted == "\x1b[1;31merror\x1b[0m"
