"""``rmqtool demo``: a guided tour on a store that it makes."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rmqtool.commands.options import AsBroker, Color, Show, When
from rmqtool.errors import Exit, OptionalMissing, Refused

if TYPE_CHECKING:
    from rmqtool.render.output import Output

_ORDERS = 200
_DAMAGED_ORDER = "order-4705"
_LOST_QUEUE = "consumequeue/Orders/2"
# Behind the lengths and places of a record stands its body.
_INTO_THE_BODY = 100
_SEGMENT = 65536
# As a broker writes it: nobody subscribes here, so nobody else does.
_GROUPS = """{"dataVersion":{"counter":1,"stateVersion":0,"timestamp":0},"subscriptionGroupTable":{"shipping":{
"brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":true,"consumeFromMinEnable":true,"groupName":"shipping",
"groupSysFlag":0,"notifyConsumerIdsChangedEnable":true,"retryMaxTimes":16,"retryQueueNums":1,
"whichBrokerWhenConsumeSlowly":1}}}"""
_QUESTION = """SELECT tags, count(*) AS messages, min(store_timestamp) AS first, max(queue_offset) AS last
FROM parquet.`{lake}` WHERE topic = 'Orders' GROUP BY tags ORDER BY messages DESC, tags LIMIT 4"""


def demo(
    directory: Annotated[
        str, typer.Argument(metavar="[DIR]", help="A new directory for the store, which stays.", show_default=False)
    ] = "rmqtool-demo",
    *,
    engine: Annotated[
        str, typer.Option("--engine", metavar="spark|local", help="Who exports; without Spark it is local.")
    ] = "spark",
    color: Color = When.AUTO,
) -> Exit:
    """Show in a minute what rmqtool does, on a store that it makes: killed, damaged, judged, repaired, exported.

    Each step is a command that you could type; the store stays, to be played with.
    """
    from rmqtool.commands.demo_steps import STEPS

    root = Path(directory)
    if root.exists() and any(root.iterdir() if root.is_dir() else [root]):
        raise Refused(f"{directory} exists already", file=directory, hint=f"rm -r {shlex.quote(directory)}")
    places = {"store": str(root / "store"), "lake": str(root / "lake")}
    with Show(color=color).output() as output:
        for step in STEPS:
            if step.says:
                output.line("")
                output.line(output.paint(f"# {step.says}", "title"))
            status = _act(output, step.act, places) if step.act else _run(output, step.command, places, engine)
            if status != step.status:
                output.note(f"the demo expected exit status {step.status.value} here, not {status}")
                return Exit.NO
        output.line("")
        output.line(f"The store is in {places['store']}; its own page of the manual: rmqtool man store")
    return Exit.DONE


def _run(output: Output, command: str, places: dict[str, str], engine: str) -> int:
    """Show a command line, run it, and return its status; what is not installed is done without."""
    words = [word.format(**places) for word in command.split()]
    if words[0] == "export":
        words += ["--engine", engine]
    output.line(f"$ rmqtool {shlex.join(words)}")
    output.flush()
    status = subprocess.run([sys.executable, "-m", "rmqtool", *words], check=False).returncode  # noqa: S603  (ourselves)
    if status == Exit.OPTIONAL_MISSING and engine == "spark":
        return _run(output, command, places, "local")
    return status


def _act(output: Output, name: str, places: dict[str, str]) -> Exit:
    acts: dict[str, Callable[[], None]] = {
        "live": partial(_live, output, places["store"]),
        "damage": partial(_damage, output, places["store"]),
        "ask": partial(_ask, output, places["lake"]),
    }
    acts[name]()
    return Exit.DONE


def _live(output: Output, store: str) -> None:
    from rmqtool.broker.sample_life import live
    from rmqtool.commands.serving import serving

    Path(store, "config", "subscriptionGroup.json").write_text(_GROUPS, encoding="utf-8")
    with serving(store, AsBroker()) as services:
        live(services, _ORDERS)
    output.line(f"$ rmqtool produce {store} -t Orders --tag late < orders.txt   # and kill -9, in the middle")
    output.flush()
    words = [sys.executable, "-m", "rmqtool", "produce", store, "-t", "Orders", "--tag", "late"]
    # It stores a thousand lines at a time, and shows them when there are enough; for the next one it waits in vain.
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True) as writer:  # noqa: S603  (ourselves)
        assert writer.stdin is not None
        assert writer.stdout is not None
        writer.stdin.writelines(f"late order {number}\n" for number in range(2500))
        writer.stdin.write("the next line ")
        writer.stdin.flush()
        writer.stdout.readline()
        writer.kill()


def _damage(output: Output, store: str) -> None:
    from rmqtool.library import query

    place = query(store, _DAMAGED_ORDER)["messages"][0]["commitLogOffset"]
    base = place - place % _SEGMENT
    file = Path(store, "commitlog", f"{base:020}")
    at = place - base + _INTO_THE_BODY
    output.line(f"$ printf X | dd of={file} bs=1 seek={at} conv=notrunc; rm -r {store}/{_LOST_QUEUE}")
    descriptor = os.open(file, os.O_RDWR)
    os.pwrite(descriptor, b"X", at)
    os.close(descriptor)
    for path in sorted(Path(store, _LOST_QUEUE).iterdir()):
        path.unlink()
    Path(store, _LOST_QUEUE).rmdir()


def _ask(output: Output, lake: str) -> None:
    """Ask the export in Spark SQL, where there is Spark."""
    import tempfile

    from rmqtool.spark import session

    question = _QUESTION.format(lake=lake)
    for line in question.split("\n"):
        output.line(line)
    output.flush()
    with tempfile.TemporaryFile() as log:
        try:
            spark = session(conf={"spark.sql.session.timeZone": "UTC"}, log=log)
        except OptionalMissing as missing:
            output.note(f"{missing.message}: DuckDB, pandas and every other reader of Parquet answer it too")
            return
        spark.sql(question).show(truncate=False)
        spark.stop()
