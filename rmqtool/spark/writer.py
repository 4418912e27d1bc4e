"""Write a table into a store: tasks stage their rows beside it, then the driver stores all of them or none.

Tasks are many processes, so they cannot hold the broker's lock. The staged rows do not belong to the store yet. In its
commit the driver takes the lock, reads the store, and stores all rows before it releases the lock.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING
from uuid import uuid4

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from rmqtool.columns.outgoing import GIVEN_ANEW, OUTGOING_COLUMNS, Refusal, stage_messages
from rmqtool.engine.bulk_load import StagedFile, import_staged, is_new, require_ready, staged_file
from rmqtool.errors import StoreError, UsageError
from rmqtool.files.publish import JobDirectory
from rmqtool.spark.options import parse_target
from rmqtool.spark.schema import STATUS
from rmqtool.spark.source import in_plain_words

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_REQUIRED = ("topic", "body")


@dataclass
class Staged(WriterCommitMessage):
    """The staged rows of a task; None if it had no rows."""

    file: StagedFile | None


class RocketMQWriter(DataSourceArrowWriter):
    """Writes the rows of a table into a store, in the order of its partitions."""

    def __init__(self, options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> None:
        self.root = parse_target(options)
        _check_schema(schema)
        require_ready(self.root)
        if overwrite and not is_new(self.root):
            raise UsageError(
                f"{self.root} already exists, and stores are not overwritten",
                hint='mode("append") adds to it; or name another directory',
            )
        self.staging = JobDirectory(self.root, uuid4().hex)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Stage the rows of a partition."""
        with in_plain_words(), staged_file(self.staging, f"{uuid4().hex}.arrow") as writer:
            row = 0
            for batch in iterator:
                found = stage_messages(batch)
                if isinstance(found, Refusal):
                    raise StoreError(
                        f"row {row + found.row} of a partition is not a message: {found.reason}",
                        hint="nothing was stored; filter out such rows",
                    )
                writer.write(found)
                row += batch.num_rows
        return Staged(writer.file())

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Store everything that was staged."""
        files = [message.file for message in messages if isinstance(message, Staged) and message.file is not None]
        with in_plain_words():
            import_staged(self.staging, files)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:  # noqa: ARG002
        """Remove everything that was staged."""
        self.staging.remove()


def _check_schema(schema: StructType) -> None:
    """Raise UsageError for a table whose columns are not those of messages."""
    types = {field.name: field.dataType.simpleString() for field in schema.fields}
    for name in _REQUIRED:
        if name not in types:
            raise UsageError(f"a message needs a column {name}", hint=f"the columns are {', '.join(OUTGOING_COLUMNS)}")
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
