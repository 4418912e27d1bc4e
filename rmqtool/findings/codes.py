"""The table of finding codes: everything that ``check`` can report, with the texts that all findings of a code share.

The message of one finding is written where it is found; ``render.findings`` makes the lines of a screen.

A broker's log lines are templates: ``{}`` is a value that the broker fills in. Where brokers of different versions
differ, each version has its own line. Codes are never renamed, because scripts depend on them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Severity(StrEnum):
    """How bad a finding is: messages are lost or unreadable, may be, or nothing is wrong but worth knowing."""

    ERROR = "error"
    WARNING = "warning"
    NOTICE = "notice"


class CodeEntry(NamedTuple):
    """The registered texts of one code.

    People read ``meaning``, ``consequence`` and ``fix``; ``fix`` may contain ``{store}``. ``broker_lines`` are lines of
    a broker's own log about the problem. ``brokers`` says for each version what a broker does about it: versions, after
    a comma the condition if there is one, then what it does in the third person.
    """

    code: str
    severity: Severity
    meaning: str
    consequence: str | None = None
    fix: str | None = None
    broker_lines: tuple[str, ...] = ()
    brokers: tuple[str, ...] = ()

    @property
    def family(self) -> str:
        """The two letters before the dash, a key of ``FAMILIES``."""
        return self.code.partition("-")[0]


FAMILIES: dict[str, str] = {
    "CL": "commit log",
    "CQ": "consume queues",
    "IX": "index files",
    "CP": "checkpoint",
    "ST": "the store as a whole",
    "CF": "configuration",
    "OF": "consumer offsets",
    "TM": "timers",
    "TX": "transactions",
    "PO": "pop consumption",
    "DL": "DLedger",
    "CM": "compaction",
    "RX": "RocksDB",
    "TI": "tiered storage",
    "BD": "bodies",
}

_ERROR, _WARNING, _NOTICE = Severity.ERROR, Severity.WARNING, Severity.NOTICE

_STAYS = "none; the time cannot be restored (rmqtool recover {store} shows what a start would do)"
_PUT_BACK = "restore the file from a backup, then run check again"
# A fix begins with the plan, as "Next" does: only the plan tells what a repair would change, and which permission it
# needs.
_PLAN = "rmqtool repair {store}"
_TIMERS = "rmqtool repair {store} timers"
SALVAGE = "rmqtool copy {store} {store}.new --salvage"
_LOST = "none; the original value cannot be restored (rmqtool cat shows the message as it is now)"
_KEEP = "rmqtool cat {store} --jsonl > messages.jsonl"

_MOUNT_TIER = "mount the volume of the tier, or name it by --conf: tieredStoreFilePath=DIR, brokerName=NAME"
_TIER_BACKUP = "restore the tier from a backup (repair does not change it), then run check again"

_CUT = (
    "the lost bytes cannot be restored; a repair makes readers skip them. A broker that reads this place at its start "
    "also deletes all messages after it: see rmqtool recover"
)
_FROM_THERE = "deletes everything from their first bad record on"
_CUTS = (
    f"4.9, 5.3, after a crash: reads only the log files since the checkpoint, and {_FROM_THERE}",
    f"5.4, after a crash: reads at most the last 10 log files, and {_FROM_THERE}",
    f"4.9, after a clean stop: reads only the last 3 log files, and {_FROM_THERE}",
    "5.3, 5.4, after a clean stop: reads only the last log file, and deletes everything from its first bad record on",
)
_REFUSED = "a broker refuses to start"
_SIZE_REFUSED = "a broker refuses to start; 5.x deletes a last file that is empty, and starts"

_ENTRIES: tuple[CodeEntry, ...] = (
    CodeEntry(
        "CL-NAME",
        _ERROR,
        "A segment of the commit log has a name that is not the offset of its first byte, or overlaps another segment.",
        "a broker reads the segment as another part of the log, or refuses to start",
        _PLAN,
        (
            "{} length not matched message store config value, please check it manually",
            "load exception (NumberFormatException)",
        ),
        (
            "all: refuses to start if the name is not a number; trusts a wrong number, and misreads the records",
            "all: deletes a file whose number is past the end of the log",
        ),
    ),
    CodeEntry(
        "CL-SIZE",
        _ERROR,
        "A segment of the commit log has a different size from the others, or from the settings.",
        _SIZE_REFUSED,
        _PLAN,
        (
            "{} length not matched message store config value, please check it manually",
            "{} size is 0, auto delete. is_ok: {}  (5.x, an empty last file)",
        ),
        ("4.9: refuses to start", "5.3, 5.4: deletes an empty last file, refuses to start for any other"),
    ),
    CodeEntry(
        "CL-GAP",
        _ERROR,
        "A segment of the commit log is missing between two others.",
        "its messages are lost; queue entries point into the gap and consumers skip it",
        SALVAGE,
        (
            "[BUG]The mappedFile queue's data is damaged, the adjacent mappedFile's offset don't match. "
            "pre file {}, cur file {}  (5.x)",
            "Offset not matched. Request offset: {}, firstOffset: {}, lastOffset: {}",
        ),
        ("4.9: starts without a warning", "5.3, 5.4: writes one line to its log, then starts"),
    ),
    CodeEntry(
        "CL-MAGIC",
        _ERROR,
        "The bytes at a record boundary do not start with a record magic.",
        _CUT,
        _PLAN,
        ("found a illegal magic code 0x{}",),
        _CUTS,
    ),
    CodeEntry(
        "CL-LEN",
        _ERROR,
        "The lengths inside a record do not add up to its size, or the size is impossible.",
        _CUT,
        _PLAN,
        (
            "[BUG]read total count not equals msg total size. totalSize={}, readTotalCount={}, bodyLen={}, "
            "topicLen={}, propertiesLength={}",
            "found a half message at {}, it will be truncated.  (5.x)",
        ),
        (*_CUTS, "4.9: allocates a huge size before checking it; the start dies with an OutOfMemoryError"),
    ),
    CodeEntry(
        "CL-CRC",
        _ERROR,
        "A checksum does not match the bytes of the record: that of the body, or that of the whole record.",
        _CUT,
        _PLAN,
        ("CRC check failed. bodyCRC={}, currentCRC={}  (the two values are printed swapped)",),
        _CUTS,
    ),
    CodeEntry(
        "CL-PHY",
        _ERROR,
        "A record names a physical offset other than its own: a misdirected or repeated write.",
        "brokers serve this record here; the record that belongs here is lost",
        _PLAN,
        (),
        ("all: does not compare the two; builds queue entries and index entries from the offset in the record",),
    ),
    CodeEntry(
        "CL-TORN",
        _WARNING,
        "The last record of the log is torn. Normal after a crash.",
        "the next start cuts it off",
        _PLAN,
        ("found a illegal magic code 0x{}", "found a half message at {}, it will be truncated.  (5.x)"),
        ("all: cuts the log here",),
    ),
    CodeEntry(
        "CL-MID",
        _ERROR,
        "A range of the log holds no records, and valid records follow it.",
        _CUT,
        _PLAN,
        ("found a illegal magic code 0x0",),
        _CUTS,
    ),
    CodeEntry(
        "CL-STALE",
        _NOTICE,
        "Bytes of older records remain after the end of the log. A recovery leaves them; new records overwrite them.",
        None,
        None,
        (),
        ("all: never clears them; a later scan can mistake an old record for a new one",),
    ),
    CodeEntry(
        "CL-BRIDGE",
        _NOTICE,
        "A repair has covered damage with a placeholder record, which readers skip. Its messages are lost; the undo "
        "journal of the repair has the bytes.",
        None,
        None,
        (),
        ("all: reads it as a rolled back transaction, which is in no queue",),
    ),
    CodeEntry(
        "CL-TIME",
        _NOTICE,
        "The store time of a record is missing, earlier than the one before it, or in the future.",
        "searches by time miss messages, and a start after a crash may begin at the wrong segment",
        _STAYS,
        (),
        ("all: does not begin the scan at a segment whose first record has no time, or one after the checkpoint's",),
    ),
    CodeEntry(
        "CL-HEAD",
        _WARNING,
        "A record header has a value that no broker writes: unknown flags, an impossible port, time or count.",
        "consumers get a message with a wrong header",
        _LOST,
        (),
        ("all: does not check it",),
    ),
    CodeEntry(
        "CL-QOFF",
        _ERROR,
        "The topic, queue or queue offset in a record contradicts the records around it and its queue entry.",
        "a rebuild of the queues puts the message at a wrong offset, or into another queue",
        _LOST,
        (
            "[BUG]logic queue order maybe wrong, expectLogicOffset: {} currentLogicOffset: {} "
            "Topic: {} QID: {} Diff: {}",
            "Build consume queue repeatedly, expectLogicOffset: {} currentLogicOffset: {} Topic: {} QID: {} Diff: {}",
        ),
        ("all: does not check it; uses it when the record is dispatched again",),
    ),
    CodeEntry(
        "CL-TOPIC",
        _ERROR,
        "The topic of a record cannot be a directory name, so it cannot have a queue.",
        "the message stays in the log and is in no queue",
        _LOST,
        ("[BUG]dispatch message to consume queue error, COMMITLOG OFFSET: {}",),
        ("all: fails to create the queue, and retries without end",),
    ),
    CodeEntry(
        "CL-PROPS",
        _ERROR,
        "The properties of a record are not valid text, or have changed since its index entries were made.",
        "consumers get tags, keys or properties that were not sent",
        _LOST,
        (),
        ("all: does not check them; a rebuild of queues and index uses them as they are now",),
    ),
    CodeEntry(
        "CQ-MISSING",
        _ERROR,
        "Messages of the log have no queue entry.",
        "consumers do not receive these messages",
        _PLAN,
        (),
        (
            "4.9: adds entries only after the last message that any queue has an entry for; the others stay missing",
            "5.3, 5.4: adds entries only for the part of the log read by its recovery; the others stay missing",
        ),
    ),
    CodeEntry(
        "CQ-AHEAD",
        _WARNING,
        "Queue entries point past the end of the log.",
        "their messages are not in the log; the next start removes the entries",
        _PLAN,
        ("maxPhyOffsetOfConsumeQueue({}) >= processOffset({}), truncate dirty logic files",),
        (
            "all: removes such entries from the last file of each queue",
            "4.9: one entry that reaches past the end stops dispatch for the whole store",
        ),
    ),
    CodeEntry(
        "CQ-BEFORE",
        _NOTICE,
        "Queue entries point before the start of the log. Normal: their messages have expired.",
        None,
        None,
        ("Offset not matched. Request offset: {}, firstOffset: {}, lastOffset: {}",),
        ("all: skips them by the minimum offset of the queue",),
    ),
    CodeEntry(
        "CQ-WRONG",
        _ERROR,
        "A queue entry points to no record, or to one of another queue, or has a wrong size or tags code.",
        "consumers get the wrong message or none, or tags are filtered wrongly",
        _PLAN,
        ("selectMappedBuffer request pos invalid, request pos: {}, size: {}, fileFromOffset: {}",),
        ("all: looks only at the last three files, and only for entries that are empty or past the end of the log",),
    ),
    CodeEntry(
        "CQ-SIZE",
        _ERROR,
        "A segment of a queue has a wrong size, or one is missing between two others.",
        _SIZE_REFUSED,
        _PLAN,
        ("{} length not matched message store config value, please check it manually",),
        (
            "4.9: refuses to start",
            "5.3, 5.4: deletes an empty last file, refuses to start for any other wrong size",
            "all: does not notice a missing file",
        ),
    ),
    CodeEntry(
        "CQ-ORPHAN",
        _WARNING,
        "No message of the log and no configuration belongs to this queue.",
        "brokers serve its entries as messages of that queue",
        _PLAN,
        (),
        ("all: serves it", "5.x: removes queues of deleted topics after a while"),
    ),
    CodeEntry(
        "CQ-EXT",
        _WARNING,
        "A queue entry points to no valid entry of the queue's extension file, or the extension file is damaged.",
        "SQL filters on this queue work without their precomputed bits, and slower",
        _PLAN,
        ("[BUG] can't find consume queue extend file content!addr={}, offsetPy={}, sizePy={}, topic={}, group={}",),
        ("all: evaluates the filter on the properties of the message",),
    ),
    CodeEntry(
        "IX-HEAD",
        _WARNING,
        "An index file has an impossible header or size, or one that contradicts its entries.",
        "messages are not found by key",
        _PLAN,
        ("load file {} error",),
        (
            "all: trusts it",
            "all, after a crash: deletes and partly rebuilds the files newer than the checkpoint's index time",
        ),
    ),
    CodeEntry(
        "IX-LOOP",
        _WARNING,
        "A link in a chain of an index file does not point to the next older entry of its slot.",
        "messages are not found by key",
        _PLAN,
        (),
        ("all: follows the chain as it is; a loop ends only at the limit of the search",),
    ),
    CodeEntry(
        "IX-WRONG",
        _WARNING,
        "An index entry points to no record, or to one that does not have its key or time.",
        "key lookups miss messages, or return wrong ones",
        _PLAN,
        (),
        ("all: follows the entries as they are; clients drop messages that do not have the key",),
    ),
    CodeEntry(
        "IX-MISSING",
        _WARNING,
        "Messages with keys are in no index file.",
        "these messages are not found by key",
        _PLAN,
        (),
        ("all: does not add them at a start; after a crash it indexes only the part of the log it reads",),
    ),
    CodeEntry(
        "IX-AHEAD",
        _WARNING,
        "Index entries point past the end of the log.",
        "key lookups fail, and later return wrong messages",
        _PLAN,
        (),
        (
            "all: keeps them",
            "all, after a crash: deletes and partly rebuilds the files newer than the checkpoint's index time",
        ),
    ),
    CodeEntry(
        "CP-BAD",
        _WARNING,
        "The checkpoint is missing, has a wrong size, or has impossible contents.",
        "after a crash a broker reads the whole log (5.4: ten files) and deletes the whole index",
        _PLAN,
        (),
        ("all: replaces a missing or short file with zeros, and starts",),
    ),
    CodeEntry(
        "CP-AHEAD",
        _WARNING,
        "The checkpoint says that more is on disk than the store holds.",
        "after a crash a broker begins its scan too late: messages stay missing from queues and index",
        _PLAN,
        (),
        ("all: trusts it, and never corrects it",),
    ),
    CodeEntry(
        "CP-OLD",
        _NOTICE,
        "The checkpoint is older than after a clean stop. Harmless: after a crash a broker reads more than it needs.",
        None,
        None,
        (),
        ("all: scans from the segment of that time on",),
    ),
    CodeEntry(
        "ST-ABORT",
        _WARNING,
        "The file abort is present and no broker is running: the last stop was not clean.",
        "the next start of a broker recovers as after a crash: rmqtool recover shows whether it deletes messages",
        _PLAN,
        ("last shutdown abnormally, root path: {}",),
        ("all: recovers as after a crash", "5.3, 5.4, if abort is a directory: fails after the recovery"),
    ),
    CodeEntry(
        "ST-LOCK",
        _NOTICE,
        "A process holds the lock, or its content is not the word lock. An error: the lock cannot be opened.",
        "none as a notice. An error: a broker cannot start on this store",
        "replace it with an empty file",
        (),
        ("all: never reads the content; fails at once if lock is a directory",),
    ),
    CodeEntry(
        "ST-MOUNT",
        _ERROR,
        "The commit log is empty but queues exist: most likely its volume is not mounted.",
        "a broker that starts now deletes every consume queue",
        "mount the volume of the commit log, then run check again",
        ("The commitlog files are deleted, and delete the consume queue files",),
        ("all: deletes all queues",),
    ),
    CodeEntry(
        "ST-FOREIGN",
        _NOTICE,
        "The store contains a file or directory of no broker. An error: it is among files of the log or of a queue.",
        "none as a notice: brokers ignore it. An error: a broker refuses to start",
        "move it out of the store",
        (
            "{} length not matched message store config value, please check it manually",
            "load exception (NumberFormatException)",
        ),
        (
            "all: refuses to start if a foreign file is among the files of the log or of a queue",
            "4.9: refuses to start for a directory there, too",
        ),
    ),
    CodeEntry(
        "ST-LINK",
        _WARNING,
        "The store contains a symbolic link, which is not followed, or one file under several names (hard links).",
        "its target was not checked",
        "name its target in broker.conf",
        (),
        ("all: follows the link; a write to one name of a file changes all its names",),
    ),
    CodeEntry(
        "ST-DISK",
        _NOTICE,
        "The disk of the store is so full that a broker deletes messages, or refuses new ones.",
        None,
        "free space on that disk, or raise diskMaxUsedSpaceRatio",
        (
            "physic disk maybe full soon {}, so reclaim space, {}",
            "physic disk maybe full soon, so reclaim space, {}",
        ),
        (
            "all: above diskMaxUsedSpaceRatio (75) deletes expired files of the log at any hour",
            "all: above 85 % deletes the oldest ones of any age, above 90 % also refuses messages",
        ),
    ),
    CodeEntry(
        "ST-READ",
        _ERROR,
        "A part of the store could not be read.",
        "this part was not checked",
        "copy the disk before anything else",
        (),
        ("all: gets an I/O error when it reads this part; if the file is mapped, the process can die",),
    ),
    CodeEntry(
        "CF-JSON",
        _ERROR,
        "A configuration file does not parse.",
        "a broker loads the copy .bak; if that does not parse either, it does not start",
        _PLAN,
        ("load {} failed, and try to load backup file",),
        (
            "all: loads .bak; takes a missing or empty .bak as an empty table; refuses to start if it does not parse",
            "4.9: if topics.json and its .bak are both unreadable, the failed start erases all consumer offsets",
            "5.4: deletes the file when its .bak is loaded instead",
        ),
    ),
    CodeEntry(
        "CF-BAK",
        _WARNING,
        "Only the copy .bak of a configuration file is valid, and it may be older.",
        "a broker before 5.4 overwrites the good copy with the bad file at its next save",
        _PLAN,
        ("load {} failed, and try to load backup file",),
        (
            "4.9, 5.3: loads .bak, then overwrites it with the bad main file at the next save",
            "5.4: deletes the bad main file and loads .bak",
        ),
    ),
    CodeEntry(
        "CF-EMPTY",
        _WARNING,
        "A configuration table is empty or missing, but other files show that it had content.",
        "a broker starts with an empty table: it refuses clients, or groups start from the beginning",
        _PUT_BACK,
        (),
        ("all: starts with an empty table, and soon overwrites the file with it",),
    ),
    CodeEntry(
        "CF-CONF",
        _WARNING,
        "A line of broker.conf has a value that its setting does not take.",
        "a broker ignores the line",
        "correct the line",
        (),
        ("all: uses the default of that setting, without a warning",),
    ),
    CodeEntry(
        "CF-EPOCH",
        _WARNING,
        "The epoch file does not parse, or its checksum is wrong.",
        "a broker loads its .bak, or starts without epochs and copies the whole log again",
        "rmqtool dump {store}/epochFileCheckpoint",
        (),
        ("5.x: loads the .bak, else starts without epochs",),
    ),
    CodeEntry(
        "CF-IDENTITY",
        _WARNING,
        "The broker's identity file does not parse.",
        "a broker in controller mode registers as a new one",
        "rmqtool dump {store}/brokerIdentity",
        (),
        ("5.x: asks the controller for a new identity",),
    ),
    CodeEntry(
        "CF-TOPIC",
        _NOTICE,
        "The log has messages of a topic that is not in topics.json: it was deleted, or the file is an old one.",
        None,
        None,
        (),
        ("all: refuses clients; with autoCreateTopicEnable, creates the topic again with default queues",),
    ),
    CodeEntry(
        "OF-RANGE",
        _WARNING,
        "A committed offset, or the offset of a delay level, is outside its queue.",
        "the group skips messages, or waits for messages that never come",
        "consumers take the end of the queue when they next pull; what they had read after it is gone",
        ("the offset {} is bigger than the max offset of the queue",),
        (
            "all: tells consumers to correct it at their next pull",
            "all: brings offsets of delay levels into range when they are loaded",
        ),
    ),
    CodeEntry(
        "TM-LOG",
        _ERROR,
        "An entry of the timer log is damaged: the chain of its second ends there.",
        "timer messages of that second are lost",
        _TIMERS,
        (),
        ("5.x: follows the chain of a second from its slot, and stops at this entry",),
    ),
    CodeEntry(
        "TM-WRONG",
        _WARNING,
        "The timer wheel, the timer log and the commit log contradict each other.",
        "a timer never fires, or fires with the wrong message",
        _TIMERS,
        (),
        ("5.3, 5.4: rebuilds the wheel from the timer log, from the position in timercheck on",),
    ),
    CodeEntry(
        "TX-OP",
        _WARNING,
        "The body of an op record (commit or rollback) does not name its half messages.",
        "brokers ask the producers about those transactions again",
        "rmqtool cat {store} -t RMQ_SYS_TRANS_OP_HALF_TOPIC",
        (),
        ("all: ignores the record, and asks the producers about the half messages again",),
    ),
    CodeEntry(
        "TX-WRONG",
        _NOTICE,
        "A record of a transaction names a half message that is not there: its queue is shorter, or has expired.",
        None,
        None,
    ),
    CodeEntry(
        "PO-WRONG",
        _WARNING,
        "A checkpoint or ack of pop consumption does not parse, or names offsets that its queue never had.",
        "those messages are delivered again, or never",
        "rmqtool cat {store} -t 'rmq_sys_REVIVE_LOG_*'",
        (),
        ("5.x: cannot tell from it which messages to deliver again",),
    ),
    CodeEntry(
        "DL-MAGIC",
        _ERROR,
        "The bytes at an entry boundary of a DLedger file do not start with an entry magic.",
        "the group cuts its log here and copies it from another member, if there is one",
        SALVAGE,
        (),
        ("all: the DLedger library checks the last files at a start, and cuts its log at the first bad entry",),
    ),
    CodeEntry(
        "DL-SIZE",
        _ERROR,
        "The sizes of a DLedger entry do not add up.",
        "the group cuts its log here and copies it from another member, if there is one",
        SALVAGE,
        (),
        ("all: the DLedger library checks the last files at a start, and cuts its log at the first bad entry",),
    ),
    CodeEntry(
        "DL-STATE",
        _WARNING,
        "A state file of a DLedger node does not parse.",
        "the node starts without its term or committed index, and gets both from its group",
        "start the node while the others of its group are running",
        (),
        ("all: the DLedger library starts with the first term and asks the group",),
    ),
    CodeEntry(
        "DL-INDEX",
        _WARNING,
        "The DLedger index does not match the entries of the data files, or the entries are out of order.",
        "the library rebuilds the index, or refuses to start",
        SALVAGE,
        (),
        ("all: the DLedger library compares the last files of both, and rebuilds the index from the data",),
    ),
    CodeEntry(
        "CM-WRONG",
        _WARNING,
        "A compacted queue does not match its compacted log.",
        "consumers of the compacted topic get wrong messages, or none; what the log no longer has cannot be restored",
        _PUT_BACK,
        (),
        ("5.3, 5.4: refuses to start if a log file has no queue file",),
    ),
    CodeEntry(
        "RX-OPEN",
        _ERROR,
        "RocksDB cannot open a database of the store.",
        _REFUSED,
        SALVAGE,
        (),
        ("5.x: fails to start, with RocksDB's own error",),
    ),
    CodeEntry(
        "RX-ROW",
        _WARNING,
        "A row of a RocksDB database does not parse.",
        "a broker fails when it reads the row",
        SALVAGE,
        (),
        ("5.x: reads the row as it is, when it is needed",),
    ),
    CodeEntry(
        "TI-MOUNT",
        _WARNING,
        "The directory of the tier (tieredStoreFilePath, brokerName) is missing or is not known.",
        "the older messages of all queues cannot be read",
        _MOUNT_TIER,
        (),
        ("5.x: if it is missing, makes empty files for all segments, and reads no older message",),
    ),
    CodeEntry(
        "TI-NAME",
        _WARNING,
        "A file in a tier has a foreign name.",
        "no broker reads the file",
        _TIER_BACKUP,
        (),
        ("5.x: ignores the file",),
    ),
    CodeEntry(
        "TI-META",
        _ERROR,
        "A segment of a tier is missing, or is shorter than in the metadata of the tier.",
        "the messages in the missing bytes are lost",
        _TIER_BACKUP,
        (),
        ("5.x: makes an empty file for a missing segment; takes the size of the last segment from the file",),
    ),
    CodeEntry(
        "TI-ALONE",
        _WARNING,
        "A segment of a tier is not in the metadata of the tier, or is shorter there.",
        "a broker does not read these bytes",
        _TIER_BACKUP,
        (),
        ("5.x: ignores the bytes; of the last segment of a queue it takes the size of the file",),
    ),
    CodeEntry(
        "TI-GAP",
        _ERROR,
        "A segment of a queue is missing in a tier, between two others.",
        "a broker does not find the messages of these entries",
        _TIER_BACKUP,
        (),
        ("5.x: reads across the gap",),
    ),
    CodeEntry(
        "TI-QUEUE",
        _ERROR,
        "An entry of a queue in a tier does not point to its message.",
        "consumers do not receive the message",
        _TIER_BACKUP,
        ("MessageFormatUtil split buffer error, found unknown magic code. Message offset: {}, wrong magic code: {}",),
        ("5.x: leaves the message out",),
    ),
    CodeEntry(
        "TI-MISSING",
        _WARNING,
        "A message in a tier has no entry in its queue there.",
        "the tier does not give the message to consumers",
        _TIER_BACKUP,
        (),
        ("5.x: leaves the message out",),
    ),
    CodeEntry(
        "TI-INDEX",
        _WARNING,
        "An index file of a tier is damaged, or an entry in it points to no message.",
        "a query by key can miss older messages",
        _TIER_BACKUP,
        (),
        ("5.x: answers without the messages of this file, or with wrong ones",),
    ),
    CodeEntry(
        "TI-HOLE",
        _ERROR,
        "Messages of a queue are neither in the tier nor in the store.",
        "the messages were deleted before they were copied; they are lost",
        _TIER_BACKUP,
        (),
        ("5.x: deletes the queue in the tier, and begins again with the first message of the store",),
    ),
    CodeEntry(
        "BD-INFLATE",
        _NOTICE,
        "A body is marked as compressed but does not decompress, and its checksum is right: it was sent like this.",
        "consumers fail to decode the message",
        _KEEP,
    ),
)

CODES: dict[str, CodeEntry] = {entry.code: entry for entry in _ENTRIES}
