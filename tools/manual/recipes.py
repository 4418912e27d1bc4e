"""The recipes: an incident, and what to do. A step is a text, or a command that ``make docs`` runs."""

from __future__ import annotations

from rmqtool.errors import Exit
from tools.manual.examples import Example

Recipe = tuple[str, tuple[str | Example, ...]]

_COPY_FIRST = (
    "Before you change anything, copy the store with its sparse files and times (`cp -a --sparse=always`). Messages "
    "that a broker deletes at its start are lost."
)

RECIPES: tuple[Recipe, ...] = (
    (
        "The broker does not start, or you do not dare to start it",
        (
            _COPY_FIRST,
            Example(
                "Rehearse the start. Nothing is changed; words in capitals are harm. CUT and DELETE: the broker "
                "deletes these messages or files. REFUSES: it does not start. REWIND: new messages of that queue reuse "
                "queue offsets, and a group that had already read further can skip them. UNREACHED: these messages are "
                "in no queue, and stay so. The exit status is 0 if the broker would start and delete no message:",
                "rmqtool recover store",
                "49-killed-torn",
            ),
            Example(
                "This broker would not start, and the screen says why:",
                "rmqtool recover store --as 4.9",
                "53-broker",
                "cut offsets",
                Exit.NO,
            ),
            Example(
                "What exactly is wrong with the file?",
                "rmqtool check store --quick --only CF",
                "53-broker",
                "cut offsets",
                Exit.NO,
            ),
            "If there is no good copy of a configuration file, restore it from a backup. Without a backup, move the "
            "file out of the store. If it was topics.json, `rmqtool info STORE topics` still shows the queues, and "
            "`rmqtool topic STORE create TOPIC --queues N` creates each topic again.",
            "`rmqtool recover STORE --to DIR` writes the store as the broker would leave it to a new directory, so "
            "that you can look at it first. `--as` selects another broker version.",
        ),
    ),
    (
        "Messages vanished after a power cut",
        (
            Example(
                "See what the log still contains and where it ends. The line `lost` shows whose messages are missing:",
                "rmqtool check store",
                "49-killed-torn",
                status=Exit.NO,
            ),
            "CL-TORN at the end is normal: a broker with synchronous flush never acknowledged that record. A broker "
            "with asynchronous flush may have acknowledged the messages that `lost` counts. CL-MID and CL-GAP are not "
            "normal: valid messages follow the damage, and a start after a crash deletes them. Save them first: "
            "`rmqtool copy STORE NEW --salvage` writes every valid message to a new store. The damaged bytes are then "
            "in NEW.lost-and-found, and the exit status is 6.",
            Example(
                "Recover the store. rmqtool cuts only the torn end, and keeps everything after damage:",
                "rmqtool recover store --apply",
                "49-killed-torn",
            ),
            Example(
                "Did a broker start before you came? Its recovery may have cut off whole messages. LEFTOVER shows how "
                "many, of which topics and from which time:",
                "rmqtool recover store --tz UTC",
                "49-recovered",
            ),
            Example(
                "You can restore them until new messages overwrite them. Give the two times as -b and -e; -e is "
                "exclusive, so add a millisecond:",
                "rmqtool cat store/commitlog/00000000000000196608 --carve --count --tz UTC "
                "-b '2024-05-06 13:07:23.261' -e '2024-05-06 13:08:23.390'",
                "49-recovered",
            ),
            "Replace `--count` with `--jsonl > cut.jsonl`. Then, while no broker runs, "
            "`rmqtool produce STORE --jsonl --keep-ids < cut.jsonl` stores them again at the end of their queues.",
        ),
    ),
    (
        'The log says "found a illegal magic code", or a CRC check failed',
        (
            Example(
                "Find the place and everything that is wrong there. CL means the commit log only:",
                "rmqtool check store --only CL --tz UTC",
                "53-broker",
                "flip",
                Exit.NO,
            ),
            "`rmqtool dump FILE@OFFSET-END` shows the bytes there with their names.",
            "Whether the next start cuts the log there depends on the broker version and on how the last broker "
            "stopped: `rmqtool recover STORE` shows it. `rmqtool check --explain CODE` explains a code.",
        ),
    ),
    (
        "A queue, an index file or the checkpoint is damaged or missing",
        (
            "rmqtool can rebuild these from the commit log. `rmqtool repair STORE`, or `rmqtool repair STORE queues`, "
            "shows the plan and writes nothing. `--apply` carries it out and saves all old bytes to an undo journal "
            "next to the store; `rmqtool repair STORE --undo last` restores them.",
            Example(
                "The plan for a store with a damaged checkpoint:",
                "rmqtool repair store",
                "53-broker",
                "checkpoint",
                Exit.NO,
            ),
            Example("Apply it:", "rmqtool repair store --apply", "53-broker", "checkpoint"),
        ),
    ),
    (
        "All queues are missing, or the commit log seems to be empty",
        (
            Example(
                "If the volume of the commit log is not mounted, a broker deletes every queue when it starts. Do not "
                "start it:",
                "rmqtool check store --quick --only ST",
                "53-broker",
                "unmounted",
                Exit.NO,
            ),
            "Mount the volume, then run `rmqtool info STORE` again.",
        ),
    ),
    (
        "The disk is full",
        (
            Example("Which topics fill it?", "rmqtool stat store --by topic,tag -n 5 --tz UTC"),
            "This counts the log. Queues, index files and timers need more space: `rmqtool info STORE files` lists "
            "every file.",
            Example(
                "What does a broker delete next, and which groups have not read it?",
                "rmqtool stat store retention --tz UTC",
            ),
            "Above 75 % (diskMaxUsedSpaceRatio) a broker deletes expired segments of the log at any hour. Above 85 % "
            "it deletes the oldest segments even if they have not expired and groups have not read them. Above 90 % "
            "it refuses messages (SERVICE_NOT_AVAILABLE) and still serves consumers.",
            "A broker deletes whole segments, the oldest first. Do not delete segments by hand while a broker runs, "
            "and never from the middle of the log. To free the space of one topic, you need a new store on another "
            "disk: stop the broker, then run `rmqtool copy STORE NEW --purge TOPIC`. repair, copy and export check "
            "the free space first, and write nothing if it is not enough.",
        ),
    ),
    (
        "Which consumer group lags?",
        (
            Example("This works with or without a running broker:", "rmqtool info store groups -g 'G_pop*'"),
            "lag is the number of messages that the group has not consumed. The last lines name the groups that lag, "
            "the largest lag first. `rmqtool cat STORE -g GROUP --unread` shows these messages.",
        ),
    ),
    (
        "Find one order",
        (
            Example("By its key:", "rmqtool query store retry-9 -n 1 --tz UTC"),
            Example(
                "Show what happened to it: retries, dead letter queue, groups that consumed it:",
                "rmqtool query store retry-9 -n 1 --history --tz UTC",
            ),
            "You can also search by an id of either kind, by TOPIC/QUEUE@OFFSET or by a time. If nothing is found, "
            "exit status 1 means that everything was read, and 6 that a part could not be read. Without a store, "
            "`rmqtool query ID` shows what the id contains: time, address, process.",
        ),
    ),
    (
        "Split a broker",
        (
            Example("Stop the broker. See how much data will move:", "rmqtool stat store --by topic -t 'T_*' --tz UTC"),
            Example(
                "Copy these topics to a new store, with their pending messages. Queue offsets and committed offsets "
                "stay the same; physical offsets change, and offset ids with them:",
                "rmqtool copy store new -t 'T_*'",
            ),
            "Check with `rmqtool diff STORE NEW --by message -t 'T_*'` that no message is missing. Then remove the "
            "topics from the first store: `rmqtool copy STORE REST --purge 'T_*'` writes everything else to a new "
            "store. Or, in place, `rmqtool topic STORE delete TOPIC --yes` deletes a topic and its queues; its "
            "messages expire with the log.",
        ),
    ),
    (
        "A message was sent, but not received",
        (
            Example(
                "Does every message have a queue entry, and does every entry point to its message?",
                "rmqtool check store --only CQ --tz UTC",
            ),
            "Is it a delayed message, or is its transaction undecided? `rmqtool stat STORE delay` and "
            "`rmqtool stat STORE tx` count both.",
            Example(
                "Is it in a dead letter queue?",
                r"rmqtool cat store -t '%DLQ%*' --template '{topic} {queueOffset} {keys}\n'",
            ),
        ),
    ),
    (
        "A search by key finds nothing after a restart",
        (
            "After a crash, brokers delete the newest index file and index only the part of the log that they scan "
            "again. `rmqtool query` also searches the log, so it finds the message.",
            Example(
                "Which keys are missing from the index?",
                "rmqtool check store --only IX --tz UTC",
                "53-killed",
                status=Exit.NO,
            ),
        ),
    ),
    (
        "Messages as a table",
        (
            Example(
                "Write Parquet for DuckDB, pandas and Spark. `--engine local` does not need Spark:",
                "rmqtool export store --engine local -t T_normal --to lake --progress never",
            ),
            "Next time, `--since-last` adds the new messages. `-b 2026-11-01 -e 2026-12-01` exports one month.",
        ),
    ),
    (
        "A store for a test, without a cluster",
        (
            Example("Create a store with small files:", "rmqtool init new --conf mappedFileSizeCommitLog=1048576"),
            Example(
                "Then send messages. This store already has some:",
                r"rmqtool produce store -t Orders --create --key order-4711 hello"
                r" --template '{status} {topic}/{queueId}@{queueOffset}\n'",
                "49-basic",
            ),
            "A broker of the same version can take over this store at any time.",
        ),
    ),
    (
        "A broker for tests, or on a laptop",
        (
            "`rmqtool serve --memory --exec 'mvn test'` starts a name server and a broker at free ports, runs the "
            "tests and exits with their status. JUnit and other tests find the name server in NAMESRV_ADDR, which the "
            "Java client reads by itself. It needs no container and no JVM of its own.",
            'With pytest, write `pytest_plugins = ["rmqtool.testing"]` in conftest.py: the fixture `rocketmq` has the '
            "address in `rocketmq.names`.",
            "`rmqtool init STORE` and `rmqtool serve STORE` keep the messages between runs. Clients connect to "
            "127.0.0.1:9876, as to a real name server. While it runs, `produce`, `consume`, `topic` and `group` on the "
            "store go through the server, and commands that only look read its files.",
        ),
    ),
    (
        "The broker does not start, and consumers need its messages",
        (
            "`rmqtool serve --read-only STORE` lets the consumers of the broker read every valid message at once, and "
            "writes nothing into the store. Their progress is in STORE-rmqtool-state, and the next run goes on there.",
            "To produce as well, keep the original and make a new store: `rmqtool copy STORE NEW --salvage` writes "
            "every valid message to it, and `rmqtool serve NEW` serves it.",
            "After a crash that only tore the end of the log, `rmqtool serve STORE` recovers the store itself first, "
            "and groups continue where they were.",
        ),
    ),
    (
        "A backup that is seconds old, and the restore",
        (
            "`rmqtool mirror rocketmq://HOST:9876/BROKER DIR` copies the log of a broker while it grows. Run one "
            "for each broker, under a supervisor that starts it again, on another machine. `--live` keeps queues "
            "and index up to date, so that `rmqtool cat DIR` and `rmqtool export DIR` read the mirror; `--keep "
            "30d` limits its size.",
            "The broker is lost: stop the mirror. `rmqtool check DIR` verifies every message. Without --live it "
            "reports missing queues; `rmqtool recover DIR --apply` builds them, and says how many messages there "
            "are. The line `durable` that the mirror printed last is where the log ends. Messages after it are "
            "lost. A SYNC_MASTER sends no SEND_OK for a message that the mirror does not have; of 5.x only with "
            "inSyncReplicas=2 in its broker.conf.",
            "Then start a broker of the same version on DIR, with `-c DIR/broker.conf` and the address of the old"
            " one, or `rmqtool serve DIR`. Groups go on at the offsets that the mirror had copied, seconds before"
            " the end: consumers get a few messages again.",
            "To go back to a moment before a mistake, `rmqtool copy DIR NEW -e TIME` writes the messages stored "
            "before TIME to a new store. `rmqtool recover DIR --until TIME --to NEW` keeps the log as it was up to "
            "there, with all ids.",
        ),
    ),
)
