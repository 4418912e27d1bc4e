"""Questions of ``query``: recognized by the form of the text, and decoded as far as the text alone allows."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC
from enum import StrEnum
from typing import Any

from rmqtool.formats import ids
from rmqtool.formats.hosts import format_address
from rmqtool.formats.ids import IdKind
from rmqtool.formats.topics import RETRY_PREFIX, pop_retry_topic

_QUEUE_OFFSET = re.compile(r"(?P<topic>[^/\s]+)/(?P<queue_id>\d{1,9}) ?@ ?(?P<offset>\d{1,18})", re.ASCII)
_PHYSICAL_OFFSET = re.compile(r"@(?P<offset>\d{1,18})", re.ASCII)
# Times, which are not likely to be keys: a day, perhaps with a time after it; or a span before now.
_TIME = re.compile(r"\d{4}-\d{2}-\d{2}([T #].*)?|-(\d+(\.\d+)?(ms|[smhdw]))+", re.ASCII)


class QuestionKind(StrEnum):
    """The kinds of questions. A tag must be asked for as one."""

    OFFSET_MSG_ID = IdKind.OFFSET_MSG_ID.value
    UNIQ_KEY = IdKind.UNIQ_KEY.value
    KEY = "key"
    QUEUE_OFFSET = "queueOffset"
    PHYSICAL_OFFSET = "physicalOffset"
    TIME = "time"
    TAG = "tag"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question. Its ``kinds`` are tried in order; ``reasons`` say how they were recognized."""

    text: str
    kinds: tuple[QuestionKind, ...]
    reasons: tuple[str, ...] = ()
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    physical_offset: int | None = None
    timestamp: int | None = None


class NoSuchQuestion(ValueError):
    """The text is not of the kind that was asked for."""


def guess_question(text: str, parse_time: Callable[[str], int]) -> Question:
    """Return the question that the form of ``text`` suggests.

    ``parse_time`` raises an error of its own for other texts.
    """
    place = _QUEUE_OFFSET.fullmatch(text)
    if place:
        return _queue_question(text, place["topic"], int(place["queue_id"]), int(place["offset"]))
    if _PHYSICAL_OFFSET.fullmatch(text):
        return ask(text, QuestionKind.PHYSICAL_OFFSET, parse_time)
    if _TIME.fullmatch(text):
        return ask(text, QuestionKind.TIME, parse_time)
    guess = ids.guess_id(text)
    if not guess.kinds:
        return Question(text=text, kinds=(QuestionKind.KEY,), reasons=guess.reasons)
    kinds = tuple(QuestionKind(kind.value) for kind in guess.kinds)
    return _with_id(Question(text=text, kinds=kinds, reasons=guess.reasons))


def ask(text: str, kind: QuestionKind, parse_time: Callable[[str], int]) -> Question:
    """Return ``text`` as a question of this kind."""
    if kind is QuestionKind.TIME:
        return Question(text=text, kinds=(kind,), timestamp=parse_time(text))
    if kind is QuestionKind.QUEUE_OFFSET:
        place = _QUEUE_OFFSET.fullmatch(text)
        if not place:
            raise NoSuchQuestion(f'"{text}" is not TOPIC/QUEUE@OFFSET')
        return _queue_question(text, place["topic"], int(place["queue_id"]), int(place["offset"]))
    if kind is QuestionKind.PHYSICAL_OFFSET:
        place = _PHYSICAL_OFFSET.fullmatch("@" + text.removeprefix("@"))
        if not place:
            raise NoSuchQuestion(f'"{text}" is not @OFFSET')
        return Question(text=text, kinds=(kind,), physical_offset=int(place["offset"]))
    question = Question(text=text, kinds=(kind,))
    if kind is QuestionKind.OFFSET_MSG_ID and ids.decode_offset_msg_id(text) is None:
        raise NoSuchQuestion(f'"{text}" is not an offset message id, which has 32 or 56 hexadecimal digits')
    return _with_id(question)


def find_receipt(text: str, topic: str | None, group: str | None) -> Question | None:
    """Return the queue offset that a POP receipt names as a question; None if ``text`` is not a receipt.

    A receipt has the queue and the offset. Which topic it is for, only its consumer knows.
    """
    receipt = ids.decode_pop_receipt(text)
    if receipt is None or receipt.queue_offset is None:
        return None
    if topic is None:
        raise NoSuchQuestion("a POP receipt does not name its topic")
    if receipt.retry_flag != "0" and not topic.startswith(RETRY_PREFIX):
        if group is None:
            raise NoSuchQuestion("the receipt is of a retry topic, which is named after the group")
        topic = pop_retry_topic(group, topic, v2=receipt.retry_flag == "2")
    return _queue_question(text, topic, receipt.queue_id, receipt.queue_offset)


def _queue_question(text: str, topic: str, queue_id: int, queue_offset: int) -> Question:
    kinds = (QuestionKind.QUEUE_OFFSET,)
    return Question(text=text, kinds=kinds, topic=topic, queue_id=queue_id, queue_offset=queue_offset)


def _with_id(question: Question) -> Question:
    decoded = ids.decode_offset_msg_id(question.text)
    if decoded is None or QuestionKind.OFFSET_MSG_ID not in question.kinds:
        return question
    return Question(
        text=question.text,
        kinds=question.kinds,
        reasons=question.reasons,
        physical_offset=decoded.physical_offset,
    )


def decoded_json(text: str, *, now: int, near: int | None = None) -> dict[str, Any]:
    """Return what a text says by itself, under each kind that it can be.

    A unique key does not have the month: its time is computed as a client does at ``now``, or nearest to ``near``.
    """
    found: dict[str, Any] = {}
    guess = ids.guess_id(text)
    for kind in guess.kinds:
        if kind is IdKind.OFFSET_MSG_ID:
            found[kind.value] = _offset_msg_id_json(text)
        else:
            found[kind.value] = _uniq_key_json(text, now, near)
    receipt = ids.decode_pop_receipt(text)
    if receipt is not None:
        found["popReceipt"] = {_camel(name): value for name, value in receipt._asdict().items() if value is not None}
    if found and guess.reasons and guess.kinds:
        found["reasons"] = list(guess.reasons)
    return found


def _offset_msg_id_json(text: str) -> dict[str, Any]:
    decoded = ids.decode_offset_msg_id(text)
    assert decoded is not None
    return {"host": decoded.host, "commitLogOffset": decoded.physical_offset}


def _uniq_key_json(text: str, now: int, near: int | None) -> dict[str, Any]:
    pop_id = ids.decode_pop_id(text)
    if pop_id is not None:
        told = {_camel(name): value for name, value in pop_id._asdict().items() if value is not None}
        return told | {"tag": pop_id.tag.value, "offsets": list(pop_id.offsets)}
    decoded = ids.decode_uniq_key(text)
    assert decoded is not None
    if near is None:
        timestamp = ids.uniq_key_time(decoded.month_span, now, UTC)
    else:
        timestamp = ids.nearest_uniq_key_time(decoded.month_span, near, UTC)
    return {
        "ip": format_address(decoded.address),
        "pid": decoded.pid,
        "timestamp": timestamp,
        "counter": decoded.counter,
    }


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)
