"""The Parquet files of one task: batches in, a file for each partition out, in the order of the log.

Also the errors for what the operating system refuses while an export is written.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from inspect import signature
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rmqtool.errors import NoSpace, WriteFailed
from rmqtool.files.object_storage import reason_of, storage_of
from rmqtool.files.publish import sync
from rmqtool.store.open import is_far

_FULL = (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def writing(path: str) -> Iterator[None]:
    """Raise NoSpace or WriteFailed, naming ``path``, for an OSError inside."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else reason_of(str(error))
        if error.errno in _FULL:
            raise NoSpace(
                f"{path} could not be written: {reason}; the target was left unchanged",
                file=path,
                hint="free some space, or export to another disk (--to)",
            ) from error
        raise WriteFailed(
            f"{path} could not be written: {reason}; the target was left unchanged",
            file=path,
            hint="export to another directory (--to)",
        ) from error


# A row group is held twice while it is written, as columns and as pages, by each thread. With groups of 64 MiB two
# threads took 363 MiB, of 16 MiB 246. Groups of 12 MiB take 215, and 180 if Arrow gives back after each what it keeps
# for later. Their files are as large as those of 16 MiB, within 5 %; those of 8 MiB are a sixth larger.
MOST_ROWS = 100_000
MOST_BYTES = 12 << 20
# Bytes held by all partitions of a task together; beyond that the file that was unused for longest is closed.
MOST_HELD = 96 << 20
MOST_OPEN = 64

NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
_NAME_LIMIT = 255
_HASH_LENGTH = 16
_BEGIN_LENGTH = 16
_SAFE = "-_.!~ "
_LATEST_DAY = 2_932_896  # 9999-12-31, the last that readers of dates agree on
_PER_DAY = {"ms": 86_400_000, "us": 86_400_000_000}

_CODEC = "zstd"
_LEVEL = 1
# Columns whose values repeat. A dictionary for any other column is built and then given up.
_REPEATING = ("topic", "queue_id", "tags", "born_host", "store_host", "body_codec", "sys_flag", "flag", "broker")
_OF_PROPERTIES = ("properties.key_value.key",)
# No reader skips row groups by these, and the greatest body would be in every footer.
_WITHOUT_STATISTICS = ("body", "properties")

# Readers find a message by these; without a filter they would have to read the column of every row group.
_LOOKED_UP = ("keys", "msg_id")
_FEWEST_VALUES = 1000
_WRONGLY_FOUND = 0.01
# Rows of a file are in the order of the log. In clustered files those of a row group are in the order of the queues,
# and its pages are small: a reader that looks for one topic reads a page or two of each row group.
_ORDER = ("commitlog_offset",)
_CLUSTERED = ("topic", "queue_id", "queue_offset")
_CLUSTERED_PAGE = 4000


class PartitionBy(StrEnum):
    """The words of --partition-by, each with the column that the directories give."""

    DAY = "day"
    TOPIC = "topic"

    @property
    def column(self) -> str:
        """The name in the directories. No column of the files has it: those keep theirs."""
        return {"day": "dt", "topic": "topic_part"}[self.value]

    @property
    def source(self) -> str:
        """The column that the partition is computed from."""
        return {"day": "store_timestamp", "topic": "topic"}[self.value]


class Layout(NamedTuple):
    """The arrangement of rows in files.

    ``flat``: all files are in one directory, because a Delta table's log tells their partitions. ``clustered``: the
    rows of each row group are sorted by topic and queue.
    """

    partition_by: tuple[PartitionBy, ...] = ()
    flat: bool = False
    clustered: bool = False


_IN_ORDER = Layout()


class PartFile(NamedTuple):
    """A file that was written: its path in the target, its rows and its bytes."""

    path: str
    rows: int
    bytes: int


@dataclass(eq=False)
class _Part:
    """One partition of one task: the rows that wait to be written, and the open file."""

    directory: str
    files: int = 0
    waiting: list[pa.RecordBatch] = field(default_factory=list)
    waiting_rows: int = 0
    waiting_bytes: int = 0
    writer: pq.ParquetWriter | None = None
    path: str = ""
    rows: int = 0


class PartWriter:
    """Writes the batches of one task below ``root``; the names of its files begin with ``stem``."""

    def __init__(
        self,
        root: str,
        stem: str,
        schema: pa.Schema,
        layout: Layout = _IN_ORDER,
        *,
        most_bytes: int | None = None,
    ) -> None:
        self.root = root
        # The size at which a file is closed and the next one begun; None: one file for each partition.
        self.most_bytes = most_bytes
        self.stem = stem
        self.schema = schema
        self.layout = layout
        self._parts: dict[str, _Part] = {}
        self._open: dict[str, _Part] = {}  # the one used last is at the end
        self._held = 0
        self._written: list[PartFile] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Add a batch. Memory stays bounded for any number of partitions."""
        for directory, rows in _split(batch, self.layout.partition_by):
            part = self._parts.setdefault(directory, _Part(directory))
            part.waiting.append(rows)
            part.waiting_rows += rows.num_rows
            part.waiting_bytes += rows.nbytes
            self._held += rows.nbytes
            if part.waiting_rows >= MOST_ROWS or part.waiting_bytes >= MOST_BYTES:
                self._flush(part)
        while self._held >= MOST_HELD:
            self._flush(max(self._parts.values(), key=lambda part: part.waiting_bytes))

    def close(self) -> list[PartFile]:
        """Write the rest; return every file, durable, in the order of the names."""
        for part in self._parts.values():
            if part.waiting:
                self._flush(part)
        for part in list(self._open.values()):
            self._close(part)
        return sorted(self._written)

    def _flush(self, part: _Part) -> None:
        """Write the waiting rows as one row group."""
        writer = self._writer(part)
        rows = pa.Table.from_batches(part.waiting)
        if self.layout.clustered:
            rows = rows.sort_by([(name, "ascending") for name in _order(self.schema, is_clustered=True)])
        with writing(os.path.join(self.root, part.path)):
            writer.write_table(rows, row_group_size=part.waiting_rows)
        part.rows += part.waiting_rows
        self._held -= part.waiting_bytes
        part.waiting, part.waiting_rows, part.waiting_bytes = [], 0, 0
        pa.default_memory_pool().release_unused()
        if self.most_bytes is not None and writer.file_handle.tell() >= self.most_bytes:
            self._close(part)

    def _writer(self, part: _Part) -> pq.ParquetWriter:
        self._open.pop(part.directory, None)
        self._open[part.directory] = part
        if part.writer is not None:
            return part.writer
        if len(self._open) > MOST_OPEN:
            self._close(next(iter(self._open.values())))
        again = f"-{part.files}" if part.files else ""
        if self.most_bytes is not None:
            again = f"-{part.files:06}"
        if self.layout.flat and self.layout.partition_by:
            again = f"-{list(self._parts).index(part.directory):04}{again}"
        name = f"{self.stem}{again}.parquet"
        part.path = name if self.layout.flat else os.path.join(part.directory, name)
        part.files += 1
        path = os.path.join(self.root, part.path)
        with writing(path):
            if not is_far(path):
                os.makedirs(os.path.dirname(path), exist_ok=True)
            part.writer = open_writer(path, self.schema, part.waiting_rows, is_clustered=self.layout.clustered)
        return part.writer

    def _close(self, part: _Part) -> None:
        assert part.writer is not None, "only what is open is closed"
        path = os.path.join(self.root, part.path)
        with writing(path):
            part.writer.close()
            size = settled_size(path)
        self._written.append(PartFile(part.path, part.rows, size))
        del self._open[part.directory]
        part.writer, part.rows = None, 0


def settled_size(path: str) -> int:
    """Return the size of a file that was closed, after it is durable."""
    if is_far(path):
        storage, where = storage_of(path)
        return int(storage.get_file_info(where).size)
    sync(path)
    return os.path.getsize(path)


def open_writer(path: str, schema: pa.Schema, rows: int = 0, *, is_clustered: bool = False) -> pq.ParquetWriter:
    """Return a writer of a new file, with the codec and encodings of all files of an export.

    ``rows`` is about the size of a row group. The bloom filters have room for this number of different values.
    ``is_clustered``: the rows of each row group come in the order of the queues, not of the log.
    """
    names = [name for name in schema.names if name not in _WITHOUT_STATISTICS]
    storage, where = storage_of(path) if is_far(path) else (None, path)
    return pq.ParquetWriter(
        where,
        schema,
        filesystem=storage,
        compression=_CODEC,
        compression_level=_LEVEL,
        use_dictionary=[*_REPEATING, *_OF_PROPERTIES],
        write_statistics=names,
        write_page_index=True,
        sorting_columns=[
            pq.SortingColumn(schema.names.index(name)) for name in _order(schema, is_clustered=is_clustered)
        ]
        or None,
        **_bloom_filters(schema, rows),
        **(_small_pages() if is_clustered else {}),
    )


def _order(schema: pa.Schema, *, is_clustered: bool) -> list[str]:
    """Return the columns that the rows of a row group are sorted by."""
    return [name for name in (_CLUSTERED if is_clustered else _ORDER) if name in schema.names]


def _small_pages() -> dict[str, Any]:
    """Return the option for small pages; none for a pyarrow that takes the size in bytes only."""
    known = "max_rows_per_page" in signature(pq.ParquetWriter.__init__).parameters
    return {"max_rows_per_page": _CLUSTERED_PAGE} if known else {}


def _bloom_filters(schema: pa.Schema, rows: int) -> dict[str, Any]:
    """Return the option for bloom filters; none for a pyarrow that cannot write them."""
    names = [name for name in _LOOKED_UP if name in schema.names]
    if not names or "bloom_filter_options" not in signature(pq.ParquetWriter.__init__).parameters:
        return {}
    return {"bloom_filter_options": {name: {"ndv": max(rows, _FEWEST_VALUES), "fpp": _WRONGLY_FOUND} for name in names}}


def _split(batch: pa.RecordBatch, partition_by: Sequence[PartitionBy]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the rows of each partition in their order, with their directory."""
    if not partition_by:
        yield "", batch
        return
    codes = np.zeros(batch.num_rows, np.int64)
    directories = [""]
    for by in partition_by:
        column = batch.column(by.source)
        values = (_days(column) if by is PartitionBy.DAY else column).dictionary_encode(null_encoding="encode")
        names = [_directory_name(by, value) for value in values.dictionary.to_pylist()]
        codes = codes * len(names) + values.indices.to_numpy()
        directories = [os.path.join(above, name) for above in directories for name in names]
    for code in np.unique(codes).tolist():
        rows = np.flatnonzero(codes == code)
        yield directories[code], batch if len(rows) == batch.num_rows else batch.take(pa.array(rows))


def _days(times: pa.Array) -> pa.Array:
    """Return the UTC day of each time; null for a time after the year 9999, which readers of dates refuse."""
    unit = _PER_DAY[times.type.unit]
    days = pc.cast(times, pa.int64()).to_numpy(zero_copy_only=False) // unit
    absent = times.is_null().to_numpy(zero_copy_only=False) | (days > _LATEST_DAY)
    return pa.array(np.where(absent, 0, days), pa.int64(), mask=absent)


def _directory_name(by: PartitionBy, value: Any) -> str:
    if value is None:
        return f"{by.column}={NO_VALUE}"
    if by is PartitionBy.DAY:
        return f"{by.column}={np.datetime64(value, 'D')}"
    name = f"{by.column}={quote(value, safe=_SAFE)}"
    if len(name) <= _NAME_LIMIT:
        return name
    # A directory name cannot be that long. The files keep the whole topic.
    digest = hashlib.sha256(value.encode("utf-8")).hexdigest()[:_HASH_LENGTH]
    return f"{by.column}={quote(value[:_BEGIN_LENGTH], safe=_SAFE)}~{digest}"
