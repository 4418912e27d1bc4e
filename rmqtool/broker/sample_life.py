"""Sample data for a new store: orders with keys and tags, a delay, transactions, a dead letter."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rmqtool.broker.producer.lines import message_of
from rmqtool.broker.producer.result import Sent
from rmqtool.broker.producer.send import Producer
from rmqtool.broker.services.tick import Services
from rmqtool.broker.services.transactions import EndRequest, EndStatus, TransactionState
from rmqtool.engine.message import NewMessage
from rmqtool.errors import WriteFailed
from rmqtool.formats.codes import TransactionType
from rmqtool.formats.property_names import KEYS, PGROUP, UNIQ_KEY, WAIT

ORDERS, PAYMENTS, REMINDERS = "Orders", "Payments", "Reminders"
SHIPPING, PAYMENT_SERVICE = "shipping", "payment-service"
FIRST_ORDER = 4700
_LOOK = "check the store: rmqtool check STORE"
_TAGS = ("open", "paid", "sent")
_QUEUES = 4
# Level 1 is one second, level 16 half an hour: one reminder is delivered at once, the other one waits.
_SHORT, _LONG = 1, 16


def live(services: Services, orders: int) -> None:
    """Store ``orders`` messages, of which the group has read the older half, and one of each other kind."""
    services.topics.create(PAYMENTS, readQueueNums=1, writeQueueNums=1)
    producer = Producer(services.store, services.topics, creates=True, turn=0)
    sent = _send(producer, [_order(number) for number in range(orders)])
    reminders = ((_SHORT, "pay order-4701"), (_LONG, "rate order-4702"))
    _send(producer, [{"topic": REMINDERS, "body": body, "delayLevel": level} for level, body in reminders])
    _pay(services, "order-4701", decide=True)
    _pay(services, "order-4703", decide=False)
    services.store.dispatch_now()
    place = [*sent.objects()][orders // 3]["commitLogOffset"]
    given_up = services.store.reader.message_at(place)
    if given_up is None:
        raise WriteFailed("an order that was stored is missing", hint=_LOOK)
    services.retry.send_back(SHIPPING, given_up, delay_level=-1)
    for queue_id in range(_QUEUES):
        end = services.store.reader.bounds(ORDERS, queue_id).max_offset
        services.offsets.commit_offset(SHIPPING, ORDERS, queue_id, end // 2)


def _send(producer: Producer, objects: Iterable[dict[str, Any]]) -> Sent:
    messages = [message_of(fields) for fields in objects]
    for message in messages:
        producer.check(message)
    return producer.send(messages)


def _order(number: int) -> dict[str, Any]:
    return {
        "topic": ORDERS,
        "queueId": number % _QUEUES,
        "keys": f"order-{FIRST_ORDER + number}",
        "tags": _TAGS[number % len(_TAGS)],
        "properties": {"country": ("DE", "CN", "FR")[number % 3]},
        "body": f'{{"order": {FIRST_ORDER + number}, "tea": {number % 7 + 1}}}',
    }


def _pay(services: Services, key: str, *, decide: bool) -> None:
    """Store a payment as a half message, and commit it or leave it open."""
    properties = {PGROUP: PAYMENT_SERVICE, KEYS: key, UNIQ_KEY: f"{key}-payment", WAIT: "true"}
    message = NewMessage(PAYMENTS, b'{"paid": true}', 0, properties, 0, int(TransactionType.PREPARED))
    ticket = services.transactions.prepare(message)
    if isinstance(ticket, EndStatus) or ticket.physical_offset is None:
        raise WriteFailed("a payment could not be prepared", hint=_LOOK)
    services.store.dispatch_now()
    if decide:
        place = (ticket.physical_offset, ticket.queue_offset)
        services.transactions.end(EndRequest(PAYMENT_SERVICE, *place, TransactionState.COMMIT))
