"""``dump``: name every byte of a file or a record."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from rmqtool.api.store import require_files
from rmqtool.api.wanted import Json
from rmqtool.errors import UsageError

if TYPE_CHECKING:
    from rmqtool.api import shapes
    from rmqtool.look.as_declared import Declared
    from rmqtool.look.dump import Shown


class Opened(NamedTuple):
    """An open target: the head of its object, and its regions, read lazily, or the rows of a database.

    ``read`` returns bytes of the file; ``refs`` are the places that point at the record, if they were asked for.
    """

    head: Json
    regions: Iterator[Any]
    rows: Iterator[Json] | None
    refs: list[Any]
    read: Callable[[int, int], bytes]


def dump(target: str | os.PathLike[str], *, refs: bool = False, as_declared: bool = False) -> shapes.Dump:
    """Name every byte of a file, of a part of it ("FILE@START-END"), or of the record at "STORE@OFFSET".

    With ``as_declared`` the layouts of ``rmqtool.formats.declarations`` parse it; a file without such a layout is
    refused.
    """
    if as_declared:
        with open_declared_dump(target, refs=refs) as found:
            return cast("shapes.Dump", {**found.head, "layouts": [parsed.as_json() for parsed in found.parsed]})
    with open_dump(target, refs=refs) as shown:
        rows = {} if shown.rows is None else {"rows": list(shown.rows)}
        regions = [region.as_json() for region in shown.regions]
        return cast("shapes.Dump", {**shown.head, "regions": regions, **rows})


@contextmanager
def open_dump(target: str | os.PathLike[str], *, refs: bool = False) -> Iterator[Opened]:
    """Open a target; with ``refs`` also list what points at the record: queues, index, timers."""
    from rmqtool.look.dump import open_target, parse_target

    require_files(target)
    with open_target(parse_target(os.fspath(target))) as shown:
        if refs and (shown.store is None or shown.rows is not None):
            raise UsageError("--refs is about one record", hint="name the record: STORE@OFFSET")
        yield _opened(shown, refs)


@contextmanager
def open_declared_dump(target: str | os.PathLike[str], *, refs: bool = False) -> Iterator[Declared]:
    """Open a target to be parsed with the declared layouts."""
    from rmqtool.look.as_declared import open_declared
    from rmqtool.look.dump import parse_target

    if refs:
        raise UsageError("--refs and --as-declared do not go together", hint="give one of them")
    require_files(target)
    with open_declared(parse_target(os.fspath(target))) as found:
        yield found


def _opened(shown: Shown, refs: bool) -> Opened:
    from rmqtool.look.dump import iter_references

    head: Json = {"file": shown.dump.file, "size": shown.dump.size, "kind": shown.dump.kind.value}
    found = list(iter_references(shown.store, shown.message)) if refs and shown.store and shown.message else []
    if refs:
        head["refs"] = [reference._asdict() for reference in found]
    rows = None if shown.rows is None else (row.as_json() for row in shown.rows)
    file = shown.file

    def read(at: int, length: int) -> bytes:
        return file.pread(length, at) if file else b""

    return Opened(head, shown.dump.regions, rows, found, read)
