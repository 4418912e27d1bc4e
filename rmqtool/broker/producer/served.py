"""A producer beside everything else that a broker does: messages for later, transactions, and what is due meanwhile.

Upstream: ``TransactionMQProducer``, ``Message.setDelayTimeLevel``, ``setDelayTimeMs``, ``setDeliverTimeMs``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from typing import Any, NamedTuple

from rmqtool.broker.producer.result import Sent, sent_tickets
from rmqtool.broker.producer.send import ColumnWork, Producer
from rmqtool.broker.saved_text import SavedText
from rmqtool.broker.services.tick import Services, running
from rmqtool.broker.services.transactions import EndRequest, EndStatus, TransactionState
from rmqtool.config import StoreConfig, Version
from rmqtool.engine.message import NewMessage, PutStatus
from rmqtool.engine.put import PutTicket, is_for_later, refused
from rmqtool.engine.store import MessageStore, opened_at
from rmqtool.errors import UsageError
from rmqtool.formats.codes import TransactionType
from rmqtool.formats.commit_log import Message
from rmqtool.formats.dispatch import parse_delay_levels

DEFAULT_GROUP = "DEFAULT_PRODUCER"
# What is due is looked for as often as a broker looks (ms).
_LOOK = 100


class Outcome(StrEnum):
    """What a producer does after each half message; PENDING: nothing, as one that dies."""

    COMMIT = "commit"
    ROLLBACK = "rollback"
    PENDING = "pending"


class Wish(NamedTuple):
    """When messages are to be delivered that do not say it: on a level, after a span, or at a time (ms)."""

    level: int | None = None
    span: int | None = None
    at: int | None = None


def wish_property(wish: Wish, config: StoreConfig) -> tuple[str, str] | None:
    """Return the property that asks for it; 4.9 has nothing but levels."""
    level = wish.level
    if config.version is Version.V4_9:
        levels = parse_delay_levels(config.message_delay_level)
        if wish.at is not None or (wish.span is not None and wish.span not in levels):
            hint = f"--delay LEVEL: 1 to {len(levels)} are {config.message_delay_level}"
            raise UsageError("a broker of 4.9 delays by levels only", hint=hint)
        level = level if wish.span is None else levels.index(wish.span) + 1
    if level is not None:
        return "DELAY", str(level)
    if wish.span is not None:
        return "TIMER_DELAY_MS", str(wish.span)
    return None if wish.at is None else ("TIMER_DELIVER_MS", str(wish.at))


class ServedProducer(Producer):
    """Sends messages, and lets happen what is due. With an ``outcome`` each message is a transaction of ``group``."""

    def __init__(
        self,
        services: Services,
        *,
        creates: bool = False,
        wish: Wish = Wish(),  # noqa: B008  (never changed)
        outcome: Outcome | None = None,
        group: str = DEFAULT_GROUP,
    ) -> None:
        super().__init__(services.store, services.topics, creates=creates)
        self._services = services
        self._wish = wish_property(wish, services.store.setup.config)
        self._outcome = outcome
        self._group = group
        self._next_look: int | None = None
        if outcome in (Outcome.COMMIT, Outcome.ROLLBACK):
            # Whoever is of the group answers for those of it that died.
            services.check.producer = self._answer

    def send(self, messages: Sequence[NewMessage]) -> Sent:
        """Store messages that were checked, in their order, and say what became of each."""
        wished = [self._wished(message) for message in messages]
        sent = super().send(wished) if self._outcome is None else self._send_halves(wished, self._outcome)
        self._look()
        return sent

    @property
    def takes_columns(self) -> bool:
        """Whether messages may come by columns: those that are wished for later, or are transactions, may not."""
        return self._wish is None and self._outcome is None

    def send_incoming(self, incoming: Any, work: ColumnWork) -> Sent | None:
        """Store messages that ``work`` has read; None: they want to be sent one by one."""
        sent = super().send_incoming(incoming, work)
        if sent is not None:
            self._look()
        return sent

    def _look(self) -> None:
        """Let happen what is due, every now and then."""
        now = self._store.setup.clock.monotonic()
        if self._next_look is None or now >= self._next_look:
            self._services.tick()
            self._next_look = now + _LOOK

    def _wished(self, message: NewMessage) -> NewMessage:
        if self._wish is None or is_for_later(message.property_map()):
            return message
        return replace(message, properties={**message.property_map(), self._wish[0]: self._wish[1]})

    def _send_halves(self, messages: Sequence[NewMessage], outcome: Outcome) -> Sent:
        placed = [self._compressed(self._placed(message)) for message in messages]
        keys = [message.property_map().get("UNIQ_KEY") or self._keys.next() for message in placed]
        tickets = [self._send_half(message, key, outcome) for message, key in zip(placed, keys, strict=True)]
        return sent_tickets(keys, tickets)

    def _send_half(self, message: NewMessage, key: str, outcome: Outcome) -> PutTicket:
        """Store a half message and decide it; return the ticket of what everybody sees, else that of the half."""
        properties = {**message.property_map(), "PGROUP": self._group, "TRAN_MSG": "true"}
        sys_flag = message.sys_flag | TransactionType.PREPARED
        received = self._received(replace(message, properties=properties, sys_flag=sys_flag), key)
        transactions = self._services.transactions
        half = transactions.prepare(received)
        if isinstance(half, EndStatus):
            return refused(PutStatus.SERVICE_NOT_AVAILABLE, (message.topic, message.queue_id))
        if not half.is_ok or outcome is Outcome.PENDING:
            return half
        place = half.physical_offset, half.queue_offset
        ended = transactions.end(EndRequest(self._group, *place, TransactionState(outcome.value)))
        return ended.ticket or half

    def _answer(self, half: Message) -> TransactionState:
        is_own = half.properties.get("PGROUP") == self._group and self._outcome is not None
        return TransactionState(self._outcome.value) if is_own and self._outcome else TransactionState.UNKNOWN


@contextmanager
def open_served_producer(
    root: str,
    config: StoreConfig,
    text_of: Callable[[MessageStore, str], SavedText],
    *,
    creates: bool = False,
    wish: Wish = Wish(),  # noqa: B008  (never changed)
    outcome: Outcome | None = None,
    group: str = DEFAULT_GROUP,
) -> Iterator[ServedProducer]:
    """Open the store at ``root`` for a producer; at the end everything is durable, and the services' progress saved."""
    with opened_at(root, config) as store, running(store, lambda name: text_of(store, name)) as services:
        producer = ServedProducer(services, creates=creates, wish=wish, outcome=outcome, group=group)
        yield producer
        services.tick()
