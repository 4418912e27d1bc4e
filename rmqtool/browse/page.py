"""Pages: tables whose rows are read when they are shown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from rmqtool.errors import RmqtoolError
from rmqtool.render.text import count, counted, neutral

Link = Callable[[], "Page"]
"""Makes the page to which a row leads."""


class Column(NamedTuple):
    """A column: its title and its cells; a width of 0 is the room that the others leave."""

    title: str
    width: int = 0
    is_number: bool = False


class Row(NamedTuple):
    """A row: its position on the page, its cells, and where Enter goes.

    ``details`` are the lines that are shown for the row under the cursor. ``style`` is one of ``render.text``.
    """

    position: int
    cells: tuple[str, ...]
    link: Link | None = None
    style: str = ""
    details: tuple[str, ...] = ()
    # A sentence or a sum, which is not counted.
    is_remark: bool = False


class Scope(NamedTuple):
    """The messages that a page is about: what a filter, a search or a check on this page is limited to."""

    topic: str | None = None
    queue_id: int | None = None


class Sought(NamedTuple):
    """A byte that was asked for: the offset as it was typed, and the position on the page."""

    typed: int
    position: int

    def told(self, field: str, begin: int, length: int, outer: str, outer_begin: int) -> str:
        """Return which byte it is of a field, and of what is around; the offsets are positions."""
        shift = self.typed - self.position
        number = f"byte {count(self.position - begin + 1)} of {count(length)} of {field}"
        around = f" of {outer}" if outer else ""
        return f"{self.typed} is {number}{around}, which begins at {outer_begin + shift}"


class Page:
    """A page without rows; subclasses read theirs.

    ``start`` and ``end`` are the bounds of the positions. ``command`` prints the same on a command line.
    """

    title = ""
    columns: Sequence[Column] = ()
    command = ""
    scope = Scope()
    start = 0
    end = 0
    # Where the cursor is at first.
    first_position: int | None = None
    # The byte that was asked for, which the details of its row tell.
    sought: Sought | None = None
    # The page whose row led here, if its next row can be asked for.
    origin: Page | None = None
    # The meaning of a number that is typed as a place on this page; the prompt says it.
    place = "an offset of the log"
    # A remark for the last line of the screen, when the page is opened.
    said = ""
    # Whether the page needs all of a narrow screen.
    is_wide = False

    def note(self) -> str:
        """Return a line about the page."""
        return ""

    def rows(self, position: int, count: int) -> list[Row]:
        """Return up to ``count`` rows from the one at ``position`` on, or the next one after it."""
        raise NotImplementedError

    def back(self, position: int, count: int) -> int:
        """Return the position of the row that is ``count`` rows before ``position``, or the first one."""
        raise NotImplementedError

    def last(self) -> int:
        """Return the position of the last row."""
        return self.back(self.end, 1)

    def refresh(self) -> None:
        """Look again at what has grown since."""

    def is_growing(self) -> bool:
        """Whether rows are still being added."""
        return False

    def close(self) -> None:
        """Stop work that the page has begun."""


class ListPage(Page):
    """A page of rows that are at hand."""

    def __init__(
        self, title: str, columns: Sequence[Column], rows: Iterable[Row], command: str, note: str = ""
    ) -> None:
        self.title, self.columns, self.command = title, columns, command
        self.listed = [row._replace(position=number) for number, row in enumerate(rows)]
        self._note = note
        self.end = len(self.listed)

    def note(self) -> str:
        return self._note

    def rows(self, position: int, count: int) -> list[Row]:
        return self.listed[max(position, 0) : max(position, 0) + count]

    def back(self, position: int, count: int) -> int:
        return max(min(position, len(self.listed)) - count, 0)


def step_back(offsets: Callable[[int, int], list[int]], position: int, count: int, reach: int) -> int:
    """Return the position of the row that is ``count`` rows before ``position``, or the first one.

    ``offsets`` returns the positions of the rows from the one with the byte at its first argument on, to before its
    second. They are asked for in steps of ``reach`` bytes, because rows have any size.
    """
    while position > 0:
        known = offsets(max(position - reach, 0), position)
        if len(known) >= count:
            return known[-count]
        if not known:
            return position
        count, position = count - len(known), known[0]
    return 0


def line(*cells: str, link: Link | None = None, style: str = "", details: Iterable[str] = ()) -> Row:
    """Return a row for a ``ListPage``, which numbers it."""
    return Row(0, cells, link, style, tuple(details))


def remark(*cells: str, style: str = "dim", details: Iterable[str] = ()) -> Row:
    """Return a row for a ``ListPage`` that is a sentence or a sum."""
    return line(*cells, style=style, details=details)._replace(is_remark=True)


class GrowingPage(ListPage):
    """A page of rows that are read by ``load``, in a thread of their own: what takes long, or what ends a command.

    ``unit`` is what a row is.
    """

    unit = "row"
    # Whether a thread reads the rows, or has read them.
    is_begun = False

    def __init__(
        self, title: str, columns: Sequence[Column], make: Callable[[], Iterator[Row]], command: str, note: str = ""
    ) -> None:
        super().__init__(title, columns, (), command, note)
        self._make = make
        self.is_stopped = False
        self._is_done = False
        self.is_failed = False
        # The words before the number of rows while they are read, and those for all rows in the end.
        self.lead = self.outcome = ""
        # The state of the page that is on the screen.
        self.drawn, self.was_growing = 0, True

    def add(self, rows: Iterable[Row]) -> None:
        """Add rows at the end."""
        for row in rows:
            if self.is_stopped:
                return
            self.listed.append(row._replace(position=len(self.listed)))
            self.end = len(self.listed)

    def load(self) -> None:
        """Read the rows. An error is a row."""
        try:
            self.add(self._make())
        except RmqtoolError as error:
            texts = (error.message, error.hint or "")
            self.is_failed = True
            self.add([remark(*("" for _ in self.columns[1:]), neutral(error.message), style="error", details=texts)])
        finally:
            self._is_done = True

    def note(self) -> str:
        if not self._is_done:
            return f"{self.lead}{self.found()}, reading …"
        if self.is_stopped:
            return f"{self.lead}{self.found()}; stopped: not all is read"
        return self._note or self.outcome or self.found()

    def found(self) -> str:
        """Return how many rows were read so far, those left out that are sentences or sums."""
        return counted(self.number, self.unit)

    @property
    def number(self) -> int:
        """The number of rows that are neither sentences nor sums."""
        return sum(not row.is_remark for row in list(self.listed))

    def is_growing(self) -> bool:
        return not self._is_done

    def close(self) -> None:
        self.is_stopped = self.is_stopped or not self._is_done
