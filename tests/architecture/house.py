"""The house as data: which room may import which, who may use what, how large things may grow.

An exemption stands here with its reason, by rule and place; one that is no longer needed is an error too.
"""

from __future__ import annotations

from typing import NamedTuple

FOUNDATION = frozenset({"errors", "findings", "config", "progress", "times", "kernel"})

# Errors are raised where they are known, and the exit status belongs to the class: every room may import them.
ARROWS: dict[str, frozenset[str]] = {
    room: frozenset(may.split()) | {"errors"}
    for room, may in {
        "formats": "errors",
        "filters": "formats errors",
        "storage": "formats config findings errors",
        "bulk": "formats filters errors kernel",
        "scan": "storage bulk filters formats findings progress kernel",
        "engine": "storage filters formats config findings kernel",
        "broker": "engine filters formats config",
        # Beyond the design's list: a check of a large store is long work, and reports to whoever watches.
        "inspection": "scan storage filters formats config findings progress",
        "upstream": "storage formats config findings",
        # The wire: opens no socket and knows no store, so that client and server speak by the same code.
        "remoting": "formats",
        "repair": "engine inspection upstream scan storage formats findings",
        "export": "scan bulk filters config",
        "spark": "export scan bulk engine config",
        "render": "findings errors",
    }.items()
}
ARROWS |= dict.fromkeys(FOUNDATION, FOUNDATION)
ARROWS["commands"] = frozenset(ARROWS)
ARROWS["library"] = frozenset(ARROWS) - {"commands", "render"}
ARROWS["commands"] |= {"library"}
ARROWS["cli"] = frozenset({"commands", "errors", "kernel"})
ARROWS["__main__"] = frozenset({"cli", "commands"})
ARROWS["__init__"] = frozenset({"errors", "findings", "library"})

# Only inside a function body.
# storage: the end of a long log is found by columns, and no put of one message may load them.
LAZY_ARROWS: dict[str, frozenset[str]] = {"engine": frozenset({"bulk"}), "storage": frozenset({"bulk"})}
HEAVY_ROOMS = frozenset({"bulk", "scan", "export", "spark"})
LAZY_IN: dict[str, frozenset[str]] = {"commands": HEAVY_ROOMS, "library": HEAVY_ROOMS}

# The compiled kernel: who wants it asks the module of this name for it.
EXTENSION, EXTENSION_ROOM = "rmqtool._native", "kernel"
# Third parties: the rooms that may import them at all.
THIRD_PARTIES: dict[str, frozenset[str]] = {
    "typer": frozenset({"cli", "commands"}),
    "click": frozenset({"cli", "commands"}),
    "rich": frozenset({"render"}),
    "tabulate": frozenset({"render"}),
    "construct": frozenset({"formats"}),
    "crcmod": frozenset({"formats"}),
    "pyspark": frozenset({"spark"}),
}
# Anybody may import these inside a function body; at the head of a module only these rooms.
SLOW_THIRD_PARTIES = frozenset({"numpy", "pyarrow"})
SLOW_ROOMS = frozenset({"bulk", "scan", "export"})

WITHOUT_FILES = frozenset({"formats", "bulk", "remoting"})
# What is stored is laid out in formats, what travels between clients and brokers in remoting.
LAYOUT_ROOMS = frozenset({"formats", "remoting"})

MODULE_LINES = 500
FUNCTION_LINES = 70
COMMAND_BODY_LINES = 25
PARAMETERS = 7

BANNED_WORDS = frozenset({"util", "utils", "helper", "helpers", "manager", "managers", "misc", "common"})


class Imports(NamedTuple):
    """Modules that must load without certain others: a prefix ending in a dot stands for all below it."""

    modules: tuple[str, ...]
    load_none_of: frozenset[str]


LIGHT = (
    Imports(
        ("rmqtool", "rmqtool.cli", "rmqtool.commands.", "rmqtool.library"),
        SLOW_THIRD_PARTIES | {"pyspark", "construct"},
    ),
    Imports(("rmqtool.engine.", "rmqtool.broker."), SLOW_THIRD_PARTIES | {"pyspark"}),
    Imports(("rmqtool.remoting.",), SLOW_THIRD_PARTIES | {"pyspark", "construct", "asyncio", "socket"}),
)

EXEMPTIONS: dict[tuple[str, str], str] = {
    ("module-lines", "findings/codes.py"): "a table: the registry of finding codes, a few lines of text for each",
    ("module-lines", "formats/layouts.py"): "tables only, written by formats/derive.py",
    (
        "opens-file",
        "formats/derive.py",
    ): "writes formats/layouts.py and native/layouts.h when a developer asks; nothing imports it",
}
