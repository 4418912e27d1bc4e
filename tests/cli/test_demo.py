"""``rmqtool demo``: it ends well, shows what it promises, leaves the store, and never touches what is there."""

from __future__ import annotations

import subprocess
import sys

import pytest

import rmqtool
from rmqtool import check, init, query, scan
from rmqtool.api.demo import STEPS
from rmqtool.api.store import opened
from rmqtool.broker.sample_life import live
from rmqtool.broker.services.tick import serving
from rmqtool.cli import command_tree, main
from rmqtool.errors import Exit


def test_steps_name_only_commands_and_options_that_exist():
    group = command_tree()
    for words in (step.command.split() for step in STEPS if step.command):
        command = group.get_command(None, words[0])
        options = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in words if word.startswith("-")} <= options, words


def test_what_is_there_is_left_alone(tmp_path, capsysbinary):
    (tmp_path / "here").mkdir()
    (tmp_path / "here/file").write_text("mine")
    assert main(["demo", str(tmp_path / "here")]) == Exit.REFUSED
    assert "exists already" in capsysbinary.readouterr().err.decode()
    assert [path.name for path in (tmp_path / "here").iterdir()] == ["file"]


def test_the_life_of_the_store_is_sound_and_has_one_of_everything(tmp_path):
    root = tmp_path / "store"
    init(root, conf={"mappedFileSizeCommitLog": "65536"})
    with rmqtool.open(root) as store, opened(store) as listed:
        config = listed.config
    with serving(str(root), config) as services:
        live(services, 40)
    topics = [message["topic"] for message in scan(root)]
    assert topics.count("Orders") == 40
    assert topics.count("Payments") == 1
    assert topics.count("%DLQ%shipping") == 1
    assert topics.count("SCHEDULE_TOPIC_XXXX") == 2
    assert topics.count("RMQ_SYS_TRANS_HALF_TOPIC") == 2
    events = [event["event"] for event in query(root, "order-4701", history=True, topics="Payments")["history"]]
    assert "committed" in events
    assert [
        finding for finding in check(root) if finding.severity != "notice" and finding.code[:2] in ("CL", "CQ")
    ] == []


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["local", "spark"])
def test_the_tour_ends_well_and_leaves_the_store(engine, tmp_path):
    words = [sys.executable, "-m", "rmqtool", "demo", str(tmp_path / "demo"), "--engine", engine]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stderr) == (0, done.stderr)
    for said in (
        "ST-ABORT",
        "CL-CRC",
        "CQ-MISSING",
        "delivered",
        "committed",
        "undone",
        "_damage",
        "order-9000 by the network",
    ):
        assert said in done.stdout, said
    assert (tmp_path / "demo/store/commitlog").is_dir()
    assert sum(step.says != "" for step in STEPS) == done.stdout.count("\n# ")
