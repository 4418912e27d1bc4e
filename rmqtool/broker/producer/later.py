"""A producer of delayed messages and transactions.

upstream: TransactionMQProducer, Message.setDelayTimeLevel, setDelayTimeMs, setDeliverTimeMs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from typing import NamedTuple

from rmqtool.broker.groups import SubscriptionGroups
from rmqtool.broker.producer.result import Sent, sent_tickets
from rmqtool.broker.producer.send import Producer
from rmqtool.broker.services.transactions import EndRequest, EndStatus, Transactions, TransactionState
from rmqtool.broker.topics import TopicConfigs
from rmqtool.config import StoreConfig, Version
from rmqtool.engine.message import NewMessage, PutStatus
from rmqtool.engine.put import PutTicket, is_for_later, refused
from rmqtool.engine.store import MessageStore, opened_at
from rmqtool.errors import Refused, UsageError
from rmqtool.formats.codes import TransactionType
from rmqtool.formats.paths import SUBSCRIPTION_GROUP, TOPICS
from rmqtool.formats.property_names import DELAY, PGROUP, TIMER_DELAY_MS, TIMER_DELIVER_MS, TRAN_MSG, UNIQ_KEY
from rmqtool.formats.topics import parse_delay_levels
from rmqtool.store.config_files import config_text

DEFAULT_GROUP = "DEFAULT_PRODUCER"


class Outcome(StrEnum):
    """The producer's decision after each half message; PENDING makes no decision, as if the producer had died."""

    COMMIT = "commit"
    ROLLBACK = "rollback"
    PENDING = "pending"


class Wish(NamedTuple):
    """The delivery of messages that do not ask for one themselves: by level, after a span, or at a time (ms)."""

    level: int | None = None
    span: int | None = None
    at: int | None = None


def wish_property(wish: Wish, config: StoreConfig) -> tuple[str, str] | None:
    """Return the property that asks for it; 4.9 has only levels."""
    level = wish.level
    if config.version is Version.V4_9:
        levels = parse_delay_levels(config.message_delay_level)
        if wish.at is not None or (wish.span is not None and wish.span not in levels):
            hint = f"--delay LEVEL: 1 to {len(levels)} are {config.message_delay_level}"
            raise UsageError("a 4.9 broker delays only by levels", hint=hint)
        level = level if wish.span is None else levels.index(wish.span) + 1
    if level is not None:
        return DELAY, str(level)
    if wish.span is not None:
        return TIMER_DELAY_MS, str(wish.span)
    return None if wish.at is None else (TIMER_DELIVER_MS, str(wish.at))


class LaterProducer(Producer):
    """Sends messages with a delivery wish. With an ``outcome`` each message is a transaction of ``group``."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicConfigs,
        groups: SubscriptionGroups,
        *,
        creates: bool = False,
        wish: Wish = Wish(),  # noqa: B008  (never changed)
        outcome: Outcome | None = None,
        group: str = DEFAULT_GROUP,
    ) -> None:
        super().__init__(store, topics, groups, creates=creates)
        self._wish = wish_property(wish, self._config)
        self._outcome = outcome
        self._group = group
        self._transactions = Transactions(store)
        if outcome is not None and self._config.reject_transaction_message:
            raise Refused(
                "this broker rejects transactions: its rejectTransactionMessage is true (NO_PERMISSION)",
                hint="--conf rejectTransactionMessage=false accepts them",
            )

    def send(self, messages: Sequence[NewMessage]) -> Sent:
        """Store checked messages in order, and return their results."""
        wished = [self._wished(message) for message in messages]
        return super().send(wished) if self._outcome is None else self._send_halves(wished, self._outcome)

    @property
    def takes_columns(self) -> bool:
        """Whether messages may come as columns. Delayed messages and transactions may not."""
        return super().takes_columns and self._wish is None and self._outcome is None

    def finish(self) -> None:
        """Write the op records of all decisions."""
        self._transactions.write_ops(at_once=True)

    def _wished(self, message: NewMessage) -> NewMessage:
        if self._wish is None or is_for_later(message.property_map()):
            return message
        return message.with_properties({**message.property_map(), self._wish[0]: self._wish[1]})

    def _send_halves(self, messages: Sequence[NewMessage], outcome: Outcome) -> Sent:
        placed = [self._compressed(self._placed(message)) for message in messages]
        keys = [message.property_map().get(UNIQ_KEY) or self._keys.next() for message in placed]
        tickets = [self._send_half(message, key, outcome) for message, key in zip(placed, keys, strict=True)]
        return self._done(sent_tickets(keys, tickets))

    def _send_half(self, message: NewMessage, key: str, outcome: Outcome) -> PutTicket:
        """Store a half message and decide it; return the ticket of the committed message, else of the half message."""
        properties = {**message.property_map(), PGROUP: self._group, TRAN_MSG: "true"}
        sys_flag = message.sys_flag | TransactionType.PREPARED
        received = self._received(replace(message, properties=properties, sys_flag=sys_flag), key)
        half = self._transactions.prepare(received)
        if isinstance(half, EndStatus):
            return refused(PutStatus.SERVICE_NOT_AVAILABLE, (message.topic, message.queue_id))
        if not half.is_ok or outcome is Outcome.PENDING:
            return half
        place = half.physical_offset, half.queue_offset
        ended = self._transactions.end(EndRequest(self._group, *place, TransactionState(outcome.value)))
        return ended.ticket or half


@contextmanager
def open_later_producer(
    root: str,
    config: StoreConfig,
    *,
    creates: bool = False,
    wish: Wish = Wish(),  # noqa: B008  (never changed)
    outcome: Outcome | None = None,
    group: str = DEFAULT_GROUP,
) -> Iterator[Producer]:
    """Open the store at ``root`` for a producer; at the end everything is durable, including queues and index."""
    with opened_at(root, config) as store:
        clock = store.setup.clock
        topics = TopicConfigs(config_text(store.setup.files, TOPICS), config.version, clock)
        groups = SubscriptionGroups(config_text(store.setup.files, SUBSCRIPTION_GROUP), config, clock)
        if wish == Wish() and outcome is None:
            yield Producer(store, topics, groups, creates=creates)
            return
        later = LaterProducer(store, topics, groups, creates=creates, wish=wish, outcome=outcome, group=group)
        try:
            yield later
        finally:
            later.finish()
