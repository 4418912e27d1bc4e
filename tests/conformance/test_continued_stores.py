"""Stores of real brokers, recovered and gone on with by the engine: the real classes read old and new whole."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqtool.config import Version
from rmqtool.engine.message import NewMessage
from rmqtool.engine.recovery.recover import recover
from rmqtool.engine.store import MessageStore
from rmqtool.formats.topics import LMQ_PREFIX, SCHEDULE_TOPIC, TIMER_TOPIC
from tests.conformance.oracle.runs import read_json
from tests.conformance.oracle.runs import truth as ask
from tests.support.recovered import setup_for
from tests.support.stores import FIXTURES, STORES, truth

pytestmark = pytest.mark.conformance
READ_BY = {"49": (Version.V4_9, "4.9.8"), "53": (Version.V5_3, "5.3.3"), "54": (Version.V5_4, "5.4.0")}
# Only its own group may write it; and logs in places that the oracle is told otherwise.
LEFT_OUT = ("49-dledger", "49-multidir", "53-multidir")
# Messages to these get there on ways of their own.
SPECIAL = (SCHEDULE_TOPIC, TIMER_TOPIC)


@pytest.mark.parametrize("name", [name for name in STORES if name not in LEFT_OUT])
def test_the_real_classes_read_old_and_new(
    name: str, real_classes: Callable[[str], None], writable_store: Callable[[str], Path], tmp_path: Path
) -> None:
    version, reader = READ_BY[name[:2]]
    real_classes(reader)
    root, out = writable_store(name), tmp_path / "out.json"
    told = truth(name).get("after_recovery") or truth(name)
    recover(setup_for(root, version))
    new: dict[int, tuple[str, int, int]] = {}
    with MessageStore.open(setup_for(root, version)) as store:
        for queue in store.queues():
            topic, queue_id = queue.key
            if topic in SPECIAL or topic.startswith(LMQ_PREFIX) or type(queue).__name__ == "BatchConsumeQueue":
                continue
            ticket = store.put(NewMessage(topic, b"one more of " + topic.encode(), queue_id, {"KEYS": "new"}))
            assert ticket.is_ok
            new[ticket.physical_offset] = (topic, queue_id, ticket.queue_offset)
    assert new
    status = ask(reader, root, out, config=FIXTURES / f"{name}.truth.json.xz")
    answer: dict[str, Any] = read_json(out)
    assert status == 0, answer.get("error")
    read = {message["commitLogOffset"]: message for message in answer["messages"]}
    old = {message["commitLogOffset"]: message for message in truth(name)["messages"]}
    end = min(new)
    for place, message in old.items():
        if place < end:
            assert read[place]["storedBodySha256"] == message["storedBodySha256"]
    for place, (topic, queue_id, queue_offset) in new.items():
        body = hashlib.sha256(b"one more of " + topic.encode()).hexdigest()
        found = read[place]
        assert (found["topic"], found["queueId"], found["queueOffset"]) == (topic, queue_id, queue_offset)
        assert found["storedBodySha256"] == body
        assert answer["queues"][topic][str(queue_id)]["maxOffset"] == queue_offset + 1
    assert len(told["queues"]) <= len(answer["queues"])
