"""Settings: every setting of upstream that rmqtool honours, its default by version, and where its value came from.

A *setting* is a key of ``broker.conf`` that is in the table of ``settings``; every other key is *unknown* and kept as
it is. The *origin* of a value is the place that set it. A *version* is a broker release line whose defaults and rules
apply: 4.9, 5.3 or 5.4.
"""

from __future__ import annotations

from rmqtool.config.broker_conf import decode_properties, encode_properties
from rmqtool.config.settings import SETTINGS, BrokerRole, FlushDiskType, Origin, Setting, Version
from rmqtool.config.store_config import StoreConfig, is_secret

__all__ = [
    "SETTINGS",
    "BrokerRole",
    "FlushDiskType",
    "Origin",
    "Setting",
    "StoreConfig",
    "Version",
    "decode_properties",
    "encode_properties",
    "is_secret",
]
