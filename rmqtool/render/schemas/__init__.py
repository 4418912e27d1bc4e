"""The JSON Schema of every shape that scripts rely on, one file each; a number in ``$id`` is the version of the shape.

A key that is not in ``required`` may be missing. Further keys may be added to a shape without a new version; a key
that is renamed, removed, or of another type makes one.
"""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

_SUFFIX = ".json"


def schema_names() -> list[str]:
    """Return the names of the shapes."""
    return sorted(
        file.name.removesuffix(_SUFFIX) for file in resources.files(__name__).iterdir() if file.name.endswith(_SUFFIX)
    )


def read_schema(name: str) -> dict[str, Any]:
    """Return the schema of a shape."""
    text = resources.files(__name__).joinpath(name + _SUFFIX).read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema
