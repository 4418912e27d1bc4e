"""A consumer group opened at live brokers, or at the server of a store: what ``store_group`` is for files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rmqtool.errors import ReadFailed, UsageError

if TYPE_CHECKING:
    from rmqtool.api.store import Place
    from rmqtool.broker.consumer.group import Asked
    from rmqtool.broker.consumer.rebalance import Change
    from rmqtool.broker.consumer.windows import Delivered
    from rmqtool.client.cluster import Cluster as Connections
    from rmqtool.client.group_consumer import RemoteConsumer
    from rmqtool.client.member import Membership
    from rmqtool.remoting.bodies.broker import SubscriptionGroupConfig
    from rmqtool.store.listing import QueueId


@dataclass
class Joined:
    """A group whose members are among those of other clients."""

    asked: Asked
    consumer: RemoteConsumer
    where: str
    retries: int
    # Errors of queues that cannot be read: a broker says so when they are pulled from.
    unread: tuple[ReadFailed, ...] = ()
    absent: tuple[QueueId, ...] = ()

    @property
    def client_ids(self) -> tuple[str, ...]:
        """The ids of the members."""
        return self.consumer.client_ids

    def wait(self) -> list[Change]:
        """Return which queues moved. New messages are waited for when they are fetched."""
        return self.consumer.take_changes()

    def outcome(self, delivered: Delivered) -> str:
        """Return what happens to a message that failed, in words."""
        if not self.asked.keeps or (self.asked.orderly and self.retries < 0):
            return "the message is not consumed"
        if delivered.cached.reconsume_times >= self.retries:
            return "too many retries: it goes to the dead-letter topic"
        return "it will be delivered again"


def refuse_files_only(asked: Asked) -> None:
    """Refuse what needs the files of a store, or no other members."""
    if asked.broadcasting:
        raise UsageError("--broadcast is for a store in files", hint="leave it out, or give the store's directory")
    if asked.keeps and asked.queue_id is not None:
        raise UsageError(
            "-q with --commit: the members of a group share all queues of a topic, and cannot choose one",
            hint="leave out -q; without --commit it shows one queue",
        )


@contextmanager
def join_group(place: Place, where: str, asked: Asked, *, follows: bool) -> Iterator[Joined]:
    """Give a group of members that have not joined yet; at the end each commits and leaves."""
    from rmqtool.api.cluster import opened_cluster
    from rmqtool.client.group_consumer import RemoteConsumer

    with opened_cluster(place) as cluster:
        membership, retries = cluster.run(membership_of(cluster.connections, asked, follows=follows))
        consumer = RemoteConsumer(cluster.face, cluster.open_connections, membership, asked.members, joins=asked.keeps)
        try:
            yield Joined(asked, consumer, where, retries)
        finally:
            consumer.close()


async def membership_of(connections: Connections, asked: Asked, *, follows: bool) -> tuple[Membership, int]:
    """Return what the members want, and how often a message of the group is delivered again."""
    from rmqtool.broker.consumer.group import Known, subscribe
    from rmqtool.broker.consumer.windows import Consumption
    from rmqtool.client import admin
    from rmqtool.client.member import Membership
    from rmqtool.config import StoreConfig, Version
    from rmqtool.formats.topics import retry_topic

    topics = await admin.find_topics(connections)
    groups = await admin.group_tables(connections)
    progressed = [] if asked.topics.patterns else await admin.find_progressed(connections)
    tables = {topic: {"readQueueNums": 1} for topic in topics}
    retry = retry_topic(asked.group)
    if asked.keeps and not asked.broadcasting:
        # The broker makes it when the first member comes.
        tables.setdefault(retry, {"readQueueNums": 1})
    config = StoreConfig.default(Version.V5_4)
    subscriptions = subscribe(asked, Known(tables, (), progressed, config))
    settings = next((table[asked.group] for table in groups.values() if asked.group in table), None)
    _refuse_disabled(asked.group, settings)
    retries = _retries(settings)
    selector = asked.wanted.selector
    wanted = ("TAG", asked.wanted.tags.text) if selector is None else ("SQL92", selector.text)
    how = Consumption(
        group=asked.group,
        version=config.version,
        subscriptions=subscriptions,
        orderly=asked.orderly,
        broadcasting=asked.broadcasting,
        drops_failed=asked.broadcasting or not asked.keeps,
        max_reconsume_times=retries,
    )
    expressions = {topic: ("TAG", "*") if topic == retry else wanted for topic in subscriptions}
    found = Membership(how=how, start=asked.start, expressions=expressions, waits=follows, queue_id=asked.queue_id)
    return found, retries


def _refuse_disabled(group: str, settings: SubscriptionGroupConfig | None) -> None:
    from rmqtool.broker.groups import refuse_disabled

    if settings is not None:
        refuse_disabled(group, {"consumeEnable": settings.consume_enable is not False})


def _retries(settings: SubscriptionGroupConfig | None) -> int:
    """Return how often a message is delivered again: the setting of the group, else a new group's."""
    from rmqtool.formats.config_shapes import SUBSCRIPTION_GROUP_CONFIG

    known = None if settings is None else settings.retry_max_times
    return int(SUBSCRIPTION_GROUP_CONFIG.fields["retryMaxTimes"].default) if known is None else known
