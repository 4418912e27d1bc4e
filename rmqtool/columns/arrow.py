"""Arrow, loaded at its first use: with the kernel many commands do not need it, and loading takes longer than they do.

A module that may run without Arrow imports it like this::

    if TYPE_CHECKING:
        import pyarrow as pa
    else:
        from rmqtool.columns.arrow import pa
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


class _Late:
    """Imports a module when one of its names is first used, and keeps the names it was asked for."""

    def __init__(self, name: str) -> None:
        # Python renames an attribute with two leading underscores, so this one cannot hide a name of the module.
        self.__name = name

    def __getattr__(self, name: str) -> Any:
        found = getattr(import_module(self.__name), name)
        setattr(self, name, found)
        return found


pa: Any = _Late("pyarrow")
pc: Any = _Late("pyarrow.compute")
