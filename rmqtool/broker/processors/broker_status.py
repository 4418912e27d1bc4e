"""The state of a broker for tools: its settings, its counters, and the progress of all groups.

Upstream: ``AdminBrokerProcessor``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial

from rmqtool.broker.one_broker import Asked, Broker
from rmqtool.broker.processors.administration import stats_of_group
from rmqtool.broker.processors.replies import Steps
from rmqtool.broker.rates import WINDOWS
from rmqtool.broker.topics import TopicConfig
from rmqtool.config import Version
from rmqtool.formats.codes import is_since
from rmqtool.formats.commit_log import Message
from rmqtool.formats.hosts import format_address
from rmqtool.formats.java import encode_text
from rmqtool.formats.layouts import TIMER_CHECKPOINT
from rmqtool.formats.response_codes import ResponseCode
from rmqtool.formats.topics import TIMER_TOPIC
from rmqtool.remoting.answers import answer
from rmqtool.remoting.bodies.broker import ConsumeStatsList, TimerMetrics
from rmqtool.remoting.bodies.routes import KVTable
from rmqtool.remoting.command import OWN_VERSION, RemotingCommand
from rmqtool.remoting.headers import Request
from rmqtool.remoting.requests.broker import (
    GetBrokerConfig,
    GetBrokerConfigAnswer,
    GetBrokerRuntimeInfo,
    GetTimerCheckPoint,
    GetTimerMetrics,
    UpdateBrokerConfig,
)
from rmqtool.remoting.requests.groups import GetConsumeStatsInBroker

_PERCENT = 100
_GIB = 1 << 30
# Settings of upstream that tools show (exportConfigs, exportMetrics), with the values that this broker behaves by. The
# second one is the number of processors.
_OTHERS = {
    "brokerId": "0",
    "clientCallbackExecutorThreads": str(os.cpu_count() or 1),
    "msgTraceTopicName": "RMQ_SYS_TRACE_TOPIC",
    "slaveReadEnable": "false",
    "traceTopicEnable": "false",
    "useTLS": "false",
}
_FIXED = "settings are read when the server starts: change broker.conf or use --conf NAME=VALUE, and start it again"


def show_settings(broker: Broker, asked: Asked) -> RemotingCommand:
    """Read the settings; secrets are masked."""
    host, port = broker.address
    shown = {**_OTHERS, "brokerIP1": format_address(host), "listenPort": str(port)}
    if broker.config.version is Version.V4_9:
        # Without it, exportConfigs of 4.9 ends with a NullPointerException.
        shown["filterServerNums"] = "0"
    if broker.ha_address is not None:
        shown["haListenPort"] = broker.ha_address.rpartition(":")[2]
    shown |= {one.name: str(one.value) for one in broker.config.iter_shown()}
    lines = [f"{name}={value}\n" for name, value in shown.items()]
    version = f'{{"counter":0,"stateVersion":0,"timestamp":{broker.started}}}'
    return answer(asked.command, header=GetBrokerConfigAnswer(version=version), body=encode_text("".join(lines)))


def keep_settings(broker: Broker, asked: Asked) -> RemotingCommand:  # noqa: ARG001
    """Refuse to change settings: a start reads them, and nothing reads them again."""
    return answer(asked.command, ResponseCode.NO_PERMISSION, _FIXED)


def show_state(broker: Broker, asked: Asked) -> Steps:
    """Read counters and states."""
    begin, lowest = broker.store.condition().min_offset, None
    if begin >= 0:
        lowest = yield partial(broker.store.reader.message_at, begin)
    table = {
        "brokerVersionDesc": f"V{broker.version.replace('.', '_')}",
        "brokerVersion": str(OWN_VERSION),
        "brokerActive": str(broker.takes_puts).lower(),
        "bootTimestamp": str(broker.started),
        "runtime": _spell_run(broker.store.setup.clock.now() - broker.started),
        "startAcceptSendRequestTimeStamp": "0",
        **_traffic(broker),
        **_queues_of_work(broker),
        **_log_state(broker, lowest),
        **_timers(broker),
    }
    if not broker.takes_puts:
        table["putsRefused"] = broker.refusal_of_puts()
    return answer(asked.command, body=KVTable(table=table))


def _spell_run(milliseconds: int) -> str:
    minutes, seconds = divmod(milliseconds // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"


def _traffic(broker: Broker) -> dict[str, str]:
    """Return how many messages came and went, and how fast."""
    now, rates, counts = broker.sample(), broker.rates, broker.counts
    spoken = [rates.since(now, seconds) for seconds in WINDOWS]
    gets = " ".join(str(get) for _, get in spoken)
    size = counts.put_bytes.total()
    return {
        "msgPutTotalYesterdayMorning": str(rates.yesterday_morning.puts),
        "msgPutTotalTodayMorning": str(rates.today_morning.puts),
        "msgPutTotalTodayNow": str(now.puts),
        "msgGetTotalYesterdayMorning": str(rates.yesterday_morning.gets),
        "msgGetTotalTodayMorning": str(rates.today_morning.gets),
        "msgGetTotalTodayNow": str(now.gets),
        "putTps": " ".join(str(put) for put, _ in spoken),
        "getTransferedTps": gets,
        "getTransferredTps": gets,
        "putMessageFailedTimes": str(counts.failed_puts),
        "putMessageTimesTotal": str(now.puts),
        "putMessageSizeTotal": str(size),
        "putMessageAverageSize": str(size / now.puts if now.puts else 1.0),
    }


def _queues_of_work(broker: Broker) -> dict[str, str]:
    """Return how much waits in each thread pool of a broker. This broker has no thread pool, so nothing waits."""
    pools = ["send", "pull", "query"]
    pools += ["ack", "litePull"] if is_since(broker.version, "5.0.0") else []
    table = {f"{pool}ThreadPoolQueueSize": "0" for pool in pools}
    table |= {f"{pool}ThreadPoolQueueHeadWaitTimeMills": "0" for pool in pools}
    return {**table, "EndTransactionQueueSize": "0", "pageCacheLockTimeMills": "0", "dispatchMaxBuffer": "0"}


def _log_state(broker: Broker, lowest: Message | None) -> dict[str, str]:
    """Return the bounds of the log, what is not yet on disk or in queues, and how full the disk is."""
    condition = broker.store.condition()
    space = broker.store.setup.files.space()
    ratio = str(space.used_percent / _PERCENT)
    return {
        "commitLogMinOffset": str(condition.min_offset),
        "commitLogMaxOffset": str(condition.wrote_offset),
        "dispatchBehindBytes": str(condition.wrote_offset - condition.dispatched_offset),
        "remainHowManyDataToFlush": f"{condition.wrote_offset - condition.flushed_offset} B",
        "earliestMessageTimeStamp": str(lowest.store_timestamp if lowest is not None else -1),
        "commitLogDirCapacity": f"Total : {space.total / _GIB:.1f} GiB, Free : {space.free / _GIB:.1f} GiB.",
        "commitLogDiskRatio": str(max(space.used_percent, condition.disk_used or 0) / _PERCENT),
        "consumeQueueDiskRatio": ratio,
    }


def _timers(broker: Broker) -> dict[str, str]:
    """Return how late the timer is (5.x), and how many messages it has not read; no slot is ever too full."""
    timers = broker.services.timers
    if not is_since(broker.version, "5.0.0") or not timers.is_enabled:
        return {}
    unread = max(broker.store.reader.bounds(TIMER_TOPIC, 0).max_offset - timers.queue_offset, 0)
    late = max(broker.store.setup.clock.now() - timers.read_time, 0) // 1000
    return {"timerReadBehind": str(late), "timerOffsetBehind": str(unread), "timerCongestNum": "0"}


def stats_of_all_groups(broker: Broker, asked: Asked) -> Steps:
    """Read how far all groups are, in all topics or in ordered ones."""
    header: GetConsumeStatsInBroker = asked.header  # type: ignore[assignment]

    def is_wanted(config: TopicConfig | None) -> bool:
        return config is not None and (not header.is_order or bool(config.get("order")))

    found, behind, inflight = [], 0, 0
    consumed: dict[str, list[str]] = {group: [] for group in broker.groups.table}
    for topic, group in broker.offsets.iter_subscriptions():
        if group in consumed and is_wanted(broker.topics.find(topic)):
            consumed[group].append(topic)
    for group, topics in consumed.items():
        stats = []
        for topic in topics:
            one = yield from stats_of_group(broker, group, [topic])
            stats += [one] if one.offset_table else []
        found.append({group: stats})
        for queue in (queue for one in stats for queue in one.offset_table.values()):
            behind += max(queue.broker_offset - queue.consumer_offset, 0)
            inflight += max((queue.pull_offset or 0) - queue.consumer_offset, 0)
    body = ConsumeStatsList(broker_addr=broker.shown_address, consume_stats_list=found, total_diff=behind)
    if broker.config.version is not Version.V4_9:
        body = body.replace(total_inflight_diff=inflight)
    return answer(asked.command, body=body)


def timer_checkpoint(broker: Broker, asked: Asked) -> RemotingCommand:
    """Read how far the timer has delivered: the fields of its checkpoint, without the page."""
    return answer(asked.command, body=TIMER_CHECKPOINT.encode(broker.services.timers.reached()))


def timer_metrics(broker: Broker, asked: Asked) -> RemotingCommand:  # noqa: ARG001
    """Read how many messages of each topic wait for their time; a slave counts them itself."""
    return answer(asked.command, body=TimerMetrics(timing_count={}))


# The function that answers each of these requests.
ANSWERS: Mapping[type[Request], Callable[[Broker, Asked], RemotingCommand | Steps]] = {
    GetBrokerConfig: show_settings,
    GetBrokerRuntimeInfo: show_state,
    GetTimerCheckPoint: timer_checkpoint,
    GetTimerMetrics: timer_metrics,
    UpdateBrokerConfig: keep_settings,
}
