"""``rmqtool topic``: what topics a store has, and changing that."""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rmqtool.commands.opening import choose_store
from rmqtool.commands.options import AsBroker, Show, store_and
from rmqtool.errors import Exit, Refused, UsageError

if TYPE_CHECKING:
    from rmqtool.broker.topics import TopicConfigs

# Names and figures of a list stand below each other up to here.
_WIDEST = 32


class Action(StrEnum):
    """What to do."""

    LIST = "list"
    CREATE = "create"
    ALTER = "alter"
    DELETE = "delete"


def topic(
    words: Annotated[
        list[str] | None, store_and("list|create|alter|delete [TOPIC]", "What to do, to which topic.")
    ] = None,
    *,
    queues: Annotated[
        int | None, typer.Option("--queues", metavar="N", help="Queues to write to and to read from.", min=1)
    ] = None,
    perm: Annotated[str | None, typer.Option("--perm", metavar="rw", help="Permission: rw, r, w or -.")] = None,
    attribute: Annotated[
        list[str] | None, typer.Option("--attribute", metavar="KEY=VALUE", help="An attribute of 5.x; repeatable.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Really delete.")] = False,
    broker: AsBroker,
    show: Show,
) -> Exit:
    """List the topics of a store, create one, change its queues, permission or attributes, or delete it.

    Deleting takes the topic and its queues away; its messages stay in the log until they expire, and a recovery would
    bring the queues back. Fewer queues hide the messages in the ones above.
    """
    choice = choose_store(words or [], takes_words=True)
    action, name = _wanted(choice.words)
    settings = _settings(queues, perm, attribute)
    if action is Action.DELETE and not yes:
        raise Refused(f"this would delete {name} and its queues", hint="repeat it with --yes")
    with show.output() as output:
        rows = list(_run(choice.store, broker, action, name, settings))
        screen = partial(_screen, _widths(rows))
        for row in rows:
            output.rows([row], tuple(row), screen)
    return Exit.DONE


def _wanted(words: tuple[str, ...]) -> tuple[Action, str]:
    action = words[0] if words else Action.LIST
    if action not in list(Action):
        raise UsageError(f"{action!r} is nothing that can be done", hint="list, create, alter or delete")
    if len(words) != (1 if action == Action.LIST else 2) and words:
        only = "rmqtool topic STORE list"
        hint = only if action == Action.LIST else f"rmqtool topic STORE {action} TOPIC; the topics: {only}"
        raise UsageError("list takes no topic" if action == Action.LIST else "name one topic", hint=hint)
    return Action(action), words[1] if len(words) > 1 else ""


def _settings(queues: int | None, perm: str | None, attributes: list[str] | None) -> dict[str, Any]:
    from rmqtool.broker.topics import parse_perm

    found: dict[str, Any] = {}
    if queues is not None:
        found = {"readQueueNums": queues, "writeQueueNums": queues}
    if perm is not None:
        found["perm"] = parse_perm(perm)
    if attributes:
        pairs = [attribute.partition("=") for attribute in attributes]
        bad = next((name for name, sign, _ in pairs if not sign or not name), None)
        if bad is not None:
            raise UsageError(
                f"{bad!r} is no KEY=VALUE", hint="--attribute message.type=FIFO; an empty value removes it"
            )
        found["attributes"] = {name: value for name, _, value in pairs}
    return found


def _run(store: str, broker: AsBroker, action: Action, name: str, settings: dict[str, Any]) -> list[dict[str, Any]]:
    from rmqtool.broker.topics import TopicConfigs
    from rmqtool.engine.clock import SystemClock
    from rmqtool.engine.retention import remove_queues
    from rmqtool.files.posix_write import PosixWritableFileSystem
    from rmqtool.formats.paths import TOPICS
    from rmqtool.store.config_files import config_text
    from rmqtool.store.listing import lock_store
    from rmqtool.store.open import open_store

    with open_store(store, version=broker.as_version, assignments=tuple(broker.conf or ())) as opened:
        root, version = opened.root, opened.version
    with PosixWritableFileSystem(root) as files:
        if action is Action.LIST:
            configs = TopicConfigs(config_text(files, TOPICS), version, SystemClock())
            return [_row(topic, config) for topic, config in sorted(configs.table.items())]
        with lock_store(files):
            configs = TopicConfigs(config_text(files, TOPICS), version, SystemClock())
            row = _change(configs, action, name, settings)
            configs.save()
            if action is Action.DELETE:
                remove_queues(files, name)
            return [row]


def _change(configs: TopicConfigs, action: Action, name: str, settings: dict[str, Any]) -> dict[str, Any]:
    if action is Action.CREATE:
        return _row(name, configs.create(name, **settings))
    if action is Action.ALTER:
        return _row(name, configs.alter(name, **settings))
    return {**_row(name, configs.delete(name)), "deleted": True}


def _row(name: str, config: dict[str, Any]) -> dict[str, Any]:
    from rmqtool.broker.topics import spell_perm

    return {
        "topic": name,
        "readQueueNums": config.get("readQueueNums"),
        "writeQueueNums": config.get("writeQueueNums"),
        "perm": spell_perm(int(config.get("perm", 0))),
        "order": bool(config.get("order")),
        "attributes": config.get("attributes") or {},
    }


def _widths(rows: list[Any]) -> tuple[int, ...]:
    """Return how wide name, number of queues and permission are at most; a longer name is rare, and stands out."""
    cells = [(row["topic"], _queues(row), row["perm"]) for row in rows if "deleted" not in row]
    return tuple(min(max(map(len, column)), _WIDEST) for column in zip(*cells, strict=True))


def _queues(row: Any) -> str:
    count = row["writeQueueNums"]
    read = f", {row['readQueueNums']} to read" if row["readQueueNums"] != count else ""
    return f"{count} queue{'s' * (count != 1)}{read}"


def _screen(widths: tuple[int, ...], row: Any) -> tuple[str]:
    from rmqtool.render.text import neutral

    if "deleted" in row:
        return (neutral(f"{row['topic']}  deleted, with its queues; its messages stay in the log until they expire"),)
    attributes = "  ".join(f"{key}={value}" for key, value in row["attributes"].items())
    cells = zip((row["topic"], _queues(row), row["perm"]), widths, strict=True)
    return (neutral("  ".join([*(cell.ljust(width) for cell, width in cells), attributes]).rstrip()),)
