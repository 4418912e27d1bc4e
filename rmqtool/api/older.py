"""Older messages of ``query``: those that are in the tier of a store, or in a tier that was named itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqtool.api.wanted import Json

if TYPE_CHECKING:
    from rmqtool.filters.wanted import Wanted
    from rmqtool.formats.commit_log import Message
    from rmqtool.log.ranges import Effort
    from rmqtool.look.lookup import Answer
    from rmqtool.look.question import Question
    from rmqtool.look.tier_search import TierAnswer
    from rmqtool.store.open import Store
    from rmqtool.store.tiers import Tier
    from rmqtool.store.time_search import Boundary


def find_in_tier(
    tier: Tier, question: Question, narrowed: Wanted, boundary: Boundary, effort: Effort
) -> tuple[Json, TierAnswer]:
    """Return the answer of a tier without its store, and its object for JSON without messages."""
    from rmqtool.look.question import decoded_json
    from rmqtool.look.tier_search import TierLookup
    from rmqtool.times import now_ms

    answer = TierLookup(tier, narrowed, boundary, effort=effort).find(question)
    decoded = decoded_json(question.text, now=now_ms())
    return {**answer.as_json(), **({"decoded": decoded} if decoded else {})}, answer


def older_messages(
    store: Store, answer: Answer, narrowed: Wanted, boundary: Boundary, notes: list[str], effort: Effort
) -> list[Message]:
    """Return the messages that only the tier of a store has. For a single message, the store is asked first."""
    if not store.config.tiered_store_file_path or not _asks_tier(store, answer):
        return []
    from rmqtool.log.sources import tier_label
    from rmqtool.look.place_search import before_the_log
    from rmqtool.look.tier_search import TierLookup
    from rmqtool.store.tiers import Tier, TierAbsent, tier_of

    found = tier_of(store)
    if isinstance(found, TierAbsent):
        notes.append(f"{found.reason}: older messages are not searched")
        answer.complete = False
    if not isinstance(found, Tier):
        return []
    with found as tier:
        lookup = TierLookup(tier, narrowed, boundary, tier_label(store, tier), effort)
        more = lookup.find(answer.question)
    if answer.question.timestamp is not None and more.is_found:
        answer.places = []
        answer.queue_offsets |= more.queue_offsets
    there = {(one.topic, one.queue_id, one.queue_offset) for one in answer.iter_messages(store)}
    answer.complete = answer.complete and more.complete
    answer.searched["tier"] = more.searched
    older = [one for one in more.messages if (one.topic, one.queue_id, one.queue_offset) not in there]
    if not older and not answer.is_found:
        # The log no longer has older messages, but that is not the reason here.
        own = [reason for reason in answer.reasons if before_the_log(store) not in reason]
        answer.reasons = [*own, "the tier was searched too", *more.reasons]
    if older:
        answer.kind = more.kind
        answer.reasons.clear()
        answer.near.clear()
        answer.answered_by += [by for by in more.answered_by if by not in answer.answered_by]
    return older


def _asks_tier(store: Store, answer: Answer) -> bool:
    """Return whether the tier of a store can have more messages of an answer than the store.

    As with a broker, the tier answers for a time before the first message of the log.
    """
    from rmqtool.log.end import first_record
    from rmqtool.look.question import QuestionKind

    if answer.question.timestamp is not None:
        first = first_record(store.commit_log)
        return first is None or answer.question.timestamp < first.store_timestamp
    return not answer.is_found or answer.kind in (QuestionKind.KEY, QuestionKind.UNIQ_KEY, QuestionKind.TAG)


def with_tier(head: Json, answer: Answer, older: list[Message]) -> Json:
    """Return the head of an answer after the tier was asked."""
    kept = {name: value for name, value in head.items() if not older or name not in ("reasons", "near")}
    return {**kept, **answer.as_json()}
