"""Messages of a part one by one, as the contract's objects: for what is not made of columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from rmqtool.formats.commit_log import Message, decode_record
from rmqtool.formats.message_json import message_json
from rmqtool.scan.reading import Damage, Part


class Row(NamedTuple):
    """A Message object, and the damage of a body that does not inflate."""

    fields: dict[str, Any]
    damage: Damage | None


def iter_rows(part: Part) -> Iterator[Row]:
    """Yield the messages of a part."""
    for row, at in enumerate(part.records.file_offsets.tolist()):
        message = decode_record(part.records.data.data, at)
        assert isinstance(message, Message), f"columns hold whole messages only, not {message}"
        fields, flaw = message_json(message)
        yield Row(fields, None if flaw is None else part.body_damage(row, flaw))
