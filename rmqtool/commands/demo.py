"""``rmqtool demo``: a guided tour on a store that it creates."""

from __future__ import annotations

import shlex
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rmqtool.commands.options import Color, Show, When
from rmqtool.errors import Exit, Refused

if TYPE_CHECKING:
    from rmqtool.render.output import Output


def demo(
    directory: Annotated[
        str, typer.Argument(metavar="[DIR]", help="A new directory for the store, which is kept.", show_default=False)
    ] = "rmqtool-demo",
    *,
    engine: Annotated[
        str,
        typer.Option(
            "--engine", metavar="spark|local", help="Export with Spark or local; default: Spark if installed."
        ),
    ] = "spark",
    color: Color = When.AUTO,
) -> Exit:
    """Show what rmqtool does in a minute, on a sample store: killed, damaged, checked, repaired, exported.

    Each step is a command that you could type. The store is kept, so that you can try more.
    """
    from rmqtool.api.demo import STEPS

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
    """Show a command line, run it, and return its status; a step is left out if its library is not installed."""
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
    from rmqtool.api import demo

    def say(text: str) -> None:
        output.line(text)
        output.flush()

    acts = {
        "live": partial(demo.live, places["store"]),
        "serve": partial(demo.serve, places["store"]),
        "damage": partial(demo.damage, places["store"]),
        "ask": partial(demo.ask, places["lake"]),
    }
    acts[name](say)
    return Exit.DONE
