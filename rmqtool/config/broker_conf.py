"""``broker.conf``: a Java properties file, read and written by the rules of ``java.util.Properties.load``.

A broker loads the file as bytes: every byte is one ISO-8859-1 character, even if an editor saved the file as UTF-8.
Lines that a broker reads differently from what their author meant become findings, returned beside the values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from rmqtool.findings import Finding, Severity

CODE = "CF-CONF"

_BLANK = " \t\f"
_LINE_ENDS = re.compile(r"\r\n|\r|\n")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.)|$)", re.DOTALL)
_NAMED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def decode_properties(data: bytes | str, file: str = "broker.conf") -> tuple[dict[str, str], list[Finding]]:
    """Return the keys and values that a broker reads from ``data``, and findings about lines that it misreads.

    When a key occurs on several lines the last one counts. ``file`` is the name that findings mention.
    """
    findings = []
    if isinstance(data, bytes):
        if not data.isascii() and _is_utf8(data):
            findings.append(
                Finding(
                    CODE,
                    Severity.NOTICE,
                    "the file is UTF-8, but a broker reads each byte of it as one ISO-8859-1 character",
                    file=file,
                    fix="write characters beyond ASCII as \\uXXXX",
                )
            )
        data = data.decode("iso-8859-1")
    found: dict[str, str] = {}
    for number, line in _logical_lines(data):
        key, value = _split(line)
        if "\\u" in line and _has_malformed_unicode(line):
            findings.append(
                Finding(
                    CODE,
                    Severity.ERROR,
                    f"line {number}: \\u is not followed by four hex digits",
                    file=file,
                    consequence="a broker does not start with this file",
                    fix="write a backslash as \\\\",
                    data={"line": number},
                )
            )
        name = _unescape(key)
        if name in found:
            findings.append(
                Finding(
                    CODE,
                    Severity.NOTICE,
                    f"line {number}: {name} is set a second time; the last line counts",
                    file=file,
                    data={"line": number},
                )
            )
        found[name] = _unescape(value)
    return found, findings


def encode_properties(values: Mapping[str, str], comments: tuple[str, ...] = ()) -> str:
    """Return ``values`` as a properties file in plain ASCII, one line each, after ``comments``."""
    lines = [f"# {_ascii(comment)}" for comment in comments]
    lines += [f"{_escape(key, every_blank=True)}={_escape(value)}" for key, value in values.items()]
    return "".join(line + "\n" for line in lines)


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield each key-value line with the number of its first natural line."""
    first = 0
    joined = ""
    for number, natural in enumerate(_LINE_ENDS.split(text), 1):
        line = natural.lstrip(_BLANK)
        if not joined:
            if not line or line[0] in "#!":
                continue
            first = number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            joined += line[:-1]
            continue
        yield first, joined + line
        joined = ""
    if joined:
        yield first, joined


def _split(line: str) -> tuple[str, str]:
    """Split at the first unescaped ``=``, ``:`` or blank; trailing blanks belong to the value."""
    at = 0
    while at < len(line) and line[at] not in "=:" + _BLANK:
        at += 2 if line[at] == "\\" else 1
    key, rest = line[:at], line[at:].lstrip(_BLANK)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANK)
    return key, rest


def _has_malformed_unicode(line: str) -> bool:
    return any(match[2] == "u" for match in _ESCAPE.finditer(line))


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text

    def replacement(match: re.Match[str]) -> str:
        if match[1]:
            return chr(int(match[1], 16))
        if match[2] == "u":
            return "\\u"
        return _NAMED.get(match[2] or "", match[2] or "")

    # In Java the escapes \ud83d\ude00 are two chars; in Python they must become one character.
    return _ESCAPE.sub(replacement, text).encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def _escape(text: str, *, every_blank: bool = False) -> str:
    named = {value: "\\" + letter for letter, value in _NAMED.items()} | {c: "\\" + c for c in "\\=:#!"}
    parts = [named.get(c, c) for c in text]
    if every_blank:
        parts = ["\\ " if c == " " else c for c in parts]
    elif text.startswith(" "):
        parts[0] = "\\ "
    return _ascii("".join(parts))


def _ascii(text: str) -> str:
    """Write what is not printable ASCII as ``\\uXXXX``, one per UTF-16 unit."""
    if text.isascii() and text.isprintable():
        return text
    out = []
    for c in text:
        if " " <= c <= "~":
            out.append(c)
        else:
            units = c.encode("utf-16-be", "surrogatepass")
            out += [f"\\u{units[i] << 8 | units[i + 1]:04X}" for i in range(0, len(units), 2)]
    return "".join(out)
