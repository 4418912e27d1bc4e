"""What a broker answers about the progress of a group: ask, commit, go back.

Upstream: ``ConsumerManageProcessor``, ``Broker2Client.resetOffset`` (4.9), ``AdminBrokerProcessor.resetOffsetInner``
(5.x).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from rmqtool.broker.offsets import NOT_FOUND, ConsumerOffsets
from rmqtool.broker.queue_view import QueueView, Residence
from rmqtool.config import Version
from rmqtool.formats.response_codes import ResponseCode
from rmqtool.formats.versions import is_since

# Of a reset: to the end of each queue instead of to a time.
TO_THE_END = -1


@dataclass(frozen=True)
class ResetAnswer:
    """What came of a reset: the new offset of each queue, or why there is none."""

    code: ResponseCode
    offsets: dict[int, int] = field(default_factory=dict)
    remark: str | None = None


class OffsetRequests:
    """The requests of one broker. ``topics`` and ``groups`` are those it knows; 5.x refuses others."""

    def __init__(
        self,
        offsets: ConsumerOffsets,
        queues: QueueView,
        version: Version,
        topics: Collection[str],
        groups: Collection[str],
    ) -> None:
        self._offsets = offsets
        self.queues = queues
        self._is_5 = is_since(version, "5.0.0")
        self._topics = topics
        self._groups = groups

    def query(self, group: str, topic: str, queue_id: int, *, zero_if_not_found: bool = True) -> int | None:
        """Return where a group goes on; None (QUERY_NOT_FOUND) when its own policy is to decide.

        A new group starts at 0, whatever its policy, as long as the queue's first message is in memory.
        ``zero_if_not_found`` is what a 5.x client may forbid.
        """
        stored = self._offsets.query_offset(group, topic, queue_id)
        if stored >= 0:
            return stored
        if self.queues.min_offset(topic, queue_id) > 0:
            return None
        residence = self.queues.residence(topic, queue_id, 0)
        if self._is_5:
            return 0 if zero_if_not_found and residence is Residence.MEMORY else None
        return None if residence is Residence.DISK else 0

    def update(self, group: str, topic: str, queue_id: int | None, offset: int | None) -> ResponseCode:
        """Take a consumer's commit; while a reset waits for its next pull, say so and leave it at that."""
        if self._is_5:
            unknown = self._unknown(group, topic)
            if unknown is not None:
                return unknown
        if queue_id is None or offset is None:
            return ResponseCode.INVALID_PARAMETER if self._is_5 else ResponseCode.SYSTEM_ERROR
        if not self._offsets.has_pending_reset(group, topic, queue_id):
            self._offsets.commit_offset(group, topic, queue_id, offset)
        return ResponseCode.SUCCESS

    def _unknown(self, group: str, topic: str) -> ResponseCode | None:
        if group not in self._groups:
            return ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        return None if topic in self._topics else ResponseCode.TOPIC_NOT_EXIST

    def reset_online(
        self, group: str, topic: str, queue_ids: Iterable[int], timestamp: int, *, force: bool, is_online: bool
    ) -> ResetAnswer:
        """Return the offsets that a 4.9 broker pushes to the group's consumers, who then set them themselves.

        Without ``force`` no queue goes forward.
        """
        found = {}
        for queue_id in queue_ids:
            current = self._offsets.query_offset(group, topic, queue_id)
            if current == NOT_FOUND:
                return ResetAnswer(ResponseCode.SYSTEM_ERROR, remark=f"the consumer group {group} does not exist")
            target = self._target(topic, queue_id, timestamp)
            found[queue_id] = target if force or target < current else current
        if not is_online:
            return ResetAnswer(ResponseCode.CONSUMER_NOT_ONLINE, remark=f"no consumer of {group} is online")
        return ResetAnswer(ResponseCode.SUCCESS, found)

    def reset(
        self, group: str, topic: str, queue_ids: Collection[int], *, timestamp: int = TO_THE_END, to: int | None = None
    ) -> ResetAnswer:
        """Set the offsets as 5.x does, whether anybody consumes or not: to an offset of one queue, or by time."""
        if topic not in self._topics:
            return ResetAnswer(ResponseCode.TOPIC_NOT_EXIST, remark=f"topic {topic} does not exist")
        if group not in self._groups:
            return ResetAnswer(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark=f"group {group} does not exist")
        found = {}
        for queue_id in queue_ids:
            if to is None:
                found[queue_id] = self._target(topic, queue_id, timestamp)
                continue
            least, greatest = self.queues.min_offset(topic, queue_id), self.queues.max_offset(topic, queue_id) + 1
            if len(queue_ids) != 1 or not least <= to <= greatest:
                remark = f"{to} is not an offset of one queue from {least} to {greatest}"
                return ResetAnswer(ResponseCode.SYSTEM_ERROR, remark=remark)
            found[queue_id] = to
        for queue_id, offset in found.items():
            self._offsets.reset_offset(group, topic, queue_id, offset)
        return ResetAnswer(ResponseCode.SUCCESS, found)

    def _target(self, topic: str, queue_id: int, timestamp: int) -> int:
        if timestamp < 0:
            return self.queues.max_offset(topic, queue_id)
        return max(0, self.queues.offset_by_time(topic, queue_id, timestamp))
