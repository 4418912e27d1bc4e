"""`mirror` as it is typed: lines, statuses, signals."""

from __future__ import annotations

import errno
import json
import signal
import subprocess
import sys
from contextlib import ExitStack

import pytest

from rmqtool.cli import main
from tests.guards import surroundings
from tests.support.schemas import validate
from tests.support.scripted_cluster import in_thread
from tests.support.scripted_master import SEGMENT, ScriptedMaster, log_files
from tests.support.waiting import PATIENCE, wait_for


@pytest.fixture
def master():
    with in_thread(ScriptedMaster()) as found:
        found.grow(100)
        yield found


def shape(line):
    return "mirrored" if "durable" in line else "mirror-gap" if "gap" in line else "mirror-event"


def test_lines_are_of_their_shapes_and_a_gap_is_6(master, tmp_path, capsys):
    words = ["mirror", f"rocketmq://{master.address}/broker-a", str(tmp_path / "m"), "--once", "--jsonl"]
    assert main(words) == 0
    end = len(master.log)
    master.grow(300)
    master.min_offset = 3 * SEGMENT
    assert main(words) == 6
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    for line in lines:
        validate(shape(line), line)
    assert {"gap": {"from": end, "to": 3 * SEGMENT}} in lines
    assert (lines[-1]["durable"], lines[-1]["lagBytes"]) == (len(master.log), 0)


def test_people_are_told_what_they_have_and_what_to_type(master, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["mirror", master.address, "m", "--once"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"connected to {master.address}",
        f"m has the log of {master.address} from 0 to {len(master.log)} (98.1 KiB), durable",
        "Next: rmqtool recover m --apply",
    ]
    assert main(["recover", "m", "--apply"]) == 0
    assert main(["check", "m"]) == 0


def test_a_master_that_lost_messages_is_5(master, tmp_path, capsys):
    assert main(["mirror", master.address, str(tmp_path / "m"), "--once"]) == 0
    del master.log[-3000:]
    assert main(["mirror", master.address, str(tmp_path / "m"), "--once"]) == 5
    assert "the master lost 3000 bytes" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [["--ack", "always"], ["--from", "middle"], ["--config-every", "0s"], ["--keep", "long"], ["--config-every", "x"]],
)
def test_a_wrong_value_is_refused_before_anything_is_asked(words, master, tmp_path):
    assert main(["mirror", master.address, str(tmp_path / "m"), *words]) == 2
    assert not master.requests
    assert not (tmp_path / "m").exists()


def test_an_address_has_a_port(tmp_path):
    assert main(["mirror", "localhost", str(tmp_path / "m")]) == 2


def test_a_mirror_that_another_process_holds_is_4(master, tmp_path):
    from rmqtool.files.posix_write import PosixWritableFileSystem

    assert main(["mirror", master.address, str(tmp_path / "m"), "--once"]) == 0
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "m")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert holder.stdout is not None
        holder.stdout.readline()
        assert main(["mirror", master.address, str(tmp_path / "m"), "--once"]) == 4
    finally:
        holder.kill()
        holder.communicate()
    with PosixWritableFileSystem(str(tmp_path / "m")) as files, files.lock():
        pass


HOLD = """
import sys
from rmqtool.files.posix_write import PosixWritableFileSystem
with PosixWritableFileSystem(sys.argv[1]) as files, files.lock():
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_ends_it_with_everything_on_disk(number, status, master, tmp_path):
    words = [sys.executable, "-m", "rmqtool", "mirror", master.address, str(tmp_path / "m"), "--jsonl"]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        wait_for(lambda: master.reports and master.reports[-1] == len(master.log))
        process.send_signal(number)
        out, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == status
    assert json.loads(out.splitlines()[-1])["durable"] == len(master.log)
    assert log_files(tmp_path / "m") == master.files()


@pytest.mark.parametrize("real", [True, False], ids=["mounted", "injected"])
@pytest.mark.parametrize("kind", ["full", "read-only"])
def test_a_disk_that_takes_nothing_is_7_and_the_mirror_goes_on_later(kind, real, master, tmp_path, capsys):
    """What the master has more needs a further segment, and what was there stays."""
    if real and not surroundings.can_mount():
        pytest.skip("mounting is not allowed here")

    def begun(parent):
        parent.mkdir(exist_ok=True)
        assert main(["mirror", master.address, str(parent / "m"), "--once", "--quiet"]) == 0
        return parent / "m"

    reports = len(master.reports)
    with ExitStack() as stack:
        if kind == "full" and real:
            root = stack.enter_context(surroundings.full_tmpfs(tmp_path, begun, megabytes=2))
        else:
            root = begun(tmp_path / "there")
        before, end = log_files(root), len(master.log)
        master.grow(100)
        with ExitStack() as failing:
            if kind == "read-only" and real:
                failing.enter_context(surroundings.read_only_mount(root))
            elif not real:
                number = errno.ENOSPC if kind == "full" else errno.EROFS
                failing.enter_context(surroundings.failing_calls(root, number))
            assert main(["mirror", master.address, str(root), "--once"]) == 7
            assert [log_files(root)[name][: end - int(name)] for name in before] == [
                data[: end - int(name)] for name, data in before.items()
            ]
        # Nothing is acknowledged that found no room.
        assert max(master.reports[reports:]) <= (SEGMENT * 2)
        (tmp_path / "small" / "filler").unlink(missing_ok=True)
        assert main(["mirror", master.address, str(root), "--once"]) == 0
        assert log_files(root) == master.files()
    assert "Traceback" not in capsys.readouterr().err


def test_a_new_mirror_on_a_full_disk_leaves_nothing(master, tmp_path):
    (tmp_path / "there").mkdir()
    with surroundings.failing_calls(tmp_path / "there" / "m", errno.ENOSPC):
        assert main(["mirror", master.address, str(tmp_path / "there" / "m"), "--once"]) == 7
    assert list((tmp_path / "there").iterdir()) == []
    assert master.reports == []
