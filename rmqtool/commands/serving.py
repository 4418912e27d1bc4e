"""A store opened to be worked on, with everything a broker does by itself beside it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqtool.broker.services.tick import Services
    from rmqtool.commands.options import AsBroker


@contextmanager
def serving(path: str, broker: AsBroker) -> Iterator[Services]:
    """Open the store at ``path`` under its lock, and save the progress of its services at the end."""
    from rmqtool.broker.services.tick import running
    from rmqtool.engine.store import opened_at
    from rmqtool.store.open import open_store

    with open_store(path, version=broker.as_version, assignments=tuple(broker.conf or ())) as opened:
        root, config = opened.root, opened.config
    with (
        opened_at(root, config) as store,
        running(store) as services,
    ):
        yield services
