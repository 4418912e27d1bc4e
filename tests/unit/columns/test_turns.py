"""Turns: of several threads one runs, and what gives its turn away has it again afterwards."""

from __future__ import annotations

import threading

import pytest

from rmqtool.columns.compiled import AWAY, holding
from tests.support.waiting import wait_for_end


def test_a_turn_is_given_away_and_taken_again() -> None:
    turn = threading.Lock()
    with holding(turn):
        assert turn.locked()
        with AWAY:
            assert not turn.locked()
        assert turn.locked()
    assert not turn.locked()


def test_a_thread_without_a_turn_gives_nothing_away() -> None:
    turn = threading.Lock()
    with turn:
        with AWAY:
            assert turn.locked()
        with holding(None), AWAY:
            assert turn.locked()
    with holding(turn):
        pass
    with turn, AWAY:  # the thread has no turn any more
        assert turn.locked()


def test_an_error_leaves_the_turn_to_others() -> None:
    turn = threading.Lock()

    def fail() -> None:
        with holding(turn), AWAY:
            raise ValueError("while away")

    with pytest.raises(ValueError, match="while away"):
        fail()
    assert not turn.locked()


def test_the_other_thread_runs_only_while_the_first_is_away() -> None:
    turn, seen = threading.Lock(), []

    def other() -> None:
        with holding(turn):
            seen.append("other")

    with holding(turn):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join(0.05)
        seen.append("first")
        with AWAY:
            wait_for_end(thread)
        seen.append("first again")
    assert seen == ["first", "other", "first again"]
