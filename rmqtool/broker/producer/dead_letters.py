"""Sends dead letters back to the topic that their group received them from.

A broker keeps that topic in RETRY_TOPIC. It does not keep the queue. The message is sent as its producer sent it: with
its body, flag, keys, tags and own properties, without those that brokers and clients added on the way, and with no
failed delivery counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rmqtool.broker.producer.lines import Bad, Wanted
from rmqtool.engine.message import NewMessage
from rmqtool.errors import StoreError, UsageError
from rmqtool.formats.property_names import (
    BUYER_ID,
    CORRELATION_ID,
    DLQ_ORIGIN_TOPIC,
    INSTANCE_ID,
    KEYS,
    MSG_TYPE,
    PRIORITY,
    REPLY_TO_CLIENT,
    RETRY_TOPIC,
    SHARDING_KEY,
    TAGS,
    TRACE_CONTEXT,
    TTL,
    UNIQ_KEY,
    is_reserved,
)
from rmqtool.formats.topics import dlq_topic, original_topic

# Reserved properties that the producer set.
_SENT = frozenset(
    {
        *(KEYS, TAGS, SHARDING_KEY, BUYER_ID, INSTANCE_ID, PRIORITY, TRACE_CONTEXT),
        *(CORRELATION_ID, REPLY_TO_CLIENT, TTL, MSG_TYPE),
        # Kept if ids are kept.
        UNIQ_KEY,
    }
)
_SKIP = "--on-error skip leaves it out and continues"
_MEMBERS = ("body", "bodyEncoding", "flag", "tags", "keys")


@dataclass(frozen=True, slots=True)
class Replay(Wanted):
    """The dead letters of a ``group`` as new messages."""

    group: str = ""

    @property
    def dead_letter_topic(self) -> str:
        """The dead-letter topic of the group."""
        return dlq_topic(self.group)

    def message_of(self, value: object) -> NewMessage:
        """Return the message that a dead letter, a Message object, was. Raise UsageError if it is not one."""
        letter = value if isinstance(value, dict) else {}
        if letter.get("topic") != self.dead_letter_topic:
            topic = letter.get("topic")
            named = f"its topic is {topic}" if isinstance(topic, str) else "it has no topic"
            hint = f"take them with: rmqtool cat STORE -t '{self.dead_letter_topic}' --jsonl"
            raise UsageError(f"not a dead letter of {self.group}: {named}", hint=hint)
        if letter.get("bodyLength", 0) is None:
            raise UsageError("the stored body cannot be inflated", hint=_SKIP)
        given = letter.get("properties")
        properties = given if isinstance(given, dict) else {}
        sent = {name: letter[name] for name in _MEMBERS if letter.get(name) is not None}
        sent["topic"] = self._origin(properties)
        sent["properties"] = {name: one for name, one in properties.items() if name in _SENT or not is_reserved(name)}
        return Wanted.message_of(self, sent)

    def _origin(self, properties: Mapping[str, Any]) -> str:
        origin = properties.get(RETRY_TOPIC) or properties.get(DLQ_ORIGIN_TOPIC)
        if not isinstance(origin, str):
            hint = "send it with --jsonl -t TOPIC instead of --replay"
            raise UsageError(f"the topic that it came from is unknown: it has no property {RETRY_TOPIC}", hint=hint)
        # POP's retry topics have the topic in their names.
        return original_topic(origin, self.group)

    def iter_messages(self, letters: Iterable[Mapping[str, Any]]) -> Iterator[NewMessage | Bad]:
        """Yield the messages of a dead-letter topic that is read, and what of it cannot be sent again."""
        for number, letter in enumerate(letters, 1):
            try:
                if "damage" in letter:
                    where = {name: letter["damage"][name] for name in ("file", "offset")}
                    why = f"a part of the log cannot be read: {letter['damage']['message']}"
                    raise StoreError(why, **where, hint=_SKIP)
                yield self.message_of(letter)
            except StoreError as error:
                yield Bad(number, error)
            except UsageError as error:
                place = f"dead letter {letter.get('queueOffset')}"
                yield Bad(number, UsageError(f"{place}: {error.message}", hint=error.hint))
