"""TLS: our client at a name server and a broker that speak nothing else, behind sockets of the ssl module."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

import rmqtool
from rmqtool.cli import main
from rmqtool.errors import Exit
from tests.support.waiting import wait_for_end

HERE = Path(__file__).parents[2] / "support" / "tls"


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    for one in (source, target):
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)


class Door:
    """A port that takes TLS and passes the bytes on to another port."""

    def __init__(self) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(HERE / "certificate.pem", HERE / "key.pem")
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = "{}:{}".format(*self._listener.getsockname())
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = []

    def open_to(self, target: str) -> None:
        """Begin to pass on what comes."""
        host, _, port = target.rpartition(":")
        self._start(self._accept, (host, int(port)))

    def _start(self, work: object, *words: object) -> None:
        assert callable(work)
        thread = threading.Thread(target=work, args=words, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self, target: tuple[str, int]) -> None:
        with suppress(OSError):
            while True:
                plain, _ = self._listener.accept()
                self._start(self._serve, plain, target)

    def _serve(self, plain: socket.socket, target: tuple[str, int]) -> None:
        self._sockets.append(plain)
        with suppress(OSError):
            secret = self._context.wrap_socket(plain, server_side=True)
            self._sockets.append(secret)
            beyond = socket.create_connection(target)
            self._sockets.append(beyond)
            self._start(_pass_on, beyond, secret)
            _pass_on(secret, beyond)

    def close(self) -> None:
        """End every connection."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for one in self._sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        wait_for_end(*self._threads)
        for one in self._sockets:
            one.close()


@pytest.fixture
def address() -> Iterator[str]:
    with ExitStack() as doors:
        names, broker = Door(), Door()
        doors.callback(names.close)
        doors.callback(broker.close)
        served = doors.enter_context(rmqtool.serve(memory=True, advertise=broker.address))
        names.open_to(served.names)
        broker.open_to(served.broker)
        yield f"rocketmq://{names.address}"


def test_messages_over_tls(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(HERE / "certificate.pem"))
    with rmqtool.connect(address, tls=True) as cluster:
        cluster.topic("create", "T", queues=1)
        body = "secret " * 100_000
        assert cluster.produce("T", body).status == "PUT_OK"
        assert [one["body"] for one in cluster.scan(topics="T")] == [body]
    assert main(["cat", address, "-t", "T", "--tls", "--count"]) == Exit.DONE


def test_a_certificate_of_a_stranger_is_refused(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", address, "--tls"]) == Exit.REMOTE
    said = capsys.readouterr().err
    assert "by TLS" in said
    assert "SSL_CERT_FILE" in said


def test_a_client_without_tls_is_told_so_in_a_sentence(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", address]) == Exit.REMOTE
    assert "the name server does not answer" in capsys.readouterr().err
