"""Open, judge, repair and write Apache RocketMQ stores without a broker.

What the commands do, for programs; ``docs/library.md`` shows each at work. Nothing is loaded before it is used.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:  # what `from rmqtool import X` means to a type checker
    from rmqtool.errors import RmqtoolError as RmqtoolError
    from rmqtool.findings import Finding as Finding
    from rmqtool.library import batches as batches
    from rmqtool.library import check as check
    from rmqtool.library import diff as diff
    from rmqtool.library import dump as dump
    from rmqtool.library import export as export
    from rmqtool.library import info as info
    from rmqtool.library import init as init
    from rmqtool.library import open as open  # noqa: A004
    from rmqtool.library import put as put
    from rmqtool.library import query as query
    from rmqtool.library import recover as recover
    from rmqtool.library import scan as scan
    from rmqtool.library import stat as stat

__version__ = "0.1.0"
# Of the release, changed with the version: the manual bears it, so the same sources make the same pages.
__date__ = "2026-11-18"

_LIBRARY = "rmqtool.library"
_PLACES = {
    "Finding": "rmqtool.findings",
    "RmqtoolError": "rmqtool.errors",
    "batches": _LIBRARY,
    "check": _LIBRARY,
    "diff": _LIBRARY,
    "dump": _LIBRARY,
    "export": _LIBRARY,
    "info": _LIBRARY,
    "init": _LIBRARY,
    "open": _LIBRARY,
    "put": _LIBRARY,
    "query": _LIBRARY,
    "recover": _LIBRARY,
    "scan": _LIBRARY,
    "stat": _LIBRARY,
}
__all__ = list(_PLACES)


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name not in _PLACES:
        raise AttributeError(f"module 'rmqtool' has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
