"""From an open store to the rehearsal of its broker's next start."""

from __future__ import annotations

from rmqtool.errors import StoreError
from rmqtool.formats import paths
from rmqtool.storage.store import Store
from rmqtool.upstream.found_settings import with_found_settings
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
    config = with_found_settings(store.config, store.listing)
    return Rehearsal(store.filesystem, StartSettings.of(config), contents=contents)


_LOOK = "info and dump show what is there"
