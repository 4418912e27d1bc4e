"""Write a table or a stream into a store: tasks stage their rows beside it, then the driver stores all or none.

Tasks are many processes, so they cannot hold the broker's lock. The staged rows do not belong to the store yet. In its
commit the driver takes the lock, reads the store, and stores all rows before it releases the lock.

Spark asks for a batch of a stream again if it was stopped before it noted the commit. A file in the
store names the last batch of each query (``engine.bulk_load``), so that each batch is stored once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from rmqtool.columns.outgoing import GIVEN_ANEW, OUTGOING_COLUMNS, Refusal, stage_messages
from rmqtool.engine.bulk_load import (
    StagedFile,
    StreamBatch,
    import_staged,
    is_new,
    require_ready,
    staged_file,
)
from rmqtool.errors import StoreError, UsageError
from rmqtool.files.publish import JobDirectory
from rmqtool.spark.options import Target, parse_target
from rmqtool.spark.schema import STATUS
from rmqtool.spark.source import in_plain_words

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

# The property of Spark's tasks with the id of their query. The checkpoint of the query has the same id.
_QUERY_ID = "sql.streaming.queryId"


@dataclass
class Staged(WriterCommitMessage):
    """The staged rows of a task; no file if it had no rows. ``query`` is the id of the streaming query, if any."""

    staging: JobDirectory
    file: StagedFile | None
    query: str | None = None


class _Writer:
    """Stages the rows of one job."""

    def __init__(self, target: Target, schema: StructType) -> None:
        self.target = target
        _check_schema(schema, target.topic)
        self.staging = JobDirectory(target.root, uuid4().hex)

    def stage(self, batches: Iterator[pa.RecordBatch]) -> StagedFile | None:
        """Stage the rows of a partition; raise StoreError for a row that is not a message."""
        with staged_file(self.staging, f"{uuid4().hex}.arrow") as writer:
            row = 0
            for batch in batches:
                found = stage_messages(batch, self.target.topic)
                if isinstance(found, Refusal):
                    raise StoreError(
                        f"row {row + found.row} of a partition is not a message: {found.reason}",
                        hint="nothing was stored; filter out such rows",
                    )
                writer.write(found)
                row += batch.num_rows
        return writer.file()


class RocketMQWriter(_Writer, DataSourceArrowWriter):
    """Writes the rows of a table into a store, in the order of its partitions."""

    def __init__(self, options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> None:
        super().__init__(parse_target(options), schema)
        require_ready(self.target.root)
        if overwrite and not is_new(self.target.root):
            raise UsageError(
                f"{self.target.root} already exists, and stores are not overwritten",
                hint='mode("append") adds to it; or name another directory',
            )

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Stage the rows of a partition."""
        with in_plain_words():
            return Staged(self.staging, self.stage(iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Store everything that was staged."""
        with in_plain_words():
            import_staged(self.staging, [one.file for one in _staged(messages) if one.file is not None])

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:  # noqa: ARG002
        """Remove everything that was staged."""
        self.staging.remove()


class RocketMQStreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Writes the batches of a streaming query into a store.

    Spark makes one of these for the tasks, and another one for each commit, which learns from their answers what was
    staged and where. So the store is first looked at in a commit: another query may be writing to it now.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise UsageError(
                "the output mode complete would replace the store with each batch, and stores are not overwritten",
                hint='outputMode("append"), which is the default',
            )
        super().__init__(parse_target(options, of_stream=True), schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Stage the rows of a partition of a batch."""
        with in_plain_words():
            return Staged(self.staging, self.stage(iterator), _query_of_task())

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Store a batch, unless the store has it."""
        staged = _staged(messages)
        files = [one.file for one in staged if one.file is not None]
        with in_plain_words():
            if files:
                import_staged(staged[0].staging, files, StreamBatch(_query_of(staged), batchId))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        """Remove what the tasks of a batch staged."""
        for one in _staged(messages):
            one.staging.remove()


def _staged(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    """Return the answers of the tasks that ended well."""
    return [one for one in messages if isinstance(one, Staged)]


def _query_of_task() -> str | None:
    """Return the id of the query that this task works for; None outside of Spark's tasks."""
    context = TaskContext.get()
    return None if context is None else context.getLocalProperty(_QUERY_ID)


def _query_of(staged: Sequence[Staged]) -> str:
    """Return the id of the query that has staged a batch; raise StoreError if Spark did not tell it."""
    (query,) = {one.query for one in staged}
    if query is None:
        raise StoreError(
            f"this Spark does not tell its tasks the id of their query ({_QUERY_ID}), by which a batch that runs "
            "again is known; nothing was stored",
            hint='foreachBatch with batch.write.format("rocketmq") stores each batch at least once',
        )
    return query


def _check_schema(schema: StructType, topic: str | None) -> None:
    """Raise UsageError for a table whose columns are not those of messages; ``topic`` is given beside the table."""
    types = {field.name: field.dataType.simpleString() for field in schema.fields}
    for name in ("topic", "body") if topic is None else ("body",):
        if name not in types:
            more = ', or option("topic", "Orders")' if name == "topic" else ""
            hint = f"the columns are {', '.join(OUTGOING_COLUMNS)}{more}"
            raise UsageError(f"a message needs a column {name}", hint=hint)
    for name, found in types.items():
        if name in GIVEN_ANEW or name == STATUS:
            continue
        wanted = OUTGOING_COLUMNS.get(name)
        if wanted is None:
            near = get_close_matches(name, OUTGOING_COLUMNS, n=1)
            hint = f"did you mean {near[0]}?" if near else "put it into properties, or drop it"
            raise UsageError(f"a message has no column {name!r}", hint=hint)
        if found not in wanted:
            raise UsageError(
                f"{name} must be {' or '.join(wanted)}, not {found}", hint=f'cast it: col("{name}").cast("{wanted[0]}")'
            )
