"""Requests and answers: typed values out of texts and back, by the rules of Java's readers."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Iterator

import pytest

from rmqtool.remoting import headers as headers_module
from rmqtool.remoting.access import Need, needs
from rmqtool.remoting.answers import AnswerTemplate
from rmqtool.remoting.command import ANSWER, RemotingCommand, SerializeType
from rmqtool.remoting.declared import (
    READERS,
    TOPIC,
    BoundaryType,
    Declared,
    HeaderError,
    Integer,
    Long,
    String,
    camel_case,
    field,
)
from rmqtool.remoting.frames import decode_frame, encode_frame
from rmqtool.remoting.headers import Code, Header, NoFields, Request, Right, Role, TopicQueueRequest
from rmqtool.remoting.requests import REQUESTS
from rmqtool.remoting.requests.messages import PullMessage, PullMessageAnswer, SendMessage, SendMessageAnswer
from rmqtool.remoting.requests.offsets import QueryConsumerOffset, SearchOffset
from rmqtool.remoting.requests.pop import PopMessage
from rmqtool.remoting.requests.topics import GetAllTopicConfig, GetAllTopicConfigAnswer
from rmqtool.remoting.wire_log import line_of
from tests.support import wire_values
from tools.manual.remoting_page import remoting_page
from tools.manual.roff import page_roff

# The fields of a send as Java's client 5.3.3 sent them.
SEND = {
    "a": "PG", "b": "JTopic", "c": "TBW102", "d": "4", "e": "2", "f": "0", "g": "1795076203446", "h": "0",
    "i": "KEYS\x01k1\x02TAGS\x01TagA", "j": "0", "k": "false", "m": "false", "n": "broker-a",
}  # fmt: skip
PULL = {
    "consumerGroup": "CG", "topic": "T", "queueId": "1", "queueOffset": "12", "maxMsgNums": "32", "sysFlag": "3",
    "commitOffset": "11", "suspendTimeoutMillis": "15000", "subVersion": "0",
}  # fmt: skip


def test_a_send_by_short_names_is_one_by_long_names() -> None:
    short = REQUESTS[310].decode(SEND)
    assert isinstance(short, SendMessage)
    assert (short.producer_group, short.topic, short.queue_id, short.bname) == ("PG", "JTopic", 2, "broker-a")
    assert (short.born_timestamp, short.unit_mode, short.max_reconsume_times) == (1795076203446, False, None)
    long = REQUESTS[10].encode(short)
    assert long["producerGroup"] == "PG"
    assert long["bname"] == "broker-a"
    assert REQUESTS[10].decode(long) == short
    assert REQUESTS[310].encode(short) == SEND


def test_the_codes_of_a_request_share_its_fields() -> None:
    assert [row.name for row in REQUESTS.values() if row.request is SendMessage] == [
        "SEND_MESSAGE", "SEND_MESSAGE_V2", "SEND_BATCH_MESSAGE", "SEND_REPLY_MESSAGE", "SEND_REPLY_MESSAGE_V2",
    ]  # fmt: skip
    assert [row.code for row in REQUESTS.values() if row.short] == [310, 320, 325]
    assert REQUESTS[361].request is PullMessage
    assert REQUESTS[361].since == "5.0.0"


# What clients and tools send in their usual journeys, and what rarer ones do, as recorded.
MUST = {
    105, 310, 10, 320, 11, 361, 34, 35, 38, 14, 15, 29, 30, 31, 32, 36, 37, 39, 40, 41, 42, 46, 12, 33, 106, 206, 304,
    305, 28, 26, 202, 208, 203, 204, 300, 351, 352, 201, 21, 17, 215, 216, 200, 207, 222,
}  # fmt: skip
SHOULD = {
    324, 325, 326, 400, 401, 402, 200050, 200051, 200151, 200053, 200054, 307, 309, 220, 315, 317, 321, 303, 314, 328,
    316, 306, 329, 18, 225, 100, 101, 102, 219, 205, 327, 319, 224, 343, 345, 370, 103, 104, 322, 43, 45, 60, 61, 907,
}  # fmt: skip


def test_everything_that_clients_and_tools_send_is_declared() -> None:
    assert (len(MUST), len(SHOULD)) == (45, 44)
    assert REQUESTS.keys() >= MUST | SHOULD


def test_what_is_unknown_is_ignored_and_what_is_absent_has_its_default() -> None:
    pull = PullMessage.decode({**PULL, "ReqT": "0", "later": "x"})
    assert (pull.subscription, pull.max_msg_bytes, pull.lo) == (None, None, None)
    assert "later" not in pull.given
    assert pull.encode() == PULL


@pytest.mark.parametrize("name", PULL)
def test_a_strict_header_without_a_needed_field_is_refused_in_upstreams_words(name: str) -> None:
    with pytest.raises(HeaderError, match=f"^the custom field <{name}> is null$"):
        PullMessage.decode({wire: text for wire, text in PULL.items() if wire != name})


def test_a_strict_header_with_a_number_that_is_none_is_refused_as_java_does() -> None:
    with pytest.raises(HeaderError, match=r'^java\.lang.NumberFormatException: For input string: "x1"$'):
        PullMessage.decode({**PULL, "queueId": "x1"})
    with pytest.raises(HeaderError, match="NumberFormatException"):
        PullMessage.decode({**PULL, "maxMsgBytes": ""})


def test_of_a_send_only_the_short_form_is_strict() -> None:
    """Java reads the long names by reflection."""
    with pytest.raises(HeaderError, match="NumberFormatException"):
        REQUESTS[310].decode({**SEND, "j": "many"})
    long = {**REQUESTS[10].encode(REQUESTS[310].decode(SEND)), "reconsumeTimes": "many"}
    found = REQUESTS[10].decode(long)
    assert isinstance(found, SendMessage)
    assert found.reconsume_times is None


def test_other_headers_go_on_where_java_goes_on() -> None:
    """Reflection only logs: a plain number has its zero, an optional one is null."""
    pop = PopMessage.decode({"consumerGroup": "g", "topic": "t", "queueId": "?", "maxMsgNums": "1"})
    assert (pop.queue_id, pop.max_msg_nums, pop.invisible_time, pop.order) == (0, 1, 0, False)
    found = SearchOffset.decode({"topic": "t", "queueId": "0", "timestamp": "5", "boundaryType": "MIDDLE"})
    assert found.boundary_type is None
    with pytest.raises(HeaderError, match="the custom field <queueId> is null"):
        QueryConsumerOffset.decode({"consumerGroup": "g", "topic": "t", "queueId": "2147483648"})


def test_a_needed_field_that_upstream_does_without() -> None:
    """5.3 tools ask a 5.4 broker without a page, and 5.3 brokers answer 5.4 slaves without a total."""
    assert GetAllTopicConfig.decode({}).topic_seq is None
    assert GetAllTopicConfigAnswer.decode_answer({}).total_topic_num is None


def test_an_answer_is_read_whatever_is_missing() -> None:
    answer = SendMessageAnswer.decode_answer({"queueId": "x", "msgId": "AB"})
    assert answer.msg_id == "AB"
    assert answer.given == {"msg_id": "AB"}


INTEGERS = {
    "7": 7, "-7": -7, "+7": 7, "007": 7, "2147483647": 2147483647, "-2147483648": -2147483648, "٣": 3,
    "2147483648": None, "": None, "-": None, " 7": None, "7 ": None, "1_0": None, "0x7": None, "7.0": None, "७٣": 73,
}  # fmt: skip


@pytest.mark.parametrize("text", INTEGERS)
def test_integers_are_read_as_java_reads_them(text: str) -> None:
    read = READERS["Integer"]
    assert read is not None
    assert read(text) == INTEGERS[text]


def test_longs_and_booleans_are_read_as_java_reads_them() -> None:
    long, boolean = READERS["Long"], READERS["Boolean"]
    assert long is not None
    assert boolean is not None
    assert [long(text) for text in ("9223372036854775807", "9223372036854775808", "+1", "1 ")] == [
        9223372036854775807, None, 1, None,
    ]  # fmt: skip
    assert [boolean(text) for text in ("true", "TRUE", "True ", "1", "", "false")] == [
        True, True, False, False, False, False,
    ]  # fmt: skip


def test_values_are_written_as_java_writes_them() -> None:
    search = SearchOffset(topic="t", queue_id=3, timestamp=-1, boundary_type=BoundaryType.UPPER, lo=True)
    assert search.encode() == {
        "topic": "t", "queueId": "3", "timestamp": "-1", "boundaryType": "UPPER", "lo": "true",
    }  # fmt: skip


def test_values_are_values() -> None:
    pull = PullMessage.decode(PULL)
    assert pull == PullMessage(**pull.given)
    assert pull.replace(queue_id=9).queue_id == 9
    assert pull.replace(lo=None) == pull
    with pytest.raises(AttributeError, match="use replace"):
        pull.queue_id = 9  # type: ignore[misc]
    with pytest.raises(TypeError, match="needs 'topic'"):
        PullMessage(consumer_group="x")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="no field 'colour'"):
        pull.replace(colour=1)
    # A default counts like the same value given.
    assert PopMessage.decode({"consumerGroup": "g", "topic": "t"}) == PopMessage.decode(
        {"consumerGroup": "g", "topic": "t", "queueId": "0"}
    )


def test_secrets_do_not_show() -> None:
    class Login(Header):
        user: String
        word: String = field(secret=True)

    assert repr(Login(user="u", word="hush")) == "Login(user='u', word=***)"


def test_two_requests_cannot_share_a_code() -> None:
    with pytest.raises(TypeError, match="both are 11"):

        class Another(Request):
            codes = (Code(11, "ANOTHER"),)

    assert REQUESTS[11].request is PullMessage


def all_classes(base: type[Declared]) -> list[type[Declared]]:
    found = [base] if base.__module__.startswith("rmqtool.") else []
    return found + [inner for child in base.__subclasses__() for inner in all_classes(child)]


def test_every_field_has_the_type_that_its_annotation_says() -> None:
    python = {"String": str, "Integer": int, "Long": int, "int": int, "long": int, "Boolean": bool, "bool": bool,
              "float": float, "BoundaryType": BoundaryType}  # fmt: skip
    checked = 0
    for header in all_classes(Header):
        hints = typing.get_type_hints(header)
        for name, declared in header.fields.items():
            hint = hints[name]
            inner = [part for part in typing.get_args(hint) or (hint,) if part is not type(None)]
            assert inner == [python[declared.java]], (header, name)
            # What may be absent may be None, unless it has a default.
            assert declared.default is None or isinstance(declared.default, inner[0]), (header, name)
            if not declared.needed and declared.default is None:
                assert declared.may_be_null, (header, name)
            checked += 1
    assert checked > 500


def test_every_request_says_what_it_is() -> None:
    for row in REQUESTS.values():
        assert inspect.getdoc(row.request), row
        assert row.name.isupper(), row
        assert row.request.answer is NoFields or issubclass(row.request.answer, Header)
    for code, role in ((105, Role.NAME_SERVER), (11, Role.BROKER), (40, Role.CLIENT)):
        assert REQUESTS[code].request.to is role


def test_names_on_the_wire() -> None:
    assert [camel_case(name) for name in ("topic", "queue_id", "max_msg_bytes")] == ["topic", "queueId", "maxMsgBytes"]
    assert PullMessage.fields["proxy_froward_client_id"].wire == "proxyFrowardClientId"


class Sample(Header):
    """An answer with a text, a number and a constant with a per cent sign."""

    text: String
    number: Long
    fixed: String | None = None
    other: Integer | None = None


@pytest.mark.parametrize("kind", SerializeType)
@pytest.mark.parametrize("body", [b"", b"records"])
def test_a_template_gives_the_bytes_of_the_plain_way(kind: SerializeType, body: bytes) -> None:
    template = AnswerTemplate(Sample.decode_answer({"fixed": '50% "x"'}), "text", "number", remark="FOUND")
    for text, number, opaque in (("AB", 0, 0), ('q"\x01é%d', -5, 2147483647), ("x", 1 << 60, -1)):
        fields = {"fixed": '50% "x"', "text": text, "number": str(number)}
        command = RemotingCommand(0, fields, body, opaque, ANSWER, remark="FOUND", serialize_type=kind)
        assert template.encode(kind, opaque, (text, number), body) == encode_frame(command)


def test_the_hot_answers_as_templates() -> None:
    sent = AnswerTemplate(
        SendMessageAnswer.decode_answer({"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}),
        "msg_id",
        "queue_id",
        "queue_offset",
    )
    fields = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true", "msgId": "7F", "queueId": "2", "queueOffset": "10"}
    command = RemotingCommand(0, fields, opaque=5, flag=ANSWER)
    assert sent.encode(SerializeType.JSON, 5, ("7F", 2, 10)) == encode_frame(command)
    found = AnswerTemplate(
        PullMessageAnswer.decode_answer({"suggestWhichBrokerId": "0"}),
        "next_begin_offset",
        "min_offset",
        "max_offset",
        remark="FOUND",
    )
    fields = {"suggestWhichBrokerId": "0", "nextBeginOffset": "11", "minOffset": "0", "maxOffset": "11"}
    command = RemotingCommand(0, fields, b"records", 6, ANSWER, remark="FOUND")
    assert found.encode(SerializeType.JSON, 6, (11, 0, 11), b"records") == encode_frame(command)


@pytest.fixture
def strange_request() -> Iterator[type[Request]]:
    """Declare a request that upstream does not have, as a stranger would: in one place."""

    class StrangeRequest(TopicQueueRequest):
        """Do something strange to a queue."""

        codes = (Code(29_999, "BE_STRANGE", since="9.9.0"),)
        rights = (Right.UPDATE,)

        topic: String = field(acl=TOPIC)
        queue_id: Integer
        how_strange: Long | None = None
        hidden: String | None = field(default=None, secret=True)

    yield StrangeRequest
    del headers_module._REQUESTS[29_999]


def test_a_request_is_added_in_one_place(strange_request: type[Request]) -> None:
    row = REQUESTS[29_999]
    ext = {"topic": "T", "queueId": "3", "howStrange": "7", "hidden": "hush"}
    request = row.decode(ext)
    assert isinstance(request, strange_request)
    assert (request.given["queue_id"], row.encode(request)) == (3, ext)
    for kind in SerializeType:
        command = RemotingCommand(row.code, row.encode(request), opaque=5, serialize_type=kind)
        assert row.decode(decode_frame(encode_frame(command)).ext) == request
    assert needs(request) == [Need(TOPIC, "T", frozenset({Right.UPDATE}))]
    assert line_of(command) == "5 request 29999 BE_STRANGE topic=T queueId=3 howStrange=7 hidden=***"
    made = wire_values.made(wire_values.requests((29_999,)), 20)
    assert all(row.decode(row.encode(value)) == value for _, value in made)
    with pytest.raises(HeaderError, match="<queueId> is null"):
        row.decode({"topic": "T"})
    roff = page_roff(remoting_page(), "today", "rmqtool")
    assert "29999 BE_STRANGE" in roff
    assert "Do something strange to a queue. Since 9.9.0." in roff
