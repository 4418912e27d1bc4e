"""Arrow, loaded when something of it is first used: what the kernel does needs none of it, and loading takes long.

if TYPE_CHECKING:
    import pyarrow as pa
else:
    from rmqtool.columns.arrow import pa
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


class _Late:
    """A module whose names are looked up when they are used."""

    def __init__(self, name: str) -> None:
        self.__name = name

    def __getattr__(self, name: str) -> Any:
        found = getattr(import_module(self.__name), name)
        setattr(self, name, found)
        return found


pa: Any = _Late("pyarrow")
pc: Any = _Late("pyarrow.compute")
