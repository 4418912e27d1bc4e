"""Stores of real brokers, gone on with: every queue where they left it; what only its own broker can keep is left."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtool.config import Origin, StoreConfig, Version
from rmqtool.engine.message import NewMessage
from rmqtool.engine.parts import Setup
from rmqtool.engine.store import MessageStore
from rmqtool.errors import Refused, RmqtoolError, StoreError
from rmqtool.files.posix_write import PosixWritableFileSystem
from rmqtool.formats.topics import LMQ_PREFIX, SCHEDULE_TOPIC, TIMER_TOPIC
from tests.conftest import Unpacker
from tests.support.replay import config_of
from tests.support.stores import STORES, left_alone, truth

# Units that lead to no record of theirs stand in its queues.
REFUSED = ("49-ghost",)
# Its own group alone: the log is a DLedger log.
FOREIGN = {"49-dledger": "DLedger"}
CLEAN = [name for name in STORES if truth(name)["clean_shutdown"] and name not in FOREIGN and name not in REFUSED]
# Messages to these get there on ways of their own.
_SPECIAL = (SCHEDULE_TOPIC, TIMER_TOPIC)


@pytest.mark.parametrize("name", CLEAN)
def test_every_queue_goes_on_where_the_real_broker_would(name: str, writable_store: Unpacker) -> None:
    root = writable_store(name)
    config = config_of(name, root)
    asked = 0
    with PosixWritableFileSystem(str(root)) as files, MessageStore.open(Setup(files, config)) as opened:
        for topic, queues in truth(name)["queues"].items():
            if topic in _SPECIAL or topic.startswith(LMQ_PREFIX):
                continue
            for queue_id, queue in queues.items():
                ticket = opened.put(NewMessage(topic, b"one more", int(queue_id)))
                assert (ticket.is_ok, ticket.queue_offset) == (True, queue["maxOffset"]), (topic, queue_id)
                asked += 1
        assert opened.condition().findings == ()
    assert asked >= 2


def refusal(root: Path, version: Version) -> RmqtoolError:
    """Return why a store is not opened, which leaves it as it was but for the lock."""
    (root / "lock").unlink(missing_ok=True)
    config = StoreConfig.default(version).with_values({"storePathRootDir": str(root)}, Origin.COMMAND_LINE)
    with PosixWritableFileSystem(str(root)) as files:
        files.lock().close()
        with left_alone(root), pytest.raises(RmqtoolError) as caught:
            MessageStore.open(Setup(files, config))
    return caught.value


@pytest.mark.parametrize("name", FOREIGN)
def test_what_only_its_own_broker_can_keep_is_left_to_it(name: str, writable_store: Unpacker) -> None:
    error = refusal(writable_store(name), Version(f"{name[0]}.{name[1]}"))
    assert isinstance(error, StoreError)
    assert FOREIGN[name] in error.message


@pytest.mark.parametrize("name", REFUSED)
def test_what_needs_recovery_is_left_to_it(name: str, writable_store: Unpacker) -> None:
    error = refusal(writable_store(name), Version.V4_9)
    assert isinstance(error, Refused)
    assert error.hint == "rmqtool repair STORE"


@pytest.mark.parametrize("name", ["49-multidir", "53-multidir"])
def test_a_log_elsewhere_is_not_guessed_for_writing(name: str, writable_store: Unpacker) -> None:
    """To read, what looks like the log is taken for it; to write, somebody must say where segments go."""
    root = writable_store(name)
    error = refusal(root, Version(f"{name[0]}.{name[1]}"))
    assert isinstance(error, Refused)
    assert error.hint is not None
    assert error.hint.startswith(f"use the broker's setting: --conf storePathCommitLog={root}/")


def test_what_a_broker_cut_off_does_not_come_back_behind_new_messages(writable_store: Unpacker) -> None:
    """upstream: the units behind the end count again as soon as the log has grown over the records they named."""
    name = "49-recovered"
    root = writable_store(name)
    config = config_of(name, root)
    with PosixWritableFileSystem(str(root)) as files:
        with MessageStore.open(Setup(files, config)) as opened:
            for number in range(40):
                assert opened.put(NewMessage("KillT", b"x" * 400, 0)).is_ok, number
        with MessageStore.open(Setup(files, config)) as opened:
            ends = {queue.key: queue.max_offset for queue in opened.queues()}
    for topic, queues in truth(name)["queues"].items():
        for queue_id, queue in queues.items():
            more = 40 if (topic, queue_id) == ("KillT", "0") else 0
            assert ends[topic, int(queue_id)] == queue["maxOffset"] + more
