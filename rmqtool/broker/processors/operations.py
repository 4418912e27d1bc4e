"""Requests of operators beside topics and groups: queue entries, producers, counters, slaves, expired files.

Upstream: ``AdminBrokerProcessor``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial

from rmqtool.broker.one_broker import Asked, Broker
from rmqtool.broker.processors.queries import stored_at
from rmqtool.broker.processors.replies import Steps
from rmqtool.broker.rates import Counter, Span
from rmqtool.engine.consume_queue import ConsumeQueue
from rmqtool.formats.java import LONG_MAX
from rmqtool.formats.message_queue import MessageQueue
from rmqtool.formats.response_codes import ResponseCode
from rmqtool.remoting.answers import NO_STATISTICS, answer, refuse
from rmqtool.remoting.bodies.broker import (
    BrokerStatsData,
    BrokerStatsItem,
    ConsumeQueueData,
    HARuntimeInfo,
    QueryConsumeQueueResponseBody,
    QueryConsumeTimeSpanBody,
    QueryCorrectionOffsetBody,
    QuerySubscriptionResponseBody,
    QueueTimeSpan,
)
from rmqtool.remoting.bodies.clients import ProducerInfo, ProducerTableInfo
from rmqtool.remoting.bodies.routes import TopicList
from rmqtool.remoting.command import RemotingCommand
from rmqtool.remoting.headers import Request
from rmqtool.remoting.requests.broker import (
    CleanExpiredConsumeQueue,
    DeleteExpiredCommitLog,
    GetBrokerHaStatus,
    GetColdDataFlowCtrInfo,
    ViewBrokerStatsData,
)
from rmqtool.remoting.requests.clients import GetAllProducerInfo
from rmqtool.remoting.requests.groups import QuerySubscriptionByConsumer, QueryTopicsByConsumer
from rmqtool.remoting.requests.offsets import CloneGroupOffset, QueryCorrectionOffset
from rmqtool.remoting.requests.topics import CleanUnusedTopic, QueryConsumeQueue, QueryConsumeTimeSpan

# The most entries of a queue in one answer.
_MOST_ENTRIES = 1024
# Groups that read cold data faster are slowed down by upstream; nothing is slowed down here. upstream: BrokerConfig
_COLD_READS = {
    "runtimeTable": {},
    "configTable": {},
    "cgColdReadThreshold": 3 << 20,
    "globalColdReadThreshold": 100 << 20,
    "globalAcc": 0,
}


def show_counter(broker: Broker, asked: Asked) -> RemotingCommand:
    """Read a counter over the last minute, hour and day."""
    header: ViewBrokerStatsData = asked.header  # type: ignore[assignment]
    counter = broker.history.find(header.stats_name, header.stats_key)
    if counter is None:
        return refuse(asked.command, NO_STATISTICS, broker.version, name=header.stats_name, key=header.stats_key)
    body = BrokerStatsData(
        stats_day=_item(counter, Span.DAY),
        stats_hour=_item(counter, Span.HOUR),
        stats_minute=_item(counter, Span.MINUTE),
    )
    return answer(asked.command, body=body)


def _item(counter: Counter, span: Span) -> BrokerStatsItem:
    over = counter.over(span)
    return BrokerStatsItem(avgpt=over.each, sum=over.total, tps=over.by_second)


def queue_entries(broker: Broker, asked: Asked) -> RemotingCommand:
    """Read entries of a queue."""
    header: QueryConsumeQueue = asked.header  # type: ignore[assignment]
    topic = header.topic or ""
    queue = broker.store.find_queue(topic, header.queue_id)
    if not isinstance(queue, ConsumeQueue):
        remark = f"{header.queue_id}@{topic} is not exist!"
        return answer(asked.command, ResponseCode.SYSTEM_ERROR, remark)
    low, high = broker.store.reader.bounds(topic, header.queue_id)
    count = max(min(header.count, _MOST_ENTRIES), 0)
    units = queue.read_units(header.index, count) if low <= header.index < high else []
    entries = [
        ConsumeQueueData(eval=False, physic_offset=one.physical_offset, physic_size=one.size, tags_code=one.tags_code)
        for one in units
    ]
    body = QueryConsumeQueueResponseBody(max_queue_index=high, min_queue_index=max(low, 0), queue_data=entries)
    group = broker.clients.consumers.get(header.consumer_group or "")
    if group is not None and topic in group.subscriptions:
        # No group has a bloom filter here: tools show that as null.
        body = body.replace(subscription_data=group.subscriptions[topic], filter_data="null")
    return answer(asked.command, body=body)


def all_producers(broker: Broker, asked: Asked) -> RemotingCommand:
    """List the members of all producer groups."""
    clock = broker.store.setup.clock
    now, monotonic = clock.now(), clock.monotonic()
    table = {
        group: [
            ProducerInfo(
                client_id=one.client_id,
                language=one.language,
                last_update_timestamp=now - (monotonic - one.last_seen),
                # As Java spells an address.
                remote_ip=f"/{one.address}",
                version=one.version,
            )
            for one in members.values()
        ]
        for group, members in broker.clients.producers.items()
    }
    return answer(asked.command, body=ProducerTableInfo(data=table))


def slave_state(broker: Broker, asked: Asked) -> RemotingCommand:
    """Read how far the slaves are that copy the log now."""
    end = broker.store.condition().wrote_offset
    links = [
        {
            "addr": address,
            "diff": end - acknowledged,
            "inSync": True,
            "slaveAckOffset": acknowledged,
            "transferFromWhere": sent,
            "transferredByteInSecond": 0,
        }
        for address, acknowledged, sent in broker.copies()
    ]
    nothing = dict.fromkeys(
        ("lastReadTimestamp", "lastWriteTimestamp", "masterFlushOffset", "maxOffset", "transferredByteInSecond"), 0
    )
    body = HARuntimeInfo(
        ha_client_runtime_info=nothing,
        ha_connection_info=links,
        in_sync_slave_nums=len(links),
        master=True,
        master_commit_log_max_offset=end,
    )
    return answer(asked.command, body=body)


def cold_reads(_broker: Broker, asked: Asked) -> RemotingCommand:
    """Read which groups read cold data too fast: none is slowed down."""
    return answer(asked.command, body=json.dumps(_COLD_READS, separators=(",", ":")).encode())


def delete_expired(broker: Broker, asked: Asked) -> RemotingCommand:
    """Delete log files that are too old in the next runs of retention, at any hour."""
    if not broker.read_only:
        broker.store.clean_at_any_hour()
    return answer(asked.command)


def clean_queues(_broker: Broker, asked: Asked) -> RemotingCommand:
    """Say that queue files without messages are deleted: retention does it each time that it deletes log files.

    Those of deleted topics too, then.
    """
    return answer(asked.command)


def topics_of_group(broker: Broker, asked: Asked) -> RemotingCommand:
    """List the topics in which a group has offsets."""
    header: QueryTopicsByConsumer = asked.header  # type: ignore[assignment]
    return answer(asked.command, body=TopicList(topic_list=broker.offsets.topics_of(header.group)))


def subscription_of_group(broker: Broker, asked: Asked) -> RemotingCommand:
    """Read what a group subscribes to of a topic."""
    header: QuerySubscriptionByConsumer = asked.header  # type: ignore[assignment]
    topic, group = header.topic or "", broker.clients.consumers.get(header.group)
    body = QuerySubscriptionResponseBody(group=header.group, topic=topic)
    if group is not None and topic in group.subscriptions:
        body = body.replace(subscription_data=group.subscriptions[topic])
    return answer(asked.command, body=body)


def clone_offsets(broker: Broker, asked: Asked) -> RemotingCommand:
    """Give one group the offsets of another, in one topic or in all that the other has."""
    header: CloneGroupOffset = asked.header  # type: ignore[assignment]
    for topic in [header.topic] if header.topic else broker.offsets.topics_of(header.src_group):
        for queue_id, offset in dict(broker.offsets.offsets_of(header.src_group, topic)).items():
            broker.offsets.commit_offset(header.dest_group, topic, queue_id, offset)
    return answer(asked.command)


def time_spans(broker: Broker, asked: Asked) -> Steps:
    """Read between which times each queue has messages, and for how long the next one of a group has waited."""
    header: QueryConsumeTimeSpan = asked.header  # type: ignore[assignment]
    topic, config = header.topic, broker.topics.find(header.topic)
    if config is None:
        return answer(asked.command, ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
    found = []
    for queue_id in range(int(config["writeQueueNums"])):
        low, high = max(broker.queues.min_offset(topic, queue_id), 0), broker.queues.max_offset(topic, queue_id)
        at = partial(stored_at, broker, topic, queue_id)
        first = yield partial(at, low)
        offset = broker.offsets.query_offset(header.group, topic, queue_id)
        waits = 0
        if offset < high:
            waits = broker.store.setup.clock.now() - (yield partial(at, offset))
        one = QueueTimeSpan(
            consume_time_stamp=(yield partial(at, offset - 1)) if offset > 0 else first,
            delay_time=waits,
            max_time_stamp=(yield partial(at, high - 1)),
            message_queue=MessageQueue(topic, broker.config.broker_name, queue_id),
            min_time_stamp=first,
        )
        found.append(one)
    return answer(asked.command, body=QueryConsumeTimeSpanBody(consume_time_span_set=found))


def least_offsets(broker: Broker, asked: Asked) -> RemotingCommand:
    """Read the least offset of all groups in each queue; where that of the group to compare is less, the greatest."""
    header: QueryCorrectionOffset = asked.header  # type: ignore[assignment]
    without = [one for one in (header.filter_groups or "").split(",") if one]
    found = dict(broker.offsets.min_offset_of_groups(header.topic, broker.queues.min_offset, without))
    for queue_id, offset in broker.offsets.offsets_of(header.compare_group, header.topic).items():
        if found.get(queue_id, LONG_MAX) > offset:
            found[queue_id] = LONG_MAX
    return answer(asked.command, body=QueryCorrectionOffsetBody(correction_offsets=found))


# The function that answers each of these requests.
ANSWERS: Mapping[type[Request], Callable[[Broker, Asked], RemotingCommand | Steps]] = {
    CleanExpiredConsumeQueue: clean_queues,
    CleanUnusedTopic: clean_queues,
    CloneGroupOffset: clone_offsets,
    DeleteExpiredCommitLog: delete_expired,
    GetAllProducerInfo: all_producers,
    GetBrokerHaStatus: slave_state,
    GetColdDataFlowCtrInfo: cold_reads,
    QueryConsumeQueue: queue_entries,
    QueryConsumeTimeSpan: time_spans,
    QueryCorrectionOffset: least_offsets,
    QuerySubscriptionByConsumer: subscription_of_group,
    QueryTopicsByConsumer: topics_of_group,
    ViewBrokerStatsData: show_counter,
}
