from __future__ import annotations

import io
import re
import threading

import pytest

from rmqtool.progress import Progress
from rmqtool.render import progress
from rmqtool.render.progress import TerminalProgress
from tests.support.waiting import wait_for_end


def words(stderr: io.StringIO) -> str:
    """Return what was drawn without colours."""
    return re.sub(r"\x1b\[[0-9;]*m", "", stderr.getvalue())


def test_the_bar_draws_itself_and_leaves_nothing_behind() -> None:
    stderr = io.StringIO()
    bar: Progress = TerminalProgress(stderr)
    bar.start("checking [bold]x", 4 << 20, "bytes")
    bar.advance(1 << 20)
    bar.finish()
    text = words(stderr)
    assert "checking [bold]x" in text
    assert "1.0/4.0 MiB" in text
    # The cursor comes back and the line is erased.
    assert stderr.getvalue().endswith("\x1b[2K")


def test_other_units_and_unknown_totals() -> None:
    stderr = io.StringIO()
    bar = TerminalProgress(stderr)
    bar.start("reading", None, "messages")
    bar.advance(7)
    bar.start("writing", 10, "messages")
    bar.advance(10)
    bar.finish()
    bar.finish()
    bar.advance(1)
    assert "7/? messages" in words(stderr)
    assert "10/10 messages" in words(stderr)


def test_it_stays_away_while_rows_come_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(progress, "monotonic", lambda: now[0])
    stderr = io.StringIO()
    bar = TerminalProgress(stderr)
    bar.start("working", 10, "messages")
    for row in range(5):
        with bar.paused():
            stderr.write(f"row {row}\n")
        bar.advance(1)
        now[0] += 0.1
    assert stderr.getvalue().endswith("\x1b[2K" + "".join(f"row {row}\n" for row in range(5)))
    now[0] += 1
    bar.advance(1)
    bar.finish()
    assert "6/10 messages" in words(stderr)


def test_others_may_write_while_it_is_paused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_STILL", 0.0)
    stderr = io.StringIO()
    bar = TerminalProgress(stderr)
    with bar.paused():
        stderr.write("before\n")
    bar.start("working", 10, "messages")
    with bar.paused():
        erased = len(stderr.getvalue())
        stderr.write("between\n")
    bar.advance(3)
    bar.finish()
    text = stderr.getvalue()
    assert text[:erased].endswith("\x1b[2K")
    assert text[erased:].startswith("between\n")
    assert "3/10 messages" in words(stderr)


def test_progress_does_not_wait_for_a_terminal_that_takes_no_output(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages of a cluster are counted in the thread of its connections."""
    monkeypatch.setattr(progress, "_STILL", 0.0)
    stderr = io.StringIO()
    bar = TerminalProgress(stderr)
    bar.start("working", 10, "messages")
    with bar.paused():
        erased = len(stderr.getvalue())
        other = threading.Thread(target=bar.advance, args=(3,), daemon=True)
        other.start()
        wait_for_end(other)
        assert stderr.getvalue()[erased:] == ""
    bar.advance(1)
    bar.finish()
    assert "4/10 messages" in words(stderr)
