"""Routes: kept for a time, read again where they changed, from a name server that answers."""

from __future__ import annotations

import asyncio

import pytest

from rmqtool.client import topic_routes as module
from rmqtool.errors import NotFound, RemoteError
from rmqtool.formats.message_queue import MessageQueue
from rmqtool.remoting.bodies.routes import TopicRouteData
from rmqtool.remoting.command import RemotingCommand
from tests.support import wire
from tests.support.scripted_peer import ROUTE, cluster_of, playing, reply, routes_to
from tests.support.waiting import run

BROKERS = {"broker-b": {0: "127.0.0.1:2"}, "broker-a": {0: "127.0.0.1:1", 1: "127.0.0.1:3"}}


def test_queues_of_a_recorded_route() -> None:
    bodies = [
        told.command.body
        for told in wire.told(wire.raw_frames())
        if told.row is not None and told.row.code == ROUTE and told.command.is_answer and told.command.body
    ]
    assert len(bodies) > 50
    for body in bodies:
        route = module.Route("T", TopicRouteData.decode(body))
        assert route.write_address("broker-a") == "127.0.0.1:10911"
        assert [queue.queue_id for queue in route.write_queues] == list(range(len(route.write_queues)))
        assert route.read_queues


def test_a_route_is_read_once_for_all_who_wait_and_kept() -> None:
    async def test() -> None:
        async with playing({ROUTE: routes_to(BROKERS)}) as (names,), cluster_of(names) as cluster:
            found = await asyncio.gather(*(cluster.routes.find("T") for _ in range(5)))
            assert await cluster.routes.find("T") is found[0]
            assert len(names.asked(ROUTE)) == 1
            cluster.routes.forget("T")
            assert await cluster.routes.find("T") is found[0], "an equal route stays the one that is held"
            assert len(names.asked(ROUTE)) == 2
            route = found[0]
        assert route.write_queues[0] == MessageQueue("T", "broker-a", 0)
        assert len(route.write_queues) == 8
        assert route.read_address("broker-a", 1) == "127.0.0.1:3"

    run(test())


def test_a_broker_without_a_master_is_read_and_not_written() -> None:
    async def test() -> None:
        brokers = {"broker-a": {1: "127.0.0.1:3"}}
        async with playing({ROUTE: routes_to(brokers)}) as (names,), cluster_of(names) as cluster:
            route = await cluster.routes.find("T")
        assert route.write_queues == []
        assert len(route.read_queues) == 4
        assert route.read_address("broker-a") == "127.0.0.1:3"

    run(test())


def test_only_the_named_broker_counts() -> None:
    async def test() -> None:
        async with playing({ROUTE: routes_to(BROKERS)}) as (names,):
            async with cluster_of(names, broker="broker-b") as cluster:
                route = await cluster.routes.find("T")
                assert {queue.broker_name for queue in route.read_queues} == {"broker-b"}
            async with cluster_of(names, broker="broker-x") as cluster:
                with pytest.raises(NotFound, match="broker-x has no queue of topic T"):
                    await cluster.routes.find("T")

    run(test())


def test_the_next_name_server_is_asked_where_one_does_not_answer() -> None:
    async def test() -> None:
        async with playing({ROUTE: routes_to(BROKERS)}, {ROUTE: lambda _: None}, {}) as (good, silent, gone):
            await gone.stop()
            async with cluster_of(gone, silent, good, timeout=1) as cluster:
                assert (await cluster.routes.find("T")).read_queues
                cluster.routes.forget("T")
                await cluster.routes.find("T")
            assert (len(silent.asked(ROUTE)), len(good.asked(ROUTE))) == (1, 2), "the one that answered is asked first"
            async with cluster_of(gone) as cluster:
                with pytest.raises(RemoteError, match="the name server does not answer: cannot connect"):
                    await cluster.routes.find("T")

    run(test())


def test_an_old_route_is_used_while_no_name_server_answers() -> None:
    async def test() -> None:
        async with playing({ROUTE: routes_to(BROKERS)}) as (names,), cluster_of(names) as cluster:
            route = await cluster.routes.find("T")
            await names.stop()
            cluster.routes.forget("T")
            assert await cluster.routes.find("T") is route

    run(test())


def test_a_topic_that_is_not_there_would_be_made_like_another() -> None:
    async def test() -> None:
        plays = {ROUTE: routes_to(BROKERS, ["TBW102"], queues=8, perm=7)}
        async with playing(plays, {ROUTE: routes_to({})}) as (names, bare):
            async with cluster_of(names) as cluster:
                with pytest.raises(NotFound, match="there is no topic New in the cluster"):
                    await cluster.routes.find("New")
                route = await cluster.routes.find("New", creates=True)
                assert route.is_new
                assert [str(queue.queue_id) + queue.broker_name for queue in route.write_queues] == [
                    f"{number}broker-{letter}" for letter in "ab" for number in range(4)
                ]
            async with cluster_of(bare) as cluster:
                with pytest.raises(NotFound, match="no broker of the cluster creates topics"):
                    await cluster.routes.find("New", creates=True)

    run(test())


def test_an_ordered_topic_has_the_queues_that_are_listed() -> None:
    async def test() -> None:
        def play(request: RemotingCommand) -> RemotingCommand:
            answer = routes_to(BROKERS)(request)
            assert answer is not None
            return reply(request, body=answer.body[:-1] + b',"orderTopicConf":"broker-b:2;broker-a:1"}')

        async with playing({ROUTE: play}) as (names,), cluster_of(names) as cluster:
            route = await cluster.routes.find("T")
        assert [(one.broker_name, one.queue_id) for one in route.write_queues] == [
            ("broker-b", 0),
            ("broker-b", 1),
            ("broker-a", 0),
        ]

    run(test())
