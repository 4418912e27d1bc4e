"""The lines that a broker logs while it starts, as the templates in its source."""

from __future__ import annotations

import re

_NUMBER = re.compile(r"-?[0-9]+")

# Templates without arguments: numbers are part of the text and are shown as '#'.
AUTO_DELETE = "{} size is #, auto delete. is_ok: {}"
LOAD_EXCEPTION = "load exception"
HA_SERVICE = "Load default HA Service: {}"
TRANSITION_FAILED = "MessageStoreState transition from {} to {} failed; Time in previous state={}ms, Total time={}ms"
FILES_DELETED = "The commitlog files are deleted, and delete the consume queue files"
TRUNCATE_LOGIC = "maxPhyOffsetOfConsumeQueue({}) >= processOffset({}), truncate dirty logic files"
ILLEGAL_MAGIC = "found a illegal magic code 0x"
ILLEGAL_MAGIC_5_4 = "found a illegal magic code #x{}"
CRC_FAILED = "CRC check failed. bodyCRC={}, currentCRC={}"
COUNT_NOT_EQUAL = (
    "[BUG]read total count not equals msg total size. totalSize={}, readTotalCount={}, bodyLen={}, topicLen={}, "
    "propertiesLength={}"
)
CHECK_FAILED = "checkMessageAndReturnSize failed, may can not dispatch"
HALF_MESSAGE = "found a half message at {}, it will be truncated."
DUP_INFO_FAILED = "DupInfo in properties check failed. dupInfo={}"
PROPERTY_CRC_FAILED = "CommitLog#checkAndDispatchMessage: failed to check message CRC, expected CRC={}, actual CRC={}"
PROPERTY_CRC_MISSING = "CommitLog#checkAndDispatchMessage: failed to check message CRC, not found CRC in properties"
POSITION_INVALID = "selectMappedBuffer request pos invalid, request pos: #, size: #, fileFromOffset: #"
BUILT_BEFORE = "Maybe try to build consume queue repeatedly maxPhysicOffset={} phyOffset={}"
BUILT_REPEATEDLY = (
    "Build consume queue repeatedly, expectLogicOffset: {} currentLogicOffset: {} Topic: {} QID: {} Diff: {}"
)
BUILT_REPEATEDLY_4_9 = BUILT_REPEATEDLY.replace("Build consume", "Build  consume")
CREATE_EXCEPTION = "create mappedFile exception"
QUEUE_CAN_NOT_WRITE = "[BUG]consume queue can not write, {} {}"
CORRECT_MIN_NOTHING = "[Bug] Failed to scan consume queue entries from file on correcting min offset: {}"
CORRECT_MIN_BEYOND = "[Bug][InconsistentState] ConsumeQueue file {} should have been deleted"
DELAY_OFFSET_INVALID = "schedule CQ offset invalid. offset={}, cqMinOffset={}, cqMaxOffset={}, queueId={}"
DELAY_OFFSET_CORRECTED = "correct delay offset [ delayLevel {} ] from {} to {}"
INDEX_OVER_CAPACITY = "Over index file capacity: index count = #; index max num = #"
INDEX_FULL = "Index file [$STORE/index/#] is full, trying to create another one"
INDEX_LOAD_ERROR = "load file {} error"


def length_not_matched(path: str) -> str:
    """Return the template for a file of the wrong length. Its path and length are part of the text."""
    text = f"$STORE/{path}\t# length not matched message store config value, please check it manually"
    return _NUMBER.sub("#", text)


def create_failed(path: str) -> str:
    """Return the template for a file that cannot be created."""
    return _NUMBER.sub("#", f"Failed to create file $STORE/{path}")


def put_failed(topic: str) -> str:
    """Return the template for a queue entry that could not be written."""
    return _NUMBER.sub("#", f"[BUG]put commit log position info to {topic}:# # failed, retry # times")


def illegal_magic(magic: int) -> str:
    """Return the template for a magic number, which 4.9 and 5.3 put into the text."""
    return _NUMBER.sub("#", f"{ILLEGAL_MAGIC}{magic:x}")


class BrokerLog:
    """The templates of one start's warnings and errors, once each, in the order of their first appearance."""

    def __init__(self) -> None:
        self.templates: list[str] = []
        self._known: set[str] = set()
        self._open = True

    def warn(self, template: str) -> None:
        """Log one line."""
        if self._open and template not in self._known:
            self._known.add(template)
            self.templates.append(template)

    def has(self, template: str) -> bool:
        """Return whether the template was logged."""
        return template in self._known

    def close(self) -> None:
        """Ignore further lines: load() has ended."""
        self._open = False
