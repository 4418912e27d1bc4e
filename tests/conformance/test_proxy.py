"""gRPC clients through a real proxy of 5.3.3 before ``rmqtool serve``: nothing is lost, and nothing comes twice."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.conformance.client_programs import built, make
from tests.conformance.own_network import run_alone

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(900)]

PROXY = "5.3.3"
GRPC_CLIENT = "rocketmq-python-client==5.1.2"


@pytest.fixture(scope="module")
def library() -> Path:
    """Fetch the packages of the proxy."""
    with built(f"proxy-{PROXY}", ()) as (folder, stale):
        if stale:
            (folder / "pom.xml").write_text(
                "<project xmlns='http://maven.apache.org/POM/4.0.0'><modelVersion>4.0.0</modelVersion>"
                "<groupId>rmqtool</groupId><artifactId>proxy</artifactId><version>1</version><dependencies><dependency>"
                "<groupId>org.apache.rocketmq</groupId><artifactId>rocketmq-proxy</artifactId>"
                f"<version>{PROXY}</version></dependency></dependencies></project>"
            )
            make("mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=lib", cwd=folder)
    return folder / "lib"


@pytest.fixture(scope="module")
def client() -> Path:
    """Fetch the official gRPC client and what it needs."""
    with built(GRPC_CLIENT.replace("==", "-"), ()) as (folder, stale):
        if stale:
            install = (sys.executable, "-m", "pip", "install", "--quiet", "--no-input", "--target", str(folder))
            make(*install, GRPC_CLIENT, cwd=folder)
    return folder


@pytest.mark.parametrize("count", [1000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_a_grpc_client_gets_each_message_once(library: Path, client: Path, tmp_path: Path, count: int) -> None:
    out = tmp_path / "seen.json"
    run_alone("tests.conformance.live_proxy", library, client, tmp_path, count, out, timeout=600)
    seen = json.loads(out.read_text())
    assert seen == {"sent": count, "got": count, "different": count, "extended": 1, "failed": []}
