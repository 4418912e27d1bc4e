"""Delivery, retry, commit and revive, cut short at every call of the disk: at least once, and uncut exactly once.

What waits is laid down durably, then everything is due. The power goes at some call; the store is recovered, and what
is still due happens. Nothing that was promised may be missing.
"""

from __future__ import annotations

from collections import Counter

import pytest

from rmqtool.broker.services import Services
from rmqtool.broker.transactions import EndRequest, TransactionState
from rmqtool.config import FlushDiskType, Version
from rmqtool.engine.building import Setup
from rmqtool.engine.message import NewMessage
from rmqtool.engine.recovery.recover import recover
from rmqtool.engine.store import MessageStore
from rmqtool.engine.ticket import PutTicket
from rmqtool.storage.config_writer import config_text
from tests.engine_stores import small_setup
from tests.faulty import FaultyFileSystem
from tests.faulty_disk import Crash, FaultyDisk
from tests.manual_clock import START, ManualClock

MINUTE = 60_000
SETTINGS = {
    "flushDiskType": FlushDiskType.SYNC_FLUSH,
    "mappedFileSizeCommitLog": 1 << 14,
    "mappedFileSizeTimerLog": 600,
}
# The long run is in so many parts; a life makes more calls than this.
PARTS, FEWEST_CALLS = 8, 50
# What has to come, where.
PROMISED = {
    "T": {"delayed-0", "delayed-1", "committed", "checked"},
    "%RETRY%g": {"failed"},
}
OF_5 = {"T": {"timer-0", "timer-1"}, "%RETRY%p_P": {"popped-1"}}


def promised(version: Version) -> set[tuple[str, str]]:
    found = {(topic, body) for topic, bodies in PROMISED.items() for body in bodies}
    if version is not Version.V4_9:
        found |= {(topic, body) for topic, bodies in OF_5.items() for body in bodies}
    return found


def setup_on(disk: FaultyDisk, version: Version, now: int) -> Setup:
    made = small_setup(version, FaultyFileSystem(disk, "store"), **SETTINGS)
    return Setup(made.files, made.config, ManualClock(now))


def services_of(store: MessageStore) -> Services:
    services = Services(store, lambda name: config_text(store.setup.files, name))
    services.check.producer = lambda _half: TransactionState.COMMIT
    return services


def waiting_disk(version: Version) -> FaultyDisk:
    """Return a disk with a store in which everything waits for a minute later."""
    disk = FaultyDisk()
    setup = setup_on(disk, version, START)
    with MessageStore.create(setup) as store:
        services = services_of(store)

        def put(topic: str, body: str, **properties: str) -> PutTicket:
            ticket = store.put(NewMessage(topic, body.encode(), 0, {"WAIT": "true", "UNIQ_KEY": body, **properties}))
            assert ticket.is_ok
            return ticket

        for number in range(2):
            put("T", f"delayed-{number}", DELAY="1")
            if version is not Version.V4_9:
                put("T", f"timer-{number}", TIMER_DELAY_SEC="5")
                put("P", f"popped-{number}")
        failed = store.reader.message_at(put("F", "failed").physical_offset)
        assert failed is not None
        services.retry.send_back("g", failed)
        for body in ("committed", "checked"):
            half = NewMessage("T", body.encode(), 0, {"PGROUP": "PG", "UNIQ_KEY": body})
            assert isinstance(services.transactions.prepare(half), PutTicket)
        store.dispatch_now()
        if version is not Version.V4_9:
            acked, _ = services.pops.pop("p", "P", [0], 2, 5000)
            services.pops.ack("p", "P", acked.receipt)
            store.dispatch_now()
            list(services.timers.iter_enqueue())
        services.save()
        services.close()
    disk.calls.clear()
    return disk


def live_on(disk: FaultyDisk, version: Version, rounds: int = 4) -> Counter[tuple[str, str]]:
    """Let happen what is due, minute after minute; return how often each message came."""
    setup = setup_on(disk, version, START + MINUTE)
    with MessageStore.open(setup) as store:
        services = services_of(store)
        got = store.reader.get("RMQ_SYS_TRANS_HALF_TOPIC", 0, 0, 1).messages[0]
        request = EndRequest("PG", got.physical_offset, 0, TransactionState.COMMIT)
        services.transactions.end(request)
        for _ in range(rounds):
            for told in services.iter_due():
                assert told.event not in ("stuck", "skipped", "dropped"), told
            services.save()
            assert isinstance(setup.clock, ManualClock)
            setup.clock.advance(MINUTE)
        services.close()
        return came(store, version)


def came(store: MessageStore, version: Version) -> Counter[tuple[str, str]]:
    found: Counter[tuple[str, str]] = Counter()
    store.dispatch_now()
    for topic in {topic for topic, _ in promised(version)}:
        for offset in range(store.reader.bounds(topic, 0).max_offset):
            record = store.reader.message_at(store.reader.get(topic, 0, offset, 1).messages[0].physical_offset)
            assert record is not None
            found[topic, record.raw_body.decode()] += 1
    return found


BOTH = pytest.mark.parametrize("version", [Version.V4_9, Version.V5_3])


@BOTH
def test_uncut_everything_comes_once(version: Version) -> None:
    disk = waiting_disk(version)
    assert live_on(disk, version) == dict.fromkeys(promised(version), 1)


def check_cut(version: Version, call: int) -> bool:
    """Cut at a call, go on, and judge; False when there are not so many calls."""
    disk = waiting_disk(version)
    disk.crash_at(call)
    try:
        live_on(disk, version)
    except Crash:
        for outcome in disk.iter_outcomes(2, seed=call):
            recover(setup_on(outcome, version, START + MINUTE))
            found = live_on(outcome, version)
            missing = promised(version) - found.keys()
            assert not missing, (call, missing)
            assert set(found) == promised(version)
        return True
    return False


@BOTH
@pytest.mark.parametrize("part", range(4))
def test_cut_at_some_calls_nothing_is_missing(version: Version, part: int) -> None:
    for call in range(3 + part * 9, 400, 41):
        if not check_cut(version, call):
            break


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize("part", range(PARTS))
def test_cut_at_every_call_nothing_is_missing(version: Version, part: int) -> None:
    call = 1 + part
    while check_cut(version, call):
        call += PARTS
    assert call > FEWEST_CALLS
