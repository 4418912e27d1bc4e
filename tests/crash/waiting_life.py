"""A life of a store in which everything waits, on whatever files: how it is laid, lived, and what has to come."""

from __future__ import annotations

from collections import Counter

from rmqtool.broker.services.tick import Services
from rmqtool.broker.services.transactions import EndRequest, TransactionState
from rmqtool.config import FlushDiskType, Version
from rmqtool.engine.message import NewMessage
from rmqtool.engine.parts import Setup
from rmqtool.engine.put import PutTicket
from rmqtool.engine.store import MessageStore
from rmqtool.files.filesystem import WritableFileSystem
from tests.support.engine_stores import small_setup
from tests.support.manual_clock import START, ManualClock

MINUTE = 60_000
SETTINGS = {
    "flushDiskType": FlushDiskType.SYNC_FLUSH,
    "mappedFileSizeCommitLog": 1 << 14,
    "mappedFileSizeTimerLog": 600,
}
# What has to come, where.
PROMISED = {
    "T": {"delayed-0", "delayed-1", "committed", "checked"},
    "%RETRY%g": {"failed"},
}
OF_5 = {"T": {"timer-0", "timer-1"}, "%RETRY%p_P": {"popped-1"}}


def promised(version: Version) -> set[tuple[str, str]]:
    """Return the topics and bodies of all that has to come."""
    found = {(topic, body) for topic, bodies in PROMISED.items() for body in bodies}
    if version is not Version.V4_9:
        found |= {(topic, body) for topic, bodies in OF_5.items() for body in bodies}
    return found


def setup_on(files: WritableFileSystem, version: Version, now: int = START + MINUTE) -> Setup:
    """Return what a store is opened with at some time, the one at which everything is due."""
    made = small_setup(version, files, **SETTINGS)
    return Setup(made.files, made.config, ManualClock(now))


def services_of(store: MessageStore) -> Services:
    """Return the services of a store, with a producer that commits whatever it is asked about."""
    services = Services(store)
    services.check.producer = lambda _half: TransactionState.COMMIT
    return services


def lay(files: WritableFileSystem, version: Version) -> None:
    """Make a store in which everything waits for a minute later."""
    setup = setup_on(files, version, START)
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


def live_on(files: WritableFileSystem, version: Version, rounds: int = 4) -> Counter[tuple[str, str]]:
    """Run the services minute after minute; return how often each message came."""
    setup = setup_on(files, version)
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
    """Return how often each message came."""
    found: Counter[tuple[str, str]] = Counter()
    store.dispatch_now()
    for topic in {topic for topic, _ in promised(version)}:
        for offset in range(store.reader.bounds(topic, 0).max_offset):
            messages = store.reader.get(topic, 0, offset, 1).messages
            # A power cut may take a message that nobody was promised, and leave the one after it.
            if messages and messages[0].queue_offset == offset:
                record = store.reader.message_at(messages[0].physical_offset)
                assert record is not None
                found[topic, record.raw_body.decode()] += 1
    return found
