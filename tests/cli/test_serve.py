"""``rmqtool serve`` as a process: its first line, its end, its status."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rmqtool.api.cat import scan
from rmqtool.api.init import init
from rmqtool.cli import main
from rmqtool.store.owner import Owner, find_owner
from tests.support.waiting import PATIENCE, wait_for
from tests.support.wire_client import WireClient, send_fields

FREE = ("--listen", "127.0.0.1:0", "--names", "127.0.0.1:0")


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "rmqtool", "serve", *words]


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*words), capture_output=True, text=True, timeout=PATIENCE, check=False)


@contextmanager
def started(*words: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, object]]]:
    process = subprocess.Popen(
        command(*words, "--jsonl", "--for", "600s"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.stderr.read() if process.stderr else ""
        yield process, json.loads(line)
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    found = tmp_path / "store"
    init(found, conf={"mappedFileSizeCommitLog": str(1 << 20), "maxIndexNum": "1000", "maxHashSlotNum": "100"})
    return found


def test_the_first_line_says_where_clients_connect(root: Path) -> None:
    with started(str(root), *FREE) as (process, ready):
        assert ready.keys() == {
            "ready",
            "names",
            "broker",
            "vip",
            "brokerName",
            "clusterName",
            "store",
            "readOnly",
            "recovered",
        }
        assert (ready["ready"], ready["store"], ready["readOnly"], ready["recovered"]) == (
            True,
            str(root),
            False,
            False,
        )
        for name in ("names", "broker", "vip"):
            host, _, port = str(ready[name]).rpartition(":")
            socket.create_connection((host, int(port)), timeout=PATIENCE).close()
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    assert not (root / "abort").exists()


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_at_the_end_everything_is_in_the_store(root: Path, number: signal.Signals, status: int) -> None:
    with started(str(root), *FREE) as (process, ready), WireClient(str(ready["broker"])) as client:
        for _ in range(3):
            assert client.ask(310, send_fields("Kept"), b"x").code == 0
        process.send_signal(number)
        assert process.wait(PATIENCE) == status
    found = subprocess.run(
        [sys.executable, "-m", "rmqtool", "cat", str(root), "--count"], capture_output=True, text=True, check=True
    )
    assert found.stdout.split()[0] == "3"
    checked = subprocess.run([sys.executable, "-m", "rmqtool", "check", str(root)], capture_output=True, check=False)
    assert checked.returncode == 0, checked.stdout
    # What one server wrote the next one serves.
    with started(str(root), *FREE) as (_, ready), WireClient(str(ready["broker"])) as client:
        assert client.ask(30, {"topic": "Kept", "queueId": 0}).ext["offset"] == "3"


def test_a_store_with_a_torn_end_is_recovered_first(writable_store: Callable[[str], Path]) -> None:
    root = writable_store("49-killed")
    with started(str(root), *FREE) as (process, ready):
        assert ready["recovered"] is True
        process.terminate()
        assert process.wait(PATIENCE) == 0
    checked = subprocess.run([sys.executable, "-m", "rmqtool", "check", str(root)], capture_output=True, check=False)
    assert checked.returncode == 0, checked.stdout


def test_a_store_with_an_empty_last_segment_is_recovered_first(writable_store: Callable[[str], Path]) -> None:
    """A kill between the creation of a segment and its first size leaves one."""
    root = writable_store("49-killed")
    last = max((root / "commitlog").iterdir())
    empty = last.with_name(f"{int(last.name) + last.stat().st_size:020}")
    empty.touch()
    with started(str(root), *FREE) as (process, ready):
        assert ready["recovered"] is True
        assert not empty.exists()
        process.terminate()
        assert process.wait(PATIENCE) == 0


def test_a_store_with_more_damage_is_refused(writable_store: Callable[[str], Path]) -> None:
    root = writable_store("49-killed")
    first = min((root / "commitlog").iterdir())
    data = bytearray(first.read_bytes())
    data[4:8] = b"\1\2\3\4"
    first.write_bytes(data)
    found = run(str(root), *FREE)
    assert found.returncode == 5
    assert f"rmqtool repair {root}\n" in found.stderr
    assert first.read_bytes() == data


def test_other_commands_find_the_server(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with started(str(root), *FREE) as (process, ready):
        path = tmp_path / "rmqtool" / f"{process.pid}.json"
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.parent.stat().st_mode & 0o777 == 0o700
        owner = json.loads(path.read_text())
        assert owner.keys() == {"pid", "started", "store", "names", "broker", "token"}
        assert (owner["pid"], owner["store"], owner["broker"]) == (process.pid, str(root), ready["broker"])
        assert find_owner(str(root), process.pid) == Owner(**owner)
        # Another process holds the lock, or the file is open to others: it is not believed.
        assert find_owner(str(root), process.pid + 1) is None
        path.chmod(0o644)
        assert find_owner(str(root), process.pid) is None
        process.terminate()
        assert process.wait(PATIENCE) == 0
        assert not path.exists()


def test_it_runs_a_command_beside_itself() -> None:
    code = (
        "import os; assert os.environ['NAMESRV_ADDR'] == os.environ['ROCKETMQ_NAMESRV'];"
        "print(os.environ['NAMESRV_ADDR']); raise SystemExit(3)"
    )
    found = run("--memory", "--exec", f'{sys.executable} -c "{code}"')
    assert found.returncode == 3
    # Standard output is the command's.
    assert found.stdout.startswith("127.0.0.1:")
    assert len(found.stdout.splitlines()) == 1
    assert found.stdout.strip() in found.stderr


def test_the_status_of_a_command_that_is_killed() -> None:
    assert run("--memory", "--exec", "kill -9 $$").returncode == 128 + signal.SIGKILL


def test_it_ends_by_itself(root: Path) -> None:
    found = run(str(root), *FREE, "--for", "0s")
    assert found.returncode == 0
    assert "name server 127.0.0.1:" in found.stdout


def test_a_port_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        found = run("--memory", "--names", address, "--listen", "127.0.0.1:0")
    assert found.returncode == 4
    assert f"{address} is in use" in found.stderr


def test_a_directory_that_is_no_store(tmp_path: Path) -> None:
    found = run(str(tmp_path), *FREE)
    assert found.returncode == 3
    assert "rmqtool init" in found.stderr


def test_a_store_that_is_in_use(root: Path) -> None:
    with started(str(root), *FREE):
        found = run(str(root), *FREE)
    assert found.returncode == 4
    assert "the store is in use" in found.stderr


def test_a_store_and_memory_at_once(root: Path) -> None:
    assert run(str(root), "--memory").returncode == 2


def test_nothing_of_a_store_in_memory_is_left(tmp_path: Path) -> None:
    found = subprocess.run(
        command("--memory", *FREE, "--for", "0s"),
        env={**os.environ, "TMPDIR": str(tmp_path)},
        timeout=PATIENCE,
        check=False,
    )
    assert found.returncode == 0
    assert list(tmp_path.iterdir()) == []


def test_a_terminal_shows_a_screen_that_is_drawn_again() -> None:
    ours, theirs = pty.openpty()
    words = command("--memory", *FREE, "--for", "600s", "--color", "never")
    process = subprocess.Popen(words, stdout=theirs, stderr=subprocess.PIPE, env={**os.environ, "COLUMNS": "80"})
    os.close(theirs)
    try:
        seen = b""
        while seen.count(b"messages in") < 2:
            seen += os.read(ours, 4096)
        assert b"serving a store in memory: name server 127.0.0.1:" in seen
        assert b"0 clients" in seen
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.communicate()
        os.close(ours)


@pytest.mark.slow
def test_the_tests_of_our_client_run_at_a_store_in_memory() -> None:
    tests = Path(__file__).parents[1] / "unit/client/test_at_a_server.py"
    inner = f"{sys.executable} -m pytest -q -p no:cacheprovider {tests}"
    words = command("--memory", "--quiet", "--exec", inner)
    ran = subprocess.run(words, capture_output=True, text=True, timeout=280, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert re.search(r"^\d passed", ran.stdout, re.MULTILINE), ran.stdout


@pytest.mark.parametrize(("status", "bodies"), [(0, ["open"]), (1, []), (9, [])])
def test_a_program_decides_open_transactions(tmp_path: Path, status: int, bodies: list[str]) -> None:
    root = tmp_path / "halves"
    sizes = {"mappedFileSizeCommitLog": "65536", "maxIndexNum": "1000", "maxHashSlotNum": "100"}
    init(root, conf={**sizes, "transactionTimeOut": "100", "transactionCheckInterval": "300"})
    words = ["-t", "T", "--create", "--tx", "pending", "-g", "P", "open"]
    assert main(["produce", str(root), *words]) == 0
    asked = tmp_path / "asked"
    with started(str(root), *FREE, "--check", f"cat >>{asked}; exit {status}") as (process, _):
        wait_for(lambda: asked.exists() and asked.read_bytes().endswith(b"\n"))
        assert process.poll() is None
        if bodies:
            wait_for(lambda: [*scan(str(root), topics="T")])
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    assert [one["body"] for one in scan(str(root), topics="T")] == bodies
    first = json.loads(asked.read_text(encoding="utf-8").splitlines()[0])
    assert (first["topic"], first["body"], first["properties"]["PGROUP"]) == ("T", "open", "P")
