"""``rmqtool query``: find a message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rmqtool.api.query import KINDS, SHAPES, WHAT
from rmqtool.commands.options import BrokerOrCluster, Group, Limit, Period, Scope, Show, Work, store_and
from rmqtool.commands.store_word import choose_store, typeable
from rmqtool.errors import Exit, UsageError

if TYPE_CHECKING:
    from rmqtool.api.query import Found, How
    from rmqtool.render.output import Output

_KINDS = "|".join(KINDS)


def query(
    words: Annotated[list[str] | None, store_and("WHAT", f"The store, and what to find: {WHAT}.")] = None,
    *,
    kind: Annotated[str | None, typer.Option("--kind", metavar=_KINDS, help="Kind of WHAT; default: guessed.")] = None,
    history: Annotated[bool, typer.Option("--history", help="Also show what happened to the message.")] = False,
    boundary: Annotated[
        str | None,
        typer.Option(
            "--boundary", metavar="lower|upper", help="For a time: the first offset after it, or the last before it."
        ),
    ] = None,
    scope: Scope,
    group: Group = None,
    period: Period,
    limit: Limit = None,
    work: Work,
    broker: BrokerOrCluster,
    show: Show,
) -> Exit:
    """Find a message by an id, a key, an offset or a time, and show how it was found.

    rmqtool uses the index and the queues, and searches the log where they end early, contradict it or find nothing.
    With --limit the newest messages are shown; with --as, key, time and limit work as in that broker. Without a store,
    an id is only decoded.
    """
    from rmqtool.api.query import find

    path, what = _store_and_what(words or [])
    # A query for nothing is answered with nothing, as a broker does.
    which = {**scope.asked(), **period.asked(show.tz, may_be_empty=True)}
    if history and (show.csv or show.template is not None):
        raise UsageError(
            "--history is not shown in rows of messages", hint="leave out --csv and --template, or use --json"
        )
    how: How = {"kind": kind, "boundary": boundary, "history": history, "group": group, "limit": limit, "zone": show.tz}
    with show.output() as output:
        store = None if path is None else broker.place(path)
        with find(store, what, how, work.asked(output, store), **which) as found:
            _show(output, found)
    return found.status


def _store_and_what(words: list[str]) -> tuple[str | None, str]:
    """Return the store, None without one, and what to find."""
    if not words:
        raise UsageError("nothing to search for", hint=SHAPES)
    try:
        choice = choose_store(words, takes_words=True)
    except UsageError:
        if len(words) > 1:
            raise
        return None, words[0]
    if not choice.words:
        raise UsageError(f"nothing to search for in {choice.store}", hint=SHAPES)
    if len(choice.words) > 1:
        raise UsageError(f'search for one thing at a time, not "{" ".join(choice.words)}"', hint=SHAPES)
    return choice.store, choice.words[0]


def _show(output: Output, found: Found) -> None:
    from rmqtool.api.shapes import MESSAGE_FIELDS
    from rmqtool.render.query import answer_lines, decoded_lines

    for note in found.notes:
        output.note(note)
    if found.decoded is not None:
        output.single(found.head, decoded_lines(output, found.head["query"], found.decoded))
    elif output.is_human:
        for line in answer_lines(output, found.head, found.places, found.messages, found.findings):
            output.line(line)
        if found.hint is not None:
            output.line(f"Next: {output.paint(typeable(found.hint), 'command')}")
    elif output.look.mode in ("json", "jsonl"):
        output.long_single(found.head, "messages", found.messages)
    else:
        output.rows(found.messages, MESSAGE_FIELDS, lambda _: ())
