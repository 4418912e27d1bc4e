"""What a copy had to leave out of a damaged log: every byte, and a list of where it was."""

from __future__ import annotations

import json
import os

from rmqtool.errors import ReadFailed
from rmqtool.scan.logs import LogFile
from rmqtool.scan.reading import Damage
from rmqtool.storage.failures import write_failed
from rmqtool.storage.filesystem import ReadableFile, split

LIST = "list.jsonl"
_CHUNK = 1 << 20
_SECTOR = 4096


class LostAndFound:
    """A directory that is made with the first damage: the bytes piece by piece, and ``list.jsonl``.

    A line of the list is the damage as elsewhere, the store it was met in, and the file that has its bytes; no file
    where there are no bytes: a segment that is gone. Zeros are left as holes, and so are sectors that cannot be read.
    """

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.damages: list[tuple[str, Damage]] = []

    def take(self, store: str, damage: Damage, file: LogFile | None) -> None:
        """Keep the bytes of a damage of ``file``; None where the file is gone."""
        try:
            os.makedirs(self.directory, exist_ok=True)
            name = None
            # Of a file that was cut short not all that the queues know of is there.
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
            except ReadFailed:  # the list names it; what could be read is there
                pass
            out.truncate(length)


def _read(file: ReadableFile, at: int, length: int) -> bytes:
    """Return bytes of a file, with zeros for the sectors that cannot be read."""
    try:
        return file.pread(length, at)
    except ReadFailed:
        if length <= _SECTOR:
            return bytes(length)
    return b"".join(_read(file, place, min(_SECTOR, at + length - place)) for place in range(at, at + length, _SECTOR))
