"""Requests to a name server about brokers, and about settings that all clients read."""

from __future__ import annotations

from rmqtool.remoting.bodies.routes import (
    ClusterInfo,
    DataVersion,
    GetBrokerMemberGroupResponseBody,
    KVTable,
    RegisterBrokerBody,
)
from rmqtool.remoting.body import Content
from rmqtool.remoting.declared import CLUSTER, Boolean, Integer, Long, String, field
from rmqtool.remoting.headers import Code, Header, Request, Right, Role


class PutKVConfig(Request):
    """Store a setting."""

    codes = (Code(100, "PUT_KV_CONFIG"),)
    java = "PutKVConfigRequestHeader"
    to = Role.NAME_SERVER
    rights = (Right.UPDATE,)
    scope = CLUSTER

    namespace: String
    key: String
    value: String


class GetKVConfigAnswer(Header):
    """The answer to ``GetKVConfig``."""

    java = "GetKVConfigResponseHeader"

    value: String | None = None


class GetKVConfig(Request):
    """Read a setting; 22 if it does not exist."""

    codes = (Code(101, "GET_KV_CONFIG"),)
    java = "GetKVConfigRequestHeader"
    to = Role.NAME_SERVER
    answer = GetKVConfigAnswer
    rights = (Right.GET,)
    scope = CLUSTER

    namespace: String
    key: String


class DeleteKVConfig(Request):
    """Remove a setting."""

    codes = (Code(102, "DELETE_KV_CONFIG"),)
    java = "DeleteKVConfigRequestHeader"
    to = Role.NAME_SERVER
    rights = (Right.UPDATE,)
    scope = CLUSTER

    namespace: String
    key: String


class GetKVListByNamespace(Request):
    """Read all settings of a namespace."""

    codes = (Code(219, "GET_KVLIST_BY_NAMESPACE"),)
    java = "GetKVListByNamespaceRequestHeader"
    to = Role.NAME_SERVER
    answer_body = KVTable
    rights = (Right.GET,)
    scope = CLUSTER

    namespace: String


class RegisterBrokerAnswer(Header):
    """The answer to ``RegisterBroker``."""

    java = "RegisterBrokerResponseHeader"

    ha_server_addr: String | None = None
    master_addr: String | None = None


class RegisterBroker(Request):
    """Say that a broker is there, and which topics it has; every 30 seconds."""

    codes = (Code(103, "REGISTER_BROKER"),)
    java = "RegisterBrokerRequestHeader"
    to = Role.NAME_SERVER
    answer = RegisterBrokerAnswer
    body = RegisterBrokerBody
    answer_body = KVTable
    rights = (Right.UPDATE,)
    scope = CLUSTER

    broker_name: String
    broker_addr: String
    cluster_name: String = field(acl=CLUSTER)
    ha_server_addr: String
    broker_id: Long
    compressed: bool = False
    body_crc32: Integer = 0
    heartbeat_timeout_millis: Long | None = field(default=None, since="5.0.0")
    enable_acting_master: Boolean | None = field(default=None, since="5.0.0")


class UnregisterBroker(Request):
    """Take a broker out of all routes."""

    codes = (Code(104, "UNREGISTER_BROKER"),)
    java = "UnRegisterBrokerRequestHeader"
    to = Role.NAME_SERVER
    rights = (Right.UPDATE,)
    scope = CLUSTER

    broker_name: String
    broker_addr: String
    cluster_name: String = field(acl=CLUSTER)
    broker_id: Long


class GetBrokerClusterInfo(Request):
    """Read which clusters, brokers and addresses there are."""

    codes = (Code(106, "GET_BROKER_CLUSTER_INFO"),)
    to = Role.NAME_SERVER
    answer_body = ClusterInfo


class WipeWritePermOfBrokerAnswer(Header):
    """The answer to ``WipeWritePermOfBroker``."""

    java = "WipeWritePermOfBrokerResponseHeader"

    wipe_topic_count: Integer


class WipeWritePermOfBroker(Request):
    """Take the right to write out of all routes of a broker."""

    codes = (Code(205, "WIPE_WRITE_PERM_OF_BROKER"),)
    java = "WipeWritePermOfBrokerRequestHeader"
    to = Role.NAME_SERVER
    answer = WipeWritePermOfBrokerAnswer
    rights = (Right.UPDATE,)
    scope = CLUSTER

    broker_name: String


class AddWritePermOfBrokerAnswer(Header):
    """The answer to ``AddWritePermOfBroker``."""

    java = "AddWritePermOfBrokerResponseHeader"

    add_topic_count: Integer


class AddWritePermOfBroker(Request):
    """Allow writes to a broker again."""

    codes = (Code(327, "ADD_WRITE_PERM_OF_BROKER"),)
    java = "AddWritePermOfBrokerRequestHeader"
    to = Role.NAME_SERVER
    answer = AddWritePermOfBrokerAnswer
    rights = (Right.UPDATE,)
    scope = CLUSTER

    broker_name: String


class UpdateNameServerConfig(Request):
    """Change settings of the name server."""

    codes = (Code(318, "UPDATE_NAMESRV_CONFIG"),)
    to = Role.NAME_SERVER
    body = Content.PROPERTIES


class GetNameServerConfig(Request):
    """Read the settings of the name server."""

    codes = (Code(319, "GET_NAMESRV_CONFIG"),)
    to = Role.NAME_SERVER
    answer_body = Content.PROPERTIES


class QueryDataVersionAnswer(Header):
    """The answer to ``QueryDataVersion``."""

    java = "QueryDataVersionResponseHeader"

    changed: Boolean


class QueryDataVersion(Request):
    """Ask whether a broker must register its topics again."""

    codes = (Code(322, "QUERY_DATA_VERSION"),)
    java = "QueryDataVersionRequestHeader"
    to = Role.NAME_SERVER
    answer = QueryDataVersionAnswer
    body = DataVersion
    answer_body = DataVersion
    rights = (Right.GET,)
    scope = CLUSTER

    broker_name: String
    broker_addr: String
    cluster_name: String = field(acl=CLUSTER)
    broker_id: Long


class GetBrokerMemberGroup(Request):
    """Read the addresses of one broker name."""

    codes = (Code(901, "GET_BROKER_MEMBER_GROUP", since="5.0.0"),)
    java = "GetBrokerMemberGroupRequestHeader"
    java_since = "5.0.0"
    to = Role.NAME_SERVER
    answer_body = GetBrokerMemberGroupResponseBody
    rights = (Right.GET,)

    cluster_name: String = field(acl=CLUSTER)
    broker_name: String


class BrokerHeartbeat(Request):
    """Say only that a broker is there."""

    codes = (Code(904, "BROKER_HEARTBEAT", since="5.0.0"),)
    java = "BrokerHeartbeatRequestHeader"
    java_since = "5.0.0"
    to = Role.NAME_SERVER
    rights = (Right.UPDATE,)
    scope = CLUSTER

    cluster_name: String = field(acl=CLUSTER)
    broker_addr: String
    broker_name: String
    epoch: Integer | None = None
    max_offset: Long | None = None
    confirm_offset: Long | None = None
    broker_id: Long | None = field(default=None, since="5.1.0")
    heartbeat_timeout_mills: Long | None = field(default=None, since="5.1.0")
    election_priority: Integer | None = field(default=None, since="5.1.0")
