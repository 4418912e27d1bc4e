"""What a broker answers to a request. Upstream: ``ResponseCode``, ``RemotingSysResponseCode``."""

from __future__ import annotations

from enum import IntEnum


class ResponseCode(IntEnum):
    """The answers that consumers and producers act upon."""

    SUCCESS = 0
    SYSTEM_ERROR = 1
    SYSTEM_BUSY = 2
    SERVICE_NOT_AVAILABLE = 14
    NO_PERMISSION = 16
    TOPIC_NOT_EXIST = 17
    QUERY_NOT_FOUND = 22
    SUBSCRIPTION_GROUP_NOT_EXIST = 26
    INVALID_PARAMETER = 29
    NO_BUYER_ID = 204
    NOT_IN_CURRENT_UNIT = 205
    CONSUMER_NOT_ONLINE = 206
    GO_AWAY = 1500
