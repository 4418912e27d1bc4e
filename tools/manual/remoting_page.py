"""The page of the remoting protocol, made from the table of requests, the bodies and the codes of answers."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Iterable, Iterator

from rmqtool.formats.response_codes import ResponseCode, codes_of
from rmqtool.remoting import answers, limits
from rmqtool.remoting.answers import Refusal
from rmqtool.remoting.body import Body, Content
from rmqtool.remoting.command import Language
from rmqtool.remoting.declared import Declared, Field
from rmqtool.remoting.headers import Header, NoFields, Request, Role, Row, RpcRequest, TopicQueueRequest
from rmqtool.remoting.requests import REQUESTS
from tools.manual.command_pages import NAME, see_also
from tools.manual.roff import Block, Items, Page, Section, Table, Text

_INTRODUCTION = (
    "The protocol between RocketMQ's clients, brokers and name servers. A connection carries frames in both "
    "directions, each with one command: a request, or the answer to one. There is no magic number, no checksum and no "
    "handshake; answers come in any order, and a broker asks its clients on the connection that they opened.",
    "This page is made from the declarations that rmqtool itself reads and writes by. They are compared with the "
    "classes of RocketMQ 4.9.7, 5.3.3, 5.4.0 and 5.5.0.",
)
_FRAME = (
    ("0", "4", "length of what follows"),
    ("4", "1", "type of the header: 0 JSON, 1 ROCKETMQ"),
    ("5", "3", "length of the header"),
    ("8", "n", "header"),
    ("8 + n", "rest", "body"),
)
_MEMBERS = (
    ("code", "2", "of the request, or of the answer"),
    ("language", "1", "of the sender: the name in JSON, the number in ROCKETMQ"),
    ("version", "2", "of the sender, as a number: 409 is 4.9.8, 479 is 5.3.3, 493 is 5.4.0"),
    ("opaque", "4", "number that an answer has in common with its request"),
    ("flag", "4", "1: an answer; 2: a request that must not be answered"),
    ("remark", "4 + n", "text for people; optional"),
    (
        "extFields",
        "4 + n",
        "fields of the request or answer, all texts; in ROCKETMQ with lengths of 2 (name) and 4 (value) bytes",
    ),
)
_JAVA = (
    "Fields are texts on the wire. `Integer`, `Long`, `Boolean` and `String` may be null in Java; `int`, `long` and "
    "`boolean` have 0 or false where none was sent. ! marks what upstream insists on. A request without such a "
    "field is answered 1 where Java reads it by code of its own (sends and pulls); in other requests Java only logs "
    "it, and fails later if it needs the value.",
    "Unknown fields are ignored, but they are signed: `ReqT` of pulling clients, `AccessKey` and `Signature` "
    "of those with a key, `__ZONE_NAME` of zones.",
)
_TYPES: dict[object, str] = {str: "text", int: "number", float: "number", bool: "boolean", typing.Any: "any"}


def remoting_page() -> Page:
    """Return the page of every request."""
    sections = [
        Section("Description", tuple(map(Text, _INTRODUCTION))),
        Section("Frames", tuple(_frames())),
        Section("Headers", tuple(_headers())),
        Section("Fields", (*map(Text, _JAVA), *_common())),
    ]
    for role in Role:
        sections.append(Section(f"Requests to a {role.value}", ()))
        sections += [_request(rows) for rows in _rows_by_request() if rows[0].request.to is role]
    sections.append(Section("Bodies", tuple(_bodies())))
    sections.append(Section("Codes of answers", tuple(_codes())))
    sections.append(Section("Remarks of refusals", tuple(_refusals())))
    sections.append(Section("See also", (see_also(f"{NAME}-store.5", f"{NAME}-json.5"),)))
    return Page(f"{NAME}-remoting", 5, "requests and answers of RocketMQ's remoting protocol", tuple(sections))


def _frames() -> Iterator[Block]:
    yield Table(("offset", "size", "field"), _FRAME, frozenset({0, 1}))
    yield Text(
        f"Integers are big-endian. A frame has at most {limits.FRAME_BYTES} bytes, its length field included; beyond "
        "that, and where a frame cannot be read, upstream closes the connection and answers nothing. rmqtool also "
        f"refuses a header of more than {limits.HEADER_BYTES} bytes or {limits.FIELDS} fields, and JSON nested deeper "
        f"than {limits.DEPTH}. A connection that begins with 0x16 is TLS."
    )


def _headers() -> Iterator[Block]:
    yield Text("The members of a JSON header, in any order; in a ROCKETMQ header they come in this order and size.")
    yield Table(("member", "bytes", "meaning"), _MEMBERS, frozenset({1}))
    languages = ", ".join(f"{language.name} {language.value}" for language in Language)
    yield Text(f"Languages: {languages}.")


def _common() -> Iterator[Block]:
    yield Text("Besides its own fields a request of 5.x may have these:")
    yield _fields(TopicQueueRequest.fields.values(), short=False)


def _rows_by_request() -> list[list[Row]]:
    found: dict[type[Request], list[Row]] = {}
    for row in sorted(REQUESTS.values()):
        found.setdefault(row.request, []).append(row)
    return list(found.values())


def _request(rows: list[Row]) -> Section:
    request = rows[0].request
    blocks: list[Block] = [Text(_doc(request) + _since(rows))]
    inherited = RpcRequest.fields.keys() | TopicQueueRequest.fields.keys() if issubclass(request, RpcRequest) else set()
    own = [field for name, field in request.fields.items() if name not in inherited or field.short == "n"]
    if own:
        blocks.append(_fields(own, short=any(row.short for row in rows)))
    notes = tuple(_notes(request))
    if notes:
        blocks.append(Items(notes))
    return Section(", ".join(f"{row.code} {row.name}" for row in rows), tuple(blocks), inner=True)


def _since(rows: list[Row]) -> str:
    since = {row.since for row in rows}
    if len(since) == 1:
        return f" Since {rows[0].since}." if rows[0].since else ""
    later = [f"{row.code} since {row.since}" for row in rows if row.since]
    return f" {'; '.join(later)}."


def _doc(declared: type[Declared]) -> str:
    text = inspect.getdoc(declared) or ""
    return re.sub(r"``", "`", " ".join(text.split()))


def _fields(fields: Iterable[Field], *, short: bool) -> Table:
    rows = []
    for field in fields:
        marks = [f"{field.acl.value} of the access rules"] if field.acl else []
        marks += [f"since {field.since}"] if field.since else []
        marks += [f"until {field.until}"] if field.until else []
        marks += [f"optional since {field.optional_since}"] if field.optional_since else []
        if field.default not in (None, False, 0):
            marks.append(f"default {field.default}")
        name = f"{field.wire}{'!' if field.needed else ''}"
        rows.append((*((field.short,) if short else ()), name, field.java.replace("bool", "boolean"), ", ".join(marks)))
    return Table((*(("short",) if short else ()), "field", "type", "notes"), tuple(rows))


def _notes(request: type[Request]) -> Iterator[tuple[str, tuple[str, ...]]]:
    if request.body is not None:
        yield "Body", (_content(request.body),)
    if request.answer is not NoFields:
        yield "Answer", (_signature(request.answer),)
    if request.answer_body is not None:
        yield "Body of the answer", (_content(request.answer_body),)
    if request.rights:
        scope = f" on the {request.scope.value}" if request.scope else ""
        yield "Right", (" or ".join(right.value for right in request.rights) + scope,)


def _content(kind: type[Body] | Content) -> str:
    return kind.value if isinstance(kind, Content) else f"`{kind.__name__}`"


def _signature(header: type[Header]) -> str:
    return ", ".join(
        f"{field.wire}{'!' if field.needed else ''} {field.java.replace('bool', 'boolean')}"
        + (f" (since {field.since})" if field.since else "")
        for field in header.fields.values()
    )


def _bodies() -> Iterator[Block]:
    yield Text("Bodies are JSON unless a request says otherwise. A map by message queue has the objects as its keys.")
    items = []
    for body in sorted(_all_bodies(Body), key=lambda body: body.__name__):
        hints = typing.get_type_hints(body)
        members = ", ".join(f"{field.wire} {_hint(hints[name])}" for name, field in body.fields.items())
        items.append((f"`{body.__name__}`", (_doc(body), members)))
    yield Items(tuple(items))


def _all_bodies(base: type[Body]) -> Iterator[type[Body]]:
    for body in base.__subclasses__():
        if body.__module__.startswith(NAME):
            yield body
            yield from _all_bodies(body)


def _hint(hint: object) -> str:
    """Return a type in words: ``[X]`` for an array, ``{K: V}`` for a map, ``?`` for a value that may be missing."""
    parts = typing.get_args(hint)
    if type(None) in parts:
        return _hint(next(part for part in parts if part is not type(None))) + "?"
    origin = typing.get_origin(hint)
    if origin is list:
        return f"[{_hint(parts[0])}]"
    if origin is dict:
        return f"{{{_hint(parts[0])}: {_hint(parts[1])}}}"
    return _TYPES[hint] if hint in _TYPES else str(getattr(hint, "__name__", hint))


def _codes() -> Iterator[Block]:
    old, new = codes_of("4.9"), codes_of("5.5.0")
    rows = [
        (str(code), name, ", ".join(_when(name, old, new)))
        for name, code in sorted({**old, **new}.items(), key=lambda pair: (pair[1] < 0, abs(pair[1])))
    ]
    yield Table(("code", "name", "versions"), tuple(rows), frozenset({0}))


def _when(name: str, old: dict[str, int], new: dict[str, int]) -> Iterator[str]:
    if name not in new:
        yield "4.x only"
    elif name not in old:
        yield "5.5" if name not in codes_of("5.4") else "5.x"


def _refusals() -> Iterator[Block]:
    yield Text("Text between braces is filled in. Of two codes the second is that of 5.x.")
    known = [value for value in vars(answers).values() if isinstance(value, Refusal)]
    yield Items(
        tuple(
            (" / ".join(str(int(code)) for code in (one.code, one.code_5) if code is not None), (_text(one),))
            for one in known
        )
    )


def _text(refusal: Refusal) -> str:
    assert isinstance(refusal.code, ResponseCode)
    return refusal.text.replace("{see}", "").replace("`", "'")
