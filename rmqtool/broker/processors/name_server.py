"""Requests to a name server, answered for the one broker: routes, lists of topics, settings of all clients.

Upstream: ``ClientRequestProcessor``, ``DefaultRequestProcessor``, ``RouteInfoManager``, ``KVConfigManager``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rmqtool.broker.one_broker import Asked, Broker
from rmqtool.broker.topics import TopicConfig
from rmqtool.config import Version
from rmqtool.formats.response_codes import ResponseCode
from rmqtool.remoting.answers import NO_CONFIG_ITEM, NO_ROUTE, answer, refuse
from rmqtool.remoting.bodies.routes import BrokerData, ClusterInfo, KVTable, QueueData, TopicList, TopicRouteData
from rmqtool.remoting.command import RemotingCommand
from rmqtool.remoting.headers import NoFields, Request
from rmqtool.remoting.requests.names import (
    AddWritePermOfBroker,
    AddWritePermOfBrokerAnswer,
    DeleteKVConfig,
    GetBrokerClusterInfo,
    GetKVConfig,
    GetKVConfigAnswer,
    GetKVListByNamespace,
    GetNameServerConfig,
    PutKVConfig,
    RegisterBroker,
    RegisterBrokerAnswer,
    UnregisterBroker,
    UpdateNameServerConfig,
    WipeWritePermOfBroker,
    WipeWritePermOfBrokerAnswer,
)
from rmqtool.remoting.requests.topics import (
    DeleteTopicFromNamesrv,
    GetAllTopicListFromNameServer,
    GetRouteInfo,
    GetSystemTopicListFromNameServer,
    GetTopicsByCluster,
)

_MASTER = 0


def find_route(broker: Broker, asked: Asked) -> RemotingCommand:
    """Say which brokers have queues of a topic: this one, or none."""
    header: GetRouteInfo = asked.header  # type: ignore[assignment]
    config = broker.topics.find(header.topic)
    if config is None:
        code, remark = NO_ROUTE.of(broker.version, topic=header.topic)
        return answer(asked.command, code, remark, header=NoFields())
    route = TopicRouteData(
        broker_datas=[_broker_data(broker)], filter_server_table={}, queue_datas=[_queue_data(broker, config)]
    )
    return answer(asked.command, header=NoFields(), body=route)


def _broker_data(broker: Broker) -> BrokerData:
    config = broker.config
    return BrokerData(
        broker_addrs={_MASTER: broker.shown_address, **broker.slave_addresses},
        broker_name=config.broker_name,
        cluster=config.broker_cluster_name,
        enable_acting_master=None if config.version is Version.V4_9 else False,
    )


def _queue_data(broker: Broker, config: TopicConfig) -> QueueData:
    allowed = broker.permission
    perm = int(config["perm"])
    return QueueData(
        broker_name=broker.config.broker_name,
        # Only reading and writing depend on the broker: the inherit bit stays.
        perm=perm & (allowed | ~6),
        read_queue_nums=int(config["readQueueNums"]),
        topic_sys_flag=int(config.get("topicSysFlag") or 0),
        write_queue_nums=int(config["writeQueueNums"]),
    )


def show_cluster(broker: Broker, asked: Asked) -> RemotingCommand:
    """Say which clusters and brokers there are."""
    config = broker.config
    body = ClusterInfo(
        broker_addr_table={config.broker_name: _broker_data(broker)},
        cluster_addr_table={config.broker_cluster_name: [config.broker_name]},
    )
    return answer(asked.command, header=NoFields(), body=body)


def list_topics(broker: Broker, asked: Asked) -> RemotingCommand:
    """List all topics."""
    return answer(asked.command, header=NoFields(), body=TopicList(topic_list=list(broker.topics.table)))


def list_topics_of_cluster(broker: Broker, asked: Asked) -> RemotingCommand:
    """List the topics of a cluster."""
    header: GetTopicsByCluster = asked.header  # type: ignore[assignment]
    is_ours = header.cluster == broker.config.broker_cluster_name
    body = TopicList(topic_list=list(broker.topics.table) if is_ours else [])
    return answer(asked.command, header=NoFields(), body=body)


def list_own_names(broker: Broker, asked: Asked) -> RemotingCommand:
    """List the names of clusters and brokers, which are topics too, and whom to ask for the others."""
    config = broker.config
    names = [config.broker_name, config.broker_cluster_name]
    body = TopicList(broker_addr=broker.shown_address, topic_list=names)
    return answer(asked.command, header=NoFields(), body=body)


def put_setting(broker: Broker, asked: Asked) -> RemotingCommand:
    """Store a setting that all clients read."""
    header: PutKVConfig = asked.header  # type: ignore[assignment]
    broker.kv_config.setdefault(header.namespace, {})[header.key] = header.value
    return answer(asked.command, header=NoFields())


def get_setting(broker: Broker, asked: Asked) -> RemotingCommand:
    """Read a setting."""
    header: GetKVConfig = asked.header  # type: ignore[assignment]
    value = broker.kv_config.get(header.namespace, {}).get(header.key)
    if value is None:
        holes = {"namespace": header.namespace, "key": header.key}
        return refuse(asked.command, NO_CONFIG_ITEM, broker.version, **holes)
    return answer(asked.command, header=GetKVConfigAnswer(value=value))


def delete_setting(broker: Broker, asked: Asked) -> RemotingCommand:
    """Remove a setting."""
    header: DeleteKVConfig = asked.header  # type: ignore[assignment]
    broker.kv_config.get(header.namespace, {}).pop(header.key, None)
    return answer(asked.command, header=NoFields())


def list_settings(broker: Broker, asked: Asked) -> RemotingCommand:
    """Read all settings of a namespace."""
    header: GetKVListByNamespace = asked.header  # type: ignore[assignment]
    found = broker.kv_config.get(header.namespace)
    if not found:
        return refuse(asked.command, NO_CONFIG_ITEM, broker.version, namespace=header.namespace, key="")
    return answer(asked.command, header=NoFields(), body=KVTable(table=found))


def forget_topic(broker: Broker, asked: Asked) -> RemotingCommand:  # noqa: ARG001
    """Forget the route of a topic: the broker that has deleted it has no route for it any more."""
    return answer(asked.command, header=NoFields())


def register_slave(broker: Broker, asked: Asked) -> RemotingCommand:
    """Take a slave of this broker into the routes, and tell it where its master and the log are."""
    header: RegisterBroker = asked.header  # type: ignore[assignment]
    if broker.ha_address is None or header.broker_id == _MASTER or header.broker_name != broker.config.broker_name:
        remark = "this name server has one broker; rmqtool serve --slaves takes slaves of it"
        return answer(asked.command, ResponseCode.SYSTEM_ERROR, remark)
    if not broker.add_slave(header.broker_id, header.broker_addr):
        remark = (
            "this broker has as many slaves as rmqtool serve takes; one that is silent for two minutes is forgotten"
        )
        return answer(asked.command, ResponseCode.SYSTEM_ERROR, remark)
    told = RegisterBrokerAnswer(ha_server_addr=broker.ha_address, master_addr=broker.shown_address)
    return answer(asked.command, header=told, body=KVTable(table={}))


def unregister_slave(broker: Broker, asked: Asked) -> RemotingCommand:
    """Take a slave out of the routes."""
    header: UnregisterBroker = asked.header  # type: ignore[assignment]
    broker.add_slave(header.broker_id, None)
    return answer(asked.command, header=NoFields())


# Settings of upstream's name server, with the values that this one behaves by.
_SETTINGS = {
    "deleteTopicWithBrokerRegistration": "false",
    "needWaitForService": "false",
    "orderMessageEnable": "false",
    "returnOrderTopicConfigToBroker": "true",
    "supportActingMaster": "false",
}


_FIXED = "the name server of rmqtool serve has no settings that can be changed"


def show_settings(_broker: Broker, asked: Asked) -> RemotingCommand:
    """Read the settings of the name server."""
    return answer(asked.command, body="".join(f"{name}={value}\n" for name, value in _SETTINGS.items()).encode())


def keep_settings(_broker: Broker, asked: Asked) -> RemotingCommand:
    """Refuse to change settings of the name server: it behaves by none that could be changed."""
    return answer(asked.command, ResponseCode.NO_PERMISSION, _FIXED)


def wipe_write_perm(broker: Broker, asked: Asked) -> RemotingCommand:
    """Take the write bit from the routes of the broker: producers go elsewhere."""
    header: WipeWritePermOfBroker = asked.header  # type: ignore[assignment]
    count = _set_write(broker, header.broker_name, is_wiped=True)
    return answer(asked.command, header=WipeWritePermOfBrokerAnswer(wipe_topic_count=count))


def add_write_perm(broker: Broker, asked: Asked) -> RemotingCommand:
    """Give the routes of the broker their write bit back."""
    header: AddWritePermOfBroker = asked.header  # type: ignore[assignment]
    count = _set_write(broker, header.broker_name, is_wiped=False)
    return answer(asked.command, header=AddWritePermOfBrokerAnswer(add_topic_count=count))


def _set_write(broker: Broker, name: str, *, is_wiped: bool) -> int:
    """Return in how many topics the broker named has queues."""
    if name != broker.config.broker_name:
        return 0
    broker.is_wiped = is_wiped
    return len(broker.topics.table)


# The function that answers each of these requests.
ANSWERS: Mapping[type[Request], Callable[[Broker, Asked], RemotingCommand]] = {
    AddWritePermOfBroker: add_write_perm,
    DeleteKVConfig: delete_setting,
    GetBrokerClusterInfo: show_cluster,
    GetKVConfig: get_setting,
    GetNameServerConfig: show_settings,
    WipeWritePermOfBroker: wipe_write_perm,
    GetKVListByNamespace: list_settings,
    PutKVConfig: put_setting,
    RegisterBroker: register_slave,
    UnregisterBroker: unregister_slave,
    UpdateNameServerConfig: keep_settings,
    DeleteTopicFromNamesrv: forget_topic,
    GetAllTopicListFromNameServer: list_topics,
    GetRouteInfo: find_route,
    GetSystemTopicListFromNameServer: list_own_names,
    GetTopicsByCluster: list_topics_of_cluster,
}
