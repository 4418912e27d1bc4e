"""The lock against Java's: taken as a broker takes it, each side sees the other.

This needs a JDK and nothing else, so it runs wherever there is one.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rmqtool.cli import main
from rmqtool.engine.store import MessageStore
from rmqtool.errors import Exit, StoreInUse
from rmqtool.files.filesystem import LockState
from rmqtool.files.posix import PosixReadableFileSystem
from rmqtool.files.posix_write import PosixWritableFileSystem
from tests.support.engine_stores import a_message, small_setup, small_store

pytestmark = pytest.mark.skipif(
    not (shutil.which("java") and shutil.which("javac")), reason="no JDK: java and javac are not on the path"
)

BROKER = """
import java.io.RandomAccessFile;
import java.nio.ByteBuffer;
import java.nio.channels.FileLock;

public class Broker {
    public static void main(String[] arguments) throws Exception {
        try (RandomAccessFile file = new RandomAccessFile(arguments[0], "rw")) {
            FileLock lock = file.getChannel().tryLock(0, 1, false);
            if (lock == null) {
                System.out.println("already started");
                return;
            }
            file.getChannel().write(ByteBuffer.wrap("lock".getBytes("UTF-8")));
            file.getChannel().force(true);
            System.out.println("started " + ProcessHandle.current().pid());
            System.in.read();
        }
    }
}
"""


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("broker")
    (directory / "Broker.java").write_text(BROKER)
    subprocess.run(["javac", "-d", str(directory), str(directory / "Broker.java")], check=True)
    return directory


@contextmanager
def broker(classes: Path, lock: Path) -> Iterator[str]:
    with subprocess.Popen(
        ["java", "-cp", str(classes), "Broker", str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.communicate("\n", timeout=60)


def test_a_running_broker_is_seen_and_not_disturbed(classes: Path, tmp_path: Path) -> None:
    with PosixWritableFileSystem(str(tmp_path)) as files:
        with broker(classes, tmp_path / "lock") as answer:
            word, pid = answer.split()
            assert word == "started"
            with PosixReadableFileSystem(str(tmp_path)) as looking:
                assert looking.lock_state() == LockState(held=True, pid=int(pid))
            with pytest.raises(StoreInUse, match=rf"process {pid} \(java\)"):
                files.lock()
            with broker(classes, tmp_path / "lock") as second:
                assert second == "already started"
        assert files.lock_state() == LockState(held=False)
        with files.lock():
            assert (tmp_path / "lock").read_bytes() == b"lock"


def test_a_broker_does_not_start_while_we_hold_the_lock(classes: Path, tmp_path: Path) -> None:
    with PosixWritableFileSystem(str(tmp_path)) as files:
        with files.lock():
            with files.open_read("lock") as file:
                file.pread(4, 0)
            with broker(classes, tmp_path / "lock") as answer:
                assert answer == "already started"
        with broker(classes, tmp_path / "lock") as answer:
            assert answer.startswith("started ")


def test_the_engine_waits_for_no_broker_and_changes_nothing(classes: Path, tmp_path: Path) -> None:
    with PosixWritableFileSystem(str(tmp_path)) as files:
        with small_store(files=files) as store:
            assert store.put(a_message()).is_ok
        before = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in tmp_path.rglob("*")}
        with broker(classes, tmp_path / "lock") as answer:
            _, pid = answer.split()
            with pytest.raises(StoreInUse, match=rf"process {pid} \(java\)"):
                MessageStore.open(small_setup(files=files))
            assert main(["produce", str(tmp_path), "x", "-t", "T"]) == Exit.IN_USE
        after = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in tmp_path.rglob("*")}
        assert {path for path in before if before[path] != after[path]} <= {tmp_path / "lock"}
        with MessageStore.open(small_setup(files=files)) as store:
            assert store.put(a_message()).queue_offset == 1
