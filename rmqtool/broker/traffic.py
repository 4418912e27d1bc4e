"""The traffic of a broker now: its clients, and the messages of topics and groups by the second, for a screen."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from rmqtool.broker.one_broker import Broker
from rmqtool.formats.config_shapes import is_own_group
from rmqtool.formats.topics import TopicKind, find_own_names, topic_kind

_SECOND = 1000


class TopicTraffic(NamedTuple):
    """A topic: its queues, the messages in them, and how many came and went by the second."""

    topic: str
    queues: int
    messages: int
    puts: float
    gets: float


class GroupTraffic(NamedTuple):
    """A consumer group: its members, the messages that it has not consumed, and how many it got by the second."""

    group: str
    members: int
    lag: int
    gets: float


class Traffic(NamedTuple):
    """A broker at one moment; ``puts`` and ``gets`` are totals since the start."""

    clients: int
    puts: int
    gets: int
    topics: list[TopicTraffic]
    groups: list[GroupTraffic]
    seconds: float


class Meter:
    """Looks at a broker from time to time; rates are those since the look before."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._clock = broker.store.setup.clock
        self._started = self._looked = self._clock.monotonic()
        self._puts: Counter[str] = Counter()
        self._gets: Counter[tuple[str, str]] = Counter()

    def look(self) -> Traffic:
        """Return what happens now: topics with messages, and groups with members or progress."""
        broker, now = self._broker, self._clock.monotonic()
        seconds = max(now - self._looked, 1) / _SECOND
        puts, gets = broker.counts.puts.copy(), broker.counts.gets.copy()
        came, went = puts - self._puts, gets - self._gets
        self._puts, self._gets, self._looked = puts, gets, now
        clients = broker.clients
        tables = [*(group.members for group in clients.consumers.values()), *clients.producers.values()]
        return Traffic(
            clients=len({connection for members in tables for connection in members}),
            puts=sum(puts.values()),
            gets=sum(gets.values()),
            topics=self._topics(came, went, seconds),
            groups=self._groups(went, seconds),
            seconds=(now - self._started) / _SECOND,
        )

    def _topics(self, came: Counter[str], went: Counter[tuple[str, str]], seconds: float) -> list[TopicTraffic]:
        broker = self._broker
        own = find_own_names(broker.topics.table)
        by_topic: Counter[str] = Counter()
        for (topic, _), count in went.items():
            by_topic[topic] += count
        found = []
        for topic, config in broker.topics.table.items():
            queues = range(int(config["writeQueueNums"]))
            bounds = [(broker.queues.min_offset(topic, one), broker.queues.max_offset(topic, one)) for one in queues]
            messages = sum(high - low for low, high in bounds)
            is_own = topic_kind(topic, own) is TopicKind.SYSTEM
            if came[topic] or by_topic[topic] or (messages and not is_own):
                rates = came[topic] / seconds, by_topic[topic] / seconds
                found.append(TopicTraffic(topic, len(queues), messages, *rates))
        return sorted(found, key=lambda one: (-one.puts - one.gets, -one.messages, one.topic))

    def _groups(self, went: Counter[tuple[str, str]], seconds: float) -> list[GroupTraffic]:
        broker = self._broker
        by_group: Counter[str] = Counter()
        for (_, group), count in went.items():
            by_group[group] += count
        lags: Counter[str] = Counter()
        for topic, group in broker.offsets.iter_subscriptions():
            for queue_id, offset in broker.offsets.offsets_of(group, topic).items():
                lags[group] += max(broker.queues.max_offset(topic, queue_id) - offset, 0)
        online = broker.clients.consumers
        names = {name for name in {*online, *lags, *by_group} if not is_own_group(name)}
        found = [
            GroupTraffic(name, len(online[name].members) if name in online else 0, lags[name], by_group[name] / seconds)
            for name in names
        ]
        return sorted(found, key=lambda one: (-one.members, -one.lag, one.group))
