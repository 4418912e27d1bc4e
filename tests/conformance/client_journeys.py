"""What clients said on their journeys: what must be so at any broker, and how two brokers are compared.

A line of a program (``client_programs``) has ``journey``, ``what`` and the rest. ``deliveries`` are the lines that a
consumer got a message with. ``comparable`` takes out of a line what differs from run to run.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

Line = dict[str, Any]

# A key and how often its message was refused before: how many deliveries of it there must be.
Due = dict[tuple[str, int], int]


def _once(numbers: Iterable[int], times: int = 1) -> Due:
    return {(f"k{number}", 0): times for number in numbers}


def _refused(numbers: Iterable[int], times: int) -> Due:
    """Each of some messages is delivered once more than it is refused."""
    return {(f"k{number}", time): 1 for number in numbers for time in range(times + 1)}


_TAGS_A_B = [number for number in range(12) if number % 3 != 2]

# What each journey must have delivered at any broker, by the kind of client where that matters.
DELIVERED: dict[str, Due] = {
    "push": _once(range(12)),
    "pop": _once(range(12)),
    "unacked": _once((0, 2, 3)) | _refused([1], 1),
    "tag": _once(_TAGS_A_B),
    "sql": _once((6, 7, 9, 10)),
    "retry": _once([0]) | _refused((1, 2, 3), 2),
    "cpp retry": _once([0]) | _refused((1, 2, 3), 1),
    "dead": _refused((0, 1), 1),
    "orderly": _once(range(12)),
    "suspended": _once(range(8)) | _refused([1], 2),
    "broadcast": _once(range(8), times=2),
    "node broadcast": _once(range(8)),
    "delay": _once((0, 1)),
    "timer": _once((0, 1)),
    "transaction": _once((0, 2)),
    "pull": _once((0, 3, 6, 9)),
    "go pull": _once(range(12)),
    "lite": _once(range(12)),
    "assign": _once(range(1, 13)),
    "reply": _once((0, 1, 2)),
    "two": _once(range(24)),
    "go send": _once((0, 1, 2, 3, 7, 11, 4, 5)),
    "cpp send": _once((0, 1, 2, 3)),
    "node send": _once((0, 1, 2)),
}
# Messages that Java clients find in queues by offset, and by their keys and ids.
FOUND = {
    "send": {"stored": 16},
    "dead": {"stored": 2},
    "query": {"queried": 4, "viewed": 2},
    "transaction": {"asked": 2},
}
# How long a message must have waited, in milliseconds.
WAITED = {"delay": {"k0": 1000, "k1": 5000}, "timer": {"k0": 3000, "k1": 4000}}


def of_journey(lines: list[Line]) -> dict[str, list[Line]]:
    """Return the lines of each journey."""
    found: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        found[line["journey"]].append(line)
    return dict(found)


def deliveries(lines: list[Line]) -> list[Line]:
    """Return the lines that a consumer got a message with."""
    return [line for line in lines if line["what"] == "got"]


def due(client: str, journey: str) -> Due:
    """Return what must be delivered on a journey of a client."""
    return DELIVERED.get(f"{client.split(maxsplit=1)[0]} {journey}", DELIVERED.get(journey, {}))


def faults(client: str, journey: str, lines: list[Line]) -> list[str]:
    """Return what is wrong with a journey at any broker: what failed or is missing, and deliveries that are not due."""
    found = [json.dumps(line) for line in lines if line["what"] in {"failed", "missing"}]
    if [line["what"] for line in lines].count("end") != 1:
        found.append("it did not end")
    got, wanted = Counter((line["keys"], line["reconsumeTimes"]) for line in deliveries(lines)), due(client, journey)
    if got != wanted and not (journey == "send" and client.startswith("java")):
        found.append(f"not delivered: {Counter(wanted) - got}, delivered too often: {got - Counter(wanted)}")
    said = Counter(line["what"] for line in lines)
    for what, number in FOUND.get(journey, {}).items() if client.startswith("java") else ():
        if said[what] != number:
            found.append(f"{said[what]} messages {what}, not {number}")
    for line in deliveries(lines):
        least = WAITED.get(journey, {}).get(line["keys"], 0)
        if line.get("waited", least) < least:
            found.append(f"{line['keys']} came after {line['waited']} ms, {least} were asked for")
    return [f"{journey}: {fault}" for fault in found]


_ID = re.compile(r"^([0-9A-Fa-f]{32}|[0-9A-Fa-f]{56})$")  # with an IPv4 or an IPv6 address
_TIME = re.compile(r"^1[0-9]{12}$")
_UUID = re.compile(r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
# Of these the value is the client's, and differs from run to run.
_OF_THE_RUN = {"waited", "why", "storeTimestamp"}
# A message that comes while others do: how long its queue is then is a matter of time.
_WHILE_SENDING = {"two", "delay", "timer", "transaction", "reply", "retry", "dead", "send", "assign"}
# The offset in the answer to these is that of a queue which all journeys share.
# The handle of a popped message has its time, and which queue has its check point.
_HANDLE = "POP_CK"
_DEFERRED = {"delayed", "timed", "reply"}


class Named(NamedTuple):
    """Fields of some messages in which ``serve`` differs from the real broker on purpose, and why."""

    client: str
    journey: str
    keys: tuple[str, ...]
    fields: tuple[str, ...]
    reason: str


NAMED = (
    Named(
        "java 5",
        "send",
        ("k3", "k4", "k5"),
        ("UNIQ_KEY", "storeSize"),
        "5.3.3 appends the id of a batch to each of its messages, and the last counts: apache/rocketmq#9416",
    ),
)


def comparable(client: str, lines: list[Line], prefix: str) -> Counter[str]:
    """Return the lines without what differs from run to run (ids, times, the prefix) and without named differences."""
    plain = []
    for of_one in of_journey(lines).values():
        labels = _labels(of_one)
        plain += [_plain(line, prefix, labels) for line in of_one]
    for line in plain:
        for named in NAMED:
            if client.startswith(named.client) and line["journey"] == named.journey and line.get("keys") in named.keys:
                for field in named.fields:
                    line.pop(field, None)
                    line.get("properties", {}).pop(field, None)
    offsets = [_retried_offset(line) for line in plain if _was_sent_back(line)]
    return Counter(json.dumps(line, sort_keys=True, ensure_ascii=False) for line in plain + offsets)


def _labels(lines: list[Line]) -> dict[str, str]:
    """Return a name for each id that its sender gave a message: by the keys of the messages that have it."""
    owners: dict[str, set[str]] = defaultdict(set)
    for line in lines:
        if (name := line.get("properties", {}).get("UNIQ_KEY")) is not None and line.get("keys"):
            owners[name].add(line["keys"])
    return {name: f"<id of {', '.join(sorted(keys))}>" for name, keys in owners.items()}


def _plain(line: Line, prefix: str, labels: dict[str, str]) -> Line:
    plain = {name: _value(value, prefix, labels) for name, value in line.items() if name not in _OF_THE_RUN}
    properties = plain.get("properties", {})
    if "storeSize" in plain:
        # The Node client leaves the id to the broker, which puts its own address in it: IPv4 or IPv6, by its machine.
        plain["storeSize"] -= len(line["properties"].get("UNIQ_KEY", ""))
    if line["journey"] in _WHILE_SENDING:
        properties.pop("MAX_OFFSET", None)
    if _HANDLE in properties:
        properties[_HANDLE] = "<handle>"
        plain.pop("storeSize")
    if "REPLY_TO_CLIENT" in properties:
        properties["REPLY_TO_CLIENT"] = "<client>"
        plain.pop("storeSize")  # the client's name has the number of its process in it
    if (line["what"] == "sent" and line.get("label", "delayed") in _DEFERRED) or line["what"] == "asked":
        plain.pop("queueOffset")
    if line["journey"] == "transaction":
        plain.pop("preparedTransactionOffset", None)
        properties.pop("TRAN_PREPARED_QUEUE_OFFSET", None)
    return plain


def _was_sent_back(line: Line) -> bool:
    return bool(line.get("reconsumeTimes"))


def _retried_offset(line: Line) -> Line:
    """Take its offset out of the line of a message that was sent back, and return it as a line of its own.

    Messages are sent back side by side: which of them has which offset is a matter of time, but not which offsets.
    """
    return {"journey": line["journey"], "what": "offset", "queueId": line["queueId"], "offset": line.pop("queueOffset")}


def _value(value: Any, prefix: str, labels: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {name: _value(inner, prefix, labels) for name, inner in value.items()}
    if not isinstance(value, str):
        return value
    for pattern, name in ((_ID, "<id>"), (_TIME, "<time>"), (_UUID, "<uuid>")):
        if pattern.match(value):
            return labels.get(value, name)
    return value.replace(prefix, "P-")


def order_by_queue(lines: list[Line]) -> dict[tuple[str, int], list[tuple[str, int]]]:
    """Return in which order the messages of each queue were taken."""
    found: dict[tuple[str, int], list[tuple[str, int]]] = defaultdict(list)
    for line in deliveries(lines):
        found[line["journey"], line["queueId"]].append((line["keys"], line["reconsumeTimes"]))
    return dict(found)
