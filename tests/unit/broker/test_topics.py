"""Topics: what exists, what may be made, and the bytes of topics.json."""

from __future__ import annotations

import json

import pytest

from rmqtool.broker.topics import TopicConfigs, parse_perm, spell_perm
from rmqtool.config import Version
from rmqtool.errors import NotFound, Refused, StoreError, UsageError
from rmqtool.formats.paths import TOPICS
from rmqtool.store.config_files import config_text
from tests.support.faulty import FaultyFileSystem
from tests.support.faulty_disk import FaultyDisk
from tests.support.manual_clock import ManualClock

MODEL = {
    "order": False,
    "perm": 7,
    "readQueueNums": 8,
    "topicFilterType": "SINGLE_TAG",
    "topicName": "TBW102",
    "topicSysFlag": 0,
    "writeQueueNums": 8,
}


def topics(version=Version.V5_3, table=None):
    files = FaultyFileSystem(FaultyDisk())
    text = config_text(files, TOPICS)
    if table is not None:
        text.write(json.dumps({"dataVersion": {"counter": 3, "timestamp": 5}, "topicConfigTable": table}).encode())
    return TopicConfigs(text, version, ManualClock()), text


def stored(text):
    return json.loads(text.read_copies()[0][1])


@pytest.mark.parametrize("name", ["49-broker", "53-broker", "54-broker"])
def test_what_a_broker_wrote_is_written_back_byte_for_byte(name, store):
    data = (store(name) / "config/topics.json").read_bytes()
    text = config_text(FaultyFileSystem(FaultyDisk()), TOPICS)
    text.write(data)
    configs = TopicConfigs(text, {"49": Version.V4_9, "53": Version.V5_3, "54": Version.V5_4}[name[:2]], ManualClock())
    assert configs.encode() == data


def test_a_new_topic_has_its_queues_and_stands_in_the_file():
    configs, text = topics(table={"TBW102": MODEL})
    configs.create("Orders", readQueueNums=4, writeQueueNums=4)
    configs.save()
    found = stored(text)
    assert found["topicConfigTable"]["Orders"] == {
        "attributes": {},
        "order": False,
        "perm": 6,
        "readQueueNums": 4,
        "topicFilterType": "SINGLE_TAG",
        "topicName": "Orders",
        "topicSysFlag": 0,
        "writeQueueNums": 4,
    }
    assert found["topicConfigTable"]["TBW102"] == MODEL
    assert found["dataVersion"]["counter"] == 4


def test_a_topic_of_4_9_has_no_attributes():
    configs, _ = topics(Version.V4_9)
    assert "attributes" not in configs.create("Orders")
    with pytest.raises(UsageError, match="no attributes"):
        configs.alter("Orders", attributes={"message.type": "FIFO"})


@pytest.mark.parametrize(
    "attributes",
    [{"message.kind": "FIFO"}, {"message.type": "Fifo"}, {"reserve.time": "-2"}, {"reserve.time": "long"}],
)
def test_attributes_that_brokers_refuse(attributes):
    configs, _ = topics()
    with pytest.raises(UsageError, match=next(iter(attributes))):
        configs.create("Orders", attributes=attributes)
    assert configs.find("Orders") is None
    assert configs.create("Orders", attributes={"reserve.time": "-1"})["attributes"] == {"reserve.time": "-1"}


def test_what_decides_the_files_of_a_topic_cannot_be_changed():
    configs, _ = topics()
    configs.create("Orders", attributes={"cleanup.policy": "DELETE"})
    assert configs.alter("Orders", attributes={"cleanup.policy": "DELETE"})["attributes"] == {
        "cleanup.policy": "DELETE"
    }
    for attributes in ({"cleanup.policy": "COMPACTION"}, {"cleanup.policy": ""}, {"queue.type": "BatchCQ"}):
        with pytest.raises(Refused, match="cannot be changed"):
            configs.alter("Orders", attributes=attributes)


def test_settings_are_changed_and_an_empty_attribute_goes():
    configs, _ = topics()
    configs.create("Orders", attributes={"message.type": "FIFO", "cleanup.policy": "DELETE"})
    changed = configs.alter("Orders", perm=parse_perm("r"), attributes={"message.type": ""})
    assert (changed["perm"], changed["attributes"], changed["readQueueNums"]) == (4, {"cleanup.policy": "DELETE"}, 8)


def test_what_is_not_there_or_is_there_already_is_refused():
    configs, _ = topics(table={"TBW102": MODEL})
    configs.create("Orders")
    with pytest.raises(Refused, match="already"):
        configs.create("Orders")
    with pytest.raises(NotFound, match="no topic Order"):
        configs.alter("Order", perm=6)
    with pytest.raises(NotFound):
        configs.delete("Order")
    with pytest.raises(Refused, match="broker's own"):
        configs.delete("TBW102")
    with pytest.raises(Refused, match="broker's own"):
        configs.create("SCHEDULE_TOPIC_XXXX")
    with pytest.raises(UsageError, match="characters other than"):
        configs.create("a b")
    with pytest.raises(UsageError, match="cannot have 0 queues"):
        configs.create("None", readQueueNums=0)


def test_sending_makes_a_topic_after_its_model():
    configs, _ = topics(table={"TBW102": MODEL, "Closed": {**MODEL, "perm": 6, "topicName": "Closed"}})
    made = configs.auto_create("New", "TBW102", 4)
    assert made is not None
    assert (made["readQueueNums"], made["writeQueueNums"], made["perm"]) == (4, 4, 6)
    many = configs.auto_create("Many", "TBW102", 100)
    assert many is not None
    assert many["writeQueueNums"] == 8
    assert configs.auto_create("Other", "Closed", 4) is None
    assert configs.auto_create("Other", "Nowhere", 4) is None
    assert configs.auto_create("New", "TBW102", 1) is made


def test_a_file_that_does_not_parse_is_not_overwritten():
    text = config_text(FaultyFileSystem(FaultyDisk()), TOPICS)
    text.write(b'{"topicConfigTable":{')
    with pytest.raises(StoreError, match=r"topics\.json"):
        TopicConfigs(text, Version.V5_3, ManualClock())


@pytest.mark.parametrize(("text", "perm"), [("rw", 6), ("r", 4), ("w", 2), ("-", 0), ("6", 6)])
def test_permissions(text, perm):
    assert parse_perm(text) == perm
    assert parse_perm(spell_perm(perm)) == perm


@pytest.mark.parametrize("text", ["", "x", "rr", "8", "-w"])
def test_what_is_no_permission(text):
    with pytest.raises(UsageError):
        parse_perm(text)
