"""Message ids, by literals from the specification."""

from __future__ import annotations

from datetime import UTC, timedelta, timezone

import pytest

from rmqtool.formats import ids
from rmqtool.formats.ids import IdKind, OffsetMsgId, PopId, PopReceipt, PopTag, UniqKey

IPV6 = bytes.fromhex("20010db8000000000000000000000020")
NOVEMBER = 1698796800000  # 2023-11-01T00:00Z


@pytest.mark.parametrize(
    ("text", "value", "host"),
    [
        (
            "C0A8011400002A9F0000000000000400",
            OffsetMsgId(bytes([192, 168, 1, 20]), 10911, 1024),
            "192.168.1.20:10911",
        ),
        ("7F00000100002A9F0000000000000000", OffsetMsgId(bytes([127, 0, 0, 1]), 10911, 0), "127.0.0.1:10911"),
        (IPV6.hex().upper() + "00002A9F0000000000000400", OffsetMsgId(IPV6, 10911, 1024), "[2001:db8::20]:10911"),
    ],
)
def test_offset_message_ids(text: str, value: OffsetMsgId, host: str) -> None:
    assert ids.decode_offset_msg_id(text) == value
    assert ids.decode_offset_msg_id(text.lower()) == value
    assert ids.encode_offset_msg_id(*value) == text
    assert value.host == host


@pytest.mark.parametrize("text", ["", "C0A80114", "g" * 32, "0" * 33, "0" * 40, " " * 32, "0 " * 16, "٣" * 32])
def test_what_is_no_hexadecimal_id(text: str) -> None:
    assert ids.decode_offset_msg_id(text) is None
    assert ids.decode_uniq_key(text) is None
    assert ids.guess_id(text).kinds == ()


def test_unique_key() -> None:
    text = "C0A8010A10E118B4AAC247B760000007"
    key = ids.decode_uniq_key(text)
    assert key == UniqKey(bytes([192, 168, 1, 10]), 4321, 0x18B4AAC2, 1203200000, 7)
    assert ids.encode_uniq_key(key) == text
    assert ids.uniq_key_time(key.month_span, 1700000000001, UTC) == 1700000000000
    negative = key._replace(loader_hash=-1, month_span=0xFFFFFFFF, address=IPV6)
    assert ids.decode_uniq_key(ids.encode_uniq_key(negative)) == negative


def test_a_time_that_would_lie_ahead_belongs_to_the_month_before() -> None:
    span = 1203200000
    assert ids.uniq_key_time(span, NOVEMBER + span, UTC) == NOVEMBER - 31 * 86_400_000 + span
    assert ids.uniq_key_time(span, NOVEMBER + span + 1, UTC) == NOVEMBER + span


def test_the_month_begins_where_the_producer_lives() -> None:
    eight_hours_east = timezone(timedelta(hours=8))
    now = NOVEMBER - 3_600_000
    assert ids.uniq_key_time(1, now, UTC) == NOVEMBER - 31 * 86_400_000 + 1
    assert ids.uniq_key_time(1, now, eight_hours_east) == NOVEMBER - 8 * 3_600_000 + 1


@pytest.mark.parametrize("off", [-5000, 0, 5000, 10 * 86_400_000, -10 * 86_400_000])
def test_a_known_time_settles_the_month(off: int) -> None:
    assert ids.nearest_uniq_key_time(1203200000, 1700000000000 + off, UTC) == 1700000000000
    last_of_october = NOVEMBER - 1
    assert ids.nearest_uniq_key_time(31 * 86_400_000 - 1, last_of_october + off, UTC) == last_of_october


@pytest.mark.parametrize("reference", [1 << 62, -(1 << 62), 253402300799999, -62135596800000])
def test_times_beyond_the_calendar(reference: int) -> None:
    ids.nearest_uniq_key_time(5, reference, UTC)
    assert ids.uniq_key_time(5, 1 << 62, UTC) is None
    assert ids.nearest_uniq_key_time(5, 1 << 62, UTC) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (
            "T@2@100@g@1700000000000@broker-a@ck",
            PopId(PopTag.CHECK_POINT, "T", 2, (100,), "g", 1700000000000, "broker-a"),
        ),
        ("T@2@101@g@1700000000000@broker-a@ack", PopId(PopTag.ACK, "T", 2, (101,), "g", 1700000000000, "broker-a")),
        ("T@2@[100, 101]@g@1700000000000@bAck", PopId(PopTag.BATCH_ACK, "T", 2, (100, 101), "g", 1700000000000, None)),
        ("T@2@[]@g@5@bAck", PopId(PopTag.BATCH_ACK, "T", 2, (), "g", 5, None)),
    ],
)
def test_pop_ids(text: str, value: PopId) -> None:
    assert ids.decode_pop_id(text) == value
    assert ids.encode_pop_id(value) == text
    assert ids.guess_id(text).kinds == (IdKind.UNIQ_KEY,)


@pytest.mark.parametrize(
    "text",
    [
        "T@2@[100]@g@5@broker-a@ck",
        "T@2@100@g@5@ck",
        "T@2@100@g@5@bAck",
        "T@2@[1,2]@g@5@bAck",
        "T@2@[1, x]@g@5@bAck",
        "T@2@100@g@99999999999999999999@b@ck",
        "T@2@100@g@9999999999999999999@b@ck",
        "T@2@100@g@5@b@cK",
        "T@x@100@g@5@b@ck",
        "@@@@@@",
    ],
)
def test_what_is_no_pop_id(text: str) -> None:
    assert ids.decode_pop_id(text) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5 1700000000000 60000 3 0 broker-a 2", PopReceipt(5, 1700000000000, 60000, 3, "0", "broker-a", 2)),
        ("5 1700000000000 60000 3 2 broker-a 2 77", PopReceipt(5, 1700000000000, 60000, 3, "2", "broker-a", 2, 77)),
        ("-1 0 0 999 1 b 0 0", PopReceipt(-1, 0, 0, 999, "1", "b", 0, 0)),
    ],
)
def test_pop_receipts(text: str, value: PopReceipt) -> None:
    assert ids.decode_pop_receipt(text) == value
    assert ids.encode_pop_receipt(value) == text


@pytest.mark.parametrize(
    "text", ["", "5 1 1 3 0 b", "5 1 1 3 0 b 2 77 1", "x 1 1 3 0 b 2", "5 1 1 3 0 b 2 ", "5  1 1 3 0 b 2"]
)
def test_what_is_no_pop_receipt(text: str) -> None:
    assert ids.decode_pop_receipt(text) is None


@pytest.mark.parametrize(
    ("text", "kinds", "reason"),
    [
        (
            "C0A8011400002A9F0000000000000400",
            (IdKind.OFFSET_MSG_ID, IdKind.UNIQ_KEY),
            "be at 1024 of 192.168.1.20:10911",
        ),
        ("C0A8010A10E118B4AAC247B760000007", (IdKind.UNIQ_KEY,), "more than 65535"),
        ("C0A8010A000018B4FAC247B760000007", (IdKind.UNIQ_KEY,), "negative"),
        ("C0A8010A000018B47AC247B760000007", (IdKind.UNIQ_KEY, IdKind.OFFSET_MSG_ID), "past the end of any log"),
        ("C0A8010AFFFF18B47AC247B760000007", (IdKind.UNIQ_KEY,), "more than 65535"),
        ("order-1", (), "not 32 or 56 hexadecimal digits"),
    ],
)
def test_telling_ids_apart(text: str, kinds: tuple[IdKind, ...], reason: str) -> None:
    guess = ids.guess_id(text)
    assert guess.kinds == kinds
    assert reason in " ".join(guess.reasons)
