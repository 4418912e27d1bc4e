"""Pages for a browser: one style, no external files, nothing that makes a request; readable on paper."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from html import escape

from rmqtool.errors import WriteFailed
from rmqtool.render import text

STYLE = """
:root { --ink: #1c2430; --soft: #5d6b7e; --line: #d9dfe7; --bar: #3b76c4; --back: #ffffff; --warn: #b3372b;
  --mild: #8a6100; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6eaf0; --soft: #9aa7b8; --line: #39424f; --bar: #6ea3e6; --back: #171c23; --warn: #f08a7d;
    --mild: #e0b04c; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 70rem; padding: 2rem 1.5rem 4rem; color: var(--ink); background: var(--back);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 2.5rem 0 .75rem; }
h2, h3, blockquote { overflow-wrap: anywhere; }
h3 { font-size: 1rem; }
p { color: var(--soft); margin: .25rem 0; }
.figures { display: flex; flex-wrap: wrap; gap: 1rem; margin: 1.5rem 0; }
.figure { border: 1px solid var(--line); border-radius: .5rem; padding: .6rem 1rem; min-width: 9rem; }
.figure b { display: block; font-size: 1.35rem; font-variant-numeric: tabular-nums; }
.figure span { color: var(--soft); font-size: .85rem; }
.warn b { color: var(--warn); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top; }
th:first-child, td:first-child { padding-left: 0; }
th:last-child, td:last-child { padding-right: 0; }
th { color: var(--soft); font-weight: 500; white-space: nowrap; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.name { overflow-wrap: anywhere; min-width: 6rem; }
td.time { white-space: nowrap; }
td.bar { width: 28%; min-width: 8rem; }
td.bar div { background: var(--bar); height: .8rem; border-radius: .15rem; min-width: 1px; margin-top: .35rem; }
svg { width: 100%; height: 10rem; display: block; border-bottom: 1px solid var(--line); }
svg rect { fill: var(--bar); }
.error { color: var(--warn); }
.warning { color: var(--mild); }
blockquote { color: var(--soft); margin: .3rem 0 .3rem 1rem; }
pre { overflow-x: auto; font: 12px/1.4 ui-monospace, monospace; margin: .5rem 0; }
code { overflow-wrap: anywhere; }
td.text { overflow-wrap: anywhere; min-width: 5rem; }
details { border-top: 1px solid var(--line); padding: .4rem 0; }
summary { cursor: pointer; overflow-wrap: anywhere; }
input { width: 100%; padding: .5rem; font: inherit; color: inherit; background: transparent;
  border: 1px solid var(--line); border-radius: .3rem; }
.map { font: 12px/1.3 ui-monospace, monospace; overflow-wrap: anywhere; }
.axis { display: flex; flex-wrap: wrap; justify-content: space-between; gap: 0 1rem; font-size: .85rem; }
@media (max-width: 40rem) {
  body { padding: 1.25rem 1rem 3rem; }
  th, td { padding: .3rem; }
  td.bar { width: 16%; min-width: 2.5rem; }
}
""".strip()


def document(title: str, body: Iterable[str], script: str = "") -> str:
    """Return a page. Its policy allows this style and this script only: no request, no other script.

    ``body`` is markup; texts of a store in it are made by ``safe``.
    """
    return "\n".join(_document(safe(title), body, script)) + "\n"


def _document(name: str, body: Iterable[str], script: str) -> Iterator[str]:
    allowed = f"script-src '{_digest(script)}'; " if script else ""
    policy = f"default-src 'none'; {allowed}style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    yield "<!doctype html>"
    yield '<html lang="en"><head><meta charset="utf-8">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>{name}</title><style>{STYLE}</style></head><body>"
    yield from body
    if script:
        yield f"<script>{script}</script>"
    yield "</body></html>"


def _digest(script: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")


def safe(words: str) -> str:
    """Return a text as markup that shows it: control characters are spelled out, and no tag is left."""
    return escape(text.neutral(words))


def figures(rows: Iterable[tuple[str, str, str]]) -> Iterator[str]:
    """Yield boxes with a figure, its label, and a class."""
    yield '<div class="figures">'
    for figure, label, style in rows:
        yield f'<div class="figure{style}"><b>{safe(figure)}</b><span>{safe(label)}</span></div>'
    yield "</div>"


def table(heads: Iterable[str], rows: Iterable[Iterable[str]], numbers: frozenset[int] = frozenset()) -> Iterator[str]:
    """Yield a table of texts; ``numbers`` are the columns of figures."""

    def kind(place: int) -> str:
        return "number" if place in numbers else "text"

    titles = "".join(f'<th class="{kind(place)}">{safe(head)}</th>' for place, head in enumerate(heads))
    yield f'<div class="scroll"><table><tr>{titles}</tr>'
    for row in rows:
        cells = "".join(f'<td class="{kind(place)}">{safe(cell)}</td>' for place, cell in enumerate(row))
        yield f"<tr>{cells}</tr>"
    yield "</table></div>"


def write_page(path: str, text: str, option: str) -> None:
    """Write the page to a temporary file first, so that it appears whole or not at all; ``option`` named the path."""
    beside = f"{path}.part"
    try:
        with open(beside, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(beside, path)
    except OSError as error:
        with suppress(OSError):
            os.unlink(beside)
        raise WriteFailed(
            f"{path} cannot be written: {error.strerror}", file=path, hint=f"name another place for {option}"
        ) from error
