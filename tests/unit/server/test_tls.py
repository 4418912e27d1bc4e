"""TLS at the ports of a server: beside plain connections, or instead of them."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import rmqtool
from rmqtool.errors import ReadFailed, UsageError
from tests.support.waiting import PATIENCE
from tests.support.wire_client import WireClient, pull_fields, send_fields, served

HERE = Path(__file__).parents[2] / "support" / "tls"
CERTIFICATE, KEY = HERE / "certificate.pem", HERE / "key.pem"
FILES = f"{CERTIFICATE},{KEY}"


@contextmanager
def by_tls(address: str) -> Iterator[WireClient]:
    """Give a client that speaks TLS and trusts the certificate only."""
    context = ssl.create_default_context(cafile=str(CERTIFICATE))
    with WireClient(address) as client:
        client.socket = context.wrap_socket(client.socket, server_hostname="127.0.0.1")
        yield client


def test_tls_and_plain_clients_share_a_port() -> None:
    with served(tls=FILES) as server, by_tls(server.broker) as secret, WireClient(server.broker) as plain:
        with by_tls(server.names) as names:
            assert json.loads(names.ask(105, {"topic": "TBW102"}).body)["queueDatas"]
        assert secret.ask(310, send_fields("T"), b"secret").code == 0
        assert plain.ask(310, send_fields("T"), b"plain").code == 0
        found = secret.ask(11, pull_fields("T", wait=60_000))
        assert (found.code, found.ext["nextBeginOffset"]) == (0, "2")
        # A pull by TLS that waits is answered when a plain client sends.
        waiting = secret.send(11, pull_fields("T", 2, wait=60_000))
        assert plain.ask(310, send_fields("T"), b"later").code == 0
        assert secret.answer_to(waiting).code == 0


def test_messages_larger_than_a_record_of_tls_pass() -> None:
    body = bytes(range(256)) * 4000
    with served(tls=FILES) as server, by_tls(server.broker) as client:
        assert client.ask(310, send_fields("Large"), body).code == 0
        client.ask(30, {"topic": "Large", "queueId": 0})
        found = client.ask(11, pull_fields("Large"))
        assert body in found.body
        client.socket.unwrap()  # type: ignore[attr-defined]


def test_with_tls_only_a_plain_client_is_refused() -> None:
    with served(tls=FILES, tls_only=True) as server:
        with WireClient(server.broker) as plain, pytest.raises(ConnectionError):
            plain.ask(30, {"topic": "T", "queueId": 0})
        with by_tls(server.broker) as client:
            assert client.ask(30, {"topic": "T", "queueId": 0}).code == 0


def test_what_is_not_tls_after_its_first_byte_closes_the_connection() -> None:
    with served(tls=FILES) as server:
        host, _, port = server.broker.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=PATIENCE) as odd:
            odd.sendall(b"\x16" + b"nonsense" * 100)
            while odd.recv(4096):
                pass
        with by_tls(server.broker) as client:
            assert client.ask(310, send_fields("T"), b"x").code == 0


def test_without_a_certificate_tls_is_no_frame() -> None:
    with served() as server, pytest.raises((ssl.SSLError, OSError)), by_tls(server.broker):
        pass


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ({"tls": str(CERTIFICATE)}, UsageError),
        ({"tls": f"{KEY},{CERTIFICATE}"}, UsageError),
        ({"tls": f"{CERTIFICATE},{HERE / 'none.pem'}"}, ReadFailed),
        ({"tls_only": True}, UsageError),
    ],
)
def test_a_certificate_and_its_key_are_needed(how: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error) as raised, served(**how):
        pass
    assert "PRIVATE" not in str(raised.value)


def test_our_own_client_speaks_tls_to_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = [sys.executable, "-m", "rmqtool", "serve", "--memory", "--jsonl", "--tls", FILES, "--tls-only"]
    places = ["--names", "127.0.0.1:0", "--listen", "127.0.0.1:0", "--for", "600s"]
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    with subprocess.Popen([*command, *places], stdout=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        with rmqtool.connect(f"rocketmq://{ready['names']}", tls=True) as cluster, cluster.producer() as producer:
            assert producer.send("Orders", "hello").status == "PUT_OK"
        process.terminate()
        assert process.wait(PATIENCE) == 0
        told = process.stdout.read()
    assert "PRIVATE KEY" not in told
