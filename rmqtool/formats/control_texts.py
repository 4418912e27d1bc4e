"""Small text files that are not JSON: abort, lock, epochs, the broker's identity, DLedger's state.

``abort`` is empty (4.x) or holds the process id; ``lock`` holds the word lock; ``epochFileCheckpoint`` has the number
of entries, a checksum and a line ``epoch-startOffset`` for each; ``brokerIdentity`` is ``cluster#broker#id``; DLedger's
``checkpoint`` and ``currterm`` are lines ``name=value``. Decoders return a ``Flaw`` for bytes that upstream would not
accept.

Upstream: ``DefaultMessageStore`` (abort, lock), ``CheckpointFile`` and ``EpochFileCache``, ``BrokerMetadata`` and
``TempBrokerMetadata``, ``DLedgerStore`` and ``MemberState``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from rmqtool.formats.flaws import Flaw
from rmqtool.formats.java import INT_MAX, LONG_MAX, LONG_MIN, crc31, decode_text, encode_text

LOCK_CONTENT = b"lock"

# Numbers of at most as many digits as the largest ``long`` or ``int`` has; ranges are checked after that.
_PID = re.compile(rb"\d{1,19}")
_EPOCH_LINE = re.compile(r"(\d{1,10})-(-?\d{1,19})", re.ASCII)
_COUNT = re.compile(r"\d{1,10}", re.ASCII)
_LONG = re.compile(r"[+-]?\d{1,19}", re.ASCII)


class Abort(NamedTuple):
    """Content of ``abort`` and ``abort.bak``: the process id of the broker; None in 4.x, 0 if it was unknown."""

    pid: int | None


def decode_abort(data: bytes) -> Abort | Flaw:
    """Return the content of abort, the mark of an open store, or a flaw.

    A broker looks only at whether the file exists.
    """
    if not data:
        return Abort(None)
    if not _PID.fullmatch(data):
        return Flaw("ST-ABORT", "neither empty nor a process id", 0, len(data))
    return Abort(int(data))


def check_lock(data: bytes) -> Flaw | None:
    """Return what is odd about the content of ``lock``, or None. Brokers write it and never read it."""
    return None if data in (b"", LOCK_CONTENT) else Flaw("ST-LOCK", "not the word lock", 0, len(data))


class EpochEntry(NamedTuple):
    """An epoch of a master, and its first physical offset."""

    epoch: int
    start_offset: int


class EpochFile(NamedTuple):
    """Content of ``epochFileCheckpoint``. A checksum of 0 is not verified."""

    entries: tuple[EpochEntry, ...]
    crc: int
    line_separator: str = "\n"


def decode_epoch_file(data: bytes) -> EpochFile | Flaw:
    """Return the epochs, or why a broker loads the ``.bak`` instead."""
    text = decode_text(data)
    # Java writes the line separator of its platform, and the checksum covers it.
    line_separator = "\r\n" if "\r\n" in text else "\n"
    count_line, *lines = text.split(line_separator)
    if not lines or lines[-1]:
        return Flaw("CF-EPOCH", "does not end with a line break", 0, len(data))
    crc_line, *entry_lines = lines[:-1] or [""]
    if not _COUNT.fullmatch(count_line) or not _COUNT.fullmatch(crc_line):
        return Flaw("CF-EPOCH", "the first two lines are not a count and a checksum", 0, len(data))
    if int(count_line) != len(entry_lines):
        return Flaw(
            "CF-EPOCH", f"the first line announces {int(count_line)} entries, {len(entry_lines)} follow", 0, len(data)
        )
    crc = int(crc_line)
    head = len(encode_text(count_line + crc_line + 2 * line_separator))
    if crc != 0 and crc != crc31(data[head:]):
        return Flaw("CF-EPOCH", f"checksum {crc}, the entries give {crc31(data[head:])}", 0, len(data))
    entries = []
    for line in entry_lines:
        match = _EPOCH_LINE.fullmatch(line)
        if match is None or int(match[1]) > INT_MAX or not LONG_MIN <= int(match[2]) <= LONG_MAX:
            return Flaw("CF-EPOCH", f"line {line[:40]!r} is not epoch-startOffset", 0, len(data))
        entries.append(EpochEntry(int(match[1]), int(match[2])))
    return EpochFile(tuple(entries), crc, line_separator)


def encode_epoch_file(file: EpochFile) -> bytes:
    """Return the text of ``file``; its checksum is written as it is."""
    return (f"{len(file.entries)}{file.line_separator}{file.crc}{file.line_separator}").encode() + _epoch_lines(file)


def new_epoch_file(entries: Iterable[EpochEntry]) -> EpochFile:
    """Return a file of ``entries`` with the right checksum."""
    file = EpochFile(tuple(entries), 0)
    return file._replace(crc=crc31(_epoch_lines(file)))


def _epoch_lines(file: EpochFile) -> bytes:
    return "".join(f"{epoch}-{start}{file.line_separator}" for epoch, start in file.entries).encode()


class BrokerIdentity(NamedTuple):
    """Content of ``brokerIdentity``; only the temporary file has the code of a registration in progress."""

    cluster_name: str
    broker_name: str
    broker_id: int
    register_check_code: str | None = None


def decode_broker_identity(data: bytes) -> BrokerIdentity | Flaw:
    """Return the identity of a broker that runs under a controller; a flaw for a text of another form."""
    parts = decode_text(data).split("#")
    if len(parts) not in (3, 4) or not all(parts):
        return Flaw("CF-IDENTITY", "not clusterName#brokerName#brokerId", 0, len(data))
    if not _LONG.fullmatch(parts[2]) or not LONG_MIN <= int(parts[2]) <= LONG_MAX:
        return Flaw("CF-IDENTITY", f"broker id {parts[2][:40]!r} is not a number", 0, len(data))
    return BrokerIdentity(parts[0], parts[1], int(parts[2]), parts[3] if len(parts) == 4 else None)


# The keys of each of DLedger's state files, which may come in any order.
DLEDGER_KEYS = {"checkpoint": ("committedIndex", "endIndex"), "currterm": ("voteLeader", "currTerm")}


def decode_properties_file(data: bytes) -> dict[str, str] | Flaw:
    """Return the values of ``name=value`` lines, in their order; comments and blank lines are ignored.

    If a name occurs twice, the last value counts. A flaw for any other line.
    """
    found = {}
    at = 0
    for line in data.splitlines(keepends=True):
        text = decode_text(line).strip()
        if text and text[0] not in "#!":
            name, separator, value = text.partition("=")
            if not separator or not name.strip():
                return Flaw("DL-STATE", f"line {text[:40]!r} is not name=value", at, len(line))
            found[name.strip()] = value.strip()
        at += len(line)
    return found


def encode_properties_file(values: Mapping[str, str]) -> bytes:
    """Return the lines of ``values`` as DLedger writes them: no comment, LF after each."""
    return encode_text("".join(f"{name}={value}\n" for name, value in values.items()))


def decode_dledger_state(name: str, data: bytes) -> dict[str, int | str] | Flaw:
    """Return the content of ``checkpoint`` or ``currterm`` of a DLedger node, indexes and the term as numbers.

    Keys may be missing, and keys that DLedger does not have stay texts. A flaw for a number that is not a ``long``.
    """
    lines = decode_properties_file(data)
    if isinstance(lines, Flaw):
        return lines
    found: dict[str, int | str] = {}
    for key, text in lines.items():
        if key not in DLEDGER_KEYS[name] or key == "voteLeader":
            found[key] = text
        elif _LONG.fullmatch(text) and LONG_MIN <= int(text) <= LONG_MAX:
            found[key] = int(text)
        else:
            return Flaw("DL-STATE", f"{key} is {text[:40]!r}, a number is expected", 0, len(data))
    return found


def encode_dledger_state(values: Mapping[str, int | str]) -> bytes:
    return encode_properties_file({name: str(value) for name, value in values.items()})
