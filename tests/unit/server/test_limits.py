"""Limits of a server: connections that say nothing, too many clients, too many pulls; others are served meanwhile."""

from __future__ import annotations

import socket
from contextlib import suppress

import pytest

from rmqtool.errors import UsageError
from rmqtool.remoting.command import RemotingCommand
from rmqtool.remoting.frames import encode_frame
from tests.support.waiting import PATIENCE, wait_for
from tests.support.wire_client import WireClient, heartbeat, pull_fields, send_fields, served

SMALL = {"connections": 5, "silent": 3, "held_each": 2}


def is_closed(silent: socket.socket) -> bool:
    silent.settimeout(PATIENCE)
    try:
        return silent.recv(1) == b""
    except ConnectionResetError:
        return True


def is_reset(client: WireClient) -> bool:
    """Return whether the server has closed the connection of a client that goes on asking."""
    try:
        client.send(30, {"topic": "T", "queueId": 0})
    except ConnectionError:
        return True
    return False


def silent(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=PATIENCE)


def test_silent_connections_are_closed_the_oldest_first() -> None:
    # A client has asked before its three seconds are over.
    with served(limits=SMALL | {"silence": 3}) as broker, WireClient(broker.broker) as client:
        assert client.ask(310, send_fields("T"), b"x").code == 0
        held = [silent(broker.broker) for _ in range(4)]
        assert is_closed(held[0])
        assert client.ask(310, send_fields("T"), b"x").code == 0
        # The others have three seconds each.
        assert all(map(is_closed, held[1:]))
        assert client.ask(30, {"topic": "T", "queueId": 0}).ext["offset"] == "2"
        for one in held:
            one.close()


def test_one_client_too_many_loses_its_connection() -> None:
    with served(limits=SMALL) as broker:
        clients = []
        for _ in range(5):
            clients.append(WireClient(broker.broker))
            assert clients[-1].ask(30, {"topic": "T", "queueId": 0}).code == 0
        with WireClient(broker.broker) as more, pytest.raises(ConnectionError):
            more.ask(30, {"topic": "T", "queueId": 0})
        clients.pop(0).socket.close()
        assert clients[0].ask(30, {"topic": "T", "queueId": 0}).code == 0
        for client in clients:
            client.socket.close()


def test_a_pull_too_many_is_answered_at_once() -> None:
    with served(limits=SMALL) as broker, WireClient(broker.broker) as client:
        assert client.ask(310, send_fields("T"), b"x").code == 0
        waiting = [client.send(11, pull_fields("T", 1, wait=60_000)) for _ in range(2)]
        assert client.ask(11, pull_fields("T", 1, wait=60_000)).code == 19
        assert client.ask(310, send_fields("T"), b"y").code == 0
        assert [client.answer_to(one).code for one in waiting] == [0, 0]


@pytest.mark.parametrize("limits", [{"connection": 5}, ["silent"], {"silent": "many"}, {"held": -1}])
def test_a_limit_must_be_known(limits: dict[str, int]) -> None:
    with pytest.raises(UsageError), served(limits=limits):
        pass


def test_a_client_that_does_not_read_its_answers_loses_its_connection() -> None:
    body = bytes(1 << 20)
    with served(limits={"unread": 1 << 20, "patience": 1}) as broker, WireClient(broker.broker) as client:
        assert client.ask(310, send_fields("T"), body).code == 0
        client.ask(30, {"topic": "T", "queueId": 0})
        with WireClient(broker.broker) as slow:
            with suppress(ConnectionError):
                for _ in range(64):
                    slow.send(11, pull_fields("T"))
            # Others are served meanwhile.
            assert client.ask(11, pull_fields("T")).code == 0
            wait_for(lambda: is_reset(slow) or client.ask(30, {"topic": "T", "queueId": 0}).code != 0)
            assert is_reset(slow)


def test_a_client_that_takes_too_much_at_once_loses_its_connection() -> None:
    limits = {"unread": 8 << 20, "unread_all": 12 << 20}
    with served(limits=limits) as broker, WireClient(broker.broker) as client:
        assert client.ask(310, send_fields("T"), b"x").code == 0
        # One alone has too much; two together have. The first of two has more.
        for offset, pulls in enumerate(([200], [7, 6]), 1):
            slow = [WireClient(broker.broker) for _ in pulls]
            for one, count in zip(slow, pulls, strict=True):
                one.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                for _ in range(count + 4):
                    one.send(11, pull_fields("T", offset, wait=60_000))
                assert one.ask(30, {"topic": "T", "queueId": 0}).ext["offset"] == str(offset)
            # All these pulls wait for one message.
            assert client.ask(310, send_fields("T"), bytes(1 << 20)).code == 0
            assert client.ask(11, pull_fields("T", offset, wait=60_000)).code == 0
            wait_for(lambda slow=slow: is_reset(slow[0]))
            for one in slow:
                one.socket.close()


@pytest.mark.parametrize("kind", ["rows", "commands"])
def test_a_client_that_asks_for_much_at_once_and_reads_it_gets_all(kind: str) -> None:
    fields = {name: str(value) for name, value in pull_fields("T").items()}
    if kind == "rows":
        fields["sysFlag"] = "0"
        del fields["subscription"]
    frames = [encode_frame(RemotingCommand(11, fields, b"", opaque, 0)) for opaque in range(1001, 1101)]
    with served(limits={"unread": 8 << 20}) as broker, WireClient(broker.broker) as client:
        assert client.ask(34, {}, heartbeat("c", "G", {"T": "*"})).code == 0
        assert client.ask(310, send_fields("T"), bytes(1 << 20)).code == 0
        assert client.ask(11, pull_fields("T", wait=60_000)).code == 0
        client.socket.sendall(b"".join(frames))
        assert [client.answer_to(opaque).code for opaque in range(1001, 1101)] == [0] * 100
        # The server reads again.
        assert client.ask(11, pull_fields("T")).code == 0


def test_all_clients_together_may_leave_only_so_much_unread() -> None:
    with served(limits={"unread_all": 256 << 10}) as broker, WireClient(broker.broker) as client:
        assert client.ask(310, send_fields("T"), bytes(1 << 20)).code == 0
        assert client.ask(11, pull_fields("T", wait=60_000)).code == 0
        with WireClient(broker.broker) as slow:
            slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            # The socket takes about 3 MB. With less than 4 MB more, the server goes on reading from this client.
            with suppress(ConnectionError):
                for _ in range(6):
                    slow.send(11, pull_fields("T"))
            wait_for(lambda: is_reset(slow))


def test_a_frame_beyond_the_limit_closes_the_connection() -> None:
    with served(limits={"frame": 4096}) as broker, WireClient(broker.broker) as client:
        assert client.ask(310, send_fields("T"), bytes(1000)).code == 0
        assert client.ask(310, send_fields("T"), bytes(3000)).code == 0
        with WireClient(broker.broker) as large, pytest.raises(ConnectionError):
            large.ask(310, send_fields("T"), bytes(4096))
        with pytest.raises(ConnectionError):
            client.ask(310, send_fields("T"), bytes(4096))


def test_who_has_most_of_an_unfinished_request_loses_its_connection() -> None:
    with served(limits={"unfinished_all": 1 << 20}) as broker, WireClient(broker.broker) as client:
        assert client.ask(310, send_fields("T"), b"x").code == 0
        head = (8 << 20).to_bytes(4, "big") + (8 << 10).to_bytes(4, "big")
        most, less = silent(broker.broker), silent(broker.broker)
        most.sendall(head + bytes(800_000))
        less.sendall(head + bytes(400_000))
        assert is_closed(most)
        # Its bytes do not count any more: a large message has room.
        less.sendall(bytes(100_000))
        assert client.ask(310, send_fields("T"), bytes(400_000)).code == 0
        less.settimeout(0)
        with pytest.raises(BlockingIOError):
            less.recv(1)
        less.close()
        most.close()


def test_an_idle_client_loses_its_connection() -> None:
    with served(limits={"idle": 1}) as broker, WireClient(broker.broker) as client, WireClient(broker.names) as idle:
        assert idle.ask(106).code == 0
        idle.socket.settimeout(0.05)

        def is_gone() -> bool:
            assert client.ask(310, send_fields("T"), b"x").code == 0
            try:
                return idle.socket.recv(1) == b""
            except TimeoutError:
                return False

        wait_for(is_gone)
