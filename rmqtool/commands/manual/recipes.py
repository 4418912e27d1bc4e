"""The recipes: an incident, and the steps from it. A step is a text, or a command that ``make docs`` runs."""

from __future__ import annotations

from rmqtool.commands.manual.examples import Example
from rmqtool.errors import Exit

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
                "The exit status is 0 when it would come up and lose no message:",
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
            "`rmqtool recover STORE --to DIR` writes the store as that broker would leave it into a new directory, to "
            "look at before it happens. `--as` asks another version.",
        ),
    ),
    (
        "Messages vanished after a power cut",
        (
            Example(
                "Look at what the log still holds, and where it ends:",
                "rmqtool check store",
                "49-killed-torn",
                status=Exit.NO,
            ),
            "CL-TORN at the end is normal: that record was never acknowledged by a broker that flushes "
            "synchronously. CL-MID and CL-GAP are not: valid messages stand behind the damage, and a start after a "
            "crash deletes them. Save them first: "
            "`rmqtool cat STORE --jsonl > saved.jsonl`. Damaged places are lines of their own in that file, and the "
            "exit status is 6 if there are any. `rmqtool produce NEW --jsonl < saved.jsonl` stores the messages again, "
            "in a store made by `rmqtool init`.",
            Example(
                "Make it whole. Our recovery cuts nothing but the torn end, and keeps what stands behind damage:",
                "rmqtool recover store --apply",
                "49-killed-torn",
            ),
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
            "kept in a journal beside the store, and `rmqtool repair --undo DIR` brings all of it back.",
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
            Example("What goes next, and who has not read it yet?", "rmqtool stat store retention --tz UTC"),
            "A broker deletes whole files of the log, the oldest first, whoever has read them. Never delete a file of "
            "the log by hand while a broker runs, and none from the middle.",
        ),
    ),
    (
        "Which consumer is behind?",
        (
            Example("Ask the store, whether a broker runs on it or not:", "rmqtool info store groups -g 'G_pop*'"),
            "lag is what the queue holds and the group has not committed. `rmqtool cat STORE -g GROUP --unread` shows "
            "these messages.",
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
            "Stop it, and make the second store: `rmqtool init NEW`. What is to move is read from one and stored into "
            "the other: `rmqtool cat STORE -t 'Orders*' --jsonl` into `rmqtool produce NEW --jsonl --create`. The "
            "messages get new places, ids and store times there; keys, tags, properties and bodies stay.",
            Example("How much is that?", "rmqtool stat store --by topic -t 'T_*' --tz UTC"),
            "`rmqtool diff STORE NEW --by message -t 'Orders*'` shows that nothing was left behind. Only then delete "
            "the topics in the first one: `rmqtool topic STORE delete TOPIC`.",
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
                r"rmqtool produce store -t Orders --key order-4711 hello"
                r" --template '{status} {topic}/{queueId}@{queueOffset}\n'",
                "49-basic",
            ),
            "A broker of the same version takes such a store over at any moment.",
        ),
    ),
)
