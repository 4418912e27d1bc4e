"""``Check``: parts, early ends and their continuation, other processes."""

from __future__ import annotations

import pytest

from rmqtool.checks.case import Case, Depth
from rmqtool.checks.check import Check, CheckOptions
from rmqtool.config import Version
from rmqtool.engine.parts import Setup
from rmqtool.engine.store import MessageStore
from rmqtool.errors import UsageError
from rmqtool.files.posix_write import PosixWritableFileSystem
from rmqtool.filters.wanted import parse_patterns
from rmqtool.log.ranges import Effort
from rmqtool.store.open import open_store
from tests.judged.rows import findings_of, key_of
from tests.support.damaged import Workshop, mutations
from tests.support.engine_stores import a_message, small_config

DAMAGED = (
    "A/body-flip@seg0-mid",
    "A/magic-flip@4thlast-mid",
    "A/queueoffset-flip@2ndlast-mid",
    "A/cq-unit-midrecord@lastfile-mid",
    "A/cl-missing@middle",
    "A/ix-missing@middle",
    "A/cq-dir-missing@largest",
)


@pytest.fixture(scope="module")
def workshop(tmp_path_factory):
    return Workshop(tmp_path_factory.mktemp("damaged"))


class Clock:
    """A clock on which every look at it takes a second."""

    def __init__(self) -> None:
        self.time = 0.0

    def __call__(self) -> float:
        self.time += 1
        return self.time


def ending_early(root, seconds):
    """Check in as many turns as it takes; return what all of them find, and how many there were."""
    found, resume, turns = {}, None, 0
    while True:
        turns += 1
        with open_store(str(root)) as store:
            check = Check(store, CheckOptions(max_seconds=seconds, resume=resume), now=Clock())
            found.update({key_of(finding): finding for finding in check})
        resume = check.summary.resume
        assert check.summary.complete is (resume is None)
        if resume is None:
            return list(found.values()), turns


@pytest.mark.parametrize("name", DAMAGED)
def test_turns_find_what_one_check_finds(name, workshop):
    mutation = mutations("5.3.3")[name]
    with workshop.damaged("5.3.3", mutation, abort=False) as root:
        whole = {(f.code, f.file, f.offset) for f in findings_of(root) if f.severity != "notice"}
        found, turns = ending_early(root, 2)
        assert turns > 2
        assert {(f.code, f.file, f.offset) for f in found if f.severity != "notice"} >= whole
        assert whole


@pytest.mark.parametrize("name", ["49-basic", "53-broker", "54-broker", "49-cleaned", "49-lmq", "53-compress"])
def test_turns_find_nothing_in_a_sound_store(name, store):
    found, turns = ending_early(store(name), 1)
    assert [f for f in found if f.severity != "notice"] == []
    assert turns > 1


def test_two_threads_find_what_one_finds(workshop, monkeypatch):
    monkeypatch.setattr("rmqtool.audit.reports.RANGE", 20_000)
    mutation = mutations("4.9.8")["A/fuzz-001"]
    with workshop.damaged("4.9.8", mutation, abort=False) as root:
        one = findings_of(root)
        with open_store(str(root)) as store:
            two = list(Check(store, effort=Effort(2)))
    assert [key_of(finding) for finding in two] == [key_of(finding) for finding in one]
    assert one


def test_only_what_is_asked_for_is_found(workshop):
    mutation = mutations("4.9.8")["A/cl-missing@last"]
    with workshop.damaged("4.9.8", mutation, abort=False) as root:
        every = findings_of(root)
        families = {finding.code[:2] for finding in every}
        assert {"CQ", "IX", "CP"} <= families
        for family in families:
            alone = findings_of(root, CheckOptions(only=(family.lower(),)))
            assert sorted(map(key_of, alone)) == sorted(key_of(f) for f in every if f.code.startswith(family))
        (topic,) = {f.topic for f in every if f.topic is not None and f.topic.startswith("orders")}
        of_topic = findings_of(root, CheckOptions(topics=parse_patterns([topic])))
        assert {f.topic for f in of_topic} == {topic, None}


def test_a_word_that_is_no_code_is_refused():
    with pytest.raises(UsageError, match="not a finding code"):
        CheckOptions(only=("CL-NONE",))
    with pytest.raises(UsageError, match="not a token"):
        CheckOptions(resume="12")


@pytest.mark.parametrize("depth", list(Depth))
def test_each_depth_says_what_it_did_not_prove(depth, store):
    with open_store(str(store("53-broker"))) as opened:
        check = Check(opened, CheckOptions(depth))
        assert list(check) == []
    summary = check.summary
    assert (summary.messages > 0) is (depth is not Depth.QUICK)
    assert any("--deep" in words for words in summary.not_proven) is (depth is Depth.DEFAULT)
    assert any("--quick" in words for words in summary.not_proven) is (depth is Depth.QUICK)


def test_entries_of_tags_are_seen_however_regularly_the_entries_repeat(tmp_path):
    (tmp_path / "store").mkdir()
    root = str(tmp_path / "store")
    sizes = {"mappedFileSizeCommitLog": 1 << 20, "maxHashSlotNum": 500, "maxIndexNum": 2000}
    with PosixWritableFileSystem(root) as files:
        store = MessageStore.create(Setup(files, small_config(Version.V5_4, **sizes).at_root(root)))
        for number in range(64):  # four entries each
            keys = {"UNIQ_KEY": f"{number:032X}", "KEYS": f"a{number} b{number}", "TAGS": "TagA"}
            store.put(a_message(number, properties=keys))
        store.tick()
        store.close()
    assert findings_of(root) == []


@pytest.mark.parametrize("live", [True, False])
def test_many_entries_of_a_store_at_work_may_be_on_their_way(live, tmp_path, monkeypatch):
    """Slots are read after the header: by then a busy broker has led more of them on than are named one by one."""
    config = small_config(Version.V4_9, maxHashSlotNum=4000, maxIndexNum=8000, mappedFileSizeCommitLog=1 << 20)
    count = 1500
    with PosixWritableFileSystem(str(tmp_path)) as files, MessageStore.create(Setup(files, config)) as writer:
        for number in range(2 * count):
            writer.put(a_message(properties={"KEYS": f"k{number % count}", "UNIQ_KEY": f"k{number % count}"}))
    [path] = (tmp_path / "index").iterdir()
    data = bytearray(path.read_bytes())
    assert data[36:40] == (4 * count + 1).to_bytes(4, "big")
    data[36:40] = (2 * count + 1).to_bytes(4, "big")
    path.write_bytes(data)
    (tmp_path / "broker.conf").write_text("maxHashSlotNum=4000\nmaxIndexNum=8000\n")
    monkeypatch.setattr(Case, "live", live)
    links = [finding for finding in findings_of(tmp_path) if finding.code == "IX-LOOP"]
    assert bool(links) is not live
