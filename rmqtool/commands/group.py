"""``rmqtool group``: list, show, create, alter and delete consumer groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rmqtool.api.group import ACTIONS
from rmqtool.commands.options import BrokerOrCluster, Show, refuse_idle, store_and
from rmqtool.commands.store_word import choose_store
from rmqtool.errors import Exit, Refused, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqtool.api.shapes import Group
    from rmqtool.render.output import Output


def group(
    words: Annotated[
        list[str] | None, store_and("list|show|create|alter|delete [GROUP]", "An action, and its group.")
    ] = None,
    *,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Set a setting, as in retryMaxTimes=3; repeatable."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Confirm the deletion.")] = False,
    broker: BrokerOrCluster,
    show: Show,
) -> Exit:
    """List the consumer groups of a store, show or create one, change its settings, or delete it.

    The settings have the names of a broker: consumeEnable, consumeFromMinEnable, consumeBroadcastEnable,
    consumeMessageOrderly, retryQueueNums, retryMaxTimes, brokerId, whichBrokerWhenConsumeSlowly and
    notifyConsumerIdsChangedEnable. Deleting removes the settings and the committed offsets of a group; its messages to
    retry and its dead letters stay.
    """
    from rmqtool.api.group import group as act
    from rmqtool.render.group import GROUPS

    choice = choose_store(words or [], takes_words=list(ACTIONS))
    action, name = _wanted(choice.words)
    if yes and action != "delete":
        raise UsageError(f"--yes has no effect on {action}", hint="it confirms delete")
    if action in ("create", "alter", "delete"):
        hint = (
            "leave it out: no setting moves the groups"
            if action == "delete"
            else "--set changes a setting of the group"
        )
        refuse_idle(f"group {action}", {"--conf": broker.conf}, hint)
    if action == "delete" and not yes:
        raise Refused(f"this would delete {name} and its committed offsets", hint="run it again with --yes")
    with show.output(column.key for column in GROUPS) as output:
        _show(output, act(broker.place(choice.store), action, name, settings), action)
    return Exit.DONE


def _wanted(words: tuple[str, ...]) -> tuple[str, str]:
    action = words[0] if words else "list"
    if action not in ACTIONS:
        raise UsageError(f"unknown action {action!r}", hint="list, show, create, alter or delete")
    if len(words) != (1 if action == "list" else 2) and words:
        only = "rmqtool group STORE list"
        hint = only if action == "list" else f"rmqtool group STORE {action} GROUP"
        raise UsageError("list takes no group" if action == "list" else "name one group", hint=hint)
    return action, words[1] if len(words) > 1 else ""


def _show(output: Output, found: Mapping[str, Group], action: str) -> None:
    from rmqtool.render.group import GROUPS, group_lines, group_list, group_rows

    lines = group_list(output, found) if action == "list" else group_lines(output, found)
    output.single({"groups": found}, lines, group_rows(found), GROUPS)
