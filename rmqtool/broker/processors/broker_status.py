"""The state of a broker for tools: its settings, its counters, and the progress of all groups.

Upstream: ``AdminBrokerProcessor``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rmqtool.broker.one_broker import Asked, Broker
from rmqtool.broker.processors.administration import stats_of_group
from rmqtool.broker.rates import WINDOWS
from rmqtool.broker.topics import TopicConfig
from rmqtool.config import Version
from rmqtool.formats.java import encode_text
from rmqtool.formats.layouts import TIMER_CHECKPOINT
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
)
from rmqtool.remoting.requests.groups import GetConsumeStatsInBroker

_PERCENT = 100


def show_settings(broker: Broker, asked: Asked) -> RemotingCommand:
    """Read the settings; secrets are masked."""
    lines = [f"{one.name}={one.value}\n" for one in broker.config.iter_shown()]
    if broker.ha_address is not None:
        lines.append(f"haListenPort={broker.ha_address.rpartition(':')[2]}\n")
    version = f'{{"counter":0,"stateVersion":0,"timestamp":{broker.started}}}'
    return answer(asked.command, header=GetBrokerConfigAnswer(version=version), body=encode_text("".join(lines)))


def show_state(broker: Broker, asked: Asked) -> RemotingCommand:
    """Read counters and states. There are no thread pools here, so nothing waits in one."""
    now, rates = broker.sample(), broker.rates
    spoken = [rates.since(now, seconds) for seconds in WINDOWS]
    condition = broker.store.condition()
    takes_puts = broker.takes_puts
    lowest = broker.store.reader.message_at(condition.min_offset) if condition.min_offset >= 0 else None
    gets = " ".join(str(get) for _, get in spoken)
    idle = dict.fromkeys(("sendThreadPool", "pullThreadPool", "queryThreadPool", "ackThreadPool"), "0")
    table = {
        "brokerVersionDesc": f"V{broker.version.replace('.', '_')}",
        "brokerVersion": str(OWN_VERSION),
        "brokerActive": str(takes_puts).lower(),
        "bootTimestamp": str(broker.started),
        "runtime": f"[ {(now.time - broker.started) // 1000} seconds ]",
        "msgPutTotalYesterdayMorning": str(rates.yesterday_morning.puts),
        "msgPutTotalTodayMorning": str(rates.today_morning.puts),
        "msgPutTotalTodayNow": str(now.puts),
        "msgGetTotalYesterdayMorning": str(rates.yesterday_morning.gets),
        "msgGetTotalTodayMorning": str(rates.today_morning.gets),
        "msgGetTotalTodayNow": str(now.gets),
        "putTps": " ".join(str(put) for put, _ in spoken),
        "getTransferedTps": gets,
        "getTransferredTps": gets,
        "putMessageFailedTimes": str(broker.counts.failed_puts),
        **{f"{pool}QueueSize": size for pool, size in idle.items()},
        **{f"{pool}QueueHeadWaitTimeMills": size for pool, size in idle.items()},
        "pageCacheLockTimeMills": "0",
        "commitLogMinOffset": str(condition.min_offset),
        "commitLogMaxOffset": str(condition.wrote_offset),
        "dispatchBehindBytes": str(condition.wrote_offset - condition.dispatched_offset),
        "remainHowManyDataToFlush": f"{condition.wrote_offset - condition.flushed_offset} B",
        "earliestMessageTimeStamp": str(lowest.store_timestamp if lowest is not None else -1),
        "commitLogDiskRatio": str((condition.disk_used or 0) / _PERCENT),
    }
    if not takes_puts:
        table["putsRefused"] = broker.refusal_of_puts()
    return answer(asked.command, body=KVTable(table=table))


def stats_of_all_groups(broker: Broker, asked: Asked) -> RemotingCommand:
    """Read how far all groups are, those of ordered topics or those of others."""
    header: GetConsumeStatsInBroker = asked.header  # type: ignore[assignment]

    def is_wanted(config: TopicConfig | None) -> bool:
        return config is not None and bool(config.get("order")) == header.is_order

    found, behind = [], 0
    for group in broker.groups.table:
        topics = [topic for topic, name in broker.offsets.iter_subscriptions() if name == group]
        stats = [stats_of_group(broker, group, [topic]) for topic in topics if is_wanted(broker.topics.find(topic))]
        stats = [one for one in stats if one.offset_table]
        found.append({group: stats})
        behind += sum(
            max(one.broker_offset - one.consumer_offset, 0) for stat in stats for one in stat.offset_table.values()
        )
    body = ConsumeStatsList(broker_addr=broker.shown_address, consume_stats_list=found, total_diff=behind)
    if broker.config.version is not Version.V4_9:
        body = body.replace(total_inflight_diff=0)
    return answer(asked.command, body=body)


def timer_checkpoint(broker: Broker, asked: Asked) -> RemotingCommand:
    """Read how far the timer has delivered: the fields of its checkpoint, without the page."""
    return answer(asked.command, body=TIMER_CHECKPOINT.encode(broker.services.timers.reached()))


def timer_metrics(broker: Broker, asked: Asked) -> RemotingCommand:  # noqa: ARG001
    """Read how many messages of each topic wait for their time; a slave counts them itself."""
    return answer(asked.command, body=TimerMetrics(timing_count={}))


# The function that answers each of these requests.
ANSWERS: Mapping[type[Request], Callable[[Broker, Asked], RemotingCommand]] = {
    GetBrokerConfig: show_settings,
    GetBrokerRuntimeInfo: show_state,
    GetTimerCheckPoint: timer_checkpoint,
    GetTimerMetrics: timer_metrics,
}
