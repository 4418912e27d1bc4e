"""All services of one open store, and their saved progress.

Nothing runs by itself. ``iter_due`` delivers what the clock says, one message at a time, and ``save`` writes down the
progress. Progress is saved only after its messages are durable: after an interruption messages may be delivered twice,
but none is lost. upstream: the services that BrokerController starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rmqtool.broker.groups import SubscriptionGroups
from rmqtool.broker.offsets import ConsumerOffsets, SaveSchedule, progress_file
from rmqtool.broker.services.delay import AT_ONCE, DelayService
from rmqtool.broker.services.events import Happened, Service
from rmqtool.broker.services.ordered_pops import OrderedPops
from rmqtool.broker.services.pop import Pops, Revival
from rmqtool.broker.services.retry import Retries
from rmqtool.broker.services.timers import Timers
from rmqtool.broker.services.transactions import TransactionCheck, Transactions
from rmqtool.broker.topics import TopicConfigs
from rmqtool.config import StoreConfig
from rmqtool.engine.store import MessageStore, opened_at
from rmqtool.errors import WriteFailed
from rmqtool.formats import paths
from rmqtool.store.config_files import config_text


class Services:
    """The services of one store.

    ``offsets`` is the progress of groups if the caller has it open already: there must be only one of it.
    """

    def __init__(self, store: MessageStore, offsets: ConsumerOffsets | None = None) -> None:
        config, clock, files = store.setup.config, store.setup.clock, store.setup.files
        self.store = store
        self.offsets = offsets or ConsumerOffsets(
            config_text(files, progress_file(enable_lmq=config.enable_lmq)),
            config.version,
            clock,
            enable_lmq=config.enable_lmq,
        )
        self.topics = TopicConfigs(config_text(files, paths.TOPICS), config.version, clock)
        self.groups = SubscriptionGroups(config_text(files, paths.SUBSCRIPTION_GROUP), config, clock)
        self.delay = DelayService(store, config_text(files, paths.DELAY_OFFSET))
        self.timers = Timers(store)
        self.retry = Retries(store, self.topics, self.groups)
        self.transactions = Transactions(store)
        self.check = TransactionCheck(store, self.offsets, self.topics, self.transactions)
        order = config_text(files, paths.CONSUMER_ORDER_INFO)
        self.pops = Pops(store, self.offsets, OrderedPops(order, config.version.value, clock.now))
        self.revival = Revival(store, self.offsets, self.topics, self.pops)
        self._schedule = SaveSchedule(clock)

    def iter_due(self, at_once: int = AT_ONCE) -> Iterator[Happened]:
        """Run every service; yield one event for each message. ``iter_expired`` removes files, this does not."""
        self.store.dispatch_now()
        yield from self.delay.iter_due(at_once)
        self.store.dispatch_now()
        yield from self.timers.iter_due()
        yield from self.check.iter_due()
        self.store.dispatch_now()
        yield from self.revival.iter_due()
        self.store.dispatch_now()

    def iter_expired(self) -> Iterator[Happened]:
        """Remove what a broker would remove now, because it is old or the disk is full.

        Yield one event for each kind.
        """
        removed = self.store.clean_now()
        if removed.files:
            yield Happened(Service.RETENTION, "expired", about=removed.as_json())
        yield from self.timers.iter_clean()

    def tick(self) -> list[Happened]:
        """Run every service, and save progress if it is time to."""
        happened = list(self.iter_due())
        self.store.tick()
        if self._schedule.is_due():
            self.save()
        return happened

    def waiting(self) -> dict[str, dict[str, int | None]]:
        """Return the number of waiting messages of each service, and when the next one is due."""
        self.store.dispatch_now()
        return {
            Service.DELAY.value: {"count": self.delay.waiting(), "nextDue": self.delay.next_due()},
            Service.TIMER.value: {"count": self.timers.waiting(), "nextDue": self.timers.next_due()},
            Service.TRANSACTION.value: {"count": self.check.waiting(), "nextDue": self.check.next_due()},
            Service.POP.value: {"count": self.revival.waiting(), "nextDue": self.revival.next_due()},
        }

    def save(self) -> None:
        """Save the progress of all services, after making its messages durable."""
        self.transactions.write_ops(at_once=True)
        if not self.store.flush_now():
            raise WriteFailed(
                "delivered messages are not flushed to disk, so the position was not saved",
                hint="they will be delivered again; check the store: rmqtool check STORE",
            )
        self.delay.save()
        self.timers.save()
        self.offsets.save()
        self.topics.save_changed()
        self.groups.save_changed()
        self.pops.ordered.save()

    def unsaved(self) -> list[Callable[[], object]]:
        """Return what writes down how far everything is now, once all that was put by now is durable.

        Another thread may do it: what it writes was made here.
        """
        tables = (self.delay, self.offsets, self.topics, self.groups, self.pops.ordered)
        return [write for table in tables if (write := table.unsaved()) is not None]

    def close(self) -> None:
        """Close the files without saving."""
        self.timers.close()


@contextmanager
def running(store: MessageStore, offsets: ConsumerOffsets | None = None) -> Iterator[Services]:
    """Give the services of a store, and save their progress at the end, even after an error of the caller."""
    services = Services(store, offsets)
    try:
        yield services
    finally:
        try:
            if store.condition().failure is None:
                services.save()
        finally:
            services.close()


@contextmanager
def serving(root: str, config: StoreConfig) -> Iterator[Services]:
    """Open the store at ``root`` under its lock, and save the progress of its services at the end."""
    with (
        opened_at(root, config) as store,
        running(store) as services,
    ):
        yield services
