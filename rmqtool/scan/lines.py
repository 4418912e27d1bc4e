"""Messages as the lines of JSON that the contract gives them, damage among them in its place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rmqtool.bulk.bodies import Bounds
from rmqtool.bulk.jsonl import Lines, iter_json_lines
from rmqtool.formats.layout import Buffer
from rmqtool.formats.message_json import encode_line
from rmqtool.scan.covering import reader_of
from rmqtool.scan.pool import Write
from rmqtool.scan.queue_units import QueueFiles
from rmqtool.scan.ranges import Answered
from rmqtool.scan.reading import Damage, Part, Range
from rmqtool.scan.selection import Selection

# Lines are three times as large as small messages, and making them takes some times that.
_BOUNDS = Bounds(most_rows=8192, most_bytes=3 << 20)


class Text(NamedTuple):
    """Whole lines, how many of them are messages, and the damages among them."""

    data: Buffer
    messages: int
    damages: list[Damage]


def damage_text(damage: Damage) -> Text:
    """Return the line of a damage."""
    return Text(_line_of(damage), 0, [damage])


def end_of(part: Part) -> int:
    """Return where in the log the last message of a part ends."""
    records = part.records
    return int((records.column("physical_offset") + records.column("total_size")).max(initial=0))


def iter_texts(part: Part) -> Iterator[Text]:
    """Yield the lines of the messages of a part; behind a body that does not inflate stands its damage."""
    for lines in iter_json_lines(part.records, _BOUNDS):
        damages = [part.body_damage(lines.first_row + row, flaw) for row, flaw in lines.flaws]
        messages = len(lines.offsets) - 1
        if not damages:
            yield Text(lines.text.data, messages, [])
        else:
            yield Text(b"".join(_spliced(lines, damages)), messages, damages)


def _spliced(lines: Lines, damages: list[Damage]) -> Iterator[bytes]:
    at = 0
    for (row, _), damage in zip(lines.flaws, damages, strict=True):
        behind = int(lines.offsets[row + 1])
        yield lines.text[at:behind].tobytes()
        yield _line_of(damage)
        at = behind
    yield lines.text[at:].tobytes()


def _line_of(damage: Damage) -> bytes:
    return encode_line(damage.as_json()).encode("utf-8", "backslashreplace") + b"\n"


class Lined(NamedTuple):
    """What was written of a range: how many messages, which damages, and where in the log the last message ends."""

    messages: int
    damages: list[Damage]
    end: int


@dataclass(frozen=True)
class LineWork:
    """Reads ranges as lines; what it finds is ``Lined``."""

    selection: Selection
    queues: Sequence[QueueFiles]

    def __call__(self, asked: Range, write: Write) -> Answered:
        """Write the lines of a range."""
        reader = reader_of(asked, self.selection, self.queues)
        messages, damages, end = 0, [], 0
        for found in reader.parts():
            if isinstance(found, Part):
                end = max(end, end_of(found))
            for text in iter_texts(found) if isinstance(found, Part) else [damage_text(found)]:
                write(text.data)
                messages += text.messages
                damages += text.damages
        return Answered(reader.began, reader.reached, reader.left_over, Lined(messages, damages, end))
