"""``export``: write the messages of stores or of a live cluster as Parquet, with Spark or without."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, TypeVar, Unpack, cast

from rmqtool.api.cluster import Cluster, opened_cluster
from rmqtool.api.store import Place, is_remote
from rmqtool.api.wanted import WHERE, Json, Said, Where, Working, effort_of, require_known, unknown_places, wanted_of
from rmqtool.errors import Exit, OptionalMissing, UsageError

if TYPE_CHECKING:
    from rmqtool.api.shapes import Exported
    from rmqtool.exports.choice import Choice
    from rmqtool.exports.run import Outcome, Request


ACCEPTED = "Try 65536, 64k, 64KiB, 1.5GiB, 0x10000; k means 1024."

_SIZE = re.compile(r"([0-9][0-9_]*(?:\.[0-9]+)?) ?(?:([kmgtp])(?:i?b)?|b)?", re.IGNORECASE)
_HEX = re.compile(r"0x[0-9a-f_]+", re.IGNORECASE)
_UNITS = "kmgtp"


def parse_size(text: str) -> int:
    """Return a number of bytes."""
    word = text.strip()
    if _HEX.fullmatch(word):
        return int(word.replace("_", ""), 16) if word[2:].strip("_") else _refuse(text)
    match = _SIZE.fullmatch(word)
    if match is None:
        return _refuse(text)
    power = _UNITS.index(match[2].lower()) + 1 if match[2] else 0
    size = Fraction(match[1].replace("_", "")) * 1024**power
    return size.numerator if size.denominator == 1 else _refuse(text)


def _refuse(text: str) -> int:
    raise UsageError(f'"{text}" is not a size in bytes', hint=ACCEPTED)


Word = TypeVar("Word", bound=StrEnum)
Paths = Place | Sequence[Place]


class How(TypedDict, total=False):
    """The form of the export, and who does the work.

    ``body`` is "inflated", "raw" or "none"; ``partition_by`` is "day", "topic" or both; ``on_corrupt`` is "fail",
    "skip" or "emit"; ``cluster_by`` is "topic" for row groups that are sorted by topic and queue; ``split_size`` is
    the size of one task's part of the log, in bytes or as "128m". ``format`` is "parquet", or "delta" for a Delta
    table, which may be on object storage.

    ``engine`` is "spark", with its ``master`` and settings (``conf``), or "local", which is the only one for a live
    cluster. ``mode`` says what happens to an existing target: "error", "append" or "overwrite"; ``since_last`` adds
    what is new since the last export to it. ``offset`` is the queue offset at which each queue begins. ``threads`` are
    those of Spark on this machine; default: one for each processor.
    """

    columns: str | Iterable[str] | None
    body: str
    partition_by: str | Iterable[str] | None
    cluster_by: str | None
    on_corrupt: str
    split_size: int | str | None
    format: str
    engine: str | None
    offset: int | None
    threads: int | None
    master: str | None
    conf: Mapping[str, str] | Iterable[str] | None
    mode: str
    since_last: bool


class Written(NamedTuple):
    """The result of an export."""

    shown: Exported
    notes: list[str]
    on_corrupt: str
    is_damaged: bool

    @property
    def status(self) -> Exit:
        """Return the exit status of the command."""
        return Exit.SKIPPED if self.is_damaged else Exit.DONE


class Splits(NamedTuple):
    """The plan of an export: a row for each split, and the total size of the log in bytes."""

    rows: list[Json]
    bytes: int
    # A topic or queue that no store has.
    unknown: Said | None


def export(
    stores: Paths,
    to: str | os.PathLike[str],
    *,
    format: str = "parquet",  # noqa: A002
    since_last: bool = False,
    jobs: int = 1,
    **which: Unpack[Where],
) -> Exported:
    """Write messages without Spark as Parquet, or into a Delta table; return what ``export --json`` prints."""
    require_known("export", which, WHERE)
    how: How = {"engine": "local", "since_last": since_last, "format": format}
    return write(stores, to, how, {"jobs": jobs}, **which).shown


def write(
    stores: Paths,
    to: str | os.PathLike[str] | None,
    how: How,
    work: Working | None = None,
    **which: Unpack[Where],
) -> Written:
    """Write messages. Afterwards the target has all of them, or is as it was."""
    from rmqtool.exports.choice import local_path, store_path

    choice, remote = _choice(how, which), cluster_of(stores)
    paths = paths_of(stores) if remote is None else ()
    if to is None:
        raise UsageError("missing destination: --to DIR", hint="--plan lists what would be read")
    place = store_path if how.get("format") == "delta" else local_path
    request = _request(paths, place(os.fspath(to)), choice, how)
    if remote is not None:
        outcome = _run_remote(remote, request, how, work or {})
    else:
        _refuse_spark(how)
        unknown = _unknown(request.paths, which)
        request = replace(request, refusal=None if unknown is None else unknown.refusal("nothing was written"))
        outcome = _run(request, how, work or {})
    shown = cast("Exported", outcome.as_json(request.directory))
    is_damaged = bool(outcome.damages) or outcome.has_lost
    return Written(shown, outcome.notes, choice.on_corrupt.value, is_damaged)


def columns(how: How | None = None) -> list[dict[str, str]]:
    """Return the columns of an export: name, type and meaning."""
    from rmqtool.exports.choice import column_rows

    return list(column_rows(_choice(how or {}, {})))


def splits(stores: Paths, how: How, **which: Unpack[Where]) -> Splits:
    """Return the splits that an export would read; nothing is written."""
    from rmqtool.exports.splits import plan_sources

    remote = cluster_of(stores)
    if remote is not None:
        raise UsageError(
            f"--plan lists splits of files, and {_named(remote)} is a live cluster",
            hint="rmqtool info STORE queues",
        )
    paths = paths_of(stores)
    sources = plan_sources(paths, _choice(how, which))
    return Splits(list(_split_rows(sources)), sum(source.bytes for source in sources), _unknown(paths, which))


def paths_of(stores: Paths) -> tuple[str, ...]:
    """Return stores as paths; Spark's spelling ("file:/...") is accepted."""
    from rmqtool.api.store import store_of
    from rmqtool.exports.choice import store_path

    return tuple(store_path(os.fspath(store_of(one).path)) for one in _listed(stores))


def cluster_of(stores: Paths) -> Place | None:
    """Return the live cluster among the places to export, None for stores in files."""
    listed = _listed(stores)
    remote = next(filter(is_remote, listed), None)
    if remote is not None and len(listed) > 1:
        raise UsageError(
            f"{_named(remote)} is a live cluster, which is exported alone",
            hint="export each to a directory of its own (--to), or one after the other with --mode append",
        )
    return remote


def _named(remote: Place) -> str:
    return str(remote.address) if isinstance(remote, Cluster) else str(remote)


def _listed(stores: Paths) -> Sequence[Place]:
    return [stores] if isinstance(stores, str) or not isinstance(stores, Sequence) else stores


def _choice(how: How, which: Where) -> Choice:
    from rmqtool.exports.choice import (
        DEFAULT,
        EXPORT_SPLIT_SIZE,
        Choice,
        OnCorrupt,
        check_body,
        check_columns,
        check_split_size,
    )

    wanted, named = wanted_of(which), _words(how.get("columns"))
    return Choice.of(
        wanted,
        columns=DEFAULT.columns if named is None else check_columns(named),
        body=check_body(how.get("body", "inflated")),
        on_corrupt=_word(OnCorrupt, how.get("on_corrupt", "emit"), "--on-corrupt"),
        split_size=check_split_size(_size(how.get("split_size") or EXPORT_SPLIT_SIZE)),
        start_offset=how.get("offset"),
    )


def _size(size: int | str) -> int:

    return size if isinstance(size, int) else parse_size(size)


def _words(text: str | Iterable[str] | None) -> list[str] | None:
    if text is None or not isinstance(text, str):
        return None if text is None else list(text)
    return [word.strip() for word in text.split(",") if word.strip()]


def _word(words: type[Word], text: str, option: str) -> Word:
    if text not in list(words):
        raise UsageError(f'{option} "{text}" is not known', hint="one of " + ", ".join(words))
    return words(text)


def _request(paths: tuple[str, ...], to: str, choice: Choice, how: How) -> Request:
    from rmqtool.exports.parquet import PartitionBy
    from rmqtool.exports.run import Request
    from rmqtool.exports.target import Mode

    mode, since_last = how.get("mode", "error"), how.get("since_last", False)
    listed = _words(how.get("partition_by")) or ()
    partition_by = tuple(_word(PartitionBy, word, "--partition-by") for word in listed)
    for by in partition_by:
        if by.source not in choice.columns:
            raise UsageError(
                f"--partition-by {by} needs the column {by.source}, which --columns leaves out",
                hint=f"add it: --columns {by.source},...",
            )
    _check_cluster_by(how.get("cluster_by"), choice)
    if since_last and (mode != "error" or choice.begin is not None or choice.end is not None):
        raise UsageError(
            "--since-last cannot be combined with --mode, --begin or --end",
            hint="leave them out, or export to another directory",
        )
    return Request(
        paths=paths,
        directory=to,
        choice=choice,
        mode=_word(Mode, mode, "--mode"),
        partition_by=partition_by,
        since_last=since_last,
        delta=_is_delta(how),
        clustered=how.get("cluster_by") is not None,
    )


def _check_cluster_by(word: str | None, choice: Choice) -> None:
    """Raise UsageError for another word than topic, and for topics that are not among the columns."""
    if word not in (None, "topic"):
        raise UsageError(f'--cluster-by "{word}" is not known', hint="--cluster-by topic")
    if word is not None and "topic" not in choice.columns:
        raise UsageError(
            "--cluster-by topic needs the column topic, which --columns leaves out",
            hint="add it: --columns topic,...",
        )


def _is_delta(how: How) -> bool:
    word = how.get("format", "parquet")
    if word not in ("parquet", "delta"):
        raise UsageError(f'--format "{word}" is not known', hint="one of parquet, delta")
    return word == "delta"


def _refuse_spark(how: How) -> None:
    """Refuse what only Spark takes if the engine is the local one."""
    if how.get("engine") == "local":
        for name in ("master", "conf"):
            if how.get(name):
                raise UsageError(f"--{name} is for Spark; --engine local takes none", hint="leave one of them out")


def _run(request: Request, how: How, work: Working) -> Outcome:
    from rmqtool.exports.run import local_engine, run_export

    if how.get("engine") == "local":
        return run_export(request, local_engine(effort_of(**work)))
    from rmqtool.spark.job import run_spark_export

    master = how.get("master") or f"local[{how.get('threads') or '*'}]"
    try:
        return run_spark_export(request, master, _settings(how.get("conf")), effort_of(**work))
    except OptionalMissing as error:
        error.hint = f"{error.hint}; or --engine local, which needs neither Spark nor Java"
        raise


def _run_remote(remote: Place, request: Request, how: How, work: Working) -> Outcome:
    """Export a live cluster; refuse options that have no effect on it."""
    given = {"--engine spark": how.get("engine") == "spark"}
    given |= {f"--{name.replace('_', '-')}": bool(how.get(name)) for name in ("split_size", "master", "conf")}
    for option, is_given in given.items():
        if is_given:
            raise UsageError(
                f"{option} has no effect on a live cluster: it is read here, in one pass for each broker",
                hint='leave it out; Spark reads a cluster with spark.read.format("rocketmq").option("cluster", ...)',
            )
    from rmqtool.exports.live_cluster import LiveCluster, run_cluster_export

    with opened_cluster(remote) as cluster:
        return run_cluster_export(request, LiveCluster(cluster.face, cluster.connections), effort_of(**work))


def _settings(conf: Mapping[str, str] | Iterable[str] | None) -> dict[str, str]:
    """Return Spark's settings."""
    if isinstance(conf, Mapping):
        return dict(conf)
    pairs = [text.partition("=") for text in conf or ()]
    for name, equals, _ in pairs:
        if not equals:
            raise UsageError(f'--conf "{name}" is not KEY=VALUE', hint="for example: spark.driver.memory=2g")
    return {name.strip(): value for name, _, value in pairs}


def _split_rows(sources: list[Any]) -> Iterator[Json]:
    for source in sources:
        for asked in source.ranges:
            stop = asked.file.size if asked.stop is None else asked.stop
            row = {"broker": source.broker, "store": source.log.root, "file": asked.file.name}
            yield {**row, "start": asked.start, "stop": stop, "bytes": stop - asked.start}


def _unknown(paths: Sequence[str], which: Where) -> Said | None:
    """Return a note about wanted topics, or a queue, that no store has."""
    from contextlib import ExitStack

    from rmqtool.filters.wanted import want
    from rmqtool.store.open import open_store

    wanted = want(topics=which.get("topics"), queue=which.get("queue"))
    if not wanted.topics.patterns and wanted.queue_id is None:
        return None
    with ExitStack() as opened:
        return unknown_places([opened.enter_context(open_store(path)) for path in paths], wanted)
