"""Text for screens: control characters are spelled out; numbers, sizes and times look the same everywhere.

Bodies, topics, keys and file names come from a store that others may have written: a terminal must not obey them and a
spreadsheet must not compute them.

Also the few styles of screens, so that one meaning has one colour. Every screen is also readable without colour.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo

from rich.color import ColorSystem
from rich.style import Style

_STYLES = {
    "error": Style.parse("bold red"),
    "warning": Style.parse("yellow"),
    "notice": Style.parse("cyan"),
    "good": Style.parse("green"),
    "title": Style.parse("bold"),
    "command": Style.parse("bold cyan"),
    "dim": Style.parse("dim"),
}


def paint(text: str, style: str) -> str:
    """Return ``text`` in ``style`` for a terminal of sixteen colours."""
    return _STYLES[style].render(text, color_system=ColorSystem.STANDARD)


ELLIPSIS = "…"

# Control characters (C0, DEL, C1), line and paragraph separators, marks that turn the direction of text, and halves of
# surrogate pairs, which no terminal can show.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")
_NAMED = {"\t": "\\t", "\n": "\\n", "\r": "\\r"}
_FORMULA = re.compile(r"[\t\r\n]|\s*[=+\-@＝＋－＠]")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NARROWEST = 20
_BLANK_AND_WORD = re.compile(r"([ \t\n]*)([^ \t\n]+)")
_BYTES_PER_LINE = 16
_HALF_LINE = len("00 " * 8) - 1


def neutral(text: str, keep: str = "") -> str:
    """Return ``text`` with everything that a terminal might obey spelled out: ESC becomes ``\\x1b``.

    Characters in ``keep`` stay: ``"\\n\\t"`` for a body that is shown on lines of its own.
    """
    if text.isascii() and text.isprintable():
        return text
    return _UNSAFE.sub(lambda match: match[0] if match[0] in keep else _spelled(match[0]), text)


def _spelled(c: str) -> str:
    return _NAMED.get(c) or (f"\\x{ord(c):02x}" if ord(c) < 0x100 else f"\\u{ord(c):04x}")


def display_width(text: str) -> int:
    """Return how many cells ``text`` fills on a terminal: two for wide characters, none for combining ones."""
    if text.isascii():
        return len(text)
    return sum(map(_cells, text))


def _cells(c: str) -> int:
    if unicodedata.east_asian_width(c) in "WF":
        return 2
    return 0 if unicodedata.category(c) in ("Mn", "Me", "Cf") else 1


def cut(text: str, width: int, *, middle: bool = False, tail: int | None = None) -> str:
    """Return ``text`` in at most ``width`` cells, with an ellipsis for the removed part: the end, or the middle.

    ``tail`` is the number of cells kept at the end.
    """
    if display_width(text) <= width:
        return text
    room = width - 1
    if room < 1:
        return ELLIPSIS[:width]
    tail = min(tail, room) if tail is not None else room // 2 if middle else 0
    head = _first_cells(text, room - tail)
    # A zero-width character belongs to the character before it, so a tail must not begin with one.
    end = _first_cells(text[::-1], tail)[::-1].lstrip("".join(c for c in text if not c.isascii() and not _cells(c)))
    return head + ELLIPSIS + end


def _first_cells(text: str, width: int) -> str:
    used = 0
    for at, c in enumerate(text):
        used += _cells(c)
        if used > width:
            return text[:at]
    return text


def guard_formula(text: str) -> str:
    """Return ``text`` so that a spreadsheet does not compute it: a formula gets an apostrophe in front."""
    return "'" + text if _FORMULA.match(text) else text


def count(number: int) -> str:
    """Return a number of things, in groups of three digits: ``41,220,118``."""
    return f"{number:,}"


def counted(number: int, one: str, many: str = "") -> str:
    """Return a number with what it counts: ``1 message``, ``41,220,118 messages``; without ``many`` an s makes it."""
    return f"{count(number)} {one if number == 1 else many or one + 's'}"


def size(number: int) -> str:
    """Return a number of bytes in the largest unit that leaves at least one: ``31.2 GiB``."""
    value = float(abs(number))
    sign = "-" if number < 0 else ""
    if value < 1024:
        return f"{number} B"
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        value /= 1024
        if round(value, 1) < 1024:
            return f"{sign}{value:.1f} {unit}"
    return f"{sign}{value / 1024:.1f} PiB"


def duration(milliseconds: int) -> str:
    """Return a span of time in its two largest units: ``850 ms``, ``12.3 s``, ``3 h 20 min``, ``4 d 3 h``."""
    if milliseconds < 0:
        return "-" + duration(-milliseconds)
    if milliseconds < 1000:
        return f"{milliseconds} ms"
    if milliseconds < 59_950:
        return f"{milliseconds / 1000:.1f} s"
    seconds = round(milliseconds / 1000)
    for large, small, unit, below in ((60, 1, "min", 3600), (3600, 60, "h", 86_400)):
        if seconds < below:
            rest = seconds % large // small
            return f"{seconds // large} {unit}" + (f" {rest} {'s' if small == 1 else 'min'}" if rest else "")
    hours = seconds % 86_400 // 3600
    return f"{seconds // 86_400} d" + (f" {hours} h" if hours else "")


def timestamp(timestamp_ms: int, zone: tzinfo | None = None) -> str:
    """Return a moment for people, with milliseconds and zone; None is the machine's own zone.

    A value outside the calendar (a damaged field) is shown as a number.
    """
    try:
        moment = (_EPOCH + timedelta(milliseconds=timestamp_ms)).astimezone(zone)
    except (OverflowError, ValueError, OSError):
        return f"{timestamp_ms} ms"
    # Not strftime: its years before 1000 are not padded.
    text = moment.isoformat(" ", "milliseconds")
    return f"{text[:23]} {text[23:29]}"


def hanging(text: str, width: int | None, indent: int) -> list[str]:
    """Return ``text`` broken into lines of at most ``width`` cells, all but the first indented.

    A word is cut only if no line can hold it: a path with a long topic in it. A no-break space keeps two words together
    and is shown as a space.
    """
    if width is None or display_width(text) <= width:
        return [text.replace("\u00a0", " ")]
    return wrapped(text, max(width, indent + _NARROWEST), ("", " " * indent))


def wrapped(text: str, width: int, indents: tuple[str, str], *, cut_words: bool = True) -> list[str]:
    """Return ``text`` in lines of at most ``width`` cells; ``indents`` begin the first and all other lines.

    textwrap is not used: it counts characters, and a wide one takes two cells.
    """
    lines: list[str] = []
    line, used, is_begun = indents[0], display_width(indents[0]), False
    room = width - display_width(indents[1])
    for blank, word in _BLANK_AND_WORD.findall(text):
        cells = display_width(word)
        if is_begun and used + len(blank) + cells <= width:
            line, used = line + blank + word, used + len(blank) + cells
            continue
        if is_begun and cut_words and cells > room and used + len(blank) < width:
            line, used = line + blank, used + len(blank)
        elif is_begun:
            lines.append(line)
            line, used = indents[1], display_width(indents[1])
        elif not lines:  # blanks at the very beginning belong to the text
            line, used = line + blank, used + len(blank)
        rest = word
        while cut_words and cells > room and used + cells > width:
            head = _first_cells(rest, width - used) or rest[:1]
            lines.append(line + head)
            rest = rest[len(head) :]
            cells, line, used = display_width(rest), indents[1], display_width(indents[1])
        line, used, is_begun = line + rest, used + cells, True
    if is_begun or not lines:
        lines.append(line)
    return [one.replace("\u00a0", " ") for one in lines]


def hex_lines(data: bytes | memoryview, file_offset: int = 0) -> Iterator[str]:
    """Yield ``data`` as lines of offset, sixteen bytes in hex, and their ASCII characters."""
    for start in range(0, len(data), _BYTES_PER_LINE):
        row = bytes(data[start : start + _BYTES_PER_LINE])
        halves = "  ".join(half.hex(" ").ljust(_HALF_LINE) for half in (row[:8], row[8:]))
        ascii_ = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in row)
        yield f"{file_offset + start:08x}  {halves}  |{ascii_}|"
