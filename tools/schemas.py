"""The JSON Schemas of ``rmqtool/render/schemas``, read for the manual and the tests."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

from rmqtool.render import schemas

_SUFFIX = ".json"


def schema_names() -> list[str]:
    """Return the names of the shapes."""
    return sorted(
        file.name.removesuffix(_SUFFIX) for file in resources.files(schemas).iterdir() if file.name.endswith(_SUFFIX)
    )


def read_schema(name: str) -> dict[str, Any]:
    """Return the schema of a shape."""
    text = resources.files(schemas).joinpath(name + _SUFFIX).read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema
