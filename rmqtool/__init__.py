"""Open, judge, repair and write Apache RocketMQ stores without a broker, and speak to live clusters.

The verbs of the commands for programs; ``docs/library.md`` shows each of them. Nothing is loaded before it is used.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:  # what `from rmqtool import X` means to a type checker
    from rmqtool.api.async_cluster import AsyncCluster as AsyncCluster
    from rmqtool.api.async_cluster import connect_async as connect_async
    from rmqtool.api.cat import batches as batches
    from rmqtool.api.cat import scan as scan
    from rmqtool.api.check import check as check
    from rmqtool.api.cluster import Cluster as Cluster
    from rmqtool.api.cluster import connect as connect
    from rmqtool.api.consume import consume as consume
    from rmqtool.api.copy import copy as copy
    from rmqtool.api.diff import diff as diff
    from rmqtool.api.dump import dump as dump
    from rmqtool.api.export import export as export
    from rmqtool.api.group import group as group
    from rmqtool.api.group import groups as groups
    from rmqtool.api.info import info as info
    from rmqtool.api.init import init as init
    from rmqtool.api.mirror import mirror as mirror
    from rmqtool.api.produce import produce as produce
    from rmqtool.api.produce import put as put
    from rmqtool.api.query import query as query
    from rmqtool.api.recover import recover as recover
    from rmqtool.api.recover import recover_apply as recover_apply
    from rmqtool.api.recover import recover_until as recover_until
    from rmqtool.api.repair import past_repairs as past_repairs
    from rmqtool.api.repair import repair as repair
    from rmqtool.api.repair import undo as undo
    from rmqtool.api.send_errors import NoReply as NoReply
    from rmqtool.api.send_errors import NotSent as NotSent
    from rmqtool.api.send_errors import RequestRefused as RequestRefused
    from rmqtool.api.send_errors import SendUnknown as SendUnknown
    from rmqtool.api.serve import serve as serve
    from rmqtool.api.stat import stat as stat
    from rmqtool.api.store import Store as Store
    from rmqtool.api.store import open as open  # noqa: A004
    from rmqtool.api.tick import tick as tick
    from rmqtool.api.topic import topic as topic
    from rmqtool.api.topic import topics as topics
    from rmqtool.errors import NotFound as NotFound
    from rmqtool.errors import RmqtoolError as RmqtoolError
    from rmqtool.findings import Finding as Finding

__version__ = "0.1.0"
# The date of the release, changed with the version: the manual has it, so the same sources make the same pages.
__date__ = "2026-11-18"

_PLACES = {
    "AsyncCluster": "rmqtool.api.async_cluster",
    "Cluster": "rmqtool.api.cluster",
    "Finding": "rmqtool.findings",
    "NoReply": "rmqtool.api.send_errors",
    "NotFound": "rmqtool.errors",
    "NotSent": "rmqtool.api.send_errors",
    "RequestRefused": "rmqtool.api.send_errors",
    "RmqtoolError": "rmqtool.errors",
    "SendUnknown": "rmqtool.api.send_errors",
    "Store": "rmqtool.api.store",
    "batches": "rmqtool.api.cat",
    "check": "rmqtool.api.check",
    "connect": "rmqtool.api.cluster",
    "connect_async": "rmqtool.api.async_cluster",
    "consume": "rmqtool.api.consume",
    "copy": "rmqtool.api.copy",
    "diff": "rmqtool.api.diff",
    "dump": "rmqtool.api.dump",
    "export": "rmqtool.api.export",
    "group": "rmqtool.api.group",
    "groups": "rmqtool.api.group",
    "info": "rmqtool.api.info",
    "init": "rmqtool.api.init",
    "mirror": "rmqtool.api.mirror",
    "open": "rmqtool.api.store",
    "past_repairs": "rmqtool.api.repair",
    "produce": "rmqtool.api.produce",
    "put": "rmqtool.api.produce",
    "query": "rmqtool.api.query",
    "recover": "rmqtool.api.recover",
    "recover_apply": "rmqtool.api.recover",
    "recover_until": "rmqtool.api.recover",
    "repair": "rmqtool.api.repair",
    "scan": "rmqtool.api.cat",
    "serve": "rmqtool.api.serve",
    "stat": "rmqtool.api.stat",
    "tick": "rmqtool.api.tick",
    "topic": "rmqtool.api.topic",
    "topics": "rmqtool.api.topic",
    "undo": "rmqtool.api.repair",
}
__all__ = list(_PLACES)


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name not in _PLACES:
        if name[:1].isupper():  # else it is a module that is about to be imported
            from rmqtool.api.other_names import said_of

            if more := said_of("rmqtool", name):
                # `from rmqtool import` replaces the text of an AttributeError.
                raise ImportError(f"rmqtool has no {name}{more}")
        raise AttributeError(f"module 'rmqtool' has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
