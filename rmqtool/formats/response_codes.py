"""Response codes: the answers of a broker, a name server or a client to a request. Unknown codes stay numbers.

Upstream: ``ResponseCode``, ``RemotingSysResponseCode``.
"""

from __future__ import annotations

from enum import IntEnum

from rmqtool.formats.codes import is_since


class ResponseCode(IntEnum):
    """All codes of 4.9 to 5.5. A name that only 4.9 has is an alias of the name that took its number later."""

    SUCCESS = 0
    SYSTEM_ERROR = 1
    SYSTEM_BUSY = 2
    REQUEST_CODE_NOT_SUPPORTED = 3
    TRANSACTION_FAILED = 4
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12
    MESSAGE_ILLEGAL = 13
    SERVICE_NOT_AVAILABLE = 14
    VERSION_NOT_SUPPORTED = 15
    NO_PERMISSION = 16
    TOPIC_NOT_EXIST = 17
    TOPIC_EXIST_ALREADY = 18
    PULL_NOT_FOUND = 19
    PULL_RETRY_IMMEDIATELY = 20
    PULL_OFFSET_MOVED = 21
    QUERY_NOT_FOUND = 22
    SUBSCRIPTION_PARSE_FAILED = 23
    SUBSCRIPTION_NOT_EXIST = 24
    SUBSCRIPTION_NOT_LATEST = 25
    SUBSCRIPTION_GROUP_NOT_EXIST = 26
    FILTER_DATA_NOT_EXIST = 27
    FILTER_DATA_NOT_LATEST = 28
    INVALID_PARAMETER = 29
    TRANSACTION_SHOULD_COMMIT = 200
    TRANSACTION_SHOULD_ROLLBACK = 201
    TRANSACTION_STATE_UNKNOW = 202
    TRANSACTION_STATE_GROUP_WRONG = 203
    NO_BUYER_ID = 204
    NOT_IN_CURRENT_UNIT = 205
    CONSUMER_NOT_ONLINE = 206
    CONSUME_MSG_TIMEOUT = 207
    NO_MESSAGE = 208
    # In 4.9 the administration of access control used these three numbers.
    POLLING_FULL = 209
    UPDATE_AND_CREATE_ACL_CONFIG_FAILED = 209
    POLLING_TIMEOUT = 210
    DELETE_ACL_CONFIG_FAILED = 210
    BROKER_NOT_EXIST = 211
    UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED = 211
    BROKER_DISPATCH_NOT_COMPLETE = 212
    BROADCAST_CONSUMPTION = 213
    FLOW_CONTROL = 215
    NOT_LEADER_FOR_QUEUE = 501
    ILLEGAL_OPERATION = 604
    GO_AWAY = 1500
    # Answers of the controller, which clients do not ask.
    CONTROLLER_FENCED_MASTER_EPOCH = 2000
    CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH = 2001
    CONTROLLER_INVALID_MASTER = 2002
    CONTROLLER_INVALID_REPLICAS = 2003
    CONTROLLER_MASTER_NOT_AVAILABLE = 2004
    CONTROLLER_INVALID_REQUEST = 2005
    CONTROLLER_BROKER_NOT_ALIVE = 2006
    CONTROLLER_NOT_LEADER = 2007
    CONTROLLER_BROKER_METADATA_NOT_EXIST = 2008
    CONTROLLER_INVALID_CLEAN_BROKER_METADATA = 2009
    CONTROLLER_BROKER_NEED_TO_BE_REGISTERED = 2010
    CONTROLLER_MASTER_STILL_EXIST = 2011
    CONTROLLER_ELECT_MASTER_FAILED = 2012
    CONTROLLER_ALTER_SYNC_STATE_SET_FAILED = 2013
    CONTROLLER_BROKER_ID_INVALID = 2014
    CONTROLLER_JRAFT_INTERNAL_ERROR = 2015
    CONTROLLER_BROKER_LIVE_INFO_NOT_EXISTS = 2016
    LMQ_QUOTA_EXCEEDED = 2017
    LITE_SUBSCRIPTION_QUOTA_EXCEEDED = 2018
    USER_NOT_EXIST = 3001
    POLICY_NOT_EXIST = 3002
    # Errors of upstream's RpcClient, with which brokers call each other.
    RPC_UNKNOWN = -1000
    RPC_ADDR_IS_NULL = -1002
    RPC_SEND_TO_CHANNEL_FAILED = -1004
    RPC_TIME_OUT = -1006


# Names that 5.x gave up; other names have their numbers there.
_ONLY_4 = frozenset(
    {
        "UPDATE_AND_CREATE_ACL_CONFIG_FAILED",
        "DELETE_ACL_CONFIG_FAILED",
        "UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED",
    }
)
_SINCE_5_5 = frozenset({ResponseCode.LMQ_QUOTA_EXCEEDED, ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED})
# The ranges are those of 5.x as a whole: 209 to 214, 500 and above, and the negative numbers.
_SINCE_5 = frozenset(
    {
        ResponseCode.INVALID_PARAMETER,
        *(code for code in ResponseCode if code in range(209, 215) or code in range(500, 3010) or code < 0),
    }
)


def codes_of(version: str) -> dict[str, int]:
    """Return the codes that ``version`` has, by the names it uses for them."""
    is_5 = is_since(version, "5.0.0")
    return {
        name: int(code)
        for name, code in ResponseCode.__members__.items()
        if (is_5 or code not in _SINCE_5 or name in _ONLY_4)
        and not (is_5 and name in _ONLY_4)
        and (code not in _SINCE_5_5 or is_since(version, "5.5.0"))
    }


def code_name(code: int, version: str = "5.5.0") -> str:
    """Return the name of a code in ``version``, or the number if that version does not have it."""
    return next((name for name, known in codes_of(version).items() if known == code), str(code))
