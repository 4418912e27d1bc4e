"""``query``: find a message by id, key or place, and show the evidence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from shlex import quote
from typing import TYPE_CHECKING, TypedDict, Unpack, cast

from rmqtool.api.cluster import opened_cluster
from rmqtool.api.older import find_in_tier, older_messages, with_tier
from rmqtool.api.store import Place, is_remote, opened_here, store_of
from rmqtool.api.wanted import WHERE, Json, Where, Working, effort_of, require_known, wanted_of
from rmqtool.errors import Exit, UsageError, worst

if TYPE_CHECKING:
    from rmqtool.api.shapes import Answer
    from rmqtool.filters.wanted import Wanted
    from rmqtool.findings import Finding
    from rmqtool.look.question import Question
    from rmqtool.store.open import Store
    from rmqtool.store.time_search import Boundary

WHAT = "an id, a key, TOPIC/QUEUE@OFFSET, @PHYSICAL_OFFSET, a time or a POP receipt"
KINDS = ("offsetMsgId", "uniqKey", "key", "queueOffset", "physicalOffset", "time", "tag")
SHAPES = "WHAT: id, key, TOPIC/QUEUE@OFFSET, @PHYSICAL_OFFSET, time, POP receipt"


class How(TypedDict, total=False):
    """The parts of the answer, and how the question is understood."""

    kind: str | None
    boundary: str | None
    history: bool
    group: str | None
    limit: int | None
    zone: str


@dataclass
class Found:
    """An answer: the object of the contract without its messages, and the messages, read lazily.

    ``decoded`` is the content of an id that was decoded without a store.
    """

    head: Json
    places: int = 0
    messages: Iterable[Json] = ()
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    decoded: Json | None = None
    is_found: bool = True
    # The command to type if nothing was found, or for a dead letter.
    hint: str | None = None

    @property
    def status(self) -> Exit:
        """Return the exit status of the command."""
        whole = Exit.DONE if self.head["complete"] else Exit.SKIPPED
        if self.is_found:
            # One message answers; of a time each queue is asked.
            return whole if self.head["kind"] == "time" else Exit.DONE
        return worst(Exit.NO, whole)


def query(
    store: Place,
    what: str,
    *,
    kind: str | None = None,
    history: bool = False,
    limit: int | None = None,
    **which: Unpack[Where],
) -> Answer:
    """Find a message by an id, a key, "TOPIC/QUEUE@OFFSET" or "@OFFSET", and return the evidence with it.

    Of ``which``, topics, queue and times narrow the search. With ``history`` the answer has the message's history.
    """
    require_known("query", which, WHERE)
    with find(store, what, {"kind": kind, "history": history, "limit": limit}, **which) as found:
        return cast("Answer", {**found.head, "messages": list(found.messages)})


@contextmanager
def find(
    store: Place | None, what: str, how: How, work: Working | None = None, **which: Unpack[Where]
) -> Iterator[Found]:
    """Find a message, and keep the store open while the messages are read; without a store only decode the id."""
    from rmqtool.engine.clock import SystemClock
    from rmqtool.formats.message_json import message_json
    from rmqtool.look.lookup import Lookup, answer_head
    from rmqtool.store.tiers import Tier
    from rmqtool.store.time_search import Boundary

    narrowed = wanted_of(which, limit=how.get("limit"))
    question = question_of(what, how, narrowed)
    _refuse_idle(question, how, narrowed)
    if store is None:
        yield _decoded(question)
        return
    if is_remote(store):
        yield _asked(store, question, how, narrowed)
        return
    named = store_of(store)
    with opened_here(named) as opened:
        if isinstance(opened, Tier):
            if how.get("history"):
                raise UsageError("--history needs a store", hint="give the store that the tier belongs to")
            lower_or_upper = Boundary(how.get("boundary") or Boundary.LOWER)
            head, found = find_in_tier(opened, question, narrowed, lower_or_upper, effort_of(**(work or {})))
            messages = (message_json(message).fields for message in found.messages)
            yield Found(head, len(found.messages), messages, found.findings, is_found=found.is_found)
            return
        notes: list[str] = []
        boundary = _boundary(how.get("boundary"), question, opened, notes)
        as_asked = named.as_version is not None
        answer = Lookup(opened, narrowed, boundary, as_asked, lambda: effort_of(**(work or {}))).find(question)
        now = SystemClock().now()
        head = answer_head(opened, answer, now, history=how.get("history", False), group=how.get("group"))
        older = older_messages(opened, answer, narrowed, boundary, notes, effort_of(**(work or {})))
        if older and how.get("history"):
            notes.append("the history of messages in the tier is not read")
        messages = (message_json(message).fields for message in chain(older, answer.iter_messages(opened)))
        head = with_tier(head, answer, older)
        places, is_found = len(answer.places) + len(older), answer.is_found or bool(older)
        hint = answer.hint or _letters_command(head)
        if hint is None and not is_found:
            hint = _fix_command(answer.findings)
        yield Found(head, places, messages, answer.findings, notes, is_found=is_found, hint=hint)


def _letters_command(head: Json) -> str | None:
    """Return the command that shows the dead letters of a group, if a message of the answer became one."""
    from rmqtool.formats.topics import DLQ_PREFIX

    topics = (event["topic"] for event in head.get("history", ()) if event["event"] == "dlq")
    topic = next(topics, None)
    return None if topic is None else f"rmqtool consume STORE -g {quote(topic.removeprefix(DLQ_PREFIX))} --dlq"


def _fix_command(findings: Iterable[Finding]) -> str | None:
    """Return what to type where damage may be why nothing is found."""
    from rmqtool.findings import is_command

    return next((finding.fix for finding in findings if finding.fix is not None and is_command(finding.fix)), None)


def _asked(place: Place, question: Question, how: How, narrowed: Wanted) -> Found:
    """Return the answer of a live cluster."""
    from rmqtool.api.remote import answer_json

    for option in ("history", "boundary"):
        if how.get(option):
            raise UsageError(f"--{option} needs the files of a store", hint="give the storePathRootDir of a broker")
    with opened_cluster(place) as cluster:
        head: Json = dict(cluster.run(answer_json(cluster.connections, question, narrowed)))
    messages = head.pop("messages")
    is_found = bool(messages) or "queueOffsets" in head
    return Found({**head, "messages": []}, len(messages), messages, is_found=is_found)


def question_of(what: str, how: How, narrowed: Wanted) -> Question:
    """Return the question that a text asks. Raises UsageError."""
    from rmqtool.look.question import NoSuchQuestion, QuestionKind, ask, find_receipt, guess_question
    from rmqtool.times import now_ms, parse_time, parse_zone

    def parse(text: str) -> int:
        return parse_time(text, now=now_ms(), zone=parse_zone(how.get("zone", "local")))

    kind = how.get("kind")
    try:
        if kind is None:
            receipt = find_receipt(what, narrowed.topics.exact, how.get("group"))
            return receipt or guess_question(what, parse)
        if kind not in list(QuestionKind):
            raise UsageError(f'unknown kind "{kind}"', hint=f"one of {', '.join(KINDS)}")
        return ask(what, QuestionKind(kind), parse)
    except NoSuchQuestion as error:
        raise UsageError(str(error), hint=SHAPES) from error


def _refuse_idle(question: Question, how: How, narrowed: Wanted) -> None:
    """Refuse options that would have no effect on the answer."""
    from rmqtool.formats.ids import decode_pop_receipt

    group, history = how.get("group"), how.get("history", False)
    if question.timestamp is not None:
        given = {"--history": history or None, "-g": group, "-b": narrowed.begin, "-e": narrowed.end}
        given["-n"] = narrowed.limit
        for option, value in given.items():
            if value is not None:
                raise UsageError(
                    f"{option} has no effect on the offset of a time", hint="-t and -q name the queue that is asked"
                )
    elif group is not None and not history and decode_pop_receipt(question.text) is None:
        raise UsageError(
            "-g has no effect on where a message is", hint="--history -g GROUP tells what became of it in the group"
        )


def _boundary(text: str | None, question: Question, store: Store, notes: list[str]) -> Boundary:
    from rmqtool.config import Version
    from rmqtool.store.time_search import Boundary

    if text is None:
        return Boundary.LOWER
    if text not in list(Boundary):
        raise UsageError(f'unknown boundary "{text}"', hint="one of lower, upper")
    if question.timestamp is None:
        raise UsageError("--boundary needs a time", hint="add --kind time if this is a time")
    if store.version is Version.V4_9:
        notes.append("4.9 has no boundary: it answers the same for both")
    return Boundary(text)


def _decoded(question: Question) -> Found:
    """Return the content of an id, without a store."""
    from rmqtool.look.question import decoded_json
    from rmqtool.times import now_ms

    decoded = decoded_json(question.text, now=now_ms())
    if not decoded:
        raise UsageError(f'"{question.text}" is not an id, and no store is given', hint="put STORE first")
    kind = question.kinds[0].value
    head: Json = {"query": question.text, "kind": kind, "messages": [], "answeredBy": [], "searched": {}}
    return Found({**head, "complete": True, "decoded": decoded}, decoded=decoded)
