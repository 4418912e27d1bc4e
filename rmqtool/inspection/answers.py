"""The object that an answer of ``query`` is, apart from its messages."""

from __future__ import annotations

from typing import Any

from rmqtool.inspection.lookup import Answer
from rmqtool.inspection.question import decoded_json
from rmqtool.storage.store import Store


def answer_head(
    store: Store, answer: Answer, now: int, *, history: bool = False, group: str | None = None
) -> dict[str, Any]:
    """Return it; with what the question's id says by itself, and with ``history`` what happened to the messages."""
    first = next(answer.iter_messages(store), None)
    head = answer.as_json()
    decoded = decoded_json(answer.question.text, now=now, near=first.born_timestamp if first else None)
    if decoded:
        head["decoded"] = decoded
    if history:
        from rmqtool.inspection.history import tell_stories

        stories = tell_stories(store, answer.iter_messages(store), group)
        head["history"] = [event for story in stories for event in story.events_json()]
        head["stories"] = [story.as_json() for story in stories]
    return head
