"""The requests of the dashboard's pages, recorded at a real 5.3.3 broker: with its history, serve answers the same."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest

from tests.support import wire
from tests.support.wire import Decoded
from tests.support.wire_client import WireClient, heartbeat, pull_fields, send_fields, served

# Requests of others that were recorded meanwhile: a broker registers.
OTHERS = {103}
# The recording has so many characters of a body.
CUT = 600
# Tables of names and values, of which brokers have hundreds: what the pages show of them.
SHOWN = {
    26: {"brokerName", "brokerClusterName", "listenPort", "storePathRootDir"},
    28: {"brokerVersionDesc", "putTps", "getTransferredTps", "msgPutTotalTodayMorning", "msgPutTotalTodayNow"}
    | {"msgGetTotalTodayMorning", "msgGetTotalTodayNow", "msgPutTotalYesterdayMorning", "msgGetTotalYesterdayMorning"},
}
LONG_MAX = (1 << 63) - 1
_QUEUE = re.compile(r'"queueId":(\d+),"topic":"([^"]+)"\}:\{"brokerOffset":(\d+),"consumerOffset":(\d+)')
_ROUTE = re.compile(r'"perm":(\d),"readQueueNums":(\d+),"topicSysFlag":0,"writeQueueNums":(\d+)')


class Exchange(NamedTuple):
    """A recorded request, and the answer of the real broker or name server."""

    asked: Decoded
    answer: Decoded


def recorded() -> dict[str, list[Exchange]]:
    """Return what each page asks and gets."""
    asked: dict[Any, Decoded] = {}
    found: dict[str, list[Exchange]] = {}
    for frame in wire.decoded_frames():
        place = frame.journey, frame.link, frame.connection, frame.opaque
        if frame.journey.startswith("dash-") and frame.from_client:
            asked[place] = frame
        elif place in asked:
            found.setdefault(frame.journey, []).append(Exchange(asked.pop(place), frame))
    return found


PAGES = recorded()
ALL = [one for page in PAGES.values() for one in page]


class Links:
    """Connections to a server, by the names that the recording gives its ports."""

    def __init__(self, server: Any, stack: ExitStack) -> None:
        self._clients = {
            link: stack.enter_context(WireClient(address))
            for link, address in {"NS": server.names, "B": server.broker, "BV": server.vip}.items()
        }

    def __getitem__(self, link: str) -> WireClient:
        return self._clients[link]


def make_history(server: Any, broker: WireClient) -> None:
    """Do what the recorded answers show: topics, groups, messages and committed offsets."""
    for asked, answer in ALL:
        route = _ROUTE.search(answer.body or "")
        topic = asked.ext.get("topic", "")
        if asked.code == 105 and route and not topic.startswith("%"):
            perm, read, write = route.groups()
            made = {"topic": topic, "readQueueNums": read, "writeQueueNums": write, "perm": perm, "order": "false"}
            broker.ask(17, made | {"defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0})
        if asked.code == 105 and answer.code == 0 and topic.startswith("%RETRY%"):
            with WireClient(server.broker) as member:
                group = topic.removeprefix("%RETRY%")
                assert member.ask(34, {}, heartbeat(group, group, {})).code == 0
    ends: Counter[tuple[str, int]] = Counter()
    committed: dict[tuple[str, str, int], int] = {}
    for asked, answer in ALL:
        if asked.code == 208:
            group = {"groupName": asked.ext["consumerGroup"]}
            assert broker.ask(200, {}, json.dumps(group).encode()).code == 0
            for queue, topic, end, offset in _QUEUE.findall(answer.body or ""):
                ends[topic, int(queue)] = max(ends[topic, int(queue)], int(end))
                committed[asked.ext["consumerGroup"], topic, int(queue)] = int(offset)
    # A producer with tracing.
    assert broker.ask(310, send_fields("RMQ_SYS_TRACE_TOPIC", d=1), b"trace").code == 0
    keys = [one.asked.ext["key"] for one in ALL if one.asked.code == 12 and one.answer.code == 0]
    for (topic, queue), count in ends.items():
        for number in range(count):
            key = keys[number % len(keys)]
            name = "KEYS" if key.startswith("k") else "UNIQ_KEY"
            assert broker.ask(310, send_fields(topic, f"{name}\1{key}\2", e=queue), b"body").code == 0
    for (group, topic, queue), offset in committed.items():
        place = {"consumerGroup": group, "topic": topic, "queueId": queue}
        assert broker.ask(15, place | {"commitOffset": offset}).code == 0
    for topic in dict.fromkeys(topic for topic, _ in ends):
        for group in dict.fromkeys(one.asked.ext["consumerGroup"] for one in ALL if one.asked.code == 208):
            if any(one.asked.ext.get("statsKey") == f"{topic}@{group}" and one.answer.code == 0 for one in ALL):
                assert broker.ask(11, pull_fields(topic, group=group)).code == 0
    # The counters are sampled by the clock of the server.
    keys = [one.asked.ext for one in ALL if one.asked.code == 315 and one.answer.code == 0]
    while any(broker.ask(315, key).code for key in keys):
        pass


@pytest.fixture(scope="module")
def links() -> Iterator[Links]:
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr("rmqtool.server.lifecycle._EXPIRY", 0.1)
        server = stack.enter_context(served(conf={"brokerName": "broker-a"}, allow=["admin"], as_version="5.3"))
        found = Links(server, stack)
        make_history(server, found["B"])
        yield found


def masked(body: str) -> Counter[str]:
    """Return the parts of a body without times, ports, counters and rates; maps of Java have no order."""
    body = re.sub(r"\b1[78]\d{11}\b", "TIME", body)
    body = re.sub(r"(?<=127\.0\.0\.1:)\d+", "PORT", body)
    body = re.sub(r'("counter":|"pullOffset":|"sum":)-?\d+', r"\1N", body)
    body = re.sub(r"\b\d+\.\d+(E-?\d+)?(?![\d.])", "RATE", body)
    # Some writers of Java leave out the quotes of a number that is a key.
    body = re.sub(r"(?<=[{,])(\d+):", r'"\1":', body)
    return Counter(re.findall(r"[^,{}\[\]]+", body))


# The pages are those of one session: what one of them asks is seen by the next. They stay together, in their order.
@pytest.mark.xdist_group("dashboard")
@pytest.mark.parametrize("page", PAGES)
def test_a_page_gets_what_it_gets_of_a_real_broker(links: Links, page: str) -> None:
    for asked, real in PAGES[page]:
        if asked.code in OTHERS:
            continue
        fields = asked.ext | ({"endTimestamp": str(LONG_MAX)} if "endTimestamp" in asked.ext else {})
        ours = links[asked.link].ask(asked.code, fields, (asked.body or "").encode())
        what = f"{asked.link} {asked.code} {asked.ext}"
        assert (ours.code, ours.remark, ours.ext.keys()) == (real.code, real.remark, real.ext.keys()), what
        if asked.code in SHOWN:
            body = ours.body.decode()
            assert {name for name in SHOWN[asked.code] if f'"{name}":' in body or f"{name}=" in body} == SHOWN[
                asked.code
            ]
        elif asked.code in (11, 12):
            # Records: they are compared with those of real brokers elsewhere.
            assert bool(ours.body) == bool(real.body_length), what
        else:
            theirs, mine = masked(real.body or ""), masked(ours.body.decode())
            if asked.code == 300:
                # Brokers of 5.x name the topic itself among the groups that consume it.
                del theirs[f'"{asked.ext["topic"]}"'], mine[f'"{asked.ext["topic"]}"']
            if real.body_length <= CUT:
                assert mine == theirs, what
            else:
                *whole, _ = re.findall(r"[^,{}\[\]]+", real.body or "")
                assert masked(",".join(whole)) <= mine, what
