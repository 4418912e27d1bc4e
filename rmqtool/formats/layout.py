"""A fixed layout: struct packer, field table and numpy dtype of a structure, all from one declaration.

The declarations are in ``declarations`` (construct). ``tools/derive.py`` writes ``layouts`` from them, so that rmqtool
starts and works without loading construct. A test keeps the two equal.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from rmqtool.errors import RmqtoolError

Buffer = bytes | bytearray | memoryview
Value = TypeVar("Value", bound=tuple[Any, ...])


def bytes_left(data: Buffer, file_offset: int) -> int:
    """Return how many bytes of ``data`` there are from ``file_offset`` on; 0 for an offset outside of it."""
    return max(len(data) - file_offset, 0) if file_offset >= 0 else 0


class LayoutError(RmqtoolError):
    """Fewer bytes than a layout needs, or a value that does not fit its field."""

    code = "layout"


class Field(NamedTuple):
    """One field of a layout: ``offset`` in bytes from the start of the structure, ``size`` in bytes, what it means."""

    name: str
    offset: int
    size: int
    kind: str  # i8 i16 i32 i64 u32, or bytes
    doc: str

    @property
    def upstream_name(self) -> str:
        """The name as upstream spells it, for people and JSON."""
        return upstream_name(self.name)


def upstream_name(name: str) -> str:
    """Return a name of a field in upstream's spelling: camel case, with CRC in capitals."""
    first, *rest = name.replace("_crc", "_CRC").split("_")
    return first + "".join(word if word.isupper() else word.capitalize() for word in rest)


# numpy needs a table of its own: its letters mean other types than those of ``struct``, and it needs the byte order of
# each field.
STRUCT_LETTERS = {"i8": "b", "i16": "h", "i32": "i", "i64": "q", "u32": "I"}
DTYPE_CODES = {"i8": "i1", "i16": ">i2", "i32": ">i4", "i64": ">i8", "u32": ">u4"}


@dataclass(frozen=True, eq=False)
class Layout(Generic[Value]):
    """A fixed layout, big-endian and packed, whose values are the named tuples ``make`` builds."""

    name: str
    doc: str
    fields: tuple[Field, ...]
    make: Callable[..., Value]
    packer: struct.Struct = field(init=False, repr=False)
    size: int = field(init=False)
    # For hot paths: tuples in and out, checked by struct only.
    unpack_from: Callable[..., tuple[Any, ...]] = field(init=False, repr=False)
    pack_into: Callable[..., None] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        letters = ">" + "".join(
            f"{part.size}s" if part.kind == "bytes" else STRUCT_LETTERS[part.kind] for part in self.fields
        )
        packer = struct.Struct(letters)
        object.__setattr__(self, "packer", packer)
        object.__setattr__(self, "size", packer.size)
        object.__setattr__(self, "unpack_from", packer.unpack_from)
        object.__setattr__(self, "pack_into", packer.pack_into)

    def decode(self, data: Buffer, file_offset: int = 0) -> Value:
        """Return the value at ``file_offset`` of ``data``; raise LayoutError if ``data`` is too short."""
        if file_offset < 0 or file_offset + self.size > len(data):
            raise LayoutError(f"{self.name} needs {self.size} bytes at {file_offset}, {len(data)} are there")
        return self.make(*self.unpack_from(data, file_offset))

    def encode(self, value: Value) -> bytes:
        return self.pack(*value)

    def pack(self, *values: object) -> bytes:
        """Return the bytes of the fields' ``values``; raise LayoutError if one does not fit."""
        try:
            return self.packer.pack(*values)
        except struct.error as error:
            raise LayoutError(f"{self.name}: {error}") from None

    def iter_decode(self, data: Buffer) -> Iterator[Value]:
        """Yield the values of ``data``, one after the other; a rest shorter than one value is ignored."""
        whole = len(data) - len(data) % self.size
        make = self.make
        for values in self.packer.iter_unpack(memoryview(data)[:whole]):
            yield make(*values)

    def field(self, name: str) -> Field:
        for found in self.fields:
            if found.name == name:
                return found
        raise KeyError(name)

    def dtype(self) -> list[tuple[str, str]]:
        """Return the packed numpy dtype as numpy's list form.

        Raw bytes are void: numpy's ``S`` drops trailing zeros.
        """
        return [
            (part.name, f"V{part.size}" if part.kind == "bytes" else DTYPE_CODES[part.kind]) for part in self.fields
        ]
