"""What a producer hands to the store.

Upstream: ``MessageExtBrokerInner``. The properties come as a mapping, whose text the engine makes as a broker of the
store's version would, or as a text that is stored as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from rmqtool.formats.codes import BodyCodec
from rmqtool.formats.compression import compress_body, compression_flag
from rmqtool.formats.properties import decode_properties

Host: TypeAlias = tuple[bytes, int]

# Clients compress a body from this size on.
COMPRESS_OVER = 4096


@dataclass(slots=True)
class NewMessage:
    """A message on its way into the store; a batch, whose ``body`` is the client's encoding of its messages.

    ``properties`` decide what happens to the message. ``property_text`` is what is stored of them, where that differs:
    brokers deliver a delayed message with the text that still asks for the delay. ``property_bins`` says which hash
    map the text comes from, where that is not the usual one of the version: 16 bins for a map filled by put-property
    calls, 128 for one that a 5.x broker got by decoding a text.
    ``born_timestamp`` and the hosts left out are now and the broker's own address: what it makes itself.
    """

    topic: str
    body: bytes | None
    queue_id: int = 0
    properties: Mapping[str, str] | bytes = b""
    flag: int = 0
    sys_flag: int = 0
    born_timestamp: int | None = None
    born_host: Host | None = None
    store_host: Host | None = None
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    property_bins: int | None = None
    property_text: bytes | None = None

    def property_map(self) -> Mapping[str, str]:
        """Return the properties as a mapping."""
        return decode_properties(self.properties) if isinstance(self.properties, bytes) else self.properties


def compressed(message: NewMessage, codec: BodyCodec, over: int = COMPRESS_OVER) -> NewMessage:
    """Return ``message`` as a client of that codec sends it: with its body compressed if it is that large."""
    if message.body is None or len(message.body) < over:
        return message
    body = compress_body(codec, message.body)
    return replace(message, body=body, sys_flag=message.sys_flag | compression_flag(codec))
