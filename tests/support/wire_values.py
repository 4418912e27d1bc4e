"""Requests, answers and frames as hypothesis makes them up, derived from the declarations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from rmqtool.formats.java import INT_MAX, INT_MIN, LONG_MAX, LONG_MIN
from rmqtool.remoting.command import Language, RemotingCommand, SerializeType
from rmqtool.remoting.declared import BoundaryType, Field
from rmqtool.remoting.headers import Header, Request, Row
from rmqtool.remoting.requests import REQUESTS

# Whatever Java can have in a text, but halves of characters: those no encoding keeps.
TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=12) | st.sampled_from(
    ["TopicTest", "%RETRY%G", "KEYS\x01k1\x02TAGS\x01A\x02", '{"a":[1,{}]}', '\\"', "null", "é中\U0001f600"]
)
# No field has a name like some of these; fastjson 2 cannot read one with a character beyond the first plane.
NAMES = st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=("Cs",)), min_size=1, max_size=8)
_BY_TYPE: dict[str, st.SearchStrategy[Any]] = {
    "String": TEXTS,
    "Integer": st.integers(INT_MIN, INT_MAX),
    "int": st.integers(INT_MIN, INT_MAX),
    "Long": st.integers(LONG_MIN, LONG_MAX),
    "long": st.integers(LONG_MIN, LONG_MAX),
    "Boolean": st.booleans(),
    "bool": st.booleans(),
    "BoundaryType": st.sampled_from(BoundaryType),
}


def values_of(field: Field) -> st.SearchStrategy[Any]:
    """Return the values that a field may have."""
    return _BY_TYPE[field.java]


def headers(header: type[Header]) -> st.SearchStrategy[Header]:
    """Return values of a header: what is needed, and some of the rest."""
    needed = {name: values_of(field) for name, field in header.fields.items() if field.needed}
    others = {name: values_of(field) for name, field in header.fields.items() if not field.needed}
    return st.fixed_dictionaries(needed, optional=others).map(lambda given: header(**given))


@st.composite
def requests(draw: st.DrawFn, codes: tuple[int, ...] = tuple(REQUESTS)) -> tuple[Row, Request]:
    """Return a request of any code, with the row of the code."""
    row = REQUESTS[draw(st.sampled_from(codes))]
    request = draw(headers(row.request))
    assert isinstance(request, Request)
    return row, request


@st.composite
def commands(draw: st.DrawFn) -> RemotingCommand:
    """Return a command of any kind: a declared request, or fields that nobody declared."""
    kind = draw(st.sampled_from(SerializeType))
    if draw(st.booleans()):
        row, request = draw(requests())
        code, fields = row.code, row.encode(request)
    else:
        code = draw(st.integers(-0x8000, 0x7FFF))
        fields = draw(st.dictionaries(NAMES, TEXTS, max_size=5))
    if kind is SerializeType.ROCKETMQ:
        # There a text of no length is no text, and a code has 16 bits.
        fields = {name: value for name, value in fields.items() if value}
        code = code if code <= 0x7FFF else code & 0x7FFF
    return RemotingCommand(
        code,
        fields or None,
        draw(st.binary(max_size=40)),
        draw(st.integers(INT_MIN, INT_MAX)),
        draw(st.integers(0, 3)),
        draw(st.sampled_from(Language)),
        draw(st.integers(0, 0x7FFF)),
        draw(st.none() | TEXTS.filter(bool)),
        kind,
    )


def made(strategy: st.SearchStrategy[Any], count: int) -> list[Any]:
    """Return ``count`` values, always the same ones."""
    found: list[Any] = []

    @settings(
        max_examples=count, derandomize=True, database=None, deadline=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(strategy)
    def collect(value: Any) -> None:
        found.append(value)

    run: Callable[[], None] = collect
    run()
    return found
