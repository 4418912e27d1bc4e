"""Which names of the package production code reaches, starting at what users start with.

A name is reached when code that is reached mentions it. Functions and classes at the head of a module are followed by
module; a method is reached when its class is and any reached code asks an object for an attribute of that name.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tests.architecture.rules import PACKAGE, Function, Module

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


# Bases whose methods need no caller.
PLAIN_BASES = frozenset(
    {"NamedTuple", "Protocol", "Enum", "IntEnum", "StrEnum", "IntFlag", "TypedDict", "Generic", "Exception"}
)


class Symbol(NamedTuple):
    """A function or class at the head of a module, or a method: ``name`` is then ``Class.method``."""

    module: str
    name: str


class _Mentions(NamedTuple):
    """The mentions in a piece of code: names as they are spelled there, and attributes of any object."""

    names: frozenset[str]
    attributes: frozenset[str]


class _Code:
    """One module: its definitions, what its names mean, and the code that runs when it is imported."""

    def __init__(self, module: Module, known: frozenset[str]) -> None:
        self.name = module.name
        self.definitions: dict[str, Definition] = {}
        self.values: dict[str, ast.stmt] = {}
        self.means: dict[str, set[str]] = defaultdict(set)
        self.start: list[ast.stmt] = []
        self._read(module.tree.body)
        for node in module.nodes:
            if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == PACKAGE:
                for alias in node.names:
                    self.means[alias.asname or alias.name].add(f"{node.module}.{alias.name}")
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.name in known:
                        self.means[alias.asname or alias.name].add(alias.name)

    def _read(self, body: Iterable[ast.stmt]) -> None:
        for node in body:
            if isinstance(node, Definition):
                self.definitions[node.name] = node
            elif isinstance(node, ast.Assign | ast.AnnAssign) and _assigned(node):
                for name in _assigned(node):
                    self.values[name] = node
            elif isinstance(node, ast.If | ast.Try):
                self._read([*node.body, *node.orelse])
            elif not isinstance(node, ast.Import | ast.ImportFrom):
                self.start.append(node)


def _assigned(node: ast.Assign | ast.AnnAssign) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)]


def _mentions(nodes: Iterable[ast.AST]) -> _Mentions:
    names: set[str] = set()
    attributes: set[str] = set()
    for top in nodes:
        for node in ast.walk(top):
            if isinstance(node, ast.Name):
                names.add(node.id)
            elif isinstance(node, ast.Attribute):
                attributes.add(node.attr)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
                attributes.add(node.value)  # getattr, match_args, tables of names
            elif isinstance(node, ast.keyword) and node.arg:
                attributes.add(node.arg)
    return _Mentions(frozenset(names), frozenset(attributes))


def _inner(definition: Definition) -> Iterator[tuple[str, Function]]:
    if isinstance(definition, ast.ClassDef):
        for node in definition.body:
            if isinstance(node, Function):
                yield node.name, node


def _head(definition: Definition) -> list[ast.AST]:
    """Return what runs with a definition itself: of a class all but its methods' bodies."""
    if not isinstance(definition, ast.ClassDef):
        return [definition]
    rest: list[ast.AST] = [*definition.bases, *definition.keywords, *definition.decorator_list]
    rest += [node for node in definition.body if not isinstance(node, Function)]
    return rest


class Reach:
    """The symbols reached from the ``roots``: names of modules that users start, or ``module:symbol``."""

    def __init__(self, modules: Iterable[Module], roots: Iterable[str]) -> None:
        listed = list(modules)
        known = frozenset(module.name for module in listed)
        self._code = {module.name: _Code(module, known) for module in listed}
        self.reached: set[Symbol] = set()
        self._attributes: set[str] = set()
        self._waiting: dict[str, list[tuple[str, str, Function]]] = defaultdict(list)
        self._imported: set[str] = set()
        self._todo: list[tuple[str, list[ast.AST]]] = []
        for root in roots:
            module, _, symbol = root.partition(":")
            self._import(module)
            for name in [symbol] if symbol else list(self._code[module].definitions):
                self._reach(module, name)
        while self._todo:
            self._follow(*self._todo.pop())

    def unreached(self) -> Iterator[Symbol]:
        """Yield the public functions, classes and methods that nothing leads to."""
        for code in self._code.values():
            for name, definition in code.definitions.items():
                if name.startswith("_"):
                    continue
                if Symbol(code.name, name) not in self.reached:
                    yield Symbol(code.name, name)
                    continue
                for method, _ in _inner(definition):
                    if not method.startswith("_") and Symbol(code.name, f"{name}.{method}") not in self.reached:
                        yield Symbol(code.name, f"{name}.{method}")

    def _import(self, module: str) -> None:
        if module in self._imported or module not in self._code:
            return
        self._imported.add(module)
        self._todo.append((module, list(self._code[module].start)))

    def _reach(self, module: str, name: str) -> None:
        code = self._code.get(module)
        if code is None:
            return
        self._import(module)
        symbol = Symbol(module, name)
        if symbol in self.reached or not (name in code.definitions or name in code.values or name in code.means):
            return
        self.reached.add(symbol)
        if name in code.definitions:
            definition = code.definitions[name]
            self._todo.append((module, _head(definition)))
            for method, function in _inner(definition):
                # Called by Python, by a library's base class, or by reached code.
                if method.startswith("_") or method in self._attributes or self._overrides(code, definition):
                    self._reach_method(module, name, function)
                else:
                    self._waiting[method].append((module, name, function))
        if name in code.values:
            self._todo.append((module, [code.values[name]]))
        for target in code.means.get(name, ()):
            self._reach_meaning(target)

    def _overrides(self, code: _Code, definition: Definition) -> bool:
        """Return whether a class has a base that is neither this package's nor one of Python's own value classes."""
        if not isinstance(definition, ast.ClassDef):
            return False
        for base in definition.bases:
            name = ast.unparse(base).partition("[")[0]
            if name.rpartition(".")[2] in PLAIN_BASES or name in code.definitions:
                continue
            if not any(target.startswith(f"{PACKAGE}.") for target in code.means.get(name.partition(".")[0], ())):
                return True
        return False

    def _reach_method(self, module: str, name: str, function: Function) -> None:
        self.reached.add(Symbol(module, f"{name}.{function.name}"))
        self._todo.append((module, [function]))

    def _reach_meaning(self, target: str) -> None:
        if target in self._code:
            self._import(target)
            return
        module, _, name = target.rpartition(".")
        self._reach(module, name)

    def _follow(self, module: str, nodes: list[ast.AST]) -> None:
        code = self._code[module]
        said = _mentions(nodes)
        for name in said.names:
            self._reach(module, name)
        # An attribute may be a name of an imported module, a method of a reached class, or both.
        for target in {target for name in said.names for target in code.means.get(name, ())} & self._code.keys():
            for attribute in said.attributes:
                self._reach(target, attribute)
        for attribute in said.attributes - self._attributes:
            self._attributes.add(attribute)
            for owner, owner_name, function in self._waiting.pop(attribute, []):
                self._reach_method(owner, owner_name, function)
