"""A client's checks of a message, its unique keys, and the answers after which it tries again.

Compression is ``engine.message.compressed``. upstream: Validators, MessageClientIDSetter, MessageBatch,
DefaultMQProducerImpl.sendDefaultImpl.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rmqtool.config import Version
from rmqtool.engine.clock import Clock
from rmqtool.formats.codes import is_since
from rmqtool.formats.ids import UniqKey, encode_uniq_key, uniq_key_span
from rmqtool.formats.java import INT_MAX, int32
from rmqtool.formats.property_names import DELAY, WAIT
from rmqtool.formats.response_codes import ResponseCode
from rmqtool.formats.topics import RETRY_PREFIX, check_topic_name, is_allowed_to_send

MAX_MESSAGE_SIZE = 4 << 20
# Tries of a synchronous send, and the time (ms) for all of them.
SEND_ATTEMPTS, SEND_TIMEOUT = 3, 3_000

_RETRIED = frozenset(
    {
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.NO_PERMISSION,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
    }
)
_RETRIED_SINCE_5 = frozenset({ResponseCode.SYSTEM_BUSY, ResponseCode.GO_AWAY})


def is_retried(code: ResponseCode, version: Version) -> bool:
    """Return whether a producer tries another broker after this answer."""
    return code in _RETRIED or (code in _RETRIED_SINCE_5 and is_since(version, "5.0.0"))


_COUNTER_DIGITS = 4
_MINUTE = 60_000
# Keys of one millisecond differ only in the counter, which has four hexadecimal digits.
MOST_KEYS = 1 << 4 * _COUNTER_DIGITS


@dataclass
class Outgoing:
    """A message as the user gave it."""

    topic: str
    body: bytes
    properties: dict[str, str] = field(default_factory=dict)


def check_message(message: Outgoing, version: Version, max_size: int = MAX_MESSAGE_SIZE) -> str | None:
    """Return why a client refuses to send a message, None if it does not."""
    refusal = check_topic_name(message.topic, version)
    if refusal is not None:
        return refusal
    if not is_allowed_to_send(message.topic, version):
        return f"topic {message.topic} is the broker's own, and clients cannot send to it"
    return check_body(message.body, max_size)


def check_body(body: bytes | None, max_size: int = INT_MAX) -> str | None:
    """Return why a client refuses to send a body, None if it does not."""
    if not body:
        return "a message needs a body"
    if len(body) > max_size:
        return f"body of {len(body)} bytes, at most {max_size} are allowed"
    return None


def check_batch(messages: Sequence[Outgoing]) -> str | None:
    """Return why messages cannot be sent as one batch, None if they can."""
    if not messages:
        return "a batch needs a message"
    first = messages[0]
    if first.topic.startswith(RETRY_PREFIX):
        return f"retry topic {first.topic} does not take batches"
    for message in messages:
        if _is_delayed(message):
            return "a message with a delay level cannot go in a batch"
        if message.topic != first.topic:
            return f"a batch has one topic, not {first.topic} and {message.topic}"
        if _waits(message) != _waits(first):
            return "all messages of a batch must have the same WAIT property"
    return None


def _is_delayed(message: Outgoing) -> bool:
    try:
        return int(message.properties.get(DELAY, "0")) > 0
    except ValueError:
        # A client does not send a delay level that it cannot parse.
        return True


def _waits(message: Outgoing) -> bool:
    return message.properties.get(WAIT, "true").lower() == "true"


class UniqKeys:
    """The unique keys of one producer's messages: a time, and a counter within the millisecond."""

    def __init__(self, address: bytes, pid: int, loader_hash: int, clock: Clock) -> None:
        self._maker = UniqKey(address, pid & 0xFFFF, int32(loader_hash), 0, 0)
        self._clock = clock
        self._counter = 0
        # The time of the last key, and the beginning of all keys of that time.
        self._now, self._prefix = -1, ""
        # In each time zone months begin at a full minute, so the zone is asked once a minute: (minute, month's
        # beginning).
        self._month = (-1, 0)

    def next(self) -> str:
        """Return the key of the next message. It is kept through all tries to send it."""
        return self.take(1)[0]

    def take(self, count: int) -> list[str]:
        """Return the keys of the next messages, at most ``MOST_KEYS``."""
        now = self._clock.now()
        if now != self._now:
            minute, month_start = self._month
            if now // _MINUTE != minute:
                month_start = now - (uniq_key_span(now, self._clock.zone) or 0)
                self._month = now // _MINUTE, month_start
            key = encode_uniq_key(self._maker._replace(month_span=(now - month_start) & 0xFFFFFFFF))
            self._now, self._prefix = now, key[:-_COUNTER_DIGITS]
        first, prefix = self._counter, self._prefix
        self._counter = (first + count) % MOST_KEYS
        return [f"{prefix}{number % MOST_KEYS:04X}" for number in range(first, first + count)]
