"""The requests, by what they are about, and the one table of them.

Importing this package declares them all; a process that only passes frames on need not.
"""

from __future__ import annotations

from rmqtool.remoting.headers import REQUESTS
from rmqtool.remoting.requests import (
    access,
    broker,
    clients,
    groups,
    messages,
    names,
    offsets,
    pop,
    topics,
)

__all__ = ["REQUESTS", "access", "broker", "clients", "groups", "messages", "names", "offsets", "pop", "topics"]
