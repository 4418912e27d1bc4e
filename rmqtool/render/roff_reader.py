"""Pages of the manual on any terminal: reads the roff that ``tools.manual.roff`` writes, and nothing more."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from rmqtool.render.text import display_width

_INDENT = 7
_INNER = 3
_TERM = 8
_BOLD, _PLAIN = "\ue000", "\ue001"
_MARKS = {"\\fB": _BOLD, "\\fR": _PLAIN, "\\-": "-", "\\e": "\\", "\\&": ""}
_NAMED = {"aq": "'", "ga": "`", "ha": "^", "ti": "~", "dq": '"'}
_ESCAPE = re.compile(r"\\(?:f[BR]|-|e|&|\((..)|\[u([0-9A-F]{4,6})\])")

Paint = Callable[[str, str], str]


def man_lines(source: str, width: int, paint: Paint | None = None) -> Iterator[str]:
    """Yield the page ``source`` as lines of at most ``width`` cells; examples of screens keep their width."""
    return (_painted(line, paint) for line in _Reader(width).read(source))


class _Reader:
    def __init__(self, width: int) -> None:
        self.width = width
        self.indent = _INDENT
        self.words: list[str] = []
        self.literal = False
        self.term_is_next = False
        self.term = ""
        self.is_first = False
        self.footer = ""

    def read(self, source: str) -> Iterator[str]:
        for line in source.splitlines():
            if line.startswith("."):
                yield from self._request(line)
                continue
            self.is_first = False
            if self.literal:
                yield (" " * self.indent + _plain(line)).rstrip()
            elif self.term_is_next:
                self.term_is_next = False
                self.term = _plain(line)
                self.indent = _INDENT + _TERM
            else:
                self.words += _plain(line).split()
        yield from self._fill()
        yield from ("", self.footer)

    def _request(self, line: str) -> Iterator[str]:
        name, _, rest = line[1:].partition(" ")
        yield from self._fill()
        follows_title, self.is_first = self.is_first, name in ("SH", "SS")
        if name == "TH":
            yield self._title(rest)
        elif name in ("SH", "SS"):
            self.indent = _INDENT
            yield from ("", " " * (_INNER if name == "SS" else 0) + _BOLD + _plain(rest.strip('"')) + _PLAIN)
        elif name in ("PP", "TP"):
            self.indent = _INDENT
            self.term_is_next = name == "TP"
            yield from () if follows_title else ("",)
        elif name == "sp":
            yield ""
        elif name == "in":
            self.indent = int(rest) if rest else _INDENT
        elif name in ("nf", "fi"):
            self.literal = name == "nf"
        elif name != '\\"':
            raise ValueError(f"{line!r} is not roff that the manual uses")

    def _title(self, rest: str) -> str:
        name, number, date, source, manual = [
            one or other for one, other in re.findall(r'"([^"]*)"|(\S+)', rest.replace("\\-", "-"))
        ]
        head = f"{name}({number})"
        self.footer = f"{source}{date:^{max(self.width - len(source) - len(head), 0)}}{head}"
        return f"{head}{manual:^{max(self.width - 2 * len(head), 0)}}{head}"

    def _fill(self) -> Iterator[str]:
        words, self.words = self.words, []
        term, self.term = self.term, ""
        first = " " * self.indent
        if term:
            first = " " * _INDENT + term + " " * (_TERM - _cells(term))
            if _cells(term) >= _TERM or not words:
                yield " " * _INDENT + term
                first = " " * self.indent
        line, used = "", 0
        for word in words:
            cells = _cells(word)
            if line and self.indent + used + 1 + cells > self.width:
                yield first + line
                first = " " * self.indent
                # Bold at the end of a line continues on the next one.
                line, used = (_BOLD if line.rfind(_BOLD) > line.rfind(_PLAIN) else ""), -1
            line += (" " if used > 0 else "") + word
            used += 1 + cells if used else cells
        if line:
            yield first + line


def _cells(text: str) -> int:
    return display_width(text.replace(_BOLD, "").replace(_PLAIN, ""))


def _plain(text: str) -> str:
    """Return a source line without its escapes; bold is between marks."""
    return _ESCAPE.sub(_character, text)


def _character(match: re.Match[str]) -> str:
    if match[1]:
        return _NAMED[match[1]]
    return chr(int(match[2], 16)) if match[2] else _MARKS[match[0]]


def _painted(line: str, paint: Paint | None) -> str:
    if _BOLD not in line:
        return line.replace(_PLAIN, "")

    def bold(match: re.Match[str]) -> str:
        return paint(match[1], "title") if paint and match[1] else match[1]

    return re.sub(f"{_BOLD}([^{_BOLD}{_PLAIN}]*){_PLAIN}?", bold, line).replace(_PLAIN, "")
