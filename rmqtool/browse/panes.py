"""The panes of the screen: the tree, and a table that shows the rows of a page around a cursor."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar

from textual import events
from textual.binding import Binding
from textual.content import Content
from textual.widget import Widget

from rmqtool.browse.page import Column, Page, Row, line
from rmqtool.browse.tree import Node
from rmqtool.errors import RmqtoolError
from rmqtool.render.text import ELLIPSIS, cut, display_width, neutral

_STYLES = {
    "error": "red",
    "suspect": "bold red",
    "warning": "yellow",
    "notice": "cyan",
    "good": "green",
    "title": "bold",
    "dim": "dim",
    "": "",
}
# Cells of a column without a width, at least.
_LEAST = 8
# Rows that are shown before the place that a page is opened at.
_BEFORE = 4


def _nothing() -> None:
    """Do nothing."""


class Pane(Widget, can_focus=True):
    """A list with a cursor; subclasses say what its lines are."""

    BINDINGS: ClassVar = [
        Binding("up,k", "move(-1)", show=False),
        Binding("down,j", "move(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown,space", "page(1)", show=False),
        Binding("home,g", "edge(-1)", show=False),
        Binding("end,G", "edge(1)", show=False),
        Binding("enter", "open", show=False),
    ]
    # Lines above the rows.
    heads = 0

    def __init__(self) -> None:
        super().__init__()
        # Called when the cursor is on another row: at once, so that all that changes is painted together.
        self.moved: Callable[[], None] = _nothing
        # Called when Enter was pressed, or a row was clicked twice.
        self.opened: Callable[[], None] = _nothing

    @property
    def room(self) -> int:
        """The number of rows that fit."""
        return max(self.size.height - self.heads, 1)

    def action_move(self, by: int) -> None:
        """Move the cursor by rows."""
        raise NotImplementedError

    def action_page(self, by: int) -> None:
        """Move the cursor by screens."""
        raise NotImplementedError

    def action_edge(self, side: int) -> None:
        """Move the cursor to the first or the last row."""
        raise NotImplementedError

    def point_at(self, number: int) -> bool:
        """Put the cursor on a row of the screen; return whether there is one."""
        raise NotImplementedError

    def action_open(self) -> None:
        """Follow the row under the cursor."""
        self.opened()

    def on_click(self, event: events.Click) -> None:
        """Put the cursor on the row; the second click opens it."""
        if self.point_at(event.y - self.heads):
            self.moved()
            if event.chain == 2:
                self.action_open()

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Move down by three rows."""
        event.stop()
        self.action_move(3)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Move up by three rows."""
        event.stop()
        self.action_move(-3)

    def _styled(self, text: str, style: str, *, is_current: bool) -> Content:
        styles = [_STYLES[style]] if style else []
        if is_current:
            styles.append("reverse" if self.has_focus else "underline")
        width = max(self.size.width, 1)
        padded = text + " " * (width - display_width(text))
        return Content.styled(padded, " ".join(styles)) if styles else Content(padded)


class TablePane(Pane):
    """The rows of a page."""

    heads = 1

    def __init__(self, page: Page) -> None:
        super().__init__()
        self.page = page
        self.top = self.cursor = page.first_position or page.start
        self.seen: list[Row] = []

    def show(self, page: Page, top: int | None = None, cursor: int | None = None) -> None:
        """Show a page, at its first position or where it was left."""
        self.page = page
        self.cursor = (
            cursor if cursor is not None else page.start if page.first_position is None else page.first_position
        )
        # The rows before a place help to understand it.
        self.top = self._back(self.cursor, min(_BEFORE, self.room // 2)) if top is None else top
        self.look()

    def look(self) -> None:
        """Read the rows of the screen again."""
        self.seen = self._rows(self.top, self.room)
        if len(self.seen) < self.room and self.top > self.page.start:  # fill the screen from above
            self.top = self._back(self.page.end, self.room)
            self.seen = self._rows(self.top, self.room)
        if self.seen and self.cursor > self.seen[-1].position:
            self.cursor = self.seen[-1].position
        self.refresh()

    def look_again(self) -> bool:
        """Read the rows again if they have changed; return whether they have."""
        again = self._rows(self.top, self.room)
        if [row._replace(link=None) for row in again] == [row._replace(link=None) for row in self.seen]:
            return False
        self.look()
        return True

    def _rows(self, position: int, count: int) -> list[Row]:
        """Return rows of the page; what cannot be read is a row, too."""
        try:
            return self.page.rows(position, count)
        except RmqtoolError as error:
            text = neutral(error.message)
            row = line(*("" for _ in self.page.columns[1:]), text, style="error", details=(text, error.hint or ""))
            return [row._replace(position=position)]

    def _back(self, position: int, count: int) -> int:
        try:
            return self.page.back(position, count)
        except RmqtoolError:
            return self.page.start

    @property
    def current(self) -> Row | None:
        """The row under the cursor."""
        return self.seen[self._number()] if self.seen else None

    def _number(self) -> int:
        """Return the number of the row on the screen that has the cursor's position: a row may have many bytes."""
        after = (number for number, row in enumerate(self.seen) if row.position > self.cursor)
        return max(next(after, len(self.seen)) - 1, 0)

    def point_at(self, number: int) -> bool:
        if not 0 <= number < len(self.seen):
            return False
        self.cursor = self.seen[number].position
        self.refresh()
        return True

    def action_move(self, by: int) -> None:
        wanted = self._number() + by
        if wanted < 0:
            self.top = self._back(self.top, -wanted)
            self.cursor = self.top
            self.look()
        elif wanted >= len(self.seen) and self.seen:
            more = self._rows(self.seen[-1].position, wanted - len(self.seen) + 2)
            self.cursor = more[-1].position if more else self.cursor
            skipped = [*self.seen[:-1], *more][-self.room :]
            if skipped[0].position != self.top:
                self.top = skipped[0].position
                self.look()
        else:
            self.cursor = self.seen[wanted].position if self.seen else self.cursor
        self._moved()

    def action_page(self, by: int) -> None:
        if by > 0 and self.seen:
            self.top = self.cursor = self.seen[-1].position
        else:
            self.top = self.cursor = self._back(self.top, max(self.room - 1, 1))
        self.look()
        self._moved()

    def action_edge(self, side: int) -> None:
        if side < 0:
            self.top = self.cursor = self.page.start
        else:
            self.top = self._back(self.page.end, self.room)
            self.cursor = self.page.end
        self.look()
        self._moved()

    def is_at_end(self) -> bool:
        """Whether the cursor is on the last row of the page."""
        return bool(self.seen) and self.cursor >= self.seen[-1].position and len(self._rows(self.cursor, 2)) < 2

    def _moved(self) -> None:
        self.refresh()
        self.moved()

    def on_resize(self) -> None:
        """Read as many rows as now fit."""
        self.look()
        number = self._number()
        if number >= self.room:
            self.top = self.cursor
            self.look()

    def render(self) -> Content:
        return Content("\n").join(self._lines())

    def _lines(self) -> Iterator[Content]:
        widths = column_widths(self.page.columns, self.seen[: self.room], self.size.width)
        titles = [column.title for column in self.page.columns]
        yield self._styled(table_line(self.page.columns, widths, titles), "dim", is_current=False)
        number = self._number()
        shown = self.seen[: self.room]
        texts = [sentence_of(row, self.size.width) or table_line(self.page.columns, widths, row.cells) for row in shown]
        if len(set(texts)) < len(texts):
            texts = self._told_apart(widths, shown, texts)
        for place, (row, text) in enumerate(zip(shown, texts, strict=True)):
            yield self._styled(text, row.style, is_current=place == number)

    def _told_apart(self, widths: Sequence[int], rows: Sequence[Row], texts: list[str]) -> list[str]:
        """Return the lines of rows, those that were cut alike with other parts of their cells."""
        for alike in groups_of(texts):
            columns = zip(*(rows[number].cells for number in alike), strict=False)
            cells = [tell_apart(column, width) for column, width in zip(columns, widths, strict=False)]
            for number, shown in zip(alike, zip(*cells, strict=True), strict=True):
                texts[number] = table_line(self.page.columns, widths, shown)
        return texts


def column_widths(columns: Sequence[Column], rows: Sequence[Row], width: int) -> list[int]:
    """Return the cells of each column: as many as its rows need, and the rest for columns without a width.

    Without room for all, the widest texts get less. A number is never cut, because two could look alike then.
    """
    fixed = []
    for place, column in enumerate(columns):
        longest = max((display_width(row.cells[place]) for row in rows if place < len(row.cells)), default=0)
        needed = max(longest, display_width(column.title))
        fixed.append(needed if column.is_number else min(needed, column.width))
    spare = width - (len(columns) - 1) - sum(fixed)
    open_ended = sum(1 for column in columns if not column.width and not column.is_number)
    while spare < _LEAST * open_ended:
        texts = [place for place, column in enumerate(columns) if not column.is_number and fixed[place] > _LEAST]
        if not texts:
            break
        fixed[max(texts, key=fixed.__getitem__)] -= 1
        spare += 1
    rest = max(spare // max(open_ended, 1), 1)
    return [cells if column.width or column.is_number else rest for column, cells in zip(columns, fixed, strict=True)]


def sentence_of(row: Row, width: int) -> str:
    """Return the text of a row that is a sentence: it has the whole line. Nothing for a row with cells."""
    return cut(row.cells[-1], width) if row.is_remark and not any(row.cells[:-1]) else ""


def table_line(columns: Sequence[Column], widths: Sequence[int], cells: Sequence[str]) -> str:
    """Return the cells of a row on one line; a cell that is too long ends with an ellipsis."""
    shown = []
    for column, width, cell in zip(columns, widths, cells, strict=False):
        text = cut(cell, width, middle=column.width > _LEAST and not column.is_number)
        blanks = " " * (width - display_width(text))
        shown.append(blanks + text if column.is_number else text + blanks)
    return " ".join(shown)


def groups_of(texts: Sequence[str]) -> list[list[int]]:
    """Return the numbers of the texts that are equal, for each text that is there more than once."""
    numbers: dict[str, list[int]] = {}
    for number, text in enumerate(texts):
        numbers.setdefault(text, []).append(number)
    return [alike for alike in numbers.values() if len(alike) > 1]


def tell_apart(texts: Sequence[str], width: int) -> list[str]:
    """Return texts in ``width`` cells: the same ones for equal texts, and others for different ones.

    Texts that would be cut alike are shown from before their first difference on; if that is not enough, with a number.
    """
    if len(set(texts)) == 1:
        return [cut(text, width, middle=True) for text in texts]
    common = next(
        (at for at, letters in enumerate(zip(*texts, strict=False)) if len(set(letters)) > 1), min(map(len, texts))
    )
    begin = max(common - width // 3, 0)
    head = ELLIPSIS if begin else ""
    shown = [cut(head + text[begin:], width) for text in texts]
    order = list(dict.fromkeys(texts))
    for alike in groups_of(shown):
        if len({texts[number] for number in alike}) > 1:
            for number in alike:
                mark = f"{ELLIPSIS}{order.index(texts[number]) + 1}"
                shown[number] = cut(shown[number], max(width - len(mark), 0)) + mark
    return shown


class TreePane(Pane):
    """The tree of a store."""

    BINDINGS: ClassVar = [
        Binding("left,h", "fold", show=False),
        Binding("right,l", "unfold", show=False),
    ]

    def __init__(self, root: Node) -> None:
        super().__init__()
        self.root = root
        self.nodes = list(root.shown())
        self.number = 0
        self.top = 0

    @property
    def current(self) -> Node:
        """The node under the cursor."""
        return self.nodes[self.number]

    def _go(self, number: int) -> None:
        self.number = max(min(number, len(self.nodes) - 1), 0)
        self.top = max(min(self.top, self.number), self.number - self.room + 1)
        self.refresh()
        self.moved()

    def action_move(self, by: int) -> None:
        self._go(self.number + by)

    def action_page(self, by: int) -> None:
        self._go(self.number + by * self.room)

    def action_edge(self, side: int) -> None:
        self._go(0 if side < 0 else len(self.nodes) - 1)

    def point_at(self, number: int) -> bool:
        if not 0 <= self.top + number < len(self.nodes):
            return False
        self._go(self.top + number)
        return True

    def action_open(self) -> None:
        """Show the page of the node, and open the node."""
        if not self.current.is_open:
            self.action_unfold()
        super().action_open()

    def action_unfold(self) -> None:
        """Show what is below the node."""
        node = self.current
        if node.make is not None and not node.is_open:
            node.is_open = True
            self._list()

    def action_fold(self) -> None:
        """Hide what is below the node, or go to the one above it."""
        node = self.current
        if node.is_open and node.depth:
            node.is_open = False
            self._list()
        else:
            above = (at for at in range(self.number, -1, -1) if self.nodes[at].depth < node.depth)
            self._go(next(above, 0))

    def _list(self) -> None:
        try:
            self.nodes = list(self.root.shown())
        except RmqtoolError as error:
            self.current.is_open = False
            self.app.notify(error.message, markup=False)
        self.refresh()

    def render(self) -> Content:
        places = range(self.top, min(self.top + self.room, len(self.nodes)))
        marks, labels = [], []
        for place in places:
            node = self.nodes[place]
            mark = "  " if node.make is None else "▾ " if node.is_open else "▸ "
            marks.append("  " * max(node.depth - 1, 0) + (mark if node.depth else ""))
            labels.append(cut(node.label, self.size.width - len(marks[-1]), middle=True))
        for alike in groups_of(labels):
            room = self.size.width - max(len(marks[number]) for number in alike)
            others = tell_apart([self.nodes[self.top + number].label for number in alike], room)
            for number, label in zip(alike, others, strict=True):
                labels[number] = label
        lines = [
            self._styled(mark + label, "" if self.nodes[place].depth else "title", is_current=place == self.number)
            for place, mark, label in zip(places, marks, labels, strict=True)
        ]
        return Content("\n").join(lines)
