"""Seeded slices of `make proof`: a short one in every run, a longer one in `make slow`; and that it can fail."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import zlib
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from tests.guards.test_untouched import WRITERS
from tests.proof import (
    crashes,
    cuts,
    faults,
    forked,
    kills,
    mirrored,
    mutants,
    reader,
    recorded,
    sectors,
    served,
    syncs,
    works,
)
from tests.proof.campaign import Campaign, Outcome
from tests.proof.canaries import CANARIES, PUBLISHED, Canary, hunt
from tests.proof.crash_lives import Life, Retention, Services
from tests.proof.crashes import LIVES
from tests.proof.ledger import ROOT, Ledger
from tests.proof.record import Record
from tests.proof.table import table_of
from tests.support.faulty_disk import FaultyDisk

# How many cases of each campaign fit into every run.
_QUICK = {"mutated stores": 2, "bad sectors": 6, "calls that fail": 4, "kills": 5, "signals that ask to end": 3}
_COMMANDS = (faults.CAMPAIGN, kills.KILLS, kills.SIGNALS, sectors.CAMPAIGN, mutants.CAMPAIGN)
_SLOW_SEEDS = 25


@pytest.mark.parametrize("life", LIVES, ids=lambda life: life.name)
def test_a_power_cut_in_any_call_breaks_no_promise(life: type[Life]) -> None:
    # The services of 5.x have a wheel to go over: an eighth of the states takes as long. In the second life of a
    # retention queue files are removed, too.
    tried = crashes.walk(life, 1 if life in (Services, Retention) else 0, random_one_in=8)
    assert tried.failures == []
    assert tried.states > 3


@pytest.fixture(scope="module")
def fresh() -> Iterator[ProcessPoolExecutor]:
    """A process without threads: a fork of one that has some can wait for ever for a lock that a thread held."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        yield pool


def _try(number: int) -> tuple[list[str], int]:
    """Run the first cases of a campaign; return what failed, and how many states there were."""
    campaign = _COMMANDS[number]
    # A stride leads over all stores and commands.
    tried = [campaign.run(31 * seed) for seed in range(_QUICK[campaign.name])]
    return [failure for one in tried for failure in one.failures], sum(one.states for one in tried)


@pytest.mark.parametrize("number", range(len(_COMMANDS)), ids=lambda number: _COMMANDS[number].name)
def test_some_cases_of_each_campaign(number: int, fresh: ProcessPoolExecutor) -> None:
    campaign = _COMMANDS[number]
    assert campaign.missing() is None
    failures, states = fresh.submit(_try, number).result()
    assert failures == []
    assert states >= _QUICK[campaign.name] // 2


@pytest.mark.parametrize("canary", CANARIES, ids=lambda one: one.word)
def test_a_broken_engine_is_noticed(canary: Canary) -> None:
    assert hunt(canary, range(120)) is not None


def test_each_sync_of_the_engine_has_its_reason() -> None:
    assert sorted(site.name for site in syncs.sites()) == sorted([*syncs.NOTICED, *syncs.KEPT])


@pytest.mark.parametrize("site", [one for one in syncs.sites() if one.name in syncs.NOTICED], ids=lambda one: one.name)
def test_a_sync_that_is_left_out_is_noticed(site: syncs.Site) -> None:
    assert syncs.noticed(site) is not None


_RECORDED = pytest.mark.skipif(recorded.missing() is not None, reason=str(recorded.missing()))
# The others are recorded in slow runs: strace doubles the time of a start.
_QUICK_WORK = works.MoreExports


def _walk_work(number: int) -> tuple[list[str], int]:
    tried = works.walk(works.WORKS[number])
    return tried.failures, tried.states


def _hunt_in_work(number: int) -> bool:
    return hunt(PUBLISHED[number], range(1)) is not None


@_RECORDED
@pytest.mark.parametrize(
    "number",
    [
        pytest.param(number, marks=() if work is _QUICK_WORK else pytest.mark.slow)
        for number, work in enumerate(works.WORKS)
    ],
    ids=lambda number: works.WORKS[number].name,
)
def test_a_power_cut_in_a_work_publishes_nothing_by_half(number: int, fresh: ProcessPoolExecutor) -> None:
    failures, states = fresh.submit(_walk_work, number).result()
    assert failures == []
    assert states > 10


@_RECORDED
@pytest.mark.parametrize(
    "number",
    [
        pytest.param(number, marks=() if canary.lives == (_QUICK_WORK,) else pytest.mark.slow)
        for number, canary in enumerate(PUBLISHED)
    ],
    ids=lambda number: PUBLISHED[number].word,
)
def test_a_work_without_some_of_its_syncs_is_noticed(number: int, fresh: ProcessPoolExecutor) -> None:
    assert fresh.submit(_hunt_in_work, number).result()


@pytest.mark.slow
@_RECORDED
def test_some_power_cuts_in_works() -> None:
    tried = [works.run(seed) for seed in range(6 * len(works.WORKS))]
    assert [failure for one in tried for failure in one.failures] == []
    assert sum(one.states for one in tried) > 100


@pytest.mark.slow
def test_some_power_cuts_of_real_file_systems() -> None:
    # Asking makes file systems and mounts them: not while tests are collected.
    if (reason := cuts.missing()) is not None:
        pytest.skip(reason)
    tried = [cuts.run(seed) for seed in range(40)]
    assert [failure for one in tried for failure in one.failures] == []
    assert sum(one.states for one in tried) == 40


@pytest.mark.slow
def test_some_kills_of_serve() -> None:
    tried = [served.run(seed) for seed in range(5)]
    assert [failure for one in tried for failure in one.failures] == []
    assert sum(one.states for one in tried) == 5 * served.KILLS


@pytest.mark.slow
def test_some_kills_of_mirror() -> None:
    tried = [mirrored.run(seed) for seed in range(4)]
    assert [failure for one in tried for failure in one.failures] == []
    assert sum(one.states for one in tried) == 4 * mirrored.KILLS


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
@pytest.mark.parametrize("life", LIVES, ids=lambda life: life.name)
def test_many_power_cuts(life: type[Life], part: int) -> None:
    seeds = range(1000 + part * _SLOW_SEEDS, 1000 + (part + 1) * _SLOW_SEEDS)
    assert [failure for seed in seeds for failure in crashes.cut(life, seed).failures] == []


@pytest.mark.slow
@_RECORDED
def test_some_power_cuts_in_recorded_commands() -> None:
    tried = [recorded.run(seed) for seed in range(4 * len(WRITERS))]
    assert [failure for one in tried for failure in one.failures] == []
    assert sum(one.states for one in tried) > 4 * len(WRITERS)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
@pytest.mark.parametrize("campaign", _COMMANDS, ids=lambda one: one.name)
def test_many_cases_of_each_campaign(campaign: Campaign, part: int) -> None:
    tried = [campaign.run(seed) for seed in range(1000 + part * _SLOW_SEEDS, 1000 + (part + 1) * _SLOW_SEEDS)]
    assert [failure for one in tried for failure in one.failures] == []
    assert sum(one.states for one in tried) > 0


def a_record(
    physical_offset: int, body: bytes = b"body", topic: bytes = b"T", queue_offset: int = 0, sys_flag: int = 0
) -> bytes:
    """Return a record laid by hand."""
    size = 91 + len(body) + len(topic)
    head = struct.pack(
        ">iIIiiqqiq", size, 0xDAA320A7, zlib.crc32(body) & 0x7FFFFFFF, 0, 0, queue_offset, physical_offset, sys_flag, 1
    )
    hosts = bytes(8), struct.pack(">q", 7) + bytes(8) + bytes(12)
    return head + b"".join(hosts) + struct.pack(">i", len(body)) + body + bytes([len(topic)]) + topic + bytes(2)


LOG, QUEUE = "commitlog/" + "0" * 20, "consumequeue/T/0/" + "0" * 20


def test_the_reader_finds_records_also_after_damage() -> None:
    first = a_record(0)
    second = a_record(len(first), queue_offset=1)
    damaged = bytearray(first + second)
    damaged[90] ^= 1
    assert [one.physical_offset for one in reader.iter_records({LOG: first + second + bytes(100)})] == [0, len(first)]
    assert [one.physical_offset for one in reader.iter_records({LOG: bytes(damaged)})] == [len(first)]


def test_the_reader_knows_where_a_broker_cuts() -> None:
    records = [a_record(0), a_record(96), a_record(192)]
    assert {len(one) for one in records} == {96}
    torn = bytes(96)
    assert reader.breaks({LOG: b"".join(records) + bytes(100)}) == []
    assert reader.breaks({LOG: records[0] + torn + records[2]}) == [range(96, 192)]
    assert reader.breaks({LOG: records[0] + torn}) == []
    last = "commitlog/" + "0" * 17 + "192"
    assert reader.breaks({LOG: torn + records[1], last: records[2]}) == [range(96)]
    assert reader.breaks({LOG: records[0] + torn, last: records[2]}) == [range(96, 192)]


def test_the_reader_sees_what_a_queue_leads_to() -> None:
    first = a_record(0)
    entry = struct.pack(">qiq", 0, len(first), 0)
    assert reader.misplaced({LOG: first, QUEUE: entry}) == []
    assert reader.misplaced({LOG: first, QUEUE: bytes(20) + entry}) == ["T/0@1 leads to the message T/0@0"]
    assert reader.misplaced({LOG: first, QUEUE: struct.pack(">qiq", 4, 99, 0)}) == [
        "T/0@0 leads to 4, where no record is"
    ]
    assert [one.physical_offset for one in reader.unreached({LOG: first, QUEUE: bytes(20)})] == [0]
    placeholder = a_record(0, topic=b"RMQTOOL_QUARANTINE", sys_flag=0xC)
    assert reader.misplaced({LOG: placeholder, QUEUE: struct.pack(">qiq", 0, len(placeholder), 0)}) == []


def test_no_disk_has_a_directory_under_two_names() -> None:
    disk, told = recorded.lay({"a/b/file": b"1"}, ["a", "a/b", "c"]), list[recorded.Did]()
    recorded.replay(disk, [recorded.Did("rename", "a/b", "c/b")], told)
    disk.crashed = True
    left = {tuple(path for path in ("a/b", "c/b") if is_there(state, path)) for state in disk.iter_outcomes(50, seed=1)}
    assert left == {("a/b",), ("c/b",)}


def is_there(disk: FaultyDisk, path: str) -> bool:
    above, _, name = path.rpartition("/")
    return name in disk.directory(above).names


def test_the_reader_knows_the_hash_of_java() -> None:
    # Literals of the Java documentation and of a well-known text whose hash is the smallest int.
    assert reader.java_hash("hello") == 99162322
    assert reader.java_hash("polygenelubricants") == 0


def test_the_reader_imports_nothing_of_rmqtool() -> None:
    code = "import sys; import tests.proof.reader; sys.exit(any(name.startswith('rmqtool') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_a_run_goes_on_where_the_last_one_ended(tmp_path: Path) -> None:
    seen: list[int] = []

    def run(seed: int) -> Outcome:
        seen.append(seed)
        return Outcome(2, [f"seed {seed} failed"] if seed == 1 else [])

    campaign = Campaign("one", "things", 100, run)
    from tests.proof.__main__ import try_next

    for _ in range(2):
        ledger = Ledger(tmp_path / "kept" / "ledger.json", of="this")
        try_next(ledger, campaign)
        try_next(ledger, campaign)
        ledger.save()
    assert seen == [0, 1, 2, 3]
    kept = json.loads((tmp_path / "kept" / "ledger.json").read_text(encoding="utf-8"))
    assert (kept["this"]["one"]["states"], kept["this"]["one"]["failures"]) == (8, ["seed 1 failed"])
    assert Ledger(tmp_path / "kept" / "ledger.json", of="another").next_seed("one") == 0
    row = table_of(ledger, [campaign]).splitlines()[-1]
    assert row.split()[:5] == ["one", "8", "8", "100", "things"]


def test_an_edition_begins_where_the_record_ends(tmp_path: Path) -> None:
    campaign = Campaign("one", "things", 100, lambda seed: Outcome(2, ["it failed"] if seed == 0 else []))
    from tests.proof.__main__ import try_next

    record = Record()
    for name in ("old", "new"):
        ledger = Ledger(tmp_path / name, of=name, record=record)
        for _ in range(3):
            try_next(ledger, campaign)
        ledger.save()
        record.add(ledger.rows("0123abcd", "2026-11-20"))
    record.write(tmp_path / "record.json")
    kept = json.loads((tmp_path / "record.json").read_text(encoding="utf-8"))
    assert [(row["edition"], row["tried"]["first"], row["tried"]["failures"]) for row in kept] == [
        ("new", 3, []),
        ("old", 0, ["it failed"]),
    ]
    # In the same clone, what is in the record already is not counted twice; another clone of this edition goes on.
    again = Ledger(tmp_path / "new", of="new", record=Record.read(tmp_path / "record.json"))
    assert (again.next_seed("one"), again.states("one")) == (6, 12)
    elsewhere = Ledger(tmp_path / "elsewhere", of="new", record=Record.read(tmp_path / "record.json"))
    assert (elsewhere.next_seed("one"), elsewhere.states("one")) == (6, 12)
    assert table_of(again, [campaign]).splitlines()[-1].split()[:7] == ["one", "6", "12", "100", "things", "0", "6"]


def test_two_runs_share_the_campaigns_and_one_file(tmp_path: Path) -> None:
    path = tmp_path / "ledger.json"
    first, second = Ledger(path, of="this"), Ledger(path, of="this")
    with first.turn("one") as has_one:
        assert has_one
        with second.turn("one") as has_it_too:
            assert not has_it_too
        with second.turn("two") as has_two:
            assert has_two
            second.note("two", 5, 0.0, [])
        first.note("one", 3, 0.0, [])
    with second.turn("one"):
        assert second.next_seed("one") == 1
    assert {name: tried.states for name, tried in Ledger(path, of="this").tried.items()} == {"one": 3, "two": 5}


def test_commands_of_one_process_end_each_for_itself(tmp_path: Path) -> None:
    ended = forked.run_all([["--version"], ["info", str(tmp_path / "nowhere")], ["--version"]])
    assert [one.status for one in ended] == [0, 3, 0]
    assert ended[0].out == ended[2].out
    assert ended[0].out.startswith(b"rmqtool ")
    assert b"nowhere" in ended[1].err
    assert not ended[2].err


def test_a_turn_that_is_interrupted_keeps_what_was_done(tmp_path: Path) -> None:
    """Whoever ends a run loses at most the seed that was being tried."""
    path = tmp_path / "ledger.json"
    ledger = Ledger(path, of="this")

    def be_interrupted() -> None:
        with ledger.turn("one"):
            ledger.note("one", 3, 0.5, [])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        be_interrupted()
    assert Ledger(path, of="this").next_seed("one") == 1


def test_the_reader_passes_over_what_was_never_written() -> None:
    """An entry before many zeros, and one whose last bytes are zeros."""
    entries = struct.pack(">qiq", 7, 256, 0) + bytes(20) + struct.pack(">qiq", 1 << 40, 300, 0)
    for zeros in (0, 19, 20 * 1024, 20 * 300_000):
        tree = {"consumequeue/T/0/" + "0" * 20: entries + bytes(zeros)}
        assert list(reader.iter_queue(tree, "T", 0)) == [(0, 7, 256), (2, 1 << 40, 300)]
