"""StoreConfig: every upstream setting that is honoured, its default by version, and where its value came from."""

from __future__ import annotations

from rmqtool.config.properties import decode_properties, encode_properties
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
