"""Requests about the state of a broker."""

from __future__ import annotations

from rmqtool.remoting.bodies.broker import BrokerStatsData, HARuntimeInfo, TimerMetrics
from rmqtool.remoting.bodies.routes import KVTable
from rmqtool.remoting.body import Content
from rmqtool.remoting.declared import CLUSTER, TOPIC, String, field
from rmqtool.remoting.headers import Code, Header, OldRight, Request, Right


class UpdateBrokerConfig(Request):
    """Change settings of the broker."""

    codes = (Code(25, "UPDATE_BROKER_CONFIG"),)
    body = Content.PROPERTIES
    old_right = OldRight.ADMIN


class GetBrokerConfigAnswer(Header):
    """The answer to ``GetBrokerConfig``."""

    java = "GetBrokerConfigResponseHeader"

    version: String


class GetBrokerConfig(Request):
    """Read the settings of the broker."""

    codes = (Code(26, "GET_BROKER_CONFIG"),)
    answer = GetBrokerConfigAnswer
    answer_body = Content.PROPERTIES


class GetBrokerRuntimeInfo(Request):
    """Read counters and states of the broker."""

    codes = (Code(28, "GET_BROKER_RUNTIME_INFO"),)
    answer_body = KVTable


class GetTimerCheckPoint(Request):
    """Read how far the timer log is; slaves do, every 3 seconds."""

    codes = (Code(60, "GET_TIMER_CHECK_POINT", since="5.0.0"),)
    answer_body = Content.BYTES


class GetTimerMetrics(Request):
    """Read how many messages wait for their time; slaves do."""

    codes = (Code(61, "GET_TIMER_METRICS", since="5.0.0"),)
    answer_body = TimerMetrics


class ViewBrokerStatsData(Request):
    """Read a counter by the minute, hour and day."""

    codes = (Code(315, "VIEW_BROKER_STATS_DATA"),)
    java = "ViewBrokerStatsDataRequestHeader"
    answer_body = BrokerStatsData
    rights = (Right.GET,)
    scope = CLUSTER

    stats_name: String
    stats_key: String


class CleanExpiredConsumeQueue(Request):
    """Delete queue files whose messages are gone."""

    codes = (Code(306, "CLEAN_EXPIRED_CONSUMEQUEUE"),)


class DeleteExpiredCommitLog(Request):
    """Delete log files that are too old."""

    codes = (Code(329, "DELETE_EXPIRED_COMMITLOG"),)


class ResumeCheckHalfMessage(Request):
    """Check a transaction again that was given up."""

    codes = (Code(323, "RESUME_CHECK_HALF_MESSAGE"),)
    java = "ResumeCheckHalfMessageRequestHeader"
    rights = (Right.UPDATE,)

    msg_id: String | None = None
    topic: String | None = field(default=None, acl=TOPIC, since="5.3.0")


class GetBrokerHaStatus(Request):
    """Read how far the slaves are."""

    codes = (Code(907, "GET_BROKER_HA_STATUS", since="5.0.0"),)
    answer_body = HARuntimeInfo


class GetColdDataFlowCtrInfo(Request):
    """Read which groups read cold data too fast."""

    codes = (Code(2003, "GET_COLD_DATA_FLOW_CTR_INFO", since="5.1.2"),)
    answer_body = Content.JSON


class SetCommitLogReadMode(Request):
    """Set how the system reads the log ahead."""

    codes = (Code(2004, "SET_COMMITLOG_READ_MODE", since="5.1.2"),)

    read_ahead_mode: String | None = field(default=None, wire="READ_AHEAD_MODE")
