"""``init``: create an empty store."""

from __future__ import annotations

import os
from typing import NamedTuple

from rmqtool.api.store import Settings, assignments_of, parse_version


class Made(NamedTuple):
    """A new store: its directory, and the broker version it is for."""

    store: str
    version: str


def init(path: str | os.PathLike[str], *, version: str | None = None, conf: Settings | None = None) -> Made:
    """Create an empty store with a broker.conf; a directory that is not empty is refused."""
    from rmqtool.config import StoreConfig, Version
    from rmqtool.engine.load import create_store
    from rmqtool.files.posix_write import PosixWritableFileSystem
    from rmqtool.files.publish import new_directory
    from rmqtool.store.open import require_disk

    require_disk(os.fspath(path))
    root = os.path.abspath(path)
    config = StoreConfig.default(parse_version(version) or Version.V5_3).with_assignments(
        [f"storePathRootDir={root}", *assignments_of(conf)], takes_unused=True
    )
    with new_directory(root), PosixWritableFileSystem(root) as filesystem:
        create_store(filesystem, config)
    return Made(root, config.version.value)
