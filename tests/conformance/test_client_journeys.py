"""Unmodified clients at a real broker: what they do works, and what they print says what it must.

Each client sends, consumes, retries, asks and answers as its users do (``clients/``); each journey has
topics and groups of its own, so one broker serves all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conformance.client_journeys import faults, of_journey, order_by_queue
from tests.conformance.client_programs import CLIENTS, Client
from tests.conformance.oracle.runs import Addresses, live_broker

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(1200), pytest.mark.xdist_group("client journeys")]

BROKER = "5.3.3"
SECONDS = 3600
SETTINGS = {
    "transactionTimeOut": "2000",
    "transactionCheckInterval": "3000",
    "transactionOpBatchInterval": "500",
    "enablePropertyFilter": "true",
    "brokerFastFailureEnable": "false",  # a busy machine is no reason to refuse
}
ALWAYS = ("java 4.9.7", "java 5.3.3", "go 2.1.2")
PARAMETERS = [
    pytest.param(client, id=client.name, marks=() if client.name in ALWAYS else pytest.mark.slow) for client in CLIENTS
]


@pytest.fixture(scope="module")
def real(real_classes: Callable[[str], None]) -> Iterator[Addresses]:
    real_classes(BROKER)
    with live_broker(BROKER, settings=SETTINGS, seconds=SECONDS) as addresses:
        yield addresses


@pytest.mark.parametrize("client", PARAMETERS)
def test_what_a_client_does_works_at_a_real_broker(client: Client, real: Addresses, tmp_path: Path) -> None:
    lines = of_journey(client.run(real.names, f"real-{client.name.replace(' ', '-').replace('.', '_')}-", tmp_path))
    assert set(lines) == set(client.journeys)
    assert [fault for journey in client.journeys for fault in faults(client.name, journey, lines[journey])] == []
    for journey in {"orderly", "suspended"} & set(client.journeys):
        for taken in order_by_queue(lines[journey]).values():
            numbers = [int(key[1:]) for key, _ in taken]
            assert numbers == sorted(numbers), (journey, taken)
