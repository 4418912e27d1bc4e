"""Output: the place where a command writes its result. The mode decides how a result is spelled.

The result goes to stdout, notes go to stderr. For people a terminal changes only colour and width. For programs the
result is exact; only a terminal gets control characters spelled out (in JSON by an equal spelling).
"""

from __future__ import annotations

import csv
import fcntl
import json
import re
import shutil
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from datetime import tzinfo
from enum import StrEnum
from itertools import islice
from types import TracebackType
from typing import IO, Protocol, Self

from rmqtool.errors import NO_OUTPUT, WriteFailed
from rmqtool.render.tables import Column, lay_out
from rmqtool.render.template import Template
from rmqtool.render.text import guard_formula, hanging, neutral, timestamp

Row = Mapping[str, object]
Screen = Callable[[Row], Iterable[str]]

_CHUNK = 1 << 16
# The largest pipe that any user may have, as Linux is delivered.
_PIPE = 1 << 20
_NOTE_INDENT = 2
# Characters that JSON allows unescaped and a terminal might obey.
_UNSAFE_IN_JSON = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")

# Characters that a program showing a table might obey. Line ends and tabs are quoted by the rules of CSV.
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


# One spelling of JSON for all commands. allow_nan: NaN is not JSON.
_to_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=_plain).encode


class Mode(StrEnum):
    """How results are spelled."""

    HUMAN = "human"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"
    TEMPLATE = "template"


@dataclass(frozen=True, slots=True)
class Look:
    """The common options about output. With ``width`` None lines are not broken."""

    mode: Mode = Mode.HUMAN
    template: str | None = None
    color: bool = False
    width: int | None = None
    zone: tzinfo | None = None
    verbose: int = 0
    quiet: bool = False


class Bar(Protocol):
    """Something that draws on the terminal where others want to write."""

    def paused(self) -> AbstractContextManager[None]:
        """Return a context in which nothing is drawn."""

    def finish(self) -> None:
        """Stop drawing and give the cursor back."""


class Output:
    """Writes results to stdout and notes to stderr. Used as a context: leaving it ends the JSON array and flushes."""

    def __init__(self, look: Look, stdout: IO[bytes] | None = None, stderr: IO[str] | None = None) -> None:
        self.look = look
        self._stdout = stdout
        self._stderr = stderr
        self._pending: list[bytes | bytearray | memoryview] = []
        self._pending_size = 0
        self._in_array = False
        self._wrote_object = False
        self._header: tuple[str, ...] | None = None
        self._template = Template(look.template) if look.template is not None else None
        self._is_terminal = self._bytes_out().isatty()
        self._is_widened = False
        self._bar: Bar | None = None
        # The store as it was typed: the places of findings begin with it.
        self.store = ""
        self._held_notes: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.finish()
        if isinstance(raised, BrokenPipeError):
            return
        if self.look.mode is Mode.JSON and (self._in_array or (raised is None and not self._wrote_object)):
            self._write(b"\n]\n" if self._in_array else b"[]\n")
            self._in_array = False
        self.flush()
        if raised is None:
            for text in self._held_notes:
                self._say(text)

    @property
    def is_human(self) -> bool:
        """Whether people read the result, so that text around it belongs on stdout."""
        return self.look.mode is Mode.HUMAN

    def expect(self, fields: Iterable[str]) -> None:
        """Refuse a template with a name that is not in ``fields``: for a command that writes, before it does."""
        if self._template is not None:
            self._template.check(tuple(fields))

    def rows(self, rows: Iterable[Row], fields: Collection[str], screen: Screen, limit: int | None = None) -> int:
        """Write a stream of mappings, at most ``limit``, and return how many.

        ``fields`` names the keys in order: the columns of CSV, the names in a template. ``screen`` returns the lines of
        one row for people. May be called again for more rows.
        """
        taken = iter(rows)
        wanted = taken if limit is None else islice(taken, limit)
        shown = self._spell_rows(wanted, tuple(fields), screen)
        if limit is not None and shown == limit and next(taken, None) is not None:
            self.note(f"stopped after {limit} (--limit); there is more")
        self._settle()
        return shown

    def table(self, rows: Iterable[Row], columns: Collection[Column], limit: int | None = None, empty: str = "") -> int:
        """Write the rows of a table and return how many; ``empty`` is shown to people if there are no rows."""
        fields = [column.key for column in columns]
        if not self.is_human:
            return self.rows(rows, fields, _no_screen, limit)
        kept: list[Row] = []

        def keep(row: Row) -> Iterable[str]:
            kept.append(row)
            return ()

        shown = self.rows(rows, fields, keep, limit)
        if kept:
            for line in self.table_lines(kept, columns):
                self.line(line)
        elif empty:
            self.line(empty)
        return shown

    def table_lines(self, rows: Iterable[Row], columns: Collection[Column]) -> list[str]:
        """Return a table as lines, in this output's width and zone, for a screen with several parts."""
        return lay_out(rows, columns, width=self.look.width, zone=self.look.zone, paint=self.paint)

    def single(
        self, value: Row, screen: Iterable[str], rows: Iterable[Row] = (), columns: Collection[Column] = ()
    ) -> None:
        """Write one object, not in an array. CSV and templates show its ``rows`` if ``columns`` are given."""
        mode = self.look.mode
        if mode is Mode.HUMAN:
            for line in screen:
                self.line(line)
        elif mode in (Mode.JSON, Mode.JSONL):
            self._wrote_object = True
            self._write_text(self._json(value) + "\n")
        elif columns:
            self.table(rows, columns)
        else:
            self.rows([value], tuple(value), _no_screen)
        self._settle()

    def long_single(self, head: Row, key: str, members: Iterable[Row]) -> None:
        """Write one object whose last member ``key`` is an array too long to hold; for the two JSON modes."""
        self._wrote_object = True
        self._write_text(self._json(head)[:-1] + f', "{key}": [')
        comma = ", " if self.look.mode is Mode.JSONL else ",\n"
        between = ""
        for member in members:
            self._write_text(between + self._json(member))
            between = comma
        self._write_text("]}\n")
        self._settle()

    def aside(self, value: Row, text: str) -> None:
        """Write a line of another shape among rows: damage, a summary. With CSV or a template it is a note."""
        mode = self.look.mode
        if mode is Mode.HUMAN:
            self.line(text)
        elif mode in (Mode.CSV, Mode.TEMPLATE):
            self.note(text)
        else:
            self._spell_json([value])
        self._settle()

    def json_lines(self, chunks: Iterable[bytes | bytearray | memoryview]) -> None:
        """Write rows that are lines of JSON already: whole lines, UTF-8. Only for the two JSON modes."""
        if not self._is_widened:
            self._is_widened = True
            _widen_pipe(self._bytes_out())
        for chunk in chunks:
            lines = _for_terminal(str(chunk, "utf-8")).encode("utf-8") if self._is_terminal else chunk
            if self.look.mode is Mode.JSON:
                self._write(b",\n" if self._in_array else b"[\n")
                self._in_array = True
                lines = bytes(lines).rstrip(b"\n").replace(b"\n", b",\n")
            self._write(lines)
        self._settle()

    def raw(self, data: bytes) -> None:
        """Write binary data as it is. Never to a terminal: it might obey the bytes."""
        assert not self._is_terminal, "raw bytes on a terminal"
        self._write(data)

    def line(self, text: str = "") -> None:
        """Write one line for people; in any other mode do nothing.

        The text is ours: anything from a store in it has gone through ``neutral`` before.
        """
        if self.is_human:
            self._write_text(text + "\n")

    def note(self, text: str, following: str | None = None) -> None:
        """Write a note about the run to stderr, unless ``--quiet``; for people, the ``following`` command to type.

        With JSON it waits for the end, and is dropped if there is an error: then stderr is the error's one object.
        """
        if self.look.quiet:
            return
        if self.look.mode in (Mode.JSON, Mode.JSONL):
            self._held_notes.append(text)
        else:
            command = [] if following is None else [f"Next: {neutral(following)}"]
            self._say("\n".join([*hanging(text, self.look.width, 2), *command]))

    def detail(self, text: str, level: int = 1) -> None:
        """Write a note to stderr that only ``-v`` (``level`` times) shows."""
        if self.look.verbose >= level:
            self._say(text)

    def paint(self, text: str, style: str) -> str:
        """Return ``text`` in one of the styles of ``text``, or as it is without colour."""
        if not self.look.color:
            return text
        from rmqtool.render.text import paint

        return paint(text, style)

    def time(self, timestamp_ms: int) -> str:
        """Return a moment for people in the zone of ``--tz``."""
        return timestamp(timestamp_ms, self.look.zone)

    def beside(self, bar: Bar) -> None:
        """Take turns with a progress bar on the same terminal; the bar ends when this output ends, also by an error."""
        self._bar = bar

    def flush(self) -> None:
        """Write everything out now: between batches of a stream that may pause."""
        with self._bar.paused() if self._bar is not None and self._is_terminal else nullcontext():
            self._flush()

    def _flush(self) -> None:
        out = self._bytes_out()
        try:
            if self._pending:
                out.write(self._pending[0] if len(self._pending) == 1 else b"".join(self._pending))
                self._pending.clear()
                self._pending_size = 0
            out.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            self._pending.clear()
            raise WriteFailed(
                f"the result could not be written to standard output: {error.strerror}", hint=NO_OUTPUT
            ) from error

    def _spell_rows(self, rows: Iterable[Row], fields: tuple[str, ...], screen: Screen) -> int:
        mode = self.look.mode
        if mode in (Mode.JSON, Mode.JSONL):
            return self._spell_json(rows)
        if mode is Mode.CSV:
            return self._spell_csv(rows, fields)
        shown = 0
        if self._template is not None:
            self._template.check(fields)
            for row in rows:
                self._write_text(self._template.fill(row, self._value))
                shown += 1
                self._settle()
            return shown
        for row in rows:
            for line in screen(row):
                self.line(line)
            shown += 1
            self._settle()
        return shown

    def _spell_json(self, rows: Iterable[Row]) -> int:
        """Write each row when it comes, so that no row that was taken from its source is lost by a later error."""
        is_array = self.look.mode is Mode.JSON
        shown = 0
        for row in rows:
            text = self._json(row)
            if is_array:
                text = (",\n" if self._in_array else "[\n") + text
                self._in_array = True
            else:
                text += "\n"
            self._write_text(text)
            shown += 1
            self._settle()
        return shown

    def _spell_csv(self, rows: Iterable[Row], fields: tuple[str, ...]) -> int:
        writer = csv.writer(_Lines(self._write_text), lineterminator="\n")
        if self._header is None:
            self._header = fields
            writer.writerow(fields)
        shown = 0
        for row in rows:
            writer.writerow([self._cell(row.get(name)) for name in self._header])
            shown += 1
            self._settle()
        return shown

    def _cell(self, value: object) -> str:
        """Spell one value for CSV, which has no escapes: a control character is always spelled out."""
        text = _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", self._value(value))
        return guard_formula(text) if isinstance(value, str) else text

    def _value(self, value: object) -> str:
        """Spell one value outside JSON."""
        text = _machine_text(value)
        return neutral(text, keep="\n\t") if self._is_terminal else text

    def _json(self, value: Row) -> str:
        text = _to_json(value)
        return _for_terminal(text) if self._is_terminal else text

    def _write_text(self, text: str) -> None:
        # Half a surrogate pair cannot be UTF-8; it becomes an escape, as in JSON.
        self._write(text.encode("utf-8", "backslashreplace"))

    def _write(self, data: bytes | bytearray | memoryview) -> None:
        if len(data) > _CHUNK and self._pending:
            self.flush()  # alone it need not be copied
        self._pending.append(data)
        self._pending_size += len(data)
        if self._pending_size > _CHUNK:
            self.flush()

    def _settle(self) -> None:
        """Flush for a terminal, where a user waits; elsewhere chunks go out when they are full."""
        if self._is_terminal and self._pending:
            self.flush()

    def _say(self, text: str) -> None:
        self._settle()
        stderr = self._stderr or sys.stderr
        if stderr is not None:
            with self._bar.paused() if self._bar is not None else nullcontext():
                width = shutil.get_terminal_size().columns if stderr.isatty() else None
                for line in text.split("\n"):
                    stderr.write("\n".join(hanging(neutral(line), width, _NOTE_INDENT)) + "\n")
                stderr.flush()

    def _bytes_out(self) -> IO[bytes]:
        if self._stdout is not None:
            return self._stdout
        if sys.stdout is None:
            raise WriteFailed("standard output is closed, so the result cannot be printed", hint="leave out >&-")
        return sys.stdout.buffer


def _widen_pipe(out: IO[bytes]) -> None:
    """Give a pipe more room, so that the writer and the reader wait less often for each other."""
    # This fails for a file, and where the room of one user is used up. The output works as it is.
    with suppress(OSError, ValueError):
        # The program that made the pipe may have given it more.
        if hasattr(fcntl, "F_SETPIPE_SZ") and fcntl.fcntl(out.fileno(), fcntl.F_GETPIPE_SZ) < _PIPE:
            fcntl.fcntl(out.fileno(), fcntl.F_SETPIPE_SZ, _PIPE)


class _Lines:
    """A file object for ``csv``."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self.write = write


def _no_screen(_: Row) -> Iterable[str]:
    return ()


def _machine_text(value: object) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if type(value) is int:  # the fastest way for the most frequent kind of value
        return str(value)
    return _to_json(value)


def _for_terminal(text: str) -> str:
    return _UNSAFE_IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
