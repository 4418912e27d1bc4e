"""The steps of ``demo``, and the changes to its store that no command makes."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from rmqtool.api.store import opened
from rmqtool.errors import Exit, OptionalMissing

_ORDERS = 200
_DAMAGED_ORDER = "order-4705"
_LOST_QUEUE = "consumequeue/Orders/2"
# From the start of a record; its body begins after 88 bytes of fixed fields.
_INTO_THE_BODY = 100
_SEGMENT = 65536
# As a broker writes it. It is needed because no client subscribes in the demo.
_GROUPS = """{"dataVersion":{"counter":1,"stateVersion":0,"timestamp":0},"subscriptionGroupTable":{"shipping":{
"brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":true,"consumeFromMinEnable":true,"groupName":"shipping",
"groupSysFlag":0,"notifyConsumerIdsChangedEnable":true,"retryMaxTimes":16,"retryQueueNums":1,
"whichBrokerWhenConsumeSlowly":1}}}"""
_QUESTION = """SELECT tags, count(*) AS messages, min(store_timestamp) AS first, max(queue_offset) AS last
FROM parquet.`{lake}` WHERE topic = 'Orders' GROUP BY tags ORDER BY messages DESC, tags LIMIT 4"""


class Step(NamedTuple):
    """One command of the tour, with the exit status it must have; ``act`` does what no command does."""

    says: str
    command: str = ""
    status: Exit = Exit.DONE
    act: str = ""


STEPS = (
    Step(
        "Create an empty store. Small segments make several of them.",
        "init {store} --conf mappedFileSizeCommitLog=65536",
    ),
    Step("", "topic {store} create Orders --queues 4"),
    Step(
        "Send orders with keys and tags, delays, two transactions, a dead letter; then kill the writer.",
        act="live",
    ),
    Step("What is in this store, and is it healthy? The killed writer left the file abort.", "info {store}"),
    Step("Which groups lag?", "info {store} groups"),
    Step("Where is order 4701, and what happened to it?", "query {store} order-4701 -n 1 --history"),
    Step("Which topics fill the disk?", "stat {store} --by topic,tag -n 6"),
    Step("Which messages are delayed, which transactions are undecided?", "stat {store} delay"),
    Step("", "stat {store} tx"),
    Step("How is the log laid out?", "stat {store} --map"),
    Step("What would a broker do at its next start?", "recover {store}", Exit.DONE),
    Step("Recover it with rmqtool's own rules, which lose nothing.", "recover {store} --apply"),
    Step("Deliver the delayed message: its delay is over.", "tick {store}"),
    Step("Is it healthy?", "check {store}"),
    Step(
        "Serve it to RocketMQ clients. Here the client is Python, and a command on the store is one too.", act="serve"
    ),
    Step("Now damage it: change a byte of a message, and delete the files of a queue.", act="damage"),
    Step("check finds both, and says what a broker does about them.", "check {store}", Exit.NO),
    Step(
        "Rehearse what a broker would do at a start now. Nothing is changed.",
        "recover {store}",
        Exit.DONE,
    ),
    Step(
        "Plan a repair. The body of that message is lost, and stays listed.",
        "repair {store}",
        Exit.NO,
    ),
    Step(
        "Apply it. All old bytes are first saved to an undo journal next to the store.",
        "repair {store} --apply",
        Exit.NO,
    ),
    Step("Undo it, byte for byte.", "repair {store} --undo last"),
    Step("Apply it again.", "repair {store} --apply", Exit.NO),
    Step(
        "Export every message as Parquet. The damaged one is left out, and listed next to them.",
        "export {store} --to {lake} --progress never",
        Exit.SKIPPED,
    ),
    Step("Ask a question in SQL.", act="ask"),
)


def live(store: str, say: Callable[[str], None]) -> None:
    from rmqtool.broker import sample_life
    from rmqtool.broker.services.tick import serving

    Path(store, "config", "subscriptionGroup.json").write_text(_GROUPS, encoding="utf-8")
    with opened(store) as listed:
        root, config = listed.root, listed.config
    with serving(root, config) as services:
        sample_life.live(services, _ORDERS)
    say(f"$ rmqtool produce {store} -t Orders --tag late < orders.txt   # and kill -9, in the middle")
    words = [sys.executable, "-m", "rmqtool", "produce", store, "-t", "Orders", "--tag", "late"]
    # The command stores a thousand lines at a time; then it waits for a line that never comes.
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True) as writer:  # noqa: S603  (ourselves)
        assert writer.stdin is not None
        assert writer.stdout is not None
        writer.stdin.writelines(f"late order {number}\n" for number in range(2500))
        writer.stdin.write("the next line ")
        writer.stdin.flush()
        writer.stdout.readline()
        writer.kill()


def serve(store: str, say: Callable[[str], None]) -> None:
    """Serve the store, send a message with the Python client, and consume it with a command that is a client too."""
    from rmqtool.api.cluster import connect
    from rmqtool.api.serve import serve as serving

    with serving(store) as served:
        say(f"$ rmqtool serve {store}   # name server {served.names}")
        with connect(f"rocketmq://{served.names}") as cluster:
            say(">>> cluster = rmqtool.connect('rocketmq://...')")
            say(">>> cluster.produce('Orders', 'by the network', keys='order-9000')")
            sent = cluster.produce("Orders", "by the network", keys="order-9000")
            say(f"{sent.status} {sent.topic}/{sent.queue_id}@{sent.queue_offset}")
        words = ["consume", store, "-g", "network", "-t", "Orders", "--from", "-1m", "--commit"]
        words += ["--template", r"{topic}/{queueId}@{queueOffset} {keys} {body}\n"]
        say(f"$ rmqtool {shlex.join(words)}")
        subprocess.run([sys.executable, "-m", "rmqtool", *words], check=False)  # noqa: S603  (ourselves)


def damage(store: str, say: Callable[[str], None]) -> None:
    from rmqtool.api.query import query

    place = query(store, _DAMAGED_ORDER)["messages"][0]["commitLogOffset"]
    base = place - place % _SEGMENT
    file = Path(store, "commitlog", f"{base:020}")
    at = place - base + _INTO_THE_BODY
    say(f"$ printf X | dd of={file} bs=1 seek={at} conv=notrunc; rm -r {store}/{_LOST_QUEUE}")
    descriptor = os.open(file, os.O_RDWR)
    os.pwrite(descriptor, b"X", at)
    os.close(descriptor)
    for path in sorted(Path(store, _LOST_QUEUE).iterdir()):
        path.unlink()
    Path(store, _LOST_QUEUE).rmdir()


def ask(lake: str, say: Callable[[str], None]) -> None:
    """Run a Spark SQL query over the export, where Spark is installed."""
    import tempfile

    from rmqtool.spark import session

    question = _QUESTION.format(lake=lake)
    for line in question.split("\n"):
        say(line)
    with tempfile.TemporaryFile() as log:
        try:
            spark = session(conf={"spark.sql.session.timeZone": "UTC"}, log=log)
        except OptionalMissing as missing:
            say(f"{missing.message}: DuckDB, pandas and every other reader of Parquet answer it too")
            return
        spark.sql(question).show(truncate=False)
        spark.stop()
