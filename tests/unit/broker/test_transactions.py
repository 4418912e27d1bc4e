"""Transactions and their check: the checks of §9.3."""

from __future__ import annotations

from typing import Any

import pytest

from rmqtool.broker.services.events import Happened
from rmqtool.broker.services.transactions import EndRequest, EndStatus, TransactionState
from rmqtool.config import Version
from rmqtool.engine.message import NewMessage
from rmqtool.engine.put import PutTicket
from rmqtool.formats.codes import TransactionType
from rmqtool.formats.commit_log import Message
from rmqtool.formats.topics import CHECK_MAX_TIME_TOPIC, HALF_TOPIC, OP_HALF_TOPIC, TRANS_GROUP
from tests.support.served import Served

BOTH = pytest.mark.parametrize("version", [Version.V4_9, Version.V5_3])
COMMIT, ROLLBACK = TransactionState.COMMIT, TransactionState.ROLLBACK


def prepare(served: Served, body: bytes = b"tx", **properties: str) -> Message:
    """Store a half message of a producer of group PG."""
    given = {"WAIT": "true", "PGROUP": "PG", "UNIQ_KEY": body.decode(), **properties}
    ticket = served.services.transactions.prepare(NewMessage("T", body, 3, given, 7, int(TransactionType.PREPARED)))
    assert isinstance(ticket, PutTicket)
    served.store.dispatch_now()
    return served.record(ticket.physical_offset)


def end(served: Served, half: Message, state: TransactionState, **changes: Any) -> EndStatus:
    request = EndRequest("PG", half.physical_offset, half.queue_offset, state)._replace(**changes)
    return served.services.transactions.end(request).status


def told(happened: list[Happened]) -> list[tuple[str, int | None]]:
    return [(one.event, one.about.get("times")) for one in happened if one.event != "ops"]


@BOTH
def test_c9_10_a_half_message_is_in_the_half_topic_only(version: Version) -> None:
    served = Served(version)
    half = prepare(served, DELAY="3")
    assert (half.topic, half.queue_id, half.queue_offset, half.sys_flag, half.flag) == (HALF_TOPIC, 0, 0, 0, 7)
    expected = {
        "REAL_TOPIC": "T",
        "REAL_QID": "3",
        "TRAN_MSG": "true",
        "PGROUP": "PG",
        "UNIQ_KEY": "tx",
        "WAIT": "true",
    }
    if version is not Version.V4_9:
        expected["__transactionId__"] = "tx"
    assert half.properties == expected
    assert served.records("T") == []
    assert served.store.reader.bounds(HALF_TOPIC, 0).max_offset == 1


@BOTH
def test_c9_11_a_commit_shows_the_message_and_an_op_record_says_so(version: Version) -> None:
    served = Served(version)
    half = prepare(served)
    served.clock.advance(100)
    assert end(served, half, COMMIT) is EndStatus.SUCCESS
    (record,) = served.records("T")
    assert (record.sys_flag, record.prepared_transaction_offset) == (TransactionType.COMMIT, half.physical_offset)
    assert (record.queue_id, record.flag, record.raw_body) == (3, 7, b"tx")
    assert record.properties == half.properties
    assert served.store.reader.bounds(HALF_TOPIC, 0).max_offset == 1
    if version is not Version.V4_9:
        assert served.records(OP_HALF_TOPIC) == []
        served.later(2999)
        assert served.records(OP_HALF_TOPIC) == []
        served.later(1)
    (op,) = served.records(OP_HALF_TOPIC)
    assert op.raw_body == (b"0" if version is Version.V4_9 else b"0,")
    assert op.properties == {"TAGS": "d", "WAIT": "true"}


def test_c9_11_5_4_takes_the_place_out_of_the_text() -> None:
    served = Served(Version.V5_4)
    half = prepare(served)
    end(served, half, COMMIT)
    (record,) = served.records("T")
    assert half.properties.keys() - record.properties.keys() == {"REAL_TOPIC", "REAL_QID"}


@BOTH
def test_c9_12_a_rollback_leaves_only_an_op_record(version: Version) -> None:
    served = Served(version)
    assert end(served, prepare(served), ROLLBACK) is EndStatus.SUCCESS
    served.later(3000)
    assert served.records("T") == []
    assert len(served.records(OP_HALF_TOPIC)) == 1


@pytest.mark.parametrize(("version", "interval"), [(Version.V4_9, 60_000), (Version.V5_3, 30_000)])
def test_c9_13_without_an_answer_the_half_topic_grows_by_one_for_each_check(version: Version, interval: int) -> None:
    served = Served(version)
    half = prepare(served)
    asked: list[Message] = []

    def producer(message: Message) -> TransactionState:
        asked.append(message)
        return TransactionState.UNKNOWN

    served.services.check.producer = producer
    assert served.later(interval - 1) == []
    assert told(served.later(1)) == [("checked", 1)]
    assert served.store.reader.bounds(HALF_TOPIC, 0).max_offset == 2
    assert told(served.later(interval)) == [("checked", 2)]
    assert served.store.reader.bounds(HALF_TOPIC, 0).max_offset == 3
    assert [one.properties["TRANSACTION_CHECK_TIMES"] for one in asked] == ["1", "2"]
    assert [one.queue_offset for one in asked] == [1, 2]
    # The flag and the count of retries get lost on the way.
    assert (half.flag, asked[0].flag, asked[0].raw_body, asked[0].born_timestamp) == (7, 0, b"tx", half.born_timestamp)


@BOTH
def test_c9_14_after_15_checks_it_is_given_up(version: Version) -> None:
    served = Served(version)
    prepare(served)
    happened = [one for _ in range(17) for one in told(served.later(60_000))]
    assert happened == [("checked", times) for times in range(1, 16)] + [("given up", 15)]
    (given_up,) = served.records(CHECK_MAX_TIME_TOPIC)
    assert given_up.properties["TRANSACTION_CHECK_TIMES"] == "15"
    assert served.services.topics.table[CHECK_MAX_TIME_TOPIC]["writeQueueNums"] == 1
    assert served.services.waiting()["transaction"] == {"count": 0, "nextDue": None}
    assert served.services.offsets.query_offset(TRANS_GROUP, HALF_TOPIC, 0) == 16


@BOTH
def test_c9_15_who_is_not_the_producer_decides_nothing(version: Version) -> None:
    served = Served(version)
    half = prepare(served)
    assert end(served, half, COMMIT, producer_group="other") is EndStatus.SYSTEM_ERROR
    assert end(served, half, COMMIT, tran_state_table_offset=1) is EndStatus.SYSTEM_ERROR
    assert end(served, half, COMMIT, commit_log_offset=10_000) is EndStatus.SYSTEM_ERROR
    assert end(served, half, TransactionState.UNKNOWN) is EndStatus.NOTHING
    assert served.records("T") == []


@BOTH
def test_c9_19_the_committed_message_was_born_when_its_half_was(version: Version) -> None:
    served = Served(version)
    half = prepare(served)
    served.clock.advance(5000)
    end(served, half, COMMIT)
    (record,) = served.records("T")
    assert (record.born_timestamp, record.store_timestamp) == (half.born_timestamp, half.store_timestamp + 5000)


@BOTH
def test_the_check_decides_for_a_producer_that_died(version: Version) -> None:
    served = Served(version)
    prepare(served, b"lost")
    served.reopen()
    served.services.check.producer = lambda _half: COMMIT
    assert told(served.later(60_000)) == [("checked", 1)]
    assert served.bodies("T") == [b"lost"]
    (record,) = served.records("T")
    # It points at the half message as it was written again.
    assert record.prepared_transaction_offset == served.records(HALF_TOPIC)[1].physical_offset
    served.later(3000)
    assert told(served.later(120_000)) == []
    assert served.bodies("T") == [b"lost"]
    assert served.services.waiting()["transaction"]["count"] == 0


@BOTH
def test_decided_ones_are_passed_and_progress_is_kept(version: Version) -> None:
    served = Served(version)
    halves = [prepare(served, b"%d" % number) for number in range(40)]
    for number, half in enumerate(halves):
        if number != 20:
            end(served, half, COMMIT if number % 2 else ROLLBACK)
    served.later(3000)
    assert served.services.waiting()["transaction"]["count"] == 1
    assert told(served.later(60_000)) == [("checked", 1)]
    progress = served.services.offsets.query_offset(TRANS_GROUP, HALF_TOPIC, 0)
    assert progress == 40
    ops = served.store.reader.bounds(OP_HALF_TOPIC, 0).max_offset
    assert served.services.offsets.query_offset(TRANS_GROUP, OP_HALF_TOPIC, 0) == ops
    served.reopen()
    assert served.services.waiting()["transaction"]["count"] == 1
    assert told(served.later(60_000)) == [("checked", 2)]


@BOTH
def test_young_half_messages_wait(version: Version) -> None:
    served = Served(version)
    prepare(served, b"old")
    interval = served.setup.config.transaction_check_interval
    served.later(interval - 5_999)
    prepare(served, b"young")
    assert told(served.later(5_999)) == [("checked", 1)]


def test_a_decision_that_could_not_be_stored_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    served = Served(Version.V5_3)
    prepare(served)
    served.services.check.producer = lambda _half: COMMIT
    monkeypatch.setattr(type(served.services.transactions), "commit", lambda _self, _half: None)
    (checked,) = [one for one in served.later(30_000) if one.event == "checked"]
    assert "answer" not in checked.about
    assert served.records("T") == []


def test_a_producer_may_ask_for_time() -> None:
    served = Served()
    half = prepare(served, CHECK_IMMUNITY_TIME_IN_SECONDS="100")
    assert told(served.later(30_000)) == [("put off", None)]
    assert told(served.later(30_000)) == [("put off", None)]
    again = served.records(HALF_TOPIC)[-1]
    assert again.properties["TRAN_PREPARED_QUEUE_OFFSET"] == "0"
    assert told(served.later(50_000)) == [("checked", 3)]
    # Too late for its own word now: the check decides.
    assert end(served, half, COMMIT) is EndStatus.ILLEGAL_OPERATION
    assert end(served, half, COMMIT, from_check=True) is EndStatus.SUCCESS


def test_half_messages_older_than_the_log_is_kept_are_given_up() -> None:
    served = Served()
    prepare(served)
    assert told(served.later(72 * 3_600_000 + 1)) == [("given up", 0)]


def test_many_decisions_fill_several_op_records() -> None:
    served = Served(transactionOpMsgMaxSize=10)
    for half in [prepare(served, b"%d" % number) for number in range(12)]:
        end(served, half, ROLLBACK)
    assert [op.raw_body for op in served.records(OP_HALF_TOPIC)] == [b"0,1,2,3,4,", b"5,6,7,8,9,"]
    served.services.save()
    assert served.bodies(OP_HALF_TOPIC)[-1] == b"10,11,"


def test_a_broker_may_refuse_transactions() -> None:
    served = Served(rejectTransactionMessage=True)
    assert served.services.transactions.prepare(NewMessage("T", b"x")) is EndStatus.NO_PERMISSION


def test_commits_whose_op_record_was_lost_happen_again() -> None:
    served = Served()
    end(served, prepare(served), COMMIT)
    served.services = served.new_services()
    served.services.check.producer = lambda _half: COMMIT
    assert told(served.later(30_000)) == [("checked", 1)]
    assert served.bodies("T") == [b"tx"] * 2
