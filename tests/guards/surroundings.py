"""What a store may stand in: a full disk, one that cannot be written, a lock of another process, files nobody may read.

Real ones where the kernel lets us: a small tmpfs, a read-only mount. Where mounting is not allowed, system calls of
this process fail as they would there; so that both ways are known to work, tests ask for both.
"""

from __future__ import annotations

import builtins
import ctypes
import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

_HOLDER = """
import fcntl, os, sys
descriptor = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def held_lock(root: Path) -> Iterator[None]:
    """Let another process hold the first byte of the store's lock file, as a broker does for as long as it lives."""
    with subprocess.Popen(
        [sys.executable, "-S", "-c", _HOLDER, str(root / "lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "held\n"
            yield
        finally:
            process.stdin.close()


@cache
def can_mount() -> bool:
    """Return whether file systems can be mounted here."""
    if os.geteuid() != 0 or shutil.which("mount") is None or shutil.which("umount") is None:
        return False
    import tempfile

    with tempfile.TemporaryDirectory() as place:
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=64k", "none", place], capture_output=True, check=False
        )
        if done.returncode == 0:
            subprocess.run(["umount", place], check=True)
        return done.returncode == 0


@contextmanager
def mounted(place: Path, *words: str) -> Iterator[Path]:
    """Mount something at ``place`` for a while."""
    place.mkdir(exist_ok=True)
    subprocess.run(["mount", *words, str(place)], check=True, capture_output=True)
    try:
        yield place
    finally:
        # Lazily: what still has a file open there must not keep the mount from going.
        subprocess.run(["umount", "-l", str(place)], check=True)


@contextmanager
def full_tmpfs(parent: Path, fill: Callable[[Path], Path], megabytes: int) -> Iterator[Path]:
    """Give what ``fill`` makes on a small file system that has not a free block left."""
    with mounted(parent / "small", "-t", "tmpfs", "-o", f"size={megabytes}m", "none") as disk:
        root = fill(disk)
        with (disk / "filler").open("wb", buffering=0) as filler:
            try:
                while filler.write(bytes(4096)):
                    pass
            except OSError as error:
                assert error.errno == errno.ENOSPC  # noqa: PT017  (any other failure is no full disk)
        yield root


@contextmanager
def read_only_mount(root: Path) -> Iterator[Path]:
    """Mount the directory that the store at ``root`` is in over itself, read-only."""
    with mounted(root.parent, "--bind", str(root.parent)) as place:
        subprocess.run(["mount", "-o", "remount,ro,bind", str(place)], check=True)
        yield root


def _fails(number: int) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> Any:
        raise OSError(number, os.strerror(number))

    return fail


_MAKING = ("mkdir", "link", "symlink", "mknod", "mkfifo")
_CHANGING = (
    "unlink",
    "rmdir",
    "rename",
    "replace",
    "chmod",
    "fchmod",
    "chown",
    "fchown",
    "utime",
    "truncate",
    "remove",
)
_WRITING = ("pwrite", "pwritev", "write", "writev", "ftruncate", "posix_fallocate", "sendfile", "copy_file_range")


@contextmanager
def failing_calls(root: Path, number: int) -> Iterator[None]:
    """Let every call that would write below ``root``'s directory fail with ``number``: ENOSPC or EROFS.

    On a full disk a file can be removed, renamed and cut; making one and writing into one fails. On a disk that is
    read-only nothing of it works. Calls by descriptor are judged by where the descriptor leads.
    """
    below = str(root.parent.resolve()) + "/"
    names = (*_MAKING, *_WRITING) if number == errno.ENOSPC else (*_MAKING, *_WRITING, *_CHANGING)
    fail = _fails(number)
    open_really, open_as_text = os.open, open

    def place_of(target: object, dir_fd: int | None) -> str:
        if isinstance(target, int):
            return os.readlink(f"/proc/self/fd/{target}")
        path = os.fsdecode(target)  # type: ignore[arg-type]
        above = os.readlink(f"/proc/self/fd/{dir_fd}") if dir_fd is not None else os.getcwd()
        return os.path.normpath(os.path.join(above, path))

    def guarded(name: str) -> Callable[..., Any]:
        really = getattr(os, name)

        def call(target: Any, *words: Any, **named: Any) -> Any:
            dir_fd = named.get("dir_fd", named.get("src_dir_fd"))
            if (place_of(target, dir_fd) + "/").startswith(below):
                return fail()
            return really(target, *words, **named)

        return call

    def opened(path: Any, flags: int, *words: Any, **named: Any) -> int:
        if (place_of(path, named.get("dir_fd")) + "/").startswith(below):
            missing = not os.path.lexists(place_of(path, named.get("dir_fd")))
            if flags & os.O_CREAT and missing and flags & os.O_TMPFILE != os.O_TMPFILE:
                return fail()  # type: ignore[no-any-return]
            if number == errno.EROFS and flags & (os.O_WRONLY | os.O_RDWR):
                return fail()  # type: ignore[no-any-return]
        return open_really(path, flags, *words, **named)

    def opened_as_text(file: Any, mode: str = "r", *words: Any, **named: Any) -> Any:
        if not isinstance(file, int) and set(mode) & set("wax+") and (place_of(file, None) + "/").startswith(below):
            return fail()
        return open_as_text(file, mode, *words, **named)

    with ExitStack() as stack:
        stack.enter_context(patch.object(builtins, "open", opened_as_text))
        for name in names:
            stack.enter_context(patch.object(os, name, guarded(name)))
        stack.enter_context(patch.object(os, "open", opened))
        if number == errno.ENOSPC:
            stack.enter_context(disk_used(1.0))
        yield


@contextmanager
def disk_used(ratio: float) -> Iterator[None]:
    """Let every file system say that so much of it is used."""
    really, really_by_descriptor = os.statvfs, os.fstatvfs

    def with_less(found: os.statvfs_result) -> os.statvfs_result:
        free = int(found.f_blocks * (1 - ratio))
        values = list(found)
        values[3], values[4] = free, free  # f_bfree, f_bavail
        return os.statvfs_result(values)

    with (
        patch.object(os, "statvfs", lambda path: with_less(really(path))),
        patch.object(os, "fstatvfs", lambda descriptor: with_less(really_by_descriptor(descriptor))),
    ):
        yield


@contextmanager
def bad_sector(path: Path, begin: int, end: int) -> Iterator[None]:
    """Let what reads these bytes of a file fail with EIO."""
    wanted = (path.stat().st_dev, path.stat().st_ino)
    pread, preadv = os.pread, os.preadv

    def touch(descriptor: int, at: int, length: int) -> None:
        found = os.fstat(descriptor)
        if (found.st_dev, found.st_ino) == wanted and at < end and begin < at + length:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def read(descriptor: int, length: int, at: int) -> bytes:
        touch(descriptor, at, length)
        return pread(descriptor, length, at)

    def read_into(descriptor: int, buffers: Any, at: int, flags: int = 0) -> int:
        touch(descriptor, at, sum(memoryview(buffer).nbytes for buffer in buffers))
        return preadv(descriptor, buffers, at, flags)

    with patch.object(os, "pread", read), patch.object(os, "preadv", read_into):
        yield


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Sets(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


_VERSION_3 = 0x20080522
_OVERRIDES = (1 << 1) | (1 << 2)  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH


@contextmanager
def without_overrides() -> Iterator[None]:
    """Let permissions count for root too: lay down, for this thread, the capabilities that read everything."""
    if os.geteuid() != 0:
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)
    header, sets = _Header(_VERSION_3, 0), (_Sets * 2)()

    def call(function: Any) -> None:
        if function(ctypes.byref(header), sets) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    call(libc.capget)
    before = sets[0].effective
    sets[0].effective = before & ~_OVERRIDES
    call(libc.capset)
    try:
        yield
    finally:
        sets[0].effective = before
        call(libc.capset)


@contextmanager
def unreadable(*paths: Path) -> Iterator[None]:
    """Let nobody read these files or directories, not even root."""
    modes = {path: path.stat().st_mode for path in paths}
    for path in paths:
        path.chmod(0)
    try:
        with without_overrides():
            yield
    finally:
        for path, mode in modes.items():
            if path.exists():
                path.chmod(mode & 0o7777)
