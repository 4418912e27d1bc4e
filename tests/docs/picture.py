"""The picture of a terminal in the README: an SVG of a real run, written by ``make docs``."""

from __future__ import annotations

import html
import io
import re
from pathlib import Path

from rich.console import Console
from rich.text import Text

from tests.docs.screens import run_example
from tools.manual.examples import Example

PICTURE = Path(__file__).resolve().parents[2] / "docs" / "check.svg"
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


def draw(lines: list[str]) -> str:
    """Return the picture of a terminal with these lines."""
    console = Console(file=io.StringIO(), record=True, width=_COLUMNS, force_terminal=True, legacy_windows=False)
    console.print(Text.from_ansi("\n".join(lines)), soft_wrap=True)
    return console.export_svg(title="rmqtool", code_format=_TEMPLATE, unique_id="check")


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


def write_picture() -> None:
    """Write the picture, unless it already shows what the command prints today."""
    lines = run_lines()
    if not PICTURE.exists() or words_of(PICTURE.read_text(encoding="utf-8")) != plain(lines):
        PICTURE.write_text(draw(lines), encoding="utf-8")
