"""The compiled kernel, where it is installed: inner loops over many records, in C (``native/`` in the sources).

It decides nothing. Every function of it has a twin in Python that gives the same, bit for bit, and is used where the
kernel is not: no compiler was there, ``RMQTOOL_PURE=1`` is set, or it was compiled from other sources than those beside
the package (in a clone, after a change of the C).

A caller asks when it is called: ``if (native := kernel.NATIVE) is not None``. Tests set ``NATIVE`` to None.
"""

from __future__ import annotations

import os
import zlib

TYPE_CHECKING = False  # without the module typing: this runs at every start
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, Protocol, TypeVar

    from _typeshed import StrPath

    Fields = TypeVar("Fields", bound=tuple[Any, ...])

    class Kernel(Protocol):
        """The functions of ``rmqtool._native``. Its stub explains each of them; mypy compares the two.

        Buffers are Any here: before Python 3.12 mypy does not accept an array as a buffer.
        """

        SOURCES: int
        ROW_SIZE: int
        CRC: str
        COLUMNS: str

        def crc32(self, data: Any, /) -> int: ...

        def crc32_each(self, data: Any, offsets: Any, lengths: Any, crcs: Any, /) -> None: ...

        def walk(self, data: Any, at: int, starts: Any, /) -> tuple[int, int]: ...

        def scan(
            self, data: Any, at: int, table: Any, capacity: int, first_physical_offset: int, checks: int, /
        ) -> tuple[int, int]: ...

        def decode(self, data: Any, offsets: Any, table: Any, first_physical_offset: int, checks: int, /) -> int: ...

        def sound(self, data: Any, offsets: Any, first_physical_offset: int, /) -> int: ...

        def dispatch(self, *arrays: Any, **none: Any) -> tuple[int, int, int]: ...

        def dispatch_one(
            self, data: Any, offset: int, first_physical_offset: int, delays: Any, /
        ) -> tuple[int, bytes, int, int, int, bytes, tuple[int, ...], int] | None: ...

        def span(self, units: Any, starts: Any, /) -> tuple[int, int, int, int] | None: ...

        def group(self, *arrays: Any, **none: Any) -> int: ...

        def number_texts(self, data: Any, offsets: Any, lengths: Any, codes: Any, firsts: Any, /) -> int: ...

        def property_columns(self, *arrays: Any, **none: Any) -> int: ...

        def hang_in(self, *arrays: Any, **none: Any) -> int: ...

        def json_lines(self, data: Any, offsets: Any, row: int, ends: Any, out: Any, /) -> tuple[int, int]: ...

        def encode(self, *values: Any, **none: Any) -> bytearray: ...

        def encode_batch(self, *values: Any, **none: Any) -> tuple[bytearray, int] | None: ...

        def place_batch(
            self, records: bytearray, queue_offset: int, physical_offset: int, store_timestamp: int, places: Any, /
        ) -> None: ...

        def encode_slab(self, *columns: Any, **none: Any) -> bytearray: ...

        def place(
            self, record: bytearray, queue_offset: int, physical_offset: int, store_timestamp: int, has_crc: bool, /
        ) -> None: ...

        def decoder(
            self, kind: type[Fields], fields: tuple[int, ...], other: Callable[..., Any], /
        ) -> Callable[..., Fields | Any]: ...

        def decoder_of_many(
            self, kind: type[Fields], fields: tuple[int, ...], other: Callable[..., Any], /
        ) -> Callable[[Any, Any], list[Fields | Any]]: ...

        def text_maker(
            self, names: tuple[str, ...], is_terminated: bool, other: Callable[..., bytes], /
        ) -> Callable[[Mapping[str, str]], bytes]: ...

        def record_kind(self, *values: Any, **none: Any) -> object: ...

        def plain_record(self, kind: object, properties: Any, *values: Any, **none: Any) -> bytearray | None: ...

        def header_fields(self, data: Any, at: int, end: int, most: int, /) -> dict[str, str] | None: ...

        def json_header(
            self, data: Any, at: int, end: int, most: int, /
        ) -> tuple[int, dict[str, str] | None, int, int, str | None, int, str | None] | None: ...

        def typed_fields(
            self, ext: dict[str, str], types: Mapping[str, tuple[str, int]], /
        ) -> dict[str, Any] | None: ...

        def plain_requests(
            self, data: Any, at: int, most_frame: int, most_header: int, /
        ) -> tuple[
            list[
                tuple[int, int, int, str, int, int, int, dict[str, str], bytes]
                | tuple[int, int, int, str, str, int, int, int, int, int]
            ],
            int,
        ]: ...

        def answer_frame(
            self, parts: tuple[bytes, ...], values: tuple[int | str, ...], body: bytes, most: int, most_frame: int, /
        ) -> bytes | None: ...


def sources_digest(directory: StrPath) -> int | None:
    """Return the checksum of the C sources as ``native/compile_kernel.py`` does; None if there are no sources."""
    # Without pathlib: this runs at every start, and takes less time than importing that.
    names = sorted(os.listdir(directory)) if os.path.isdir(directory) else []
    sources = [name for name in names if name.endswith(".h")] + [name for name in names if name == "native.c"]
    digest = 0
    for name in sources:
        with open(os.path.join(directory, name), "rb") as source:
            digest = zlib.crc32(source.read(), zlib.crc32(name.encode(), digest))
    return digest if sources else None


def load(wanted: bool, sources: StrPath) -> tuple[Kernel | None, str]:
    """Return the kernel, or None and the reason; ``sources`` is the directory of the C sources in a clone."""
    if not wanted:
        return None, "RMQTOOL_PURE is set"
    try:
        from rmqtool import _native
    except ImportError:
        return None, "it was not compiled when rmqtool was installed"
    if sources_digest(sources) not in (None, _native.SOURCES):
        return None, "it was compiled from different sources: run python native/compile_kernel.py"
    found: Kernel = _native
    return found, ""


NATIVE: Kernel | None
_SOURCES = os.path.join(os.path.dirname(__file__), "..", "native")
NATIVE, WHY_NOT = load(os.environ.get("RMQTOOL_PURE", "0") in ("", "0"), _SOURCES)


def tier() -> str:
    """Return which tier runs, in the words of ``--version -v``."""
    return "kernel: pure" if NATIVE is None else f"kernel: native (C, CRC by {NATIVE.CRC})"
