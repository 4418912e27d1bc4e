"""A new, empty store: the directories a broker expects, and a ``broker.conf`` with its settings."""

from __future__ import annotations

from rmqtool.config import StoreConfig
from rmqtool.errors import Refused
from rmqtool.formats import paths
from rmqtool.storage.filesystem import WritableFileSystem, make_directories
from rmqtool.storage.store import AS_VERSION, BROKER_CONF

DIRECTORIES = (paths.COMMIT_LOG, paths.CONSUME_QUEUE, paths.INDEX, paths.CONFIG)


def create_store(filesystem: WritableFileSystem, config: StoreConfig) -> None:
    """Make an empty store of ``config`` in a directory that holds nothing yet."""
    if filesystem.listdir():
        raise Refused(
            "the directory is not empty; a new store would mix with what is there",
            file=filesystem.shown(""),
            hint="name a directory that is empty or not there yet",
        )
    for directory in DIRECTORIES:
        make_directories(filesystem, directory)
    comments = (
        f"Settings of this store, made for RocketMQ {config.version}.",
        "A broker started with -c reads them too.",
    )
    text = config.with_unknown(AS_VERSION, config.version.value).encode_broker_conf(comments)
    with filesystem.create(BROKER_CONF) as file:
        file.pwrite(text.encode("utf-8"), 0)
        file.fsync()
    filesystem.fsync_dir()
