"""Unmodified clients at a real broker and at ``rmqtool serve``: what they do works, and they see the same at both.

Each client sends, consumes, retries, asks and answers as its users do (``clients/``); each journey has its own topics
and groups, so one broker serves all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conformance.client_journeys import Line, comparable, faults, of_journey, order_by_queue
from tests.conformance.client_programs import CLIENTS, Client
from tests.conformance.oracle.runs import live_broker
from tests.conformance.serving import serve

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(1200), pytest.mark.xdist_group("client journeys")]

BROKER = "5.3.3"
SECONDS = 3600
SETTINGS = {
    "brokerName": "broker-a",
    "transactionTimeOut": "2000",
    "transactionCheckInterval": "3000",
    "enablePropertyFilter": "true",
}
# The interval of 5.x must be shorter than that of the checks. A busy machine is no reason to refuse a message.
OF_REAL = {"transactionOpBatchInterval": "500", "brokerFastFailureEnable": "false"}
ALWAYS = ("java 4.9.7", "java 5.3.3", "go 2.1.2")
PARAMETERS = [
    pytest.param(client, id=client.name, marks=() if client.name in ALWAYS else pytest.mark.slow) for client in CLIENTS
]


class Peer:
    """A broker, and what each client said of its journeys there."""

    def __init__(self, names: str, home: Path) -> None:
        self.names = names
        self.home = home
        self._said: dict[str, list[Line]] = {}

    def said(self, client: Client) -> list[Line]:
        """Return what a client said; it makes its journeys when it is asked first."""
        if client.name not in self._said:
            home = self.home / client.name.replace(" ", "-")
            home.mkdir()
            self._said[client.name] = client.run(self.names, prefix_of(client), home)
        return self._said[client.name]


def prefix_of(client: Client) -> str:
    """Return how the topics and groups of a client begin: the same at each broker, for the sizes of messages."""
    return f"{client.name.replace(' ', '-').replace('.', '_')}-"


@pytest.fixture(scope="module")
def real(real_classes: Callable[[str], None], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    real_classes(BROKER)
    with live_broker(BROKER, settings=SETTINGS | OF_REAL, seconds=SECONDS) as addresses:
        yield Peer(addresses.names, tmp_path_factory.mktemp("real"))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    home = tmp_path_factory.mktemp("served")
    settings = [word for name, value in SETTINGS.items() for word in ("--conf", f"{name}={value}")]
    with serve(home, "--listen", "127.0.0.1:0", "--for", f"{SECONDS}s", *settings) as names:
        yield Peer(names, home)


@pytest.mark.parametrize("client", PARAMETERS)
def test_what_a_client_does_works_at_a_real_broker(client: Client, real: Peer) -> None:
    assert wrong(client, real.said(client)) == []


@pytest.mark.parametrize("client", PARAMETERS)
def test_a_client_sees_at_serve_what_it_sees_at_a_real_broker(client: Client, real: Peer, served: Peer) -> None:
    assert wrong(client, served.said(client)) == []
    at_real, at_ours = (comparable(client.name, peer.said(client), prefix_of(client)) for peer in (real, served))
    assert sorted((at_real - at_ours).elements()) == sorted((at_ours - at_real).elements()) == []


def wrong(client: Client, said: list[Line]) -> list[str]:
    """Return what is wrong with the journeys of a client at any broker."""
    lines = of_journey(said)
    found = [fault for journey in client.journeys for fault in faults(client.name, journey, lines.get(journey, []))]
    for journey in {"orderly", "suspended"} & set(client.journeys):
        for (_, queue), taken in order_by_queue(lines[journey]).items():
            numbers = [int(key[1:]) for key, _ in taken]
            if numbers != sorted(numbers):
                found.append(f"{journey}: queue {queue} was consumed as {taken}")
    return found
