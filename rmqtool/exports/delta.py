"""A Delta table as the target of an export: our Parquet files, and one commit of its log that makes them visible.

A commit has an *application transaction* for each broker: its application is ``rmqtool/BROKER``, its version is the
offset in the broker's log up to which the table has the messages. The next export goes on from there. Of two exports
that go on from the same place Delta commits one and refuses the other, so no message is in the table twice, also on
object storage, where there is no lock. Files of an export that was killed before its commit are not part of the table.

Below the target are data and Delta's log only. The manifest of an export is in the sibling ``TARGET_manifest``, written
before the commit. The transaction of the application ``rmqtool`` names the one that counts: its version is the second
part of the manifest's name. Damaged ranges are listed in the sibling ``TARGET_damage``.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from rmqtool.errors import OptionalMissing, Refused, StoreInUse, WriteFailed
from rmqtool.exports.parquet import PartitionBy, writing
from rmqtool.exports.target import (
    Manifest,
    Mode,
    Progress,
    clear_staging,
    decode_manifest,
    encode_manifest,
    locked_staging,
)
from rmqtool.files.object_storage import endpoint, parse_address, reason_of, region, storage_of
from rmqtool.files.publish import move, sync, write_whole
from rmqtool.store.open import absolute, is_far

_LOG = "_delta_log"
# Columns with statistics in Delta's log: readers leave out whole files by them.
_COUNTED = (
    "topic",
    "queue_id",
    "queue_offset",
    "commitlog_offset",
    "store_timestamp",
    "born_timestamp",
    "tags",
    "msg_id",
)
# Longer texts are not worth their place in the log.
_LONGEST = 32
# Names that an export leaves if it was killed before its commit, or is still running.
_OURS = re.compile(r"_delta_log|[0-9a-f]{32}|part-[0-9-]+-[0-9a-f]{8}\.parquet")
_ENTRY = re.compile(r"[0-9]{20}\.json")
# Errors of Delta's client after which another writer was first.
_LOST = re.compile(r"concurrent|already exists|conflict", re.IGNORECASE)
_READERS = 16
# The application whose transaction names the manifest, and how much of an export's token the two have.
_EXPORT = "rmqtool"
_SHORT = 8
_NEW_NAME = "export to another directory (--to)"


class DeltaTarget:
    """The table of one export. Use ``opened_delta``."""

    def __init__(self, directory: str, mode: Mode, partition_by: Sequence[PartitionBy]) -> None:
        self.directory = absolute(directory)
        self.mode = mode
        self.partition_by = tuple(partition_by)
        self._token = uuid4().hex
        self._far = is_far(self.directory)
        parent, _, name = self.directory.rpartition("/")
        local = os.path.join(parent, f".{name}.rmqtool")
        # The directory that tasks write to. On object storage files cannot be renamed, so they are written in place.
        self.staging = f"{self.directory}/{self._token}" if self._far else local
        self.previous: list[Manifest] = []
        self.is_new = True
        self._table: Any = None
        self._numbers = 0

    @property
    def number(self) -> int:
        """The number of this export in its target."""
        return self._numbers + 1

    def prepare(self, locks: ExitStack) -> None:
        """Open the table, and check that it may be written."""
        if self._far:
            locks.callback(self._remove_uncommitted)
        else:
            locks.enter_context(locked_staging(self.staging, self.directory))
            with writing(self.directory):
                clear_staging(self.staging)
                self._remove_torn()
        self._table = self._open()
        if self._table is None:
            self._require_empty()
        elif self.mode is Mode.ERROR:
            raise self._taken()
        self.is_new = self._table is None
        found = self._read_manifests()
        self._numbers = max((manifest.number for manifest in found.values()), default=0)
        if self._table is not None and self.mode is Mode.APPEND:
            self.previous = [self._current(found)]

    def _taken(self) -> Refused:
        return Refused(
            f"{self.directory} already is a Delta table; it was left unchanged",
            file=self.directory,
            hint="--mode append adds to it, --mode overwrite replaces its rows, --since-last adds what is new",
        )

    def _remove_torn(self) -> None:
        """Remove the last entry of the table's log if it is not whole, and an export wrote it.

        Delta's client gives an entry its name before its content is durable. A power cut between the two leaves a table
        that no reader accepts. That commit was never acknowledged. That of another writer is left to that writer.
        """
        path = _torn_entry(os.path.join(self.directory, _LOG))
        if path is None:
            return
        version = int(os.path.basename(path).partition(".")[0])
        if version and self.mode is Mode.ERROR:
            raise self._taken()
        if not self._has_manifest_after(version - 1):
            raise Refused(
                f"{path} is not whole, and no rmqtool export wrote it; it was left unchanged",
                file=path,
                hint=f"the writer of the table can repair it; or {_NEW_NAME}",
            )
        os.unlink(path)
        sync(os.path.dirname(path))

    def _has_manifest_after(self, version: int) -> bool:
        """Return whether the newest manifest belongs to an export after a version of the table: it comes first."""
        newest = max((name for name in self._names(f"{self.directory}_manifest") if name.endswith(".json")), default="")
        if version < 0 or not newest:
            return bool(newest)
        with self._told("read"):
            token = _deltalake().DeltaTable(self.directory, version=version).transaction_version(_EXPORT)
        return token is None or not newest.endswith(_manifest_end(token))

    def _open(self) -> Any:
        """Return the Delta table at the target, None without one."""
        delta = _deltalake()
        with self._told("read"):
            if not delta.DeltaTable.is_deltatable(self.directory, self._options()):
                return None
            return delta.DeltaTable(self.directory, storage_options=self._options())

    def _require_empty(self) -> None:
        """Raise Refused for a directory with files that belong to no Delta table."""
        if not all(_OURS.fullmatch(name) for name in self._names(self.directory)):
            raise Refused(
                f"{self.directory} holds files of no Delta table; it was left unchanged",
                file=self.directory,
                hint=_NEW_NAME,
            )

    def _current(self, manifests: Mapping[str, Manifest]) -> Manifest:
        """Return the manifest of the export that the table ends with; raise Refused without one."""
        token = self._table.transaction_version(_EXPORT)
        for name, manifest in sorted(manifests.items(), reverse=True):
            # A killed export may have left a manifest with the same ends and another choice.
            if name.endswith(_manifest_end(token)) if token is not None else self._has_ends_of(manifest):
                return manifest
        raise Refused(
            f"{self.directory}_manifest has no manifest of the last export to {self.directory}",
            file=self.directory,
            hint=f"--mode overwrite exports everything again, or {_NEW_NAME}",
        )

    def _has_ends_of(self, manifest: Manifest) -> bool:
        """Return whether a manifest has the table's ends; earlier versions did not name the one that counts."""
        ends = {broker: self._table.transaction_version(_application(broker)) for broker in manifest.read}
        return ends == {broker: progress.end for broker, progress in manifest.read.items()}

    def commit(self, manifest: Manifest, files: dict[str, str], damage: str | None = None) -> None:
        """Make the export appear: ``files`` gives for each name the file in ``staging``; ``damage`` lists ranges."""
        short = self._token[:_SHORT]
        name = f"{manifest.number:06}-{short}"
        self._put(f"{self.directory}_manifest", f"{name}.json", encode_manifest(manifest))
        if damage is not None:
            self._move(f"{self.staging}/{damage}", f"{self.directory}_damage", f"part-{name}.parquet")
        placed = self._place(files)
        with ThreadPoolExecutor(_READERS) as readers:
            actions = list(readers.map(self._action, placed))
        delta = _deltalake()
        transactions = [
            delta.Transaction(_EXPORT, int(short, 16)),
            *(delta.Transaction(_application(broker), progress.end) for broker, progress in manifest.read.items()),
        ]
        about = delta.CommitProperties(
            custom_metadata={"rmqtool": manifest.written_by, "rmqtool.export": str(manifest.number)},
            app_transactions=transactions,
        )
        # From here on the commit may arrive, even if this process is interrupted before it learns that it did.
        self._token = ""
        try:
            self._write(actions, self._schema(manifest), about)
        except Exception as error:
            arrived = self._has_arrived(placed)
            if not arrived:
                raise self._not_committed(error, name, placed, is_known=arrived is not None) from error
        if not self._far:
            log = os.path.join(self.directory, _LOG)
            for path in (*(os.path.join(log, one) for one in os.listdir(log)), log, self.directory):
                if not os.path.isdir(path) or path in (log, self.directory):
                    sync(path)
            sync(os.path.realpath(os.path.dirname(self.directory)))

    def _write(self, actions: list[Any], schema: Any, about: Any) -> None:
        from deltalake.transaction import create_table_with_add_actions

        columns = [by.column for by in self.partition_by] or None
        if self._table is None:
            create_table_with_add_actions(
                self.directory,
                schema,
                actions,
                "error",
                columns,
                storage_options=self._options(),
                commit_properties=about,
            )
            return
        mode = "overwrite" if self.mode is Mode.OVERWRITE else "append"
        self._table.create_write_transaction(actions, mode, schema, columns, commit_properties=about)

    def _has_arrived(self, placed: Sequence[str]) -> bool | None:
        """Return whether the table has the files of a commit that was answered with an error; None if unknown."""
        if not placed:
            return None
        try:
            table = self._open()
            files = table.file_uris() if table is not None else []
        except Exception:
            return None
        return any(one.endswith(f"/{placed[0]}") for one in files)

    def _not_committed(self, error: Exception, name: str, placed: Sequence[str], *, is_known: bool) -> Exception:
        """Return the error for a commit that failed. Files are removed only if it certainly did not happen."""
        text = str(error)
        if _LOST.search(text):
            if is_known:
                self._remove(placed, name)
            return StoreInUse(
                f"another export to {self.directory} was committed meanwhile; nothing was written",
                file=self.directory,
                hint="run it again: with --since-last it goes on from there",
            )
        # The files stay: the commit may have arrived although its answer did not.
        return WriteFailed(
            f"the commit to {self.directory} failed ({reason_of(text)}), and it is not known whether it arrived",
            file=self.directory,
            hint="look at the table; then run it again with --since-last, which adds only what it does not have",
        )

    def _remove(self, placed: Sequence[str], name: str) -> None:
        beside = (f"{self.directory}_manifest/{name}.json", f"{self.directory}_damage/part-{name}.parquet")
        for path in (*(f"{self.directory}/{one}" for one in placed), *beside):
            with suppress(OSError):
                if self._far:
                    storage, where = storage_of(path)
                    storage.delete_file(where)
                else:
                    os.unlink(path)

    def _remove_uncommitted(self) -> None:
        """Remove the files of an export that ended before its commit."""
        if self._token:
            storage, where = storage_of(self.staging)
            with suppress(OSError):
                storage.delete_dir(where)

    def _place(self, files: Mapping[str, str]) -> list[str]:
        """Return the names in the table of staged files; on a disk they are moved there and made durable."""
        if self._far:
            return [f"{self._token}/{staged}" for staged in files.values()]
        placed = []
        with writing(self.directory):
            os.makedirs(self.directory, exist_ok=True)
            for name, staged in files.items():
                placed.append(f"{name.removesuffix('.parquet')}-{self._token[:_SHORT]}.parquet")
                move(os.path.join(self.staging, staged), os.path.join(self.directory, placed[-1]))
            sync(self.directory)
        return placed

    def _action(self, name: str) -> Any:
        """Return the entry of Delta's log for a file."""
        from deltalake.transaction import AddAction

        path = f"{self.directory}/{name}"
        if self._far:
            storage, where = storage_of(path)
            size, found = storage.get_file_info(where).size, pq.read_metadata(where, filesystem=storage)
        else:
            size, found = os.path.getsize(path), pq.read_metadata(path)
        values = {by.column: _partition_value(by, found) for by in self.partition_by}
        stats = json.dumps(_statistics(found), ensure_ascii=False)
        return AddAction(name, size, values, _now(), True, stats)

    def _schema(self, manifest: Manifest) -> Any:
        from deltalake import Schema

        from rmqtool.columns.batches import Projection

        chosen = manifest.choices
        fields = list(
            Projection(columns=tuple(chosen["columns"]), body=chosen["body"], time_unit="us", broker="").schema()
        )
        kinds = {PartitionBy.DAY: pa.date32(), PartitionBy.TOPIC: pa.string()}
        fields += [pa.field(by.column, kinds[by]) for by in self.partition_by]
        return Schema.from_arrow(pa.schema([field.with_nullable(True).remove_metadata() for field in fields]))

    def _read_manifests(self) -> dict[str, Manifest]:
        """Return the manifests by their names."""
        directory = f"{self.directory}_manifest"
        names = [name for name in self._names(directory) if name.endswith(".json")]
        return {name: decode_manifest(self._get(f"{directory}/{name}"), f"{directory}/{name}") for name in names}

    def _names(self, directory: str) -> list[str]:
        if not self._far:
            return os.listdir(directory) if os.path.isdir(directory) else []
        from pyarrow.fs import FileSelector

        storage, where = storage_of(directory)
        with writing(directory):
            return [info.base_name for info in storage.get_file_info(FileSelector(where, allow_not_found=True))]

    def _get(self, path: str) -> bytes:
        if not self._far:
            with open(path, "rb") as file:
                return file.read()
        storage, where = storage_of(path)
        with writing(path), storage.open_input_stream(where) as stream:
            return bytes(stream.read())

    def _put(self, directory: str, name: str, data: bytes) -> None:
        path = f"{directory}/{name}"
        with writing(path):
            if self._far:
                storage, where = storage_of(path)
                with storage.open_output_stream(where) as stream:
                    stream.write(data)
                return
            os.makedirs(directory, exist_ok=True)
            write_whole(path, data)
            _sync_place(directory)

    def _move(self, source: str, directory: str, name: str) -> None:
        path = f"{directory}/{name}"
        with writing(path):
            if self._far:
                storage, where = storage_of(path)
                storage.move(storage_of(source)[1], where)
                return
            move(source, path)
            _sync_place(directory)

    def _options(self) -> dict[str, str]:
        """Return what Delta's client has to know beside the variables of the environment."""
        if not self._far or parse_address(self.directory).scheme != "s3":
            return {}
        options, server = {"aws_conditional_put": "etag"}, endpoint()
        if server is not None:
            options |= {"AWS_ENDPOINT_URL": server, "AWS_REGION": region() or "us-east-1"}
        if server is not None and server.startswith("http://"):
            options["AWS_ALLOW_HTTP"] = "true"
        return options

    @contextmanager
    def _told(self, operation: str) -> Iterator[None]:
        """Raise WriteFailed for an error of Delta's client."""
        try:
            yield
        except OSError as error:
            raise self._failure(operation, error) from error
        except _deltalake().exceptions.DeltaError as error:
            raise self._failure(operation, error) from error

    def _failure(self, operation: str, error: Exception) -> WriteFailed:
        return WriteFailed(
            f"cannot {operation} the Delta table {self.directory}: {reason_of(str(error))}; it was left unchanged",
            file=self.directory,
            hint="check the network and the credentials of the SDK, then run the command again",
        )


@contextmanager
def opened_delta(directory: str, mode: Mode, partition_by: Sequence[PartitionBy]) -> Iterator[DeltaTarget]:
    """Yield a table that may be written; what was not committed is removed afterwards."""
    target = DeltaTarget(directory, mode, partition_by)
    with ExitStack() as locks:
        target.prepare(locks)
        yield target


def _sync_place(directory: str) -> None:
    """Make the names in a directory durable, and its own."""
    sync(directory)
    sync(os.path.realpath(os.path.dirname(directory)))


def _manifest_end(token: int) -> str:
    """Return the end of the name of the manifest that a transaction names."""
    return f"-{token:0{_SHORT}x}.json"


def _torn_entry(log: str) -> str | None:
    """Return the path of the last entry of a table's log if it is not whole."""
    names = sorted(filter(_ENTRY.fullmatch, os.listdir(log))) if os.path.isdir(log) else []
    if not names:
        return None
    path = os.path.join(log, names[-1])
    with open(path, "rb") as file:
        lines = [line for line in file.read().splitlines() if line.strip()]
    return None if lines and all(map(_is_object, lines)) else path


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def progress_of(progress: Progress, before: int) -> Progress:
    """Return the progress of a broker that never goes back: a later export may read an earlier part."""
    return progress if progress.end >= before else replace(progress, end=before)


def _application(broker: str) -> str:
    return f"rmqtool/{broker}"


def _now() -> int:
    return int(datetime.now().timestamp() * 1000)


def _deltalake() -> Any:
    try:
        import deltalake
        import deltalake.exceptions
    except ImportError:
        raise OptionalMissing(
            "writing a Delta table needs the extra delta", hint="pip install 'rmqtool[delta]'"
        ) from None
    return deltalake


def _column_statistics(metadata: pq.FileMetaData, name: str) -> list[Any]:
    """Return the statistics of a column in each row group; none if a group has no bounds."""
    found = []
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        column = next((c for c in map(group.column, range(group.num_columns)) if c.path_in_schema == name), None)
        if column is None or column.statistics is None:
            return []
        found.append(column.statistics)
    return found


def _statistics(metadata: pq.FileMetaData) -> dict[str, Any]:
    """Return the statistics of a file as Delta's log has them."""
    least: dict[str, Any] = {}
    most: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for name in _COUNTED:
        groups = _column_statistics(metadata, name)
        if not groups:
            continue
        nulls[name] = sum(group.null_count for group in groups)
        # A value that Python's times or the log's texts cannot hold leaves the column without bounds.
        with suppress(ValueError, OverflowError):
            bounded = [(group.min, group.max) for group in groups if group.has_min_max]
            if len(bounded) + sum(group.num_values == 0 for group in groups) == len(groups) and bounded:
                bounds = _spelled(min(low for low, _ in bounded)), _spelled(max(high for _, high in bounded))
                least[name], most[name] = bounds
    return {"numRecords": metadata.num_rows, "minValues": least, "maxValues": most, "nullCount": nulls}


def _spelled(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(value, str) and len(value) > _LONGEST:
        raise ValueError("too long for the log")
    return value


def _partition_value(by: PartitionBy, metadata: pq.FileMetaData) -> str | None:
    """Return the value that all rows of a file share; None for no time, or one that no date can hold."""
    with suppress(ValueError, OverflowError):
        for group in _column_statistics(metadata, by.source):
            if group.has_min_max:
                return str(group.min if by is PartitionBy.TOPIC else group.min.date())
    return None
