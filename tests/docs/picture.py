"""The picture of a terminal in the README: an SVG of a real run, written by ``make docs``."""

from __future__ import annotations

import html
import io
import re
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

from tests.docs.screens import run_example
from tests.support.browsed import Typist, at_screen, make_shop, masked
from tools.manual.examples import Example

PICTURE = Path(__file__).resolve().parents[2] / "docs" / "check.svg"
BROWSE_PICTURE = PICTURE.with_name("browse.svg")
SHOWN = "rmqtool check store"
_EXAMPLE = Example("", f"{SHOWN} --color always", "53-broker", "flip")
_COLUMNS = 80
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_TEXT = re.compile(r'<text class="[^"]*-r\d+" x="([\d.]+)" y="([\d.]+)"[^>]*>(.*?)</text>')
# Without the web fonts of rich's own template: a page that shows the picture loads nothing else.
_TEMPLATE = """<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: monospace; font-size: {char_height}px; line-height: {line_height}px; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def run_lines() -> list[str]:
    """Run the command of the picture, and return what a terminal shows: the prompt, then lines with ANSI colours."""
    return [f"$ {SHOWN}", *run_example(_EXAMPLE).lines]


def draw(lines: list[str], name: str = "check") -> str:
    """Return the picture of a terminal with these lines."""
    console = Console(file=io.StringIO(), record=True, width=_COLUMNS, force_terminal=True, legacy_windows=False)
    console.print(Text.from_ansi("\n".join(lines)), soft_wrap=True)
    return console.export_svg(title="rmqtool", code_format=_TEMPLATE, unique_id=name)


def words_of(picture: str) -> list[str]:
    """Return the text in a picture, line by line, without colours. Blank lines are left out."""
    rows: dict[float, dict[float, str]] = {}
    for x, y, text in _TEXT.findall(picture):
        rows.setdefault(float(y), {})[float(x)] = html.unescape(text).replace("\xa0", " ")
    joined = [" ".join("".join(part for _, part in sorted(row.items())).split()) for _, row in sorted(rows.items())]
    return [line for line in joined if line]


def plain(lines: list[str]) -> list[str]:
    """Return the lines of a screen as ``words_of`` returns those of a picture."""
    bare = [" ".join(_ANSI.sub("", line).split()) for line in lines]
    return [line for line in bare if line]


def browse_lines() -> list[str]:
    """Return the screen of ``browse`` on a sample store, with ANSI colours: an order with its story."""

    async def play(typist: Typist) -> None:
        await typist.keys("slash")
        await typist.text("order-4711")
        await typist.keys("enter")

    with tempfile.TemporaryDirectory() as home:
        coloured: list[str] = []
        at_screen(make_shop(Path(home) / "store"), play, coloured=coloured)
    return [masked(line) for line in coloured]


def write_picture() -> None:
    """Write the pictures, unless they already show what the commands print today."""
    for path, lines in ((PICTURE, run_lines()), (BROWSE_PICTURE, browse_lines())):
        if not path.exists() or words_of(path.read_text(encoding="utf-8")) != plain(lines):
            path.write_text(draw(lines, path.stem), encoding="utf-8")
