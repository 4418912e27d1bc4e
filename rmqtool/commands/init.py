"""``rmqtool init``: a new, empty store."""

from __future__ import annotations

import os
from shlex import quote
from typing import Annotated

import typer

from rmqtool.commands.new_directory import new_directory
from rmqtool.commands.options import ForBroker, Show
from rmqtool.errors import Exit


def init(
    store: Annotated[
        str, typer.Argument(metavar="STORE", help="A new directory, or an empty one.", show_default=False)
    ],
    *,
    broker: ForBroker,
    show: Show,
) -> Exit:
    """Make an empty store with a broker.conf, ready for `produce`, and for a broker.

    Settings are given as in broker.conf: --conf mappedFileSizeCommitLog=65536, --conf brokerIP1=10.1.2.3, --conf
    storePathCommitLog=/fast/commitlog. Without --as it is a store for RocketMQ 5.3.
    """
    from rmqtool.config import StoreConfig, Version
    from rmqtool.engine.load import create_store
    from rmqtool.files.posix_write import PosixWritableFileSystem

    root = os.path.abspath(store)
    config = StoreConfig.default(broker.as_version or Version.V5_3).with_assignments(
        [f"storePathRootDir={root}", *(broker.conf or ())], takes_unused=True
    )
    with new_directory(root), PosixWritableFileSystem(root) as filesystem:
        create_store(filesystem, config)
    with show.output() as output:
        shown = {"store": root, "version": config.version.value}
        output.single(
            shown, [f"{root} is a new store for RocketMQ {config.version}", f"Next: rmqtool info {quote(store)}"]
        )
    return Exit.DONE
