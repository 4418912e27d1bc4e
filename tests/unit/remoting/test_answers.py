"""Answers that say no: upstream's words, by version, to the right request in the right kind of header."""

from __future__ import annotations

import pytest

from rmqtool.formats.response_codes import ResponseCode
from rmqtool.remoting import answers
from rmqtool.remoting.bodies.routes import TopicList
from rmqtool.remoting.command import RemotingCommand, SerializeType
from rmqtool.remoting.declared import HeaderError
from rmqtool.remoting.frames import decode_frame, encode_frame
from rmqtool.remoting.requests import REQUESTS
from rmqtool.remoting.requests.offsets import GetMaxOffsetAnswer

ASK = RemotingCommand(4711, {"a": "b"}, b"x", opaque=9, version=479)


def test_an_unknown_code_is_answered_3() -> None:
    """The blank in front is upstream's."""
    said = answers.refuse(ASK, answers.UNSUPPORTED, "4.9", code=ASK.code)
    assert (said.code, said.remark, said.opaque, said.flag) == (3, " request type 4711 not supported", 9, 1)
    assert said.ext_fields is None


@pytest.mark.parametrize("kind", SerializeType)
def test_an_answer_has_the_requests_kind_of_header(kind: SerializeType) -> None:
    said = answers.answer(ASK.replaced(serialize_type=kind), header=GetMaxOffsetAnswer(offset=5), body=b"y")
    assert decode_frame(encode_frame(said)) == said
    assert (said.serialize_type, said.ext_fields, said.body) == (kind, {"offset": "5"}, b"y")


def test_a_body_may_be_a_value() -> None:
    assert answers.answer(ASK, body=TopicList(topic_list=["T"])).body == b'{"topicList":["T"]}'


def test_texts_and_codes_are_those_of_the_version() -> None:
    # As recorded from 5.3.3, and from the sources of 4.9.8.
    assert answers.NO_ROUTE.of("5.3", topic="T") == (
        ResponseCode.TOPIC_NOT_EXIST,
        "No topic route info in name server for the topic: T\n"
        "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details.",
    )
    assert answers.NO_ROUTE.of("4.9", topic="T")[1].endswith(
        "\nSee http://rocketmq.apache.org/docs/faq/ for further details."
    )
    holes = {"queue_id": 9, "topic_config": "x", "client": "c"}
    assert answers.SEND_QUEUE_ILLEGAL.of("4.9", **holes)[0] == 1
    assert answers.SEND_QUEUE_ILLEGAL.of("5.4", **holes) == (29, "request queueId[9] is illegal, x Producer: c")


def test_a_header_that_cannot_be_read_is_answered_1_with_the_reason() -> None:
    with pytest.raises(HeaderError) as raised:
        REQUESTS[11].decode({"topic": "T"})
    said = answers.unreadable(ASK, raised.value)
    assert (said.code, said.remark) == (1, "the custom field <consumerGroup> is null")
