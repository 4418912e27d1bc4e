"""Directories that appear, or change, as a whole or not at all, even if the process is killed.

A new directory (``staged``) is written in a directory of its own beside its place, made durable there, and renamed. The
next command for the same place removes what a killed one has left; a lock there tells whether it is still running.

A directory that changes (``held_place``, ``clone``, ``publish``) is cloned beside itself, and the two exchange their
names. The clone costs nothing: its files are second names of the old ones, and each is copied before its first write.
So nothing changes in the old directory, and at any time the name is that of one complete directory or the other.

A directory that grows (``Renames``) gets its new files by renames that are announced first, so that the next process
finishes those of a killed one.

``new_directory`` fills a directory in place, and removes everything again if that fails.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from shlex import quote
from typing import BinaryIO, Final

from rmqtool.errors import Refused, RmqtoolError, StoreError, StoreInUse, WriteFailed
from rmqtool.files.failures import os_error, write_failed
from rmqtool.files.filesystem import Attributes, Closable, Kind, Status, iter_tree
from rmqtool.files.free_space import require_free_space
from rmqtool.files.lock import close_descriptor
from rmqtool.files.object_storage import is_object_address
from rmqtool.files.posix import PosixReadableFileSystem
from rmqtool.files.posix_write import PosixWritableFile, PosixWritableFileSystem

NEW = "new"
ANNOUNCED = "pending.json"
# Arguments of renameat2(2), which Python does not offer.
_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2
# A leftover of a killed run is removed when it is this old, in seconds.
_LEFTOVER_AGE = 86_400
_CHUNK = 1 << 18
_ZEROS = bytes(_CHUNK)
# The unit of st_blocks.
_DISK_BLOCK = 512


def place_beside(directory: str) -> str:
    """Return the directory beside another one in which its replacement is prepared."""
    parent, name = os.path.split(os.path.realpath(directory))
    return os.path.join(parent, f".{name}.rmqtool-write")


@contextmanager
def held_place(directory: str) -> Iterator[str]:
    """Give the place beside a directory, locked: other processes wait for it. It is removed when it is empty."""
    place = place_beside(directory)
    with ExitStack() as stack:
        with _failing("create", place):
            stack.callback(os.close, lock_directory(place))
        try:
            _clear(place)
            yield place
        finally:
            shutil.rmtree(os.path.join(place, NEW), ignore_errors=True)
            with suppress(OSError):
                os.rmdir(place)


def lock_directory(path: str, busy: StoreInUse | None = None) -> int:
    """Create a directory if it is missing, and lock it; return its descriptor, which holds the lock.

    If another process has the lock, ``busy`` is raised, or without it this one waits.
    """
    while True:
        try:
            os.makedirs(path, exist_ok=True)
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # the process before removed it just now
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if busy is None else fcntl.LOCK_NB))
        except BlockingIOError as error:
            os.close(descriptor)
            raise busy or error from None
        if os.fstat(descriptor).st_nlink:
            return descriptor
        os.close(descriptor)


def _clear(place: str) -> None:
    """Remove the leftovers of killed processes."""
    shutil.rmtree(os.path.join(place, NEW), ignore_errors=True)
    for entry in os.scandir(place):
        with suppress(OSError):
            if time.time() - entry.stat().st_mtime > _LEFTOVER_AGE:
                shutil.rmtree(entry.path, ignore_errors=True)


def require_replaceable(directory: str) -> None:
    """Raise Refused for a directory that cannot exchange its name."""
    if os.path.ismount(directory):
        raise Refused(
            f"{directory} is a mount point, which cannot be replaced as a whole",
            file=directory,
            hint="write to a new store in another directory",
        )


def clone(source: str, target: str) -> None:
    """Create ``target`` with the same content as ``source``, as hard links."""
    with PosixReadableFileSystem(source) as files, _failing("clone", source):
        os.mkdir(target)
        for path, kind in iter_tree(files):
            if kind is Kind.DIRECTORY:
                os.mkdir(os.path.join(target, path))
            elif kind is Kind.FILE:
                os.link(os.path.join(source, path), os.path.join(target, path), follow_symlinks=False)
            else:
                shown = os.path.join(source, path)
                hint = "write to a new store in another directory"
                raise Refused(
                    f"{shown} is a {kind}: a directory with one cannot be replaced as a whole", file=shown, hint=hint
                )
        directories = [path for path, kind in iter_tree(files) if kind is Kind.DIRECTORY]
        with PosixWritableFileSystem(target) as made:
            for path in ("", *directories):
                made.set_attributes(path, Attributes.of(files.stat(path)))


class ClonedFileSystem(PosixWritableFileSystem):
    """The files of a clone. The lock file is the same file as the original's, so its lock is held already."""

    def open_write(self, path: str) -> PosixWritableFile:
        self._make_own(path)
        return super().open_write(path)

    def set_attributes(self, path: str, attributes: Attributes) -> None:
        self._make_own(path)
        super().set_attributes(path, attributes)

    def lock(self, path: str = "lock") -> Closable:  # noqa: ARG002
        return _LockOfOriginal()

    def _make_own(self, path: str) -> None:
        status = self.find_stat(path)
        if status is not None and status.kind is Kind.FILE and status.links > 1:
            self._copy(path, status)

    def _copy(self, path: str, status: Status) -> None:
        """Copy a file. Zeros are not written, but reserved space is reserved again."""
        aside = f"{path}.own"
        with self.open_read(path) as old, self.create(aside, status.size if self._is_reserved(path) else 0) as new:
            new.truncate(status.size)
            for extent in old.iter_data(0, status.size):
                for file_offset in range(extent.file_offset, extent.end, _CHUNK):
                    data = old.pread_exactly(min(_CHUNK, extent.end - file_offset), file_offset)
                    if data != _ZEROS[: len(data)]:
                        new.pwrite(data, file_offset)
            super().set_attributes(aside, Attributes.of(status))
        self.rename(aside, path)

    def _is_reserved(self, path: str) -> bool:
        found = os.stat(os.path.join(self.root, path))
        return found.st_blocks * _DISK_BLOCK >= found.st_size


class _LockOfOriginal(Closable):
    """A lock that the original's owner holds."""

    def close(self) -> None:
        pass


def make_durable(directory: str) -> None:
    """Make all names below a directory durable."""
    with PosixWritableFileSystem(directory) as files:
        for path in ("", *(path for path, kind in iter_tree(files) if kind is Kind.DIRECTORY)):
            files.fsync_dir(path)


def publish(new: str, directory: str) -> None:
    """Give the prepared directory the name of ``directory`` in one step; the old one gets the other name."""
    with _failing("replace", directory):
        if os.path.isdir(directory) and os.listdir(directory):
            _exchange(new, directory)
        else:
            os.rename(new, directory)
        sync(os.path.dirname(directory))


def _exchange(one: str, other: str) -> None:
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is None:
        raise _unable(other)
    if call(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE):
        error = os_error(ctypes.get_errno())
        raise _unable(other) from error


def _unable(directory: str) -> Refused:
    return Refused(
        f"the file system of {directory} cannot exchange two directories, so nothing was changed",
        file=directory,
        hint="write to a new store in another directory",
    )


@contextmanager
def _failing(operation: str, directory: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise write_failed(operation, directory, error) from error


@contextmanager
def new_directory(path: str) -> Iterator[None]:
    """Create ``path`` if it does not exist; if filling it fails, remove everything that was put there.

    Then the same command can be typed again, and no half store is left.
    """
    was_there = os.path.isdir(path)
    try:
        os.makedirs(path, exist_ok=True)
        before = set(os.listdir(path))
    except OSError as error:
        raise WriteFailed(
            f"{path} cannot be made: {error.strerror}", file=path, hint="name a directory that you can write to"
        ) from error
    try:
        yield
    except (RmqtoolError, KeyboardInterrupt):
        for name in set(os.listdir(path)) - before:
            _remove_all(os.path.join(path, name))
        if not was_there:
            os.rmdir(path)
        raise
    # The content is durable: sync its name, too.
    try:
        sync(os.path.dirname(os.path.realpath(path)))
    except PermissionError:
        # A directory in which names may be made or used, but not listed, cannot be opened to sync it.
        if not was_there:
            os.sync()


def _remove_all(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.unlink(path)


# From one path to another.
Move = tuple[str, str]


class Renames:
    """Renames that all happen, announced in a directory beside what changes before the first of them.

    The paths are relative to the parent of that directory.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._parent = os.path.dirname(directory)
        self._announced = os.path.join(directory, ANNOUNCED)

    @property
    def are_pending(self) -> bool:
        """Whether renames are announced and not finished."""
        return os.path.exists(self._announced)

    def announce(self, moves: Iterable[Move]) -> None:
        """Make the list of the renames durable, after the names that it speaks of."""
        listed = list(moves)
        sources = (os.path.join(self._parent, source) for source, _ in listed)
        for directory in sorted({self._directory, *_above(sources, self._directory)}):
            sync(directory)
        write_whole(self._announced, json.dumps(listed).encode("utf-8", "surrogateescape"))
        sync(self._directory)
        sync(os.path.realpath(self._parent))

    def finish(self) -> None:
        """Do the announced renames that are not done yet, and make them durable.

        What was there goes first, and what is new comes then. Each of the two is durable before something builds on it,
        so that a second try finds the old where it was or where it went, also on a disk that keeps no order of names.
        """
        moves = self._read()
        if not moves:
            return
        for is_new in (False, True):
            self._rename([one for one in moves if self._is_within(one[0]) is is_new])
        os.unlink(self._announced)
        # Before what the list speaks of is removed: the next process would do the renames again.
        sync(self._directory)

    def _is_within(self, path: str) -> bool:
        return path.startswith(f"{self._directory}{os.sep}")

    def _rename(self, moves: Sequence[Move]) -> None:
        """Do the renames that are not done yet, each to a directory that is there durably; make them durable."""
        paths = [path for _, path in moves]
        for path in paths:
            os.makedirs(os.path.dirname(path), exist_ok=True)
        _sync_all({self._parent, *_above(paths, self._parent)})
        for source, path in moves:
            if os.path.lexists(source) and not os.path.lexists(path):
                os.rename(source, path)
        _sync_all({os.path.dirname(path) for move in moves for path in move})

    def undo(self, keep: str) -> None:
        """Undo the renames that were done; those that cannot be undone stay announced.

        Directories that are empty then are removed, but for ``keep``.
        """
        with suppress(OSError):
            moves = self._read()
            for source, path in reversed(moves):
                if os.path.lexists(path) and not os.path.lexists(source):
                    move(path, source)
                    if os.path.dirname(path) != keep:
                        with suppress(OSError):
                            os.rmdir(os.path.dirname(path))
            _sync_all({os.path.dirname(path) for move in moves for path in move})
            os.unlink(self._announced)
            sync(self._directory)

    def _read(self) -> list[Move]:
        if not self.are_pending:
            return []
        with open(self._announced, "rb") as file:
            data = file.read()
        try:
            moves = json.loads(data.decode("utf-8", "surrogateescape"))
            return [(self._below(source), self._below(path)) for source, path in moves]
        except (ValueError, TypeError, RecursionError) as error:
            raise StoreError(
                f"{self._announced} is damaged: it does not tell which files a command that was stopped would rename",
                file=self._announced,
                hint="restore it from a backup, or write to another directory",
            ) from error

    def _below(self, path: str) -> str:
        """Return where a path of the list is. Raises ValueError for one that leaves the parent."""
        found = os.path.normpath(os.path.join(self._parent, _as_path(path)))
        if not found.startswith(os.path.join(self._parent, "")):
            raise ValueError(path)
        return found


def _sync_all(directories: Iterable[str]) -> None:
    """Sync those directories that are there."""
    for directory in sorted(filter(os.path.isdir, directories)):
        sync(os.path.realpath(directory))


def _as_path(found: str) -> str:
    """Return a path that was read from a file. Raises ValueError or TypeError for what no file system has."""
    if b"\0" in os.fsencode(found):
        raise ValueError(found)
    return found


def _above(paths: Iterable[str], top: str) -> set[str]:
    """Return the directories above the paths that are below ``top``."""
    found = set()
    for path in paths:
        above = os.path.dirname(path)
        while above.startswith(os.path.join(top, "")) and above != top:
            found.add(above)
            above = os.path.dirname(above)
    return found


def move(source: str, path: str) -> None:
    """Rename a file or directory to a path whose directories may be missing."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    os.rename(source, path)


def write_whole(path: str, data: bytes) -> None:
    """Write a small file: once its name exists, its content is complete."""
    new = f"{path}.new"
    with open(new, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.rename(new, path)


class JobDirectory:
    """The directory beside another one where one job keeps its files. A plain value that other processes can use."""

    def __init__(self, beside: str, job: str) -> None:
        self.beside = os.path.realpath(beside)
        self.directory = os.path.join(place_beside(beside), f"job-{job}")

    @contextmanager
    def new_file(self, name: str) -> Iterator[str]:
        """Give the path of a new file; it is removed again on an error."""
        path = os.path.join(self.directory, name)
        try:
            self._make()
            yield path
        except BaseException as error:
            with suppress(OSError):
                os.unlink(path)
            self._remove_empty()
            if isinstance(error, OSError):
                raise write_failed("write to", path, error) from error
            raise

    def remove(self) -> None:
        """Remove the files of the job: it is done, or given up."""
        shutil.rmtree(self.directory, ignore_errors=True)
        self._remove_empty()

    def _make(self) -> None:
        while True:
            try:
                os.makedirs(self.directory, exist_ok=True)
            except FileNotFoundError:
                continue  # another job found the directory above empty and removed it
            return

    def _remove_empty(self) -> None:
        """Remove the directories if they are empty. Each job tries: the last one, even a late task, leaves nothing."""
        with suppress(OSError):
            os.rmdir(self.directory)
        with suppress(OSError):
            os.rmdir(os.path.dirname(self.directory))


_STORE, _LOST = "store", "lost-and-found"
_RUNNING, _COMPANIONS = "running", "companions.json"
_READ_BY_OTHERS = 0o044


class StagedCopy:
    """The directory in which one copy is made. Use ``staged``."""

    def __init__(self, target: str) -> None:
        self.target = os.path.abspath(target)
        parent, name = os.path.split(self.target)
        self.parent = parent
        self.directory = os.path.join(parent, f".{name}.rmqtool-copy")
        self.store = os.path.join(self.directory, _STORE)
        self.lost = os.path.join(self.directory, _LOST)
        self.lost_target = f"{self.target}.{_LOST}"
        self._companions: list[tuple[str, str, int, int]] = []
        self._lock: BinaryIO | None = None

    def require_free(self) -> None:
        """Refuse a target that exists and is not empty."""
        for path in (self.target, self.lost_target):
            is_empty = os.path.isdir(path) and not os.path.islink(path) and not os.listdir(path)
            if os.path.lexists(path) and not is_empty:
                raise Refused(f"{path} already exists; it was left unchanged", file=path, hint="name another directory")
        if not os.path.isdir(self.parent):
            raise Refused(f"{self.parent} is not a directory", file=self.parent, hint=f"mkdir -p {self.parent}")

    def require_free_space(self, size: int) -> None:
        """Refuse a copy that will not fit."""
        hint = "name a target on a larger disk, or select less (-t, -b, -e)"
        with PosixReadableFileSystem(self.parent) as files:
            require_free_space(files, size, "the copy needs up to", hint)

    def clear_dead(self) -> None:
        """Remove what a killed copy left."""
        if os.path.lexists(self.directory):
            with closing(self._locked()):
                self.clear()

    def prepare(self, like: str) -> None:
        """Create the directories, with owner, group and mode of the store ``like``."""
        # Objects have no mode; the directory that the copy is made in has one.
        wanted = os.stat(self.parent if "://" in like and is_object_address(like) else like)
        os.mkdir(self.directory, 0o700)
        try:
            self._lock = self._locked()
            os.mkdir(self.store)
            # The copy must not be more readable than the store. Files in it take their mode from the directory.
            os.chmod(self.store, wanted.st_mode & 0o777 & ~(_umask() & _READ_BY_OTHERS) | 0o700)
            _give(self.store, wanted)
        except BaseException:
            self.clear()
            raise

    def _locked(self) -> BinaryIO:
        """Take the lock of a running copy; the kernel releases it if the copy is killed."""
        file = open(os.path.join(self.directory, _RUNNING), "ab")  # noqa: SIM115  (the caller closes it)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise StoreInUse(
                f"another rmqtool is copying to {self.target}",
                file=self.directory,
                hint="wait for it, or name another directory",
            ) from None
        return file

    def accompany(self, path: str, place: str) -> None:
        """Rename ``path`` to ``place`` together with the copy.

        It is recorded first, so that a failed copy leaves neither.
        """
        found = os.lstat(path)
        self._companions.append((path, place, found.st_dev, found.st_ino))
        write_whole(os.path.join(self.directory, _COMPANIONS), json.dumps(self._companions).encode())
        sync(self.directory)

    def appear(self) -> None:
        """Give the copy its name, after everything in it is durable and its companions have their names."""
        if os.path.isdir(self.lost):
            wanted = os.stat(self.store)
            os.chmod(self.lost, wanted.st_mode & 0o777)
            _give(self.lost, wanted)
            _sync_tree(self.lost)
            self.accompany(self.lost, self.lost_target)
        _sync_tree(self.store)
        for path, place, *_ in self._companions:
            os.rename(path, place)
            sync(os.path.dirname(place))
        os.rename(self.store, self.target)
        sync(self.parent)

    def clear(self) -> None:
        """Remove the directory. Companions of the copy are removed too, unless the copy has its name."""
        is_there = not os.path.lexists(self.store)
        for path, place, device, inode in self._noted():
            for one in (path,) if is_there else (path, place):
                with suppress(FileNotFoundError):
                    found = os.lstat(one)
                    if (found.st_dev, found.st_ino) == (device, inode):
                        shutil.rmtree(one) if os.path.isdir(one) else os.unlink(one)
        shutil.rmtree(self.directory, ignore_errors=True)

    def _noted(self) -> list[tuple[str, str, int, int]]:
        noted = os.path.join(self.directory, _COMPANIONS)
        try:
            with open(noted, encoding="utf-8") as file:
                rows = json.load(file)
            return [(_as_path(one), _as_path(place), int(device), int(inode)) for one, place, device, inode in rows]
        except FileNotFoundError:
            return []
        except (ValueError, TypeError, RecursionError) as error:
            raise StoreError(
                f"{noted} is damaged: it does not tell which files came with a copy that was stopped",
                file=noted,
                hint=f"rm -r {quote(self.directory)}, then copy again",
            ) from error

    def close(self) -> None:
        """Release the lock."""
        if self._lock is not None:
            self._lock.close()


def require_outside(path: str, sources: Iterable[str]) -> None:
    """Refuse a path within a source: sources are only read, and a broker does not start with foreign files."""
    for source in sources:
        real = os.path.realpath(source)
        if os.path.commonpath([real, os.path.realpath(path)]) == real:
            raise Refused(
                f"{path} is in {source}, which is only read; nothing was copied",
                file=path,
                hint="name a directory next to it",
            )


@contextmanager
def staged(target: str, like: str, size: int) -> Iterator[StagedCopy]:
    """Prepare a copy of about ``size`` bytes; it appears at the end unless the block fails."""
    with closing(StagedCopy(target)) as staging:
        try:
            staging.clear_dead()
            staging.require_free()
            staging.require_free_space(size)
            staging.prepare(like)
        except PermissionError as error:
            hint = "name a directory that you can write to"
            raise WriteFailed(f"{target} cannot be made: {error.strerror}", file=target, hint=hint) from error
        except OSError as error:
            raise write_failed("prepare", staging.directory, error) from error
        try:
            yield staging
            try:
                staging.appear()
            except OSError as error:
                raise write_failed("complete", staging.target, error) from error
        except BaseException as error:
            staging.clear()
            if isinstance(error, WriteFailed):
                error.hint = error.hint or "the copy was removed; fix the cause, then run it again"
            raise
        try:
            staging.clear()
        except KeyboardInterrupt:
            staging.clear()
            raise


def _give(path: str, wanted: os.stat_result) -> None:
    """Set owner and group of a directory. Only root may; others keep their own."""
    with suppress(PermissionError):
        os.chown(path, wanted.st_uid, wanted.st_gid)


def _sync_tree(root: str) -> None:
    for directory, _, names in os.walk(root):
        for name in names:
            sync(os.path.join(directory, name))
        sync(directory)


def sync(path: str) -> None:
    """Force a file or directory to disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        close_descriptor(descriptor)


def _umask() -> int:
    """Return the umask of the process, which can only be read by setting it."""
    umask = os.umask(0o077)
    os.umask(umask)
    return umask
