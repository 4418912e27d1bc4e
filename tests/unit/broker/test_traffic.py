"""What a broker tells its screen: topics, groups, rates since the look before."""

from __future__ import annotations

from pathlib import Path

import rmqtool
from rmqtool.broker.one_broker import Broker
from rmqtool.broker.traffic import Meter
from rmqtool.engine.message import NewMessage
from rmqtool.engine.parts import Setup
from rmqtool.engine.store import MessageStore
from rmqtool.files.posix_write import PosixWritableFileSystem
from tests.support.manual_clock import ManualClock

SMALL = {"mappedFileSizeCommitLog": str(1 << 20), "maxIndexNum": "1000", "maxHashSlotNum": "100"}


def test_rates_are_those_since_the_look_before(tmp_path: Path) -> None:
    root = tmp_path / "store"
    rmqtool.init(root, conf=SMALL)
    rmqtool.topic(root, "create", "Orders", queues=2)
    _, config = rmqtool.Store(root).located()
    clock = ManualClock()
    with PosixWritableFileSystem(str(root)) as files, MessageStore.open(Setup(files, config, clock)) as store:
        broker = Broker(store, (bytes([127, 0, 0, 1]), 10911))
        broker.add_own()
        meter = Meter(broker)
        assert meter.look()[:5] == (0, 0, 0, [], [])
        for number in range(6):
            store.put(NewMessage("Orders", b"x", queue_id=number % 2))
        store.dispatch_now()
        broker.counts.puts["Orders"] += 6
        broker.counts.gets["Orders", "billing"] += 4
        broker.offsets.commit_offset("billing", "Orders", 0, 1)
        clock.advance(2000)
        found = meter.look()
        assert (found.puts, found.gets, found.seconds) == (6, 4, 2.0)
        assert found.topics == [("Orders", 2, 6, 3.0, 2.0)]
        assert found.groups == [("billing", 0, 2, 2.0)]
        clock.advance(1000)
        assert [one[3:] for one in meter.look().topics] == [(0.0, 0.0)]
        broker.services.close()
