"""The frames of replication, declared once. All numbers are big-endian.

Classic, master to slave, and the report of a slave::

    0  8  physical offset of the first byte; in a heartbeat: of the next byte
    8  4  number of bytes that follow; 0 in a heartbeat

    0  8  physical offset: the next byte that the slave wants, and before which it has all

Controller mode begins with a handshake of 16 bytes, and of 20 and 12 for each epoch::

    0  4  1 (handshake)                                0  4  1 (handshake)
    4  2  1: begin with the last file if empty         4  4  12 x number of epochs
    6  2  1: asynchronous learner                      8  8  the master's end
    8  8  broker id of the slave                      16  4  the master's last epoch
                                                      20 12  epoch (4), start offset (8); repeated

Then the master sends, and the slave reports::

    0  4  2 (transfer)                                 0  4  2 (transfer)
    4  4  number of bytes that follow; 0: heartbeat    4  8  physical offset, as in a classic report
    8  8  physical offset of the first byte
   16  4  epoch of the bytes
   20  8  start offset of that epoch
   28  8  confirm offset: what the in-sync set has

Upstream: ``HAConnection.TRANSFER_HEADER_SIZE``, ``AutoSwitchHAConnection``, ``AutoSwitchHAClient``.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from rmqtool.formats.control_texts import EpochEntry

HANDSHAKE, TRANSFER = 1, 2
# A master of any version sends at most this many bytes in a frame: haTransferBatchSize is 32 KiB, and 5.x never sends
# more than a segment.
LARGEST_BODY: Final = 1 << 30

_CHUNK: Final = struct.Struct(">qi")
_REPORT: Final = struct.Struct(">q")
_GREETING: Final = struct.Struct(">ihhq")
_ANSWER: Final = struct.Struct(">iiqi")
_EPOCH: Final = struct.Struct(">iq")
_TRANSFER: Final = struct.Struct(">iiqiqq")
_STATE: Final = struct.Struct(">iq")

CHUNK_SIZE: Final = _CHUNK.size
REPORT_SIZE: Final = _REPORT.size
GREETING_SIZE: Final = _GREETING.size
ANSWER_SIZE: Final = _ANSWER.size
TRANSFER_SIZE: Final = _TRANSFER.size
STATE_SIZE: Final = _STATE.size


class Chunk(NamedTuple):
    """The header of bytes of the log. A heartbeat has no bytes.

    ``epoch`` and ``confirm_offset`` are those of controller mode.
    """

    physical_offset: int
    size: int
    epoch: EpochEntry | None = None
    confirm_offset: int | None = None


class Greeting(NamedTuple):
    """The first frame of a slave in controller mode."""

    broker_id: int
    is_learner: bool
    from_last_file: bool


class Answer(NamedTuple):
    """The master's answer to a greeting: its end and its epochs, ascending."""

    max_offset: int
    last_epoch: int
    epochs: tuple[EpochEntry, ...]


class FrameError(ValueError):
    """Bytes that no master or slave sends."""


def encode_chunk(chunk: Chunk) -> bytes:
    return _CHUNK.pack(chunk.physical_offset, chunk.size)


def decode_chunk(data: bytes | memoryview, at: int = 0) -> Chunk:
    """Return the header at ``at``. Raises FrameError for a size or an offset that no master sends."""
    offset, size = _CHUNK.unpack_from(data, at)
    return Chunk(*_checked(offset, size))


def encode_report(physical_offset: int) -> bytes:
    return _REPORT.pack(physical_offset)


def decode_last_report(data: bytes | bytearray) -> tuple[int | None, int]:
    """Return the last whole report of what arrived, and the bytes that were used. Earlier reports are older news."""
    count = len(data) // REPORT_SIZE
    if not count:
        return None, 0
    return _REPORT.unpack_from(data, (count - 1) * REPORT_SIZE)[0], count * REPORT_SIZE


def encode_greeting(greeting: Greeting) -> bytes:
    return _GREETING.pack(HANDSHAKE, greeting.from_last_file, greeting.is_learner, greeting.broker_id)


def encode_answer(answer: Answer) -> bytes:
    head = _ANSWER.pack(HANDSHAKE, len(answer.epochs) * _EPOCH.size, answer.max_offset, answer.last_epoch)
    return head + b"".join(_EPOCH.pack(*entry) for entry in answer.epochs)


def decode_answer(head: bytes) -> tuple[int, int, int]:
    """Return the size of the epochs that follow, the master's end and its last epoch. Raises FrameError."""
    state, size, max_offset, last_epoch = _ANSWER.unpack(head)
    if state != HANDSHAKE or size < 0 or size % _EPOCH.size or size > LARGEST_BODY:
        raise FrameError(f"an answer to the handshake begins with {state} and {size}")
    return size, max_offset, last_epoch


def decode_epochs(data: bytes) -> tuple[EpochEntry, ...]:
    return tuple(EpochEntry(*entry) for entry in _EPOCH.iter_unpack(data))


def encode_transfer(chunk: Chunk) -> bytes:
    assert chunk.epoch is not None, "a transfer has the epoch of its bytes"
    confirm = -1 if chunk.confirm_offset is None else chunk.confirm_offset
    return _TRANSFER.pack(TRANSFER, chunk.size, chunk.physical_offset, *chunk.epoch, confirm)


def decode_transfer(data: bytes | memoryview, at: int = 0) -> Chunk:
    """Return the header at ``at``. Raises FrameError."""
    state, size, offset, epoch, start, confirm = _TRANSFER.unpack_from(data, at)
    if state != TRANSFER:
        raise FrameError(f"a transfer begins with {state}")
    return Chunk(*_checked(offset, size), EpochEntry(epoch, start), confirm)


def encode_state(physical_offset: int) -> bytes:
    """Return the report of a slave in controller mode."""
    return _STATE.pack(TRANSFER, physical_offset)


def _checked(offset: int, size: int) -> tuple[int, int]:
    if offset < 0 or not 0 <= size <= LARGEST_BODY:
        raise FrameError(f"a frame has {size} bytes of the log at {offset}")
    return offset, size


def consistent_point(ours: Sequence[EpochEntry], our_end: int, theirs: Sequence[EpochEntry], their_end: int) -> int:
    """Return up to where two logs are the same by their epochs; -1 if they have none in common.

    Upstream: ``EpochFileCache.findConsistentPoint``. The end of an epoch is the start of the next one.
    """
    ends = [*(entry.start_offset for entry in ours[1:]), our_end]
    known = dict(zip(theirs, [*(entry.start_offset for entry in theirs[1:]), their_end], strict=True))
    for entry, end in zip(reversed(ours), reversed(ends), strict=True):
        if entry in known:
            return min(end, known[entry])
    return -1
