"""What became of a put: every answer a store can give, as a value.

Upstream: ``PutMessageStatus``, ``AppendMessageResult``. Answers that only replication, a proxy or a remote broker give
do not occur here.
"""

from __future__ import annotations

from enum import StrEnum

from rmqtool.config import Version


class PutStatus(StrEnum):
    """Upstream's names, in 5.x's spelling."""

    PUT_OK = "PUT_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    SERVICE_NOT_AVAILABLE = "SERVICE_NOT_AVAILABLE"
    CREATE_MAPPED_FILE_FAILED = "CREATE_MAPPED_FILE_FAILED"
    MESSAGE_ILLEGAL = "MESSAGE_ILLEGAL"
    PROPERTIES_SIZE_EXCEEDED = "PROPERTIES_SIZE_EXCEEDED"
    OS_PAGE_CACHE_BUSY = "OS_PAGE_CACHE_BUSY"
    UNKNOWN_ERROR = "UNKNOWN_ERROR"
    WHEEL_TIMER_MSG_ILLEGAL = "WHEEL_TIMER_MSG_ILLEGAL"
    WHEEL_TIMER_NOT_ENABLE = "WHEEL_TIMER_NOT_ENABLE"

    @property
    def is_stored(self) -> bool:
        """Whether the message is in the log for certain."""
        return self in (PutStatus.PUT_OK, PutStatus.FLUSH_DISK_TIMEOUT)

    @property
    def is_about_message(self) -> bool:
        """Whether the message itself is not acceptable: another one would have been stored."""
        return self in _ABOUT_MESSAGE

    @property
    def reason(self) -> str:
        """What may be wrong where a message is not stored for certain."""
        return _REASONS[self]

    def spelled_by(self, version: Version) -> str:
        """Return the name as a broker of ``version`` spells it."""
        return _SPELLED_BY_4_9.get(self, self.value) if version is Version.V4_9 else self.value


_ABOUT_MESSAGE = frozenset(
    {
        PutStatus.MESSAGE_ILLEGAL,
        PutStatus.PROPERTIES_SIZE_EXCEEDED,
        PutStatus.WHEEL_TIMER_MSG_ILLEGAL,
        PutStatus.WHEEL_TIMER_NOT_ENABLE,
    }
)
_REASONS = {
    PutStatus.FLUSH_DISK_TIMEOUT: "they are written, but not known to be on the disk",
    PutStatus.SERVICE_NOT_AVAILABLE: "the store takes nothing more",
    PutStatus.CREATE_MAPPED_FILE_FAILED: "there is no room for the next file of the log",
    PutStatus.OS_PAGE_CACHE_BUSY: "too much waits to be written",
    PutStatus.UNKNOWN_ERROR: "a write failed",
    PutStatus.MESSAGE_ILLEGAL: "its body is above maxMessageSize, or its topic or properties are too long",
    PutStatus.PROPERTIES_SIZE_EXCEEDED: "its properties take more than 32767 bytes",
    PutStatus.WHEEL_TIMER_MSG_ILLEGAL: "its time is further ahead than timerMaxDelaySec",
    PutStatus.WHEEL_TIMER_NOT_ENABLE: "it has a time, and timerWheelEnable is false",
}
_SPELLED_BY_4_9 = {
    PutStatus.CREATE_MAPPED_FILE_FAILED: "CREATE_MAPEDFILE_FAILED",
    PutStatus.OS_PAGE_CACHE_BUSY: "OS_PAGECACHE_BUSY",
}
