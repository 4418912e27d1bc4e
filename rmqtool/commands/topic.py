"""``rmqtool topic``: list, show, create, alter and delete topics."""

from __future__ import annotations

from typing import Annotated

import typer

from rmqtool.api.topic import Action
from rmqtool.commands.options import BrokerOrCluster, Show, refuse_idle, store_and
from rmqtool.commands.store_word import choose_store
from rmqtool.errors import Exit, Refused, UsageError


def topic(
    words: Annotated[
        list[str] | None, store_and("list|show|create|alter|delete [TOPIC]", "An action, and its topic.")
    ] = None,
    *,
    queues: Annotated[int | None, typer.Option("--queues", metavar="N", help="Number of queues.", min=1)] = None,
    perm: Annotated[str | None, typer.Option("--perm", metavar="rw", help="Permission: rw, r, w or -.")] = None,
    attribute: Annotated[
        list[str] | None, typer.Option("--attribute", metavar="KEY=VALUE", help="Set an attribute of 5.x; repeatable.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Confirm the deletion.")] = False,
    broker: BrokerOrCluster,
    show: Show,
) -> Exit:
    """List the topics of a store, show or create one, change its queues, permission or attributes, or delete it.

    Deleting removes the topic and its queues. Its messages stay in the log until they expire, and a recovery would
    restore the queues. With fewer queues, messages in the removed queues are hidden.
    """
    from rmqtool.api.topic import topic as act
    from rmqtool.render.topic import TOPIC_QUEUES, topic_lines, topic_queues, topic_screen

    choice = choose_store(words or [], takes_words=list(Action))
    action, name = _wanted(choice.words)
    if yes and action is not Action.DELETE:
        raise UsageError(f"--yes has no effect on topic {action}", hint="leave out --yes")
    refuse_idle("topic", {"--conf": broker.conf}, "leave it out: no setting moves config/topics.json")
    if action is Action.DELETE and not yes:
        raise Refused(f"this would delete {name} and its queues", hint="run it again with --yes")
    with show.output("Topic") as output:
        rows = act(broker.place(choice.store), action, name, queues=queues, perm=perm, attributes=attribute)
        if action is Action.SHOW:
            output.single(rows[0], topic_lines(output, rows[0]), topic_queues(rows[0]), TOPIC_QUEUES)
            return Exit.DONE
        screen = topic_screen(rows)
        for row in rows:
            output.rows([row], tuple(row), screen)
    return Exit.DONE


def _wanted(words: tuple[str, ...]) -> tuple[Action, str]:
    action = words[0] if words else Action.LIST
    if action not in list(Action):
        raise UsageError(f"unknown action {action!r}", hint="list, show, create, alter or delete")
    if len(words) != (1 if action == Action.LIST else 2) and words:
        only = "rmqtool topic STORE list"
        hint = only if action == Action.LIST else f"rmqtool topic STORE {action} TOPIC"
        raise UsageError("list takes no topic" if action == Action.LIST else "name one topic", hint=hint)
    return Action(action), words[1] if len(words) > 1 else ""
