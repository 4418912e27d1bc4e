"""From an open store to the rehearsal of its broker's next start."""

from __future__ import annotations

from rmqtool.errors import StoreError
from rmqtool.formats import paths
from rmqtool.formats.paths import FileKind
from rmqtool.storage.overlay import Action
from rmqtool.storage.store import Store
from rmqtool.upstream.found_settings import assumed_settings, with_found_settings
from rmqtool.upstream.outcome import StartOutcome
from rmqtool.upstream.rehearsal import Rehearsal
from rmqtool.upstream.settings import StartSettings


def rehearse(store: Store, *, contents: bool = False) -> Rehearsal:
    """Return the rehearsal of a start on ``store``, by the broker it was opened as.

    Sizes that no setting states are taken from the files. The model knows brokers with a commit log of their own and
    file queues; of others it says nothing rather than something wrong.
    """
    if store.is_dledger:
        raise StoreError("the start of a DLedger broker is not modelled", file=store.root, hint=_LOOK)
    if paths.CONSUME_QUEUE in store.listing.databases():
        raise StoreError("the start of a broker with RocksDB queues is not modelled", file=store.root, hint=_LOOK)
    if any(True for _ in store.listing.of_kind(FileKind.BATCH_CONSUME_QUEUE)):
        raise StoreError("the start of a broker with batch queues is not modelled", file=store.root, hint=_LOOK)
    settings = StartSettings.of(with_found_settings(store.config, store.listing))
    return Rehearsal(store.filesystem, settings, contents=contents)


def assumed(store: Store, outcome: StartOutcome) -> dict[str, object]:
    """Return the settings that were taken by default, although what the start creates depends on them."""
    created = (change.path for change in outcome.changes if change.action is Action.CREATE)
    return assumed_settings(with_found_settings(store.config, store.listing), created)


_LOOK = "rmqtool check STORE"
