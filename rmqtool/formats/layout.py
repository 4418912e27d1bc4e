"""A fixed layout: a struct packer, a field table and a dtype, all derived from one declaration.

The declarations are in ``declarations`` (construct). ``derive`` turns them into ``layouts``, so that the tool starts
and works without loading construct; a test keeps the two equal.
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
    """Return how many bytes of ``data`` stand from ``file_offset`` on; none for a place outside of it."""
    return max(len(data) - file_offset, 0) if file_offset >= 0 else 0


class LayoutError(RmqtoolError):
    """Fewer bytes than a layout needs, or a value that does not fit its field."""

    code = "layout"


class Field(NamedTuple):
    """One field of a layout: where it lies and what it means."""

    name: str
    offset: int
    size: int
    kind: str  # i8 i16 i32 i64 u32, or bytes
    doc: str

    @property
    def upstream_name(self) -> str:
        """The name in upstream's spelling, for people and JSON."""
        return upstream_name(self.name)


def upstream_name(name: str) -> str:
    """Return a field's name as upstream spells it: ``store_timestamp`` is ``storeTimestamp``."""
    first, *rest = name.replace("_crc", "_CRC").split("_")
    return first + "".join(word if word.isupper() else word.capitalize() for word in rest)


# struct's letters; numpy's differ (its 'l' is the C long), hence a column of their own.
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
    # The hot paths call these bound methods: tuples in, tuples out, no check beyond struct's own.
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
        """Return the value that stands at ``file_offset`` of ``data``."""
        if file_offset < 0 or file_offset + self.size > len(data):
            raise LayoutError(f"{self.name} needs {self.size} bytes at {file_offset}, {len(data)} are there")
        return self.make(*self.unpack_from(data, file_offset))

    def encode(self, value: Value) -> bytes:
        """Return the bytes of ``value``."""
        return self.pack(*value)

    def pack(self, *values: object) -> bytes:
        """Return the bytes of the fields' ``values``."""
        try:
            return self.packer.pack(*values)
        except struct.error as error:
            raise LayoutError(f"{self.name}: {error}") from None

    def iter_decode(self, data: Buffer) -> Iterator[Value]:
        """Yield the values of ``data``, unit after unit; a rest shorter than an entry is left out."""
        whole = len(data) - len(data) % self.size
        make = self.make
        for values in self.packer.iter_unpack(memoryview(data)[:whole]):
            yield make(*values)

    def field(self, name: str) -> Field:
        """Return the field called ``name``."""
        for found in self.fields:
            if found.name == name:
                return found
        raise KeyError(name)

    def dtype(self) -> list[tuple[str, str]]:
        """Return the packed numpy dtype as numpy's list form; raw bytes are void, since ``S`` drops trailing zeros."""
        return [
            (part.name, f"V{part.size}" if part.kind == "bytes" else DTYPE_CODES[part.kind]) for part in self.fields
        ]
