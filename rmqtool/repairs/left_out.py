"""Files beside a copy: the damaged bytes that it left out, and the mapping of old ids to new ones."""

from __future__ import annotations

import csv
import io
import json
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from rmqtool.errors import ReadFailed, Refused
from rmqtool.files.failures import write_failed
from rmqtool.files.filesystem import ReadableFile, split
from rmqtool.log.files import LogFile
from rmqtool.log.read import Damage

if TYPE_CHECKING:
    from rmqtool.log.transfer import Moved
    from rmqtool.repairs.staging import Staging

FIELDS = (
    "store",
    "topic",
    "queueId",
    "oldQueueOffset",
    "queueOffset",
    "oldCommitLogOffset",
    "commitLogOffset",
    "oldOffsetMsgId",
    "offsetMsgId",
    "uniqKey",
)


class IdMap:
    """The mapping of ids: a line for each copied message, as CSV or JSON by the name of the file.

    It is written under another name beside its place, and gets its name together with the copy.
    """

    def __init__(self, target: str, staging: Staging) -> None:
        self.target = os.path.abspath(target)
        if os.path.lexists(self.target):
            raise Refused(f"{target} already exists; nothing was copied", file=target, hint="name another file")
        self._is_csv = target.endswith(".csv")
        place, name = os.path.split(self.target)
        path = os.path.join(place, f".{name}.rmqtool-copy")
        try:
            self._file = open(path, "w", encoding="utf-8", newline="")  # noqa: SIM115  (closed by complete)
            staging.accompany(path, self.target)
            if self._is_csv:
                self._file.write(",".join(FIELDS) + "\n")
        except BaseException as error:  # includes an interrupt: until the file is recorded, only this code knows of it
            with suppress(OSError):
                os.unlink(path)
            if isinstance(error, OSError):
                raise write_failed("write", target, error) from error
            raise

    def add(self, store: str, moved: Moved) -> None:
        """Write the lines of messages that were copied."""
        from rmqtool.log.transfer import id_columns

        text = io.StringIO()
        write = csv.writer(text, lineterminator="\n").writerow if self._is_csv else None
        for row in zip(*id_columns(moved), strict=True):
            line = (store, *row)
            if write is not None:
                write(line)
            else:
                text.write(json.dumps(dict(zip(FIELDS, line, strict=True)), ensure_ascii=False) + "\n")
        try:
            self._file.write(text.getvalue())
        except OSError as error:
            raise write_failed("write", self.target, error) from error

    def complete(self) -> None:
        """Make the file durable."""
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
        except OSError as error:
            raise write_failed("complete", self.target, error) from error


LIST = "list.jsonl"
_CHUNK = 1 << 20
_SECTOR = 4096


class LostAndFound:
    """A directory that is created with the first damage: the damaged bytes, and ``list.jsonl``.

    A line of the list is the damage, its store, and the file with its bytes (none for a missing segment). Zeros are
    left as holes, and so are unreadable sectors.
    """

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.damages: list[tuple[str, Damage]] = []

    def take(self, store: str, damage: Damage, file: LogFile | None) -> None:
        """Save the bytes of a damage in ``file``; None if the file is missing."""
        try:
            os.makedirs(self.directory, exist_ok=True)
            name = None
            # If a file was truncated, queues may refer to more bytes than it has.
            length = min(damage.length, file.size - damage.file_offset) if file is not None else 0
            if file is not None and length > 0:
                name = f"{len(self.damages):06d}-{split(damage.file)[1]}@{damage.file_offset}+{length}"
                self._save(name, file, damage.file_offset, length)
            self.damages.append((store, damage))
            self._note({**damage.as_json(), "store": store, "saved": name})
        except OSError as error:
            raise write_failed("write", self.directory, error) from error

    def _note(self, line: dict[str, object]) -> None:
        with open(os.path.join(self.directory, LIST), "a", encoding="utf-8") as listing:
            listing.write(json.dumps(line) + "\n")

    def _save(self, name: str, file: LogFile, begin: int, length: int) -> None:
        with open(os.path.join(self.directory, name), "xb") as out:
            try:
                with file.open() as opened:
                    for extent in opened.iter_data(begin, begin + length):
                        for at in range(extent.file_offset, extent.end, _CHUNK):
                            data = _read(opened, at, min(_CHUNK, extent.end - at))
                            out.seek(at - begin)
                            out.write(data)
            except ReadFailed:  # the list has the damage; the readable bytes are saved
                pass
            out.truncate(length)


def _read(file: ReadableFile, at: int, length: int) -> bytes:
    """Return bytes of a file, with zeros for unreadable sectors."""
    try:
        return file.pread(length, at)
    except ReadFailed:
        if length <= _SECTOR:
            return bytes(length)
    return b"".join(_read(file, place, min(_SECTOR, at + length - place)) for place in range(at, at + length, _SECTOR))
