"""A disk that keeps a log of its writes: a file served by FUSE, for a loop device.

The kernel has targets that do this (dm-log-writes), where it was built with them; this needs only FUSE. The file system
under test writes to the loop device, the device to the file, and a process of ours answers: it notes each write and
each flush, in their order. From that the images can be made that a power cut may leave, see ``iter_images``.

The numbers are those of the protocol in the kernel's ``include/uapi/linux/fuse.h``.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import random
import signal
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

SECTOR = 512
_FORGET, _GETATTR, _SETATTR, _OPEN, _READ, _WRITE, _STATFS, _RELEASE, _FSYNC = 2, 3, 4, 14, 15, 16, 17, 18, 20
_FLUSH, _INIT, _INTERRUPT, _DESTROY, _BATCH_FORGET = 25, 26, 36, 38, 42
_UNANSWERED = (_FORGET, _INTERRUPT, _BATCH_FORGET)
_DONE = (_RELEASE, _FSYNC, _FLUSH, _DESTROY)
_REQUEST, _ANSWER = struct.Struct("<IIQQIIII"), struct.Struct("<IiQ")
_WRITTEN = struct.Struct("<QQIIQII")
_LARGEST = 1 << 17
_BIG_WRITES = 1 << 5
_NOSUID_NODEV = 2 | 4
# Of an entry in the log: offset and length; a flush has the length 0.
_ENTRY = struct.Struct("<QQ")


class Entry(NamedTuple):
    """A write, or a flush if there are no bytes; and where the log ends after it."""

    offset: int
    data: bytes
    log_end: int


class LoggedDisk:
    """An image as a file whose writes are logged, while the context lasts."""

    def __init__(self, image: Path, place: Path, log: Path) -> None:
        self.file, self._image, self._log = place, image, log
        self._server = 0

    def __enter__(self) -> LoggedDisk:
        self.file.touch()
        self._log.write_bytes(b"")
        device = os.open("/dev/fuse", os.O_RDWR)
        libc = ctypes.CDLL(None, use_errno=True)
        given = f"fd={device},rootmode=100600,user_id=0,group_id=0".encode()
        if libc.mount(b"logged", os.fsencode(self.file), b"fuse", _NOSUID_NODEV, given):
            raise OSError(ctypes.get_errno(), "the file cannot be mounted")
        self._server = os.fork()
        if not self._server:
            _serve(device, self._image, self._log)
        os.close(device)
        return self

    def __exit__(self, *_failure: object) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.umount2(os.fsencode(self.file), 0)
        os.kill(self._server, signal.SIGKILL)
        os.waitpid(self._server, 0)

    @property
    def log_end(self) -> int:
        """Where the log ends now."""
        return self._log.stat().st_size

    def entries(self) -> list[Entry]:
        """Return what was written and flushed until now."""
        found, data, at = [], self._log.read_bytes(), 0
        while at + _ENTRY.size <= len(data):
            offset, length = _ENTRY.unpack_from(data, at)
            at += _ENTRY.size + length
            if at > len(data):
                break  # it is being written
            found.append(Entry(offset, data[at - length : at], at))
        return found


def _serve(device: int, image: Path, log: Path) -> NoReturn:
    """Answer the kernel until the file is unmounted, and end this process."""
    try:
        disk = bytearray(image.read_bytes())
        written = os.open(log, os.O_WRONLY | os.O_APPEND)
        while True:
            request = os.read(device, _LARGEST + mmap.PAGESIZE)
            _, code, number, *_ = _REQUEST.unpack_from(request)
            if code in _UNANSWERED:
                continue
            failed, answer = _answer(code, memoryview(request)[_REQUEST.size :], disk, written)
            os.write(device, _ANSWER.pack(_ANSWER.size + len(answer), -failed, number) + answer)
    finally:
        os._exit(0)


def _answer(code: int, given: memoryview, disk: bytearray, log: int) -> tuple[int, bytes]:
    """Return an error number, or 0, and the answer to a request."""
    if code == _INIT:
        _, _, readahead = struct.unpack_from("<III", given)
        return 0, struct.pack("<IIIIHHII32x", 7, 31, readahead, _BIG_WRITES, 16, 12, _LARGEST, 1)
    if code in (_GETATTR, _SETATTR):
        attributes = struct.pack("<6Q10I", 1, len(disk), len(disk) // SECTOR, *[0] * 6, 0o100600, 1, 0, 0, 0, 4096, 0)
        return 0, struct.pack("<QII", 1, 0, 0) + attributes
    if code == _OPEN:
        return 0, bytes(16)
    if code == _READ:
        _, offset, size = struct.unpack_from("<QQI", given)
        return 0, bytes(disk[offset : offset + size])
    if code == _WRITE:
        _, offset, size, *_ = _WRITTEN.unpack_from(given)
        data = given[_WRITTEN.size :][:size]
        disk[offset : offset + size] = data
        os.write(log, _ENTRY.pack(offset, size) + bytes(data))
        return 0, struct.pack("<II", size, 0)
    if code == _FSYNC:
        os.write(log, _ENTRY.pack(0, 0))
    return (0, b"") if code in _DONE else (errno.ENOSYS, b"")


class Image(NamedTuple):
    """What is on the disk after a power cut: the place of the cut in the log, in words how, and the writes to do."""

    log_end: int
    word: str
    writes: Sequence[tuple[int, bytes]]


def iter_images(entries: Sequence[Entry], first: int, count: int, chance: random.Random) -> Iterator[Image]:
    """Yield images that a power cut may leave, each after a random entry from the ``first`` on.

    What was written before the last flush is there. Of the writes since any may be lost or torn at sectors: a disk with
    a cache keeps no order between them.
    """
    for _ in range(count):
        cut = chance.randrange(first, len(entries)) + 1
        flushed = max((number for number, one in enumerate(entries[:cut]) if not one.data), default=-1) + 1
        kept = [(one.offset, one.data) for one in entries[:flushed] if one.data]
        doubt = [one for one in entries[flushed:cut] if one.data]
        word = chance.choice(("all written", "nothing since the flush", "some", "some, torn"))
        if word == "all written":
            kept += [(one.offset, one.data) for one in doubt]
        elif word != "nothing since the flush":
            kept += [_torn(one, chance, is_torn="torn" in word) for one in doubt if chance.random() < 0.5]
        yield Image(entries[cut - 1].log_end, f"cut after write {cut} of {len(entries)}, {word}", kept)


def _torn(one: Entry, chance: random.Random, *, is_torn: bool) -> tuple[int, bytes]:
    sectors = len(one.data) // SECTOR
    if not is_torn or sectors < 2:
        return one.offset, one.data
    at = chance.randrange(1, sectors) * SECTOR
    return (one.offset, one.data[:at]) if chance.random() < 0.5 else (one.offset + at, one.data[at:])
