"""The recipes: an incident, and the steps from it. A step is a text, or a command that ``make docs`` runs."""

from __future__ import annotations

from rmqtool.errors import Exit
from tools.manual.examples import Example

Recipe = tuple[str, tuple[str | Example, ...]]

_COPY_FIRST = (
    "Before anything is changed, copy the store as it is, with holes and times (`cp -a --sparse=always`). What a "
    "broker's start deletes is gone."
)

RECIPES: tuple[Recipe, ...] = (
    (
        "The broker does not start, or you do not dare to start it",
        (
            _COPY_FIRST,
            Example(
                "Rehearse the start. Nothing is changed; DELETE, REWIND and REFUSES are what the broker would do. "
                "REWIND: what stood last in that queue is gone, new messages get the same queue offsets, and a group "
                "that had read it may pass over them. The exit status is 0 when the broker would come up and lose no "
                "message:",
                "rmqtool recover store",
                "49-killed-torn",
            ),
            Example(
                "Here it would not come up, and the reason is said:",
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
            "A configuration file of which no good copy is left comes from a backup. Without one, move it out of the "
            "store; of topics.json, `rmqtool info STORE topics` still shows which queues there are, and "
            "`rmqtool topic STORE create TOPIC --queues N` makes each topic known again.",
            "`rmqtool recover STORE --to DIR` writes the store as that broker would leave it into a new directory, to "
            "look at before it happens. `--as` asks another version.",
        ),
    ),
    (
        "Messages vanished after a power cut",
        (
            Example(
                "Look at what the log still holds, and where it ends. The line lost says whose messages this "
                "store has no more:",
                "rmqtool check store",
                "49-killed-torn",
                status=Exit.NO,
            ),
            "CL-TORN at the end is normal: that record was never acknowledged by a broker that flushes "
            "synchronously. What lost counts, one that flushes asynchronously may have acknowledged. CL-MID and CL-GAP "
            "are not normal: valid messages stand behind the damage, and a start after a crash deletes them. Save them "
            "first: `rmqtool copy STORE NEW --salvage` makes a new store of every valid message; the bytes that are "
            "none lie in NEW.lost-and-found then, and the exit status is 6.",
            Example(
                "Make it whole. Our recovery cuts nothing but the torn end, and keeps what stands behind damage:",
                "rmqtool recover store --apply",
                "49-killed-torn",
            ),
            Example(
                "Was a broker started before you came? Its recovery may have cut whole messages off. LEFTOVER says "
                "how many, of which topics, and from when to when:",
                "rmqtool recover store --tz UTC",
                "49-recovered",
            ),
            Example(
                "Until new messages overwrite them they can be had back. -b and -e are these two times; messages "
                "before -e are taken, so add a millisecond:",
                "rmqtool cat store/commitlog/00000000000000196608 --carve --count --tz UTC "
                "-b '2024-05-06 13:07:23.261' -e '2024-05-06 13:08:23.390'",
                "49-recovered",
            ),
            "With `--jsonl > cut.jsonl` in the place of `--count`, and no broker running, "
            "`rmqtool produce STORE --jsonl --keep-ids < cut.jsonl` stores them again, at the end of their queues.",
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
            "`rmqtool dump FILE@OFFSET-END` names the bytes there.",
            "Whether the next start cuts the log there depends on the version and on how the last one stopped: "
            "`rmqtool recover STORE` knows. `rmqtool check --explain CODE` explains any code.",
        ),
    ),
    (
        "A queue, an index file or the checkpoint is wrong or gone",
        (
            "These are made from the commit log, and can be made again. First the plan, which writes nothing: "
            "`rmqtool repair STORE`, or `rmqtool repair STORE queues`. With `--apply` it is done, every old byte is "
            "kept in a journal beside the store, and `rmqtool repair STORE --undo last` brings all of it back.",
            Example(
                "The plan for a store whose checkpoint is garbage:",
                "rmqtool repair store",
                "53-broker",
                "checkpoint",
                Exit.NO,
            ),
            Example("Done:", "rmqtool repair store --apply", "53-broker", "checkpoint"),
        ),
    ),
    (
        "All queues are gone, or the commit log seems to be empty",
        (
            Example(
                "If the volume of the commit log is not mounted, a broker that starts deletes every queue. Do not "
                "start it:",
                "rmqtool check store --quick --only ST",
                "53-broker",
                "unmounted",
                Exit.NO,
            ),
            "Mount the volume, then look again with `rmqtool info STORE`.",
        ),
    ),
    (
        "The disk is full",
        (
            Example("Who fills it?", "rmqtool stat store --by topic,tag -n 5 --tz UTC"),
            "That is the log. Queues, index files and timers come on top: `rmqtool info STORE files` lists every file.",
            Example("What goes next, and who has not read it yet?", "rmqtool stat store retention --tz UTC"),
            "What a broker does: above 75 % (diskMaxUsedSpaceRatio) it deletes files of the log that have expired, at "
            "any hour; above 85 % the oldest ones, expired or not, whoever has not read them; above 90 % it takes no "
            "message (SERVICE_NOT_AVAILABLE), and still serves consumers.",
            "It deletes whole files, the oldest first. Never delete a file of "
            "the log by hand while a broker runs, and none from the middle. What a topic alone fills becomes free only "
            "in a new store on another disk: with the broker stopped, `rmqtool copy STORE NEW --purge TOPIC`. Repair, "
            "copy and export look first whether there is room, and write nothing where there is not.",
        ),
    ),
    (
        "Which consumer is behind?",
        (
            Example("Ask the store, whether a broker runs on it or not:", "rmqtool info store groups -g 'G_pop*'"),
            "lag is what the queue holds and the group has not committed. Below stands who is behind, the furthest "
            "first. `rmqtool cat STORE -g GROUP --unread` shows these messages.",
        ),
    ),
    (
        "Find one order",
        (
            Example("By its key:", "rmqtool query store retry-9 -n 1 --tz UTC"),
            Example(
                "And what happened to it: retries, the dead letter queue, who has read it:",
                "rmqtool query store retry-9 -n 1 --history --tz UTC",
            ),
            "An id of either kind, TOPIC/QUEUE@OFFSET or a time does as well. Nothing found with exit status 1 means "
            "that everything was read; with 6, that a part could not be. Without a store, `rmqtool query ID` says what "
            "the id itself says: when, where, by whom.",
        ),
    ),
    (
        "Split a broker",
        (
            Example("Stop it. How much is to move?", "rmqtool stat store --by topic -t 'T_*' --tz UTC"),
            Example(
                "Copy that into a new store, with what still waits for these topics. Queue offsets and the progress "
                "of groups stay; places in the log change, and offset ids with them:",
                "rmqtool copy store new -t 'T_*'",
            ),
            "`rmqtool diff STORE NEW --by message -t 'T_*'` shows that nothing was left behind. Only then take the "
            "topics out of the first one: `rmqtool copy STORE REST --purge 'T_*'` writes the rest into a new store, "
            "without a byte of them; `rmqtool topic STORE delete TOPIC --yes` takes away a topic and its queues in "
            "place, and its messages expire with the log.",
        ),
    ),
    (
        "It was sent, but nobody got it",
        (
            Example(
                "Do all queues hold what the log holds, and does every unit lead to its message?",
                "rmqtool check store --only CQ --tz UTC",
            ),
            "Does it wait for its time, or is its transaction undecided? `rmqtool stat STORE delay` and "
            "`rmqtool stat STORE tx` count both.",
            Example(
                "Was it given up?",
                r"rmqtool cat store -t '%DLQ%*' --template '{topic} {queueOffset} {keys}\n'",
            ),
        ),
    ),
    (
        "A search by key finds nothing after a restart",
        (
            "After a crash, brokers delete the newest index file and index only what they scan again. "
            "`rmqtool query` reads the log where the index ends, so it finds the message anyway.",
            Example(
                "Which keys are in no index file?",
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
                "Parquet, for DuckDB, pandas and Spark. `--engine local` needs no Spark:",
                "rmqtool export store --engine local -t T_normal --to lake --progress never",
            ),
            "`--since-last` adds what is new the next time. `-b 2026-11-01 -e 2026-12-01` exports a month.",
        ),
    ),
    (
        "A store for a test, without a cluster",
        (
            Example("A store of small files:", "rmqtool init new --conf mappedFileSizeCommitLog=1048576"),
            Example(
                "Then messages; the store here has some already:",
                r"rmqtool produce store -t Orders --create --key order-4711 hello"
                r" --template '{status} {topic}/{queueId}@{queueOffset}\n'",
                "49-basic",
            ),
            "A broker of the same version takes such a store over at any moment.",
        ),
    ),
)
