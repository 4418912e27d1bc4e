"""Measures that no rule for a single module can see: how many modules there are, their importers, their names.

Each measure returns what it counts, by name, so that a failing test names what is new. Ceilings may only fall.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable

from tests.architecture import house
from tests.architecture.rules import PACKAGE, Module

# English words that end in "ing" and are nouns of this field.
NOUNS_IN_ING = frozenset({"finding", "string", "ring", "listing", "setting", "settings", "remoting", "testing"})


def importers(modules: Iterable[Module], *, through_rooms: bool = False) -> dict[str, set[str]]:
    """Return for every module the modules that import it, or a name of it.

    ``through_rooms``: what a room's ``__init__`` exports is imported by those that import it from there.
    """
    listed = list(modules)
    names = {module.name for module in listed}
    rooms = [module for module in listed if through_rooms and module.path.endswith("__init__.py")]
    exported = {
        f"{room.name}.{wanted.target.rpartition('.')[2]}": wanted.target.rpartition(".")[0]
        for room in rooms
        for wanted in room.imports
    }
    found: dict[str, set[str]] = defaultdict(set)
    for module in listed:
        for wanted in module.imports if module not in rooms else ():
            source = exported.get(wanted.target, wanted.target)
            target = source if source in names else source.rpartition(".")[0]
            if target in names and target != module.name:
                found[target].add(module.name)
    return found


def single_importers(modules: Iterable[Module]) -> list[str]:
    """Return the modules that exactly one other imports: parts of it, unless they are a noun of their own.

    A module that only a verb of api or a command imports does not count: each verb has one module, so everything that
    serves one verb has one importer. Nor does a module in a table of requests: each kind of request has one.
    """
    listed = list(modules)
    rooms = {module.name: module.room for module in listed}
    found = importers(listed, through_rooms=True)
    return sorted(
        module.path
        for module in listed
        if module.room not in house.ENTRY_ROOMS
        and not module.path.endswith("__init__.py")
        and len(found[module.name]) == 1
        and rooms[next(iter(found[module.name]))] not in house.ENTRY_ROOMS
        and next(iter(found[module.name])) not in house.TABLES
    )


def small_modules(modules: Iterable[Module]) -> list[str]:
    """Return the modules that are short and have one importer at most."""
    listed = list(modules)
    found = importers(listed, through_rooms=True)
    return sorted(
        module.path
        for module in listed
        if module.lines < house.SMALL_MODULE_LINES
        and not module.path.endswith("__init__.py")
        and len(found[module.name]) < 2
        and module.room not in house.ENTRY_ROOMS
    )


def gerunds(modules: Iterable[Module]) -> list[str]:
    """Return the modules whose name says what is done instead of what there is."""
    return sorted(
        module.path
        for module in modules
        for word in re.split(r"[_/]", module.path.removesuffix(".py"))
        if word.endswith("ing") and word not in NOUNS_IN_ING
    )


def shared_names(modules: Iterable[Module]) -> dict[str, list[str]]:
    """Return the base names that modules of several rooms have."""
    rooms: dict[str, set[str]] = defaultdict(set)
    for module in modules:
        base = module.path.rpartition("/")[2].removesuffix(".py")
        if base != "__init__" and module.room not in house.ENTRY_ROOMS:
            rooms[base].add(module.path.partition("/")[0])
    return {base: sorted(where) for base, where in sorted(rooms.items()) if len(where) > 1}


def fan_out(modules: Iterable[Module]) -> dict[str, int]:
    """Return how many modules of the package each module imports."""
    counts: dict[str, int] = defaultdict(int)
    listed = list(modules)
    paths = {module.name: module.path for module in listed}
    for module in listed:
        counts[module.path] = 0
    for who in importers(listed).values():
        for name in who:
            counts[paths[name]] += 1
    return counts


def callable_packages(modules: Iterable[Module]) -> list[str]:
    """Return the modules that change the class of a module, or ask ``sys.modules`` which way to go."""
    found = []
    for module in modules:
        for node in module.nodes:
            is_class = isinstance(node, ast.Attribute) and node.attr == "__class__" and isinstance(node.ctx, ast.Store)
            asks = isinstance(node, ast.Compare) and any(
                isinstance(part, ast.Attribute) and part.attr == "modules" for part in node.comparators
            )
            if is_class or asks:
                found.append(f"{PACKAGE}/{module.path}:{node.lineno}")
    return sorted(found)
