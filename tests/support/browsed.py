"""Stores for ``browse``, a screen that is typed at and read as text, and a seeded walk through every page of a store.

python -m tests.support.browsed STORE [SEED]    walk through a store, print how many pages were seen
"""

from __future__ import annotations

import asyncio
import random
import re
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from rich.color import ColorSystem

from rmqtool.api.init import init
from rmqtool.api.store import Store, opened
from rmqtool.api.topic import topic
from rmqtool.broker import sample_life
from rmqtool.broker.services.tick import serving
from rmqtool.browse.explorer import Explorer
from rmqtool.browse.page import GrowingPage, Page
from rmqtool.browse.tree import Node, store_tree
from rmqtool.errors import RmqtoolError
from rmqtool.times import parse_zone
from tests.support.waiting import come_true

UTC = parse_zone("UTC")
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")
_ROWS = 40
_STEPS = 120
_TIME = "2026-01-02 03:04:05.678 +00:00"
# What is another at each making of a store.
_MASKS = (
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{3} \+00:00)?"), lambda m: _TIME[: len(m[0])]),
    (re.compile(r"\d\d-\d\d \d\d:\d\d:\d\d"), lambda _m: "01-02 03:04:05"),
    (re.compile(r"7F0000[0-9A-F]+"), lambda m: "0" * len(m[0])),
    (re.compile(r"\b1[789]\d{11}\b"), lambda _m: "1767323045678"),
    (re.compile(r"00 00 01 a[0-9a-f] .. .. .. .."), lambda _m: "00 00 01 9b 00 00 00 00"),
    (re.compile(r"fix: rmqtool repair.*"), lambda _m: "fix: rmqtool repair STORE"),
    (re.compile(r"(?<=index/)\d+"), lambda m: "0" * len(m[0])),
)


def make_shop(root: Path, orders: int = 200) -> Path:
    """Make a store with orders, a delayed reminder, two transactions, a dead letter, and a group with lag."""
    init(root, conf={"mappedFileSizeCommitLog": "65536"})
    topic(root, "create", "Orders", queues=4)
    with opened(root) as listed:
        where, config = listed.root, listed.config
    with serving(where, config) as services:
        sample_life.live(services, orders)
    return root


def spoil_body(root: Path, order: int) -> None:
    """Change a byte in the body of an order."""
    path = root / "commitlog" / f"{0:020}"
    data = bytearray(path.read_bytes())
    data[data.index(b'{"order": %d' % order) + 3] ^= 0x20
    path.write_bytes(data)


def shorten_queue(root: Path, queue_id: int, entries: int) -> None:
    """Clear the last entries of a queue of orders, as a power loss before a flush leaves it."""
    path = root / "consumequeue/Orders" / str(queue_id) / f"{0:020}"
    data = path.read_bytes()
    end = len(data.rstrip(b"\0")) + 19
    end -= end % 20
    path.write_bytes(data[: end - 20 * entries].ljust(len(data), b"\0"))


def explorer_at(root: Path) -> Explorer:
    """Return the explorer of a store that shows times in UTC."""
    return Explorer(Store(str(root)), UTC)


class Typist:
    """Someone at the screen: types keys and reads the text of the screen."""

    def __init__(self, app: object, pilot: object) -> None:
        self.app, self.pilot = app, pilot

    def screen(self) -> str:
        """Return the text of the screen."""
        strips = self.app.screen._compositor.render_strips()
        return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips)

    def ansi_lines(self) -> list[str]:
        """Return the lines of the screen with colours, as a terminal gets them."""
        strips = self.app.screen._compositor.render_strips()
        return [
            "".join(
                one.style.render(one.text, color_system=ColorSystem.STANDARD) if one.style else one.text
                for one in strip
            )
            for strip in strips
        ]

    async def keys(self, *keys: str) -> None:
        """Press keys, and wait until the page has been read."""
        await self.pilot.press(*keys)
        await self.settled()

    async def text(self, text: str) -> None:
        """Type a text and Enter."""
        await self.pilot.press(*text, "enter")
        await self.settled()

    async def settled(self) -> None:
        """Wait until the page on the screen has been read and drawn."""
        await self.pilot.pause()
        await come_true(lambda: not self.app.table.page.is_growing())
        await self.pilot.pause(0.15)


def at_screen(
    root: Path,
    play: Callable[[Typist], Awaitable[None]],
    size: tuple[int, int] = (80, 24),
    coloured: list[str] | None = None,
) -> str:
    """Run the application on a store, let ``play`` type, and return the last screen; ``coloured`` gets it in ANSI."""
    from rmqtool.browse.screen import Browser

    async def run() -> str:
        explorer = explorer_at(root)
        app = Browser(explorer)
        try:
            async with app.run_test(size=size) as pilot:
                typist = Typist(app, pilot)
                await typist.settled()
                await play(typist)
                if coloured is not None:
                    coloured.extend(typist.ansi_lines())
                return typist.screen()
        finally:
            explorer.close()

    return asyncio.run(run())


def masked(screen: str) -> str:
    """Return a screen without what is another for each store that is made."""
    for pattern, replace in _MASKS:
        screen = pattern.sub(replace, screen)
    return screen


class Walk:
    """A walk through a store: every node of the tree, then rows and links in a seeded order."""

    def __init__(self, root: Path, seed: int = 0, *, checks: bool = True, steps: int = _STEPS) -> None:
        self.explorer = explorer_at(root)
        self.random = random.Random(seed)
        self.checks, self.steps = checks, steps
        self.pages: list[str] = []
        self.texts: list[str] = []

    def run(self) -> None:
        """Visit everything; raises what a page raises besides an error of rmqtool's own."""
        try:
            links = []
            for node in self._nodes(store_tree(self.explorer)):
                if node.label == "damage" and not self.checks:
                    continue
                links += self.visit(node.page)
            self.random.shuffle(links)
            for _ in range(self.steps):
                if not links:
                    return
                links += self.visit(links.pop())[:3]
        finally:
            self.explorer.close()

    def _nodes(self, node: Node) -> list[Node]:
        below = node.below() if node.depth == 0 else self._some(node)
        return [node, *(inner for one in below for inner in self._nodes(one))]

    def _some(self, node: Node) -> list[Node]:
        try:
            return node.below()
        except RmqtoolError:
            return []

    def visit(self, link: Callable[[], Page]) -> list[Callable[[], Page]]:
        """Open a page, read it from both ends, and return the links of its rows."""
        try:
            page = link()
        except RmqtoolError as error:
            self.texts.append(error.message)
            return []
        if isinstance(page, GrowingPage):
            page.load()
        self.pages.append(page.title)
        assert not _UNSAFE.search(page.title + page.note()), (page.title, page.note())
        found = []
        try:
            first = page.first_position or page.start
            top = page.back(page.end, _ROWS)
            middle = self.random.randrange(page.start, max(page.end, page.start + 1))
            for position in (page.start, first, middle, top):
                rows = page.rows(position, _ROWS)
                found += self._read(page, rows, position)
            assert page.end == page.start or page.rows(page.last(), 2), f"{page.title} has no last row"
        except RmqtoolError as error:
            self.texts.append(error.message)
        page.close()
        return found

    def _read(self, page: Page, rows: list, position: int) -> list[Callable[[], Page]]:
        places = [row.position for row in rows]
        assert places == sorted(set(places)), f"{page.title}: rows of {position} are not in order: {places}"
        for row in rows:
            for text in (*row.cells, *row.details):
                assert not _UNSAFE.search(text), (page.title, text)
        if len(places) > 2 and position == page.start:
            assert page.back(places[2], 2) == places[0], f"{page.title}: two rows back from {places[2]}"
        return [row.link for row in rows if row.link is not None]


def main() -> None:
    """Walk through a store."""
    walk = Walk(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
    walk.run()
    print(len(walk.pages), "pages")


if __name__ == "__main__":
    main()
