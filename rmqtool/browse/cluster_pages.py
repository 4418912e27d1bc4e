"""A live cluster: its topics, queues, groups and messages, asked for over the network when they are shown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import tzinfo
from functools import partial
from shlex import quote
from typing import Any

from rmqtool.api.cat import reading
from rmqtool.api.cluster import Cluster
from rmqtool.api.info import glance
from rmqtool.api.query import find
from rmqtool.api.store import Place, store_of
from rmqtool.browse.explorer import Explorer
from rmqtool.browse.message_pages import PLACES, MessagePage, further_rows, iter_found, row_of
from rmqtool.browse.page import Column, GrowingPage, Link, ListPage, Page, Row, Scope, line
from rmqtool.browse.store_pages import lag_words
from rmqtool.browse.tree import Node
from rmqtool.errors import UsageError
from rmqtool.render.text import counted, neutral

# Messages that one page asks for.
_AT_ONCE = 500
_ABOUT = (Column("", 12), Column(""))
_TOPICS = (Column("topic", 30), Column("queues", 7, is_number=True), Column("messages", 9, is_number=True), Column(""))
_GROUPS = (Column("group", 18), Column("topic/queue", 24), Column("committed", 10, is_number=True), Column("lag"))
_NO_FILES = "this needs the files of a store"
_HINT = "give the storePathRootDir of a broker"


class ClusterExplorer:
    """The pages of a cluster. Each page asks the brokers in a thread of its own."""

    def __init__(self, cluster: Cluster, zone: tzinfo | None = None) -> None:
        self.cluster, self.zone = cluster, zone
        self.name = quote(str(cluster.address))

    def close(self) -> None:
        """Close the connections."""
        self.cluster.close()

    def refresh(self) -> None:
        """Do nothing: a page shows what the brokers answered."""

    def tree(self) -> Node:
        """Return the root of the tree."""
        parts = [Node("topics", self.topics), Node("groups", self.groups)]
        root = Node(neutral(str(self.cluster.address)), self.first, partial(list, parts))
        root.is_open = True
        return root

    def first(self) -> Page:
        """Return the cluster at a glance."""
        return GrowingPage(self.name, _ABOUT, self._overview, f"rmqtool info {self.name}", "cluster")

    def _overview(self) -> Iterator[Row]:
        shown = glance(self.cluster).shown
        yield line("cluster", neutral(str(self.cluster.address)), style="title")
        for name, value in shown.items():
            words = counted(len(value), "entry", "entries") if isinstance(value, dict | list) else neutral(str(value))
            yield line(neutral(name), words)

    def topics(self) -> Page:
        """Return the topics."""
        return GrowingPage("topics", _TOPICS, self._topics, f"rmqtool info {self.name} topics")

    def _topics(self) -> Iterator[Row]:
        for row in glance(self.cluster, "topics").rows:
            topic = row["topic"]
            cells = (neutral(topic), str(row["queues"]), str(row.get("messages") or 0), "")
            yield line(*cells, link=partial(self.messages, Scope(topic)), details=("Enter shows its newest messages",))

    def groups(self) -> Page:
        """Return the groups with their lag."""
        return GrowingPage("groups", _GROUPS, self._groups, f"rmqtool info {self.name} groups")

    def _groups(self) -> Iterator[Row]:
        for row in glance(self.cluster, "groups").rows:
            place = f"{neutral(row['topic'])}/{row['queueId']}"
            link = partial(self.messages, Scope(row["topic"], row["queueId"]), row["committed"])
            style = "warning" if row["lag"] else ""
            cells = (neutral(row["group"]), place, str(row["committed"]), lag_words(row))
            yield line(*cells, link=link, style=style, details=(" ".join(cells), "Enter shows what it gets next"))

    def messages(self, scope: Scope, offset: int | None = None, **which: Any) -> Page:
        """Return messages of a topic or a queue: from a queue offset on, or the newest ones."""
        narrowed = "" if scope.topic is None else f" -t {quote(scope.topic)}"
        narrowed += "" if scope.queue_id is None else f" -q {scope.queue_id}"
        chosen: dict[str, Any] = {**which, **({} if scope.topic is None else {"topics": scope.topic})}
        if scope.queue_id is not None:
            chosen["queue"] = scope.queue_id
        start = -_AT_ONCE if offset is None else offset

        def make() -> Iterator[Row]:
            with reading(self.cluster, {"offset": start, "limit": _AT_ONCE}, **chosen) as found:
                yield from iter_found((one for one in found if isinstance(one, dict)), self, self.to_message)

        command = f"rmqtool cat {self.name}{narrowed} -o {start}"
        page = GrowingPage(neutral(scope.topic or "messages"), PLACES, make, command)
        page.unit = "message"
        page.scope = scope
        return page

    def to_message(self, fields: Mapping[str, Any]) -> Link:
        """Return a link to a message that a broker has sent."""
        command = f"rmqtool query {self.name} {quote(fields['offsetMsgId'])}"
        return lambda: MessagePage(self, fields, partial(further_rows, fields, self), command)

    def to_queue(self, fields: Mapping[str, Any]) -> Link:
        """Return a link to the messages of a queue from a message on."""
        return partial(self.messages, Scope(fields["topic"], fields["queueId"]), fields["queueOffset"])

    def search(self, text: str, scope: Scope) -> Page:
        """Return the messages with an id, a key or a place; a key is looked up in the topic of the page."""
        which: dict[str, Any] = {} if scope.topic is None else {"topics": scope.topic}

        def make() -> Iterator[Row]:
            with find(self.cluster, text, {"limit": _AT_ONCE}, **which) as found:
                for fields in found.messages:
                    yield row_of(fields, self, self.to_message(fields))

        return GrowingPage(f"search {neutral(text)}", PLACES, make, f"rmqtool query {self.name} {quote(text)}")

    def filtered(self, text: str, scope: Scope) -> Page:
        """Return the messages with a tag, or for which an SQL92 expression is true."""
        if scope.topic is None:
            raise UsageError("a filter needs a topic", hint="open a topic first")
        is_tag = all(c not in text for c in "=<>()'\" ")
        return self.messages(scope, None, **({"tags": text} if is_tag else {"where": text}))

    def at_place(self, text: str, page: Page) -> Page:
        """Return the messages from TOPIC/QUEUE@N on, or from a queue offset of the topic that is shown."""
        topic, _, rest = text.rpartition("/")
        queue, _, offset = rest.partition("@")
        if topic and queue.isdecimal() and offset.isdecimal():
            return self.messages(Scope(topic, int(queue)), int(offset))
        if text.isdecimal() and page.scope.topic is not None:
            return self.messages(page.scope, int(text))
        return self.search(text, page.scope)

    def damage(self) -> Page:
        """Say that a check needs files."""
        return ListPage("damage", _ABOUT, [line("damage", _NO_FILES, style="error", details=(_NO_FILES, _HINT))], "")


Explorable = Explorer | ClusterExplorer


def explore(place: Place, zone: tzinfo | None = None) -> Explorable:
    """Return the explorer of a store or of a live cluster."""
    return ClusterExplorer(place, zone) if isinstance(place, Cluster) else Explorer(store_of(place), zone)
