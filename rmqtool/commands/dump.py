"""``rmqtool dump``: every byte named."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from rmqtool.commands.options import Show
from rmqtool.errors import Exit


def dump(
    target: Annotated[
        str,
        typer.Argument(
            metavar="FILE[@START-END] | STORE@OFFSET",
            help="Any file of a store, a span of it, or the record at an offset of a store's commit log.",
            show_default=False,
        ),
    ],
    *,
    refs: Annotated[
        bool, typer.Option("--refs", help="Also list what points at the record: queues, index, timers.")
    ] = False,
    show: Show,
) -> Exit:
    """Name every byte of a file or of one record: offset, bytes, field, value, meaning, and whether a checksum agrees.

    The regions cover the file without a gap; what is damaged or not known is a region too. Runs of zeros are one line.
    """
    from rmqtool.inspection.dump_target import open_target, parse_target
    from rmqtool.inspection.references import iter_references
    from rmqtool.render.dump import dump_lines, reference_lines

    with show.output() as output, open_target(parse_target(target)) as shown:
        found = list(iter_references(shown.store, shown.message)) if refs and shown.store and shown.message else []
        head: dict[str, Any] = {"file": shown.dump.file, "size": shown.dump.size, "kind": shown.dump.kind.value}
        if refs:
            head["refs"] = [reference._asdict() for reference in found]
        if not output.is_human:
            output.long_single(head, "regions", (region.as_json() for region in shown.dump.regions))
            return Exit.DONE
        output.line(f"{shown.dump.file}  {shown.dump.kind}, {shown.dump.size} bytes")
        for line in dump_lines(output, shown.dump.regions, lambda at, length: shown.file.pread(length, at)):
            output.line(line)
        for line in reference_lines(output, found) if found else ():
            output.line(line)
    return Exit.DONE
