"""Our recovery, on what real brokers left: no valid message is lost, and nothing is written where nothing is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rmqtool.cli import main
from rmqtool.config import Version
from rmqtool.engine.message import NewMessage
from rmqtool.engine.recovery.recover import recover
from rmqtool.engine.store import MessageStore
from rmqtool.errors import Exit, RmqtoolError
from tests.judged.rows import findings_of
from tests.support.damaged import VERSIONS, Workshop
from tests.support.recovered import named, setup_for, unserved, valid_records
from tests.support.recovery import VERSIONS as BROKERS
from tests.support.recovery import Case, cases
from tests.support.schemas import validate
from tests.support.stores import STORES, content_digest, tree_changes, tree_state, truth

# Stores that only their own brokers may write messages to.
ELSEWHERE = ("49-dledger", "53-rocksdb", "54-combine", "54-rocksone")
KILLED = ("49-killed", "49-killed-torn", "49-killed-broker", "53-killed")
# So many parts the long test of all damaged stores has.
PARTS = 4
# Damage after which nothing may be written, and what is said.
REFUSED = {"cl-missing@all": "log is empty", "cl-dir-missing": "log is empty", "lock-dir": "lock"}
CLEAN = [name for name in STORES if name not in (*KILLED, "49-ghost")]


def contents(root: Path) -> dict[str, str]:
    """Return a digest of every file."""
    return {str(path.relative_to(root)): content_digest(path) for path in sorted(root.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("name", CLEAN)
def test_a_clean_store_stays_as_it_is(name, writable_store):
    root = writable_store(name)
    before, bytes_before = tree_state(root), contents(root)
    report = recover(setup_for(root))
    assert (report.changes, report.misfits, report.abnormal) == ({}, [], False)
    assert report.messages == len(truth(name)["messages"])
    assert report.max_offset == truth(name)["max_phy"]
    assert tree_changes(before, tree_state(root)) == []
    assert report.missing is None
    if name in ELSEWHERE:
        return
    MessageStore.open(setup_for(root)).close()
    after = contents(root)
    after.pop("abort.bak", None)
    bytes_before.pop("abort.bak", None)
    assert after == bytes_before


@pytest.mark.parametrize("name", KILLED)
def test_a_killed_store_holds_at_least_what_its_broker_recovered(name, writable_store):
    root, expected = writable_store(name), truth(name)["after_recovery"]
    before = valid_records(root)
    report = recover(setup_for(root))
    assert report.abnormal
    assert report.max_offset >= expected["max_phy"]
    assert valid_records(root) == before
    assert unserved(root, before) == []
    opened = MessageStore.open(setup_for(root))
    for topic, queues in expected["queues"].items():
        for queue_id, queue in queues.items():
            ours = opened.find_queue(topic, int(queue_id))
            assert ours is not None
            assert ours.max_offset >= queue["maxOffset"]
    opened.close()
    assert recover(setup_for(root)).changes == {}


@pytest.mark.parametrize("name", ["49-ghost", "49-recovered"])
def test_ghosts_are_told_and_nothing_is_lost(name, writable_store):
    root, messages = writable_store(name), truth(name)["messages"]
    report = recover(setup_for(root))
    (stale,) = (finding for finding in report.findings if finding.code == "CL-STALE")
    assert (stale.file, stale.offset) == ("commitlog/00000000000000196608", truth(name)["max_phy"] - 196608)
    places = {message["commitLogOffset"] for message in messages}
    served = [record for record in valid_records(root) if record.physical_offset in places]
    assert len(served) == len(messages)
    assert unserved(root, served) == []
    with MessageStore.open(setup_for(root)) as opened:
        counts: dict[tuple[str, int], int] = {}
        for message in messages:
            key = message["topic"], message["queueId"]
            counts[key] = max(counts.get(key, 0), message["queueOffset"] + 1)
        assert {queue.key: queue.max_offset for queue in opened.queues()} == counts


@pytest.mark.parametrize("name", ["49-basic", "53-basic"])
@pytest.mark.parametrize("is_gone", [True, False])
def test_units_of_an_end_that_is_lost_go_although_the_store_was_closed(name, is_gone, writable_store):
    root = writable_store(name)
    last = max((root / "commitlog").iterdir())
    if is_gone:
        last.unlink()
    else:
        last.write_bytes(bytes(last.stat().st_size))
    before = valid_records(root)
    report = recover(setup_for(root))
    assert not report.abnormal
    assert {finding.code for finding in report.findings} == {"CQ-AHEAD"}
    assert valid_records(root) == before
    assert unserved(root, before) == []
    assert [f for f in findings_of(root) if f.severity != "notice"] == []
    assert recover(setup_for(root)).changes == {}


def test_a_directory_among_the_segments_of_a_4_9_store_goes_when_it_is_empty(writable_store):
    root = writable_store("49-basic")
    (root / "commitlog/00000000000000999424").mkdir()
    (root / "commitlog/full").mkdir()
    (root / "commitlog/full/note").write_text("mine")
    report = recover(setup_for(root, Version.V4_9))
    assert set(report.changes) == {"commitlog/00000000000000999424"}
    assert [(one.code, one.file) for one in report.findings] == [
        ("CL-NAME", "commitlog/00000000000000999424"),
        ("CL-NAME", "commitlog/full"),
    ]
    assert (root / "commitlog/full/note").read_text() == "mine"


def starts_of(version: str, every: int) -> list[Case]:
    """Return one in ``every`` of the damaged stores of a version, with and without abort."""
    found = {(start.mutation.key, start.outcome["abort"]): start for start in cases(version)}
    return [start for number, (_, start) in enumerate(sorted(found.items())) if number % every == 11 % every]


def check_recovered(start: Case, root: Path) -> None:
    """Recover a damaged store; nothing valid may be lost, every message stands where it says or is named."""
    settings = start.settings

    def setup() -> Any:
        return setup_for(root, Version(BROKERS[start.version]), settings)

    before = valid_records(root)
    if start.mutation.name in REFUSED:
        with pytest.raises(RmqtoolError, match=REFUSED[start.mutation.name]):
            recover(setup())
        return
    report = recover(setup())
    after = valid_records(root)
    assert (start.name, [record for record in before if record not in after]) == (start.name, [])
    outside = [r for r in before if not report.min_offset <= r.physical_offset < report.max_offset]
    assert (start.name, outside) == (start.name, [])
    lost = [record for record in unserved(root, before) if record.physical_offset not in named(report)]
    assert (start.name, lost) == (start.name, [])
    settled = contents(root)
    again = recover(setup())
    assert (start.name, again.changes, contents(root) == settled) == (start.name, {}, True)
    with MessageStore.open(setup()) as opened:
        ticket = opened.put(NewMessage("AfterRecovery", b"new"))
        assert (start.name, ticket.physical_offset) == (start.name, report.max_offset)


@pytest.mark.parametrize("version", VERSIONS)
def test_damaged_stores_keep_every_valid_message(version, tmp_path):
    workshop = Workshop(tmp_path)
    for start in starts_of(version, 320):
        with workshop.damaged(version, start.mutation, abort=start.outcome["abort"]) as root:
            check_recovered(start, root)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("version", VERSIONS)
def test_every_damaged_store_keeps_every_valid_message(version, part, tmp_path):
    workshop = Workshop(tmp_path)
    for start in starts_of(version, 1)[part::PARTS]:
        with workshop.damaged(version, start.mutation, abort=start.outcome["abort"]) as root:
            check_recovered(start, root)


def test_the_command_recovers_and_says_what_a_broker_would_still_destroy(tmp_path, capsysbinary):
    start = next(s for s in cases("5.3.3") if s.outcome["id"] == "A/magic-flip@last-mid/abort")
    with Workshop(tmp_path).damaged("5.3.3", start.mutation, abort=True) as root:
        assert main(["recover", str(root), "--apply", "--as", "5.3", "--json"]) == Exit.NO
        shown = json.loads(capsysbinary.readouterr().out)
        validate("recovered", shown)
        assert (shown["mode"], shown["messages"]) == ("abnormal", start.outcome["valid_in_mutated"])
        assert [finding["code"] for finding in shown["findings"]] == ["CL-MAGIC"]
        assert shown["left"] == shown["findings"]
        assert shown["brokerStart"]["messagesLost"] == start.outcome["valid_destroyed"]
        assert {"path": "abort", "action": "delete"} in shown["files"]
        assert main(["recover", str(root), "--apply", "--as", "5.3"]) == Exit.NO
        screen = capsysbinary.readouterr().out.decode()
        assert "1,499 valid messages, all kept" in screen
        assert f"delete {start.outcome['valid_destroyed']} messages" in screen


def test_applying_and_rehearsing_elsewhere_exclude_each_other(tmp_path, capsys):
    assert main(["recover", str(tmp_path), "--apply", "--to", str(tmp_path / "x")]) == Exit.USAGE
    assert "exclude each other" in capsys.readouterr().err
