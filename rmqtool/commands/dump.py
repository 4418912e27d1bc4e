"""``rmqtool dump``: every byte named."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rmqtool.commands.options import Show
from rmqtool.errors import Exit, UsageError

if TYPE_CHECKING:
    from rmqtool.look.database_rows import DatabaseRow
    from rmqtool.look.dump import Shown
    from rmqtool.render.output import Output


def dump(
    target: Annotated[
        str,
        typer.Argument(
            metavar="FILE[@START-END] | STORE@OFFSET",
            help="Any file of a store, a span of it, a RocksDB directory, or the record at an offset of the log.",
            show_default=False,
        ),
    ],
    *,
    refs: Annotated[
        bool, typer.Option("--refs", help="Also list what points at the record: queues, index, timers.")
    ] = False,
    as_declared: Annotated[
        bool,
        typer.Option("--as-declared", help="Parse with the declared layouts: each field's name, value and meaning."),
    ] = False,
    show: Show,
) -> Exit:
    """Name every byte of a file or of one record: offset, bytes, field, value, meaning, and whether a checksum agrees.

    The regions cover the file without a gap; what is damaged or not known is a region too. Runs of zeros are one line.
    """
    from rmqtool.look.dump import open_target, parse_target

    if as_declared:
        if refs:
            raise UsageError("--refs and --as-declared do not go together", hint="give one of them")
        _show_declared(show, target)
        return Exit.DONE
    with show.output() as output, open_target(parse_target(target)) as shown:
        if refs and (shown.store is None or shown.rows is not None):
            raise UsageError("--refs is about one record", hint="name the record: STORE@OFFSET")
        head: dict[str, Any] = {"file": shown.dump.file, "size": shown.dump.size, "kind": shown.dump.kind.value}
        if shown.rows is not None:
            _show_rows(output, head, shown.rows)
        else:
            _show_regions(output, head, shown, refs=refs)
    return Exit.DONE


def _show_declared(show: Show, target: str) -> None:
    from rmqtool.look.as_declared import open_declared
    from rmqtool.look.dump import parse_target
    from rmqtool.render.dump import dump_lines

    with show.output() as output, open_declared(parse_target(target)) as found:
        if not output.is_human:
            output.long_single(found.head, "layouts", (parsed.as_json() for parsed in found.parsed))
            return
        output.line("{file}  {kind}, {size} bytes".format_map(found.head))
        regions = (parsed.as_region() for parsed in found.parsed)
        for line in dump_lines(output, regions, lambda at, length: found.file.pread(length, at)):
            output.line(line)


def _show_rows(output: Output, head: dict[str, Any], rows: Iterator[DatabaseRow]) -> None:
    from rmqtool.render.dump import row_lines

    if not output.is_human:
        output.long_single({**head, "regions": []}, "rows", (row.as_json() for row in rows))
        return
    output.line(f"{head['file']}  {head['kind']} database, {head['size']} bytes")
    for line in row_lines(output, (row.as_json() for row in rows)):
        output.line(line)


def _show_regions(output: Output, head: dict[str, Any], shown: Shown, *, refs: bool) -> None:
    from rmqtool.look.dump import iter_references
    from rmqtool.render.dump import dump_lines, reference_lines

    found = list(iter_references(shown.store, shown.message)) if refs and shown.store and shown.message else []
    if refs:
        head["refs"] = [reference._asdict() for reference in found]
    if not output.is_human:
        output.long_single(head, "regions", (region.as_json() for region in shown.dump.regions))
        return
    file = shown.file
    output.line(f"{head['file']}  {head['kind']}, {head['size']} bytes")
    for line in dump_lines(output, shown.dump.regions, lambda at, length: file.pread(length, at) if file else b""):
        output.line(line)
    for line in reference_lines(output, found) if found else ():
        output.line(line)
