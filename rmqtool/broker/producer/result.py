"""The results of messages that were sent together, as columns, and their JSON lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from json.encoder import encode_basestring
from operator import itemgetter
from types import MappingProxyType
from typing import Any, NamedTuple

from rmqtool.engine.commit_log import Placed
from rmqtool.engine.message import Host, NewMessage, PutStatus
from rmqtool.engine.put import PutTicket
from rmqtool.engine.put_columns import PutColumns
from rmqtool.errors import RmqtoolError
from rmqtool.formats.ids import encode_offset_msg_id

FIELDS = (
    "status",
    "msgId",
    "offsetMsgId",
    "topic",
    "queueId",
    "queueOffset",
    "commitLogOffset",
    "storeTimestamp",
)
_LINE = (
    '{"status": "%s", "msgId": %s, "offsetMsgId": "%s", "topic": %s, "queueId": %d, "queueOffset": %d, '
    '"commitLogOffset": %d, "storeTimestamp": %s}\n'
)

_LATER = ', "realTopic": %s, "deliverTimestamp": %d}\n'

# A broker that is reached over the network does not tell when it stored a message.
Row = tuple[str, str, str, str, int, int, int, int | None]


_STATUSES = frozenset(PutStatus)


class Later(NamedTuple):
    """A message that waits: its topic, and when it is due (ms)."""

    topic: str
    due: int


class Sent:
    """The results in the order of the messages, and the numbers of those that are not in the store.

    ``refused`` messages are not acceptable, ``failed`` ones could not be stored. If all were stored there can be
    ``lines`` instead of rows: the number of messages, and their results as JSON lines. The row of ``one`` message, its
    unique key and where it is, is made when it is read: its ids take as long as the write. upstream: the msgIdSupplier
    of AppendMessageResult.
    """

    # Members of the class until they are set: most results of one message need none of them.
    lines: tuple[int, bytes] | None = None
    refused = failed = 0
    # Delayed messages by row.
    later: Mapping[int, Later] = MappingProxyType({})
    # Why some of them failed, where their statuses do not say it.
    error: RmqtoolError | None = None
    _rows: Sequence[Row] = ()

    def __init__(self, rows: Sequence[Row] | None, one: tuple[str, Placed] | None = None) -> None:
        self._one = one
        if rows is not None:
            self._rows = rows

    def __len__(self) -> int:
        if self._one is not None:
            return 1
        return len(self._rows) if self.lines is None else self.lines[0]

    @property
    def rows(self) -> Sequence[Row]:
        """One row for each message; none where there are ``lines``."""
        if self._one is not None:
            key, (status, queue, queue_offset, place, stored_at, host) = self._one
            msg_id = encode_offset_msg_id(*host, place) if place >= 0 else ""
            self._rows, self._one = [(status.value, key, msg_id, *queue, queue_offset, place, stored_at)], None
        return self._rows

    @rows.setter
    def rows(self, rows: Sequence[Row]) -> None:
        self._rows, self._one = rows, None

    @property
    def stored(self) -> int:
        """The number of stored messages."""
        if self._one is not None:
            return 1 - self.refused - self.failed
        return len(self) - self.refused - self.failed

    def reasons(self, *, about_message: bool) -> str:
        """Return how many messages were refused, or failed, and why."""
        statuses = Counter(map(itemgetter(0), self.rows))
        found = [(PutStatus(status), count) for status, count in statuses.items() if status != PutStatus.PUT_OK]
        return "; ".join(
            f"{count} × {one}: {one.reason}" for one, count in found if one.is_about_message is about_message
        )

    def slave_reasons(self) -> set[tuple[str, str]]:
        """Return the statuses about slaves, and what they mean."""
        found = {PutStatus(row[0]) for row in self.rows if row[0] in _STATUSES}
        return {(one.value, one.reason) for one in found if one.is_about_slave}

    def objects(self) -> Iterator[dict[str, Any]]:
        """Yield the results as JSON objects."""
        for number, row in enumerate(self.rows):
            waiting = self.later.get(number)
            more = {} if waiting is None else {"realTopic": waiting.topic, "deliverTimestamp": waiting.due}
            yield dict(zip(FIELDS, row, strict=True)) | more

    def json_lines(self) -> bytes:
        """Return the results as JSON lines."""
        if self.lines is not None:
            return self.lines[1]
        topics = {topic: encode_basestring(topic) for topic in {row[3] for row in self.rows}}
        spell = encode_basestring
        lines = [
            _LINE % (row[0], spell(row[1]), row[2], topics[row[3]], *row[4:7], "null" if row[7] is None else row[7])
            for row in self.rows
        ]
        for number, waiting in self.later.items():
            lines[number] = lines[number][: -len("}\n")] + _LATER % (spell(waiting.topic), waiting.due)
        return "".join(lines).encode()


def join_sent(parts: Iterable[Sent]) -> Sent:
    """Return the results of several sends as one."""
    whole = Sent([])
    rows: list[Row] = []
    for part in parts:
        whole.later = {**whole.later, **{len(rows) + number: waiting for number, waiting in part.later.items()}}
        rows += part.rows
        whole.refused += part.refused
        whole.failed += part.failed
        whole.error = whole.error or part.error
    whole.rows = rows
    return whole


def sent_tickets(keys: Sequence[str], tickets: Iterable[PutTicket]) -> Sent:
    """Return the results of messages that were stored one by one."""
    sent = Sent([])
    rows: list[Row] = []
    for key, ticket in zip(keys, tickets, strict=True):
        rows.append(_row(key, ticket))
        _count(sent, ticket.status or PutStatus.UNKNOWN_ERROR)
    sent.rows = rows
    return sent


def sent_one(key: str, placed: Placed) -> Sent:
    """Return the result of one message."""
    sent = Sent(None, (key, placed))
    _count(sent, placed[0])
    return sent


def _row(key: str, ticket: PutTicket) -> Row:
    status = ticket.status or PutStatus.UNKNOWN_ERROR
    place = ticket.queue_offset, ticket.physical_offset, ticket.store_timestamp
    return (status.value, key, ticket.offset_msg_id, ticket.topic, ticket.queue_id, *place)


def sent_columns(keys: Sequence[str], messages: Sequence[NewMessage], put: PutColumns, host: Host) -> Sent:
    """Return the results of messages that were stored by columns."""
    sent = Sent([])
    prefix, stored_at = encode_offset_msg_id(*host, 0)[:-16], put.store_timestamp
    offsets = zip(put.queue_offsets.tolist(), put.physical_offsets.tolist(), strict=True)
    rows: list[Row] = [
        ("PUT_OK", key, f"{prefix}{place:016X}", message.topic, message.queue_id, offset, place, stored_at)
        for key, message, (offset, place) in zip(keys, messages, offsets, strict=True)
    ]
    for number, status in put.refused.items():
        if status is PutStatus.FLUSH_DISK_TIMEOUT:
            rows[number] = (status.value, *rows[number][1:])
        else:
            message = messages[number]
            rows[number] = (status.value, keys[number], "", message.topic, message.queue_id, -1, -1, 0)
        _count(sent, status)
    sent.rows = rows
    return sent


def sent_batch(keys: Sequence[str], ticket: PutTicket) -> Sent:
    """Return the results of a client's batch, which are the same for all its messages."""
    sent, status = Sent([]), ticket.status or PutStatus.UNKNOWN_ERROR
    # A single message has an offset of its own, without a list.
    offsets = ticket.record_offsets or [ticket.physical_offset] * len(keys)
    ids = ticket.offset_msg_id.split(",") if offsets[0] >= 0 else [""] * len(keys)
    rows: list[Row] = []
    for number, (key, msg_id, place) in enumerate(zip(keys, ids, offsets, strict=True)):
        queue_offset = ticket.queue_offset + number if place >= 0 else -1
        row = (status.value, key, msg_id, ticket.topic, ticket.queue_id, queue_offset, place, ticket.store_timestamp)
        rows.append(row)
        _count(sent, status)
    sent.rows = rows
    return sent


def _count(sent: Sent, status: PutStatus) -> None:
    if status is not PutStatus.PUT_OK:
        sent.refused += status.is_about_message
        sent.failed += not status.is_about_message
