"""``recover`` from the outside: its JSON, the store that ``--to`` writes, statuses, and that it only looks."""

from __future__ import annotations

import hashlib
import json
import random

import pytest

from rmqtool.cli import main
from rmqtool.errors import Exit
from tests.mutations import set_abort
from tests.recovery import LEFT_OUT, VERSIONS, base_sizes, cases, sizes_as_words, undetermined
from tests.stores import left_alone, truth, unpack

WRITTEN_PER_VERSION = 8
SEED = 12


def run(capsys, *words):
    status = main(["recover", *map(str, words)])
    out, err = capsys.readouterr()
    return status, out, err


def as_and_settings(case):
    return ["--as", VERSIONS[case.version], *(word for setting in case.settings for word in ("--conf", setting))]


def find_case(version, name):
    return next(case for case in cases(version) if case.outcome["id"] == name and case.list_name == "outcomes")


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_written_is_what_the_broker_left(version, tmp_path, capsys):
    """Every file of the recorded outcome, byte for byte; new index files have names of their own here."""
    started = [case for case in cases(version) if case.outcome["result"] == "started"]
    compared = changed = 0
    for number, case in enumerate(random.Random(SEED).sample(started, WRITTEN_PER_VERSION)):
        root = case.prepare(tmp_path / "bases", tmp_path / "store")
        target = tmp_path / f"left-{number}"
        with left_alone(root):
            status, out, _ = run(capsys, root, "--to", target, "--json", *as_and_settings(case))
        shown = json.loads(out)
        assert status == (Exit.NO if shown["messagesLost"] else Exit.DONE)
        unknown = undetermined(case.predict(root), case.recorded(root), case.outcome, case.sizes["maxIndexNum"] - 1)
        left = {path for path in files_below(target) if not path.startswith(LEFT_OUT)}
        recorded = {path: state for path, state in case.outcome["files_after"].items() if not path.startswith(LEFT_OUT)}
        if "bytes of the index" in unknown:
            left, recorded = without_index(left), {path: recorded[path] for path in without_index(recorded)}
        assert left == set(recorded), case.name
        for path, state in recorded.items():
            if path == "checkpoint" and "bytes of the checkpoint" in unknown:
                continue
            written = (target / path).read_bytes()
            if state == "=":
                assert written == (root / path).read_bytes(), (case.name, path)
            else:
                assert [len(written), hashlib.sha256(written).hexdigest()] == state, (case.name, path)
                changed += 1
            compared += 1
    assert compared > 20 * WRITTEN_PER_VERSION
    assert changed > WRITTEN_PER_VERSION


def files_below(root):
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


def without_index(paths):
    return {path for path in paths if not path.startswith("index/")}


@pytest.mark.parametrize("name", ["49-killed", "49-killed-torn", "49-killed-broker", "53-killed"])
def test_the_recovery_of_a_killed_store_is_predicted(name, store, capsys):
    root = store(name)
    after = truth(name)["after_recovery"]
    with left_alone(root):
        status, out, _ = run(capsys, root, "--json")
    shown = json.loads(out)
    assert (status, shown["mode"], shown["loads"], shown["starts"]) == (Exit.DONE, "abnormal", True, True)
    assert (shown["minPhyOffset"], shown["maxPhyOffset"]) == (after["min_phy"], after["max_phy"])
    queues = {
        topic: {queue: {key: bounds[key] for key in ("minOffset", "maxOffset")} for queue, bounds in queues.items()}
        for topic, queues in after["queues"].items()
    }
    assert {topic: shown["queues"][topic] for topic in queues} == queues


def test_what_is_lost_is_told_and_the_status_says_so(tmp_path, capsys):
    case = find_case("4.9.8", "A/body-flip@2ndlast-mid/abort")
    root = case.prepare(tmp_path / "bases", tmp_path / "store")
    status, out, _ = run(capsys, root, "--as", "4.9")
    assert status == Exit.NO
    assert "ABNORMALLY" in out
    assert "DELETE" in out
    assert f"would destroy {case.outcome['valid_destroyed']} whole messages" in out


@pytest.mark.parametrize("name", ["49-dledger", "53-rocksdb"])
def test_what_is_not_modelled_is_refused(name, store, capsys):
    status, _, err = run(capsys, store(name))
    assert status == Exit.NOT_A_STORE
    assert "not modelled" in err


def test_the_target_must_be_new(store, tmp_path, capsys):
    (tmp_path / "left").mkdir()
    (tmp_path / "left/mine").touch()
    status, _, err = run(capsys, store("49-killed"), "--to", tmp_path / "left")
    assert status == Exit.REFUSED
    assert "not empty" in err
    assert [path.name for path in (tmp_path / "left").iterdir()] == ["mine"]


def test_a_segment_that_vanishes_ends_the_run(tmp_path, capsys, monkeypatch):
    """The store is read through handles that are opened when they are needed: what is gone by then is an error."""
    from rmqtool.upstream.startup import MessageStore

    root = unpack("recovery-5.3.3/base-A", tmp_path / "A")
    set_abort(root, True)
    segments = sorted((root / "commitlog").iterdir())
    started = MessageStore.start

    def start(self):
        segments[1].unlink()
        return started(self)

    monkeypatch.setattr(MessageStore, "start", start)
    words = [word for setting in sizes_as_words(base_sizes("5.3.3", "A")) for word in ("--conf", setting)]
    status, out, err = run(capsys, root, "--as", "5.3", *words)
    assert (status, out) == (Exit.NOT_A_STORE, "")
    assert segments[1].name in err
