"""``rmqtool init``: create an empty store."""

from __future__ import annotations

from shlex import quote
from typing import Annotated

import typer

from rmqtool.commands.options import ForBroker, Show
from rmqtool.errors import Exit


def init(
    store: Annotated[str, typer.Argument(metavar="STORE", help="A new or empty directory.", show_default=False)],
    *,
    broker: ForBroker,
    show: Show,
) -> Exit:
    """Create an empty store with a broker.conf, ready for `produce` and for a broker.

    Settings are those of broker.conf: --conf mappedFileSizeCommitLog=65536, --conf brokerIP1=10.1.2.3, --conf
    storePathCommitLog=/fast/commitlog. Without --as it is a store for RocketMQ 5.3.
    """
    from rmqtool.api.init import init as make

    with show.output(("store", "version")) as output:
        made = make(store, version=broker.as_version, conf=broker.conf)
        lines = [f"{made.store} is a new store for RocketMQ {made.version}", f"Next: rmqtool info {quote(store)}"]
        output.single(made._asdict(), lines)
    return Exit.DONE
