"""A producer: what was surely not sent is sent again, what nobody knows is said so, and no is no."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Sequence

import pytest

from rmqtool.client.connection import AnswerLost, NotSent, RequestRefused
from rmqtool.client.producer import ANY_QUEUE, Producer, ProducerSettings, SendUnknown
from rmqtool.engine.clock import SystemClock
from rmqtool.engine.message import NewMessage
from rmqtool.errors import NotFound, UsageError
from rmqtool.formats.batches import BatchItem, iter_batch_items
from rmqtool.formats.properties import decode_properties
from rmqtool.remoting.command import RemotingCommand
from rmqtool.remoting.requests import REQUESTS
from rmqtool.remoting.requests.messages import SendMessage
from tests.support import wire
from tests.support.builders import java_hash
from tests.support.scripted_peer import (
    BATCH,
    ROUTE,
    SEND,
    Hangup,
    Play,
    ScriptedPeer,
    cluster_of,
    playing,
    reply,
    routes_to,
    stored_at,
)
from tests.support.waiting import PATIENCE, run


def message(body: bytes = b"hello", queue_id: int = ANY_QUEUE, **properties: str) -> NewMessage:
    return NewMessage("T", body, queue_id, properties)


def in_turn(*plays: Play) -> Play:
    """Answer by one play after the other; the last one stays."""
    left = list(plays)

    def play(request: RemotingCommand) -> RemotingCommand | None:
        return (left.pop(0) if len(left) > 1 else left[0])(request)

    return play


def says(code: int, remark: str = "no") -> Play:
    return lambda request: reply(request, code, remark=remark)


def hang_up(_: RemotingCommand) -> RemotingCommand:
    raise Hangup


def route(peers: Sequence[ScriptedPeer], **more: int) -> None:
    """Let the first peer route the topic to all the others, or to itself."""
    brokers = peers[1:] or peers
    names = {f"broker-{chr(ord('a') + number)}": {0: peer.address} for number, peer in enumerate(brokers)}
    peers[0].plays[ROUTE] = routes_to(names, **more)


def sent(request: RemotingCommand) -> SendMessage:
    found = REQUESTS[request.code].decode(request.ext)
    assert isinstance(found, SendMessage)
    return found


def test_a_message_is_sent_as_clients_send_it() -> None:
    async def test() -> None:
        async with playing({SEND: stored_at(7, 0x1234)}) as peers, cluster_of(peers[0]) as cluster:
            route(peers)
            producer = Producer(cluster, ProducerSettings(group="G"))
            result = await producer.send(message(b"hello", 2, TAGS="a", KEYS="k1 k2"))
            request = peers[0].asked(SEND)[0]
        header = sent(request)
        assert (header.producer_group, header.topic, header.default_topic, header.queue_id) == ("G", "T", "TBW102", 2)
        assert (header.sys_flag, header.flag, header.batch, header.bname) == (0, 0, False, "broker-a")
        properties = decode_properties((header.properties or "").encode())
        assert properties == {"WAIT": "true", "TAGS": "a", "KEYS": "k1 k2", "UNIQ_KEY": result.msg_id}
        assert request.body == b"hello"
        assert (result.status, result.queue_id, result.queue_offset, result.physical_offset) == ("PUT_OK", 2, 7, 0x1234)
        assert result.as_json()["commitLogOffset"] == 0x1234

    run(test())


def test_the_header_has_the_fields_of_a_recorded_client() -> None:
    recorded = next(
        told.command
        for told in wire.told(wire.raw_frames())
        if told.raw.client == "5.3.3" and told.command.code == SEND
    )

    async def test() -> None:
        async with playing({SEND: stored_at()}) as peers, cluster_of(peers[0]) as cluster:
            route(peers)
            await Producer(cluster).send(message())
            request = peers[0].asked(SEND)[0]
        ours, theirs = sent(request), sent(recorded)
        proxies = {"ns", "nsd", "oway", "lo"}
        assert set(ours.given) == set(theirs.given) - proxies
        assert request.ext.keys() <= recorded.ext.keys()

    run(test())


def test_queues_take_turns_and_equal_keys_one_queue() -> None:
    async def test() -> None:
        async with playing({SEND: stored_at()}) as peers, cluster_of(peers[0]) as cluster:
            route(peers)
            producer = Producer(cluster)
            spread = [(await producer.send(message())).queue_id for _ in range(8)]
            keyed = {(await producer.send(message(__SHARDINGKEY="order-1"))).queue_id for _ in range(4)}
            # Java's remainder, its sign dropped.
            assert keyed == {abs(java_hash("order-1")) % 4}
        assert sorted(spread) == [0, 0, 1, 1, 2, 2, 3, 3]

    run(test())


def test_a_large_body_is_compressed() -> None:
    async def test() -> None:
        async with playing({SEND: stored_at()}) as peers, cluster_of(peers[0]) as cluster:
            route(peers)
            await Producer(cluster).send(message(b"x" * 4096))
            request = peers[0].asked(SEND)[0]
        assert sent(request).sys_flag == 0x301
        assert zlib.decompress(request.body) == b"x" * 4096

    run(test())


def test_a_batch_goes_to_one_queue_and_each_message_gets_its_place() -> None:
    def play(request: RemotingCommand) -> RemotingCommand:
        ids = ",".join(f"7F00000100002A9F{place:016X}" for place in (16, 32, 48))
        return reply(request, ext={"msgId": ids, "queueId": request.ext["e"], "queueOffset": "5"})

    async def test() -> None:
        async with playing({BATCH: play}) as peers, cluster_of(peers[0]) as cluster:
            route(peers)
            messages = [message(b"%d" % number, KEYS=f"k{number}") for number in range(3)]
            results = await Producer(cluster).send_batch(messages)
            request = peers[0].asked(BATCH)[0]
        assert [(one.queue_offset, one.physical_offset) for one in results] == [(5, 16), (6, 32), (7, 48)]
        header = sent(request)
        assert (header.batch, header.properties) == (True, "WAIT\x01true")
        items = [one for one in iter_batch_items(request.body) if isinstance(one, BatchItem)]
        assert [one.body for one in items] == [b"0", b"1", b"2"]
        assert [decode_properties(one.raw_properties)["UNIQ_KEY"] for one in items] == [one.msg_id for one in results]

    run(test())


@pytest.mark.parametrize("more", [{}, {"UNIQ_KEY": "7F0000010000"}, {"WAIT": "false", "é": "汉字"}])
def test_messages_alike_are_the_batch_of_each(more: dict[str, str]) -> None:
    def play(request: RemotingCommand) -> RemotingCommand:
        return reply(request, ext={"msgId": "7F00000100002A9F0000000000000010", "queueId": "0", "queueOffset": "5"})

    async def test() -> None:
        async with playing({BATCH: play}) as peers, cluster_of(peers[0]) as cluster:
            route(peers)
            producer, bodies = Producer(cluster), [b"one", b"x" * 5000, b"\0"]
            parts = {"TAGS": "a", **more}
            alike = await producer.send_alike(NewMessage("T", b"one", 0, parts, 7), bodies)
            each = await producer.send_batch([NewMessage("T", body, 0, parts, 7) for body in bodies])
            requests = peers[0].asked(BATCH)
        assert sent(requests[0]).properties == sent(requests[1]).properties
        for request, results in zip(requests, (alike, each), strict=True):
            items = [one for one in iter_batch_items(request.body) if isinstance(one, BatchItem)]
            assert [(one.flag, one.body) for one in items] == [(7, body) for body in bodies]
            keys = [decode_properties(one.raw_properties)["UNIQ_KEY"] for one in items]
            assert keys == [one.msg_id for one in results]
            assert len(set(keys)) == (1 if "UNIQ_KEY" in more else 3)
        places = [request.body for request in requests]
        for results, number in ((alike, 0), (each, 1)):
            for one in results:
                places[number] = places[number].replace(one.msg_id.encode(), b"key")
        assert places[0] == places[1]

    run(test())


@pytest.mark.parametrize(("code", "status"), [(10, "FLUSH_DISK_TIMEOUT"), (11, "SLAVE_NOT_AVAILABLE")])
def test_what_is_stored_and_not_everywhere_is_stored(code: int, status: str) -> None:
    def play(request: RemotingCommand) -> RemotingCommand:
        answer = stored_at()(request)
        assert answer is not None
        return answer.replaced(code=code)

    async def test() -> None:
        async with playing({SEND: play}) as peers, cluster_of(peers[0]) as cluster:
            route(peers)
            assert (await Producer(cluster).send(message())).status == status
            assert len(peers[0].asked(SEND)) == 1

    run(test())


def test_a_broker_that_cannot_be_reached_is_passed_for_another() -> None:
    async def test() -> None:
        async with playing({}, {SEND: stored_at()}, {SEND: stored_at()}) as peers, cluster_of(peers[0]) as cluster:
            route(peers)
            await peers[1].stop()
            producer = Producer(cluster)
            results = [await producer.send(message()) for _ in range(4)]
            assert {one.broker for one in results} == {"broker-b"}
            assert len(peers[2].asked(SEND)) == 4

    run(test())


def test_a_message_waits_for_a_broker_that_comes_back_in_time() -> None:
    async def test() -> None:
        async with playing({}, {SEND: stored_at()}) as peers, cluster_of(peers[0]) as cluster:
            route(peers)
            port = int(peers[1].address.rpartition(":")[2])
            await peers[1].stop()
            sending = Producer(cluster, ProducerSettings(timeout=PATIENCE)).begin(message())
            await asyncio.sleep(0.2)
            assert not sending.done()
            await peers[1].start(port)
            assert (await sending).status == "PUT_OK"
            assert len(peers[1].asked(SEND)) == 1

    run(test())


def forgotten(request: RemotingCommand) -> RemotingCommand:
    """Answer as a name server does while the only broker of the topic is away."""
    return reply(request, 17, remark="No topic route info in name server for the topic: T")


def test_a_topic_that_the_name_server_forgets_is_waited_for() -> None:
    async def test() -> None:
        async with playing({}, {SEND: in_turn(hang_up, stored_at())}) as peers, cluster_of(peers[0]) as cluster:
            route(peers)
            back = peers[0].plays[ROUTE]
            producer = Producer(cluster, ProducerSettings(timeout=PATIENCE))
            with pytest.raises(SendUnknown):
                await producer.send(message())
            cluster.routes.forget("T")
            peers[0].plays[ROUTE] = forgotten
            waiting = producer.begin(message())
            await asyncio.sleep(0.2)
            assert not waiting.done(), "a message that was not sent is tried until the timeout"
            second = producer.begin(message())
            await asyncio.sleep(0.2)
            assert not second.done(), "the route is gone from the cache, and the topic is still known"
            peers[0].plays[ROUTE] = back
            assert [(await one).status for one in (waiting, second)] == ["PUT_OK", "PUT_OK"]
            assert len(peers[1].asked(SEND)) == 3

    run(test())


def test_a_topic_whose_master_is_away_is_waited_for() -> None:
    async def test() -> None:
        async with playing({}, {SEND: stored_at()}) as peers, cluster_of(peers[0]) as cluster:
            route(peers)
            back = peers[0].plays[ROUTE]
            producer = Producer(cluster, ProducerSettings(timeout=PATIENCE))
            await producer.send(message())
            cluster.routes.forget("T")
            peers[0].plays[ROUTE] = routes_to({"broker-a": {1: peers[1].address}})
            waiting = producer.begin(message())
            await asyncio.sleep(0.2)
            assert not waiting.done(), "a slave is left, and masters come back"
            peers[0].plays[ROUTE] = back
            assert (await waiting).status == "PUT_OK"

    run(test())


def test_a_topic_that_stays_away_is_not_there_after_the_timeout() -> None:
    async def test() -> None:
        async with playing({}, {SEND: stored_at()}) as peers, cluster_of(peers[0]) as cluster:
            route(peers)
            producer = Producer(cluster)
            await producer.send(message())
            cluster.routes.forget("T")
            peers[0].plays[ROUTE] = forgotten
            producer.settings = ProducerSettings(timeout=0.3)
            started = asyncio.get_running_loop().time()
            with pytest.raises(NotFound, match="no topic T"):
                await producer.send(message())
            assert asyncio.get_running_loop().time() - started > 0.1
            peers[0].plays[ROUTE] = routes_to({"broker-a": {0: peers[1].address}})
            with pytest.raises(NotFound, match="T has no queue 7"):
                await producer.send(message(queue_id=7))
            assert len(peers[1].asked(SEND)) == 1

    run(test())


def test_a_topic_that_was_never_there_is_refused_at_once() -> None:
    async def test() -> None:
        async with playing({ROUTE: forgotten}) as peers, cluster_of(peers[0]) as cluster:
            with pytest.raises(NotFound, match="no topic T"):
                await asyncio.wait_for(Producer(cluster, ProducerSettings(timeout=3600)).send(message()), PATIENCE)
            assert len(peers[0].asked(ROUTE)) == 2, "the topic, and the one that new ones are made like"

    run(test())


def test_what_was_never_sent_is_said_to_be_not_sent() -> None:
    async def test() -> None:
        async with playing({}, {}) as peers, cluster_of(peers[0]) as cluster:
            route(peers)
            await peers[1].stop()
            with pytest.raises(NotSent, match="cannot connect"):
                await Producer(cluster, ProducerSettings(timeout=0.2)).send(message())

    run(test())


def test_flush_does_not_wait_for_a_send_that_was_cancelled() -> None:
    async def test() -> None:
        async with playing({SEND: lambda _: None}) as peers, cluster_of(peers[0]) as cluster:
            route(peers)
            producer = Producer(cluster, ProducerSettings(timeout=3600))
            future = producer.begin(message())
            future.cancel()
            await asyncio.wait_for(producer.flush(), PATIENCE)

    run(test())


@pytest.mark.parametrize("play", [hang_up, lambda _: None])
def test_an_answer_that_is_lost_is_unknown_and_not_sent_again(play: Play) -> None:
    async def test() -> None:
        async with playing({SEND: play}) as peers, cluster_of(peers[0]) as cluster:
            route(peers)
            # With the way to it known, the whole time is for the answer.
            await cluster.connection(peers[0].address)
            await cluster.routes.find("T")
            with pytest.raises(SendUnknown, match="is stored once, or not at all") as caught:
                await Producer(cluster, ProducerSettings(timeout=0.3)).send(message())
            await asyncio.sleep(0.1)
            assert len(peers[0].asked(SEND)) == 1
        assert isinstance(caught.value, AnswerLost)
        key = decode_properties(peers[0].asked(SEND)[0].ext["i"].encode())["UNIQ_KEY"]
        assert key in str(caught.value.hint)

    run(test())


def test_an_answer_that_is_lost_is_sent_again_where_that_is_wanted_with_the_same_key() -> None:
    async def test() -> None:
        async with playing({SEND: in_turn(hang_up, stored_at())}) as peers, cluster_of(peers[0]) as cluster:
            route(peers)
            result = await Producer(cluster, ProducerSettings(retry_unknown=True)).send(message())
            keys = {decode_properties(one.ext["i"].encode())["UNIQ_KEY"] for one in peers[0].asked(SEND)}
            assert len(peers[0].asked(SEND)) == 2
            assert keys == {result.msg_id}

    run(test())


@pytest.mark.parametrize("then", [hang_up, says(13, "bad"), None])
def test_what_was_unknown_once_stays_unknown(then: Play | None) -> None:
    async def test() -> None:
        async with playing({}, {SEND: in_turn(hang_up, then or hang_up)}) as peers, cluster_of(peers[0]) as cluster:
            route(peers)
            limit = PATIENCE
            if then is None:
                # With the way to it known, the whole time is for the answer.
                await cluster.connection(peers[1].address)
                await cluster.routes.find("T")
                peers[0].plays[ROUTE], limit = forgotten, 0.5
            sending = Producer(cluster, ProducerSettings(timeout=limit, retry_unknown=True)).begin(message())
            with pytest.raises(SendUnknown, match="is stored"):
                await sending
            assert len(peers[1].asked(SEND)) == {None: 1, hang_up: 3}.get(then, 2)

    run(test())


@pytest.mark.parametrize("code", [1, 2, 14, 16, 17, 204, 205])
def test_some_refusals_are_tried_at_another_broker_three_times_in_all(code: int) -> None:
    async def test() -> None:
        play = says(code, "not here")
        async with playing({}, {SEND: play}, {SEND: play}) as peers, cluster_of(peers[0]) as cluster:
            route(peers)
            with pytest.raises(RequestRefused, match="not here") as caught:
                await Producer(cluster).send(message())
            assert caught.value.response_code == code
            assert sorted(len(peer.asked(SEND)) for peer in peers[1:]) == [1, 2]

    run(test())


@pytest.mark.parametrize("code", [13, 29, 3, 9999])
def test_other_refusals_are_final(code: int) -> None:
    async def test() -> None:
        async with playing({SEND: says(code, "bad")}) as peers, cluster_of(peers[0]) as cluster:
            route(peers)
            with pytest.raises(RequestRefused, match="bad"):
                await Producer(cluster).send(message())
            assert len(peers[0].asked(SEND)) == 1

    run(test())


def test_a_slow_broker_is_avoided_by_a_producer_that_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async def slowly(peer: ScriptedPeer, request: RemotingCommand) -> None:
            await asyncio.sleep(0.7)
            answer = stored_at()(request)
            assert answer is not None
            peer.ask(answer)

        async with playing({}, {}, {SEND: stored_at()}) as peers, cluster_of(peers[0]) as cluster:
            tasks = set()

            def late(request: RemotingCommand) -> None:
                tasks.add(asyncio.ensure_future(slowly(peers[1], request)))

            peers[1].plays[SEND] = late
            route(peers)
            # What was slow is avoided for two seconds, which are not over before the sends that follow.
            monkeypatch.setattr(SystemClock, "monotonic", lambda _: 1)
            producer = Producer(cluster, ProducerSettings(latency_aware=True))
            while not peers[1].asked(SEND):
                await producer.send(message())
            results = [await producer.send(message()) for _ in range(8)]
            assert {one.broker for one in results} == {"broker-b"}

    run(test())


def test_messages_that_no_client_may_send_are_refused_here() -> None:
    async def test() -> None:
        async with playing({SEND: stored_at()}) as peers, cluster_of(peers[0]) as cluster:
            route(peers)
            producer = Producer(cluster)
            for bad, said in (
                (NewMessage("T", b"", 0, {}), "needs a body"),
                (NewMessage("bad topic!", b"x", 0, {}), "topic"),
                (NewMessage("SCHEDULE_TOPIC_XXXX", b"x", 0, {}), "broker's own"),
                (NewMessage("T", bytes((4 << 20) + 1), 0, {}), "at most 4194304"),
            ):
                with pytest.raises(UsageError, match=said):
                    await producer.send(bad)
            with pytest.raises(UsageError, match="one topic, not T and U"):
                await producer.send_batch([message(), NewMessage("U", b"x", -1, {})])
            for bodies, said in (([], "needs a message"), ([b"x", b""], "needs a body")):
                with pytest.raises(UsageError, match=said):
                    await producer.send_alike(message(), bodies)
            with pytest.raises(UsageError, match="delay level"):
                await producer.send_alike(message(DELAY="3"), [b"x"])
            with pytest.raises(NotFound, match="has no queue 9"):
                await producer.send(message(queue_id=9))
            assert peers[0].asked(SEND) == []

    run(test())


def test_oneway_waits_for_nothing_and_flush_for_all() -> None:
    async def test() -> None:
        async with playing({SEND: lambda one: None if one.is_oneway else stored_at()(one)}) as peers:
            route(peers)
            async with cluster_of(peers[0]) as cluster:
                producer = Producer(cluster)
                await producer.send_oneway(message(b"one"))
                futures = [producer.begin(message(b"%d" % number)) for number in range(50)]
                await producer.flush()
                assert all(one.done() and one.result().status == "PUT_OK" for one in futures)
                assert peers[0].asked(SEND)[0].is_oneway
                assert len({one.result().msg_id for one in futures}) == 50

    run(test())
