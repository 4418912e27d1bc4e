"""Lines of streams: whole and in order for every taker, and none waits longer than it must."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Iterator
from random import Random
from typing import IO

import pytest

from rmqtool.broker.producer.lines import Lines

TEXTS = [b"one\ntwo\n\nlong" + b"g" * 5000 + b"\nlast", b"", b"\n", b"of the next\nstream"]
WHOLE = b"".join(text if text.endswith(b"\n") or not text else text + b"\n" for text in TEXTS)


def streams() -> Iterator[IO[bytes]]:
    return map(io.BytesIO, TEXTS)


@pytest.fixture
def pipe() -> Iterator[tuple[Lines, int]]:
    """Return lines of a pipe, and where to write to it."""
    source, target = os.pipe()
    with open(source, "rb") as file, open(target, "wb") as writer:
        yield Lines([file]), writer.fileno()


def test_lines_one_by_one() -> None:
    assert list(Lines(streams())) == WHOLE.splitlines(keepends=True)
    assert list(Lines([])) == []


@pytest.mark.parametrize("seed", range(20))
def test_looked_at_passed_over_or_taken_all_lines_come_in_their_order(seed: int) -> None:
    chance, lines, got = Random(seed), Lines(streams()), b""
    looked: list[bytes] = []
    while True:
        move = chance.choice(["look", "look", "pass", "take"])
        if move == "look":
            piece = bytes(lines.look_ahead(chance.choice([1, 5, 100, 10_000])))
            assert not piece or piece.endswith(b"\n")
            looked += [piece] if piece else []
        elif move == "pass" and looked:
            got += looked.pop(0)
            lines.pass_over()
        elif move == "take":
            line = lines.take()
            got += line
            looked.clear()
            if not line:
                break
    assert got == WHOLE


def test_what_is_there_is_not_held_back_for_what_is_not(pipe: tuple[Lines, int]) -> None:
    lines, target = pipe
    os.write(target, b"one\ntwo\nhalf")
    assert lines.look_ahead(1 << 20) == b"one\ntwo\n"
    lines.pass_over()
    os.write(target, b" of it\nthree\n")
    assert lines.take() == b"half of it\n"
    assert not lines.is_late(0)
    assert lines.take() == b"three\n"
    assert lines.is_late(0)


def test_an_interruption_keeps_whole_lines_and_reads_no_more(
    pipe: tuple[Lines, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines, target = pipe
    os.write(target, b"one\nhalf")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("rmqtool.broker.producer.lines.select.select", interrupt)
        with pytest.raises(KeyboardInterrupt):
            lines.look_ahead(1 << 20)
    os.write(target, b"more\n")
    assert list(lines) == [b"one\n"]


def test_a_line_that_comes_now_and_then_is_given_out_soon(pipe: tuple[Lines, int]) -> None:
    lines, target = pipe
    os.write(target, b"one\n")
    # What came long ago is not waited with any longer.
    assert lines.take() == b"one\n"
    assert lines.is_late(time.monotonic() - 10)
    os.write(target, b"two\n")
    assert not lines.is_late(time.monotonic() - 10)
