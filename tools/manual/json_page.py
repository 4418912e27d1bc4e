"""The page of JSON shapes, made from their schemas."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from rmqtool.commands.table import COMMANDS
from tools.manual.command_pages import NAME, see_also
from tools.manual.roff import Items, Page, Section, Text
from tools.schemas import read_schema, schema_names

_INTRODUCTION = (
    "The output of `--json` and `--jsonl`, field by field. Names are upstream's; times are milliseconds since 1970; "
    "integers stay integers. A field marked ? may be missing. `[]` is each member of an array, `.*` each value of an "
    "object whose names are data. Fields may be added to a shape. If one is renamed, removed or gets another type, "
    "the shape gets a new version, which is the number after its name.",
    "Unless a command says otherwise, `--json` prints the lines of `--jsonl` as one array. If a command fails, "
    "standard error has one object of the shape `error`.",
)


def json_page() -> Page:
    """Return the page of every shape."""
    sections = [Section("Description", tuple(map(Text, _INTRODUCTION)))]
    for name in schema_names():
        schema = read_schema(name)
        version = schema["$id"].rpartition(":")[2]
        items = tuple((f"`{field}` {kind}", (meaning,)) for field, kind, meaning in iter_fields(schema))
        sections.append(Section(f"{name} {version}", (Text(schema["description"]), Items(items))))
    pages = [f"{NAME}-{entry.name}.1" for entry in COMMANDS]
    sections.append(Section("See also", (see_also(f"{NAME}.1", *pages),)))
    return Page(f"{NAME}-json", 5, "every field of the JSON that rmqtool prints", tuple(sections))


def iter_fields(schema: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield path, type and meaning of every field of a shape, at any depth; ``path`` is the path so far."""
    required = schema.get("required", ())
    for name, inner in schema.get("properties", {}).items():
        field = f"{path}.{name}" if path else name
        yield field + ("" if name in required else "?"), _type(inner), inner.get("description", "")
        yield from iter_fields(inner, field)
    for key in ("anyOf", "oneOf", "allOf"):
        for option in schema.get(key, ()):
            yield from iter_fields(option, path)
    for key, mark in (("items", "[]"), ("additionalProperties", ".*")):
        inner = schema.get(key)
        if isinstance(inner, Mapping):
            if inner.get("description"):
                yield f"{path}{mark}", _type(inner), inner["description"]
            yield from iter_fields(inner, f"{path}{mark}")


def _type(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).split(":")[1]
    if "enum" in schema or "const" in schema:
        values = schema["enum"] if "enum" in schema else [schema["const"]]
        return "|".join(value if isinstance(value, str) else json.dumps(value) for value in values)
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return "|".join(map(_type, schema[key]))
    kind = schema.get("type", "any")
    words = kind if isinstance(kind, list) else [kind]
    inner = schema.get("items")
    return "|".join(_array(inner) if word == "array" and isinstance(inner, Mapping) else word for word in words)


def _array(inner: Mapping[str, Any]) -> str:
    kind = _type(inner)
    return f"({kind})[]" if "|" in kind else f"{kind}[]"
