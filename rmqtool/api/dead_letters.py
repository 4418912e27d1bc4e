"""Dead letters: what ``consume --dlq`` shows, and what ``produce --replay`` sends again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rmqtool.errors import NotFound, UsageError

if TYPE_CHECKING:
    from rmqtool.api.consume import Topics
    from rmqtool.api.store import Place
    from rmqtool.broker.producer.dead_letters import Replay
    from rmqtool.broker.producer.lines import Bad
    from rmqtool.engine.message import NewMessage

_IDLE = {
    "topic": "--topic",
    "tag": "--tag",
    "keys": "--key",
    "shard": "--shard",
    "properties": "--property",
    "tx": "--tx",
}


def replay_of(how: Mapping[str, Any]) -> Replay:
    """Return whose dead letters are sent again. Raises UsageError for options that have no meaning for them."""
    from rmqtool.broker.groups import named_group
    from rmqtool.broker.producer.dead_letters import Replay

    if how.get("group") is None:
        raise UsageError("--replay needs the consumer group of the dead letters", hint="add -g GROUP")
    for name, option in _IDLE.items():
        if how.get(name):
            raise UsageError(
                f"{option} and --replay exclude each other: a dead letter has its own",
                hint="edit the lines of cat --jsonl, then --replay --jsonl FILE",
            )
    members = {} if how.get("queue") is None else {"queueId": how["queue"]}
    return Replay(members, keeps_ids=how.get("keep_ids", False), group=named_group(how["group"]))


def stored_letters(store: Place, replay: Replay) -> Iterator[NewMessage | Bad]:
    """Yield the messages of the dead-letter topic; raise NotFound without dead letters."""
    yield from replay.iter_messages(_letters(store, replay))


def _letters(store: Place, replay: Replay) -> Iterator[Mapping[str, Any]]:
    from rmqtool.api.cat import scan

    topic, found = replay.dead_letter_topic, False
    for letter in scan(store, topics=topic):
        # The message comes before the damage of its body, and is refused itself.
        if "damage" not in letter or letter["damage"]["code"] != "BD-INFLATE":
            found = True
            yield letter
    if not found:
        raise no_letters(replay.group)


def no_letters(group: str) -> NotFound:
    """Return the error for a group without dead letters."""
    from rmqtool.formats.topics import dlq_topic

    hint = "which groups have dead letters: rmqtool stat STORE retry"
    return NotFound(f"{group} has no dead letters: {dlq_topic(group)} is empty", hint=hint)


def shown_letters(group: str, how: Mapping[str, Any], which: Topics) -> Topics:
    """Return what is read to show the dead letters of a group. Raises UsageError for what would consume them."""
    from rmqtool.broker.groups import named_group
    from rmqtool.formats.topics import dlq_topic

    given = {"-t": which.get("topics"), "--members": how.get("members", 1) > 1, "--from": how.get("start") is not None}
    given |= {f"--{name}": how.get(name) for name in ("commit", "pop", "orderly", "broadcast", "follow", "exec")}
    for option, value in given.items():
        if value:
            hint = "leave it out; to consume them again: rmqtool produce STORE --replay -g GROUP"
            raise UsageError(f"--dlq only shows dead letters: it takes no {option}", hint=hint)
    return {**which, "topics": [dlq_topic(named_group(group))]}
