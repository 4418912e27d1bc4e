"""``consume --pop`` at live brokers, or at the server of a store: what ``pop`` is for files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rmqtool.errors import NotFound, RemoteError

if TYPE_CHECKING:
    from rmqtool.api.cluster import Cluster
    from rmqtool.api.consume import Consuming, How
    from rmqtool.api.store import Place
    from rmqtool.broker.consumer.group import Asked
    from rmqtool.broker.services.pop import Popped
    from rmqtool.client.member import Membership
    from rmqtool.client.popped_messages import Wanted
    from rmqtool.engine.interrupts import Stop


def pops_of(membership: Membership, invisible: int) -> tuple[list[str], Wanted]:
    """Return the topics that a group pops, and how: messages are hidden for ``invisible`` ms."""
    from rmqtool.broker.consumer.subscription import ConsumeFromWhere
    from rmqtool.client.popped_messages import Wanted
    from rmqtool.filters.tags import parse_tags
    from rmqtool.formats.topics import retry_topic

    group = membership.how.group
    # A failed message comes back with the topic that it was popped from.
    expressions = {topic: found for topic, found in membership.expressions.items() if topic != retry_topic(group)}
    expression = next(iter(expressions.values()), ("TAG", "*"))
    at_end = membership.start.where is not ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    tags = parse_tags(expression[1] if expression[0] == "TAG" else None)
    return sorted(expressions), Wanted(group, expression, tags, invisible, at_end)


class RemotePops:
    """The pops of a group at live brokers, for ``consume --pop``: what ``api.pop`` does with the files of a store."""

    def __init__(self, cluster: Cluster, topics: list[str], wanted: Wanted, retries: int) -> None:
        from rmqtool.client.popped_messages import Pops

        self._cluster, self._topics, self._retries = cluster, topics, retries
        self._pops = Pops(cluster.connections, wanted)

    def iter_once(self, most: int) -> Iterator[tuple[str, list[Popped]]]:
        """Yield what each broker has of each topic."""
        for topic in self._topics:
            for broker in self._cluster.run(self._pops.brokers(topic)):
                popped = self._cluster.run(self._pops.pop(topic, broker, most))
                if popped:
                    most -= len(popped)
                    yield topic, popped
                if most <= 0:
                    return

    def left(self) -> int:
        """Return how many messages the brokers said were left."""
        return sum(self._pops.left.values())

    def settle(self, topic: str, one: Popped, *, is_ok: bool) -> str | None:
        """Ack a consumed message. One that failed too often becomes a dead letter; others come back.

        Returns why a broker did not take that.
        """
        from rmqtool.broker.services.pop import fate_of

        try:
            self._cluster.run(self._pops.settle(topic, one, fate_of(one.record, self._retries, is_ok=is_ok)))
        except (NotFound, RemoteError) as error:
            return error.message
        return None

    def save(self) -> None:
        """Leave it to the brokers."""


@contextmanager
def popping_at(place: Place, asked: Asked, how: How, stop: Stop) -> Iterator[Consuming]:
    """Pop messages for a group at live brokers. A new group begins at the first message, as it does in files."""
    from rmqtool.api.cluster import opened_cluster
    from rmqtool.api.pop import hidden_for, refuse_others, run_pops
    from rmqtool.api.remote_group import membership_of

    refuse_others(how)
    if not asked.topics.patterns:
        raise NotFound("missing topic for --pop", hint="name one with -t; rmqtool topic STORE list")
    with opened_cluster(place) as cluster:
        membership, retries = cluster.run(membership_of(cluster.connections, asked, follows=False))
        topics, wanted = pops_of(membership, hidden_for(how))
        queue_id = -1 if asked.queue_id is None else asked.queue_id
        pops = RemotePops(cluster, topics, wanted._replace(at_end=False, queue_id=queue_id), retries)
        yield run_pops(pops, asked.group, how, stop)
