"""The screens of ``query``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from rmqtool.findings import Finding
from rmqtool.render import text
from rmqtool.render.findings import finding_lines
from rmqtool.render.output import Output
from rmqtool.render.tables import Column, Cut, Kind

MESSAGES = (
    Column("place", "queue @ offset", cut=Cut.MIDDLE),
    Column("commitLogOffset", "in the log at", Kind.OFFSET),
    Column("storeTimestamp", "stored", Kind.TIME),
    Column("tags", "tags", cut=Cut.END),
    Column("keys", "keys", cut=Cut.END),
)
EVENTS = (
    Column("time", "time"),
    Column("event", "event"),
    Column("place", "queue @ offset", cut=Cut.MIDDLE),
    Column("about", "more"),
)
POSITIONS = (
    Column("group", "group", cut=Cut.MIDDLE),
    Column("place", "queue @ offset", cut=Cut.MIDDLE),
    Column("committed", "committed", Kind.OFFSET),
    Column("status", "status"),
)
_MOST_LISTED = 100
_BODY = 400
_LABEL = 10
# A time on the screen is a day, a time of day and a zone.
_TIME_PARTS = 3
_KINDS = {
    "uniqKey": "unique key",
    "queueOffset": "queue offset",
    "offsetMsgId": "offset message id",
    "physicalOffset": "physical offset",
}
_SOURCES = {"index": "the index", "queue": "its queue", "log": "its physical offset", "scan": "a search of the log"}


def answer_lines(
    output: Output,
    head: Mapping[str, Any],
    count: int,
    messages: Iterable[Mapping[str, Any]],
    findings: Iterable[Finding],
) -> Iterator[str]:
    """Yield the screen of an answer; ``head`` is the JSON object without its messages."""
    shown = [dict(message) for message in islice(messages, _MOST_LISTED)]
    for message in shown:
        message["place"] = _place(message)
    keys = {message["uniqKey"] for message in shown}
    copies = None not in keys and count == len(shown) > len(keys)
    yield from _title_lines(output, head, count, len(keys) if copies else count)
    if len(shown) == 1:
        yield from _message_lines(output, shown[0])
    elif shown:
        yield from output.table_lines(shown, MESSAGES)
        if count > len(shown):
            yield f"… {text.count(count - len(shown))} more; --jsonl gives all of them"
    yield from _offset_lines(head)
    if not shown:
        yield from _missing_lines(output, head)
        if not _is_damaged(head):
            yield from _decoded_rows(output, head.get("decoded", {}))
    yield from _story_lines(output, head)
    for finding in findings:
        yield from finding_lines(finding, output)


def _place(shown: Mapping[str, Any]) -> str:
    return f"{text.neutral(shown['topic'])}/{shown['queueId']} @ {shown['queueOffset']}"


def _title_lines(output: Output, head: Mapping[str, Any], count: int, messages: int) -> Iterator[str]:
    """Yield what was found: ``count`` records of ``messages`` messages."""
    kind = _KINDS.get(head["kind"], head["kind"])
    records = f"{text.counted(count, 'record')} of " if messages < count else ""
    by = " and ".join(_SOURCES[source] for source in head["answeredBy"])
    words = f"{records}{text.counted(messages, 'message')}, by {kind}" + (f", from {by}" if by else "")
    if "limit" in head["searched"]:
        words += f"; there are older ones (-n {head['searched']['limit']})"
    if not count:
        words = f'nothing found for {kind} "{text.neutral(head["query"])}"'
        if _is_damaged(head):
            words = f'{kind} "{text.neutral(head["query"])}": the message is damaged, so it is not shown'
    if count or not ("queueOffset" in head or "queueOffsets" in head):
        yield output.paint(words, "title")
    collisions = head["searched"].get("index", {}).get("collisions", 0)
    if collisions:
        others = "another message has" if collisions == 1 else f"{text.count(collisions)} other messages have"
        words = f"{others} a key of the same hash; a broker returns them too, and its client drops them"
        yield from text.hanging(words, output.look.width, 2)
    if count and "scan" in head["answeredBy"]:
        yield from _searched_lines(output, head["searched"])


def _is_damaged(head: Mapping[str, Any]) -> bool:
    return any(finding["code"] == "CL-CRC" for finding in head["findings"])


def _message_lines(output: Output, shown: Mapping[str, Any]) -> Iterator[str]:
    rows = (
        ("message", f"{shown['place']}   in the log at {shown['commitLogOffset']}, {text.size(shown['storeSize'])}"),
        ("stored", f"{output.time(shown['storeTimestamp'])} by {shown['storeHost']}"),
        ("born", f"{output.time(shown['bornTimestamp'])} at {shown['bornHost']}"),
        ("id", shown["offsetMsgId"]),
        ("uniq", shown["uniqKey"] or "no unique key"),
        ("tags", shown["tags"]),
        ("keys", shown["keys"]),
        ("failed", f"{_times(shown['reconsumeTimes'])} before" if shown["reconsumeTimes"] > 0 else None),
        ("body", _body_words(shown)),
    )
    for label, words in rows:
        if words:
            yield from _row(output, label, text.neutral(str(words)))


def _times(number: int) -> str:
    return text.counted(number, "time")


def _body_words(shown: Mapping[str, Any]) -> str:
    if shown["bodyLength"] is None:
        return f"{text.size(shown['storedBodyLength'])} that do not decompress"
    if not shown["bodyLength"]:
        return "empty"
    codec = f" from {text.size(shown['storedBodyLength'])} {shown['bodyCodec']}" if shown["bodyCodec"] else ""
    if shown["bodyEncoding"] == "base64":
        return f"{text.size(shown['bodyLength'])}{codec}, binary"
    return f"{text.size(shown['bodyLength'])}{codec}: " + text.cut(shown["body"], _BODY)


def _row(output: Output, label: str, words: str) -> Iterator[str]:
    first, *others = text.hanging(label.ljust(_LABEL).replace(" ", "\u00a0") + words, output.look.width, _LABEL)
    yield output.paint(first[:_LABEL], "title") + first[_LABEL:]
    yield from others


def _offset_lines(head: Mapping[str, Any]) -> Iterator[str]:
    if "queueOffset" in head:
        yield f"a broker answers offset {head['queueOffset']}"
    for topic, queues in head.get("queueOffsets", {}).items():
        for queue_id, offset in queues.items():
            yield f"{text.neutral(topic)}/{queue_id}   a broker answers offset {offset}"


def _missing_lines(output: Output, head: Mapping[str, Any]) -> Iterator[str]:
    searched = head["searched"]
    yield from _searched_lines(output, searched)
    for place in _elsewhere(head)[:5]:
        where = f"@{place['offset']}" if "offset" in place else ""
        words = f"  {place['file'] or 'the log'}{where}: {place['message']}"
        yield from text.hanging(text.neutral(words), output.look.width, 4)
    for reason in head.get("reasons", []):
        yield from text.hanging(text.neutral(reason[:1].upper() + reason[1:] + "."), output.look.width, 2)
    near = head.get("near", [])
    if near:
        words = ", ".join(text.neutral(name) for name in near)
        yield from text.hanging(f"Did you mean {words}?", output.look.width, 2)


def _elsewhere(head: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the places that could not be read, without those that the findings after them name."""
    told = {(finding["file"], finding.get("offset")) for finding in head["findings"]}
    return [one for one in head["searched"].get("unread", ()) if (one["file"], one.get("offset")) not in told]


def _searched_lines(output: Output, searched: Mapping[str, Any]) -> Iterator[str]:
    parts = []
    if "index" in searched:
        parts.append(text.counted(searched["index"]["files"], "index file"))
    if "log" in searched:
        parts.append(f"the log from {searched['log']['begin']} to {searched['log']['end']}")
    if parts:
        unread = searched.get("unread", [])
        places = text.counted(len(unread), "place", "places")
        left = f" Damaged or not readable: {places} in it." if unread else " All of it is readable."
        yield from text.hanging(f"Searched: {', then '.join(parts)}.{left}", output.look.width, 2)


def _story_lines(output: Output, head: Mapping[str, Any]) -> Iterator[str]:
    events = iter(head.get("history", []))
    for story in head.get("stories", []):
        happened = list(islice(events, story["events"]))
        rows = [_event_row(event) for event in happened]
        times = [row["timestamp"] if row["timestamp"] is None else output.time(row["timestamp"]) for row in rows]
        common, short = _short_times(times)
        rows = [{**row, "time": time} for row, time in zip(rows, short, strict=True)]
        yield ""
        name = text.neutral(story["uniqKey"] or "a message without a unique key")
        positions = _position_rows(story, happened)
        for line in text.hanging(f"{name}: {_verdict(story, positions)}", output.look.width, 2):
            yield output.paint(line, "title")
        if common:
            yield f"times of {common}:"
        yield from output.table_lines(rows, EVENTS)
        if positions:
            yield ""
            yield from output.table_lines(positions, POSITIONS)


def _verdict(story: Mapping[str, Any], positions: Sequence[Mapping[str, Any]]) -> str:
    """Return what became of a message: what groups did with it, where nothing else happened to it."""
    words = str(story["state"])
    consumed = [str(one["group"]) for one in positions if one["status"] == "consumed"]
    if words == "stored" and consumed:
        words = f"consumed by {text.neutral(', '.join(consumed))}"
    if "complete" not in story:
        return words
    why = "records of it may be lost or not readable" if story["uniqKey"] else "it has no unique key"
    return f"{words} when last seen; what came after is not known, because {why}"


def _position_rows(story: Mapping[str, Any], events: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return where groups are. A later record of the message tells that it failed in a group that passed it."""
    rows = []
    for at, position in enumerate(story["positions"], 1):
        status = _status(position, story["positions"][at:], events)
        if "complete" in story and status == "consumed":
            status = "passed"
        rows.append({**position, "place": _place(position), "status": status})
    return rows


def _status(
    position: Mapping[str, Any], after: Sequence[Mapping[str, Any]], events: Sequence[Mapping[str, Any]]
) -> str:
    """Return what a group did with a message. One that it sent back has a later record in a topic of the group."""
    if not position["passed"]:
        return "pending"
    group = position["group"]
    retry = f"%RETRY%{group}"
    then = next((one for one in after if one["group"] == group), None)
    if then is not None:
        return "failed, sent again" if then["topic"] == retry else "consumed"
    if any(event["topic"] == f"%DLQ%{group}" for event in events):
        return "dead letter"
    return "failed, sent again" if events[-1].get("for") == retry else "consumed"


def _event_row(event: Mapping[str, Any]) -> dict[str, Any]:
    about = []
    if event.get("dueTimestamp"):
        since = event["popTimestamp"] if event["timestamp"] is None else event["timestamp"]
        span = text.duration(event["dueTimestamp"] - since)
        about.append(f"{'for' if event['event'] in ('popped', 'renewed') else 'due after'} {span}")
    if event.get("level") and not event.get("dueTimestamp"):
        about.append(f"level {event['level']}")
    if event.get("for"):
        about.append(f"to {event['for']}")
    if event.get("times"):
        failed = event["event"] in ("retry", "dlq")
        about.append(f"after {text.counted(event['times'], 'failure')}" if failed else _times(event["times"]))
    if event.get("group"):
        about.append(f"by {event['group']}")
    if "halfQueueOffset" in event:
        about.append(f"of half message {event['halfQueueOffset']}")
    if "heeded" in event:
        about.append("used by the broker" if event["heeded"] else "ignored by the broker")
    if event.get("damaged"):
        about.append("damaged")
    name = "to DLQ" if event["event"] == "dlq" else event["event"]
    # A blank rather than a dash: no value is missing here.
    return {**event, "event": name, "place": _place(event), "about": ", ".join(about) or " "}


def _short_times(times: Sequence[str | None]) -> tuple[str, list[str | None]]:
    """Return the day and zone that all times share, and the times without them; "" where they do not share both."""
    parts = [time.split(" ") for time in times if time is not None]
    days = {(part[0], part[-1]) for part in parts if len(part) == _TIME_PARTS}
    if len(days) != 1 or any(len(part) != _TIME_PARTS for part in parts):
        return "", list(times)
    return " ".join(days.pop()), [None if time is None else time.split(" ")[1] for time in times]


def decoded_lines(output: Output, query: str, decoded: Mapping[str, Any]) -> Iterator[str]:
    """Yield the screen of an id that was only decoded."""
    yield output.paint(text.neutral(query), "title")
    yield from _decoded_rows(output, decoded)


def _decoded_rows(output: Output, decoded: Mapping[str, Any]) -> Iterator[str]:
    for kind, parts in decoded.items():
        if kind == "reasons":
            for reason in parts:
                yield from text.hanging(text.neutral(reason[:1].upper() + reason[1:] + "."), output.look.width, 2)
            continue
        words = []
        for name, value in parts.items():
            shown = output.time(value) if name == "timestamp" and value is not None else value
            words.append(f"{name} {text.neutral(str(shown))}".replace(" ", "\u00a0"))
        yield from text.hanging(f"as {kind}: " + ", ".join(words), output.look.width, 4)
