"""One request or answer of the remoting protocol, as a value.

A command is a header and a body. The header has a ``code`` (of the request, or of the answer), a number that pairs an
answer with its request (``opaque``), flags, the sender's language and version, a remark for people, and ``extFields``:
the fields of the request or answer itself, all of them texts. The body is bytes.

Upstream: ``RemotingCommand``, ``LanguageCode``, ``MQVersion``, ``SerializeType``.
"""

from __future__ import annotations

from enum import IntEnum

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

# The first flag marks an answer; the second a request whose sender does not wait for one.
ANSWER = 1
ONEWAY = 2

_V4_0_0 = 213
_HIGHEST = 611
_PER_MAJOR = 200
_PER_MINOR = 20


class Language(IntEnum):
    """The language of the sender. The JSON header has the name, the ROCKETMQ header the number."""

    JAVA = 0
    CPP = 1
    DOTNET = 2
    PYTHON = 3
    DELPHI = 4
    ERLANG = 5
    RUBY = 6
    OTHER = 7
    HTTP = 8
    GO = 9
    PHP = 10
    OMS = 11
    RUST = 12
    NODE_JS = 13


class SerializeType(IntEnum):
    """The kind of a header: the fifth byte of a frame."""

    JSON = 0
    ROCKETMQ = 1


class FrameError(ValueError):
    """Bytes that are not a frame, or a frame beyond a limit. Upstream closes the connection without an answer."""


def version_ordinal(version: str) -> int:
    """Return the number by which a header names a release from 4.0.0 on.

    Each release has two numbers: its snapshot's and its own.
    """
    major, minor, patch = (int(part) for part in version.split("."))
    if major < 4 or minor > 9 or patch > 9:
        raise ValueError(f"{version} has no number by rule")
    return _V4_0_0 + _PER_MAJOR * (major - 4) + _PER_MINOR * minor + 2 * patch


def version_name(ordinal: int) -> str | None:
    """Return the release of a header's ``version``; None for releases before 4.0.0 and for unknown numbers."""
    if not _V4_0_0 <= ordinal <= _HIGHEST:
        return None
    # The number before that of a release is its snapshot's.
    steps = ordinal - _V4_0_0 + 1
    major, rest = divmod(steps, _PER_MAJOR)
    minor, number = divmod(rest, _PER_MINOR)
    name = f"{major + 4}.{minor}.{number // 2}"
    return name if number % 2 else f"{name}-SNAPSHOT"


# Answers carry it by default: late enough for SQL92 (232) and for quoted ids (401), too early for GO_AWAY and for what
# only clients of 5.x send.
OWN_VERSION = version_ordinal("4.9.8")

_NO_FIELDS: Mapping[str, str] = {}


class RemotingCommand:
    """A request or an answer. It is a value: it does not change after it was made.

    ``ext_fields`` is missing (None) if the header does not have this member, as in upstream. ``language`` is missing
    (None) if upstream does not know the sender's.
    """

    # Not a named tuple: every frame makes one of these in two thirds of the time, and importing ``typing`` for it would
    # take as long as importing this whole room.
    __slots__ = ("body", "code", "ext_fields", "flag", "language", "opaque", "remark", "serialize_type", "version")

    def __init__(
        self,
        code: int,
        ext_fields: dict[str, str] | None = None,
        body: bytes = b"",
        opaque: int = 0,
        flag: int = 0,
        language: Language | None = Language.JAVA,
        version: int = OWN_VERSION,
        remark: str | None = None,
        serialize_type: SerializeType = SerializeType.JSON,
    ) -> None:
        self.code = code
        self.ext_fields = ext_fields
        self.body = body
        self.opaque = opaque
        self.flag = flag
        self.language = language
        self.version = version
        self.remark = remark
        self.serialize_type = serialize_type

    def _members(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}

    def replaced(self, **members: Any) -> RemotingCommand:
        """Return the same command with other values of these members."""
        return RemotingCommand(**(self._members() | members))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RemotingCommand) and self._members() == other._members()

    __hash__ = None  # type: ignore[assignment]  # as that of its dict of fields

    def __repr__(self) -> str:
        members = ", ".join(f"{name}={value!r}" for name, value in self._members().items())
        return f"RemotingCommand({members})"

    @property
    def ext(self) -> Mapping[str, str]:
        """The fields, as an empty mapping if the header does not have any."""
        return _NO_FIELDS if self.ext_fields is None else self.ext_fields

    @property
    def is_answer(self) -> bool:
        """Whether this is an answer, not a request."""
        return bool(self.flag & ANSWER)

    @property
    def is_oneway(self) -> bool:
        """Whether the sender of this request waits for no answer: it must not get one, not even an error."""
        return self.flag & (ANSWER | ONEWAY) == ONEWAY
