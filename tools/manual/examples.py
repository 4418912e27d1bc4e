"""The examples of the manual: command lines that ``make docs`` runs, and whose output is in the pages.

A command without an entry gets its ``--help`` and the error for a store that does not exist, until it has better ones
here.
"""

from __future__ import annotations

from typing import NamedTuple

from rmqtool.errors import Exit


class Example(NamedTuple):
    """One command line. ``store`` is the fixture that is unpacked as the directory ``store``.

    ``incident`` is the damage done to that store before, by its name in the runner of the examples. A command line that
    ends with another ``status`` is an error.
    """

    says: str
    command: str
    store: str = "53-broker"
    incident: str = ""
    status: Exit = Exit.DONE


EXAMPLES: dict[str, tuple[Example, ...]] = {
    "info": (
        Example("A store at a glance:", "rmqtool info store --tz UTC"),
        Example(
            "Which groups lag? The lag of all groups whose names begin alike:", "rmqtool info store groups -g 'G_*'"
        ),
    ),
    "cat": (
        Example(
            "The first message of a topic, as people read it:",
            "rmqtool cat store -t T_fifo -n 1 --tz UTC",
        ),
        Example("How many messages carry a tag:", "rmqtool cat store -t T_normal --tag TagA --count"),
        Example(
            "A line of your own for each of the last three messages:",
            r"rmqtool cat store -t T_normal -o -3 --template '{topic}/{queueId}@{queueOffset} {keys}\n'",
        ),
    ),
    "query": (
        Example("The record at a place of the log:", "rmqtool query store @0 --tz UTC"),
        Example(
            "A key that was never sent: all places were searched, and the exit status is 1.",
            "rmqtool query store order-4711 -t T_normal --tz UTC",
            status=Exit.NO,
        ),
    ),
    "stat": (
        Example("Who fills the disk?", "rmqtool stat store -n 5 --tz UTC"),
        Example("What goes next, and who has not read it?", "rmqtool stat store retention --tz UTC"),
        Example("How is the log laid out?", "rmqtool stat store --map --tz UTC"),
    ),
    "dump": (
        Example("The checkpoint, byte by byte:", "rmqtool dump store/checkpoint --tz UTC"),
        Example("The first entry of a queue:", "rmqtool dump store/consumequeue/T_normal/0/00000000000000000000@0-20"),
        Example("The checkpoint by its declared layout:", "rmqtool dump store/checkpoint --as-declared"),
    ),
    "browse": (
        Example(
            "A page for a ticket, without bodies and keys; it prints nothing:",
            "rmqtool browse store --html page.html --redact body,keys",
        ),
        Example("Without --html it needs a terminal:", "rmqtool browse store", status=Exit.USAGE),
    ),
    "check": (
        Example("A store whose broker was killed:", "rmqtool check store", "49-killed-torn", status=Exit.NO),
        Example("What a finding means:", "rmqtool check --explain CL-TORN"),
    ),
    "diff": (
        Example(
            "A store and its copy, in which a byte of a body is another one:",
            "rmqtool diff store copy --tz UTC",
            incident="copy",
            status=Exit.SKIPPED,
        ),
        Example(
            "The same as master and slave are compared, by the bytes at each place:",
            "rmqtool diff store copy --by log --summary",
            incident="copy",
            status=Exit.SKIPPED,
        ),
    ),
    "topic": (
        Example("A new topic:", "rmqtool topic store create Orders --queues 4", "49-basic"),
        Example(
            "Nothing is deleted by accident; the exit status is 5.",
            "rmqtool topic store delete one",
            "49-basic",
            status=Exit.REFUSED,
        ),
    ),
    "group": (
        Example(
            "A group whose messages are delivered again three times at most:",
            "rmqtool group store create Billing --set retryMaxTimes=3",
            "49-basic",
        ),
        Example(
            "Nothing is deleted by accident; the exit status is 5.",
            "rmqtool group store delete Billing",
            "49-basic",
            status=Exit.REFUSED,
        ),
    ),
    "serve": (
        Example(
            "A broker for tests, in one line: the command finds it in NAMESRV_ADDR. Here the command is echo:",
            "rmqtool serve --memory --quiet --exec 'echo the broker is up'",
        ),
        Example(
            "The exit status is that of the command:",
            "rmqtool serve --memory --quiet --exec 'exit 3'",
            status=Exit.NOT_A_STORE,
        ),
    ),
    "mirror": (
        Example(
            "No broker answers at this address. The exit status is 9, and no directory is made:",
            "rmqtool mirror 127.0.0.1:1 mirror --once",
            status=Exit.REMOTE,
        ),
        Example(
            "A store that is not a mirror is never written. A wrong value is refused before anything is asked:",
            "rmqtool mirror 127.0.0.1:10911 mirror --from middle",
            status=Exit.USAGE,
        ),
    ),
    "tick": (
        Example(
            "Work that a stopped broker has missed: delays that are over by now.",
            "rmqtool tick store",
            "49-broker",
        ),
        Example(
            "Which messages those are:",
            r"rmqtool tick store --template '{event} {topic}/{queueId} {uniqKey}\n'",
            "49-broker",
        ),
    ),
    "repair": (
        Example("A broker was killed. What must be rebuilt?", "rmqtool repair store", "49-killed", status=Exit.NO),
        Example("Do that:", "rmqtool repair store --apply --tz UTC", "49-killed"),
    ),
    "copy": (
        Example(
            "One topic, and what waits for it, as a store of its own:",
            "rmqtool copy store new -t T_normal",
            "53-broker",
        ),
        Example(
            "Every valid message of a damaged store; the exit status is 6.",
            "rmqtool copy store new --salvage",
            "49-killed-torn",
            status=Exit.SKIPPED,
        ),
    ),
    "recover": (
        Example("A broker was killed; what will its next start do?", "rmqtool recover store", "49-killed-torn"),
        Example("Do better than a broker:", "rmqtool recover store --apply", "49-killed-torn"),
        Example(
            "The store as it was before a mistake:",
            "rmqtool recover store --until 2026-11-18T12:23:26Z --to earlier",
            "49-broker",
        ),
    ),
    "init": (
        Example("An empty store with small files:", "rmqtool init new --conf mappedFileSizeCommitLog=1048576"),
        Example(
            "A directory that is in use is left alone; the exit status is 5.",
            "rmqtool init store",
            status=Exit.REFUSED,
        ),
    ),
    "consume": (
        Example(
            "What a group gets next; nothing is changed, and a broker may run meanwhile:",
            "rmqtool consume store -t T_normal -g G_ok --from 33 -n 3"
            r" --template '{topic}/{queueId}@{queueOffset} {keys}\n'",
        ),
        Example(
            "The same three, consumed: a program takes each, and the group's progress is stored.",
            "rmqtool consume store -t T_normal -g audit --commit -n 3 -j 1"
            """ --exec 'echo "$RMQ_QUEUE_OFFSET of $RMQ_QUEUE_ID"'""",
        ),
        Example(
            "A group that never was; the exit status is 1.",
            "rmqtool consume store -g G_okk",
            status=Exit.NO,
        ),
    ),
    "produce": (
        Example(
            "One message:",
            r"rmqtool produce store -t Orders --create --tag Paid --key order-4711 'forty-two euros'"
            r" --template '{status} {topic}/{queueId}@{queueOffset}\n'",
            "49-basic",
        ),
        Example(
            "The dead letters of a group, back to their topic:",
            r"rmqtool produce store --replay -g G_order --template '{status} {topic}/{queueId}@{queueOffset}\n'",
        ),
        Example(
            "Without a topic nothing is stored; the exit status is 2.",
            "rmqtool produce store hello",
            "49-basic",
            status=Exit.USAGE,
        ),
    ),
    "export": (
        Example("Which columns there are:", "rmqtool export store --schema"),
        Example("What would be read, and as how many tasks:", "rmqtool export store --plan -t T_normal"),
    ),
    "demo": (
        Example("What it takes:", "rmqtool demo --help | head -8"),
        Example("It never writes into an existing directory:", "rmqtool demo store", status=Exit.REFUSED),
    ),
    "man": (
        Example("The beginning of a page:", "rmqtool man check | head -8"),
        Example("What a finding means, and what to type:", "rmqtool man CP-AHEAD"),
        Example("A page that is not there; the exit status is 2.", "rmqtool man fsck", status=Exit.USAGE),
    ),
}


def examples_of(command: str) -> tuple[Example, ...]:
    """Return the examples of a command: its own, or those that any command can have."""
    return EXAMPLES.get(command) or (
        Example("What it takes:", f"rmqtool {command} --help"),
        Example("Where there is no store:", f"rmqtool {command} nowhere", status=Exit.NOT_A_STORE),
    )
