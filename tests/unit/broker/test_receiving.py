"""What brokers add to what clients send, against what living brokers stored."""

from __future__ import annotations

import pytest

from rmqtool.broker.producer.send import as_received
from rmqtool.config import Version
from rmqtool.engine.message import NewMessage
from rmqtool.engine.put import Intake
from rmqtool.engine.store import MessageStore
from rmqtool.formats.commit_log import Message
from rmqtool.store.open import open_store
from tests.conftest import Unpacker
from tests.support.engine_stores import iter_records, small_setup
from tests.support.replay import config_of, iter_places

_ADDED = {"CLUSTER", "MSG_REGION", "TRACE_ON"}
# Re-put by the broker: not as a client sent it.
_MOVED = {"REAL_TOPIC", "RETRY_TOPIC", "TRAN_MSG", "DLQ_ORIGIN_TOPIC", "DELAY", "TIMER_OUT_MS", "PGROUP"}


@pytest.mark.parametrize(
    ("name", "least"), [("49-broker", 150), ("53-broker", 200), ("54-broker", 200), ("53-lmq", 15)]
)
def test_the_stored_text_is_the_brokers(name: str, least: int, store: Unpacker) -> None:
    config = config_of(name, store(name))
    is_4_9 = config.version is Version.V4_9
    setup = small_setup(config.version, mappedFileSizeCommitLog=1 << 20)
    expected = []
    with MessageStore.create(setup) as ours, open_store(str(store(name)), version=config.version) as theirs:
        for record in iter_places(theirs):
            if not isinstance(record, Message) or not _was_sent(record, is_4_9=is_4_9):
                continue
            sent = {key: value for key, value in record.properties.items() if key not in _ADDED}
            if is_4_9:
                sent["WAIT"] = "true"
            message = NewMessage(record.topic, b"x", 0, sent)
            assert ours.put(as_received(message, config, "not needed")).is_ok
            expected.append(record.raw_properties)
        assert [one.raw_properties for one in iter_records(setup.files)] == expected
    assert len(expected) >= least


def _was_sent(record: Message, *, is_4_9: bool) -> bool:
    properties = record.properties
    is_client = "CLUSTER" in properties and not _MOVED & properties.keys() and record.topic[:1] not in ("%", "r", "R")
    once = record.raw_properties.count(b"CLUSTER\x01") == 1
    # Records of a batch have two maps, one behind the other; WAIT shows them in 4.9.
    return (
        is_client
        and once
        and not record.sys_flag & 0xFC
        and ("WAIT" not in properties if is_4_9 else "WAIT" in properties)
        and "INNER_MULTI_DISPATCH" not in properties
    )


def test_5_x_gives_a_key_to_a_message_without_one() -> None:
    for version in Version:
        config = small_setup(version).config
        received = as_received(NewMessage("T", b"x"), config, "KEY")
        assert received.property_map().get("UNIQ_KEY") == (None if version is Version.V4_9 else "KEY")
    kept = as_received(NewMessage("T", b"x", 0, {"UNIQ_KEY": "own"}), small_setup().config, "KEY")
    assert kept.property_map()["UNIQ_KEY"] == "own"


def test_4_9_honours_that_a_sender_does_not_wait_but_does_not_store_it() -> None:
    setup = small_setup(Version.V4_9)
    received = as_received(NewMessage("T", b"x", 0, {"WAIT": "false"}), setup.config, "")
    with MessageStore.create(setup) as store:
        intake = Intake(store._engine.encoder)
        ticket = intake.accept(received, 1)
        assert not isinstance(ticket, str)
        assert not ticket.waits
        store.put(received)
        assert next(iter_records(setup.files)).raw_properties == b"CLUSTER\x01DefaultCluster"
