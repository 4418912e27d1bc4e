"""``rmqtool export``: stores as Parquet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from rmqtool.commands.opening import choose_store, keep_private
from rmqtool.commands.options import STORE_HELP, Period, Scope, Show, Work
from rmqtool.commands.sizes import parse_size
from rmqtool.errors import Exit, OptionalMissing, UsageError

if TYPE_CHECKING:
    from rmqtool.exports.choice import Choice
    from rmqtool.exports.plan import Source
    from rmqtool.exports.run import Outcome, Request
    from rmqtool.render.output import Output

_CONTENT = "What is written"
_SPARK = "Spark"

Word = TypeVar("Word", bound=StrEnum)


class Engine(StrEnum):
    """Who schedules the work."""

    SPARK = "spark"
    LOCAL = "local"


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """Which columns, in which files, and what becomes of damage."""

    columns: Annotated[
        str | None,
        typer.Option(metavar="NAME,…", help="Only these columns; --schema lists them.", rich_help_panel=_CONTENT),
    ] = None
    body: Annotated[
        str, typer.Option(metavar="inflated|raw|none", help="How bodies are written.", rich_help_panel=_CONTENT)
    ] = "inflated"
    partition_by: Annotated[
        str | None,
        typer.Option(metavar="day,topic", help="A directory for each day, each topic.", rich_help_panel=_CONTENT),
    ] = None
    on_corrupt: Annotated[
        str,
        typer.Option(
            metavar="fail|skip|emit", help="Damage: stop, leave out, or name in DIR_damage.", rich_help_panel=_CONTENT
        ),
    ] = "emit"
    split_size: Annotated[
        str, typer.Option(metavar="SIZE", help="So much of the log is one task, one file.", rich_help_panel=_CONTENT)
    ] = "128m"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduling:
    """Who does the work."""

    engine: Annotated[
        Engine, typer.Option(metavar="spark|local", help="local needs neither Spark nor Java.", rich_help_panel=_SPARK)
    ] = Engine.SPARK
    master: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Spark's master. Default: this machine.", show_default=False, rich_help_panel=_SPARK
        ),
    ] = None
    conf: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="A setting of Spark; repeatable.", rich_help_panel=_SPARK),
    ] = None

    def settings(self) -> dict[str, str]:
        """Return what --conf says."""
        pairs = [text.partition("=") for text in self.conf or ()]
        for name, equals, _ in pairs:
            if not equals:
                raise UsageError(f'--conf "{name}" is not KEY=VALUE', hint="for example: spark.driver.memory=2g")
        return {name.strip(): value for name, _, value in pairs}


def export(
    stores: Annotated[
        list[str] | None, typer.Argument(metavar="[STORE]...", help=STORE_HELP, show_default=False)
    ] = None,
    *,
    to: Annotated[
        str | None, typer.Option("--to", metavar="DIR", help="Where the files appear.", show_default=False)
    ] = None,
    mode: Annotated[
        str, typer.Option(metavar="error|append|overwrite", help="What to do when DIR is there already.")
    ] = "error",
    since_last: Annotated[
        bool, typer.Option("--since-last", help="Add only what is new since the last export to DIR, exactly once.")
    ] = False,
    plan: Annotated[bool, typer.Option("--plan", help="List the splits that would be read; write nothing.")] = False,
    schema: Annotated[bool, typer.Option("--schema", help="List the columns; read and write nothing.")] = False,
    scope: Scope,
    period: Period,
    content: Content,
    scheduling: Scheduling,
    work: Work,
    show: Show,
) -> Exit:
    """Write the messages of stores as Parquet, for Spark, DuckDB, pandas and every other reader.

    Columns are typed, files are sorted as the log is, a manifest says what was read. Spark schedules the work, on this
    machine or a cluster; --engine local needs no Spark. The target has everything afterwards, or is as it was. Damaged
    ranges are left out and named in DIR_damage; the exit status is 6 then.
    """
    from rmqtool.exports.choice import local_path

    choice = _choice(scope, period.bounds(show.tz), content)
    with show.output() as output:
        if schema:
            return _list_columns(output, choice)
        paths = tuple(map(local_path, stores or [choose_store([]).store]))
        keep_private(paths)
        if plan:
            return _list_splits(output, paths, choice)
        if to is None:
            raise UsageError("where to? --to DIR is missing", hint="--plan lists what would be read")
        request = _request(paths, local_path(to), choice, content, (mode, since_last))
        return _show_outcome(output, request, _run(request, scheduling, work, output))


def _choice(scope: Scope, bounds: tuple[int | None, int | None], content: Content) -> Choice:
    from rmqtool.exports.choice import DEFAULT, Choice, OnCorrupt, check_body, check_columns, check_split_size

    columns = _words(content.columns)
    return Choice(
        topics=tuple(scope.topic or ()),
        queue_id=scope.queue,
        begin=bounds[0],
        end=bounds[1],
        columns=DEFAULT.columns if columns is None else check_columns(columns),
        body=check_body(content.body),
        on_corrupt=_word(OnCorrupt, content.on_corrupt, "--on-corrupt"),
        split_size=check_split_size(parse_size(content.split_size)),
    )


def _words(text: str | None) -> list[str] | None:
    return None if text is None else [word.strip() for word in text.split(",") if word.strip()]


def _word(words: type[Word], text: str, option: str) -> Word:
    if text not in list(words):
        raise UsageError(f'{option} "{text}" is not known', hint="one of " + ", ".join(words))
    return words(text)


def _request(paths: tuple[str, ...], to: str, choice: Choice, content: Content, how: tuple[str, bool]) -> Request:
    from rmqtool.exports.parquet import PartitionBy
    from rmqtool.exports.run import Request
    from rmqtool.exports.target import Mode

    mode, since_last = how
    partition_by = tuple(_word(PartitionBy, word, "--partition-by") for word in _words(content.partition_by) or ())
    for by in partition_by:
        if by.source not in choice.columns:
            raise UsageError(
                f"--partition-by {by} is made of the column {by.source}, which --columns leaves out",
                hint=f"add it: --columns {by.source},...",
            )
    if since_last and (mode != "error" or choice.begin is not None or choice.end is not None):
        raise UsageError(
            "--since-last goes on where the last export ended; --mode, --begin and --end contradict it",
            hint="leave them out, or export to another directory",
        )
    return Request(
        paths=paths,
        directory=to,
        choice=choice,
        mode=_word(Mode, mode, "--mode"),
        partition_by=partition_by,
        since_last=since_last,
    )


def _run(request: Request, scheduling: Scheduling, work: Work, output: Output) -> Outcome:
    from rmqtool.exports.run import local_engine, run_export
    from rmqtool.log.ranges import Effort

    effort = Effort(work.processes(), work.bar(output))
    if scheduling.engine is Engine.LOCAL:
        return run_export(request, local_engine(effort))
    from rmqtool.spark.job import run_spark_export

    master = scheduling.master or f"local[{work.jobs or '*'}]"
    try:
        return run_spark_export(request, master, scheduling.settings(), effort)
    except OptionalMissing as error:
        error.hint = f"{error.hint}; or --engine {Engine.LOCAL}, which needs neither Spark nor Java"
        raise


def _list_columns(output: Output, choice: Choice) -> Exit:
    from rmqtool.exports.choice import column_rows
    from rmqtool.render.export import COLUMNS

    output.table(column_rows(choice), COLUMNS)
    return Exit.DONE


def _list_splits(output: Output, paths: tuple[str, ...], choice: Choice) -> Exit:
    from rmqtool.exports.plan import plan_sources
    from rmqtool.render.export import SPLITS
    from rmqtool.render.text import size

    sources = plan_sources(paths, choice)
    splits = output.table(_split_rows(sources), SPLITS, empty="nothing to read")
    output.note(f"{splits} split{'' if splits == 1 else 's'}, {size(sum(source.bytes for source in sources))} of log")
    return Exit.DONE


def _split_rows(sources: list[Source]) -> Iterator[dict[str, Any]]:
    for source in sources:
        for asked in source.ranges:
            stop = asked.file.size if asked.stop is None else asked.stop
            row = {"broker": source.broker, "store": source.log.root, "file": asked.file.name}
            yield {**row, "start": asked.start, "stop": stop, "bytes": stop - asked.start}


def _show_outcome(output: Output, request: Request, outcome: Outcome) -> Exit:
    from rmqtool.render.export import outcome_lines

    for text in outcome.notes:
        output.note(text)
    shown = outcome.as_json(request.directory)
    output.single(shown, outcome_lines(shown, request.choice.on_corrupt.value))
    if not outcome.rows and request.choice.topics:
        _note_unknown_topics(output, request)
    return Exit.SKIPPED if outcome.damages else Exit.DONE


def _note_unknown_topics(output: Output, request: Request) -> None:
    """Say which of the wanted topics none of the stores knows, where nothing was found of them."""
    from contextlib import ExitStack

    from rmqtool.commands.selecting import note_unknown_topics
    from rmqtool.filters.patterns import parse_patterns
    from rmqtool.store.open import open_store

    with ExitStack() as opened:
        stores = [opened.enter_context(open_store(path)) for path in request.paths]
        note_unknown_topics(output, stores, parse_patterns(request.choice.topics))
