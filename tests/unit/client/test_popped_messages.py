"""A consumer that pops, at brokers that are played: what it asks for, what it acks, and how it takes odd answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rmqtool.client.cluster import Cluster
from rmqtool.client.popped_messages import PopMember, Pops, Wanted
from rmqtool.errors import RemoteError
from rmqtool.filters.tags import parse_tags
from rmqtool.formats.message_queue import MessageQueue
from rmqtool.remoting.command import RemotingCommand
from rmqtool.remoting.requests.pop import AckMessage, ChangeInvisibleTime, PopMessage
from tests.support.builders import record
from tests.support.waiting import PATIENCE, come_true

TIMES = {"popTime": "1700000000000", "invisibleTime": "60000", "reviveQid": "4", "restNum": "7"}


def popped(*tags: str, start: str = "0 0 0") -> RemotingCommand:
    """Return the answer to a pop: messages with these tags, at the offsets 0, 1, ..."""
    body = b"".join(
        record(topic=b"T", queue_id=0, queue_offset=number, property_text=f"TAGS\x01{tag}\x02".encode())
        for number, tag in enumerate(tags)
    )
    return RemotingCommand(code=0, ext_fields=TIMES | {"startOffsetInfo": start}, body=body)


class Brokers:
    """Some brokers of one topic. ``pop`` answers a pop of one of them; everything else succeeds."""

    def __init__(
        self, pop: Callable[[str, PopMessage], Coroutine[Any, Any, RemotingCommand]], names: str = "a"
    ) -> None:
        self.client_id = "me"
        self.asked: list[Any] = []
        self.refused: set[int] = set()
        self._pop = pop
        self._names = names
        self.routes = SimpleNamespace(find=self._route, forget=lambda _topic: None)
        # How many requests were under way at once.
        self.under_way = self.most_under_way = 0

    async def _route(self, topic: str) -> Any:
        queues = [MessageQueue(topic, name, 0) for name in self._names]
        return SimpleNamespace(read_queues=queues, write_address=lambda name: name)

    async def ask(self, address: str, request: Any, **_: Any) -> RemotingCommand:
        self.asked.append(request)
        if isinstance(request, PopMessage):
            return await self._pop(address, request)
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        await asyncio.sleep(0.01)
        self.under_way -= 1
        if request.given.get("offset") in self.refused:
            raise RemoteError("the broker is away")
        return RemotingCommand(code=0)

    def offsets(self, kind: type[Any]) -> list[int]:
        return sorted(one.offset for one in self.asked if isinstance(one, kind))


def as_cluster(brokers: Brokers) -> Cluster:
    return cast("Cluster", brokers)


async def never() -> RemotingCommand:
    await asyncio.Event().wait()
    raise AssertionError


def test_a_tag_with_the_same_hash_is_acked_and_not_handed_out() -> None:
    """Brokers compare hashes. "Aa" and "BB" have one. Java's client acks what nobody wants, and so does this one."""

    async def pop(_broker: str, request: PopMessage) -> RemotingCommand:
        assert request.exp == "Aa || C"
        return popped("Aa", "BB", "C", "BB")

    async def main() -> None:
        brokers = Brokers(pop)
        brokers.refused.add(3)
        pops = Pops(as_cluster(brokers), Wanted("G", ("TAG", "Aa || C"), parse_tags("Aa || C")))
        found = await pops.pop("T", "a", 32)
        assert [one.record.queue_offset for one in found] == [0, 2]
        assert brokers.offsets(AckMessage) == [1, 3]
        assert pops.left == {("T", "a"): 7}
        # The messages were hidden before the acks, which took 10 ms.
        assert time.monotonic() * 1000 - pops.answered["T", "a"] >= 10

    asyncio.run(main())


def test_pops_of_several_brokers_do_not_ask_for_more_than_there_is_room() -> None:
    async def main() -> None:
        answers: dict[str, list[asyncio.Future[RemotingCommand]]] = {}

        async def pop(broker: str, _request: PopMessage) -> RemotingCommand:
            answer = asyncio.get_running_loop().create_future()
            answers.setdefault(broker, []).append(answer)
            return await answer

        def wanted() -> list[int]:
            return [one.max_msg_nums for one in brokers.asked]

        brokers = Brokers(pop, "abc")
        member = PopMember(as_cluster(brokers), ["T"], Wanted("G"), retries=3, room=7)
        await member.join()
        await come_true(lambda: len(brokers.asked) == 3)
        assert wanted() == [2, 2, 2]
        answers["a"].pop().set_result(popped("x", "x"))
        await come_true(lambda: len(brokers.asked) == 4)
        # One place is left beside those that are reserved for the others.
        assert wanted() == [2, 2, 2, 1]
        answers["a"].pop().set_result(popped("x"))
        await asyncio.sleep(0.01)
        assert len(brokers.asked) == 4
        assert len(member.take(10)) == 3
        await come_true(lambda: len(brokers.asked) == 5)
        await member.close()

    asyncio.run(main())


def test_with_little_room_each_broker_has_its_turn() -> None:
    async def main() -> None:
        seen = []

        async def pop(broker: str, request: PopMessage) -> RemotingCommand:
            seen.append((broker, request.max_msg_nums, request.poll_time))
            await asyncio.sleep(0.01)
            return RemotingCommand(code=210)

        brokers = Brokers(pop, "abc")
        member = PopMember(as_cluster(brokers), ["T"], Wanted("G"), retries=3, room=1)
        await member.join()
        await come_true(lambda: len(seen) > 8)
        await member.close()
        assert {broker for broker, _, _ in seen[:4]} == {"a", "b", "c"}
        assert {(most, held) for _, most, held in seen} == {(1, 1000)}

    asyncio.run(main())


@pytest.mark.parametrize("start", ["0 0 x", "0 0", "0 x 1", "0 0 0 0"])
def test_an_odd_answer_is_an_error_and_pops_go_on(start: str) -> None:
    async def main() -> None:
        answers = [popped("x", start=start), popped("x")]

        async def pop(_broker: str, _request: PopMessage) -> RemotingCommand:
            return answers.pop(0) if answers else await never()

        brokers = Brokers(pop)
        with pytest.raises(RemoteError, match="broker a answered a pop with fields that cannot be read"):
            await Pops(as_cluster(brokers), Wanted("G")).pop("T", "a", 32)
        assert len(await Pops(as_cluster(brokers), Wanted("G")).pop("T", "a", 32)) == 1

    asyncio.run(main())


def test_an_error_of_ours_does_not_end_a_pop_in_silence() -> None:
    async def main() -> None:
        async def pop(_broker: str, _request: PopMessage) -> RemotingCommand:
            raise ZeroDivisionError

        member = PopMember(as_cluster(Brokers(pop)), ["T"], Wanted("G"), retries=3, room=8)
        await member.join()
        async with asyncio.timeout(PATIENCE):
            await member.news.wait()
        with pytest.raises(ZeroDivisionError):
            member.raise_trouble()
        await member.close()

    asyncio.run(main())


def test_at_the_end_all_that_is_hidden_is_given_back_at_once() -> None:
    """What is visible again by then belongs to others."""

    async def main() -> None:
        answers = [popped(*["x"] * 20)]

        async def pop(_broker: str, _request: PopMessage) -> RemotingCommand:
            return answers.pop() if answers else await never()

        for invisible, due in ((60_000, list(range(20))), (0, [])):
            answers[:] = [popped(*["x"] * 20)]
            brokers = Brokers(pop)
            brokers.refused.add(3)
            member = PopMember(as_cluster(brokers), ["T"], Wanted("G", invisible=invisible), retries=3, room=32)
            await member.join()
            async with asyncio.timeout(PATIENCE):
                await member.news.wait()
            await member.close()
            assert brokers.offsets(ChangeInvisibleTime) == due
            assert brokers.most_under_way == len(due)

    asyncio.run(main())
