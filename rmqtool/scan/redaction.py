"""Messages with a part of them left out, or with another broker's address: each is encoded anew, its place aside."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rmqtool.bulk.records import Records, decode_records
from rmqtool.errors import UsageError
from rmqtool.formats.codes import COMPRESSION_MASK, SysFlag
from rmqtool.formats.commit_log import Message, decode_record, encode_message, record_size
from rmqtool.formats.hosts import IPV6_LENGTH
from rmqtool.formats.java import encode_text
from rmqtool.formats.layouts import MessageRecord
from rmqtool.formats.properties import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR, is_reserved
from rmqtool.formats.topics import CHECK_MAX_TIME_TOPIC, TopicKind, topic_kind
from rmqtool.scan.belonging import WAITING

Host = tuple[bytes, int]

_SEPARATOR = PROPERTY_SEPARATOR.encode("ascii")
_NAME_END = NAME_VALUE_SEPARATOR.encode("ascii")
# Reserved names that a message does without: clients look at them, brokers need none.
_FREE = frozenset({"KEYS", "TAGS", "UNIQ_KEY", "BUYER_ID", "CORRELATION_ID", "INSTANCE_ID"})
BODY = "body"
# Topics of a broker in which messages of clients lie.
_OF_CLIENTS = (*WAITING, CHECK_MAX_TIME_TOPIC)


@dataclass(frozen=True)
class Redaction:
    """What every message loses: its body, some properties; and the address of the broker that stored it.

    What a broker keeps for itself loses nothing but the address: without it the broker could not go on.
    """

    body: bool = False
    properties: frozenset[bytes] = frozenset()
    store_host: Host | None = None

    @classmethod
    def of(cls, words: tuple[str, ...], store_host: Host | None) -> Redaction:
        """Return the redaction of ``--redact``: the word ``body``, or names of properties."""
        for word in words:
            if word != BODY and is_reserved(word) and word not in _FREE:
                raise UsageError(f"--redact {word}: a broker needs this property", hint="body, KEYS, TAGS, or your own")
        named = frozenset(encode_text(word) for word in words if word != BODY)
        return cls(BODY in words, named, store_host)

    def apply(self, records: Records) -> Records:
        """Return the records as they are wanted, in a buffer of their own."""
        if not self.body and not self.properties and self.store_host is None:
            return records
        topics = records.topics
        own = topics.each(lambda topic: topic_kind(topic) is TopicKind.SYSTEM and topic not in _OF_CLIENTS, np.bool_)
        parts = list(self._encoded(records, own.tolist()))
        sizes = np.fromiter(map(len, parts), np.int64, len(parts))
        made, declined = decode_records(b"".join(parts), np.cumsum(sizes) - sizes)
        assert declined is None, f"what was encoded is no record: {declined}"
        return made

    def _encoded(self, records: Records, own: list[bool]) -> Iterator[bytes]:
        data = records.data.data
        for at, is_own in zip(records.file_offsets.tolist(), own, strict=True):
            message = decode_record(data, at)
            assert isinstance(message, Message), f"the columns hold whole messages only, not {message}"
            yield encode_message(self._changed(message, is_own=is_own))

    def _changed(self, message: Message, *, is_own: bool) -> MessageRecord:
        flags, body, crc, text = message.sys_flag, message.raw_body, message.body_crc, message.raw_properties
        if self.body and not is_own:
            body, crc, flags = b"", 0, flags & ~(COMPRESSION_MASK | int(SysFlag.COMPRESSED))
        if self.properties and not is_own:
            pairs = text.split(_SEPARATOR)
            text = _SEPARATOR.join(pair for pair in pairs if pair.split(_NAME_END, 1)[0] not in self.properties)
        address, port = self.store_host or (message.store_host_ip, message.store_host_port)
        flags = flags & ~int(SysFlag.STORE_HOST_V6) | (int(SysFlag.STORE_HOST_V6) if len(address) == IPV6_LENGTH else 0)
        return message._replace(
            total_size=record_size(flags, message.magic, len(body), len(message.raw_topic), len(text)),
            sys_flag=flags,
            body_crc=crc,
            body_length=len(body),
            raw_body=body,
            raw_properties=text,
            store_host_ip=address,
            store_host_port=port,
        )
