"""From what a producer hands over to tickets that can be written: the checks, the rewriting, the encoding.

Upstream: ``DefaultMessageStore.asyncPutMessage`` and ``CommitLog.asyncPutMessage`` (4.9), ``HookUtils`` (5.x). All of
it goes on before the writer's lock is taken. The first check that fails wins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from rmqtool.config import Version
from rmqtool.engine.encoder import Encoder, TopicRules
from rmqtool.engine.late_records import InnerBatchRecord, LateParts, MultiDispatchRecord, inner_count, names_queues
from rmqtool.engine.message import NewMessage
from rmqtool.engine.put_status import PutStatus
from rmqtool.engine.record import Record
from rmqtool.engine.schedule import Destination, delay_level, find_destination
from rmqtool.engine.ticket import PutTicket
from rmqtool.formats.batches import iter_batch_items
from rmqtool.formats.codes import TRANSACTION_MASK, SysFlag, TransactionType
from rmqtool.formats.dispatch import has_queue_unit, parse_delay_levels
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.properties import decode_properties, join_properties

# A message with none of these is stored as it is; one look tells.
MATTERS = frozenset(
    {"WAIT", "DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "INNER_NUM", "INNER_MULTI_DISPATCH"}
)

_NEEDS_A_LOOK = TRANSACTION_MASK | int(SysFlag.INNER_BATCH)


# Messages of so many kinds are known by the names of their properties.
_MOST_KINDS = 4096


@dataclass(slots=True)
class PropertyKind:
    """What the names of a message's properties decide."""

    is_plain: bool
    text: Callable[[Mapping[str, str]], bytes]


class Intake:
    """Makes tickets by the rules of the store's version and settings."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder
        self._config = encoder.config
        self.kinds: dict[tuple[str, ...], PropertyKind] = {}
        self._levels = len(parse_delay_levels(self._config.message_delay_level))
        # Since 5.4 each record of a batch keeps exactly the properties that the client gave it.
        self._joins_batch_properties = self._config.version < Version.V5_4

    def accept(self, message: NewMessage, now: int) -> PutTicket | PutStatus:
        """Return the ticket of ``message``, not yet written, or why it is not stored."""
        encoder = self.encoder
        topic, given = message.topic, message.properties
        rules = encoder.topics.get(topic) or encoder.topic_rules(topic)
        if rules.refusal is not None:
            return rules.refusal
        if message.body is None and not encoder.is_4_9:
            return PutStatus.MESSAGE_ILLEGAL
        text = message.property_text
        if isinstance(given, bytes):
            properties: Mapping[str, str] = decode_properties(given)
            is_plain = MATTERS.isdisjoint(properties)
            text = given if text is None else text
        else:
            properties, names = given, tuple(given)
            kind = self.kinds.get(names) or self.kind_of(names)
            is_plain = kind.is_plain
            if text is None and is_plain:
                bins = message.property_bins
                text = kind.text(given) if bins is None else encoder.text(given, bins)
        if not is_plain or rules.is_batch or text is None or message.sys_flag & _NEEDS_A_LOOK:
            return self._accept_special(message, rules, properties, now)
        queue_id, store_host = message.queue_id, message.store_host or encoder.store_host
        if not encoder.do_numbers_fit(message, queue_id):
            return PutStatus.MESSAGE_ILLEGAL
        record = encoder.encode(message, rules, queue_id, store_host, now, text)
        if isinstance(record, tuple):
            return PutTicket((topic, queue_id), (record,), 1, store_host, now)
        return record

    def kind_of(self, names: tuple[str, ...]) -> PropertyKind:
        """Return what the names of properties decide; messages of one kind share it."""
        if len(self.kinds) >= _MOST_KINDS:
            self.kinds.clear()
        kind = self.kinds[names] = PropertyKind(MATTERS.isdisjoint(names), self.encoder.text_maker(names))
        return kind

    def _accept_special(
        self, message: NewMessage, rules: TopicRules, properties: Mapping[str, str], now: int
    ) -> PutTicket | PutStatus:
        """Accept a message that is delayed, transactional, a batch, or named by further queues."""
        encoder = self.encoder
        count = 1 if has_queue_unit(message.sys_flag) else 0
        is_inner = False
        if not encoder.is_4_9:
            number = inner_count(properties, message.sys_flag, is_batch_topic=rules.is_batch)
            if isinstance(number, PutStatus):
                return number
            is_inner = bool(message.sys_flag & SysFlag.INNER_BATCH)
            count = number if count else 0
        found = self._destination(message, properties, now)
        if isinstance(found, PutStatus):
            return found
        rules = encoder.topic_rules(found.topic)
        store_host = message.store_host or encoder.store_host
        if not encoder.do_numbers_fit(message, found.queue_id):
            return PutStatus.MESSAGE_ILLEGAL
        ticket = PutTicket((found.topic, found.queue_id), (), count, store_host, now)
        ticket.waits = found.properties.get("WAIT", "true").lower() == "true"
        parts = LateParts(encoder, message, rules, found.properties, (found.queue_id, store_host, now))
        if is_inner:
            ticket.late = InnerBatchRecord(parts, ticket.queue)
        elif names_queues(found.topic, found.properties, self._config, is_4_9=encoder.is_4_9):
            ticket.late = MultiDispatchRecord(parts, ticket.queue)
        else:
            text = self._text_of(message, found)
            record = encoder.encode(message, rules, found.queue_id, store_host, now, text)
            if isinstance(record, PutStatus):
                return record
            ticket.records = (record,)
        return ticket

    def _text_of(self, message: NewMessage, found: Destination) -> bytes:
        """Return the property text that is stored; one that came as a text is kept unless the message was moved."""
        given = message.properties if message.property_text is None else message.property_text
        if found.rewritten or not isinstance(given, bytes):
            return self.encoder.text(found.properties, message.property_bins)
        return given

    def _destination(self, message: NewMessage, properties: Mapping[str, str], now: int) -> Destination | PutStatus:
        sent = Destination(message.topic, message.queue_id, properties, False)
        return find_destination(sent, message.sys_flag, self._config, self._levels, now)

    def accept_batch(self, message: NewMessage, now: int) -> PutTicket | PutStatus:
        """Return the ticket of a client's batch: one record for each message in it, back to back."""
        encoder = self.encoder
        rules = encoder.topic_rules(message.topic)
        if rules.refusal is not None:
            return rules.refusal
        properties = message.property_map()
        if message.sys_flag & TRANSACTION_MASK != TransactionType.NONE or delay_level(properties) != 0:
            return PutStatus.MESSAGE_ILLEGAL
        # upstream: an exception.
        if not message.body or len(message.body) > encoder.max_body:
            return PutStatus.MESSAGE_ILLEGAL
        store_host = message.store_host or encoder.store_host
        if not encoder.do_numbers_fit(message, message.queue_id):
            return PutStatus.MESSAGE_ILLEGAL
        shared = b""
        if self._joins_batch_properties:
            given = message.properties
            shared = given if isinstance(given, bytes) else encoder.text(given, message.property_bins)
        records: list[Record] = []
        for item in iter_batch_items(message.body):
            if isinstance(item, Flaw):
                return PutStatus.MESSAGE_ILLEGAL
            text = join_properties(item.raw_properties, shared)
            one = replace(message, body=item.body, flag=item.flag)
            record = encoder.encode(one, rules, message.queue_id, store_host, now, text)
            if isinstance(record, PutStatus):
                return record
            records.append(record)
        if sum(record[0] for record in records) > encoder.largest_record:
            return PutStatus.MESSAGE_ILLEGAL
        ticket = PutTicket((message.topic, message.queue_id), records, len(records), store_host, now)
        ticket.waits = properties.get("WAIT", "true").lower() == "true"
        return ticket
