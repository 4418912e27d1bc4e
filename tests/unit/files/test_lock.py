"""The broker's lock between processes, within one, and against the trap of POSIX locks: a forgotten descriptor."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rmqtool.errors import Exit, ReadFailed, StoreInUse, WriteFailed
from rmqtool.files.filesystem import Attributes, LockState
from rmqtool.files.posix import PosixReadableFileSystem
from rmqtool.files.posix_write import PosixWritableFileSystem
from tests.support.waiting import PATIENCE

# Another process that locks the first byte of the file as a broker does, says so, and holds it until its input ends.
HOLDER = """
import fcntl, os, sys
descriptor = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, int(sys.argv[2]))
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def another_process(lock: Path, start: int = 0) -> Iterator[int]:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(lock), str(start)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "held\n"
            yield process.pid
        finally:
            process.stdin.close()
            process.wait(PATIENCE)


def another_process_may_lock(lock: Path) -> bool:
    """Ask with a lock of its own, not with our code."""
    script = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)"
    answer = subprocess.run([sys.executable, "-c", script, str(lock)], capture_output=True, check=False)
    assert answer.returncode == 0 or b"BlockingIOError" in answer.stderr
    return answer.returncode == 0


@pytest.fixture
def files(tmp_path: Path) -> Iterator[PosixWritableFileSystem]:
    with PosixWritableFileSystem(str(tmp_path)) as opened:
        yield opened


def test_the_lock_is_made_as_a_broker_makes_it(tmp_path: Path, files: PosixWritableFileSystem) -> None:
    with files.lock():
        assert (tmp_path / "lock").read_bytes() == b"lock"
    assert (tmp_path / "lock").exists(), "the file stays, as a broker leaves it"


def test_others_are_kept_out_until_it_is_given_back(tmp_path: Path, files: PosixWritableFileSystem) -> None:
    with files.lock() as lock:
        assert not another_process_may_lock(tmp_path / "lock")
        lock.close()
        assert another_process_may_lock(tmp_path / "lock")
        lock.close()


def test_who_holds_it_is_named_and_nothing_is_changed(tmp_path: Path, files: PosixWritableFileSystem) -> None:
    path = tmp_path / "lock"
    path.write_bytes(b"not yet")
    with another_process(path) as pid:
        before = path.stat()
        with pytest.raises(StoreInUse, match=rf"process {pid} \(python") as caught:
            files.lock()
        assert caught.value.exit_status == Exit.IN_USE
        assert caught.value.file == str(path)
        assert "stop that process first" in (caught.value.hint or "")
        after = path.stat()
        assert (path.read_bytes(), after.st_mtime_ns, after.st_ctime_ns) == (
            b"not yet",
            before.st_mtime_ns,
            before.st_ctime_ns,
        )
        assert files.lock_state() == LockState(held=True, pid=pid)
    with files.lock():
        assert path.read_bytes() == b"lockyet", "as a broker writes: four bytes at the start"


def test_a_lock_that_is_there_is_not_written_again(tmp_path: Path, files: PosixWritableFileSystem) -> None:
    path = tmp_path / "lock"
    path.write_bytes(b"lock")
    os.utime(path, ns=(1, 2))
    with files.lock():
        pass
    assert path.stat().st_mtime_ns == 2


def test_looking_does_not_disturb_and_needs_no_permission_to_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(*_: object) -> None:
        raise AssertionError("looking takes no lock, not for a moment: a broker may start just then")

    path = tmp_path / "lock"
    with PosixReadableFileSystem(str(tmp_path)) as looking:
        assert looking.lock_state() == LockState(held=False), "no file, no lock"
        assert os.listdir(tmp_path) == []
        path.write_bytes(b"lock")
        monkeypatch.setattr(fcntl, "lockf", forbidden)
        monkeypatch.setattr(fcntl, "flock", forbidden)
        assert looking.lock_state() == LockState(held=False)
        with another_process(path) as pid:
            before = path.stat()
            assert looking.lock_state() == LockState(held=True, pid=pid)
            after = path.stat()
        assert (before.st_mtime_ns, before.st_ctime_ns) == (after.st_mtime_ns, after.st_ctime_ns)
        assert str(looking.lock_state()) == "free"


def test_only_the_first_byte_counts(tmp_path: Path, files: PosixWritableFileSystem) -> None:
    with another_process(tmp_path / "lock", start=1):
        assert not files.lock_state().held
        files.lock().close()


def test_a_lock_of_an_open_file_is_seen_though_it_has_no_process(
    tmp_path: Path, files: PosixWritableFileSystem
) -> None:
    script = HOLDER.replace(
        "fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, int(sys.argv[2]))", "lock_open_file()"
    )
    script = (
        "import ctypes\n"
        "class F(ctypes.Structure):\n"
        "    _fields_ = [('a', ctypes.c_short), ('b', ctypes.c_short), ('c', ctypes.c_longlong),"
        " ('d', ctypes.c_longlong), ('e', ctypes.c_int)]\n"
        "def lock_open_file():\n"
        "    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, bytes(F(fcntl.F_WRLCK, 0, 0, 1, 0)))\n"
    ) + script
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        assert files.lock_state() == LockState(held=True, pid=None)
        with pytest.raises(StoreInUse, match="another process"):
            files.lock()
        process.communicate("")


def test_one_process_takes_it_once(tmp_path: Path, files: PosixWritableFileSystem) -> None:
    with files.lock():
        with pytest.raises(StoreInUse, match="this process"):
            files.lock()
        with PosixWritableFileSystem(str(tmp_path)) as again, pytest.raises(StoreInUse):
            again.lock()
        assert files.lock_state() == LockState(held=True, pid=os.getpid())
        assert not another_process_may_lock(tmp_path / "lock"), "the attempts did not give it away"
    assert another_process_may_lock(tmp_path / "lock")


def test_reading_the_lock_file_does_not_give_the_lock_away(tmp_path: Path, files: PosixWritableFileSystem) -> None:
    path = tmp_path / "lock"
    with PosixReadableFileSystem(str(tmp_path)) as looking:
        path.write_bytes(b"lock")
        opened_before = looking.open_read("lock")
        with files.lock():
            opened_before.close()
            with looking.open_read("lock") as file:
                assert file.pread(10, 0) == b"lock"
            with files.open_write("lock"):
                pass
            looking.lock_state()
            files.set_attributes("lock", Attributes.of(files.stat("lock")))
            assert not another_process_may_lock(path)
        assert another_process_may_lock(path)


def test_what_waited_for_the_end_of_the_lock_is_closed_then(tmp_path: Path, files: PosixWritableFileSystem) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with files.lock():
        for _ in range(5):
            files.open_read("lock").close()
        assert len(os.listdir("/proc/self/fd")) == before + 1 + 1 + 5, "the lock, its own look at the content, the five"
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_child_does_not_hold_what_its_parent_holds(tmp_path: Path, files: PosixWritableFileSystem) -> None:
    lock = files.lock()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        answer = b"?"
        try:
            state = files.lock_state()
            answer = b"parent" if state == LockState(held=True, pid=os.getppid()) else repr(state).encode()
            lock.close()
            try:
                files.lock()
                answer += b" taken"
            except StoreInUse:
                answer += b" refused"
        finally:
            os.write(writer, answer)
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reader, 100) == b"parent refused"
    os.close(reader)
    os.close(writer)
    assert not another_process_may_lock(tmp_path / "lock"), "the child's closing did not give it away"
    lock.close()
    assert another_process_may_lock(tmp_path / "lock")


def test_a_child_that_took_the_lock_keeps_it_when_it_forgets_its_parents(
    tmp_path: Path, files: PosixWritableFileSystem
) -> None:
    inherited = files.lock()
    given_back, tell = os.pipe()
    answer, say = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.read(given_back, 1)
            own = files.lock()
            inherited.close()
            os.write(say, b"kept" if not another_process_may_lock(tmp_path / "lock") else b"lost")
            own.close()
        finally:
            os._exit(0)
    inherited.close()
    os.write(tell, b".")
    os.waitpid(child, 0)
    os.close(say)
    assert os.read(answer, 100) == b"kept"
    for descriptor in (given_back, tell, answer):
        os.close(descriptor)


def test_of_many_threads_one_gets_it(files: PosixWritableFileSystem) -> None:
    taken: list[object] = []
    refused: list[StoreInUse] = []
    together = threading.Barrier(8)

    def attempt() -> None:
        together.wait()
        try:
            taken.append(files.lock())
        except StoreInUse as error:
            refused.append(error)

    threads = [threading.Thread(target=attempt) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(taken), len(refused)) == (1, 7)
    taken[0].close()  # type: ignore[attr-defined]


def test_a_lock_file_that_is_none(tmp_path: Path, files: PosixWritableFileSystem) -> None:
    os.mkfifo(tmp_path / "lock")
    with pytest.raises(WriteFailed, match="lock is a FIFO"):
        files.lock()
    with pytest.raises(ReadFailed, match="lock is a FIFO"):
        files.lock_state()


def test_a_file_system_without_locks_is_an_error(
    files: PosixWritableFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(fcntl, "lockf", refuse)
    with pytest.raises(WriteFailed, match=r"cannot lock .*lock: No locks available"):
        files.lock()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_lock_whose_content_cannot_be_written_is_given_back(
    files: PosixWritableFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", refuse)
        with pytest.raises(WriteFailed):
            files.lock()
    assert another_process_may_lock(tmp_path / "lock")
    files.lock().close()
