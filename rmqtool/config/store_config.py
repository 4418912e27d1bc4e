"""StoreConfig: the settings of one store, and the lines that show them, with secrets masked.

Each setting has a value and an origin: default, broker.conf, command line. Which names are secrets is in ``secrets``;
here the names of users are added.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from enum import StrEnum
from typing import Any, NamedTuple, Self

from rmqtool import secrets
from rmqtool.config.broker_conf import CODE, decode_properties, encode_properties
from rmqtool.config.settings import SETTINGS, UNUSED, Origin, Setting, Settings, Version
from rmqtool.errors import UsageError
from rmqtool.findings import Finding, Severity
from rmqtool.formats.java import parse_double, parse_int, parse_long
from rmqtool.formats.topics import parse_delay_levels

_NOT_USED = "not used by rmqtool"
# Settings that name a user of the broker. On the wire an access key is shown: it tells who asked.
_USER = re.compile(r"access_?key|initAuthenticationUser", re.IGNORECASE)
# The default of the JVM property that MessageStoreConfig.MULTI_PATH_SPLITTER reads; it is not a setting.
_PATH_SPLITTER = ","
# The setting with which a broker does not start if it does not parse; other values that it does not take are ignored.
_LEVELS = "messageDelayLevel"


def is_secret(name: str) -> bool:
    """Return whether the value of the key ``name`` must be masked wherever it is shown."""
    return secrets.is_secret(name) or _USER.search(name) is not None


class ShownSetting(NamedTuple):
    """One line of the configuration as it is shown, with secrets masked."""

    name: str
    value: str
    origin: Origin
    about: str | None


_NO_START = Finding(
    CODE,
    Severity.ERROR,
    "",
    consequence="a broker does not start",
    fix="correct the line",
    broker="ends after it has loaded the store",
)


class _NotAccepted(Exception):
    """A broker would not accept a text as the value of a setting; the argument says what it expects."""


# The constructor is written by hand: generating one for this many fields took milliseconds at every start.
@dataclass(frozen=True, slots=True, kw_only=True, init=False, repr=False)
class StoreConfig(Settings):
    """All settings of one store. Values never change; the ``with_`` methods return a changed copy.

    ``origins`` has the origin of each value that is not the default of ``version``, by upstream's name. ``unknown``
    holds the keys that rmqtool has no setting for, ``findings`` the lines that a broker reads differently from what
    they say. Paths are kept as written; ``root_dir`` and ``commit_log_dirs`` are the paths to use.
    """

    version: Version = Version.V5_3
    origins: Mapping[str, Origin] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()

    def __init__(self, **values: Any) -> None:
        # A field without a default is a mapping.
        for row in fields(self):
            value = values.pop(row.name, row.default)
            object.__setattr__(self, row.name, {} if value is MISSING else value)
        if values:
            raise TypeError(f"unknown settings: {', '.join(values)}")

    @classmethod
    def default(cls, version: Version = Version.V5_3) -> Self:
        """Return the settings of a broker of ``version`` that has an empty broker.conf."""
        values: dict[str, Any] = {row.attribute: row.defaults[version] for row in SETTINGS.values()}
        return cls(version=version, **values)

    def with_broker_conf(self, data: bytes | str, file: str = "broker.conf") -> Self:
        """Take the values of a ``broker.conf`` as a broker of this version does.

        upstream: ``MixAll.properties2Object`` drops a value that it cannot convert, and logs nothing. Here that is a
        finding.
        """
        read, findings = decode_properties(data, file)
        return replace(self, findings=(*self.findings, *findings))._with_texts(read, file)

    def _with_texts(self, read: Mapping[str, str], file: str) -> Self:
        values: dict[str, Any] = {}
        unknown = dict(self.unknown)
        findings = list(self.findings)
        for name, text in read.items():
            row = SETTINGS.get(name)
            if row is None or row.since > self.version:
                unknown[name] = text
                continue
            try:
                values[name] = _from_java_text(row, text, self.version)
            except _NotAccepted as wanted:
                message = f"{name} = {text!r} is not {wanted}"
                if name == _LEVELS:
                    findings.append(replace(_NO_START, message=message, file=file, data={"setting": name}))
                else:
                    message += f"; a broker ignores the line and keeps {self.value(name)}"
                    findings.append(Finding(CODE, Severity.WARNING, message, file=file))
            else:
                if row.kind is bool and text.lower() not in ("true", "false"):
                    message = f"{name} = {text!r} is not true, so a broker takes it as false"
                    findings.append(Finding(CODE, Severity.WARNING, message, file=file))
        changed = self.with_values(values, Origin.BROKER_CONF)
        return replace(changed, unknown=unknown, findings=tuple(findings))

    def with_values(self, values: Mapping[str, object], origin: Origin) -> Self:
        """Take typed ``values``, by upstream's names."""
        changes: dict[str, Any] = {SETTINGS[name].attribute: value for name, value in values.items()}
        return replace(self, **changes, origins={**self.origins, **dict.fromkeys(values, origin)})

    def with_assignments(
        self, assignments: Iterable[str], origin: Origin = Origin.COMMAND_LINE, *, takes_unused: bool = False
    ) -> Self:
        """Take ``KEY=VALUE`` texts from a command line; raise UsageError for a value that a broker would ignore.

        A setting that rmqtool does not use is an error too, unless ``takes_unused``: for a broker.conf that is being
        written.
        """
        from difflib import get_close_matches

        values = {}
        for assignment in assignments:
            name, equals, text = assignment.partition("=")
            name, text = name.strip(), text.strip()
            if not equals:
                raise UsageError(f'"{assignment}" is not KEY=VALUE', hint="for example: checkCRCOnRecover=false")
            row = SETTINGS.get(name)
            if row is None:
                near = get_close_matches(name, SETTINGS, n=1)
                hint = f"did you mean {near[0]}?" if near else "the names are those of broker.conf"
                raise UsageError(f"{name} is not a setting that rmqtool uses", hint=hint)
            if row.name in UNUSED and not takes_unused:
                raise UsageError(f"rmqtool does not use {name}", hint="rmqtool info STORE config")
            if row.since > self.version:
                hint = f"leave it out, or use that version: --as {row.since}"
                raise UsageError(f"{name} is new in {row.since}; a {self.version} broker does not read it", hint=hint)
            if row.kind is bool and text.lower() not in ("true", "false"):
                raise UsageError(f"{name}={text} is neither true nor false", hint=f"--conf {name}=true")
            try:
                values[name] = _from_java_text(row, text, self.version)
            except _NotAccepted as wanted:
                hint = f"the default is {row.defaults[self.version]}"
                raise UsageError(f"{name}={text} is not {wanted}", hint=hint) from None
        return self.with_values(values, origin)

    def as_version(self, version: Version) -> Self:
        """Return the same settings under ``version``: the defaults of that version, and every value that was set."""
        kept = [name for name in self.origins if SETTINGS[name].since <= version]
        changes: dict[str, Any] = {SETTINGS[name].attribute: self.value(name) for name in kept}
        known = {name: text for name, text in self.unknown.items() if name in SETTINGS}
        ignored = {name: self.text(name) for name in self.origins if SETTINGS[name].since > version}
        changed = replace(
            type(self).default(version),
            **changes,
            origins={name: self.origins[name] for name in kept},
            unknown={name: text for name, text in self.unknown.items() if name not in SETTINGS},
            findings=self.findings,
        )
        return changed._with_texts({**known, **ignored}, "broker.conf")

    def with_unknown(self, name: str, text: str) -> Self:
        """Take a key that rmqtool has no setting for, to write it with the others."""
        return replace(self, unknown={**self.unknown, name: text})

    def at_root(self, root: str) -> Self:
        """Return the settings of a store that was moved to ``root``: paths below the old root move with it."""
        old = self.root_dir
        changes: dict[str, Any] = {"store_path_root_dir": root}
        for attribute in _PATH_ATTRIBUTES:
            text = getattr(self, attribute)
            if text is not None:
                moved = [_moved(_expanded(part, old), old, root) for part in text.split(_PATH_SPLITTER)]
                changes[attribute] = _PATH_SPLITTER.join(moved)
        origins = dict(self.origins)
        origins.setdefault("storePathRootDir", Origin.STORE)
        return replace(self, **changes, origins=origins)

    @property
    def root_dir(self) -> str:
        """The store's root directory, ``${user.home}`` replaced."""
        return _expanded(self.store_path_root_dir, "")

    @property
    def commit_log_dirs(self) -> tuple[str, ...]:
        """The directories of new commit log files, in the order in which a broker uses them in turn."""
        if self.store_path_commit_log is None:
            return (os.path.join(self.root_dir, "commitlog"),)
        return _directories(self.store_path_commit_log, self.root_dir)

    @property
    def read_only_commit_log_dirs(self) -> tuple[str, ...]:
        """The directories of commit log files that are read but never written."""
        return _directories(self.read_only_commit_log_store_paths or "", self.root_dir)

    def value(self, name: str) -> object:
        """Return the value of the setting that upstream calls ``name``."""
        return getattr(self, SETTINGS[name].attribute)

    def text(self, name: str) -> str:
        """Return the value as ``broker.conf`` spells it; empty when it is not set."""
        value = self.value(name)
        if value is None:
            return ""
        return str(value).lower() if isinstance(value, bool) else str(value)

    def origin(self, name: str) -> Origin:
        """Return where that value came from."""
        return self.origins.get(name, Origin.DEFAULT)

    def iter_shown(self) -> Iterator[ShownSetting]:
        """Yield every setting that rmqtool uses, then what else is set, with secrets masked."""
        unused = [name for name in SETTINGS if name in UNUSED and name in self.origins]
        for name in (*(name for name in SETTINGS if name not in UNUSED), *unused):
            about = _NOT_USED if name in UNUSED else SETTINGS[name].about
            yield ShownSetting(name, _seen(name, self.text(name)), self.origin(name), about)
        for name, text in self.unknown.items():
            yield ShownSetting(name, _seen(name, text), Origin.BROKER_CONF, _NOT_USED)

    def encode_broker_conf(self, comments: tuple[str, ...] = ()) -> str:
        """Return a ``broker.conf`` with every value that was set, unknown keys included."""
        values = {name: self.text(name) for name in SETTINGS if name in self.origins and self.value(name) is not None}
        return encode_properties({**values, **self.unknown}, comments)


_PATH_ATTRIBUTES = (
    "store_path_commit_log",
    "read_only_commit_log_store_paths",
    "store_path_dledger_commit_log",
    "store_path_epoch_file",
    "tiered_store_file_path",
)


def _seen(name: str, text: str) -> str:
    return secrets.MASK if text and is_secret(name) else text


def _from_java_text(row: Setting, text: str, version: Version) -> object:
    """Convert ``text`` as a broker does. Blanks around a number are an error; only 5.x trims strings."""
    if row.kind is bool:
        return text.lower() == "true"
    if row.kind is int:
        number = (parse_long if row.is_long else parse_int)(text)
        if number is None:
            blank = " (without blanks around it)" if text != text.strip() else ""
            raise _NotAccepted(f"a whole number of {64 if row.is_long else 32} bits{blank}")
        return number
    if row.kind is float:
        value = parse_double(text)
        if value is None:
            raise _NotAccepted("a number")
        return value
    if version > Version.V4_9:
        text = text.strip()
    if row.name == _LEVELS:
        try:
            parse_delay_levels(text)
        except ValueError:
            raise _NotAccepted("a list of delays, such as 1s 5s 10m") from None
    if issubclass(row.kind, StrEnum):
        if text not in row.kind.__members__:
            raise _NotAccepted("one of " + ", ".join(row.kind.__members__))
        return row.kind[text]
    return text


def _expanded(path: str, root: str) -> str:
    """Replace ``${user.home}`` and ``$ROOT``. upstream: a broker replaces neither in a file, but people write them."""
    return path.replace("${user.home}", os.path.expanduser("~")).replace("$ROOT", root.rstrip("/"))


def _directories(text: str, root: str) -> tuple[str, ...]:
    """Split a list of directories. upstream: ``MultiPathMappedFileQueue`` sorts them."""
    parts = (part for part in text.strip().split(_PATH_SPLITTER) if part)
    return tuple(sorted({_expanded(part, root) for part in parts}))


def _moved(path: str, old: str, new: str) -> str:
    if path == old or path.startswith(old.rstrip("/") + "/"):
        return new + path[len(old.rstrip("/")) :]
    return path
