"""Headers of requests and answers: texts ↔ typed values, and the one table of requests.

A request is a class; declaring it adds it to ``REQUESTS``, by each of its codes. Everything else about a request is
derived from there: reading and writing in both kinds of header, the rights it needs, the page of the manual, the lines
of the wire log, and the data of tests.

Java reads headers in two ways. Those of sending and pulling are read by code of their own (``FastCodesHeader``), which
refuses a header without a needed field. All others are read by reflection, which only logs a field that is missing or
not a number: a field of a plain type then has its zero, another one is null, and the code that needs it fails later.
Here both end as a client sees it: with code 1 if the value is needed, else with the default.

Upstream: ``CommandCustomHeader``, ``RemotingCommand.decodeCommandCustomHeader``, ``RequestCode``, ``RocketMQAction``.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from enum import Enum
from types import MappingProxyType
from typing import Any, ClassVar, Final, NamedTuple, Self

from rmqtool import kernel
from rmqtool.remoting.declared import (
    READERS,
    Boolean,
    Declared,
    Field,
    HeaderError,
    Resource,
    String,
    field,
    show_text,
)


class Role(Enum):
    """The receiver of a request."""

    BROKER = "broker"
    NAME_SERVER = "name server"
    CLIENT = "client"


class Right(Enum):
    """The rights on a resource."""

    PUB = "PUB"
    SUB = "SUB"
    CREATE = "CREATE"
    UPDATE = "UPDATE"
    DELETE = "DELETE"
    GET = "GET"
    LIST = "LIST"


class OldRight(Enum):
    """The need of a request in the access control of 4.x, where most need only a valid signature."""

    PUB = "PUB"
    SUB = "SUB"
    ADMIN = "admin"


class Code(NamedTuple):
    """A number and name of a request; ``short``: its fields travel under their short names."""

    code: int
    name: str
    short: bool = False
    since: str = ""
    until: str = ""


# How the kernel reads the text of a field; it leaves all other types to their readers.
_KERNEL_TYPES: Final = {"String": 0, "int": 1, "Integer": 1, "long": 2, "Long": 2, "bool": 3, "Boolean": 3}


# Values do not change; this is how one gets its members.
_set_members: Final = object.__setattr__


class _Readers:
    """Attribute and reader by name on the wire, for one form of a header."""

    def __init__(self, fields: Mapping[str, Field]) -> None:
        self.by_name = {wire: (field.name, READERS[field.java]) for wire, field in fields.items()}
        self._types = {wire: (field.name, _KERNEL_TYPES.get(field.java, -1)) for wire, field in fields.items()}

    def read_plain(self, ext: Mapping[str, str]) -> dict[str, Any] | None:
        """Return the values by attribute, if all texts are the usual spelling of their types."""
        if kernel.NATIVE is None or type(ext) is not dict:
            return None
        return kernel.NATIVE.typed_fields(ext, self._types)


class _Plan(NamedTuple):
    """The plan to read a header in its two forms, and the required fields."""

    long: _Readers
    short: _Readers
    needed: frozenset[str]


class Header(Declared):
    """The fields of a request or of an answer.

    ``java`` and ``java_short`` are upstream's classes of the long and the short form, ``java_since`` the release that
    brought them. ``strict``: upstream reads it by code of its own; of two forms the short one.
    """

    java: ClassVar[str] = ""
    java_short: ClassVar[str] = ""
    java_since: ClassVar[str] = ""
    strict: ClassVar[bool] = False
    _plan: ClassVar[_Plan | None] = None

    @classmethod
    def decode(cls, ext: Mapping[str, str], *, short: bool = False) -> Self:
        """Return the value of a request's fields; unknown ones are ignored. Raises HeaderError."""
        plan = cls.__dict__.get("_plan") or cls._reading()
        readers = plan.short if short else plan.long
        plain = readers.read_plain(ext)
        if plain is not None and plan.needed <= plain.keys():
            return cls._of(plain)
        value, flaw = cls._read(ext, readers)
        if flaw is not None and cls.strict and (short or not cls.java_short):
            raise HeaderError(f'java.lang.NumberFormatException: For input string: "{flaw}"')
        if not plan.needed.issubset(value.__dict__):
            raise HeaderError(cls._missing(plan.needed - value.__dict__.keys()))
        return value

    @classmethod
    def decode_answer(cls, ext: Mapping[str, str]) -> Self:
        """Return the value of an answer's fields, as a client reads it: missing fields become None."""
        return cls._read(ext, cls._reading().long)[0]

    @classmethod
    def _read(cls, ext: Mapping[str, str], readers: _Readers) -> tuple[Self, str | None]:
        """Return the value of the readable fields, and the first text that could not be read."""
        plain = readers.read_plain(ext)
        if plain is not None:
            return cls._of(plain), None
        value = cls.__new__(cls)
        given = value.__dict__
        reader_of = readers.by_name.get
        flaw = None
        for wire, text in ext.items():
            entry = reader_of(wire)
            if entry is None:
                continue
            name, read = entry
            if read is None:
                given[name] = text
            elif (found := read(text)) is not None:
                given[name] = found
            elif flaw is None:
                flaw = text
        return value, flaw

    @classmethod
    def _of(cls, given: dict[str, Any]) -> Self:
        """Return the value that was given these fields, by attribute; it keeps the dict."""
        value = cls.__new__(cls)
        _set_members(value, "__dict__", given)
        return value

    @classmethod
    def _missing(cls, names: Set[str]) -> str:
        missing = next(field for name, field in cls.fields.items() if name in names)
        return f"the custom field <{missing.wire}> is null"

    @classmethod
    def _reading(cls) -> _Plan:
        """Return the plan for this header, derived at its first use: most processes see only a few kinds."""
        plan = cls.__dict__.get("_plan")
        if plan is None:
            long = {field.wire: field for field in cls.fields.values()}
            # A field without a short name keeps its long one.
            short = long | {field.short: field for field in cls.fields.values() if field.short}
            needed = {name for name, field in cls.fields.items() if field.insisted_on}
            if cls.strict:
                needed |= {name for name, field in cls.fields.items() if field.needed}
            plan = cls._plan = _Plan(_Readers(long), _Readers(short), frozenset(needed))
        return plan

    def encode(self, *, short: bool = False) -> dict[str, str]:
        """Return the texts of the fields that were given."""
        fields = self.fields
        return {
            (short and fields[name].short) or fields[name].wire: show_text(value)
            for name, value in self.__dict__.items()
        }


class NoFields(Header):
    """A header without fields of its own."""


class Request(Header):
    """A request. Its class has the data of the table; declaring it adds it there.

    ``codes`` are its numbers, ``to`` is the receiver, ``answer`` the header of the answer. ``body`` and ``answer_body``
    are the classes of the bodies. Of ``rights`` one is needed for each field that names a topic or group, or for
    ``scope`` as a whole; ``old_right`` is the need in 4.x.
    """

    codes: ClassVar[tuple[Code, ...]] = ()
    to: ClassVar[Role] = Role.BROKER
    answer: ClassVar[type[Header]] = NoFields
    body: ClassVar[Any] = None
    answer_body: ClassVar[Any] = None
    rights: ClassVar[tuple[Right, ...]] = ()
    scope: ClassVar[Resource | None] = None
    old_right: ClassVar[OldRight | None] = None

    def __init_subclass__(cls) -> None:
        """Add the request to the table. A class without codes is a base of others."""
        super().__init_subclass__()
        for code in cls.__dict__.get("codes", ()):
            if code.code in _REQUESTS:
                raise TypeError(f"{cls.__name__} and {_REQUESTS[code.code].request.__name__} both are {code.code}")
            _REQUESTS[code.code] = Row(code.code, code.name, code.short, code.since, code.until, cls)


class Row(NamedTuple):
    """A row of the table: a code and its request."""

    code: int
    name: str
    short: bool
    since: str
    until: str
    request: type[Request]

    def decode(self, ext: Mapping[str, str]) -> Request:
        """Return the typed value of a request's fields. Raises HeaderError."""
        return self.request.decode(ext, short=self.short)

    def encode(self, request: Request) -> dict[str, str]:
        """Return the texts of a request's fields under the names that this code has for them."""
        return request.encode(short=self.short)


_REQUESTS: Final[dict[int, Row]] = {}
# The one table. It is complete once ``rmqtool.remoting.requests`` is imported; import it from there.
REQUESTS: Final[Mapping[int, Row]] = MappingProxyType(_REQUESTS)


class RpcRequest(Request):
    """Fields for proxies and namespaces in nearly every request of 5.x; a broker without them ignores all of it."""

    bname: String | None = field(default=None, since="5.0.0")
    ns: String | None = field(default=None, since="5.0.0")
    nsd: Boolean | None = field(default=None, since="5.0.0")
    oway: Boolean | None = field(default=None, since="5.0.0")


class TopicRequest(RpcRequest):
    """A request about a topic, which may be a static one."""

    lo: Boolean | None = field(default=None, since="5.0.0")


class TopicQueueRequest(TopicRequest):
    """A request about one queue of a topic."""
