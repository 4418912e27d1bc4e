"""Runs mqadmin in one process; lines for it: a history, and what is shown of it; and how two screens are compared.

A line that begins with ``4`` or ``5`` is for that generation of mqadmin. BROKER, HOME and the ids are filled in.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from tests.conformance.client_programs import java_program

HISTORY = """
updateTopic -c DefaultCluster -t Orders -r 4 -w 4
updateTopic -b BROKER -t Bills -r 2 -w 2 -p 6
updateTopic -b BROKER -t RMQ_SYS_TRANS_HALF_TOPIC
updateSubGroup -c DefaultCluster -g Billing
updateSubGroup -b BROKER -g Other -r 3 -d false
#route Orders
#route Bills
#send Orders 0 k0 A body0
#send Orders 1 k1 B body1
#send Orders 2 k2 A body2
#send Orders 3 k3 C body3
#send Orders 0 k4 A body4
#send Bills 0 k5 A body5
#consume Billing Orders 5
#pause 11
statsAll -t Orders
statsAll
statsAll -a
"""
SCREENS = """
clusterList
clusterList -m
brokerStatus -b BROKER
brokerStatus -c DefaultCluster
topicList
topicList -c
topicClusterList -t Orders
topicClusterList -t Missing
topicRoute -t Orders
5 topicRoute -t Orders -l
topicRoute -t Missing
topicStatus -t Orders
topicStatus -t Missing
updateTopicPerm -c DefaultCluster -t Orders -p 4
topicRoute -t Orders
updateTopicPerm -b BROKER -t Orders -p 6
allocateMQ -t Orders -i 10.0.0.1,10.0.0.2,10.0.0.3
checkMsgSendRT -t Bills -a 3 -s 10
sendMsgStatus -b broker-a -c 2 -s 10
sendMessage -t Bills -p hello -k kk -c TagA -b broker-a -i 0
sendMessage -t Bills -p hello -b broker-a -i 1
queryMsgByKey -t Orders -k k1
queryMsgByKey -t Orders -k nothing
queryMsgByUniqueKey -t Orders -i {id:k1}
queryMsgByUniqueKey -t Orders -i {id:k1} -a
queryMsgByUniqueKey -t Orders -i 7F0000010001000000000000000000000000
queryMsgByUniqueKey -t Orders -i {id:k1} -g Billing -d 127.0.0.1@member
5 queryMsgById -t Orders -i {offsetId:k1}
4 queryMsgById -i {offsetId:k1}
5 queryMsgById -t Orders -i 7F00000100002A9F0000000000999999
4 queryMsgById -i 7F00000100002A9F0000000000999999
queryMsgByOffset -t Orders -b broker-a -i 1 -o 0
queryMsgByOffset -t Orders -b broker-a -i 1 -o 99
queryMsgTraceById -i {id:k1}
queryCq -t Orders -q 0 -i 0 -c 2 -b BROKER
queryCq -t Orders -q 0 -i 0 -c 2 -b BROKER -g Billing
queryCq -t Orders -q 0 -i 9 -c 2 -b BROKER
queryCq -t Missing -q 0 -i 0 -c 2 -b BROKER
consumeMessage -t Orders
consumeMessage -t Orders -b broker-a -i 0 -o 1 -c 1
printMsg -t Orders
printMsg -t Orders -s A -d false
printMsgByQueue -t Orders -a broker-a -i 0 -p true -d true -f true
producerConnection -g Sellers -t Orders
producerConnection -g Nobody -t Orders
producer -b BROKER
consumerConnection -g Billing
5 consumerConnection -g Billing -b BROKER
consumerConnection -g Nobody
consumerProgress
consumerProgress -g Billing
5 consumerProgress -g Billing -t Orders
consumerProgress -g Billing -s true
consumerProgress -g Nobody
consumerStatus -g Billing -i 127.0.0.1@member
consumerStatus -g Nobody
#status Billing Orders
#timespan Billing Orders
brokerConsumeStats -b BROKER
brokerConsumeStats -b BROKER -o true
getConsumerConfig -g Billing
getConsumerConfig -g Missing
getNamesrvConfig
getBrokerConfig -b BROKER
5 haStatus -b BROKER
5 haStatus -c DefaultCluster
5 getColdDataFlowCtrInfo -b BROKER
exportMetadata -c DefaultCluster -f HOME/exported
#show HOME/exported
exportMetadata -b BROKER -t -f HOME/topics
#show HOME/topics
exportMetadata -b BROKER -g -f HOME/groups
#show HOME/groups
exportConfigs -c DefaultCluster -f HOME/configs
#show HOME/configs
exportMetrics -c DefaultCluster -f HOME/metrics
#show HOME/metrics
"""
CHANGES = """
cloneGroupOffset -s Billing -d Other -t Orders
5 cloneGroupOffset -s Billing -d Unknown -t Orders
consumerProgress -g Other
resetOffsetByTime -g Other -t Orders -s 0
resetOffsetByTime -g Other -t Orders -s now -f true
5 resetOffsetByTime -g Billing -t Orders -s 0
resetOffsetByTime -g Nobody -t Missing -s 0
skipAccumulatedMessage -g Other -t Orders
5 setConsumeMode -b BROKER -t Orders -g Billing -m POP -q 8
5 setConsumeMode -c DefaultCluster -t Orders -g Billing -m PULL
updateKvConfig -s ns -k key -v value
deleteKvConfig -s ns -k key
deleteKvConfig -s ns -k missing
updateOrderConf -t Bills -m put -v broker-a:2
updateOrderConf -t Bills -m get
topicRoute -t Bills
updateOrderConf -t Bills -m delete
updateOrderConf -t Bills -m get
updateTopic -c DefaultCluster -t Sorted -o true -r 2 -w 2
topicRoute -t Sorted
wipeWritePerm -b broker-a
topicRoute -t Bills
addWritePerm -b broker-a
topicRoute -t Bills
wipeWritePerm -b missing
updateNamesrvConfig -k orderMessageEnable -v true
updateBrokerConfig -b BROKER -k fileReservedTime -v 48
cleanExpiredCQ -b BROKER
cleanExpiredCQ
deleteExpiredCommitLog -b BROKER
5 setCommitLogReadAheadMode -b BROKER -m 1
5 updateTopicList -b BROKER -f HOME/topics.json
5 updateSubGroupList -b BROKER -f HOME/groups.json
5 updateTopic -b BROKER -t Typed -r 1 -w 1 -a +message.type=FIFO
5 topicRoute -t Listed
cleanUnusedTopic -b BROKER
deleteSubGroup -c DefaultCluster -g Other
deleteSubGroup -b BROKER -g Nobody -r true
deleteTopic -c DefaultCluster -t Bills
deleteTopic -c DefaultCluster -t SCHEDULE_TOPIC_XXXX
deleteTopic -c DefaultCluster -t Missing
topicStatus -t Bills
topicRoute -t Bills
topicList
consumerProgress
#leave Billing
consumerConnection -g Billing
consumerProgress
updateTopic -b BROKER -t Refused -r 1 -w 1
#route Refused
#send Refused 0 r0 A refused0
#refuse Refusing Refused 1
#pause 11
statsAll -t Refused
consumerProgress -g Refusing
consumerProgress
topicList
topicStatus -t %RETRY%Refusing
"""


def lines_for(tools: str) -> list[str]:
    """Return the lines for a version of mqadmin."""
    lines = f"{HISTORY}{SCREENS}{CHANGES}".split("\n")
    other = {"4": "5 ", "5": "4 "}[tools[0]]
    return [re.sub(r"^[45] ", "", line) for line in lines if line and not line.startswith(other)]


def run_commands(tools: str, home: Path, names: str, lines: Iterable[str]) -> list[str]:
    """Run commands of mqadmin, and lines of its own, with a name server; return what each printed."""
    (home / "conf").mkdir(parents=True, exist_ok=True)
    (home / "conf" / "logback_tools.xml").write_text("<configuration><root level='OFF'/></configuration>")
    own = (f"-Drocketmq.home.dir={home}", f"-Djava.io.tmpdir={home}", "-Duser.timezone=UTC")
    command, _ = java_program("AdminCommands", tools, home, "-Xmx512m", "-XX:+UseSerialGC", *own)
    done = subprocess.run(
        [*command, names], input="".join("\t".join(line.split()) + "\n" for line in lines), text=True,
        capture_output=True, cwd=home, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line)["out"] for line in done.stdout.splitlines()]


# What differs between two runs of the same history, and the text that stands for it.
_MASKS = (
    (r"(?m)^\s+(at |\.\.\. \d+ more).*\n", ""),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(,\d+)?", "TIME"),
    (r"\b(20\d{12,15}|1[78]\d{11})\b", "TIME"),
    # Offset ids have the address of the broker, which is the same.
    (r"\b(?!7F00000100002A9F)[0-9A-F]{32}\b", "ID"),
    (r"(?<=127\.0\.0\.1:)(?!10911\b|9876\b|10909\b)\d{4,5}\b", "PORT"),
    (r"@[0-9a-f]{6,8}\b|\$\$Lambda\S+", "@OBJECT"),
    (r"\b\d+\.\d+(E-?\d+)?(?!\.)\b", "NUMBER"),
    (r"(rt=|spentTimeMills=|counter\W+|cachedMsg\w+=|last\w+=)\d+", r"\1NUMBER"),
    (r"(?m)^(broker-a +\d+ +true +)\d+$", r"\1NUMBER"),
    (r"V[45]_\d(_\d)?|(?<=ersion=)\d{3}|(?<=TPS: )\d+", "VERSION"),
    (r"/\S*/(real|ours|cluster|served)\b|/tmp/rmqtool-\w+", "HOME"),
)
# Brokers of 5.x name a topic among the groups that consume it: a group of its name, which does not exist.
_ITSELF = re.compile(r"(?:DefaultCluster +)?(\w+) +\1( .*)?")
# A client looks for its empty retry queue every 30 seconds, and commits in it 15 seconds later.
_RETRY = re.compile(r"%RETRY%Billing broker-a 0 .*")
# The producer of sendMsgStatus, an earlier command: whether its connection is closed by now depends on time.
_PAST = re.compile(r".*clientId=\S+SMSC_.*")
_ITS_TRACK = r"(?s)MessageTrack \[consumerGroup=Orders, trackType=UNKNOWN, .*?RETRY%Orders.*?\)\]\s*"


def masked(text: str) -> list[str]:
    """Return the lines of a screen without what a run decides; in the order of their text, for tables have none."""
    text = re.sub(_ITS_TRACK, "", text)
    for pattern, placeholder in _MASKS:
        text = re.sub(pattern, placeholder, text)
    lines = (" ".join(line.split()) for line in text.splitlines())
    free = (_ITSELF, _RETRY, _PAST)
    return sorted(line for line in lines if line and not any(one.fullmatch(line) for one in free))


# Screens of names and values. Brokers show hundreds of settings and states of threads that serve does not have. What
# both show is the same, but for those named here, and there are at least so many.
TABLES = {
    "brokerStatus": "brokerVersion brokerVersionDesc runtime commitLogDirCapacity commitLogDiskRatio "
    "consumeQueueDiskRatio putTps getTransferedTps getTransferredTps putMessageAverageSize timerReadBehind "
    "earliestMessageTimeStamp remainHowManyDataToFlush",
    "getBrokerConfig": "storePathRootDir storePathCommitLog maxHashSlotNum maxIndexNum enablePropertyFilter",
    "getNamesrvConfig": "",
}
TABLE_SIZES = {"brokerStatus": 20, "getBrokerConfig": 40, "getNamesrvConfig": 1}
# Commands that are meant to have another outcome: the version that does, what is printed instead, and why.
INTENDED: Mapping[str, tuple[str, str]] = {
    "updateBrokerConfig": ("CODE: 16 .* start it again", "a start reads the settings, and nothing reads them again"),
    "updateNamesrvConfig": ("CODE: 16 .* has no settings that can be changed", "as above"),
    "setCommitLogReadAheadMode": ("request type 2004 not supported", "nothing is read ahead"),
    "queryCq -t Orders -q 0 -i 9": ("max: 2, min: 0", "5.x has a NullPointerException"),
}


def iter_table(text: str) -> Iterator[tuple[str, str]]:
    """Yield the names and values of a screen."""
    for line in text.splitlines():
        name, sign, value = re.sub(r"^\S+:\d+ +(?=\w+ *:)", "", line).partition(" = " if " = " in line else ":")
        if sign:
            yield name.strip(), value.strip()
