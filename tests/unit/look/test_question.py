"""What a text asks for, by its form alone."""

from __future__ import annotations

import pytest

from rmqtool.look.question import NoSuchQuestion, QuestionKind, ask, decoded_json, find_receipt, guess_question

NOW = 1_800_000_000_000


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("order-4711", ["key"]),
        ("1787468400000", ["key"]),
        ("@8792", ["physicalOffset"]),
        ("Orders/3@88412", ["queueOffset"]),
        ("%RETRY%pay/0 @ 17", ["queueOffset"]),
        ("2026-08-23", ["time"]),
        ("2026-08-23T15:00", ["time"]),
        ("2026-08-23#15:00:00:000", ["time"]),
        ("-2h", ["time"]),
        ("C0A8010A00002A9F000000000001659B", ["offsetMsgId", "uniqKey"]),
        ("C0A8010A63194E0E2F2A5A34BEB800A4", ["uniqKey"]),
        ("T_pop@0@0@G_pop@1795004365785@broker-dev@ck", ["uniqKey"]),
        ("1795004365", ["key"]),
    ],
)
def test_the_form_tells_the_kind(text, kinds):
    assert [kind.value for kind in guess_question(text, lambda _: 5).kinds] == kinds


def test_a_place_in_a_queue_is_taken_apart():
    question = guess_question("%RETRY%pay/0 @ 17", int)
    assert (question.topic, question.queue_id, question.queue_offset) == ("%RETRY%pay", 0, 17)


@pytest.mark.parametrize("text", ["8792", "@8792"])
def test_a_physical_offset_may_be_asked_for_without_its_sign(text):
    assert ask(text, QuestionKind.PHYSICAL_OFFSET, int).physical_offset == 8792


@pytest.mark.parametrize(
    ("text", "kind"),
    [("x", QuestionKind.PHYSICAL_OFFSET), ("x", QuestionKind.QUEUE_OFFSET), ("xyz", QuestionKind.OFFSET_MSG_ID)],
)
def test_a_text_of_another_form_is_refused(text, kind):
    with pytest.raises(NoSuchQuestion):
        ask(text, kind, int)


RECEIPT = "40 1795004365785 60000 3 {flag} broker-dev 1 42"


def test_a_receipt_names_a_place_once_its_topic_is_known():
    question = find_receipt(RECEIPT.format(flag=0), "T", None)
    assert question is not None
    assert (question.topic, question.queue_id, question.queue_offset) == ("T", 1, 42)
    for flag, topic in ((1, "%RETRY%G_T"), (2, "%RETRY%G+T")):
        question = find_receipt(RECEIPT.format(flag=flag), "T", "G")
        assert question is not None
        assert question.topic == topic
    assert find_receipt("order-1", None, None) is None
    for topic, group in ((None, None), ("T", None)):
        with pytest.raises(NoSuchQuestion):
            find_receipt(RECEIPT.format(flag=1), topic, group)


def test_ids_are_taken_apart():
    decoded = decoded_json("C0A8010A00002A9F000000000001659B", now=NOW)
    assert decoded["offsetMsgId"] == {"host": "192.168.1.10:10911", "commitLogOffset": 0x1659B}
    decoded = decoded_json("C0A8010A63194E0E2F2A5A34BEB800A4", now=NOW, near=1_795_004_600_000)
    assert decoded["uniqKey"] == {"ip": "192.168.1.10", "pid": 0x6319, "timestamp": 1795004606136, "counter": 0xA4}
    assert decoded_json("order-1", now=NOW) == {}
    assert decoded_json(RECEIPT.format(flag=0), now=NOW)["popReceipt"]["queueOffset"] == 42
