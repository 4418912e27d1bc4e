"""``Store``: a store by its path and a broker version; opened once, it answers several questions."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from shlex import quote
from typing import TYPE_CHECKING, Any, Self, Unpack

from rmqtool.api.cluster import Cluster
from rmqtool.config import StoreConfig, Version
from rmqtool.errors import StoreError, UsageError

if TYPE_CHECKING:
    import pyarrow

    from rmqtool.api.check import How as CheckHow
    from rmqtool.api.consume import Topics
    from rmqtool.api.copy import How as CopyHow
    from rmqtool.api.diff import How as DiffHow
    from rmqtool.api.group import Settings as GroupSettings
    from rmqtool.api.produce import Given
    from rmqtool.api.produce import How as ProduceHow
    from rmqtool.api.repair import How as RepairHow
    from rmqtool.api.repair import Past
    from rmqtool.api.shapes import (
        Answer,
        Copied,
        Counts,
        Damage,
        Differences,
        Exported,
        Group,
        Info,
        Message,
        Plan,
        Recovered,
        Rehearsed,
        Stored,
        TickSummary,
        Topic,
        Undone,
    )
    from rmqtool.api.topic import Settings as TopicSettings
    from rmqtool.api.wanted import Where, Which
    from rmqtool.checks.check import Check
    from rmqtool.checks.tier_check import TierCheck
    from rmqtool.log.sources import Source
    from rmqtool.progress import Progress
    from rmqtool.store.open import Store as OpenStore
    from rmqtool.store.tiers import Tier

__all__ = ["Place", "Settings", "Store", "Version", "open", "opened", "store_of"]

Settings = Mapping[str, str] | Iterable[str]


class Store:
    """A store. ``open`` opens it for several questions, and a context manager closes it; else each verb opens it.

    ``version`` is the broker whose rules are used ("4.9", "5.3", "5.4"; default: guessed), ``conf`` has settings as in
    broker.conf, by name or as "name=value".
    """

    def __init__(
        self, path: str | os.PathLike[str], *, version: str | None = None, conf: Settings | None = None
    ) -> None:
        self.path = os.fspath(path)
        if is_remote(self.path):
            raise _needs_files(self.path)
        self.as_version = parse_version(version)
        self.assignments = assignments_of(conf)
        self._opened: OpenStore | None = None

    def __repr__(self) -> str:
        return f"<Store {self.path!r}>" if self._opened is None else repr(self._opened)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def root(self) -> str:
        """The directory of the store."""
        with opened(self) as store:
            return store.root

    @property
    def version(self) -> str:
        """The broker whose rules are used."""
        with opened(self) as store:
            return store.version.value

    def options(self, assumed: Mapping[str, object] | None = None) -> str:
        """Return the command-line options for the broker's rules and settings that were used."""
        version = "" if self.as_version is None else f" --as {self.as_version}"
        stated = [*self.assignments, *(f"{name}={value}" for name, value in (assumed or {}).items())]
        return version + "".join(f" --conf {quote(one)}" for one in stated)

    def open(self) -> Self:
        """Open the store until it is closed."""
        if self._opened is None:
            self._opened = self.reopen()
        return self

    def close(self) -> None:
        """Close the store if it is open."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def reopen(self, path: str | None = None) -> OpenStore:
        """Open the store as it is now, for one question; ``path`` is its root if that is known already."""
        from rmqtool.store.open import open_store

        return open_store(path or self.path, version=self.as_version, assignments=self.assignments)

    def reopen_without_queues(self) -> OpenStore:
        """Open a store that will be opened for writing: only its settings and its log are listed.

        A writer lists the whole store under the lock. Settings do not depend on queues and index.
        """
        from rmqtool.formats.paths import CONSUME_QUEUE, CONSUME_QUEUE_EXT, INDEX
        from rmqtool.store.open import open_store

        derived = (CONSUME_QUEUE, CONSUME_QUEUE_EXT, INDEX)
        return open_store(self.path, version=self.as_version, assignments=self.assignments, without=derived)

    def located(self) -> tuple[str, StoreConfig]:
        """Return root and settings of a store that will be opened for writing."""
        with self.reopen_without_queues() as store:
            return store.root, store.config

    @contextmanager
    def use(self) -> Iterator[OpenStore]:
        """Yield the open store, or open it for the time of the context."""
        if self._opened is not None:
            yield self._opened
            return
        with self.reopen() as store:
            yield store

    def info(self) -> Info:
        """Return the store at a glance; see ``rmqtool.info``."""
        from rmqtool.api.info import info

        return info(self)

    def scan(
        self, *, order: str = "log", limit: int | None = None, jobs: int = 1, **which: Unpack[Which]
    ) -> Iterator[Message | Damage]:
        """Yield messages, and damage in its place; see ``rmqtool.scan``."""
        from rmqtool.api.cat import scan

        return scan(self, order=order, limit=limit, jobs=jobs, **which)

    def batches(
        self, *, columns: Sequence[str] | None = None, jobs: int = 1, **which: Unpack[Which]
    ) -> pyarrow.RecordBatchReader:
        """Return messages as a stream of Arrow batches; see ``rmqtool.batches``."""
        from rmqtool.api.cat import batches

        return batches(self, columns=columns, jobs=jobs, **which)

    def query(
        self,
        what: str,
        *,
        kind: str | None = None,
        history: bool = False,
        limit: int | None = None,
        **which: Unpack[Where],
    ) -> Answer:
        """Find a message; see ``rmqtool.query``."""
        from rmqtool.api.query import query

        return query(self, what, kind=kind, history=history, limit=limit, **which)

    def stat(self, by: str | Sequence[str] = "topic", *, jobs: int = 1, **which: Unpack[Which]) -> Counts:
        """Count messages and bytes; see ``rmqtool.stat``."""
        from rmqtool.api.stat import stat

        return stat(self, by, jobs=jobs, **which)

    def check(self, *, jobs: int = 1, **how: Unpack[CheckHow]) -> Check | TierCheck:
        """Compare every part of the store with every other; see ``rmqtool.check``."""
        from rmqtool.api.check import check

        return check(self, jobs=jobs, **how)

    def diff(self, other: Place, *, jobs: int = 1, **how: Unpack[DiffHow]) -> Differences:
        """Compare this store with another; see ``rmqtool.diff``."""
        from rmqtool.api.diff import diff

        return diff(self, other, jobs=jobs, **how)

    def recover(self, *, to: str | os.PathLike[str] | None = None) -> Rehearsed:
        """Return what the next start of a broker would do; see ``rmqtool.recover``."""
        from rmqtool.api.recover import recover

        return recover(self, to=to)

    def recover_apply(self, *, progress: Progress | None = None) -> Recovered:
        """Recover the store with rmqtool's own rules; see ``rmqtool.recover_apply``."""
        from rmqtool.api.recover import recover_apply

        return recover_apply(self, progress=progress)

    def recover_until(
        self, until: int, *, to: str | os.PathLike[str] | None = None, progress: Progress | None = None
    ) -> Recovered:
        """Return the store as it was at a time; see ``rmqtool.recover_until``."""
        from rmqtool.api.recover import recover_until

        return recover_until(self, until, to=to, progress=progress)

    def repair(self, *, jobs: int = 1, **how: Unpack[RepairHow]) -> Plan:
        """Plan a repair, or do it; see ``rmqtool.repair``."""
        from rmqtool.api.repair import repair

        return repair(self, jobs=jobs, **how)

    def undo(self, which: str | os.PathLike[str] = "last") -> Undone:
        """Undo a repair; see ``rmqtool.undo``."""
        from rmqtool.api.repair import undo

        return undo(self, which)

    def past_repairs(self) -> Past:
        """Return the past repairs; see ``rmqtool.past_repairs``."""
        from rmqtool.api.repair import past_repairs

        return past_repairs(self)

    def copy(self, to: str | os.PathLike[str], how: CopyHow | None = None, **which: Unpack[Which]) -> Copied:
        """Copy messages into a new store; see ``rmqtool.copy``."""
        from rmqtool.api.copy import copy

        return copy(self, to, how, **which)

    def topics(self) -> list[Topic]:
        """Return the topics; see ``rmqtool.topics``."""
        from rmqtool.api.topic import topics

        return topics(self)

    def topic(self, action: str, name: str = "", **settings: Unpack[TopicSettings]) -> list[Topic]:
        """List, create, alter or delete topics; see ``rmqtool.topic``."""
        from rmqtool.api.topic import topic

        return topic(self, action, name, **settings)

    def groups(self) -> dict[str, Group]:
        """Return the consumer groups by name; see ``rmqtool.groups``."""
        from rmqtool.api.group import groups

        return groups(self)

    def group(self, action: str, name: str = "", settings: GroupSettings | None = None) -> dict[str, Group]:
        """List, show, create, alter or delete consumer groups; see ``rmqtool.group``."""
        from rmqtool.api.group import group

        return group(self, action, name, settings)

    def put(self, messages: Mapping[str, Any] | Iterable[Mapping[str, Any]], *, create: bool = False) -> list[Stored]:
        """Store messages; see ``rmqtool.put``."""
        from rmqtool.api.produce import put

        return put(self, messages, create=create)

    def produce(self, given: Given | None = None, **how: Unpack[ProduceHow]) -> Iterator[Stored]:
        """Store what is read; see ``rmqtool.produce``."""
        from rmqtool.api.produce import produce

        return produce(self, given, **how)

    def consume(self, group: str = "", *, limit: int | None = None, **which: Unpack[Topics]) -> Iterator[Message]:
        """Yield the next messages of a group; see ``rmqtool.consume``."""
        from rmqtool.api.consume import consume

        return consume(self, group, limit=limit, **which)

    def tick(self, *, expire: bool = False, check: str | None = None) -> TickSummary:
        """Deliver due messages and delete expired segments; see ``rmqtool.tick``."""
        from rmqtool.api.tick import tick

        return tick(self, expire=expire, check=check)

    def export(
        self, to: str | os.PathLike[str], *, since_last: bool = False, jobs: int = 1, **which: Unpack[Where]
    ) -> Exported:
        """Write messages as Parquet; see ``rmqtool.export``."""
        from rmqtool.api.export import export

        return export(self.path, to, since_last=since_last, jobs=jobs, **which)


Place = str | os.PathLike[str] | Store | Cluster


def open(path: str | os.PathLike[str], *, version: str | None = None, conf: Settings | None = None) -> Store:  # noqa: A001
    """Open a store for reading, once for several questions. A context manager closes it.

    ``version`` is the broker whose rules are used ("4.9", "5.3", "5.4"; default: guessed), ``conf`` has settings as in
    broker.conf.
    """
    return Store(path, version=version, conf=conf).open()


def is_remote(place: object) -> bool:
    """Whether a place is a live cluster."""
    return isinstance(place, Cluster) or (isinstance(place, str) and place.startswith("rocketmq://"))


def require_files(place: object) -> None:
    """Refuse a live cluster."""
    if is_remote(place):
        raise _needs_files(str(place))


def store_of(place: Place) -> Store:
    """Return a place as a ``Store``."""
    if isinstance(place, Cluster):
        raise _needs_files(str(place.address))
    return place if isinstance(place, Store) else Store(place)


def _needs_files(address: str) -> UsageError:
    return UsageError(
        f"{address} is a live cluster, and this needs the files of a store",
        hint="give the storePathRootDir of a broker",
    )


@contextmanager
def opened(place: Place) -> Iterator[OpenStore]:
    """Open a store for the time of the context; one that is open already stays open."""
    with store_of(place).use() as store:
        yield store


@contextmanager
def opened_here(place: Place) -> Iterator[OpenStore | Tier]:
    """Open a store, or a tier of tiered storage, for the time of the context; a store that is open stays open."""
    store = store_of(place)
    if store._opened is not None:
        yield store._opened
        return
    with reopened(store) as found:
        yield found


def reopened(store: Store) -> OpenStore | Tier:
    """Open a store as it is now, or the tier that its path names."""
    try:
        return store.reopen()
    except StoreError:
        from rmqtool.store.tiers import find_tier, open_tier

        named = find_tier(store.path)
        if named is None:
            raise
        return open_tier(named.root)


@contextmanager
def source_at(place: Place) -> Iterator[Source]:
    """Open the log at a path: of a store, of one queue, or one file."""
    from rmqtool.log.sources import open_source, source_of

    store = store_of(place)
    if store._opened is not None:
        yield source_of(store._opened)
        return
    with open_source(store.path, store.reopen) as source:
        yield source


def parse_version(text: str | None) -> Version | None:
    """Return the broker version for its name."""
    if text is None:
        return None
    if text not in list(Version):
        raise UsageError(f'unknown version "{text}"', hint=f"one of {', '.join(Version)}")
    return Version(text)


def assignments_of(conf: Settings | None) -> tuple[str, ...]:
    """Return settings in the form "name=value"."""
    if isinstance(conf, Mapping):
        return tuple(f"{name}={value}" for name, value in conf.items())
    return tuple(conf or ())


def is_one_file(path: str) -> bool:
    """Return whether a path is a file of a store; a configuration file names a store and does not count."""
    from rmqtool.store.open import CONF_ENDINGS, is_file

    return is_file(path) and not path.endswith(CONF_ENDINGS)


def require_whole(store: Store, command: str, why: str) -> None:
    """Raise UsageError if the path is one file of a store: ``why`` says what ``command`` needs the whole store for."""
    if is_one_file(store.path):
        from rmqtool.formats.paths import FileKind
        from rmqtool.store.open import locate

        filesystem, _, what = locate(store.path)
        filesystem.close()
        if what.kind is not FileKind.UNKNOWN or what.base_offset is not None:
            hint = f"rmqtool {command} {quote(filesystem.root)}"
            raise UsageError(f"{store.path} is one file, and {why}", hint=hint)
