"""mqadmin of 5.3.3 at ``rmqtool serve``: twelve commands print what was done there."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import rmqtool
from tests.conformance.live_cluster import java
from tests.conformance.oracle.packages import prepare
from tests.conformance.serving import serve

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(600)]

VERSION = "5.3.3"
TOPIC = "Orders"


class Site(NamedTuple):
    """A server with eight messages in four queues, and where its parts are."""

    names: str
    broker: str
    home: Path

    def admin(self, *words: str) -> str:
        """Run a command of mqadmin and return what it prints."""
        words = tuple(word.replace("BROKER", self.broker).replace("HOME", str(self.home)) for word in words)
        program = "org.apache.rocketmq.tools.command.MQAdminStartup"
        command = java(VERSION, self.home, program, *words, "-n", self.names)
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def site(real_classes: Callable[[str], None], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    real_classes(VERSION)
    home = tmp_path_factory.mktemp("mqadmin")
    (home / "conf").mkdir()
    shutil.copy(prepare(VERSION) / "logback.xml", home / "conf" / "logback_tools.xml")
    (home / "topics.json").write_text('[{"topicName":"Listed","readQueueNums":2,"writeQueueNums":2,"perm":6}]')
    settings = ("--conf", "brokerName=broker-a", "--allow", "admin")
    with serve(home, "--listen", "127.0.0.1:0", *settings) as names:
        with rmqtool.connect(f"rocketmq://{names}") as cluster:
            cluster.topic("create", TOPIC, queues=4)
            cluster.group("create", "Billing")
            with cluster.producer(group="P") as producer:
                for number in range(8):
                    assert producer.send(TOPIC, f"body {number}", keys=f"k{number}", tags="A").status == "PUT_OK"
        ready = json.loads((home / "events").read_text().splitlines()[0])
        yield Site(names, ready["broker"], home)


# A command, and what it must print.
COMMANDS = {
    "clusterList": r"DefaultCluster +broker-a +0 +127\.0\.0\.1:\d+ +V5_3",
    "topicStatus -t Orders": r"broker-a +0 +0 +2 (.*\n)broker-a +1 +0 +2 .*\nbroker-a +2 +0 +2 .*\nbroker-a +3 +0 +2 ",
    "topicRoute -t Orders": r'"perm":6,\s+"readQueueNums":4,\s+"topicSysFlag":0,\s+"writeQueueNums":4',
    "topicList": r"(?m)^Orders$",
    "queryCq -t Orders -q 0 -i 0 -c 2 -b BROKER": r"max: 2, min: 0\n=+\nidx: 0\nConsumeQueueData\{.*tagsCode=65,",
    "haStatus -b BROKER": r"#MasterCommitLogMaxOffset\t\d{4}\n#SlaveNum\t0\n",
    "updateTopicList -b BROKER -f HOME/topics.json": r"submit batch of topic config to .* success",
    "wipeWritePerm -b broker-a": r"wipe write perm of broker\[broker-a\] in name server\[.*\] OK, \d\d",
    "addWritePerm -b broker-a": r"add write perm of broker\[broker-a\] in name server\[.*\] OK, \d\d",
    "getNamesrvConfig": r"returnOrderTopicConfigToBroker += +true",
    "setConsumeMode -b BROKER -t Orders -g Billing -m POP -q 8": r"consume mode\[POP\] popShareQueueNum\[8\]",
    "cleanExpiredCQ -b BROKER": r"^success",
    "brokerStatus -b BROKER": r"msgPutTotalTodayNow +: 8\n",
}


@pytest.mark.parametrize("words", COMMANDS)
def test_a_command_prints_what_is_there(site: Site, words: str) -> None:
    printed = site.admin(*words.split())
    assert re.search(COMMANDS[words], printed), printed
    assert "not supported" not in printed
    assert "Exception" not in printed
