"""Messages that were asked for by a search, a filter or a time, and the sentences that say why no message was found."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from shlex import quote
from typing import TYPE_CHECKING, Any, cast

from rmqtool.api.cat import BodyStyle, reading
from rmqtool.api.query import find
from rmqtool.api.wanted import Which, count_there, wanted_of
from rmqtool.browse.message_pages import PLACES, iter_found, row_of
from rmqtool.browse.page import GrowingPage, Page, Row, Scope, remark
from rmqtool.filters.sql92 import parse_selector
from rmqtool.render.text import count, counted, neutral

if TYPE_CHECKING:
    from rmqtool.browse.explorer import Explorer

MOST_FOUND = 1000
_TAGS = re.compile(r"[^\s=<>()'\"|]+(\s*\|\|\s*[^\s=<>()'\"|]+)*")


class FoundPage(GrowingPage):
    """Messages that were asked for, with the damage among them."""

    columns = PLACES
    unit = "message"

    def __init__(
        self, title: str, make: Callable[[FoundPage], Iterator[Row]], command: str, scope: Scope = Page.scope
    ) -> None:
        super().__init__(title, PLACES, lambda: make(self), command)
        self.scope = scope

    def found(self) -> str:
        return ", ".join(text for text in (super().found(), self.damaged()) if text)

    def damaged(self) -> str:
        """Return how many rows are damage; nothing for none."""
        places = sum(row.is_remark and row.style == "error" and row.cells[0] != "" for row in list(self.listed))
        return counted(places, "damaged place") if places else ""


def sentence(text: str, *more: str) -> Row:
    """Return a row of ``PLACES`` that is a sentence."""
    return remark("", "", "", "", text, details=(text, *more))


def search_page(explorer: Explorer, text: str, scope: Scope) -> FoundPage:
    """Return the messages with an id, a key or a place; without any, those with the text in the body."""
    command = f"rmqtool query {explorer.name} {quote(text)}"
    return FoundPage(f"search {neutral(text)}", partial(_search, explorer, text), command, scope)


def _search(explorer: Explorer, text: str, page: FoundPage) -> Iterator[Row]:
    with find(explorer.named, text, {"limit": MOST_FOUND}) as found:
        for fields in found.messages:
            yield row_of(fields, explorer, explorer.link_of(fields))
        if page.number >= MOST_FOUND:
            page.outcome = f"the first {page.found()}; there may be more"
        if page.number:
            return
        nothing = "no message with this id or key"
        page.lead = f"{nothing}; in bodies: "
        with reading(explorer.named, {"body_re": re.escape(text), "limit": MOST_FOUND}) as events:
            yield from iter_found((one for one in events if isinstance(one, dict)), explorer, explorer.link_of)
        more = f"in bodies: {page.found()}" if page.number else page.damaged()
        page.outcome = f"{nothing}; {more}" if more else nothing
        readable = " that can be read" * bool(page.damaged())
        yield sentence(nothing + ("" if page.number else f", and no body{readable} has this text"))
        for reason in found.head.get("reasons", ()):
            yield sentence(neutral(reason))
        for near in found.head.get("near", ()):
            yield sentence(f"near: {neutral(near)}")


def filtered_page(explorer: Explorer, text: str, scope: Scope) -> FoundPage:
    """Return the messages of a scope with a tag, or for which an SQL92 expression is true."""
    which: dict[str, Any] = {"tags": text} if _TAGS.fullmatch(text) else {"where": text}
    option = "--tag" if "tags" in which else "--where"
    narrowed = ""
    if scope.topic is not None:
        which["topics"], narrowed = scope.topic, f" -t {quote(scope.topic)}"
    if scope.queue_id is not None:
        which["queue"], narrowed = scope.queue_id, f"{narrowed} -q {scope.queue_id}"
    command = f"rmqtool cat {explorer.name}{narrowed} {option} {quote(text)}"

    def make(page: FoundPage) -> Iterator[Row]:
        with reading(explorer.named, {"limit": MOST_FOUND}, **which) as events:
            yield from iter_found((one for one in events if isinstance(one, dict)), explorer, explorer.link_of)
        if page.number >= MOST_FOUND:
            page.outcome = f"the first {page.found()}; there may be more"
            return
        with explorer.named.use() as store:
            there = count_there(store, wanted_of(cast("Which", which)))
        of_all = "" if there is None else f" of {count(there)}"
        page.outcome = f"{counted(page.number, 'message')}{of_all} match{'es' * (page.number == 1)}"
        # A damaged record could match, too.
        page.outcome += f"; {page.damaged()}" if page.damaged() else ", no more" * bool(page.number)
        if not page.number:
            unknown = list(_unknown_names(explorer, which, page)) if "where" in which else []
            yield sentence(f"no message of {where} matches {neutral(text)}", *(row.cells[-1] for row in unknown))
            yield from unknown

    where = "the store" if scope.topic is None else neutral(scope.topic)
    where += "" if scope.queue_id is None else f"/{scope.queue_id}"
    return FoundPage(f"{where} where {neutral(text)}", make, command, scope)


def _unknown_names(explorer: Explorer, which: dict[str, Any], page: FoundPage) -> Iterator[Row]:
    """Yield a sentence for each name of an expression that no message has as a property."""
    missing = set(parse_selector(which["where"]).names)
    others: set[str] = set()
    scope = {name: value for name, value in which.items() if name != "where"}
    with reading(explorer.named, {"body": BodyStyle.NONE}, **scope) as events:
        for one in events:
            if page.is_stopped or not missing:
                return
            if isinstance(one, dict) and "properties" in one:
                missing.difference_update(one["properties"])
                others.update(one["properties"])
    for name in sorted(missing):
        like = next((other for other in sorted(others) if other.lower() == name.lower()), None)
        hint = f": names are case-sensitive, {neutral(like)} is one" if like else ""
        yield sentence(f"no message there has a property {neutral(name)}{hint}", "a filter does not see bodies")


def time_page(explorer: Explorer, text: str, scope: Scope) -> FoundPage:
    """Return the first messages of the queues of a scope that were stored since a time."""
    which: dict[str, Any] = {} if scope.topic is None else {"topics": scope.topic}
    if scope.queue_id is not None:
        which["queue"] = scope.queue_id
    narrowed = "".join(f" {o} {quote(str(v))}" for o, v in zip(("-t", "-q"), scope, strict=True) if v is not None)
    command = f"rmqtool query {explorer.name} {quote(text)} --kind time{narrowed}"

    def make(page: FoundPage) -> Iterator[Row]:
        with find(explorer.named, text, {"kind": "time"}, **which) as found:
            for fields in found.messages:
                yield row_of(fields, explorer, explorer.link_of(fields))
        if not page.number:
            yield sentence(f"no message was stored since {neutral(text)}")

    return FoundPage(f"first since {neutral(text)}", make, command, scope)
