"""The steps of ``rmqtool demo``: what is said, and the command that shows it."""

from __future__ import annotations

from typing import NamedTuple

from rmqtool.errors import Exit


class Step(NamedTuple):
    """One command of the tour, with the exit status it must have; ``act`` is something that no command does."""

    says: str
    command: str = ""
    status: Exit = Exit.DONE
    act: str = ""


STEPS = (
    Step(
        "A new, empty store, with small files so that there are several.",
        "init {store} --conf mappedFileSizeCommitLog=65536",
    ),
    Step("", "topic {store} create Orders --queues 4"),
    Step(
        "Orders with keys and tags, delays, two transactions, a dead letter; then a writer is killed while it writes.",
        act="live",
    ),
    Step("What is this store, and how does it do? The writer left its abort marker.", "info {store}"),
    Step("Who is behind?", "info {store} groups"),
    Step("Where is order 4701, and what happened to it?", "query {store} order-4701 -n 1 --history"),
    Step("Who fills the disk?", "stat {store} --by topic,tag -n 6"),
    Step("What waits for its time, what is undecided?", "stat {store} delay"),
    Step("", "stat {store} tx"),
    Step("What lies where in the log?", "stat {store} --map"),
    Step("What would a broker do at its next start?", "recover {store}", Exit.DONE),
    Step("Close it as a broker should have: our recovery loses nothing.", "recover {store} --apply"),
    Step("What is due now happens: the short delay is over.", "tick {store}"),
    Step("Is it sound?", "check {store}"),
    Step("Now a byte of a message turns, and the files of a queue are lost.", act="damage"),
    Step("check finds both, and says what a broker makes of them.", "check {store}", Exit.NO),
    Step(
        "And this is what a start of a broker would do now. It is a rehearsal: nothing is touched.",
        "recover {store}",
        Exit.DONE,
    ),
    Step(
        "What can be put right? The plan first; the body of that message is lost, and stays named.",
        "repair {store}",
        Exit.NO,
    ),
    Step("Do it. Every old byte goes into a journal beside the store first.", "repair {store} --apply", Exit.NO),
    Step("And take it back, byte for byte.", "repair {store} --undo last"),
    Step("Once more, for good.", "repair {store} --apply", Exit.NO),
    Step(
        "Every message as Parquet. The damaged one is left out, and named beside them.",
        "export {store} --to {lake} --progress never",
        Exit.SKIPPED,
    ),
    Step("A question in SQL.", act="ask"),
)
