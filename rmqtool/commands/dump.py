"""``rmqtool dump``: show every byte of a file or a record with its name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rmqtool.commands.options import Show
from rmqtool.errors import Exit

if TYPE_CHECKING:
    from rmqtool.api.dump import Opened
    from rmqtool.render.output import Output


def dump(
    target: Annotated[
        str,
        typer.Argument(
            metavar="FILE[@START-END] | STORE@OFFSET",
            help="A file of a store, a range of it, a RocksDB directory, or the record at an offset of the log.",
            show_default=False,
        ),
    ],
    *,
    refs: Annotated[
        bool, typer.Option("--refs", help="Also list what points to the record: queues, index, timers.")
    ] = False,
    as_declared: Annotated[
        bool,
        typer.Option("--as-declared", help="Parse with the declared layouts: each field's name, value and meaning."),
    ] = False,
    show: Show,
) -> Exit:
    """Show every byte of a file or of one record: offset, bytes, field, value, meaning, and if a checksum matches.

    The regions cover the file without a gap; damaged and unknown bytes are regions, too. Runs of zeros are one line.
    """
    from rmqtool.api.dump import open_dump

    if as_declared:
        return _show_declared(show, target, refs)
    with show.output() as output, open_dump(target, refs=refs) as opened:
        if opened.rows is not None:
            _show_rows(output, opened)
        elif output.is_human:
            _show_regions(output, opened)
        else:
            output.long_single(opened.head, "regions", (region.as_json() for region in opened.regions))
    return Exit.DONE


def _show_declared(show: Show, target: str, refs: bool) -> Exit:
    from rmqtool.api.dump import open_declared_dump
    from rmqtool.render.dump import dump_lines

    with show.output() as output, open_declared_dump(target, refs=refs) as found:
        if not output.is_human:
            output.long_single(found.head, "layouts", (parsed.as_json() for parsed in found.parsed))
            return Exit.DONE
        output.line("{file}  {kind}, {size} bytes".format_map(found.head))
        regions = (parsed.as_region() for parsed in found.parsed)
        for line in dump_lines(output, regions, lambda at, length: found.file.pread(length, at)):
            output.line(line)
    return Exit.DONE


def _show_rows(output: Output, opened: Opened) -> None:
    from rmqtool.render.dump import row_lines

    rows, head = opened.rows or iter(()), opened.head
    if not output.is_human:
        output.long_single({**head, "regions": []}, "rows", rows)
        return
    output.line(f"{head['file']}  {head['kind']} database, {head['size']} bytes")
    for line in row_lines(output, rows):
        output.line(line)


def _show_regions(output: Output, opened: Opened) -> None:
    from rmqtool.render.dump import dump_lines, reference_lines

    head = opened.head
    output.line(f"{head['file']}  {head['kind']}, {head['size']} bytes")
    for line in dump_lines(output, opened.regions, opened.read):
        output.line(line)
    for line in reference_lines(output, opened.refs) if opened.refs else ():
        output.line(line)
