"""When a server dispatches what clients have sent: together where nobody waits, at once where a pull does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rmqtool.broker.one_broker import Broker
from rmqtool.config import Version
from rmqtool.engine.store import MessageStore
from rmqtool.remoting.command import RemotingCommand
from rmqtool.remoting.frames import FrameDecoder, encode_frame
from rmqtool.server.channel import Connection
from rmqtool.server.server import Server
from tests.support.engine_stores import small_setup
from tests.support.wire_client import heartbeat, pull_fields, send_fields

PAUSE, LONG_PAUSE = 0.004, 0.05


class Loop:
    """A loop whose time a test moves; what is to be called soon is called by ``run``."""

    def __init__(self) -> None:
        self.now = 100.0
        self._due: list[tuple[float, Callable[..., object], tuple[Any, ...]]] = []

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[..., object], *given: Any) -> None:
        self._due.append((self.now + delay, callback, given))

    def call_soon(self, callback: Callable[..., object], *given: Any) -> None:
        self.call_later(0, callback, *given)

    def run(self, seconds: float = 0.0) -> None:
        """Let time pass, and make the calls that are due by then."""
        self.now += seconds
        due = [one for one in self._due if one[0] <= self.now + 1e-9]
        self._due = [one for one in self._due if one not in due]
        for _, callback, given in due:
            callback(*given)


class Transport:
    """What a connection writes."""

    def __init__(self) -> None:
        self.written: list[RemotingCommand] = []

    def write(self, data: bytes) -> None:
        self.written += FrameDecoder().feed(data)

    def is_closing(self) -> bool:
        return False

    def set_write_buffer_limits(self, high: int) -> None:
        assert high > 0

    def get_extra_info(self, name: str) -> tuple[str, int] | None:
        return ("127.0.0.1", 40_000) if name == "peername" else None


class Observer:
    """Fails for errors of ours."""

    def event(self, kind: str, **about: object) -> None:
        assert kind != "error", about


class Client:
    """One client, its server, and the loop of both."""

    def __init__(self, store: MessageStore) -> None:
        broker = Broker(store, (bytes(4), 10_911))
        broker.add_own()
        self.loop = Loop()
        self.store, self.server = store, Server(broker, Observer(), self.loop)  # type: ignore[arg-type]
        self._transport = Transport()
        self._connection = Connection(self.server, self.server.processors.broker)
        self._connection.connection_made(self._transport)  # type: ignore[arg-type]
        self.say(34, {}, heartbeat("c", "G", {"T": "*"}))

    def say(self, code: int, fields: dict[str, Any], body: bytes = b"") -> RemotingCommand | None:
        """Send a request; return its answer, None if it has not come."""
        texts = {name: str(value) for name, value in fields.items()}
        before = len(self._transport.written)
        self._connection.data_received(encode_frame(RemotingCommand(code, texts, body)))
        return self._transport.written[before] if len(self._transport.written) > before else None

    def send(self, body: bytes = b"x") -> None:
        answer = self.say(310, send_fields("T"), body)
        assert answer is not None
        assert answer.code == 0

    def pull(self, offset: int, wait: int = 0) -> RemotingCommand | None:
        return self.say(11, pull_fields("T", wait=wait) | {"queueOffset": offset})

    @property
    def bodies(self) -> list[bytes]:
        """The bodies of all answers to pulls."""
        return [one.body for one in self._transport.written if one.body]

    @property
    def behind(self) -> bool:
        condition = self.store.condition()
        return condition.dispatched_offset < condition.committed_offset


@pytest.fixture
def client() -> Iterator[Client]:
    with MessageStore.create(small_setup(Version.V5_3, mappedFileSizeCommitLog=1 << 20)) as store:
        found = Client(store)
        yield found
        found.server.threads.shutdown()


def test_messages_that_nobody_waits_for_are_dispatched_together(client: Client) -> None:
    client.send()
    client.loop.run(LONG_PAUSE)
    assert not client.behind
    client.send()
    client.loop.run(LONG_PAUSE - 0.001)
    client.send()
    assert client.behind
    client.loop.run(0.001)
    assert not client.behind


def test_a_pull_that_does_not_wait_sees_what_was_sent_before(client: Client) -> None:
    client.send(b"first")
    client.loop.run(PAUSE)
    answer = client.pull(0)
    assert answer is not None
    assert b"first" in answer.body


def test_a_pull_that_waits_gets_what_was_sent_before_it_and_after_it(client: Client) -> None:
    client.send(b"first")
    client.loop.run(LONG_PAUSE)
    client.send(b"second")
    # The last dispatch was a moment ago, so this pull does not cause one.
    assert client.pull(1, wait=5000) is None
    client.loop.run(PAUSE)
    assert b"second" in client.bodies[-1]
    assert client.pull(2, wait=5000) is None
    client.send(b"third")
    client.loop.run()
    assert b"third" in client.bodies[-1]


def test_a_request_about_queues_counts_all_messages(client: Client) -> None:
    client.send()
    client.loop.run(LONG_PAUSE)
    client.send()
    answer = client.say(30, {"topic": "T", "queueId": 0})
    assert answer is not None
    assert answer.ext["offset"] == "2"


def test_what_is_due_is_looked_for_among_all_messages(client: Client) -> None:
    client.send()
    assert client.behind
    client.server.dispatch_if_due()
    assert not client.behind
