"""The page of findings, made from their registry."""

from __future__ import annotations

from collections.abc import Iterator

from rmqtool.commands.table import COMMANDS
from rmqtool.findings import FAMILIES, CodeEntry, Severity, iter_codes
from tools.manual.command_pages import NAME, see_also
from tools.manual.roff import Items, Page, Section, Text

_INTRODUCTION = (
    "A finding says what is wrong or odd, in which file and at which offset, what follows from it, and what to type "
    "next. `rmqtool check` and `rmqtool info` report them; the other commands name the same codes where they step over "
    "damage. Codes are never renamed.",
    "The word behind a code is its severity. `error`: data is damaged or lost, or a broker would not start. "
    "`warning`: something needs you, or a broker will "
    "change the store. `notice`: odd, and harmless as it is. Whoever finds a thing may know better than its code: the "
    "severity of a finding can differ from the one listed here.",
    "The broker's lines are as they stand in its log; {} stands for what it fills in. The fix is a command where one "
    "helps. STORE is the store.",
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
