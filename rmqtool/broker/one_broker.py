"""One broker: an open store, and every table that its clients' requests read and change.

Upstream: ``BrokerController``. It has no thread and no socket. The processors answer requests from it, one at a
time. Their caller keeps the connections, runs the services when they are due, and saves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from rmqtool.broker.client_registry import Clients, Peer
from rmqtool.broker.consumer.consume_message import QueueLocks
from rmqtool.broker.consumer.queue_view import OpenQueueView
from rmqtool.broker.offsets import OffsetRequests
from rmqtool.broker.rates import Count, History, Rates, Sample
from rmqtool.broker.services.tick import Services
from rmqtool.engine.health import RunningFlag
from rmqtool.engine.message import Host
from rmqtool.engine.store import MessageStore
from rmqtool.formats.hosts import format_host
from rmqtool.formats.ids import RecallHandle, encode_recall_handle
from rmqtool.formats.java import parse_long
from rmqtool.formats.property_names import REAL_TOPIC, TIMER_OUT_MS, UNIQ_KEY
from rmqtool.formats.topics import PERM_READ, PERM_WRITE, RETRY_PREFIX
from rmqtool.remoting.command import RemotingCommand
from rmqtool.remoting.headers import Request

# After this time (ms) a name server takes a broker for gone. upstream: BROKER_CHANNEL_EXPIRED_TIME
_SLAVE_EXPIRY = 120_000
# Slaves that may be in the routes: any client can register one.
_MOST_SLAVES = 16
_TAKES_NO_PUTS = RunningFlag.NOT_WRITEABLE | RunningFlag.DISK_FULL


class Asked(NamedTuple):
    """A request: the command, its header as a value, who sent it, and from which address."""

    command: RemotingCommand
    header: Request
    peer: Peer
    host: Host

    @property
    def client(self) -> str:
        """The address of the client as upstream's remarks show it."""
        return self.peer.address


@dataclass
class Counts:
    """Counters since the start of the broker."""

    # Calls, messages and bytes, by topic.
    put_calls: Counter[str] = field(default_factory=Counter)
    puts: Counter[str] = field(default_factory=Counter)
    put_bytes: Counter[str] = field(default_factory=Counter)
    # By topic and group.
    get_calls: Counter[tuple[str, str]] = field(default_factory=Counter)
    gets: Counter[tuple[str, str]] = field(default_factory=Counter)
    get_bytes: Counter[tuple[str, str]] = field(default_factory=Counter)
    failed_puts: int = 0


class Broker:
    """The broker of one store. ``address`` is the one that clients dial."""

    def __init__(
        self, store: MessageStore, address: Host, chance: Random | None = None, *, read_only: bool = False
    ) -> None:
        config = store.setup.config
        # Producers and changes of topics are refused; consumers are served as usual.
        self.read_only = read_only
        self.store = store
        self.config = config
        self.version = config.version.value
        self.address = address
        self.chance = chance or Random()  # noqa: S311  (which queue, no secret)
        self.services = Services(store)
        self.topics, self.groups, self.offsets = self.services.topics, self.services.groups, self.services.offsets
        self.queues = OpenQueueView(store)
        self.clients = Clients(store.setup.clock)
        self.locks = QueueLocks(store.setup.clock)
        self.counts = Counts()
        self.rates = Rates()
        self.rates.add(self.sample())
        self.history = History()
        # Where each group pulled last, by (group, topic, queue): tools show what it has pulled and not committed.
        self.pulled: dict[tuple[str, str, int], int] = {}
        # Settings that all clients read: namespace → key → value.
        self.kv_config: dict[str, dict[str, str]] = {}
        # Where slaves copy the log, as a name server tells them; and the slaves that have registered.
        self.ha_address: str | None = None
        self._slaves: dict[int, tuple[str, int]] = {}
        # The copies of the log that are made now: address, acknowledged offset, offset sent. The server sets it.
        self.copies: Callable[[], list[tuple[str, int, int]]] = list
        # Whether a tool took the write bit from routes (wipeWritePerm).
        self.is_wiped = False
        self.started = store.setup.clock.now()

    def add_own(self) -> None:
        """Have the topics and groups that every broker has."""
        self.topics.add_own(self.config)
        self.groups.add_own()

    def offer_all(self) -> None:
        """Let consumers read every queue of the store, also those of topics that the table does not have."""
        counts: dict[str, int] = {}
        for queue in self.store.queues():
            topic, queue_id = queue.key
            counts[topic] = max(counts.get(topic, 0), queue_id + 1)
        for topic, queues in counts.items():
            self.topics.offer(topic, queues)

    def sample(self) -> Sample:
        """Return the totals since the start."""
        now = self.store.setup.clock.now()
        return Sample(now, sum(self.counts.puts.values()), sum(self.counts.gets.values()))

    def iter_counts(self) -> Iterator[Count]:
        """Yield the counters since the start, as brokers name them."""
        counts, cluster = self.counts, self.config.broker_cluster_name
        for topic, calls in counts.put_calls.items():
            yield "TOPIC_PUT_NUMS", topic, calls, counts.puts[topic]
            yield "TOPIC_PUT_SIZE", topic, calls, counts.put_bytes[topic]
        for key, calls in counts.get_calls.items():
            yield "GROUP_GET_NUMS", "@".join(key), calls, counts.gets[key]
            yield "GROUP_GET_SIZE", "@".join(key), calls, counts.get_bytes[key]
        yield "BROKER_PUT_NUMS", cluster, counts.put_calls.total(), counts.puts.total()
        yield "BROKER_GET_NUMS", cluster, counts.get_calls.total(), counts.gets.total()

    @property
    def takes_puts(self) -> bool:
        """Whether the store accepts messages now."""
        condition = self.store.condition()
        return not self.read_only and condition.failure is None and not condition.flags & _TAKES_NO_PUTS

    @property
    def offset_requests(self) -> OffsetRequests:
        """Answers to requests about the progress of groups, with the topics and groups that there are now."""
        return OffsetRequests(self.offsets, self.queues, self.config.version, self.topics.table, self.groups.table)

    def forget_pulls(self, group: str | None, topic: str | None) -> None:
        """Forget where a group pulled last, or all groups; in a topic, or in all."""
        gone = [one for one in self.pulled if group in (None, one[0]) and topic in (None, one[1])]
        for one in gone:
            del self.pulled[one]

    def add_slave(self, broker_id: int, address: str | None) -> bool:
        """Take note that a slave is there, or with None that it is gone; False where there are too many."""
        self._slaves.pop(broker_id, None)
        now = self.store.setup.clock.monotonic()
        if address is None:
            return True
        self._slaves = {known: one for known, one in self._slaves.items() if one[1] > now - _SLAVE_EXPIRY}
        if len(self._slaves) >= _MOST_SLAVES:
            return False
        self._slaves[broker_id] = address, now
        return True

    @property
    def slave_addresses(self) -> dict[int, str]:
        """The addresses of the slaves, by id; those that did not register for two minutes are left out."""
        since = self.store.setup.clock.monotonic() - _SLAVE_EXPIRY
        return {broker_id: address for broker_id, (address, seen) in self._slaves.items() if seen > since}

    def recall_handle(self, physical_offset: int) -> str | None:
        """Return the handle by which a producer recalls the message there; None if it does not wait for a timer."""
        record = self.store.reader.message_at(physical_offset)
        told = {} if record is None else record.properties
        topic, time = told.get(REAL_TOPIC, RETRY_PREFIX), parse_long(told.get(TIMER_OUT_MS, ""))
        if topic.startswith(RETRY_PREFIX) or time is None:
            return None
        # upstream: the time in the record is rounded down.
        return encode_recall_handle(RecallHandle(topic, self.config.broker_name, str(time + 1), told.get(UNIQ_KEY, "")))

    @property
    def shown_address(self) -> str:
        """The address as routes give it."""
        return format_host(*self.address)

    @property
    def permission(self) -> int:
        """The permissions in routes now: without the write bit while the store accepts no messages."""
        return self.config.broker_permission & (
            PERM_READ | PERM_WRITE if self.takes_puts and not self.is_wiped else PERM_READ
        )

    def refusal_of_puts(self) -> str:
        """Say why the store takes no messages."""
        condition = self.store.condition()
        if condition.failure is not None:
            return str(condition.failure)
        return self.store.full_disk() or "the store does not accept messages now"
