"""Derive ``layouts`` from ``declarations``: construct in, plain tables out; and the header of the kernel in C.

Run ``python -m tools.derive --write`` after changing a declaration (``make docs`` does); without
``--write`` the text goes to stdout. A test compares the committed files with what this module makes.
"""

from __future__ import annotations

import pathlib
import re
import sys
from collections.abc import Iterator
from typing import Any

from construct import Bytes, Construct, Container, FormatField, Renamed, Struct

from rmqtool.formats import declarations, layout
from rmqtool.formats.codes import MESSAGE_MAGIC_V1, MESSAGE_MAGIC_V2, TRANSACTION_MASK, SysFlag, TransactionType
from rmqtool.formats.layout import Field
from rmqtool.formats.properties import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR
from rmqtool.formats.property_names import PROPERTY_CRC32
from rmqtool.formats.topics import SCHEDULE_TOPIC

KINDS = {("b", 1): "i8", ("h", 2): "i16", ("l", 4): "i32", ("q", 8): "i64", ("L", 4): "u32"}

HEAD = '''"""The fixed layouts, derived from ``declarations``. Do not edit: ``make docs`` writes this module."""

# fmt: off
# ruff: noqa: E501

from __future__ import annotations

from typing import NamedTuple

from rmqtool.formats.layout import Field, Layout
'''


def fields_of(declared: Construct[Any, Any], context: Container[Any] | None = None) -> Iterator[Field]:
    """Yield the leading fields of fixed size; stop where a size depends on a value.

    ``context`` decides the branches (which host is IPv6); a nested struct's fields get its name in front.
    """
    yield from _walk(declared, context or Container(), "", 0)


def _walk(declared: Construct[Any, Any], context: Container[Any], prefix: str, at: int) -> Iterator[Field]:
    for part in declared.subcons:
        name, doc = prefix + part.name, str(part.docs).strip()
        inner = declarations.bare(part, context)
        if isinstance(inner, Struct):
            for field in _walk(inner, context, f"{name}_", at):
                yield field._replace(doc=doc)
                at = field.offset + field.size
            continue
        if isinstance(inner, FormatField):
            kind, size = KINDS[inner.fmtstr[1], inner.length], inner.length
        elif isinstance(inner, Bytes) and isinstance(inner.length, int):
            kind, size = "bytes", inner.length
        else:
            return
        yield Field(name, at, size, kind, doc)
        at += size


def variable_fields(declared: Construct[Any, Any]) -> Iterator[tuple[str, str, str, str]]:
    """Yield size, kind, name and doc, as words, of the fields after the first one whose size depends on a value."""
    behind = False
    for part in declared.subcons:
        inner, doc = part.subcon, str(part.docs).strip()
        while isinstance(inner, Renamed):
            inner = inner.subcon
        if isinstance(inner, Bytes):
            behind = True
            yield "n", "bytes", part.name, f"{doc}; n is its length"
        elif behind:
            # The only choice that occurs: topics of version 1 and 2.
            either = [inner] if isinstance(inner, FormatField) else [inner.elsesubcon, inner.thensubcon]
            sizes, kinds = zip(*((str(one.length), KINDS[one.fmtstr[1], one.length]) for one in either), strict=True)
            yield "/".join(sizes), "/".join(kinds), part.name, doc


def message_prefixes() -> Iterator[tuple[str, tuple[Field, ...], str]]:
    """Yield the four prefixes of a message record, up to the length of its body."""
    words = {0: "V4", declarations.BORN_HOST_V6: "V6"}, {0: "V4", declarations.STORE_HOST_V6: "V6"}
    for born, born_word in words[0].items():
        for store, store_word in words[1].items():
            fields = tuple(fields_of(declarations.MESSAGE, Container(sys_flag=born | store)))
            doc = f"Message record up to the body: born host IP{born_word.lower()}, store host IP{store_word.lower()}"
            yield f"MessagePrefix{born_word}{store_word}", fields, doc


def _constant(name: str) -> str:
    name = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name.replace("RocksDB", "Rocksdb").replace("DLedger", "Dledger"))
    return name.upper()


def _value_class(name: str, fields: tuple[Field, ...], doc: str) -> str:
    lines = [f"class {name}(NamedTuple):", f'    """{doc}."""', ""]
    lines += [f"    {field.name}: {'bytes' if field.kind == 'bytes' else 'int'}" for field in fields]
    return "\n".join(lines)


def _record_class(name: str, prefix: tuple[Field, ...], declared: Construct[Any, Any]) -> str:
    """Return the class of a record: the prefix, then the variable parts as raw bytes, which have their own lengths."""
    variable = [part.name for part in declared.subcons if isinstance(declarations.bare(part, Container()), Bytes)]
    parts = tuple(Field(f"raw_{part}", 0, 0, "bytes", "") for part in variable)
    return _value_class(name, prefix + parts, "Message record: prefix, then body, topic and properties as stored")


def _layout(constant: str, name: str, fields: tuple[Field, ...], doc: str) -> str:
    lines = [f"{constant} = Layout(", f'    "{name}",', f'    "{doc}",', "    ("]
    lines += [
        f'        Field("{field.name}", {field.offset}, {field.size}, "{field.kind}", "{field.doc}"),'
        for field in fields
    ]
    return "\n".join([*lines, "    ),", f"    {name},", ")"])


def layouts_module() -> str:
    """Return the text of ``layouts``."""
    parts = [HEAD]
    prefixes = list(message_prefixes())
    parts.append("\n" + _value_class("MessagePrefix", prefixes[0][1], "Message record up to the body") + "\n")
    for name, fields, doc in prefixes:
        constant = "MESSAGE_PREFIX_" + name.removeprefix("MessagePrefix")
        parts.append("\n" + _layout(constant, "MessagePrefix", fields, doc))
    parts.append("\n\n" + _record_class("MessageRecord", prefixes[0][1], declarations.MESSAGE))
    batch_item = tuple(fields_of(declarations.BATCH_ITEM))
    fixed = {name: (tuple(fields_of(declared)), doc) for name, (declared, doc) in declarations.FIXED.items()}
    fixed["BatchItemPrefix"] = (batch_item, "Message of a client batch up to the body")
    for name, (fields, doc) in fixed.items():
        parts.append("\n\n" + _value_class(name, fields, doc) + "\n")
        parts.append("\n" + _layout(_constant(name), name, fields, doc))
    return "\n".join(parts) + "\n"


# The layouts that the kernel reads and writes.
_KERNEL_LAYOUTS = ("ConsumeQueueUnit", "IndexSlot", "IndexEntry")
LAYOUTS = pathlib.Path(layout.__file__).with_name("layouts.py")
KERNEL_HEADER = pathlib.Path(__file__).parents[1] / "native" / "layouts.h"


def kernel_header() -> str:
    """Return the text of ``native/layouts.h``: the places of fields and the codes that the kernel uses."""
    lines = ["/* Layouts and codes, derived from rmqtool/formats. Do not edit: `make docs` writes this file. */"]
    layouts = [("MESSAGE_PREFIX_" + name.removeprefix("MessagePrefix"), parts) for name, parts, _ in message_prefixes()]
    layouts += [(_constant(name), tuple(fields_of(declarations.FIXED[name][0]))) for name in _KERNEL_LAYOUTS]
    layouts.append(("BATCH_ITEM", tuple(fields_of(declarations.BATCH_ITEM))))
    for constant, fields in layouts:
        places = [f"    {constant}_AT_{field.name.upper()} = {field.offset}," for field in fields]
        lines += ["enum {", *places, f"    {constant}_SIZE = {fields[-1].offset + fields[-1].size}", "};"]
    numbers = {
        "MESSAGE_MAGIC_V1": f"{MESSAGE_MAGIC_V1:#x}u",
        "MESSAGE_MAGIC_V2": f"{MESSAGE_MAGIC_V2:#x}u",
        "SYS_FLAG_COMPRESSED": f"{int(SysFlag.COMPRESSED):#x}",
        "SYS_FLAG_BORN_HOST_V6": f"{int(SysFlag.BORN_HOST_V6):#x}",
        "SYS_FLAG_STORE_HOST_V6": f"{int(SysFlag.STORE_HOST_V6):#x}",
        "TRANSACTION_MASK": f"{TRANSACTION_MASK:#x}",
        "TRANSACTION_PREPARED": f"{int(TransactionType.PREPARED):#x}",
        "TRANSACTION_ROLLBACK": f"{int(TransactionType.ROLLBACK):#x}",
    }
    texts = {
        "NAME_VALUE_SEPARATOR": f"\\{ord(NAME_VALUE_SEPARATOR):o}",
        "PROPERTY_SEPARATOR": f"\\{ord(PROPERTY_SEPARATOR):o}",
        "PROPERTY_CRC_NAME": PROPERTY_CRC32,
        "SCHEDULE_TOPIC": SCHEDULE_TOPIC,
    }
    lines += [f"#define {name} {value}" for name, value in numbers.items()]
    lines += [f'#define {name} "{text}"' for name, text in texts.items()]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the files, or print the module."""
    text = layouts_module()
    if "--write" in sys.argv[1:]:
        LAYOUTS.write_text(text, encoding="utf-8")
        KERNEL_HEADER.write_text(kernel_header(), encoding="utf-8")
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
