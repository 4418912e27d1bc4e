"""``check`` of a store that is being written finds nothing but that it is: what is in flight is no damage."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from shutil import rmtree

import pytest

from rmqtool.checks.case import Depth
from rmqtool.checks.check import Check, CheckOptions
from rmqtool.store.open import open_store
from tests.judged.rows import findings_of
from tests.support.stores import unpack

FEW, MANY = 6, 100

HOLD = """
import fcntl, sys
with open(sys.argv[1], "ab") as lock:
    fcntl.lockf(lock, fcntl.LOCK_EX)
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def busy(root, version):
    """Have another process write a store."""
    command = [sys.executable, "-m", "tests.support.busy_store", str(root), version]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        try:
            assert writer.stdout.readline() == "ready\n"
            yield writer
        finally:
            writer.stdin.close()
            assert writer.wait(120) == 0


def look(root, version, times):
    """Check so many times while messages come in; return what was found that is no notice, and how the end grew."""
    wrong, ends = [], []
    with busy(root, version) as writer:
        for number in range(times):
            writer.stdin.write("more\n")
            writer.stdin.flush()
            assert writer.stdout.readline() == "putting\n"
            depth = (Depth.DEFAULT, Depth.DEEP, Depth.QUICK)[number % 3]
            with open_store(str(root)) as store:
                check = Check(store, CheckOptions(depth))
                found = list(check)
            wrong += [(number, f) for f in found if f.severity != "notice"]
            assert "ST-LOCK" in {finding.code for finding in found}
            assert writer.poll() is None
            ends.append(check.case.end.physical_offset)
    return wrong, ends


@pytest.mark.parametrize(
    ("version", "times"),
    [
        ("4.9", FEW),
        ("5.4", FEW),
        pytest.param("4.9", MANY, marks=pytest.mark.slow),
        pytest.param("5.3", MANY, marks=pytest.mark.slow),
        pytest.param("5.4", MANY, marks=pytest.mark.slow),
    ],
)
def test_nothing_is_found_in_flight(version, times, tmp_path):
    root = tmp_path / "store"
    wrong, ends = look(root, version, times)
    assert wrong == []
    # It really was written meanwhile, and what it came to is sound.
    assert ends == sorted(ends)
    assert len(set(ends)) > times // 2
    assert [finding for finding in findings_of(root) if finding.severity != "notice"] == []


def test_a_queue_that_comes_after_the_others_is_waited_for(tmp_path, monkeypatch):
    """Units go to the files queue by queue: for a moment those of a later message stand there, of this one none."""
    root = unpack("53-basic", tmp_path)
    late = max((root / "consumequeue").glob("*/*/*"), key=lambda path: len(path.read_bytes().rstrip(b"\0")))
    units = late.read_bytes()
    late.write_bytes(bytes(len(units)))

    def pause(seconds):
        pauses.append(seconds)
        if len(pauses) == 3:
            late.write_bytes(units)

    def codes():
        return {finding.code for finding in findings_of(root) if finding.severity != "notice"}

    pauses = []
    monkeypatch.setattr("rmqtool.checks.queues.time.sleep", pause)
    assert "CQ-MISSING" in codes()
    assert pauses == []
    command = [sys.executable, "-c", HOLD, str(root / "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        assert codes() == set()
        holder.stdin.close()
    assert len(pauses) == 3


def judge(root, depth):
    with open_store(str(root)) as store:
        return list(Check(store, CheckOptions(depth)))


@contextmanager
def held(root):
    """Have another process hold the lock of a store, as an open one is held."""
    command = [sys.executable, "-c", HOLD, str(root / "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        yield
        holder.stdin.close()


@pytest.mark.parametrize("depth", [Depth.QUICK, Depth.DEFAULT])
def test_a_store_that_was_just_created_may_have_no_queue_yet(depth, tmp_path):
    root = tmp_path / "store"
    with busy(root, "5.4"):
        pass
    rmtree(root / "consumequeue")
    with held(root):
        found = judge(root, depth)
        assert [finding.code for finding in found if finding.severity != "notice"] == []
    # Nobody has it open: what is not there does not come.
    assert "CQ-MISSING" in {finding.code for finding in judge(root, depth)}


@pytest.mark.parametrize("depth", [Depth.QUICK, Depth.DEFAULT])
def test_queues_that_were_deleted_under_a_broker_at_work_are_missed(depth, tmp_path):
    root = unpack("53-basic", tmp_path)
    rmtree(root / "consumequeue")
    with held(root):
        found = [finding for finding in judge(root, depth) if finding.code == "CQ-MISSING"]
    assert found
    assert {finding.severity for finding in found} == {"error"}
    assert all(finding.file == "consumequeue" or "/" in finding.file for finding in found)
