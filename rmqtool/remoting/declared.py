"""Values with declared fields: what every header and body of the protocol is.

A class body declares each field once, by an annotation and, where there is more to declare, ``field(...)``::

    class SearchOffset(TopicQueueRequest):
        codes = (Code(29, "SEARCH_OFFSET_BY_TIMESTAMP"),)

        topic: String = field(acl=TOPIC)
        queue_id: Integer
        timestamp: Long
        boundary_type: BoundaryType | None = field(default=None, since="5.0.0")

The annotation names the type in Java: ``String``, ``Integer``, ``Long``, ``Boolean`` are objects that may be null, and
``int``, ``long``, ``bool`` and ``float`` are not: a field of these has a value even where none was sent. A field
without a default is one that upstream insists on. The name on the wire is that of the attribute in camel case, unless
``wire`` gives another.

A value knows which fields it was given; only these are written. The others have their default when they are read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, StrEnum
from typing import Any, ClassVar, Final, NamedTuple, NoReturn, Self, dataclass_transform

from rmqtool.formats.java import parse_int, parse_long
from rmqtool.secrets import MASK

# Java's types: what mypy sees is on the right.
String = str
Integer = int
Long = int
long = int
Boolean = bool


class BoundaryType(StrEnum):
    """Of messages of one time: the first, or the one after the last."""

    LOWER = "LOWER"
    UPPER = "UPPER"


class Resource(Enum):
    """The kinds of resources that access is granted to."""

    TOPIC = "topic"
    GROUP = "group"
    CLUSTER = "cluster"


TOPIC: Final = Resource.TOPIC
GROUP: Final = Resource.GROUP
CLUSTER: Final = Resource.CLUSTER


class HeaderError(ValueError):
    """A header that upstream does not take either: answered with code 1 and this text."""


class _Missing(Enum):
    """No default: the field is needed."""

    NEEDED = 0


NEEDED: Final = _Missing.NEEDED


class Field(NamedTuple):
    """One declared field. ``java`` is the name of its type.

    ``needed`` fields are marked so by upstream. If one may be null anyway, upstream goes on without it.
    """

    name: str
    wire: str
    java: str
    default: Any
    needed: bool
    may_be_null: bool
    since: str = ""
    until: str = ""
    short: str = ""
    acl: Resource | None = None
    acl_since: str = ""
    splitter: str = ""
    optional_since: str = ""
    boxed_since: str = ""
    secret: bool = False

    @property
    def insisted_on(self) -> bool:
        """Whether the request fails without it."""
        return self.needed and self.default is None and not self.may_be_null

    def is_in(self, version: tuple[int, ...]) -> bool:
        """Whether a release has the field."""
        if self.since and version < _release(self.since):
            return False
        return not self.until or version < _release(self.until)


class _Marks(NamedTuple):
    """The marks of a ``field(...)``, until the class gives it a name and a type."""

    default: Any
    marks: Mapping[str, Any]


def field(*, default: Any = NEEDED, wire: str = "", **marks: Any) -> Any:
    """Declare more of a field than its type: see ``Field`` for the marks.

    ``since`` and ``until`` are the releases that brought it and took it away; ``short`` is its name in the short
    form. ``acl`` marks the name of a topic or group, or several with a ``splitter`` between them; ``acl_since`` is
    there where access control of 4.x did not ask for it. ``optional_since`` says when upstream stopped insisting on
    it, ``boxed_since`` when it made an object of a plain type; ``secret`` fields are never shown.
    """
    return _Marks(default, {"wire": wire, **marks})


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _read_boolean(text: str) -> bool:
    return text == "true" or text.lower() == "true"


# Nearly all numbers have few digits; Java's other spellings take the slower way.
_INT_DIGITS: Final = 10
_LONG_DIGITS: Final = 19


def _read_int(text: str) -> int | None:
    if len(text) < _INT_DIGITS and text.isdecimal() and text.isascii():
        return int(text)
    return parse_int(text)


def _read_long(text: str) -> int | None:
    if len(text) < _LONG_DIGITS and text.isdecimal() and text.isascii():
        return int(text)
    return parse_long(text)


def _read_boundary(text: str) -> BoundaryType | None:
    return BoundaryType(text) if text in ("LOWER", "UPPER") else None


Reader = Callable[[str], Any]

# The reader of each type; a String needs none. A reader returns None for a text that Java refuses.
READERS: Final[Mapping[str, Reader | None]] = {
    "String": None,
    "Integer": _read_int,
    "int": _read_int,
    "Long": _read_long,
    "long": _read_long,
    "Boolean": _read_boolean,
    "bool": _read_boolean,
    "BoundaryType": _read_boundary,
}
# The value of such a field if none was sent.
_ZEROS: Final[Mapping[str, Any]] = {"int": 0, "long": 0, "bool": False, "float": 0.0}


def show_text(value: Any) -> str:
    """Return the text that Java writes of a value."""
    if type(value) is str:
        return value
    if value is True or value is False:
        return "true" if value else "false"
    return str(value)


def camel_case(name: str) -> str:
    """Return upstream's name of an attribute: ``queue_id`` is queueId."""
    if "_" not in name:
        return name
    first, *others = name.split("_")
    return first + "".join(other.capitalize() for other in others)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
class Declared:
    """A value with declared fields."""

    fields: ClassVar[Mapping[str, Field]] = {}

    def __init_subclass__(cls) -> None:
        """Take the declarations out of the class body; what is inherited comes last, as in upstream."""
        own: dict[str, Field] = {}
        for name, annotation in cls.__annotations__.items():
            if annotation.startswith("ClassVar"):
                continue
            declared = _declare(name, annotation, cls.__dict__.get(name, NEEDED))
            own[name] = declared
            setattr(cls, name, declared.default)
        cls.fields = {**own, **{name: field for name, field in cls.fields.items() if name not in own}}

    def __init__(self, **given: Any) -> None:
        """Make a value from the given fields; a field given as None counts as not given."""
        for name, value in given.items():
            if name not in self.fields:
                raise TypeError(f"{type(self).__name__} has no field {name!r}")
            if value is not None:
                self.__dict__[name] = value
        for name, declared in self.fields.items():
            if declared.insisted_on and name not in self.__dict__:
                raise TypeError(f"{type(self).__name__} needs {name!r}")

    @property
    def given(self) -> Mapping[str, Any]:
        """The fields that were given, by attribute."""
        return self.__dict__

    def replace(self, **changes: Any) -> Self:
        """Return a value with some fields changed."""
        return type(self)(**{**self.__dict__, **changes})

    def __setattr__(self, name: str, value: object) -> NoReturn:
        """Values do not change."""
        raise AttributeError(f"{type(self).__name__} is a value: use replace({name}=...)")

    def __eq__(self, other: object) -> bool:
        """Whether both are of one class and every field is equal, given or not."""
        if type(other) is not type(self):
            return NotImplemented
        return self.__dict__ == other.__dict__ or all(getattr(self, n) == getattr(other, n) for n in self.fields)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        """Return the fields that were given; secrets are masked."""
        parts = (f"{name}={MASK if self.fields[name].secret else repr(value)}" for name, value in self.__dict__.items())
        return f"{type(self).__name__}({', '.join(parts)})"


def _declare(name: str, annotation: str, given: Any) -> Field:
    java = annotation.removesuffix(" | None")
    default, marks = (given.default, dict(given.marks)) if isinstance(given, _Marks) else (given, {})
    wire = marks.pop("wire", "") or camel_case(name)
    needed = marks.pop("needed", default is NEEDED)
    if default is NEEDED:
        default = _ZEROS.get(java)
    return Field(name, wire, java, default, needed, java != annotation, **marks)
