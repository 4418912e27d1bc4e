"""Messages on the screen: a block for each, with any kind of body."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from typing import Any, Protocol

from rmqtool.render import text
from rmqtool.render.output import Output

# A binary body is shown up to here; the style ``hex`` shows all of it.
_BYTES_SHOWN = 64
# The largest number of bytes that are not UTF-8 in a body that is shown as text, and bytes of text for each of them.
_BROKEN = 3
_BROKEN_SHARE = 8
_INDENT = "  "
_GAP = "   "
_SHOWN_ELSEWHERE = ("KEYS", "TAGS", "UNIQ_KEY")
_NO_BREAK = "\u00a0"


def message_lines(output: Output, shown: Mapping[str, Any], flags: str, style: str) -> Iterator[str]:
    """Yield the block of a message: ``shown`` is its JSON object, ``flags`` its system flags in words.

    ``style`` is the form of the body: text, json, hex, base64 or none.
    """
    place = f"{text.neutral(shown['topic'])}/{shown['queueId']} @ {shown['queueOffset']}"
    head = [place, output.time(shown["storeTimestamp"]), *_named("tags", shown["tags"]), *_named("keys", shown["keys"])]
    first, *others = _hanging(output, [*head, _size(shown)], "")
    yield first.replace(place, output.paint(place, "title"), 1)
    yield from others
    ids = [f"id {shown['offsetMsgId']}", *_named("uniq", shown["uniqKey"]), f"from {shown['bornHost']}"]
    ids += [f"reconsume {shown['reconsumeTimes']}", f"log @ {shown['commitLogOffset']}"]
    yield from _hanging(output, [*ids, *([] if flags == "none" else [f"flags {flags}"])], _INDENT)
    pairs = [f"{name}={value}" for name, value in shown["properties"].items() if name not in _SHOWN_ELSEWHERE]
    if pairs:
        yield from _hanging(output, ["properties", *map(text.neutral, pairs)], _INDENT)
    yield from (_INDENT + line for line in _body_lines(shown, style))


def _named(name: str, value: str | None) -> list[str]:
    return [] if value is None else [f"{name} {text.neutral(value)}"]


def _size(shown: Mapping[str, Any]) -> str:
    length, codec = shown["bodyLength"], shown["bodyCodec"]
    if length is None:
        return f"{text.size(shown['storedBodyLength'])} that do not decompress"
    return f"{text.size(length)} {codec}" if codec else text.size(length)


def _hanging(output: Output, parts: list[str], indent: str) -> list[str]:
    """Return the parts on one line, or on several lines that break between parts."""
    line = _GAP.join(part.replace(" ", _NO_BREAK) for part in parts)
    width = output.look.width
    return text.hanging(indent.replace(" ", _NO_BREAK) + line, width, len(_INDENT) * 2)


def _almost_text(data: bytes) -> str | None:
    """Return a text with one broken or cut character, its bytes as ``\\xNN``; None for other binary bodies."""
    broken = sum("\udc80" <= letter <= "\udcff" for letter in data.decode("utf-8", "surrogateescape"))
    if broken > _BROKEN or broken * _BROKEN_SHARE > len(data):
        return None
    return data.decode("utf-8", "backslashreplace")


def _body_lines(shown: Mapping[str, Any], style: str) -> Iterator[str]:
    if shown["bodyEncoding"] == "none" or style == "none":
        return
    is_text = shown["bodyEncoding"] == "utf8"
    if style == "base64":
        yield base64.b64encode(bytes(shown["body"], "utf-8")).decode("ascii") if is_text else shown["body"]
    elif style == "hex" or not is_text:
        data = bytes(shown["body"], "utf-8") if is_text else base64.b64decode(shown["body"])
        if style == "text" and (almost := _almost_text(data)) is not None:
            yield from text.neutral(almost, keep="\n\t").split("\n")
            return
        most = len(data) if style == "hex" else _BYTES_SHOWN
        yield from text.hex_lines(data[:most])
        if len(data) > most:
            yield f"{text.count(len(data) - most)} more bytes; --body hex shows them"
    elif shown["body"]:
        body = _indented(shown["body"]) if style == "json" else shown["body"]
        yield from text.neutral(body, keep="\n\t").split("\n")


def _indented(body: str) -> str:
    """Return JSON on several lines, and any other text as it is."""
    try:
        return json.dumps(json.loads(body), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return body


def damage_line(output: Output, damage: Mapping[str, Any], *, is_note: bool = False) -> str:
    """Return the line for damage among messages. A note has no colours, and its control characters are spelled out."""
    place = f"{text.neutral(damage['file'])}@{damage['offset']}"
    words = f"{place}  {damage['length']} bytes  {text.neutral(damage['message'])}"
    label = "damage" if is_note else output.paint("damage", "error")
    return f"{label}  {damage['code']}  {words}"


def nothing_matched(there: int | None) -> str:
    """Return the text for a search without a match; ``there`` is how many messages its topics and queues have."""
    return "no message matched" if there is None else f"0 of {text.count(there)} messages matched"


Words = Callable[[Mapping[str, Any]], str]


def show_messages(output: Output, events: Iterable[Any], fields: Collection[str], flags: Words, style: str) -> None:
    """Show the events of a reader in order: messages, whole lines, damage, texts; None: nothing more for now.

    A pair is a text and the command to type next.

    ``fields`` are the members of a message in their order, ``flags`` spells its system flags.
    """
    taken = iter(events)

    def screen(row: Mapping[str, Any]) -> Iterable[str]:
        return message_lines(output, row, flags(row), style)

    def rest() -> Iterator[Any]:
        for event in taken:
            if _is_message(event):
                yield event
            else:
                _show_other(output, event)

    for event in taken:
        if _is_message(event):
            output.rows(chain([event], rest()), fields, screen)
        else:
            _show_other(output, event)


def show_raw(output: Output, events: Iterable[Any], body: Callable[[Any], bytes]) -> None:
    """Show the bodies of messages as they are."""
    for event in events:
        if _is_message(event):
            output.raw(body(event))
        else:
            _show_other(output, event)


def show_count(output: Output, events: Iterable[Any], counted: Callable[[], tuple[int, list[Any]]]) -> None:
    """Show the number of messages, and the damage; ``counted`` returns both after the last event."""
    for event in events:
        _show_other(output, event)
    messages, damages = counted()
    output.single({"messages": messages, "damaged": damages}, [str(messages)])
    for damage in damages if output.is_human else ():
        output.note(damage_line(output, damage, is_note=True))


def _is_message(event: Any) -> bool:
    return isinstance(event, dict) and "damage" not in event


def _show_other(output: Output, event: Any) -> None:
    if event is None:
        output.flush()
    elif isinstance(event, str):
        output.note(event)
    elif type(event) is tuple:  # lines are a named tuple
        output.note(*event)
    elif isinstance(event, dict):
        output.aside(event, damage_line(output, event["damage"]))
    else:
        output.json_lines(event.data)


STORED_FIELDS = (
    "status",
    "msgId",
    "offsetMsgId",
    "topic",
    "queueId",
    "queueOffset",
    "commitLogOffset",
    "storeTimestamp",
)


class Sent(Protocol):
    """The results of a few sends."""

    def json_lines(self) -> bytes:
        """Return the lines of JSON."""

    def objects(self) -> Iterable[dict[str, Any]]:
        """Return the objects of the contract."""


def consumed_fields(usual: tuple[str, ...], *, members: int, pops: bool, executes: bool) -> tuple[str, ...]:
    """Return the members of a message that `consume` shows: the ``usual`` ones, and what it adds."""
    member = ("member",) if members > 1 else ()
    receipt = ("popReceipt",) if pops else ()
    return (*usual, *member, *receipt, *(("exitStatus", "isConsumed") if executes else ()))


def show_sent(output: Output, sent: Sent) -> None:
    """Show the results of a few sends."""
    if output.look.mode in ("json", "jsonl"):
        output.json_lines([sent.json_lines()])
    else:
        output.rows(sent.objects(), STORED_FIELDS, partial(_screen, output))


def _screen(output: Output, row: Any) -> tuple[str]:
    if row["commitLogOffset"] < 0:
        return (f"{row['topic']}: {row['status']}",)
    if "realTopic" in row:
        due = output.time(row["deliverTimestamp"])
        place = f"{row['topic']}/{row['queueId']}@{row['queueOffset']}"
        return (f"{row['realTopic']} at {due}  {row['msgId']}  waits in {place}",)
    return (f"{row['topic']}/{row['queueId']}@{row['queueOffset']}  {row['msgId']}",)
