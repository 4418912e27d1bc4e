"""What ``make demo`` shows: a tour, one command after the other, each with the exit status it must have.

To extend it, add a step. ``{store}`` stands for a store that a real 5.4.0 broker wrote, unpacked anew.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from rmqtool.errors import Exit
from tests.stores import unpack


class Step(NamedTuple):
    """One command of the tour. ``python`` in it is the interpreter that runs the tour."""

    says: str
    command: str
    status: int = 0
    needs_spark: bool = False


STEPS = (
    Step("What is this store? It was written by a real 5.4.0 broker.", "python -m rmqtool info {store}"),
    Step("Who is behind?", "python -m rmqtool info {store} groups -g G_pop*"),
    Step("What is this record, and who points at it?", "python -m rmqtool dump {store}@0 --refs"),
    Step("And this file?", "python -m rmqtool dump {store}/checkpoint"),
    Step("Show me the messages.", "python -m rmqtool cat {store} -t T_* -n 2"),
    Step("Who fills the disk?", "python -m rmqtool stat {store} --by topic"),
    Step("Where is this message, and what happened to it?", "python -m rmqtool query {store} @0 --history"),
    Step("Is it sound?", "python -m rmqtool check {store}"),
    Step("Is it the same as itself?", "python -m rmqtool diff {store} {store}"),
    Step("What would its broker do at the next start?", "python -m rmqtool recover {store}"),
    Step("A new, empty store.", "python -m rmqtool init {store}-new --conf mappedFileSizeCommitLog=1048576"),
    Step(
        "Messages into it, each on the disk before it is acknowledged.",
        "python -m rmqtool produce {store}-new 'in the beginning' 'and then' -t Greetings --key greeting --flush sync",
    ),
    Step(
        "And one into the real store, which goes on where its broker stopped.",
        "python -m rmqtool produce {store} hello -t Greetings --create",
    ),
    Step(
        "All messages as Parquet, written through Spark.",
        "python -m rmqtool export {store} --to {store}-lake --progress never",
        needs_spark=True,
    ),
    Step(
        "A question in Spark SQL, of the export and of the store itself.",
        "python -m tests.spark.ask {store}-lake {store}",
        needs_spark=True,
    ),
)


def run(step: Step, store: Path) -> bool:
    """Show one step and run it; return whether it ended as it must."""
    print(f"\n# {step.says}\n$ {step.command.format(store=store)}", flush=True)
    words = [sys.executable if word == "python" else word for word in shlex.split(step.command.format(store=store))]
    status = subprocess.run(words, check=False).returncode
    if step.needs_spark and status == Exit.OPTIONAL_MISSING:
        return True  # what is missing, and what to type, was said
    if status != step.status:
        print(f"demo: exit status {status}, expected {step.status}", file=sys.stderr)
    return status == step.status


def main() -> int:
    """Run the tour, up to the first step that does not end as it must."""
    with tempfile.TemporaryDirectory(prefix="rmqtool-demo-") as directory:
        store = unpack("54-broker", Path(directory))
        return 0 if all(run(step, store) for step in STEPS) else 1


if __name__ == "__main__":
    sys.exit(main())
