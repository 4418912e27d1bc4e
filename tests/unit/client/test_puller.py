"""Reading by offsets: each message once and in order, whatever brokers answer."""

from __future__ import annotations

import asyncio

import pytest

from rmqtool.client import puller
from rmqtool.client.cluster import Cluster
from rmqtool.client.connection import RequestRefused
from rmqtool.client.puller import Chunk, Fetch, Span, find_bounds, find_offset, records_of
from rmqtool.errors import NotFound, RemoteError
from rmqtool.formats.message_queue import MessageQueue
from rmqtool.remoting.command import RemotingCommand
from tests.support import wire
from tests.support.builders import record
from tests.support.scripted_peer import PULL, ROUTE, Hangup, Play, cluster_of, playing, reply, routes_to
from tests.support.waiting import come_true, run

QUEUE = MessageQueue("T", "broker-a", 0)


def stored(queue_id: int, offset: int) -> bytes:
    return record(topic=b"T", body=b"%d-%d" % (queue_id, offset), queue_id=queue_id, queue_offset=offset)


def queue_of(least: int, most: int, *, at_once: int = 3) -> Play:
    """Return a broker that has messages from ``least`` up to ``most`` in each queue, and answers as real ones do."""

    def play(request: RemotingCommand) -> RemotingCommand:
        offset, queue_id = int(request.ext["queueOffset"]), int(request.ext["queueId"])
        count = min(at_once, int(request.ext["maxMsgNums"]))
        ext = {"suggestWhichBrokerId": "0", "minOffset": str(least), "maxOffset": str(most)}
        if offset < least or offset > most:
            return reply(request, 21, ext | {"nextBeginOffset": str(least if offset < least else most)})
        if offset == most:
            return reply(request, 19, ext | {"nextBeginOffset": str(offset)})
        end = min(offset + count, most)
        body = b"".join(stored(queue_id, one) for one in range(offset, end))
        return reply(request, 0, ext | {"nextBeginOffset": str(end)}, body)

    return play


def told(offset: int) -> Play:
    return lambda request: reply(request, ext={"offset": str(offset)})


async def fetched(cluster: Cluster, *spans: Span) -> list[Chunk]:
    fetch, found = Fetch(cluster, spans), []
    while chunks := await fetch.take():
        found += chunks
    return found


def texts(chunks: list[Chunk]) -> list[str]:
    records = records_of([one for one in chunks if one.body])
    begins, lengths = records.body_offsets.tolist(), records.body_lengths.tolist()
    return [records.data[at : at + size].tobytes().decode() for at, size in zip(begins, lengths, strict=True)]


def test_queues_come_whole_and_each_in_its_order() -> None:
    async def test() -> None:
        async with playing({PULL: queue_of(0, 10)}) as (peer,), cluster_of(peer) as cluster:
            peer.plays[ROUTE] = routes_to({"broker-a": {0: peer.address}})
            spans = [Span(QUEUE._replace(queue_id=number), 2, 10) for number in range(4)]
            chunks = await fetched(cluster, *spans)
            assert peer.connections == 1
        for number in range(4):
            mine = [one for one in chunks if one.queue.queue_id == number]
            assert texts(mine) == [f"{number}-{offset}" for offset in range(2, 10)]

    run(test())


def test_a_span_ends_where_it_ends_and_an_empty_one_asks_nothing() -> None:
    async def test() -> None:
        async with playing({PULL: queue_of(0, 10)}) as (peer,), cluster_of(peer) as cluster:
            peer.plays[ROUTE] = routes_to({"broker-a": {0: peer.address}})
            assert texts(await fetched(cluster, Span(QUEUE, 0, 5))) == [f"0-{offset}" for offset in range(5)]
            asked = len(peer.asked(PULL))
            assert await fetched(cluster, Span(QUEUE, 5, 5)) == []
            assert len(peer.asked(PULL)) == asked

    run(test())


def test_messages_that_are_deleted_meanwhile_are_named() -> None:
    async def test() -> None:
        async with playing({PULL: queue_of(4, 10)}) as (peer,), cluster_of(peer) as cluster:
            peer.plays[ROUTE] = routes_to({"broker-a": {0: peer.address}})
            chunks = await fetched(cluster, Span(QUEUE, 1, 10))
        assert chunks[0] == Chunk(QUEUE, 1, 4, b"", is_gone=True)
        assert texts(chunks[1:]) == [f"0-{offset}" for offset in range(4, 10)]

    run(test())


def test_a_queue_that_begins_again_is_an_error() -> None:
    async def test() -> None:
        async with playing({PULL: queue_of(0, 3)}) as (peer,), cluster_of(peer) as cluster:
            peer.plays[ROUTE] = routes_to({"broker-a": {0: peer.address}})
            with pytest.raises(RemoteError, match="ends at 3, before 7"):
                await fetched(cluster, Span(QUEUE, 7, 9))

    run(test())


def test_a_connection_that_breaks_loses_and_doubles_nothing() -> None:
    async def test() -> None:
        count = 0
        whole = queue_of(0, 20)

        def play(request: RemotingCommand) -> RemotingCommand | None:
            nonlocal count
            count += 1
            if count % 3 == 0:
                raise Hangup
            return whole(request)

        async with playing({PULL: play}) as (peer,), cluster_of(peer) as cluster:
            peer.plays[ROUTE] = routes_to({"broker-a": {0: peer.address}})
            assert texts(await fetched(cluster, Span(QUEUE, 0, 20))) == [f"0-{offset}" for offset in range(20)]
            assert peer.connections > 2

    run(test())


def test_a_broker_that_stays_away_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(puller, "PATIENCE", 0.3)

    async def test() -> None:
        async with playing({}, {}) as (names, broker), cluster_of(names) as cluster:
            names.plays[ROUTE] = routes_to({"broker-a": {0: broker.address}})
            await broker.stop()
            with pytest.raises(RemoteError, match="cannot connect"):
                await fetched(cluster, Span(QUEUE, 0, 5))

    run(test())


def test_a_refusal_is_said_at_once_and_a_busy_broker_is_asked_again() -> None:
    async def test() -> None:
        async with playing({PULL: lambda one: reply(one, 16, remark="pulling is forbidden")}) as (peer,):
            peer.plays[ROUTE] = routes_to({"broker-a": {0: peer.address}})
            async with cluster_of(peer) as cluster:
                with pytest.raises(RequestRefused, match="pulling is forbidden"):
                    await fetched(cluster, Span(QUEUE, 0, 5))
                assert len(peer.asked(PULL)) == 1
                whole, busy = queue_of(0, 5), [2, 215]
                peer.plays[PULL] = lambda one: reply(one, busy.pop()) if busy else whole(one)
                assert len(texts(await fetched(cluster, Span(QUEUE, 0, 5)))) == 5
                with pytest.raises(NotFound, match="no topic U"):
                    await fetched(cluster, Span(MessageQueue("U", "broker-a", 0), 0, 5))

    run(test())


def test_a_slave_is_read_where_there_is_no_master_or_where_the_broker_says_so() -> None:
    async def test() -> None:
        async with playing({}, {PULL: queue_of(0, 9)}) as (names, slave), cluster_of(names) as cluster:
            names.plays[ROUTE] = routes_to({"broker-a": {1: slave.address}})
            assert len(texts(await fetched(cluster, Span(QUEUE, 0, 9)))) == 9

            def elsewhere(request: RemotingCommand) -> RemotingCommand:
                answer = queue_of(0, 9)(request)
                assert answer is not None
                return answer.replaced(ext_fields={**answer.ext, "suggestWhichBrokerId": "1"})

            names.plays |= {ROUTE: routes_to({"broker-a": {0: names.address, 1: slave.address}}), PULL: elsewhere}
            cluster.routes.forget("T")
            before = len(slave.asked(PULL))
            assert texts(await fetched(cluster, Span(QUEUE, 0, 9))) == [f"0-{offset}" for offset in range(9)]
            assert len(names.asked(PULL)) == 1
            assert len(slave.asked(PULL)) - before == 2

    run(test())


def test_new_messages_are_waited_for_at_the_broker() -> None:
    async def test() -> None:
        most = 2

        def play(request: RemotingCommand) -> RemotingCommand:
            nonlocal most
            offset = int(request.ext["queueOffset"])
            if offset == most:
                most += 1
                ext = {"suggestWhichBrokerId": "0", "minOffset": "0", "maxOffset": "9", "nextBeginOffset": str(offset)}
                return reply(request, 19, ext)
            answer = queue_of(0, most)(request)
            assert answer is not None
            return answer

        async with playing({PULL: play}) as (peer,), cluster_of(peer) as cluster:
            peer.plays[ROUTE] = routes_to({"broker-a": {0: peer.address}})
            fetch, found = Fetch(cluster, [Span(QUEUE, 0)], wait=15.0), []
            while len(found) < 6:
                found += texts(await fetch.take())
            fetch.close()
            request = peer.asked(PULL)[0]
        assert found[:6] == [f"0-{offset}" for offset in range(6)]
        assert (request.ext["sysFlag"], request.ext["suspendTimeoutMillis"]) == ("6", "15000")

    run(test())


def test_bounds_and_times_are_asked_of_the_broker() -> None:
    async def test() -> None:
        plays = {31: told(3), 30: told(12), 29: told(8)}
        async with playing(plays) as (peer,), cluster_of(peer) as cluster:
            peer.plays[ROUTE] = routes_to({"broker-a": {0: peer.address}})
            assert await find_bounds(cluster, QUEUE) == (3, 12)
            assert await find_offset(cluster, QUEUE, 1_700_000_000_000) == 8
            assert peer.asked(29)[0].ext["timestamp"] == "1700000000000"

    run(test())


def test_columns_of_recorded_answers_of_real_brokers() -> None:
    bodies: list[tuple[bytes, int]] = []
    for one in wire.told(wire.raw_frames()):
        if one.command.is_answer and one.row is not None and one.row.code == PULL and one.command.body:
            begin = int(one.command.ext["nextBeginOffset"])
            bodies.append((one.command.body, begin))
    assert len(bodies) > 20
    records = records_of([Chunk(QUEUE, 0, end, body) for body, end in bodies])
    assert int(records.column("total_size").sum()) == sum(len(body) for body, _ in bodies)
    last = records_of([Chunk(QUEUE, 0, bodies[0][1], bodies[0][0])])
    assert int(last.column("queue_offset")[-1]) == bodies[0][1] - 1


def test_bytes_that_are_not_records_are_an_error() -> None:
    with pytest.raises(RemoteError, match="not records"):
        records_of([Chunk(QUEUE, 0, 2, stored(0, 0) + b"rubbish that is no record")])


def test_what_is_not_taken_is_not_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(puller, "_AHEAD", 1000)

    async def test() -> None:
        async with playing({PULL: queue_of(0, 1000)}) as (peer,), cluster_of(peer) as cluster:
            peer.plays[ROUTE] = routes_to({"broker-a": {0: peer.address}})
            fetch = Fetch(cluster, [Span(QUEUE, 0, 1000)])
            await come_true(lambda: len(peer.asked(PULL)) > 1)
            await asyncio.sleep(0.2)
            assert len(peer.asked(PULL)) < 20
            found: list[str] = []
            while chunks := await fetch.take():
                found += texts(chunks)
            assert found == [f"0-{offset}" for offset in range(1000)]

    run(test())
