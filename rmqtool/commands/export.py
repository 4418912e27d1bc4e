"""``rmqtool export``: write stores as Parquet."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from rmqtool.commands.options import STORE_HELP, FromOffset, OfCluster, Period, Scope, Show, Work
from rmqtool.commands.store_word import choose_store, keep_private, tell
from rmqtool.errors import Exit, UsageError

if TYPE_CHECKING:
    from rmqtool.api.export import Written
    from rmqtool.api.store import Place
    from rmqtool.render.output import Output

_content = partial(typer.Option, rich_help_panel="What is written")
_spark = partial(typer.Option, rich_help_panel="Spark")


@dataclass(frozen=True, slots=True, kw_only=True)
class Writing:
    """The columns and files to write, the treatment of damage, and the engine."""

    columns: Annotated[str | None, _content(metavar="NAME,…", help="Only these columns; --schema lists them.")] = None
    body: Annotated[str, _content(metavar="inflated|raw|none", help="How to write bodies.")] = "inflated"
    partition_by: Annotated[str | None, _content(metavar="day,topic", help="Write a directory per day, topic.")] = None
    cluster_by: Annotated[str | None, _content(metavar="topic", help="Sort each row group by topic and queue.")] = None
    on_corrupt: Annotated[
        str, _content(metavar="fail|skip|emit", help="At damage: stop, leave it out, or list it in DIR_damage.")
    ] = "emit"
    format: Annotated[str, _content(metavar="parquet|delta", help="Write Parquet, or a Delta table.")] = "parquet"
    split_size: Annotated[
        str | None, _content(metavar="SIZE", help="Bytes of log per task and output file; default: 512m.")
    ] = None
    engine: Annotated[
        Literal["spark", "local"] | None,
        _spark(metavar="spark|local", help="Engine; local needs neither Spark nor Java; default: spark."),
    ] = None
    master: Annotated[
        str | None, _spark(metavar="URL", help="Spark master; default: this machine.", show_default=False)
    ] = None
    conf: Annotated[list[str] | None, _spark(metavar="KEY=VALUE", help="Spark setting; repeatable.")] = None


def export(
    stores: Annotated[
        list[str] | None, typer.Argument(metavar="[STORE]...", help=STORE_HELP, show_default=False)
    ] = None,
    *,
    to: Annotated[
        str | None, typer.Option("--to", metavar="DIR", help="Write the files to this directory.", show_default=False)
    ] = None,
    mode: Annotated[str, typer.Option(metavar="error|append|overwrite", help="What to do if DIR exists.")] = "error",
    since_last: Annotated[
        bool, typer.Option("--since-last", help="Add only messages that are new since the last export to DIR.")
    ] = False,
    plan: Annotated[bool, typer.Option("--plan", help="List the parts of the log to be read; write nothing.")] = False,
    schema: Annotated[bool, typer.Option("--schema", help="List the columns; read and write nothing.")] = False,
    scope: Scope,
    offset: FromOffset = None,
    period: Period,
    writing: Writing,
    work: Work,
    cluster: OfCluster,
    show: Show,
) -> Exit:
    """Write messages as Parquet or Delta, for Spark, DuckDB, pandas and other readers.

    Columns are typed, rows are in the order of the log, and a manifest records what was read. Spark runs the work on
    this machine or a cluster; --engine local needs no Spark. If the export fails, the target stays as it was. Damaged
    ranges are left out and listed in DIR_damage; then the exit status is 6. STORE may be a live cluster.
    """
    from rmqtool.api.export import write

    if plan and schema:
        raise UsageError("--plan and --schema exclude each other", hint="--plan lists splits, --schema columns")
    asked = {**scope.asked(), **period.asked(show.tz)}
    how: Any = {**asdict(writing), "mode": mode, "since_last": since_last, "offset": offset, "threads": work.jobs}
    with show.output(None if plan or schema else "Exported") as output:
        if schema:
            return _list_columns(output, how)
        named = stores or [choose_store([]).store]
        places = [cluster.place(path) for path in named]
        keep_private(stores or [])
        if plan:
            return _list_splits(output, places, how, asked)
        return _show(output, write(places, to, how, work.asked(output, *places), **asked), named)


def _list_columns(output: Output, how: Any) -> Exit:
    from rmqtool.api.export import columns
    from rmqtool.render.export import COLUMNS

    output.table(columns(how), COLUMNS)
    return Exit.DONE


def _list_splits(output: Output, places: list[Place], how: Any, asked: Any) -> Exit:
    from rmqtool.api.export import splits
    from rmqtool.render.export import SPLITS, split_words

    found = splits(places, how, **asked)
    output.note(split_words(output.table(found.rows, SPLITS, empty="nothing to read"), found.bytes))
    if found.unknown is not None:
        tell(output, found.unknown)
    return Exit.DONE if found.unknown is None else found.unknown.status


def _show(output: Output, written: Written, stores: list[str]) -> Exit:
    from rmqtool.render.export import outcome_lines

    for text in written.notes:
        output.note(text)
    output.single(written.shown, outcome_lines(output, written.shown, written.on_corrupt, stores))
    return written.status
