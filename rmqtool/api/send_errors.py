"""The errors of a live cluster that programs catch by name. They are loaded when they are asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqtool.client.connection import NotSent, RequestRefused
    from rmqtool.client.producer import SendUnknown
    from rmqtool.client.request_reply import NoReply

__all__ = ["NoReply", "NotSent", "RequestRefused", "SendUnknown"]

_PLACES = {
    "NoReply": "rmqtool.client.request_reply",
    "NotSent": "rmqtool.client.connection",
    "RequestRefused": "rmqtool.client.connection",
    "SendUnknown": "rmqtool.client.producer",
}


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)
