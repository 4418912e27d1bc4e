"""mqadmin of 5.3.3 at ``rmqtool serve``: some twenty commands print what was done there.

``test_mqadmin_screens`` compares all commands of three versions with what they print at a real broker.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest

import rmqtool
from tests.conformance.mqadmin_commands import run_commands
from tests.conformance.serving import serve

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(600)]

VERSION = "5.3.3"
TOPIC = "Orders"

# A command, and what it must print.
COMMANDS = {
    "clusterList": r"DefaultCluster +broker-a +0 +127\.0\.0\.1:\d+ +V5_3",
    "topicStatus -t Orders": r"broker-a +0 +0 +2 (.*\n)broker-a +1 +0 +2 .*\nbroker-a +2 +0 +2 .*\nbroker-a +3 +0 +2 ",
    "topicRoute -t Orders": r'"perm":6,\s+"readQueueNums":4,\s+"topicSysFlag":0,\s+"writeQueueNums":4',
    "topicList": r"(?m)^Orders$",
    "queryCq -t Orders -q 0 -i 0 -c 2 -b BROKER": r"max: 2, min: 0\n=+\nidx: 0\nConsumeQueueData\{.*tagsCode=65,",
    "haStatus -b BROKER": r"#MasterCommitLogMaxOffset\t\d{4}\n#SlaveNum\t0\n",
    "updateTopicList -b BROKER -f HOME/topics.json": r"submit batch of topic config to .* success",
    "updateSubGroupList -b BROKER -f HOME/groups.json": r"submit batch of group config to .* success",
    "getConsumerConfig -g ListedGroup": r"retryMaxTimes += +16",
    "wipeWritePerm -b broker-a": r"wipe write perm of broker\[broker-a\] in name server\[.*\] OK, \d\d",
    "addWritePerm -b broker-a": r"add write perm of broker\[broker-a\] in name server\[.*\] OK, \d\d",
    "getNamesrvConfig": r"returnOrderTopicConfigToBroker += +true",
    "setConsumeMode -b BROKER -t Orders -g Billing -m POP -q 8": r"consume mode\[POP\] popShareQueueNum\[8\]",
    "cleanExpiredCQ -b BROKER": r"^success",
    "cleanUnusedTopic -b BROKER": r"^success",
    "exportConfigs -c DefaultCluster -f HOME/configs": r"export .*configs.json success",
    "updateBrokerConfig -b BROKER -k fileReservedTime -v 48": r"CODE: 16 .*, and start it again",
    "updateTopic -b BROKER -t Typed -a +message.kind=FIFO": r"topics have no attribute message.kind",
    "brokerStatus -b BROKER": r"msgPutTotalTodayNow +: 8\n",
}
# They end with the remark of the broker.
REFUSED = ("updateBrokerConfig", "updateTopic -b BROKER -t Typed")


@pytest.fixture(scope="module")
def screens(real_classes: Callable[[str], None], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return what each command prints of eight messages in four queues."""
    real_classes(VERSION)
    home = tmp_path_factory.mktemp("mqadmin")
    (home / "topics.json").write_text('[{"topicName":"Listed","readQueueNums":2,"writeQueueNums":2,"perm":6}]')
    (home / "groups.json").write_text('[{"groupName":"ListedGroup"}]')
    settings = ("--conf", "brokerName=broker-a", "--allow", "admin")
    with serve(home, "--listen", "127.0.0.1:0", *settings) as names:
        with rmqtool.connect(f"rocketmq://{names}") as cluster:
            cluster.topic("create", TOPIC, queues=4)
            cluster.group("create", "Billing")
            with cluster.producer(group="P") as producer:
                for number in range(8):
                    assert producer.send(TOPIC, f"body {number}", keys=f"k{number}", tags="A").status == "PUT_OK"
        broker = json.loads((home / "events").read_text().splitlines()[0])["broker"]
        lines = [words.replace("BROKER", broker).replace("HOME", str(home)) for words in COMMANDS]
        return dict(zip(COMMANDS, run_commands(VERSION, home, names, lines), strict=True))


@pytest.mark.parametrize("words", COMMANDS)
def test_a_command_prints_what_is_there(screens: dict[str, str], words: str) -> None:
    printed = screens[words]
    assert re.search(COMMANDS[words], printed), printed
    assert "not supported" not in printed
    assert ("Exception" in printed) == (words.startswith(REFUSED))
