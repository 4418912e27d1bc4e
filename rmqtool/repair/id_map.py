"""The mapping of old ids to new ones: a line for each message of a copy, as JSON or CSV by the name of the file."""

from __future__ import annotations

import csv
import io
import json
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from rmqtool.errors import Refused
from rmqtool.storage.failures import write_failed

if TYPE_CHECKING:
    from rmqtool.repair.staging import Staging
    from rmqtool.scan.moving import Moved

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
    """The file, written beside its place: it gets its name with the copy."""

    def __init__(self, target: str, staging: Staging) -> None:
        self.target = os.path.abspath(target)
        if os.path.lexists(self.target):
            raise Refused(f"{target} is there already; nothing was copied", file=target, hint="name another file")
        self._is_csv = target.endswith(".csv")
        place, name = os.path.split(self.target)
        path = os.path.join(place, f".{name}.rmqtool-copy")
        try:
            self._file = open(path, "w", encoding="utf-8", newline="")  # noqa: SIM115  (closed by complete)
            staging.accompany(path, self.target)
            if self._is_csv:
                self._file.write(",".join(FIELDS) + "\n")
        except BaseException as error:  # interrupted, too: until it is noted nobody else knows of it
            with suppress(OSError):
                os.unlink(path)
            if isinstance(error, OSError):
                raise write_failed("write", target, error) from error
            raise

    def add(self, store: str, moved: Moved) -> None:
        """Write the lines of messages that are in the copy."""
        from rmqtool.scan.moving import id_columns

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
