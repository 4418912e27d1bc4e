"""Claims: which queue offset a record has where the ones around it contradict; one judge for check and recovery."""

from __future__ import annotations

from pathlib import Path

import pytest

import rmqtool
from rmqtool.audit.claims import Claim, QueueClaims, Verdict
from rmqtool.config import Version
from rmqtool.engine.parts import Setup
from rmqtool.engine.recovery.recover import recover
from rmqtool.engine.store import MessageStore
from rmqtool.files.posix_write import PosixWritableFileSystem
from rmqtool.formats.consume_queue import WIDEST_GAP
from rmqtool.formats.layouts import ConsumeQueueUnit
from tests.support.engine_stores import UNITS_PER_FILE, a_message, iter_records, small_config, units


class OnDisk(dict[int, int]):
    """Entries by queue offset: the place that each leads to."""

    def lead_to(self, queue_offset: int, unit: ConsumeQueueUnit) -> bool:
        return self.get(queue_offset) == unit.physical_offset


def judged(
    claimed: int,
    following: int | None,
    on_disk: dict[int, int] | None = None,
    *,
    expected: int | None = 5,
    lost: int = 0,
) -> Verdict:
    """Judge the record at 1,000, after records that reach queue offset 5."""
    claims = QueueClaims(OnDisk(on_disk or {}), lambda _start, _end: lost, 0)
    claims.expected = expected
    claim = Claim(claimed, ConsumeQueueUnit(1000, 100, 0))
    return claims.judge(claim) or claims.judge_by(claim, following)


def test_a_record_that_follows_is_believed() -> None:
    assert judged(5, None) is Verdict.CLAIMED


@pytest.mark.parametrize(
    ("claimed", "following", "verdict"),
    [
        (9, 10, Verdict.CLAIMED),  # two agree: messages before them are missing
        (9, 6, Verdict.NEXT),  # the next one leaves room for it
        (9, 5, Verdict.STRAY),  # the next one has its place
        (9, 20, Verdict.STRAY),
        (9, None, Verdict.STRAY),
        (5 + WIDEST_GAP, 6 + WIDEST_GAP, Verdict.CLAIMED),
        (6 + WIDEST_GAP, 7 + WIDEST_GAP, Verdict.STRAY),
        (-1, 0, Verdict.STRAY),
        (1 << 62, (1 << 62) + 1, Verdict.STRAY),
        (3, 4, Verdict.STRAY),  # another record has that place
        (0, 1, Verdict.BEGINS),
        (0, 6, Verdict.NEXT),
        (0, 5, Verdict.STRAY),
        (0, None, Verdict.STRAY),
    ],
)
def test_the_next_record_decides(claimed: int, following: int | None, verdict: Verdict) -> None:
    assert judged(claimed, following) is verdict


@pytest.mark.parametrize(
    ("claimed", "entry", "verdict"),
    [
        (9, 9, Verdict.CLAIMED),
        (9, 5, Verdict.NEXT),
        (3, 5, Verdict.NEXT),
        (0, 0, Verdict.BEGINS),
        (3, 3, Verdict.STRAY),
    ],
)
def test_an_entry_on_disk_decides_before_it(claimed: int, entry: int, verdict: Verdict) -> None:
    assert judged(claimed, 7, {entry: 1000}) is verdict


def test_damage_explains_a_gap() -> None:
    assert judged(9, 20, lost=4) is Verdict.CLAIMED
    assert judged(9, 20, lost=3) is Verdict.STRAY
    assert judged(9, None, lost=4) is Verdict.CLAIMED


def test_the_first_record_may_claim_any_offset_that_the_next_one_does_not_contradict() -> None:
    assert judged(9, 20, expected=None) is Verdict.CLAIMED
    assert judged(9, 3, expected=None) is Verdict.STRAY


@pytest.fixture(params=[Version.V4_9, Version.V5_3])
def recreated(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return a store with a topic that was deleted, made again, and got fewer messages than before."""
    root = tmp_path / "store"
    root.mkdir()
    with PosixWritableFileSystem(str(root)) as files:
        setup = Setup(files, small_config(request.param, storePathRootDir=str(root)))
        with MessageStore.create(setup) as store:
            for number in range(UNITS_PER_FILE + 3):
                assert store.put(a_message(number)).is_ok
            assert store.put(a_message(0, topic="Other")).is_ok
        remove_queue(files)
        with MessageStore.open(setup) as store:
            tickets = [store.put(a_message(number)) for number in range(4)]
            assert [ticket.queue_offset for ticket in tickets] == [0, 1, 2, 3]
    return root


def codes(root: Path) -> list[tuple[str, str]]:
    return [(finding.code, finding.severity) for finding in rmqtool.check(root)]


def remove_queue(files: PosixWritableFileSystem) -> None:
    for entry in files.listdir("consumequeue/T/0"):
        files.unlink(f"consumequeue/T/0/{entry.name}")
    files.rmdir("consumequeue/T/0")


def last_places(files: PosixWritableFileSystem) -> list[int]:
    return [record.physical_offset for record in iter_records(files) if record.topic == "T"][-4:]


def test_a_topic_that_was_made_again_is_left_as_it_is(recreated: Path) -> None:
    """check called this store right, and repair wrote the entries of the deleted messages over the others."""
    assert codes(recreated) == [("CQ-REUSED", "notice")]
    assert rmqtool.repair(recreated)["steps"] == []
    with PosixWritableFileSystem(str(recreated)) as files:
        report = recover(Setup(files, small_config(Version.V5_3, storePathRootDir=str(recreated))))
        assert (report.changes, report.misfits) == ({}, [])
        assert [unit.physical_offset for unit in units(files, "T", 0)] == last_places(files)


@pytest.mark.parametrize("thorough", [False, True])
def test_the_lost_queue_of_a_topic_that_was_made_again_gets_its_last_messages(recreated: Path, thorough: bool) -> None:
    with PosixWritableFileSystem(str(recreated)) as files:
        remove_queue(files)
        setup = Setup(files, small_config(Version.V5_3, storePathRootDir=str(recreated)))
        report = recover(setup, thorough=thorough)
        assert report.misfits == []
        assert [finding.code for finding in report.findings] == ["CQ-MISSING"]
        assert [unit.physical_offset for unit in units(files, "T", 0)] == last_places(files)
        assert len(files.listdir("consumequeue/T/0")) == 1
        assert recover(setup, thorough=thorough).changes == {}
    assert codes(recreated) == [("CQ-REUSED", "notice")]


def test_the_first_message_of_a_topic_that_was_made_again_may_be_on_its_way(tmp_path: Path) -> None:
    """In a live store its entry may not be written yet; the entries of the deleted messages are not missing."""
    with PosixWritableFileSystem(str(tmp_path)) as files:
        setup = Setup(files, small_config(Version.V5_3, storePathRootDir=str(tmp_path)))
        with MessageStore.create(setup) as store:
            for number in range(5):
                assert store.put(a_message(number)).is_ok
            assert store.put(a_message(0, topic="Other")).is_ok
        remove_queue(files)
        with MessageStore.open(setup) as store:
            assert store.put(a_message(0)).queue_offset == 0
            assert [one for one in codes(tmp_path) if one[0].startswith(("CQ", "CL"))] == [("CQ-REUSED", "notice")]
