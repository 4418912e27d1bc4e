"""Arrow, loaded when something of it is first used: what the kernel does needs none of it, and loading takes long.

if TYPE_CHECKING:
    import pyarrow as pa
else:
    from rmqtool.columns.arrow import pa
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

# What the environment has to say while Arrow is loaded, beside what it says already.
SURROUNDINGS: dict[str, str] = {}


def load() -> None:
    """Load Arrow, if nobody has; the environment stays as it is."""
    before = os.environ.copy()
    os.environ.update({**SURROUNDINGS, **before})
    try:
        import pyarrow

        pyarrow.default_memory_pool()  # it is chosen when it is first asked for
    finally:
        os.environ.clear()
        os.environ.update(before)


class _Late:
    """A module whose names are looked up when they are used."""

    def __init__(self, name: str) -> None:
        self.__name = name

    def __getattr__(self, name: str) -> Any:
        load()
        found = getattr(import_module(self.__name), name)
        setattr(self, name, found)
        return found


pa: Any = _Late("pyarrow")
pc: Any = _Late("pyarrow.compute")
