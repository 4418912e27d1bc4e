"""What waits in a store is taken over: by a real broker from us, by us from a real broker; each message comes once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from rmqtool.broker.services.tick import Services
from rmqtool.broker.services.transactions import TransactionState
from rmqtool.config import Origin, StoreConfig, Version
from rmqtool.engine.clock import SystemClock
from rmqtool.engine.message import NewMessage
from rmqtool.engine.parts import Setup
from rmqtool.engine.put import PutTicket
from rmqtool.engine.store import MessageStore
from rmqtool.files.posix_write import PosixWritableFileSystem
from rmqtool.formats.topics import PERM_READ, PERM_WRITE
from tests.conformance.oracle.runs import read_json, run_broker
from tests.support.manual_clock import ManualClock

pytestmark = pytest.mark.conformance

VERSIONS = {"4.9.7": Version.V4_9, "5.3.3": Version.V5_3}
SIZES: dict[str, object] = {
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": 6000,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
}
SETTINGS = {name: str(value) for name, value in SIZES.items()} | {
    "transactionCheckInterval": "4000",
    "transactionTimeOut": "1000",
}
OF_5: dict[str, object] = {
    "mapperFileSizeBatchConsumeQueue": 4600,
    "transactionOpBatchInterval": 500,
    "brokerName": "broker-a",
    "popFromRetryProbability": 0,
}
EACH = 5
HOUR = 3_600_000
# The topic to which what group p popped of topic P comes back, and for how long that is out of sight.
POP_RETRIES, INVISIBLE = "%RETRY%p_P", 4000


class Lab:
    """A store that is ours, open with its services."""

    def __init__(self, root: Path, version: Version, clock: SystemClock | ManualClock) -> None:
        values = {**SIZES, "storePathRootDir": str(root)} | ({} if version is Version.V4_9 else OF_5)
        config = StoreConfig.default(version).with_values(values, Origin.COMMAND_LINE)
        self.stack = ExitStack()
        files = self.stack.enter_context(PosixWritableFileSystem(str(root)))
        setup = Setup(files, config, clock)
        is_new = not (root / "commitlog").exists()
        self.store = self.stack.enter_context(MessageStore.create(setup) if is_new else MessageStore.open(setup))
        self.services = Services(self.store)

    def close(self) -> None:
        self.services.save()
        self.services.close()
        self.stack.close()

    def put(self, topic: str, body: str, **properties: str) -> PutTicket:
        ticket = self.store.put(NewMessage(topic, body.encode(), 0, {"WAIT": "true", "KEYS": body, **properties}))
        assert ticket.is_ok, ticket.status
        return ticket


def lay(root: Path, version: Version) -> Counter[str]:
    """Make a store in which things wait, and return the keys of what has to come."""
    lab = Lab(root, version, SystemClock())
    for topic in ("T", "R"):
        lab.services.topics.ensure(topic, 1, PERM_READ | PERM_WRITE)
    expected = []
    for number in range(EACH):
        lab.put("T", f"delayed-{number}", DELAY="1")
        half = NewMessage("T", b"half", 0, {"WAIT": "true", "PGROUP": "pg", "KEYS": f"half-{number}"})
        assert isinstance(lab.services.transactions.prepare(half), PutTicket)
        if version is not Version.V4_9:
            lab.put("T", f"timer-{number}", TIMER_DELAY_MS=str(6000 + 1000 * number), UNIQ_KEY=f"u{number}")
            lab.store.dispatch_now()
            if number < 3:
                # These are in the wheel, the others only in its topic.
                list(lab.services.timers.iter_enqueue())
        failed = lab.put("R", f"retry-{number}")
        record = lab.store.reader.message_at(failed.physical_offset)
        assert record is not None
        assert lab.services.retry.send_back("g", record, 1) is not None
        kinds = ("delayed", "half", "retry") + (() if version is Version.V4_9 else ("timer",))
        expected += [f"{kind}-{number}" for kind in kinds]
    lab.services.offsets.commit_offset("g", "R", 0, EACH)
    if version is not Version.V4_9:
        expected += lay_pops(lab)
    lab.close()
    return Counter(expected)


def lay_pops(lab: Lab) -> list[str]:
    """Pop messages and ack every other one; return the keys of those that must come back."""
    for topic in ("P", POP_RETRIES):
        lab.services.topics.ensure(topic, 1, PERM_READ | PERM_WRITE)
    for number in range(2 * EACH):
        lab.put("P", f"popped-{number}")
    lab.store.dispatch_now()
    popped = lab.services.pops.pop("p", "P", [0], 2 * EACH, INVISIBLE)
    assert len(popped) == 2 * EACH
    for one in popped[::2]:
        assert lab.services.pops.ack("p", "P", one.receipt).is_ok
    return [one.record.keys or "" for one in popped[1::2]]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_real_broker_delivers_what_waits_in_our_store(
    version: str, real_classes: Callable[[str], None], tmp_path: Path
) -> None:
    real_classes(version)
    root, out, asked = tmp_path / "store", tmp_path / "out.json", tmp_path / "clients.json"
    root.mkdir()
    expected = lay(root, VERSIONS[version])
    clients: list[dict[str, Any]] = [
        {"consume": {"group": "g1", "topic": "T", "from": "first"}},
        {"consume": {"group": "g", "topic": "R", "from": "first"}},
        {"produce": {"topic": "T", "count": 0, "group": "pg", "transaction": "commit"}},
    ]
    if version != "4.9.7":
        clients.append({"consume": {"group": "reader", "topic": POP_RETRIES, "from": "first"}})
    asked.write_text(json.dumps(clients))
    settings = SETTINGS | ({} if version == "4.9.7" else {name: str(value) for name, value in OF_5.items()})
    assert run_broker(version, root, out, 20, clients=asked, settings=settings) == 0
    answer = read_json(out)
    got = Counter(message["keys"] for client in answer["clients"] for message in client.get("messages", ()))
    assert got == expected


@pytest.mark.parametrize("version", VERSIONS)
def test_we_deliver_what_waits_in_the_store_of_a_real_broker(
    version: str, real_classes: Callable[[str], None], tmp_path: Path
) -> None:
    real_classes(version)
    root, out, asked, kept = tmp_path / "store", tmp_path / "out.json", tmp_path / "clients.json", tmp_path / "kept"
    root.mkdir()
    lab = Lab(root, VERSIONS[version], SystemClock())
    lab.services.topics.ensure("T", 1, PERM_READ | PERM_WRITE)
    lab.services.topics.ensure("F", 1, PERM_READ | PERM_WRITE)
    lab.put("F", "failing")
    if version != "4.9.7":
        lab.services.topics.ensure("P", 1, PERM_READ | PERM_WRITE)
        for number in range(EACH):
            lab.put("P", f"popped-{number}")
    lab.close()
    clients: list[dict[str, Any]] = [
        {"produce": {"topic": "T", "count": EACH, "keys": True, "delayLevel": 6}},
        {"produce": {"topic": "T", "count": EACH, "keys": True, "transaction": "unknown-forever", "group": "pg"}},
        {"consume": {"group": "g", "topic": "F", "from": "first", "failEach": 99, "level": 6}},
    ]
    if version != "4.9.7":
        clients.append({"produce": {"topic": "T", "count": EACH, "keys": True, "deliverInMs": 600_000}})
        clients.append({"consume": {"group": "p", "topic": "P", "from": "first", "failEach": 99, "pop": True}})
    asked.write_text(json.dumps(clients))
    settings = (
        SETTINGS
        | ({} if version == "4.9.7" else {name: str(value) for name, value in OF_5.items()})
        | {"transactionCheckInterval": "600000"}
    )
    assert run_broker(version, root, out, 8, clients=asked, keep=kept, settings=settings) == 0
    clock = ManualClock(SystemClock().now() + HOUR)
    lab = Lab(kept, VERSIONS[version], clock)
    lab.services.check.producer = lambda _half: TransactionState.COMMIT
    for _ in range(3):
        for happened in lab.services.iter_due():
            assert happened.event not in ("stuck", "skipped", "dropped"), happened
        clock.advance(HOUR)
    lab.store.dispatch_now()
    keys: Counter[str | None] = Counter()
    for topic in ("T", "%RETRY%g", POP_RETRIES):
        for offset in range(lab.store.reader.bounds(topic, 0).max_offset):
            (got,) = lab.store.reader.get(topic, 0, offset, 1).messages
            record = lab.store.reader.message_at(got.physical_offset)
            assert record is not None
            keys[record.keys] += 1
    lab.close()
    sent = [0, 1] if version == "4.9.7" else [0, 1, 3]
    popped = [] if version == "4.9.7" else [f"popped-{number}" for number in range(EACH)]
    assert keys == Counter(["failing", *popped, *(f"key-{place}-{number}" for place in sent for number in range(EACH))])
