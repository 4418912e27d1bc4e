"""A connection: answers find their requests, and what is known of those without one is said rightly."""

from __future__ import annotations

import asyncio

import pytest

from rmqtool.client import connection as connections
from rmqtool.client.address import Credentials
from rmqtool.client.connection import AnswerLost, Connection, Manners, NotSent, Outcome, RequestRefused, connect
from rmqtool.remoting.command import Language, RemotingCommand, SerializeType
from rmqtool.remoting.requests.broker import GetBrokerRuntimeInfo
from rmqtool.remoting.signature import is_signed
from tests.support.scripted_peer import Hangup, ScriptedPeer, cluster_of, playing, reply
from tests.support.waiting import PATIENCE, come_true, run

INFO = 28


async def opened(peer: ScriptedPeer, **manners: object) -> Connection:
    return await connect(peer.address, Manners(**manners), lambda *_: None, lambda _: None)  # type: ignore[arg-type]


def hang_up(_: RemotingCommand) -> RemotingCommand:
    raise Hangup


def test_answers_in_any_order_find_their_requests() -> None:
    async def test() -> None:
        held: list[RemotingCommand] = []

        def play(request: RemotingCommand) -> RemotingCommand | None:
            held.append(request)
            return reply(request, body=request.body) if len(held) % 2 else None

        async with playing({INFO: play}) as (peer,):
            made = await opened(peer)
            # Those with an odd number get no answer, and wait for none for long.
            limits = [PATIENCE, 0.1] * 3
            calls = [made.call(INFO, None, b"%d" % at, timeout=limit) for at, limit in enumerate(limits)]
            got = await asyncio.gather(*calls, return_exceptions=True)
        assert [one.body for one in got if isinstance(one, RemotingCommand)] == [b"0", b"2", b"4"]
        assert [type(one) for one in got[1::2]] == [AnswerLost] * 3

    run(test())


@pytest.mark.parametrize("kind", list(SerializeType))
def test_headers_of_both_kinds_are_spoken(kind: SerializeType) -> None:
    async def test() -> None:
        async with playing({INFO: lambda request: reply(request, ext={"a": "b"})}) as (peer,):
            made = await opened(peer, serialize_type=kind)
            got = await made.call(INFO, {"x": "y"})
            asked = peer.requests[0]
        assert got.ext == {"a": "b"}
        assert (asked.serialize_type, asked.ext, asked.language) == (kind, {"x": "y"}, Language.PYTHON)

    run(test())


def test_requests_are_signed_by_the_keys() -> None:
    async def test() -> None:
        async with playing({INFO: reply}) as (peer,):
            made = await opened(peer, credentials=Credentials("me", "s3cret", "tok"))
            await made.call(INFO, {"x": "y"}, b"body")
            asked = peer.requests[0]
        assert is_signed(asked, "s3cret")
        assert not is_signed(asked, "another")
        assert (asked.ext["AccessKey"], asked.ext["SecurityToken"]) == ("me", "tok")

    run(test())


def test_a_request_that_was_written_before_the_end_may_have_arrived() -> None:
    async def test() -> None:
        async with playing({INFO: hang_up}) as (peer,):
            made = await opened(peer)
            with pytest.raises(AnswerLost, match="gave no answer to GET_BROKER_RUNTIME_INFO"):
                await made.call(INFO)
            with pytest.raises(NotSent):
                await made.call(INFO)
            assert not made.is_open

    run(test())


def test_what_is_still_held_when_the_connection_ends_was_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other side does not read: the first requests are in the socket, the last are held."""
    monkeypatch.setattr(connections, "_BACKLOG", 1 << 16)

    async def test() -> None:
        asked = asyncio.Event()

        async def never_reads(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await asked.wait()
            writer.transport.abort()

        server = await asyncio.start_server(never_reads, "127.0.0.1", 0, limit=1 << 10)
        port = server.sockets[0].getsockname()[1]
        made = await connect(f"127.0.0.1:{port}", Manners(timeout=PATIENCE), lambda *_: None, lambda _: None)
        outcomes: list[Outcome] = []
        for _ in range(100):
            made.ask(INFO, None, bytes(1 << 20), outcomes.append)
        await asyncio.sleep(0.1)
        asked.set()
        await come_true(lambda: len(outcomes) == 100)
        server.close()
        kinds = [type(one) for one in outcomes]
        assert kinds[0] is AnswerLost
        assert kinds[-1] is NotSent
        assert kinds == sorted(kinds, key=[AnswerLost, NotSent].index)

    run(test())


def test_nobody_there_is_said() -> None:
    async def test() -> None:
        async with playing({}) as (peer,):
            pass
        with pytest.raises(NotSent, match=r"cannot connect to 127.0.0.1:.*refused"):
            await opened(peer)

    run(test())


def test_bytes_that_are_not_the_protocol_end_the_connection() -> None:
    async def test() -> None:
        async def talks_http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1)
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            await reader.read()
            writer.transport.abort()

        server = await asyncio.start_server(talks_http, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        made = await connect(f"127.0.0.1:{port}", Manners(), lambda *_: None, lambda _: None)
        with pytest.raises(AnswerLost, match="not the protocol"):
            await made.call(INFO)
        server.close()
        await asyncio.sleep(0.01)

    run(test())


def test_a_refusal_has_the_remark_of_the_other_side() -> None:
    async def test() -> None:
        def play(request: RemotingCommand) -> RemotingCommand:
            return reply(request, 16, remark="the broker[1.2.3.4] sending message\nis forbidden")

        async with playing({INFO: play}) as (peer,), cluster_of(peer) as cluster:
            with pytest.raises(RequestRefused) as caught:
                await cluster.ask(peer.address, GetBrokerRuntimeInfo())
        error = caught.value
        assert (error.response_code, error.exit_status) == (16, 9)
        assert "GET_BROKER_RUNTIME_INFO with 16 NO_PERMISSION: the broker[1.2.3.4] sending message is forb" in str(
            error
        )

    run(test())


def test_a_connection_that_was_lost_is_opened_again_and_an_idle_one_is_closed() -> None:
    async def test() -> None:
        async with playing({INFO: reply}) as (peer,), cluster_of(peer, idle=0.0) as cluster:
            await cluster.ask(peer.address, GetBrokerRuntimeInfo())
            first = cluster.connection_now(peer.address)
            assert first is not None
            await asyncio.sleep(0.01)
            cluster._close_idle()
            assert cluster.connection_now(peer.address) is None
            await cluster.ask(peer.address, GetBrokerRuntimeInfo())
            assert peer.connections == 2

    run(test())


def test_what_a_broker_asks_and_we_do_not_know_is_answered_so() -> None:
    async def test() -> None:
        async with playing({INFO: reply}) as (peer,), cluster_of(peer) as cluster:
            await cluster.ask(peer.address, GetBrokerRuntimeInfo())
            peer.ask(RemotingCommand(9999, None, opaque=5))
            await come_true(lambda: any(one.is_answer for one in peer.requests))
        (answer,) = [one for one in peer.requests if one.is_answer]
        assert (answer.code, answer.opaque) == (3, 5)

    run(test())
