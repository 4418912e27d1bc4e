"""A store that ``serve`` holds: other commands of the same user speak to its server, over loopback."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from rmqtool.api.cluster import Cluster, opened_cluster
from rmqtool.api.store import Place, Store, is_remote, store_of
from rmqtool.errors import StoreError, StoreInUse, UsageError

if TYPE_CHECKING:
    from rmqtool.client.sink import ClusterSink
    from rmqtool.store.owner import Owner


def place_of(place: Place, command: str) -> Place:
    """Return the server of a store that is served now, else the place itself."""
    store = None if is_remote(place) else store_of(place)
    owner = None if store is None else _find_server(store)
    return place if store is None or owner is None else _server(store, owner, command, {})


def server_of(place: Place, command: str, idle: Mapping[str, object], held: StoreInUse) -> Place:
    """Return the server that holds a store, or raise that another program ``held`` it.

    ``idle`` are options that a server decides about itself; they are refused, as the settings of the store are.
    """
    store = store_of(place)
    owner = _find_server(store)
    if owner is None:
        raise held
    return _server(store, owner, command, idle)


def _server(store: Store, owner: Owner, command: str, idle: Mapping[str, object]) -> Cluster:
    for option, value in {"--as": store.as_version, "--conf": store.assignments, **idle}.items():
        if value:
            raise UsageError(
                f"{option} has no effect: rmqtool serve (process {owner.pid}) holds {store.path} with its own settings",
                hint=f"leave it out, or stop the server and run {command} again",
            )
    from rmqtool.broker.accounts import OWNER

    return Cluster(f"rocketmq://{owner.names}", broker=owner.broker, credentials=(OWNER, owner.token))


@contextmanager
def sink_of(place: Place, store: Place, *, creates: bool, **settings: Any) -> Iterator[ClusterSink]:
    """Open a live cluster for a producer. Of a ``store`` that it serves, the files tell when a message was stored."""
    from rmqtool.client.sink import ClusterSink

    with opened_cluster(place) as cluster, ExitStack() as stack:
        find_time = None if place is store else stack.enter_context(_store_times(store_of(store)))
        producer = cluster.producer(**settings)
        yield ClusterSink(cluster.face, cluster.connections, producer.sends, creates=creates, find_time=find_time)


@contextmanager
def _store_times(store: Store) -> Iterator[Callable[[int], int | None]]:
    """Give a function that reads from the files when the message at a physical offset was stored."""
    from rmqtool.log.end import read_record

    with ExitStack() as stack:
        opened = stack.enter_context(store.reopen())

        def find_time(physical_offset: int) -> int | None:
            nonlocal opened
            if opened.commit_log.find(physical_offset) is None:
                # The server has begun another segment.
                opened = stack.enter_context(store.reopen())
            record = read_record(opened.commit_log, physical_offset)
            return None if record is None else record.store_timestamp

        yield find_time


def _find_server(store: Store) -> Owner | None:
    """Return the server of a store, None if no server of this user holds its lock."""
    from rmqtool.files.posix import PosixReadableFileSystem
    from rmqtool.store.open import is_far
    from rmqtool.store.owner import any_owner, find_owner

    if not any_owner() or is_far(store.path):
        return None
    try:
        root, _ = store.located()
        with PosixReadableFileSystem(root) as files:
            return find_owner(root, files.lock_state().pid)
    except StoreError:
        # No store, or no file where the lock is: the command reports it, in its own words.
        return None
