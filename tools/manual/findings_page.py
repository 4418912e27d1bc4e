"""The page of findings, made from their registry."""

from __future__ import annotations

from collections.abc import Iterator

from rmqtool.commands.table import COMMANDS
from rmqtool.findings import FAMILIES, CodeEntry, Severity, iter_codes
from tools.manual.command_pages import NAME, see_also
from tools.manual.roff import Items, Page, Section, Text

_INTRODUCTION = (
    "A finding is one problem: the file and offset, what it means for messages, what a broker does about it, and what "
    "to type. `rmqtool check` and `rmqtool info` report findings. Other commands use the same codes for damage that "
    "they skip. Codes are never renamed. `rmqtool man` CODE shows one of them.",
    "After the code is its severity. `error`: data is damaged or lost, or a broker would not start. `warning`: "
    "it can cause harm, or a broker will change the store. `notice`: unusual but harmless. A finding can have another "
    "severity than the one listed here, if more is known about it.",
    "Lines of a broker are quoted from its log; {} is a value that it fills in. The fix is a command if one helps. "
    "STORE is the store.",
)


def findings_page() -> Page:
    """Return the page of every code."""
    sections = [Section("Description", tuple(map(Text, _INTRODUCTION)))]
    for family, what in FAMILIES.items():
        sections.append(Section(f"{family}: {what}", ()))
        sections += [
            Section(f"{entry.code}, {entry.severity}", (Text(entry.meaning), Items(tuple(_items(entry)))), inner=True)
            for entry in iter_codes(f"{family}-")
        ]
    sections.append(
        Section("See also", (see_also(f"{NAME}-check.1", f"{NAME}-recover.1", f"{NAME}-recipes.7", f"{NAME}-store.5"),))
    )
    brief = "what findings mean, what brokers do, the fix"
    return Page(f"{NAME}-findings", 7, brief, tuple(sections))


def _items(entry: CodeEntry) -> Iterator[tuple[str, tuple[str, ...]]]:
    if entry.consequence:
        yield "Consequence", (entry.consequence,)
    if entry.broker_lines:
        yield "A broker says", entry.broker_lines
    if entry.brokers:
        yield "A broker does", entry.brokers
    if entry.fix:
        yield "Fix", (_fix(entry.fix.format(store="STORE")),)
    elif entry.severity is Severity.NOTICE:
        yield "Fix", ("None is needed.",)
    else:
        yield "Fix", ("By hand: no command does it.",)


def _fix(text: str) -> str:
    words = text.split()
    if words[0] != NAME:
        return text[:1].upper() + text[1:] + "."
    known = words[1] in {entry.name for entry in COMMANDS}
    return f"`{text}`" if known else f"`{text}` (not in this version yet)"
