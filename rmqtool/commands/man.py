"""``rmqtool man``: show the manual, also without man(1)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rmqtool.commands.options import Color, Show, When
from rmqtool.errors import Exit, StoreError, UsageError

if TYPE_CHECKING:
    from rmqtool.render.output import Output

_NAME = "rmqtool"
_WIDEST = 100
_WIDTH = 80


def man(
    page: Annotated[
        str,
        typer.Argument(
            metavar="[PAGE|CODE]",
            help="A command, store, json, remoting, findings or recipes; or the code of a finding: CL-CRC.",
            show_default=False,
        ),
    ] = _NAME,
    *,
    color: Color = When.AUTO,
) -> Exit:
    """Show a page of the manual. It does not need man(1); a terminal shows it with $MANPAGER, $PAGER or less.

    Without PAGE it is `rmqtool`(1). With CODE it explains a finding. The files are normal man pages: `man
    ./rmqtool-check.1` shows them, too.
    """
    from rmqtool.render.output import Output
    from rmqtool.render.roff_reader import man_lines

    look = Show(color=color).look()
    if (found := _find_page(page)) is None:
        return _explain(page, Output(look))
    source = found.read_text(encoding="ascii")
    with Output(look) as output:
        lines = list(man_lines(source, min(look.width or _WIDTH, _WIDEST), output.paint if look.color else None))
        if look.width is None or not _paged("\n".join(lines) + "\n"):
            for line in lines:
                output.line(line)
    return Exit.DONE


def _index_of(code: str) -> str:
    """Return the command that lists what was meant: the codes of findings for a word like one, else the pages."""
    from rmqtool.findings import FAMILIES

    return f"{_NAME} man findings" if code.partition("-")[0].upper() in FAMILIES else f"{_NAME} man"


def _explain(code: str, output: Output) -> Exit:
    """Show what the code of a finding means, as `check --explain` does."""
    from rmqtool.findings import find_code
    from rmqtool.render.check import explain_lines

    entry = find_code(code)
    if entry is None:
        raise UsageError(f'the manual has no page "{code}", and no finding has this code', hint=_index_of(code))
    with output:
        for line in explain_lines(output, entry):
            output.line(line)
    return Exit.DONE


def _find_page(name: str) -> Path | None:
    """Return the file of a page, or None."""
    pages = {re.sub(rf"^{_NAME}-|\.\d$", "", file.name): file for file in _directory().glob(f"{_NAME}*.[1-8]")}
    return pages.get(re.sub(rf"^{_NAME}-|(\.\d|\(\d\))$", "", name.lower()))


def _directory() -> Path:
    """Return the directory of the pages: in the installed package, or next to it in a clone."""
    package = Path(__file__).parent.parent
    for directory in (package / "man", package.parent / "man"):
        if (directory / f"{_NAME}.1").is_file():
            return directory
    raise StoreError(
        "the pages of the manual are not installed",
        file=str(package / "man"),
        hint="install rmqtool again; in a clone: make docs",
    )


def _paged(text: str) -> bool:
    """Show ``text`` through a pager; return whether there is one."""
    words = os.environ.get("MANPAGER") or os.environ.get("PAGER") or shutil.which("less")
    if not words:
        return False
    sys.stdout.flush()
    # Unless the user says otherwise, less shows bold text, and does not wait if the page fits on the screen.
    variables = {"LESS": "FRX", **os.environ}
    try:
        done = subprocess.run(words, input=text, text=True, encoding="utf-8", env=variables, shell=True, check=False)  # noqa: S602  (a pager is a command line)
    except OSError:
        return False
    return done.returncode not in (126, 127)
