"""Every code of a finding, once: a table, and nothing else.

The broker's lines are templates: ``{}`` stands for what it fills in. Where brokers of different versions differ, each
has its own line. Codes are never renamed; scripts rely on them.
"""

from __future__ import annotations

from typing import NamedTuple

from rmqtool.findings.finding import Severity


class CodeEntry(NamedTuple):
    """One code: how bad it is by itself, what it means, the broker's own lines, what a broker does, what to type."""

    code: str
    severity: Severity
    meaning: str
    consequence: str | None = None
    fix: str | None = None
    broker_lines: tuple[str, ...] = ()
    brokers: tuple[str, ...] = ()

    @property
    def family(self) -> str:
        """The letters before the dash."""
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
    "BD": "bodies",
}

_ERROR, _WARNING, _NOTICE = Severity.ERROR, Severity.WARNING, Severity.NOTICE

_STAYS = "the time cannot be had back; rmqtool recover {store} shows what a start does"
_PUT_BACK = "put a saved copy of the file back, then look again"
_APPLY = "rmqtool repair {store} --apply"
_MEND = "rmqtool repair {store} --apply --allow primary"
_CONFIG = "rmqtool repair {store} config offsets --apply --allow state"
_TIMERS = "rmqtool repair {store} timers"
_SALVAGE = "rmqtool copy {store} {store}.new --salvage"
_LOST = "what it said cannot be had back; rmqtool cat shows what is left"
_KEEP = "rmqtool cat {store} --jsonl > messages.jsonl"

_CUT = "a start after a crash that scans this place deletes it and everything behind it"
_CUTS = (
    "4.9, 5.3, after a crash: scan from the checkpoint's file on, cut the log at the first bad record, delete the rest",
    "5.4, after a crash: scan at most ten files, cut the log at the first bad record, delete the rest",
    "4.9, after a clean stop: scan the last three files, cut the log at the first bad record, delete the rest",
    "5.3, 5.4, after a clean stop: scan the last file, cut the log at the first bad record, delete the rest",
)
_REFUSED = "a broker refuses to start"
_SIZE_REFUSED = "a broker refuses to start; 5.x deletes a last file that is empty, and starts"

_ENTRIES: tuple[CodeEntry, ...] = (
    CodeEntry(
        "CL-NAME",
        _ERROR,
        "A file of the commit log has a name that is not the offset of its first byte, or overlaps another file.",
        "a broker takes the file for another place of the log, or refuses to start",
        _MEND,
        (
            "{} length not matched message store config value, please check it manually",
            "load exception (NumberFormatException)",
        ),
        (
            "all: a name that is no number refuses the start; a numeric one is believed, and records are misread",
            "all: a numeric file beyond the end of the log is deleted",
        ),
    ),
    CodeEntry(
        "CL-SIZE",
        _ERROR,
        "A file of the commit log has another size than the others, or than the settings say.",
        _SIZE_REFUSED,
        _MEND,
        (
            "{} length not matched message store config value, please check it manually",
            "{} size is 0, auto delete. is_ok: {}  (5.x, an empty last file)",
        ),
        ("4.9: refuse to start", "5.3, 5.4: delete an empty last file, refuse to start for any other"),
    ),
    CodeEntry(
        "CL-GAP",
        _ERROR,
        "A file of the commit log is missing between two others: its messages are gone.",
        "its messages are gone; queue units lead into the hole and consumers step over it",
        _SALVAGE,
        (
            "[BUG]The mappedFile queue's data is damaged, the adjacent mappedFile's offset don't match. "
            "pre file {}, cur file {}  (5.x)",
            "Offset not matched. Request offset: {}, firstOffset: {}, lastOffset: {}",
        ),
        ("4.9: nothing is said and the start goes on", "5.3, 5.4: one line in the log, the start goes on"),
    ),
    CodeEntry(
        "CL-MAGIC",
        _ERROR,
        "Where a record is due stands something that has not the magic of one.",
        _CUT,
        _MEND,
        ("found a illegal magic code 0x{}",),
        _CUTS,
    ),
    CodeEntry(
        "CL-LEN",
        _ERROR,
        "The lengths inside a record do not add up to its size, or the size cannot be.",
        _CUT,
        _MEND,
        (
            "[BUG]read total count not equals msg total size. totalSize={}, readTotalCount={}, bodyLen={}, "
            "topicLen={}, propertiesLength={}",
            "found a half message at {}, it will be truncated.  (5.x)",
        ),
        (*_CUTS, "4.9: a huge size is allocated before it is checked; the start dies with an OutOfMemoryError"),
    ),
    CodeEntry(
        "CL-CRC",
        _ERROR,
        "A checksum of a record does not fit its bytes: the body's, or that over the whole record.",
        _CUT,
        _MEND,
        ("CRC check failed. bodyCRC={}, currentCRC={}  (the two values are printed swapped)",),
        _CUTS,
    ),
    CodeEntry(
        "CL-PHY",
        _ERROR,
        "A record says that it lies at another place of the log than it does: a misdirected or repeated write.",
        "brokers serve it at this place; what should lie here is gone",
        _MEND,
        (),
        ("all: not compared at a start; queue units and index entries are made from what the record says",),
    ),
    CodeEntry(
        "CL-TORN",
        _WARNING,
        "The last record of the log is not whole, and no record follows it. Normal after a crash.",
        "the next start cuts it off",
        _MEND,
        ("found a illegal magic code 0x{}", "found a half message at {}, it will be truncated.  (5.x)"),
        ("all: cut the log here",),
    ),
    CodeEntry(
        "CL-MID",
        _ERROR,
        "A stretch of bytes where records are due holds none, and valid records follow behind it.",
        _CUT,
        _MEND,
        ("found a illegal magic code 0x0",),
        _CUTS,
    ),
    CodeEntry(
        "CL-STALE",
        _NOTICE,
        "Behind the end of the log lie bytes of older records. A recovery leaves them; they are overwritten.",
        None,
        None,
        (),
        ("all: never cleared; a copy of a record behind the end can be taken for a record",),
    ),
    CodeEntry(
        "CL-BRIDGE",
        _NOTICE,
        "A repair has laid a record over damage, so that readers step over it. What stood there is lost.",
        None,
        None,
        (),
        ("all: read it as a record of a transaction that was rolled back, which is in no queue",),
    ),
    CodeEntry(
        "CL-TIME",
        _NOTICE,
        "The store time of a record is not there, runs backwards, or lies in the future.",
        "searches by time miss messages, and a start after a crash may begin at the wrong file",
        _STAYS,
        (),
        ("all: a file whose first record has no time, or one behind the checkpoint's, is not chosen for the scan",),
    ),
    CodeEntry(
        "CL-HEAD",
        _WARNING,
        "A field of a record's header holds what no broker writes there: unknown flags, a port, a time, a count.",
        "consumers get a message with a wrong header",
        _LOST,
        (),
        ("all: not checked",),
    ),
    CodeEntry(
        "CL-QOFF",
        _ERROR,
        "What a record says of its topic, queue or queue offset contradicts its neighbours and its own queue unit.",
        "a rebuild of the queues puts the message at a wrong place, or into another queue",
        _LOST,
        (
            "[BUG]logic queue order maybe wrong, expectLogicOffset: {} currentLogicOffset: {} "
            "Topic: {} QID: {} Diff: {}",
            "Build consume queue repeatedly, expectLogicOffset: {} currentLogicOffset: {} Topic: {} QID: {} Diff: {}",
        ),
        ("all: not checked at a start; believed when the record is dispatched again",),
    ),
    CodeEntry(
        "CL-TOPIC",
        _ERROR,
        "The topic of a record cannot be the name of a directory, so it can have no queue.",
        "the message stays in the log and is in no queue",
        _LOST,
        ("[BUG]dispatch message to consume queue error, COMMITLOG OFFSET: {}",),
        ("all: the queue cannot be made, the broker tries again and again",),
    ),
    CodeEntry(
        "CL-PROPS",
        _ERROR,
        "The properties of a record are no text, or not those that its index entries were made from at its time.",
        "consumers get other tags, keys or properties than were sent",
        _LOST,
        (),
        ("all: not checked; a rebuild of queues and index takes what stands there now",),
    ),
    CodeEntry(
        "CQ-MISSING",
        _ERROR,
        "Messages of the log have no unit in their queue: consumers do not see them.",
        "consumers never see these messages",
        _APPLY,
        (),
        (
            "4.9: dispatch from the end of the furthest queue on; what lacks before that stays missing",
            "5.3, 5.4: dispatch only what the recovery scans",
        ),
    ),
    CodeEntry(
        "CQ-AHEAD",
        _WARNING,
        "Units of a queue lead behind the end of the log.",
        "the messages they stand for are not in the log; the next start cuts the units off",
        _APPLY,
        ("maxPhyOffsetOfConsumeQueue({}) >= processOffset({}), truncate dirty logic files",),
        (
            "all: cut the last file of each queue at the end of the log",
            "4.9: a unit that reaches behind the end switches dispatch off for the whole store",
        ),
    ),
    CodeEntry(
        "CQ-BEFORE",
        _NOTICE,
        "Units of a queue lead to before the first byte of the log. Normal: their messages have expired.",
        None,
        None,
        ("Offset not matched. Request offset: {}, firstOffset: {}, lastOffset: {}",),
        ("all: corrected by the minimum offset of the queue",),
    ),
    CodeEntry(
        "CQ-WRONG",
        _ERROR,
        "A unit of a queue leads to no record, to one of another queue, or has the wrong size or tags code.",
        "consumers get another message, none, or are filtered wrongly",
        _APPLY,
        ("selectMappedBuffer request pos invalid, request pos: {}, size: {}, fileFromOffset: {}",),
        ("all: only units of the last three files are looked at, and only for being empty or behind the end",),
    ),
    CodeEntry(
        "CQ-SIZE",
        _ERROR,
        "A file of a queue has a wrong size, or a file is missing between two others.",
        _SIZE_REFUSED,
        _APPLY,
        ("{} length not matched message store config value, please check it manually",),
        (
            "4.9: refuse to start",
            "5.3, 5.4: delete an empty last file, refuse to start for any other wrong size",
            "all: a missing file goes unnoticed",
        ),
    ),
    CodeEntry(
        "CQ-ORPHAN",
        _WARNING,
        "A queue exists that no message of the log and no configuration names.",
        "its units are served as messages of that queue",
        _APPLY,
        (),
        ("all: served; 5.x removes queues of deleted topics after a while",),
    ),
    CodeEntry(
        "CQ-EXT",
        _WARNING,
        "A unit leads to a place of the queue's extension where no unit stands, or the extension itself is damaged.",
        "SQL filters of that queue are evaluated without their bits",
        _APPLY,
        ("[BUG] can't find consume queue extend file content!addr={}, offsetPy={}, sizePy={}, topic={}, group={}",),
        ("all: take the message for a candidate and evaluate the filter on its properties",),
    ),
    CodeEntry(
        "IX-HEAD",
        _WARNING,
        "The header or the size of an index file cannot be, or contradicts what the file holds.",
        "messages are not found by key",
        _APPLY,
        ("load file {} error",),
        ("all: believed; after a crash a file newer than the checkpoint's index time is deleted and partly rebuilt",),
    ),
    CodeEntry(
        "IX-LOOP",
        _WARNING,
        "A chain of an index file does not lead to the next older entry of its slot.",
        "messages are not found by key",
        _APPLY,
        (),
        ("all: a chain is followed as it stands; one that leads back never ends before the limit",),
    ),
    CodeEntry(
        "IX-WRONG",
        _WARNING,
        "An entry of an index leads to no record, or to one that has not this key or this time.",
        "messages are not found by key, or wrong ones are",
        _APPLY,
        (),
        ("all: follow the entries as they stand; clients drop a message that has not the key",),
    ),
    CodeEntry(
        "IX-MISSING",
        _WARNING,
        "Messages with keys are in no index file.",
        "these messages are not found by key",
        _APPLY,
        (),
        ("all: never made good by a start; after a crash only what the recovery scans is indexed again",),
    ),
    CodeEntry(
        "IX-AHEAD",
        _WARNING,
        "Entries of an index lead behind the end of the log.",
        "keys lead to nothing, later to other messages",
        _APPLY,
        (),
        ("all: never cut; after a crash a file newer than the checkpoint's index time is deleted and partly rebuilt",),
    ),
    CodeEntry(
        "CP-BAD",
        _WARNING,
        "The checkpoint is missing, has a wrong size, or holds what cannot be a checkpoint.",
        "after a crash a broker reads the whole log (5.4: ten files) and destroys the whole index",
        _APPLY,
        (),
        ("all: a missing or short file is made anew with zeros; never refused",),
    ),
    CodeEntry(
        "CP-AHEAD",
        _WARNING,
        "The checkpoint says that more is safe on disk than the store holds.",
        "after a crash a broker starts its scan too late: messages stay out of queues and index",
        _APPLY,
        (),
        ("all: believed, and never corrected",),
    ),
    CodeEntry(
        "CP-OLD",
        _NOTICE,
        "The checkpoint is older than a clean stop leaves it. Harmless: after a crash more is read than needed.",
        None,
        None,
        (),
        ("all: scan from the file of that time on",),
    ),
    CodeEntry(
        "ST-ABORT",
        _WARNING,
        "The abort marker is there and no broker runs: the last stop was not clean.",
        "the next start of a broker recovers abnormally: it deletes the log from the first bad record on",
        _APPLY,
        ("last shutdown abnormally, root path: {}",),
        ("all: recover abnormally", "5.3, 5.4: an abort that is a directory lets the start fail after the recovery"),
    ),
    CodeEntry(
        "ST-LOCK",
        _NOTICE,
        "The lock is not a file with the word lock.",
        "a broker cannot even be constructed on this store",
        "put an empty file in its place",
        (),
        ("all: the content is never read; a directory of that name stops the broker at once",),
    ),
    CodeEntry(
        "ST-MOUNT",
        _ERROR,
        "The commit log is empty, yet queues exist: most likely its volume is not mounted.",
        "a broker that starts now deletes every consume queue",
        "mount the volume of the commit log, then look again",
        ("The commitlog files are deleted, and delete the consume queue files",),
        ("all: delete all queues",),
    ),
    CodeEntry(
        "ST-FOREIGN",
        _NOTICE,
        "A file or directory lies in the store that no broker puts there.",
        _REFUSED,
        "move it out of the store",
        (
            "{} length not matched message store config value, please check it manually",
            "load exception (NumberFormatException)",
        ),
        (
            "all: a foreign file among the files of the log or of a queue refuses the start",
            "4.9: so does a directory there",
        ),
    ),
    CodeEntry(
        "ST-LINK",
        _WARNING,
        "A symbolic link is in the store, and is not followed; or one file has several names there (hard links).",
        "what it leads to was not looked at",
        "name the place it leads to in broker.conf",
        (),
        ("all: follow the link as if the file or directory were here; write to all names of a file at once",),
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
            "all: above diskMaxUsedSpaceRatio (75) delete expired files of the log at any hour",
            "all: above 85 % delete the oldest ones whatever their age, above 90 % refuse messages too",
        ),
    ),
    CodeEntry(
        "ST-READ",
        _ERROR,
        "A part of the store could not be read.",
        "what lies there was not looked at",
        "copy the disk before anything else",
        (),
        ("all: whoever reads that place gets an I/O error; through a map it can end the process",),
    ),
    CodeEntry(
        "CF-JSON",
        _ERROR,
        "A configuration file does not parse.",
        "a broker takes the copy .bak; where that does not parse either it does not start",
        _CONFIG,
        ("load {} failed, and try to load backup file",),
        (
            "all: take .bak; a missing or empty .bak is an empty table, one that does not parse ends the start",
            "4.9: with topics.json and its .bak unreadable, the failing start wipes all consumer offsets",
            "5.4: delete the file that gives way to its .bak",
        ),
    ),
    CodeEntry(
        "CF-BAK",
        _WARNING,
        "Only the copy .bak of a configuration file is good, and it may be older.",
        "the next time a broker before 5.4 saves, the bad file replaces the good copy",
        _CONFIG,
        ("load {} failed, and try to load backup file",),
        (
            "4.9, 5.3: load .bak, then overwrite it with the bad main file at the next save",
            "5.4: delete the bad main file and load .bak",
        ),
    ),
    CodeEntry(
        "CF-EMPTY",
        _WARNING,
        "A configuration table is empty or missing, although other files speak of what it should hold.",
        "a broker starts with an empty table: clients are refused, or groups begin anew",
        _PUT_BACK,
        (),
        ("all: start with an empty table, and soon write it over what is left of the file",),
    ),
    CodeEntry(
        "CF-CONF",
        _WARNING,
        "A line of broker.conf is not what its setting wants.",
        "a broker ignores the line",
        "correct the line",
        (),
        ("all: keep the default of that setting, without a word",),
    ),
    CodeEntry(
        "CF-EPOCH",
        _WARNING,
        "The file of epochs does not parse or its checksum is wrong.",
        "a broker takes its .bak, or forgets its epochs and copies the log anew",
        "rmqtool dump {store}/epochFileCheckpoint",
        (),
        ("5.x: take the .bak, else begin without epochs",),
    ),
    CodeEntry(
        "CF-IDENTITY",
        _WARNING,
        "The broker's identity file does not parse.",
        "a broker in controller mode registers as a new one",
        "rmqtool dump {store}/brokerIdentity",
        (),
        ("5.x: ask the controller for a new identity",),
    ),
    CodeEntry(
        "CF-TOPIC",
        _NOTICE,
        "The log holds a topic that topics.json does not name: it was deleted, or the file is an old one.",
        None,
        None,
        (),
        ("all: clients are refused; with autoCreateTopicEnable the topic comes back with default queues",),
    ),
    CodeEntry(
        "OF-RANGE",
        _WARNING,
        "A committed or delay offset lies outside its queue.",
        "the group skips messages, or waits for ones that never come",
        "consumers take the end of the queue when they next pull; what they had read after it is gone",
        ("the offset {} is bigger than the max offset of the queue",),
        (
            "all: consumers are told to correct it when they next pull",
            "all: delay offsets are cut when they are loaded",
        ),
    ),
    CodeEntry(
        "TM-LOG",
        _ERROR,
        "A unit of the timer log is damaged: the chain of its second ends there.",
        "timers of that second are lost",
        _TIMERS,
        (),
        ("5.x: follow the chain of a second from its slot, and stop at this unit",),
    ),
    CodeEntry(
        "TM-WRONG",
        _WARNING,
        "Timer wheel, timer log and commit log do not fit together.",
        "a timer fires not at all, or with another message",
        _TIMERS,
        (),
        ("5.3, 5.4: the wheel is rebuilt from the log from timercheck's position on",),
    ),
    CodeEntry(
        "TX-OP",
        _WARNING,
        "The body of an op record does not say which half messages it decides.",
        "those transactions are asked about again",
        "rmqtool cat {store} -t RMQ_SYS_TRANS_OP_HALF_TOPIC",
        (),
        ("all: the record decides nothing; the half messages are checked with their producers again",),
    ),
    CodeEntry(
        "TX-WRONG",
        _NOTICE,
        "A record of a transaction leads to no half message: the half queue is shorter, or has expired.",
        None,
        None,
    ),
    CodeEntry(
        "PO-WRONG",
        _WARNING,
        "A check point or ack of pop consumption does not parse, or names offsets that its queue never had.",
        "those messages are delivered again, or never",
        "rmqtool cat {store} -t 'rmq_sys_REVIVE_LOG_*'",
        (),
        ("5.x: the revive service cannot tell from it what to deliver again",),
    ),
    CodeEntry(
        "DL-MAGIC",
        _ERROR,
        "Where an entry of a DLedger file is due stands something that is none.",
        "the group cuts its log here and copies it from another member, if there is one",
        _SALVAGE,
        (),
        ("all: the DLedger library checks the last files at a start and cuts its log at the first bad entry",),
    ),
    CodeEntry(
        "DL-SIZE",
        _ERROR,
        "The sizes of a DLedger entry do not add up.",
        "the group cuts its log here and copies it from another member, if there is one",
        _SALVAGE,
        (),
        ("all: the DLedger library checks the last files at a start and cuts its log at the first bad entry",),
    ),
    CodeEntry(
        "DL-STATE",
        _WARNING,
        "A state file of a DLedger node does not parse.",
        "the node starts without its term or its committed index, and asks its group for both",
        "start the node beside the others of its group",
        (),
        ("all: the DLedger library begins with the first term and asks the group",),
    ),
    CodeEntry(
        "DL-INDEX",
        _WARNING,
        "DLedger's index does not lead to the entries of its data files, or the entries are out of order.",
        "the library rebuilds the index, or refuses to start",
        _SALVAGE,
        (),
        ("all: the DLedger library compares the last files of both and rebuilds the index from the data",),
    ),
    CodeEntry(
        "CM-WRONG",
        _WARNING,
        "A compacted queue does not fit its compacted log.",
        "consumers of the compacted topic get other messages, or none",
        _KEEP,
        (),
        ("5.3, 5.4: a file of the log without its queue file stops the start",),
    ),
    CodeEntry(
        "RX-OPEN",
        _ERROR,
        "RocksDB does not open a database of the store.",
        _REFUSED,
        _KEEP,
        (),
        ("5.x: the start fails with RocksDB's own error",),
    ),
    CodeEntry(
        "RX-ROW",
        _WARNING,
        "A row of a RocksDB database does not parse.",
        "a broker fails when it reads the row",
        _KEEP,
        (),
        ("5.x: the row is read as it stands when it is asked for",),
    ),
    CodeEntry(
        "BD-INFLATE",
        _NOTICE,
        "A body is marked as compressed and does not inflate, although its checksum is right: it was sent like this.",
        "consumers fail to decode the message",
        _KEEP,
    ),
)

CODES: dict[str, CodeEntry] = {entry.code: entry for entry in _ENTRIES}
