"""What a member of a group remembers of the errors of its brokers."""

from __future__ import annotations

import pytest

from rmqtool.client.connection import RequestRefused
from rmqtool.client.group_state import Troubles
from rmqtool.client.puller import PATIENCE
from rmqtool.errors import RemoteError
from rmqtool.formats.response_codes import ResponseCode
from rmqtool.remoting.command import RemotingCommand


class Clock:
    """A clock in seconds that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def refusal() -> RequestRefused:
    return RequestRefused(11, RemotingCommand(code=int(ResponseCode.NO_PERMISSION)), "a")


def test_what_one_broker_refuses_is_raised_though_another_one_answers() -> None:
    troubles = Troubles(Clock())
    troubles.note(refusal(), "a")
    troubles.clear("b")
    with pytest.raises(RequestRefused, match="NO_PERMISSION"):
        troubles.raise_old()
    troubles.clear("a")
    troubles.raise_old()


def test_patience_begins_anew_after_an_answer() -> None:
    clock = Clock()
    troubles = Troubles(clock)
    for _ in range(3):
        troubles.note(RemoteError("broker a is away"), "a")
        troubles.raise_old()
        clock.now += PATIENCE - 1
        troubles.raise_old()
        troubles.clear("b")
    troubles.note(RemoteError("broker a is away"), "a")
    troubles.raise_old()
    clock.now += PATIENCE + 1
    with pytest.raises(RemoteError, match="broker a is away"):
        troubles.raise_old()
