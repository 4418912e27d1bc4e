"""``rmqtool copy``: copy messages of stores into a new one."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rmqtool.commands.options import CopyBroker, Filters, Group, Period, ProgressWhen, Scope, Show, When, Work
from rmqtool.commands.store_word import keep_private, tell
from rmqtool.errors import Exit, UsageError

if TYPE_CHECKING:
    from rmqtool.api.copy import Done
    from rmqtool.render.output import Output

_option = partial(typer.Option, rich_help_panel="What the copy is like")


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """How the copy differs from its sources."""

    salvage: Annotated[
        bool, _option("--salvage", help="Copy every valid message of a damaged log; keep the damaged bytes aside.")
    ] = False
    purge: Annotated[
        list[str] | None,
        _option(
            "--purge", metavar="TOPIC", help="Leave out this topic and every byte of it; * and ? match; repeatable."
        ),
    ] = None
    renumber: Annotated[
        bool, _option("--renumber", help="Number queue offsets from 0 without gaps; adjust groups.")
    ] = False
    rehost: Annotated[
        str | None, _option("--rehost", metavar="IP:PORT", help="Write this broker address into all messages.")
    ] = None
    redact: Annotated[
        list[str] | None,
        _option("--redact", metavar="WHAT", help="Remove the body, or a property by name; repeatable."),
    ] = None
    ids: Annotated[
        str | None,
        _option("--ids", metavar="FILE", help="Write the old and new ids of every message to a .jsonl or .csv file."),
    ] = None


def copy(
    stores: Annotated[
        list[str], typer.Argument(metavar="SRC... DST", help="Stores to read, and the new store.", show_default=False)
    ],
    *,
    scope: Scope,
    group: Group = None,
    unread: Annotated[bool, typer.Option("--unread", help="Read only what the group of -g has not consumed.")] = False,
    period: Period,
    filters: Filters,
    changes: Changes,
    progress: ProgressWhen = When.AUTO,
    broker: CopyBroker,
    show: Show,
) -> Exit:
    """Copy messages to a new store: salvage a damaged store, or split, purge, merge or move stores.

    SRC is only read, also while a broker runs on it. DST appears complete or not at all. Records, queue offsets and
    committed offsets stay the same; physical offsets change, and offset message ids with them. With -t, pending
    messages of the topic (delayed, timer, half) are copied, too; with --purge they are removed.

    Several SRC are merged by store time. Each queue keeps its order, and topics that several SRC have get new queue
    offsets. Groups keep their positions; in a merged queue they start at the first message that is unread in any SRC.

    The tier of SRC (tieredStoreFilePath) is copied, too. Its messages come first, by time.

    SRC can be a live cluster, rocketmq://HOST:9876. If DST is one, the messages are sent to the same queues, each once.
    Unique keys and properties stay. After an interruption, the same command continues.

    A damaged log is refused without --salvage. With it, skipped bytes are saved in DST.lost-and-found with a list, and
    the exit status is 6.
    """
    from rmqtool.api.copy import copied

    keep_private([path for path in stores[:-1] if "://" not in path])
    if len(stores) < 2:
        raise UsageError(
            "missing destination: copy takes the stores to read and the new store", hint="rmqtool copy SRC DST"
        )
    if unread != (group is not None):
        raise UsageError(
            "--unread and -g belong together", hint="-g GROUP --unread copies what the group has not consumed"
        )
    asked = {**scope.asked(), **period.asked(show.tz), **filters.asked()}
    with show.output("Copied") as output:
        how: Any = {**asdict(changes), "unread_by": group}
        work = Work(jobs=1, progress=progress).asked(output)
        target = broker.target(stores[-1])
        done = copied(broker.sources(stores[:-1], target), target, how, work, tell=output.note, **asked)
        _show(output, done)
    return done.status


def _show(output: Output, done: Done) -> None:
    from rmqtool.render.copy import copied_lines

    for said in done.said:
        tell(output, said)
    for text in done.notes:
        output.note(text)
    output.single(done.shown, copied_lines(output, done.shown, done.skipped))
