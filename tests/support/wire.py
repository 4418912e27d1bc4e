"""Recorded traffic of unmodified clients with real brokers: see ``fixtures/wire/README.md``."""

from __future__ import annotations

import json
import lzma
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from rmqtool.remoting.command import ANSWER, Language, RemotingCommand, SerializeType
from rmqtool.remoting.frames import decode_frame
from rmqtool.remoting.headers import Row
from rmqtool.remoting.requests import REQUESTS

FOLDER = Path(__file__).resolve().parents[2] / "fixtures" / "wire"
_NAMES = {language.name: language for language in Language}


# Fields that belong to no request: hooks of clients add them to any.
HOOKS = frozenset({"ReqT", "_UNIQUE_KEY_QUERY", "AccessKey", "Signature", "OnsChannel", "SecurityToken"})


class Decoded(NamedTuple):
    """A frame of ``decoded.jsonl.xz``: what it said, and how long its parts were."""

    journey: str
    link: str
    connection: int
    from_client: bool
    code: int
    opaque: int
    flag: int
    language: str | int
    version: int
    serialize_type: int
    ext: dict[str, str]
    header_length: int
    body_length: int
    remark: str | None
    body: str | None

    def command(self) -> RemotingCommand:
        """Return the command, as far as the recording has it; a header without fields has none here."""
        language = _NAMES[self.language] if isinstance(self.language, str) else Language(self.language)
        kind = SerializeType(self.serialize_type)
        ext = self.ext or None
        return RemotingCommand(self.code, ext, b"", self.opaque, self.flag, language, self.version, self.remark, kind)


def decoded_frames() -> list[Decoded]:
    """Return every frame, in the order of the recordings."""
    with lzma.open(FOLDER / "decoded.jsonl.xz", "rt", encoding="utf-8") as file:
        return [Decoded(*json.loads(line)) for line in file]


class Raw(NamedTuple):
    """A frame of ``raw.jsonl.xz``: its bytes, and who sent it to whom."""

    broker: str
    client: str
    link: str
    connection: int
    from_client: bool
    data: bytes

    @property
    def is_signed(self) -> bool:
        """Whether the client had the key ``SECRET_KEY``."""
        return self.client.endswith("+acl") or self.client == "node"


SECRET_KEY = "12345678"


def raw_frames() -> list[Raw]:
    """Return every frame, in the order of the recordings."""
    with lzma.open(FOLDER / "raw.jsonl.xz", "rt", encoding="utf-8") as file:
        rows = map(json.loads, file)
        return [Raw(*row[:4], bool(row[4]), b64decode(row[5])) for row in rows]


class Told(NamedTuple):
    """A recorded frame as a command, and the row of the request that it is or answers."""

    raw: Raw
    command: RemotingCommand
    row: Row | None


def told(frames: list[Raw]) -> Iterator[Told]:
    """Yield each frame with its command and row."""
    asked: dict[Any, Row | None] = {}
    for raw in frames:
        command = decode_frame(raw.data)
        pair = (raw.broker, raw.client, raw.connection, command.opaque)
        if command.is_answer:
            yield Told(raw, command, asked.get((*pair, not raw.from_client)))
        else:
            row = asked[*pair, raw.from_client] = REQUESTS.get(command.code)
            yield Told(raw, command, row)


def with_rows(frames: list[Decoded]) -> Iterator[tuple[Decoded, Row | None]]:
    """Yield each frame with the row of the table that it, or the request that it answers, has."""
    asked: dict[Any, Row | None] = {}
    for frame in frames:
        pair = (frame.journey, frame.link, frame.connection, frame.opaque)
        if frame.flag & ANSWER:
            yield frame, asked.get((*pair, not frame.from_client))
        else:
            row = asked[*pair, frame.from_client] = REQUESTS.get(frame.code)
            yield frame, row
