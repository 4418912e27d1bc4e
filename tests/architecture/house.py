"""The house as data: which room may import which, who may use what, how large things may grow.

An exemption is here with its reason, by rule and place; one that is no longer needed is an error too.
"""

from __future__ import annotations

from typing import NamedTuple

# The rooms from the ground up: a room may import those before it in this list, and none after it.
ROOMS = (
    "errors",
    "progress",
    "times",
    "kernel",
    "secrets",
    "findings",
    "formats",
    "config",
    "columns",
    "files",
    "store",
    "filters",
    "log",
    "audit",
    "engine",
    "remoting",
    "broker",
    "upstream",
    "look",
    "checks",
    "repairs",
    "client",
    "replica",
    "server",
    "exports",
    "spark",
    "render",
    "api",
    "browse",
    "testing",
    "polars",
    "commands",
    "cli",
    "__main__",
)
# Imports that the order allows and a reason forbids: room -> (other rooms, the reason).
FORBIDDEN: dict[str, tuple[frozenset[str], str]] = {
    "render": (
        frozenset(ROOMS) - {"errors", "findings", "progress"},
        "render turns values into text and calls nobody: what is shown is decided before it is spelled",
    ),
    "remoting": (
        frozenset(ROOMS) - {"errors", "formats", "kernel", "secrets"},
        "the wire opens no socket and knows no store, so that client and server speak by the same code",
    ),
    "commands": (
        frozenset(ROOMS) - {"errors", "findings", "kernel", "progress", "times", "api", "render", "browse"},
        "a command parses, calls one function of api, shows what it returns: what it knows, a program can ask too;"
        " browse is such a screen",
    ),
    "upstream": (
        frozenset({"engine", "broker", "audit"}),
        "the model of another program shares the formats and columns with us, never our rules",
    ),
}


def _arrows() -> dict[str, frozenset[str]]:
    arrows = {room: frozenset(ROOMS[:place]) for place, room in enumerate(ROOMS)}
    for room, (others, _) in FORBIDDEN.items():
        arrows[room] -= others
    return arrows | {"__init__": frozenset({"errors", "findings", "api"})}


ARROWS = _arrows()

# Rooms that load numpy or pyarrow. Rooms that start fast import them inside a function body.
HEAVY_ROOMS = frozenset({"columns", "exports", "spark"})
LAZY_IN: dict[str, frozenset[str]] = dict.fromkeys(("engine", "broker", "api"), HEAVY_ROOMS)

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
    "textual": frozenset({"browse"}),
    "polars": frozenset({"polars"}),
}
# Anybody may import these inside a function body; at the head of a module only these rooms.
SLOW_THIRD_PARTIES = frozenset({"numpy", "pyarrow"})
SLOW_ROOMS = frozenset({"columns", "log", "audit", "look", "client", "exports"})

WITHOUT_FILES = frozenset({"formats", "columns", "remoting"})
# Stored bytes are laid out in formats, bytes between clients and brokers in remoting, those of replication in replica.
LAYOUT_ROOMS = frozenset({"formats", "remoting", "replica"})

PROPERTY_NAMES = "formats/property_names.py"

MODULE_LINES = 700
FUNCTION_LINES = 70
COMMAND_BODY_LINES = 25
COMMAND_LINES = 120
# Modules that commands share; every other file of the room is one command.
SHARED_BY_COMMANDS = frozenset(
    {"__init__", "completion", "completion_table", "options", "store_names", "store_word", "table"}
)
PARAMETERS = 7

BANNED_WORDS = frozenset({"util", "utils", "helper", "helpers", "manager", "managers", "misc", "common"})


class Imports(NamedTuple):
    """Modules that must load without certain others. A prefix that ends in a dot means all modules below it."""

    modules: tuple[str, ...]
    load_none_of: frozenset[str]


LIGHT = (
    Imports(
        ("rmqtool", "rmqtool.cli", "rmqtool.commands.", "rmqtool.api."),
        SLOW_THIRD_PARTIES | {"pyspark", "construct", "asyncio"},
    ),
    Imports(("rmqtool.engine.", "rmqtool.broker."), SLOW_THIRD_PARTIES | {"pyspark"}),
    Imports(("rmqtool.remoting.",), SLOW_THIRD_PARTIES | {"pyspark", "construct", "asyncio", "socket"}),
    # Frames and commands alone: `typing` would take a third of the time that importing them may take.
    Imports(("rmqtool.remoting",), frozenset({"typing", "contextlib"})),
)

EXEMPTIONS: dict[tuple[str, str], str] = {
    ("property-name", "render/messages.py"): "render imports nothing that knows what a message is",
    ("property-name", "broker/consumer/programs.py"): "names of environment variables that a program is given",
    ("no-verb", "commands/demo.py"): "the demo runs other commands",
    ("no-verb", "commands/man.py"): "the pages are files; a program reads them by itself",
    ("module-lines", "formats/layouts.py"): "tables only, written by tools/derive.py",
}

# The entry points: the commands, the functions that rmqtool exports, the fixture for tests, and the source that Spark
# looks for.
ENTRY_ROOMS = frozenset({"cli", "__main__", "__init__", "commands", "api", "testing", "polars"})
ENTRY_POINTS = ("rmqtool.spark.source",)

# Modules that list others, one for each kind of request.
TABLES = frozenset({"rmqtool.broker.processors.by_code"})

# Ceilings of what only grows by itself. They may only fall.
SINGLE_IMPORTERS = 32
SMALL_MODULE_LINES = 80
SMALL_MODULES = 6
GERUNDS = 3
SHARED_NAMES = 32
FAN_OUT = 20
WIDE_MODULES = 15
ASKS_WHAT_IS_LOADED = 0
UNREACHED = 0
# Files of the package that each journey of docs/tour.md crosses; "put" is one more message of an open producer.
JOURNEYS: dict[str, int] = {"produce": 64, "put": 13, "cat": 43, "repair": 91, "spark": 42}

# Code that nothing calls yet, by the module's name or its beginning, and what will call it.
CALLED_LATER: dict[str, str] = {
    "remoting.": "the wire protocol: server and client will speak it",
    "browse.panes:": "what textual calls: actions of keys, and events",
    "client.": "what asyncio calls, and the groups that commands will change at live brokers",
    "api.async_cluster:AsyncProducer.": "what programs await of a producer beside send",
    "api.cluster:Producer.": "what programs call of a producer beside send",
    "broker.consumer.process_queue:": "flow control and expiry of messages that a client pulled",
    "broker.consumer.rebalance:": "allocation strategies that a client with other members chooses from",
    "broker.consumer.subscription:": "consumeTimestamp, where a client's new group starts",
    "broker.offsets:": "requests of clients and mqadmin about offsets, which serve answers",
    "engine.flush:GroupCommit": "the wait of many producers for one flush, which serve's connections share",
    "engine.reader:StoreView": "a store that serve --read-only answers from",
    "engine.reader:open_queues": "the queues of such a store, opened for reading",
    "formats.layouts:Tiered": "layouts of tiered storage in the manual only: codas, index files that are not sealed",
    "formats.topics:split_namespace": "a server of clients with a namespace tells it from the name",
    "replica.chunks:Answer": "a master answers the handshake of a slave",
    "replica.chunks:encode_answer": "serve as a master of a controller's group",
    "replica.chunks:encode_transfer": "serve as a master of a controller's group",
    "formats.control_texts:encode_dledger_state": "a copy of a DLedger node as a group of its own",
    "formats.control_texts:encode_properties_file": "a copy of a DLedger node as a group of its own",
    "formats.bloom:": "a server keeps the bits of groups that subscribe by SQL92, in consumerFilter.json",
}

# Of what users read: words and subordinate clauses per sentence, and the share of sentences of more than 30 words.
READABILITY: dict[str, tuple[float, float, float]] = {
    "help": (8.5, 0.16, 0.01),
    "findings": (13.0, 0.30, 0.005),
    "messages": (7.8, 0.17, 0.005),
}
# Documents: banned constructions that are left, and words per sentence.
DOCUMENTS: dict[str, tuple[int, float]] = {
    "README.md": (0, 10.0),
    "CONTRIBUTING.md": (0, 15.0),
    "CHANGELOG.md": (0, 15.0),
    "docs/checks.md": (0, 8.0),
    "docs/contract.md": (0, 12.0),
    "docs/library.md": (0, 10.0),
    "docs/spark.md": (0, 12.5),
    # Its lists have the first sentences of modules, without full stops.
    "docs/tour.md": (0, 20.0),
}
