"""``rmqtool cat``: show messages."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rmqtool.api.cat import BodyStyle, OrderBy
from rmqtool.commands.options import BrokerOrCluster, Filters, Group, Limit, Offset, Period, Scope, Show, Store, Work
from rmqtool.commands.store_word import choose_store, tell
from rmqtool.errors import Exit, UsageError

if TYPE_CHECKING:
    from rmqtool.api.cat import How, Reading
    from rmqtool.render.output import Output

_ORDERS, _STYLES = "|".join(OrderBy), "|".join(BodyStyle)


@dataclass(frozen=True, slots=True, kw_only=True)
class Which:
    """Which messages, in addition to the common options, and how they are shown."""

    body_re: Annotated[
        str | None, typer.Option("--body-re", metavar="REGEX", help="Show only bodies that match REGEX.")
    ] = None
    unread: Annotated[bool, typer.Option("--unread", help="Read only what the group of -g has not consumed.")] = False
    sample: Annotated[int | None, typer.Option("--sample", metavar="N", min=1, help="Show N random messages.")] = None
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Wait for new messages.")] = False
    carve: Annotated[bool, typer.Option("--carve", help="Search any file for records.")] = False
    limit: Limit = None
    order: Annotated[OrderBy, typer.Option("--order", metavar=_ORDERS, help="Order of the messages.")] = OrderBy.LOG
    count: Annotated[bool, typer.Option("--count", help="Print only the number; bodies are not checked.")] = False
    body: Annotated[BodyStyle, typer.Option("--body", metavar=_STYLES, help="How to show bodies.")] = BodyStyle.TEXT
    decode: Annotated[
        str | None,
        typer.Option("--decode", metavar="cmd:PROGRAM", help="Decode bodies: base64 lines in, text lines out."),
    ] = None


def cat(
    store: Store = None,
    *,
    scope: Scope,
    offset: Offset = None,
    group: Group = None,
    period: Period,
    filters: Filters,
    which: Which,
    work: Work,
    broker: BrokerOrCluster,
    show: Show,
) -> Exit:
    """Print messages in the order of the log. Damage is shown among them, and changes the exit status to 6.

    -o -100 shows the last hundred messages; with --order queue the last hundred of each queue. STORE may also be the
    directory of one queue, the directory of a compacted queue's log, or one file of a log; with --carve any file.
    """
    from rmqtool.api.cat import reading

    _check(group, which, show)
    how: Any = {**asdict(which), "offset": offset, "unread_by": group}
    asked = {**scope.asked(), **period.asked(show.tz), **filters.asked()}
    place = broker.place(choose_store([store] if store is not None else []).store)
    with show.output() as output:
        _shape(how, output, which)
        with reading(place, how, work.asked(output, place), **asked) as found:
            _show(output, found, which)
    return found.status


def _check(group: str | None, which: Which, show: Show) -> None:
    """Refuse options that exclude each other."""
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    clashes = (
        (which.unread and group is None, "--unread needs a group", "-g GROUP --unread"),
        (group is not None and not which.unread, "-g GROUP alone does not select messages", _UNREAD),
        (which.count and which.body is not BodyStyle.TEXT, "--count shows no bodies", "leave out --body or --count"),
        (which.body is BodyStyle.RAW and not show.is_for_people, "raw bodies are not rows", "--body base64"),
        (which.body is BodyStyle.RAW and is_terminal, "a terminal shows no raw bodies", "> FILE, or --body hex"),
        (which.body is BodyStyle.HEX and (show.json or show.jsonl), _NO_HEX, "--body base64, or leave out --json"),
    )
    for clash, why, hint in clashes:
        if clash:
            raise UsageError(why, hint=hint)


_UNREAD = "-g GROUP --unread shows what the group has not consumed"
_NO_HEX = "JSON can hold bodies only as text or base64"


def _shape(how: How, output: Output, which: Which) -> None:
    """Use whole lines if they are shown as they are; for people the screen formats the bodies."""
    from rmqtool.api.cat import Form

    as_they_are = which.decode is None and which.body in (BodyStyle.TEXT, BodyStyle.JSON)
    is_json = output.look.mode in ("json", "jsonl")
    how["form"] = Form.COUNT if which.count else Form.LINES if as_they_are and is_json else Form.OBJECTS
    how["body"] = BodyStyle.TEXT if output.is_human else which.body


def _show(output: Output, found: Reading, which: Which) -> None:
    from rmqtool.api.cat import flag_words, raw_body
    from rmqtool.api.shapes import MESSAGE_FIELDS
    from rmqtool.render import messages as screens

    if found.unknown is not None:
        tell(output, found.unknown)
    if which.count:
        screens.show_count(output, found, lambda: (found.messages, [one.as_json()["damage"] for one in found.damages]))
    elif which.body is BodyStyle.RAW:
        screens.show_raw(output, found, raw_body)
    else:
        screens.show_messages(output, found, MESSAGE_FIELDS, flag_words, which.body)
    if found.is_unmatched:
        output.note(screens.nothing_matched(found.there))
