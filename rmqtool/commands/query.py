"""``rmqtool query``: where is this message?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rmqtool.commands.opening import choose_store
from rmqtool.commands.options import AsBroker, Group, Limit, Period, Scope, Show, Work, store_and
from rmqtool.errors import Exit, UsageError, worst
from rmqtool.times import now_ms, parse_time, parse_zone

if TYPE_CHECKING:
    from rmqtool.look.lookup import Answer
    from rmqtool.look.question import Narrowing, Question
    from rmqtool.render.output import Output
    from rmqtool.store.open import Store
    from rmqtool.store.time_search import Boundary

_WHAT = "an id, a key, TOPIC/QUEUE@OFFSET, @PHYSICAL_OFFSET, a time or a POP receipt"
_KINDS = "offsetMsgId|uniqKey|key|queueOffset|physicalOffset|time|tag"
_SHAPES = f"WHAT is {_WHAT}"


def query(
    words: Annotated[list[str] | None, store_and("WHAT", f"The store, and what to find: {_WHAT}.")] = None,
    *,
    kind: Annotated[str | None, typer.Option("--kind", metavar=_KINDS, help="What WHAT is.")] = None,
    history: Annotated[bool, typer.Option("--history", help="Also tell what happened to the message.")] = False,
    boundary: Annotated[
        str | None,
        typer.Option(
            "--boundary", metavar="lower|upper", help="For a time: the first offset since, or the last until."
        ),
    ] = None,
    scope: Scope,
    group: Group = None,
    period: Period,
    limit: Limit = None,
    work: Work,
    broker: AsBroker,
    show: Show,
) -> Exit:
    """Find a message by whatever is known of it, and say what proves the answer.

    Index, queues and ids lead there; the log is searched where they end early, disagree or find nothing. With --limit
    the newest messages are taken; with --as, key, times and limit are taken as that broker does. An id without a store
    is only taken apart.
    """
    from rmqtool.look.lookup import Lookup
    from rmqtool.store.open import open_store

    path, what = _store_and_what(words or [])
    # Asked for nothing a broker answers nothing.
    narrowing = _narrowing(scope, period.bounds(show.tz, may_be_empty=True), limit)
    question = _question(what, kind, narrowing, group, show.tz)
    _refuse_idle(question, history, group, period, limit)
    with show.output() as output:
        if path is None:
            return _decode(output, question)
        with open_store(path, version=broker.as_version, assignments=tuple(broker.conf or ())) as store:
            chosen = _boundary(boundary, question, store, output)
            lookup = Lookup(store, narrowing, chosen, broker.as_version is not None, lambda: work.effort(output))
            answer = lookup.find(question)
            _show(output, store, answer, group, history)
    if answer.is_found:
        return Exit.DONE
    return worst(Exit.NO, Exit.DONE if answer.complete else Exit.SKIPPED)


def _store_and_what(words: list[str]) -> tuple[str | None, str]:
    """Return the store, None when there is none to look into, and what to find."""
    if not words:
        raise UsageError("what is to be found?", hint=_SHAPES)
    try:
        choice = choose_store(words, takes_words=True)
    except UsageError:
        if len(words) > 1:
            raise
        return None, words[0]
    if not choice.words:
        raise UsageError(f"what is to be found in {choice.store}?", hint=_SHAPES)
    if len(choice.words) > 1:
        raise UsageError(f'one thing at a time, not "{" ".join(choice.words)}"', hint=_SHAPES)
    return choice.store, choice.words[0]


def _narrowing(scope: Scope, bounds: tuple[int | None, int | None], limit: int | None) -> Narrowing:
    from rmqtool.filters.patterns import parse_patterns
    from rmqtool.look.question import Narrowing

    begin, end = bounds
    topics = parse_patterns(scope.topic or ())
    return Narrowing(topics=topics, queue_id=scope.queue, begin=begin, end=end, limit=limit)


def _question(what: str, kind: str | None, narrowing: Narrowing, group: str | None, zone: str) -> Question:
    from rmqtool.look.question import NoSuchQuestion, QuestionKind, ask, find_receipt, guess_question

    def parse(text: str) -> int:
        return parse_time(text, now=now_ms(), zone=parse_zone(zone))

    try:
        if kind is None:
            return find_receipt(what, narrowing.topics.exact, group) or guess_question(what, parse)
        if kind not in list(QuestionKind):
            raise UsageError(f'"{kind}" is not a kind', hint=f"one of {_KINDS}")
        return ask(what, QuestionKind(kind), parse)
    except NoSuchQuestion as error:
        raise UsageError(str(error), hint=_SHAPES) from error


def _refuse_idle(question: Question, history: bool, group: str | None, period: Period, limit: int | None) -> None:
    from rmqtool.commands.selecting import refuse_idle
    from rmqtool.formats.ids import decode_pop_receipt

    if question.timestamp is not None:
        given = {"--history": history, "-g": group, "-b": period.begin, "-e": period.end, "-n": limit}
        refuse_idle("the offset of a time", given, "-t and -q name the queue that is asked")
    elif not history and decode_pop_receipt(question.text) is None:
        refuse_idle("where a message is", {"-g": group}, "--history -g GROUP tells what became of it in the group")


def _boundary(text: str | None, question: Question, store: Store, output: Output) -> Boundary:
    from rmqtool.config import Version
    from rmqtool.store.time_search import Boundary

    if text is None:
        return Boundary.LOWER
    if text not in list(Boundary):
        raise UsageError(f'"{text}" is not a boundary', hint="one of lower, upper")
    if question.timestamp is None:
        raise UsageError("--boundary is for a time", hint="add --kind time if it is one")
    if store.version is Version.V4_9:
        output.note("4.9 knows no boundary: it answers the same for both")
    return Boundary(text)


def _decode(output: Output, question: Question) -> Exit:
    """Say what an id says by itself: there is no store to look into."""
    from rmqtool.look.question import decoded_json
    from rmqtool.render.query import decoded_lines

    decoded = decoded_json(question.text, now=now_ms())
    if not decoded:
        raise UsageError(f'"{question.text}" is no id, and there is no store to look into', hint="put STORE first")
    kind = question.kinds[0].value
    shown = {"query": question.text, "kind": kind, "messages": [], "answeredBy": [], "searched": {}, "complete": True}
    output.single({**shown, "decoded": decoded}, decoded_lines(output, question.text, decoded))
    return Exit.DONE


def _show(output: Output, store: Store, answer: Answer, group: str | None, history: bool) -> None:
    from rmqtool.formats.message_json import FIELDS, message_json
    from rmqtool.look.lookup import answer_head
    from rmqtool.render.query import answer_lines

    head = answer_head(store, answer, now_ms(), history=history, group=group)
    messages = (message_json(message).fields for message in answer.iter_messages(store))
    if output.is_human:
        for line in answer_lines(output, head, len(answer.places), messages, answer.findings):
            output.line(line)
    elif output.look.mode in ("json", "jsonl"):
        output.long_single(head, "messages", messages)
    else:
        output.rows(messages, FIELDS, lambda _: ())
