"""The terminal application of ``browse``."""

from __future__ import annotations

import importlib
import sys
import threading
from typing import ClassVar

from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal
from textual.content import Content
from textual.widgets import Input, Static

from rmqtool.browse.cluster_pages import ClusterExplorer, Explorable
from rmqtool.browse.damage_pages import FindingsPage, findings_page
from rmqtool.browse.page import Column, GrowingPage, Link, ListPage, Page, Scope, line
from rmqtool.browse.panes import TablePane, TreePane
from rmqtool.browse.store_pages import first_page
from rmqtool.browse.tree import store_tree
from rmqtool.errors import RmqtoolError
from rmqtool.render.text import counted, cut, display_width, neutral, wrapped

# Not wider than 80 cells. Tab goes to the tree or to the list, the one without the focus.
_KEYS = "⏎ open ⌫ back Tab {}  / find : go  f filter  d damage  y copy  ? help  q quit"
# Each text fits into the room that 80 columns leave beside a key. A text without a key goes on with the one before it.
_HELP = (
    ("Enter", "follow: queue entry → record → its entries → index chain →"),
    ("", "next hit; half message → its decision"),
    ("Backspace", "back to the page before"),
    ("Tab", "from the tree to the list and back; ← → close and open the tree"),
    ("/ TEXT", "search: a key, an id, TOPIC/QUEUE@N; else the text of bodies"),
    (": PLACE", "on a queue its offset, on a file its byte, else one of the log;"),
    ("", "@N: of the log; TOPIC/QUEUE@N; a time: 2026-08-23T15:00"),
    ("f EXPR", "filter this topic or queue: a tag, a || b, or SQL92 of the"),
    ("", "properties: amount > 10 AND region = 'EU'"),
    ("d  D", "damage: check this topic, or the store; on findings and their"),
    ("", "bytes: the next and the previous finding"),
    ("y", "copy the command that prints what is shown"),
    ("↑ ↓ Home End", "move, as PgUp and PgDn do; the mouse moves and opens, too"),
    ("Esc", "leave a prompt or this page; stop what is being read"),
    ("q", "quit. Nothing is ever written."),
)
_FOLLOWED_EVERY = 1.0
_DRAWN_EVERY = 0.1
# Seconds after the first screen until the modules of a check are loaded: seven eighths of the time of a small check.
_LOADED_AFTER = 0.5
# Seconds after which a thread that reads a page lets the keys act.
_SWITCH_EVERY = 0.0005
_DETAIL_LINES = 4
# Narrower screens show the tree or a wide page, not both.
_BOTH_FIT = 100


class KeysPage(ListPage):
    """The page of keys."""

    is_wide = True

    def __init__(self) -> None:
        rows = [line(key, words, details=(f"{key}: {words}" if key else words,)) for key, words in _HELP]
        columns = (Column("key", 12), Column("what it does"))
        super().__init__("keys", columns, rows, "rmqtool man browse", "Esc goes back")


class Browser(App[None]):
    """The screen: title, tree and table, details, and a last line for keys and prompts."""

    CSS = """
    Screen { layout: vertical; background: ansi_default; color: ansi_default; }
    #title { height: 1; text-style: bold; text-wrap: nowrap; text-overflow: ellipsis; }
    #middle { height: 1fr; }
    TreePane { width: 19; height: 1fr; text-wrap: nowrap; }
    TreePane:focus { width: 32; }
    TablePane { width: 1fr; height: 1fr; margin-left: 1; text-wrap: nowrap; }
    #details { height: 4; text-wrap: nowrap; text-overflow: ellipsis; }
    #keys { height: 1; text-wrap: nowrap; text-overflow: ellipsis; text-style: dim; }
    #prompt { height: 1; border: none; padding: 0; display: none; background: ansi_default; color: ansi_default; }
    """
    BINDINGS: ClassVar = [
        Binding("backspace", "go_back", show=False),
        Binding("slash", "ask('/')", show=False, priority=True),
        Binding("colon", "ask(':')", show=False, priority=True),
        Binding("f", "ask('f ')", show=False, priority=True),
        Binding("d", "damage(1)", show=False),
        Binding("D", "damage(-1)", show=False),
        Binding("y", "copy", show=False),
        Binding("question_mark", "keys", show=False),
        Binding("tab", "other_pane", show=False, priority=True),
        Binding("escape", "leave", show=False),
        Binding("q", "quit", show=False),
    ]
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, explorer: Explorable) -> None:
        super().__init__(ansi_color=True)
        self.explorer = explorer
        if isinstance(explorer, ClusterExplorer):
            root, first = explorer.tree(), explorer.first()
        else:
            root, first = store_tree(explorer), first_page(explorer)
        self.tree_pane, self.table = TreePane(root), TablePane(first)
        self.tree_pane.moved = self.table.moved = self._moved
        self.tree_pane.opened = self.table.opened = self._opened
        self.past: list[tuple[Page, int, int]] = []
        # The last check of each topic, and of the store.
        self.checks: dict[str | None, FindingsPage] = {}
        self.asked = self.told = ""

    def compose(self) -> ComposeResult:
        yield Static(id="title", markup=False)
        with Horizontal(id="middle"):
            yield self.tree_pane
            yield self.table
        yield Static(id="details", markup=False)
        yield Static("", id="keys", markup=False)
        yield Input(id="prompt", compact=True)

    def on_mount(self) -> None:
        """Show the overview, and look for changes from now on."""
        self._begin(self.table.page)
        self.screen.set_focus(self.tree_pane)
        self.set_interval(_DRAWN_EVERY, self._draw_growth)
        self.set_interval(_FOLLOWED_EVERY, self._follow)
        self._describe()
        if not isinstance(self.explorer, ClusterExplorer):
            self.set_timer(_LOADED_AFTER, threading.Thread(target=_load_checks, daemon=True).start)

    # Pages.

    def open_link(self, link: Link) -> None:
        """Go to the page of a link; a failure is a page, too."""
        self._leave_page()
        self._show(self._made(link))

    def _made(self, link: Link) -> Page:
        try:
            return link()
        except RmqtoolError as error:
            rows = [
                line(neutral(text), style="error", details=(neutral(text),))
                for text in (error.message, error.hint or "")
            ]
            return ListPage("cannot be shown", (Column("why"),), rows, "")

    def _leave_page(self) -> None:
        self.past.append((self.table.page, self.table.top, self.table.cursor))

    def _show(self, page: Page) -> None:
        self._begin(page)
        self.told = ""
        if isinstance(page, FindingsPage):
            self.checks[page.scope.topic] = page
        self.table.show(page)
        self.screen.set_focus(self.table)
        self._give_room()
        self._show_keys()
        self._describe()
        if page.said:
            self._tell(page.said)

    def _give_room(self) -> None:
        """Hide the tree while a wide page has the focus of a narrow screen."""
        both = self.size.width >= _BOTH_FIT or not self.table.page.is_wide
        self.tree_pane.display = both or self.screen.focused is self.tree_pane

    def _begin(self, page: Page) -> None:
        """Read in a thread what a page does not show at once."""
        if isinstance(page, GrowingPage) and not page.is_begun:
            page.is_begun = True
            threading.Thread(target=page.load, daemon=True).start()

    def _draw_growth(self) -> None:
        page = self.table.page
        if isinstance(page, GrowingPage) and page.end != page.drawn:
            page.drawn = page.end
            self.table.look()
            self._describe()
        elif isinstance(page, GrowingPage) and page.is_growing() != page.was_growing:
            page.was_growing = page.is_growing()
            self._describe()

    def _follow(self) -> None:
        """Look again at files that grow, and stay at the end if the cursor is there."""
        page = self.table.page
        if isinstance(page, ListPage):
            return
        try:
            end, at_end = page.end, self.table.is_at_end()
            self.explorer.refresh()
            page.refresh()
        except RmqtoolError:  # the files are being moved or deleted: the rows say so when they are read
            return
        if page.end != end and at_end:
            self.table.action_edge(1)
        elif not self.table.look_again() and page.end == end:
            return
        self._describe()

    def _describe(self) -> None:
        page, row = self.table.page, self.table.current
        width, note = max(self.size.width, 1), page.note()
        room = max(width - display_width(note) - 3, width // 2)
        title = cut(f"{cut(neutral(page.title), room, middle=True)}   {note}", width)
        self._write("#title", title)
        details = [] if row is None else [*row.details] or [f"{row.cells[0]}  {' '.join(row.cells[1:])}".strip()]
        shown = [part for text in details for part in wrapped(text, width, ("", "  "))]
        self._write("#details", "\n".join(shown[:_DETAIL_LINES]))

    def _write(self, where: str, text: str) -> None:
        """Set the text of a line, which keeps its size: nothing is laid out again."""
        self.query_one(where, Static).update(Content(text), layout=False)

    def _tell(self, text: str) -> None:
        """Show a text in place of the keys, until the cursor moves."""
        self.told = text
        self._write("#keys", cut(neutral(text), max(self.size.width, 1)))

    def _show_keys(self) -> None:
        if self.told:
            return
        other = "list" if self.screen.focused is self.tree_pane else "tree"
        self._write("#keys", _KEYS.format(other))

    # Keys.

    def on_descendant_focus(self) -> None:
        """Tell where Tab goes now."""
        self._show_keys()

    def _moved(self) -> None:
        """Describe the row under the cursor."""
        self.told = ""
        self._show_keys()
        self._describe()

    def _opened(self) -> None:
        """Follow the node or the row under the cursor."""
        if self.screen.focused is self.tree_pane:
            self.open_link(self.tree_pane.current.page)
            return
        row = self.table.current
        if row is not None and row.link is None:
            self._tell("Enter opens nothing here" + (": d shows the damage" * (row.style in ("error", "suspect"))))
        elif row is not None and row.link is not None:
            page = self.table.page
            self.open_link(row.link)
            if isinstance(page, FindingsPage):
                page.shown, self.table.page.origin = row.position, page

    def action_go_back(self) -> None:
        """Return to the page before."""
        if self.past:
            self.table.page.close()
            page, top, cursor = self.past.pop()
            self.told = ""
            self._show_keys()
            self.table.show(page, top, cursor)
            self._give_room()
            self._describe()

    def action_other_pane(self) -> None:
        """Go from the tree to the table, or back."""
        other = self.table if self.screen.focused is self.tree_pane else self.tree_pane
        # A hidden pane cannot have the focus.
        self.tree_pane.display = True
        self.screen.set_focus(other)
        self._give_room()
        self.told = ""
        self._show_keys()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Leave keys that are typed into the prompt to the prompt. The keys that open it act before others are read."""
        if action in ("ask", "other_pane") and self.query_one("#prompt", Input).display:
            return False
        return super().check_action(action, parameters)

    def action_ask(self, what: str) -> None:
        """Show a prompt in the last line."""
        self.asked = what
        prompt = self.query_one("#prompt", Input)
        prompt.value = ""
        place = f"go to {self.table.page.place}; TOPIC/QUEUE@N; a time"
        prompt.placeholder = {"/": "search a key, an id, a text", ":": place}.get(what, "a tag, or SQL92")
        prompt.display, self.query_one("#keys").display = True, False
        # At once: the next key belongs to the prompt.
        self.screen.set_focus(prompt)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Go where the prompt says."""
        text, page = event.value.strip(), self.table.page
        self.action_leave()
        if not text:
            return
        if self.asked == "/":
            self.open_link(lambda: self.explorer.search(text, page.scope))
        elif self.asked == ":":
            self.open_link(lambda: self.explorer.at_place(text, page))
        else:
            self.open_link(lambda: self.explorer.filtered(text, page.scope))

    def action_leave(self) -> None:
        """Leave the prompt, or stop reading a page."""
        prompt = self.query_one("#prompt", Input)
        if prompt.display:
            prompt.display, self.query_one("#keys").display = False, True
            self.screen.set_focus(self.table)
        elif isinstance(self.table.page, KeysPage):
            self.action_go_back()
        else:
            self.table.page.close()
            self._describe()

    def action_damage(self, step: int) -> None:
        """Check what the page is about; on a list of findings, and on the bytes of one, go on in that list."""
        page, explorer = self.table.page, self.explorer
        if isinstance(explorer, ClusterExplorer):
            self.open_link(explorer.damage)
            return
        known = page if isinstance(page, FindingsPage) else page.origin
        if not isinstance(known, FindingsPage):
            self.open_link(lambda: findings_page(explorer, Scope(page.scope.topic)))
            return
        row = known.step(step)
        if row is None or row.link is None:
            others = [one for one in self.checks.values() if one.scope != known.scope and one.number]
            elsewhere = "".join(f"; {counted(one.number, 'problem')} listed in {one.what}" for one in others)
            self._tell(known.end_words(step) + elsewhere)
        else:
            self.open_link(row.link)
            self.table.page.origin = known

    def action_copy(self) -> None:
        """Copy the command that prints what is shown."""
        command = self.table.page.command
        if command:
            self.copy_to_clipboard(command)
        self._tell(f"copied: {command}" if command else "no command prints this page")

    def action_keys(self) -> None:
        """Show what the keys do."""
        self.open_link(KeysPage)


def _load_checks() -> None:
    """Load what a check needs, while nothing is asked."""
    importlib.import_module("rmqtool.checks.check")


def browse(explorer: Explorable) -> None:
    """Run the application until the user quits."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_EVERY)
    try:
        Browser(explorer).run()
    finally:
        sys.setswitchinterval(before)
