"""What a broker does to a message that a client sends, before it stores it.

Upstream: ``SendMessageProcessor``. It adds where the message came in, from 5.0 on a unique key where there is none, and
4.9 does not store whether the sender waits.
"""

from __future__ import annotations

from dataclasses import replace

from rmqtool.config import StoreConfig, Version
from rmqtool.engine.message import NewMessage
from rmqtool.engine.record import property_text
from rmqtool.formats.properties import BUILT_BINS

_WAIT = "WAIT"


def broker_properties(config: StoreConfig) -> dict[str, str]:
    """Return what the broker of ``config`` adds to every message that has a unique key, in its order."""
    if config.version is Version.V4_9:
        return {"CLUSTER": config.broker_cluster_name}
    return {
        "MSG_REGION": config.region_id,
        "TRACE_ON": str(config.trace_on).lower(),
        "CLUSTER": config.broker_cluster_name,
    }


def as_received(message: NewMessage, config: StoreConfig, uniq_key: str) -> NewMessage:
    """Return a client's message as the broker of ``config`` puts it; ``uniq_key`` is for one that has none."""
    properties = dict(message.property_map())
    if config.version is Version.V4_9:
        properties |= broker_properties(config)
        stored = {name: value for name, value in properties.items() if name != _WAIT}
        text = property_text(stored, BUILT_BINS, terminated=False)
        return replace(message, properties=properties, property_text=text)
    properties.setdefault("UNIQ_KEY", uniq_key)
    properties |= broker_properties(config)
    return replace(message, properties=properties)
