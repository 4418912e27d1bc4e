"""Messages on the screen: a block each, whatever their bodies are made of."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from typing import Any

from rmqtool.render import text
from rmqtool.render.output import Output

# A body that is no text is shown up to here; the style ``hex`` shows all of it.
_BYTES_SHOWN = 64
_INDENT = "  "
_GAP = "   "
_SHOWN_ELSEWHERE = ("KEYS", "TAGS", "UNIQ_KEY")
_NO_BREAK = "\u00a0"


def message_lines(output: Output, shown: Mapping[str, Any], flags: str, style: str) -> Iterator[str]:
    """Yield the block of a message: ``shown`` is its JSON object, ``flags`` its system flags in words.

    ``style`` says how the body looks: text, json, hex, base64 or none.
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
        yield from _hanging(output, [text.neutral(pair) for pair in pairs], _INDENT)
    yield from (_INDENT + line for line in _body_lines(shown, style))


def _named(name: str, value: str | None) -> list[str]:
    return [] if value is None else [f"{name} {text.neutral(value)}"]


def _size(shown: Mapping[str, Any]) -> str:
    length, codec = shown["bodyLength"], shown["bodyCodec"]
    if length is None:
        return f"{text.size(shown['storedBodyLength'])} that do not inflate"
    return f"{text.size(length)} {codec}" if codec else text.size(length)


def _hanging(output: Output, parts: list[str], indent: str) -> list[str]:
    """Return parts on one line, or on several that break between parts."""
    line = _GAP.join(part.replace(" ", _NO_BREAK) for part in parts)
    width = output.look.width
    return text.hanging(indent.replace(" ", _NO_BREAK) + line, width, len(_INDENT) * 2)


def _body_lines(shown: Mapping[str, Any], style: str) -> Iterator[str]:
    if shown["bodyEncoding"] == "none" or style == "none":
        return
    is_text = shown["bodyEncoding"] == "utf8"
    if style == "base64":
        yield base64.b64encode(bytes(shown["body"], "utf-8")).decode("ascii") if is_text else shown["body"]
    elif style == "hex" or not is_text:
        data = bytes(shown["body"], "utf-8") if is_text else base64.b64decode(shown["body"])
        most = len(data) if style == "hex" else _BYTES_SHOWN
        yield from text.hex_lines(data[:most])
        if len(data) > most:
            yield f"{text.count(len(data) - most)} more bytes; --body hex shows them"
    elif shown["body"]:
        body = _indented(shown["body"]) if style == "json" else shown["body"]
        yield from text.neutral(body, keep="\n\t").split("\n")


def _indented(body: str) -> str:
    """Return JSON over several lines, and what is no JSON as it is."""
    try:
        return json.dumps(json.loads(body), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return body


def damage_line(output: Output, damage: Mapping[str, Any], *, is_note: bool = False) -> str:
    """Return the line of a damage among messages. A note has no colours: what is not plain in it is spelled out."""
    place = f"{text.neutral(damage['file'])}@{damage['file_offset']}"
    words = f"{place}  {damage['length']} bytes  {text.neutral(damage['message'])}"
    label = "damage" if is_note else output.paint("damage", "error")
    return f"{label}  {damage['code']}  {words}"
