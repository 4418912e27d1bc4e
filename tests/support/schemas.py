"""Hold what a command printed against the JSON Schema of its shape."""

from __future__ import annotations

from functools import cache
from typing import Any

from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from tools.schemas import read_schema, schema_names


@cache
def _validator(name: str) -> Draft202012Validator:
    schemas = [read_schema(other) for other in schema_names()]
    registry: Registry[Any] = Registry().with_resources(
        (schema["$id"], Resource.from_contents(schema)) for schema in schemas
    )
    return Draft202012Validator(read_schema(name), registry=registry)


def flaws(name: str, value: object) -> list[str]:
    """Return where ``value`` is not of the shape ``name``, and why."""
    return [f"{error.json_path}: {error.message}" for error in _validator(name).iter_errors(value)]


def validate(name: str, value: object) -> None:
    """Fail where ``value`` is not of the shape ``name``."""
    assert flaws(name, value) == []
