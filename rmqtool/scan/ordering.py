"""Messages in another order than the log's: by queue, by store time, or some of them taken at random.

The log is read once for the keys of the wanted messages, which are sorted, on disk when they are many; then the
messages are read in the order of the keys. Damage and notes come behind the messages.
"""

from __future__ import annotations

from enum import StrEnum


class Order(StrEnum):
    """The words of ``--order``."""

    LOG = "log"
    QUEUE = "queue"
    TIME = "time"
