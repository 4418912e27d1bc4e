"""The manifest of an export, one JSON file: its files, how far it read each store, and with which choice."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from rmqtool.errors import StoreError
from rmqtool.exports.parquet import PartFile
from rmqtool.log.follow import LastRecord

VERSION = 1


@dataclass(frozen=True, slots=True)
class Progress:
    """The part of a store that was read: from one physical offset up to another."""

    store: str
    start: int
    end: int
    last: LastRecord | None


@dataclass(frozen=True, slots=True)
class Manifest:
    """One export. ``read`` is by broker and continues from export to export; ``choices`` must stay the same."""

    number: int
    written_by: str
    schema_version: int
    choices: dict[str, Any]
    read: dict[str, Progress]
    files: list[PartFile]
    damage: dict[str, int] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return the content of the file."""
        return {
            "manifestVersion": VERSION,
            "number": self.number,
            "writtenBy": self.written_by,
            "schemaVersion": self.schema_version,
            "choices": self.choices,
            "read": {broker: _progress_json(progress) for broker, progress in sorted(self.read.items())},
            "files": [file._asdict() for file in self.files],
            "damage": self.damage,
        }


def _progress_json(progress: Progress) -> dict[str, Any]:
    last = progress.last
    return {
        "store": progress.store,
        "startCommitLogOffset": progress.start,
        "endCommitLogOffset": progress.end,
        "lastRecord": asdict(last) if last is not None else None,
    }


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the bytes of the file."""
    return (json.dumps(manifest.as_json(), indent=1, ensure_ascii=False) + "\n").encode("utf-8", "surrogateescape")


def decode_manifest(data: bytes, path: str) -> Manifest:
    """Return the manifest in ``data``; raise StoreError, naming ``path``, for bytes that no export wrote."""
    try:
        found = json.loads(data)
        if found["manifestVersion"] != VERSION:
            raise StoreError(
                f"{path} has version {found['manifestVersion']}; this rmqtool reads version {VERSION}",
                file=path,
                hint="use the rmqtool that wrote it, or export to another directory (--to)",
            )
        return Manifest(
            number=int(found["number"]),
            written_by=str(found["writtenBy"]),
            schema_version=int(found["schemaVersion"]),
            choices=dict(found["choices"]),
            read={broker: _progress(progress) for broker, progress in found["read"].items()},
            files=[PartFile(**file) for file in found["files"]],
            damage=dict(found["damage"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(
            f"{path} is not an export manifest: {error!r}",
            file=path,
            hint="export again, to another directory (--to)",
        ) from error


def _progress(found: dict[str, Any]) -> Progress:
    last = found["lastRecord"]
    return Progress(
        str(found["store"]),
        int(found["startCommitLogOffset"]),
        int(found["endCommitLogOffset"]),
        LastRecord(**last) if last is not None else None,
    )
