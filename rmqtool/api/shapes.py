"""The shapes of JSON output as types. Each has the members that its schema names (``rmqtool man json``)."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict, final


@final
class Message(TypedDict):
    """One message: `cat --jsonl`, `consume --jsonl`, inside `query`."""

    commitLogOffset: int
    storeSize: int
    magic: str
    topic: str
    queueId: int
    queueOffset: int
    flag: int
    sysFlag: int
    bornTimestamp: int
    bornHost: str
    storeTimestamp: int
    storeHost: str
    reconsumeTimes: int
    preparedTransactionOffset: int
    bodyCRC: int
    offsetMsgId: str
    uniqKey: str | None
    tags: str | None
    keys: str | None
    properties: dict[str, str]
    body: str | None
    bodyEncoding: str
    bodyCodec: str | None
    bodyLength: int | None
    storedBodyLength: int


class DamagedRange(TypedDict):
    """A range without a message that can be shown."""

    code: str
    file: str
    offset: int
    length: int
    message: str


@final
class Damage(TypedDict):
    """A damaged range: a line among the messages of `cat --jsonl`."""

    damage: DamagedRange


class FindingJson(TypedDict):
    """A finding: one line of `check --jsonl`, an entry of `info --json`."""

    code: str
    severity: str
    file: str
    message: str
    data: dict[str, Any]
    offset: NotRequired[int]
    length: NotRequired[int]
    topic: NotRequired[str]
    queueId: NotRequired[int]
    consequence: NotRequired[str]
    broker: NotRequired[str]
    fix: NotRequired[str]


class InfoBroker(TypedDict):
    """The broker that wrote the store."""

    host: NotRequired[str]


class InfoCommitLog(TypedDict):
    """The commit log of a store."""

    files: int
    fileSize: int | None
    minOffset: int | None
    maxOffset: int | None
    firstStoreTimestamp: NotRequired[int]
    lastStoreTimestamp: NotRequired[int]


class QueueBounds(TypedDict):
    """The bounds of a queue."""

    minOffset: int
    maxOffset: int
    firstAvailable: NotRequired[int]


class TopicQueues(TypedDict):
    """A topic and its queues by number."""

    kind: str
    queues: dict[str, QueueBounds]


class InfoIndex(TypedDict):
    """An index file by its header."""

    file: str
    entries: int
    beginTimestamp: int
    endTimestamp: int


class UnreadPlace(TypedDict):
    """The committed offset of a group in a queue, and since when there are unread messages."""

    committed: int
    lag: int | None
    oldestUnreadTimestamp: NotRequired[int]


class Group(TypedDict):
    """A consumer group: its settings, and its place in each queue. Without settings it is known by its offsets only."""

    consumeEnable: bool | None
    consumeFromMinEnable: bool | None
    consumeBroadcastEnable: bool | None
    consumeMessageOrderly: bool | None
    retryQueueNums: int | None
    retryMaxTimes: int | None
    brokerId: int | None
    whichBrokerWhenConsumeSlowly: int | None
    notifyConsumerIdsChangedEnable: bool | None
    topics: dict[str, dict[str, UnreadPlace]]
    deleted: NotRequired[bool]


class Groups(TypedDict):
    """The one object of `group --json`."""

    groups: dict[str, Group]


class InfoDisk(TypedDict):
    """The fullest disk of the store, among those that a broker watches."""

    path: str
    usedRatio: float
    consequence: NotRequired[str]


class InfoTier(TypedDict):
    """The tier of a store. A tier itself has its queues in ``topics`` of ``Info``."""

    path: str
    cluster: str
    broker: str
    queues: int
    bytes: int
    topics: NotRequired[dict[str, dict[str, QueueBounds]]]


class Info(TypedDict):
    """The one object of `info --json`."""

    store: str
    layout: str
    version: str
    versionReason: str
    broker: InfoBroker
    lock: str
    abort: bool
    commitLog: InfoCommitLog
    topics: dict[str, TopicQueues]
    index: list[InfoIndex]
    checkpoint: dict[str, Any] | None
    groups: dict[str, dict[str, dict[str, UnreadPlace]]]
    findings: list[FindingJson]
    disk: NotRequired[InfoDisk]
    tier: NotRequired[InfoTier]


class ClusterInfoBroker(TypedDict):
    """A broker of a live cluster."""

    cluster: str | None
    addresses: dict[str, str]
    version: str | None
    putTps: float | None
    getTps: float | None


class ClusterInfo(TypedDict):
    """The one object of `info --json` of a live cluster."""

    cluster: str
    brokers: dict[str, ClusterInfoBroker]
    topics: dict[str, TopicQueues]
    groups: dict[str, dict[str, dict[str, UnreadPlace]]]


class AnswerHistory(TypedDict):
    """An event in the history of a message."""

    event: str
    timestamp: int | None
    topic: str | None
    queueId: int | None
    queueOffset: int | None
    commitLogOffset: int | None


class Answer(TypedDict):
    """The one object of `query --json`."""

    query: str
    kind: str
    messages: list[Message]
    answeredBy: list[str]
    searched: dict[str, Any]
    complete: bool
    history: NotRequired[list[AnswerHistory]]
    queueOffset: NotRequired[int]
    queueOffsets: NotRequired[dict[str, dict[str, int]]]
    findings: list[FindingJson]
    reasons: NotRequired[list[str]]
    near: NotRequired[list[str]]
    decoded: NotRequired[dict[str, Any]]


class CountsTotal(TypedDict):
    """The totals of a count."""

    messages: int
    bytes: int
    groups: int
    firstStoreTimestamp: int | None
    lastStoreTimestamp: int | None


class CountsDamaged(TypedDict):
    """Damaged ranges, which could not be counted."""

    bytes: int
    places: int


class Counts(TypedDict):
    """The one object of `stat --json`."""

    by: list[str]
    rows: list[dict[str, Any]]
    total: CountsTotal
    damaged: CountsDamaged


class Region(TypedDict):
    """A range of a file and its meaning."""

    offset: int
    length: int
    kind: str
    label: str
    value: NotRequired[Any]
    children: NotRequired[list[Region]]


class Dump(TypedDict):
    """The one object of `dump --json`."""

    file: str
    size: int
    kind: str
    regions: list[Region]
    rows: NotRequired[list[dict[str, Any]]]
    layouts: NotRequired[list[dict[str, Any]]]
    refs: NotRequired[list[dict[str, Any]]]


class DifferencesRow(TypedDict):
    """One difference."""

    topic: str
    kind: str
    queueId: NotRequired[int]
    a: NotRequired[Message]
    b: NotRequired[Message]


class Differences(TypedDict):
    """The one object of `diff --json`."""

    same: bool
    onlyA: int
    onlyB: int
    different: int
    rows: list[DifferencesRow]


class RehearsedFile(TypedDict):
    """A file that the start changes."""

    path: str
    action: str
    sizeBefore: NotRequired[int | None]
    sizeAfter: NotRequired[int | None]


class RehearsedQueue(TypedDict):
    """The bounds of a queue after the start."""

    minOffset: int | None
    maxOffset: int | None


class RehearsedConfig(TypedDict):
    """Where a configuration file is loaded from."""

    file: str
    loadedFrom: str | None
    rewritten: bool | None


class RehearsedHole(TypedDict):
    """A range of the log that no file holds."""

    offset: int
    length: int


Rehearsed = TypedDict(
    "Rehearsed",
    {
        "as": "str",
        "mode": "str | None",
        "loads": "bool",
        "starts": "bool | str | None",
        "minPhyOffset": "int | None",
        "maxPhyOffset": "int | None",
        "files": "list[RehearsedFile]",
        "queues": "dict[str, dict[str, RehearsedQueue]] | None",
        "messagesLost": "int | None",
        "messagesUnreachable": "int | None",
        "config": "list[RehearsedConfig]",
        "logLines": "list[str] | None",
        "reason": "NotRequired[str | None]",
        "holes": "NotRequired[list[RehearsedHole]]",
    },
)


class RecoveredFile(TypedDict):
    """A file that the recovery changed."""

    path: str
    action: str


class RecoveredNotRestored(TypedDict):
    """A valid record that cannot be restored to its queue."""

    commitLogOffset: int
    topic: str
    queueId: int
    queueOffset: int
    reason: str


class RecoveredCut(TypedDict):
    """The messages after the new end of the log."""

    offset: int
    messages: int
    bytes: int
    firstStoreTimestamp: int
    lastStoreTimestamp: int
    storedBefore: int
    topics: dict[str, int]


class RecoveredOffset(TypedDict):
    """A committed offset that was past the new end of its queue."""

    group: str
    topic: str
    queueId: int
    before: int | None
    after: int


class LostMessages(TypedDict):
    """How many messages of a queue the log no longer has."""

    topic: str
    queueId: int
    messages: int


class Recovered(TypedDict):
    """The one object of `recover --apply --json` and `recover --until --json`: what was found and written."""

    mode: str
    applied: bool
    minPhyOffset: int
    maxPhyOffset: int
    messages: int
    files: list[RecoveredFile]
    findings: list[FindingJson]
    left: list[FindingJson]
    notRestored: list[RecoveredNotRestored]
    lost: NotRequired[list[LostMessages]]
    brokerStart: dict[str, Any] | None
    until: NotRequired[int]
    to: NotRequired[str | None]
    cut: NotRequired[RecoveredCut | None]
    offsets: NotRequired[list[RecoveredOffset]]


class PlanStepOffset(TypedDict):
    """An offset of a group that changes."""

    group: str
    topic: str
    queueId: int
    before: int | None
    after: int


PlanStep = TypedDict(
    "PlanStep",
    {
        "n": "int",
        "class": "str",
        "action": "str",
        "file": "str",
        "reason": "str",
        "bytes": "int",
        "allowed": "NotRequired[bool]",
        "offsets": "NotRequired[list[PlanStepOffset]]",
    },
)


class Plan(TypedDict):
    """The one object of `repair --json`: the plan, whether it was applied, the remaining problems and lost messages."""

    plan: str
    steps: list[PlanStep]
    applied: bool
    left: list[FindingJson]
    lost: NotRequired[list[LostMessages]]
    undo: NotRequired[str]
    assumed: NotRequired[dict[str, Any]]


class PastRepair(TypedDict):
    """A past repair: an element of the array of `repair --list --json`, the newest first."""

    undo: str
    plan: str
    time: int
    steps: list[PlanStep]
    store: str
    undone: bool


class Undone(TypedDict):
    """The one object of `repair --undo --json`."""

    undone: str
    files: list[str]
    deleted: NotRequired[list[str]]


class CopiedSkipped(TypedDict):
    """The ranges that were left out of damaged logs."""

    ranges: int
    bytes: int


class Copied(TypedDict):
    """The one object of `copy --json`: the content of the new store, and what was left out."""

    to: str
    messages: int
    bytes: int
    queues: int
    moved: int
    beside: int
    skipped: CopiedSkipped
    lostAndFound: str | None


class Stored(TypedDict):
    """One line of `produce --jsonl` for each message."""

    status: str
    msgId: str | None
    offsetMsgId: str | None
    topic: str
    queueId: int
    queueOffset: int | None
    commitLogOffset: int | None
    storeTimestamp: int | None
    realTopic: NotRequired[str]
    deliverTimestamp: NotRequired[int]


class ExportedDamaged(TypedDict):
    """Damaged ranges that were left out, and the messages that queue entries name in them."""

    ranges: int
    bytes: int
    messages: int | None


class Exported(TypedDict):
    """The one object of `export --json`."""

    to: str
    export: int | None
    rows: int
    files: int
    bytes: int
    sourceBytes: int
    damaged: ExportedDamaged


class TickedFrom(TypedDict):
    """The record that was waiting."""

    topic: str
    queueId: int
    queueOffset: int
    commitLogOffset: int


Ticked = TypedDict(
    "Ticked",
    {
        "service": "str",
        "event": "str",
        "topic": "NotRequired[str]",
        "queueId": "NotRequired[int]",
        "queueOffset": "NotRequired[int]",
        "commitLogOffset": "NotRequired[int]",
        "uniqKey": "NotRequired[str | None]",
        "from": "NotRequired[TickedFrom]",
        "dueTimestamp": "NotRequired[int]",
        "level": "NotRequired[int]",
        "reason": "NotRequired[str]",
        "status": "NotRequired[str]",
        "times": "NotRequired[int]",
        "answer": "NotRequired[str]",
        "segments": "NotRequired[int]",
        "messages": "NotRequired[int]",
        "bytes": "NotRequired[int]",
        "files": "NotRequired[list[str]]",
        "used": "NotRequired[int | None]",
    },
)


class TickCount(TypedDict):
    """How often one thing happened."""

    service: str
    event: str
    topic: str
    count: int


class TickWaiting(TypedDict):
    """Messages that wait for their time."""

    count: int
    nextDue: int | None


class TickExpired(TypedDict):
    """Segments that a broker would delete now because of their age or a full disk: `tick --expire` deletes them."""

    segments: int
    messages: int
    bytes: int
    files: list[str]
    used: NotRequired[int | None]
    reason: str


class Tick(TypedDict):
    """The counts of events, and what still waits."""

    now: int
    counts: list[TickCount]
    waiting: dict[str, TickWaiting]
    expired: TickExpired


class TickSummary(TypedDict):
    """The last line of `tick --jsonl`."""

    summary: Tick


class Topic(TypedDict):
    """A row of `topic list`, and the result of `topic show`, `create`, `alter` and `delete`."""

    topic: str
    readQueueNums: int | None
    writeQueueNums: int | None
    perm: str | None
    order: bool | None
    attributes: dict[str, str]
    deleted: NotRequired[bool]
    # Of a cluster: the brokers that have it.
    brokers: NotRequired[list[str]]
    # Of `topic show`: the bounds of each queue, and the place of each group in them.
    queues: NotRequired[dict[str, QueueBounds]]
    groups: NotRequired[dict[str, dict[str, UnreadPlace]]]


# The members of a message, in their order.
MESSAGE_FIELDS = tuple(Message.__annotations__)


@final
class Ready(TypedDict):
    """The first line of `serve --jsonl`: clients may connect."""

    ready: bool
    names: str
    broker: str
    vip: str | None
    brokerName: str
    clusterName: str
    store: str | None
    readOnly: bool
    recovered: bool


# A line of `mirror --jsonl`: how far the mirror is. "from" is its first physical offset; "durable" the one after the
# last byte that survives a power cut.
Mirrored = TypedDict(
    "Mirrored",
    {
        "master": str,
        "from": int,
        "durable": int,
        "masterMax": "int | None",
        "lagBytes": int,
        "bytesPerSecond": int,
    },
)
