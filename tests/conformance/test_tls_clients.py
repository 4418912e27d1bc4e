"""Unmodified clients by TLS at ``rmqtool serve``, and plain ones beside them at the same ports.

The Go client of the newest release cannot speak TLS, so it is one of those beside.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conformance.client_journeys import faults, of_journey
from tests.conformance.client_programs import CLIENTS, Client, java_program, run_program
from tests.conformance.serving import serve

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(600)]

HERE = Path(__file__).parents[1] / "support" / "tls"
FILES = f"{HERE / 'certificate.pem'},{HERE / 'key.pem'}"
JOURNEYS = ("push", "orderly", "retry")


@pytest.mark.parametrize("version", ["5.3.3", pytest.param("4.9.7", marks=pytest.mark.slow)])
def test_java_by_tls_works_where_nothing_else_is_taken(version: str, tmp_path: Path) -> None:
    client = Client(f"java {version}", JOURNEYS)
    # The client trusts any certificate in its test mode, which is on unless somebody sets it up.
    program = java_program("ClientJourneys", version, tmp_path, "-Xmx512m", "-Dtls.enable=true")
    with serve(tmp_path, "--listen", "127.0.0.1:0", "--tls", FILES, "--tls-only") as names:
        said = of_journey(run_program(client, program, names, "tls-", tmp_path))
    assert [fault for journey in JOURNEYS for fault in faults(client.name, journey, said.get(journey, []))] == []


def test_go_without_tls_works_beside(tmp_path: Path) -> None:
    go = next(client for client in CLIENTS if client.name.startswith("go"))
    client = go._replace(journeys=("push", "retry"))
    with serve(tmp_path, "--listen", "127.0.0.1:0", "--tls", FILES) as names:
        secret = ("produce", f"rocketmq://{names}", "-t", "beside", "--create", "--tls", "hello")
        environment = {"SSL_CERT_FILE": str(HERE / "certificate.pem")}
        done = subprocess.run([sys.executable, "-m", "rmqtool", *secret], env=environment, check=False)
        assert done.returncode == 0
        said = of_journey(client.run(names, "beside-", tmp_path))
    assert [fault for journey in client.journeys for fault in faults(client.name, journey, said[journey])] == []
