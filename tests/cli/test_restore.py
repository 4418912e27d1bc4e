"""The recipe of a restore, as it is typed: the master's disk is gone, and consumers go on."""

from __future__ import annotations

import random

import pytest

import rmqtool
from rmqtool.cli import main
from tests.support.scripted_cluster import in_thread
from tests.support.scripted_master import FIRST_TIME, ScriptedMaster


@pytest.mark.parametrize("live", [[], ["--live"]], ids=["plain", "live"])
def test_every_message_that_was_acknowledged_is_consumed(live, tmp_path, monkeypatch, capsys):
    """The master is gone at a random moment, in the middle of what it sends."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("rmqtool.replica.follower._PAUSE", 0.001)
    chance = random.Random(31)
    for round_number in range(3):
        with in_thread(ScriptedMaster()) as master:
            mirror = f"m{round_number}"
            master.grow(100)
            assert main(["mirror", master.address, mirror, "--once", *live]) == 0
            first = len(master.log)
            master.grow(200)
            # A live mirror may have what it asked its first connection for before that one is cut: it has a second one.
            master.cuts = [chance.randrange(first, len(master.log))] * 2
            monkeypatch.setattr("rmqtool.replica.follower._TRIES", 1)
            assert main(["mirror", master.address, mirror, "--once", *live]) == 9
            acknowledged = max(master.reports)
            ends = [one["commitLogOffset"] + one["storeSize"] for one in messages_of(master, tmp_path / "whole")]
        promised = sum(end <= acknowledged for end in ends)
        assert main(["recover", mirror, "--apply"]) == 0
        assert main(["check", mirror, "--fail-on", "error"]) == 0
        capsys.readouterr()
        words = ["consume", mirror, "-g", "New", "-t", "T", "--from", "first", "--commit"]
        assert main([*words, "--template", r"{queueOffset}\n"]) == 0
        got = [int(line) for line in capsys.readouterr().out.split()]
        assert got == list(range(len(got)))
        assert len(got) >= promised > 0


def test_a_moment_before_a_mistake(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with in_thread(ScriptedMaster()) as master:
        master.grow(150)
        assert main(["mirror", master.address, "m", "--once"]) == 0
    assert main(["copy", "m", "new", "-e", str(FIRST_TIME + 90)]) == 0
    capsys.readouterr()
    assert main(["cat", "new", "--template", r"{queueOffset}\n"]) == 0
    assert capsys.readouterr().out.split() == [str(number) for number in range(90)]
    assert main(["check", "new"]) == 0


def messages_of(master, root):
    """Return the messages of the master's log."""
    for name, data in master.files().items():
        path = root / "commitlog" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return list(rmqtool.scan(str(root)))
