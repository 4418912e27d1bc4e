"""The function that answers each request, for a broker and for its name server. Other requests are not supported."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final, TypeAlias, cast

from rmqtool.broker.one_broker import Asked, Broker
from rmqtool.broker.processors import (
    administration,
    broker_status,
    client_groups,
    end_transaction,
    name_server,
    operations,
    queries,
)
from rmqtool.broker.processors.assignments import Assignments
from rmqtool.broker.processors.pop_message import Popping, WaitingPop
from rmqtool.broker.processors.pull_message import Pulling, Waiting
from rmqtool.broker.processors.replies import Reply, Steps, in_steps
from rmqtool.broker.processors.send_message import Sending
from rmqtool.formats.codes import is_since
from rmqtool.remoting.headers import Request
from rmqtool.remoting.requests import clients, groups, messages, pop, topics

# A pull and a pop may wait for messages.
Outcome: TypeAlias = "Reply | Waiting | WaitingPop"
Processor: TypeAlias = Callable[[Asked], Outcome]
Plain: TypeAlias = "Callable[[Broker, Asked], Reply | Steps]"

# The codes of a request that stores messages: those of replies are not for the same processor.
SENDS = (10, 310, 320)
REPLIES = (324, 325)
RESET = 222
OFFSETS = 223
# Pops and their acks.
POPS = (200050, 200051, 200053, 200054, 200151)
PULLS = tuple(code.code for code in messages.PullMessage.codes)
_OF_BROKER: Mapping[type[Request], Plain] = {
    clients.ConsumeMessageDirectly: client_groups.have_consumed,
    clients.GetConsumerRunningInfo: client_groups.ask_running_info,
    groups.GetConsumeStatsInBroker: broker_status.stats_of_all_groups,
    topics.DeleteTopic: administration.delete_topic,
    groups.DeleteSubscriptionGroup: administration.delete_group,
    groups.GetAllSubscriptionGroup: administration.all_groups,
    groups.GetConsumeStats: administration.consume_stats,
    groups.GetSubscriptionGroupConfig: administration.get_group,
    groups.UpdateSubscriptionGroup: administration.put_group,
    groups.UpdateSubscriptionGroupList: administration.put_groups,
    clients.GetConsumerConnectionList: administration.consumer_connections,
    clients.GetProducerConnectionList: administration.producer_connections,
    topics.CreateTopic: administration.put_topic,
    topics.CreateTopicList: administration.put_topics,
    topics.GetAllTopicConfig: administration.all_topics,
    topics.GetSystemTopicListFromBroker: administration.own_topics,
    topics.GetTopicConfig: administration.get_topic,
    topics.GetTopicStatsInfo: administration.topic_stats,
    topics.QueryTopicConsumeByWho: administration.groups_of_topic,
    clients.CheckClientConfig: client_groups.check_client_config,
    clients.GetConsumerListByGroup: client_groups.list_consumers,
    clients.Heartbeat: client_groups.take_heartbeat,
    clients.LockBatchMq: client_groups.lock_queues,
    clients.UnlockBatchMq: client_groups.unlock_queues,
    clients.UnregisterClient: client_groups.unregister_client,
    messages.ConsumerSendMsgBack: end_transaction.take_back,
    messages.EndTransaction: end_transaction.end_transaction,
}


# These read records, which may be cold.
_READ: Final = frozenset(
    {
        administration.consume_stats,
        administration.topic_stats,
        broker_status.show_state,
        broker_status.stats_of_all_groups,
        client_groups.have_consumed,
        end_transaction.end_transaction,
        end_transaction.take_back,
        operations.time_spans,
        queries.earliest_time,
        queries.view_message,
    }
)
# These change the store, also when their client has hung up meanwhile.
_CHANGES: Final = frozenset({end_transaction.end_transaction, end_transaction.take_back})


def _by_code(broker: Broker, table: Iterable[tuple[type[Request], Plain]]) -> dict[int, Processor]:
    return {code.code: _processor(broker, answer) for request, answer in table for code in request.codes}


def _processor(broker: Broker, answer: Plain) -> Processor:
    if answer in _READ:
        return _reading(cast("Callable[[Asked], Steps]", partial(answer, broker)), outlives_client=answer in _CHANGES)
    return cast("Processor", partial(answer, broker))


def _reading(answer: Callable[[Asked], Steps], *, outlives_client: bool = False) -> Processor:
    """Return a function whose records are fetched by another thread where they are not in memory."""
    return lambda asked: in_steps(answer(asked), outlives_client=outlives_client)


class Processors:
    """The functions of one broker, by the code of the request."""

    def __init__(self, broker: Broker) -> None:
        self.pulling = Pulling(broker)
        self.sending = sending = Sending(broker)
        self.popping = Popping(broker)
        since_5 = _since_5(broker, self.popping) if is_since(broker.version, "5.0.0") else {}
        # The second port of a broker takes everything but pulls, so that those cannot crowd out the rest.
        self.fast: Mapping[int, Processor] = {
            **_by_code(broker, _OF_BROKER.items()),
            **_by_code(broker, broker_status.ANSWERS.items()),
            **_by_code(broker, queries.ANSWERS.items()),
            **_by_code(broker, operations.ANSWERS.items()),
            **dict.fromkeys(SENDS, sending.send),
            **dict.fromkeys(REPLIES, sending.reply),
            **since_5,
            # 220 and 221 are the same requests to a client.
            RESET: partial(client_groups.reset_offsets, broker),
            OFFSETS: partial(client_groups.ask_offsets, broker),
        }
        self.broker: Mapping[int, Processor] = {**self.fast, **dict.fromkeys(PULLS, self.pulling.pull)}
        self.names: Mapping[int, Processor] = _by_code(broker, name_server.ANSWERS.items())


def _since_5(broker: Broker, popping: Popping) -> Mapping[int, Processor]:
    """Return the functions that 4.9 does not have: of consumption by POP, and of messages that are recalled."""
    assignments = Assignments(broker)
    table: Mapping[type[Request], Processor] = {
        messages.RecallMessage: partial(end_transaction.recall_message, broker),
        clients.QueryAssignment: assignments.query,
        pop.AckMessage: popping.ack,
        pop.BatchAckMessage: popping.ack_many,
        pop.ChangeInvisibleTime: popping.change_invisible,
        pop.GetAllMessageRequestMode: assignments.all_modes,
        pop.Notification: popping.notify,
        pop.PeekMessage: _reading(popping.peek),
        pop.PollingInfo: popping.polling_info,
        pop.PopMessage: popping.pop,
        pop.SetMessageRequestMode: assignments.set_mode,
    }
    return {code.code: answer for request, answer in table.items() for code in request.codes}
