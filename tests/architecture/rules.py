"""The rules of the house: each takes a module's syntax tree and yields what breaks it.

``check`` runs all of them over a package on disk, so that a test can show each rule at work on a small made tree.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple

from rmqtool.formats.property_names import RESERVED_NAMES
from tests.architecture import house

PACKAGE = "rmqtool"
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, eq=False)
class Module:
    """One source file. ``room`` is the first name below the package."""

    path: str
    room: str
    name: str
    tree: ast.Module
    lines: int

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """Every node of the tree."""
        return list(ast.walk(self.tree))

    @cached_property
    def imports(self) -> list[Import]:
        """Every import, anywhere in it."""
        return list(_imports_in(self, self.tree, lazy=False, typing=False))

    @cached_property
    def functions(self) -> list[tuple[str, Function]]:
        """Every function with its qualified name."""
        return list(_functions_in(self.tree, ""))


class Violation(NamedTuple):
    """A broken rule. ``place`` is what an exemption names: a module, or a function or class in it."""

    rule: str
    place: str
    line: int
    message: str


class Import(NamedTuple):
    """One imported name, in full. ``lazy``: in a function body; ``typing``: for the type checker only."""

    target: str
    line: int
    lazy: bool
    typing: bool


def read_modules(root: Path) -> list[Module]:
    """Parse every source file below ``root``, the directory of the package."""
    modules = []
    for file in sorted(root.rglob("*.py")):
        path = file.relative_to(root)
        text = file.read_text(encoding="utf-8")
        parts = [PACKAGE, *path.with_suffix("").parts]
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        modules.append(Module(path.as_posix(), parts[1], name, ast.parse(text, str(file)), text.count("\n")))
    return modules


@cache
def modules_of_the_package(root: Path) -> list[Module]:
    """Parse the sources of the package once for a run of the tests: they do not change meanwhile."""
    return read_modules(root)


def _imports_in(module: Module, node: ast.AST, *, lazy: bool, typing: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (Import(alias.name, child.lineno, lazy, typing) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            source = _source_of(module, child)
            yield from (Import(f"{source}.{alias.name}", child.lineno, lazy, typing) for alias in child.names)
        elif isinstance(child, ast.Call) and _called(child) in ("import_module", "__import__"):
            for argument in child.args[:1]:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    yield Import(argument.value, child.lineno, lazy, typing)
        inner_lazy = lazy or isinstance(child, Function | ast.Lambda)
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            for part in child.body:
                yield from _imports_in(module, ast.Module([part], []), lazy=inner_lazy, typing=True)
            for part in child.orelse:
                yield from _imports_in(module, ast.Module([part], []), lazy=inner_lazy, typing=typing)
        else:
            yield from _imports_in(module, child, lazy=inner_lazy, typing=typing)


def _source_of(module: Module, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    package = module.name.split(".")
    if not module.path.endswith("__init__.py"):
        package = package[:-1]
    package = package[: len(package) - node.level + 1]
    return ".".join([*package, node.module] if node.module else package)


def _called(node: ast.Call) -> str:
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else ""


def _room_of(target: str) -> str | None:
    """The room that an import goes to; None outside the package, and for the package's own names."""
    head, _, rest = target.partition(".")
    room = rest.partition(".")[0]
    return room if head == PACKAGE and room in house.ARROWS else None


def _functions_in(node: ast.AST, prefix: str) -> Iterator[tuple[str, Function]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function):
            yield prefix + child.name, child
            yield from _functions_in(child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.ClassDef):
            yield from _functions_in(child, f"{prefix}{child.name}.")
        else:
            yield from _functions_in(child, prefix)


def check_rooms(module: Module) -> Iterator[Violation]:
    """Every module is in a room of the design."""
    if module.room not in house.ARROWS:
        yield Violation("room", module.path, 1, f"the design has no room {module.room!r}")


def check_arrows(module: Module) -> Iterator[Violation]:
    """No import points up, lazily or for types either."""
    may = house.ARROWS.get(module.room, frozenset()) | {module.room}
    only_lazily = house.LAZY_IN.get(module.room, frozenset())
    for found in module.imports:
        room = _room_of(found.target)
        if room is None:
            continue
        inside = found.lazy or found.typing
        if room not in may:
            yield Violation("arrow", module.path, found.line, f"{module.room} may not import {room}")
        elif room in only_lazily and not inside:
            message = f"{module.room} may import {room} only inside a function body"
            yield Violation("arrow", module.path, found.line, message)


def check_third_parties(module: Module) -> Iterator[Violation]:
    """typer, rich, construct and the like stay in their rooms; numpy and pyarrow at the head of few modules."""
    for found in module.imports:
        name = found.target.partition(".")[0]
        if found.target == house.EXTENSION and module.room != house.EXTENSION_ROOM:
            message = f"only {house.EXTENSION_ROOM} imports {house.EXTENSION}"
            yield Violation("third-party", module.path, found.line, message)
        rooms = house.THIRD_PARTIES.get(name)
        if rooms is not None and module.room not in rooms:
            message = f"{name} belongs to {', '.join(sorted(rooms))}"
            yield Violation("third-party", module.path, found.line, message)
        slow = name in house.SLOW_THIRD_PARTIES and module.room not in house.SLOW_ROOMS
        if slow and not (found.lazy or found.typing):
            yield Violation("third-party", module.path, found.line, f"{name} only inside a function body")


def check_budgets(module: Module) -> Iterator[Violation]:
    """Modules, functions, command bodies and parameter lists stay small."""
    if module.lines > house.MODULE_LINES:
        yield Violation("module-lines", module.path, 1, f"{module.lines} lines, {house.MODULE_LINES} are allowed")
    in_commands = module.room == "commands"
    for name, function in module.functions:
        place = f"{module.path}::{name}"
        first = function.body[1:2] if ast.get_docstring(function, clean=False) is not None else function.body[:1]
        last = function.end_lineno or function.lineno
        body = last - first[0].lineno + 1 if first else 0
        whole = last - function.lineno + 1
        if in_commands and body > house.COMMAND_BODY_LINES:
            message = f"a body of {body} lines, {house.COMMAND_BODY_LINES} are allowed in commands"
            yield Violation("command-body", place, function.lineno, message)
        elif not in_commands and whole > house.FUNCTION_LINES:
            message = f"{whole} lines, {house.FUNCTION_LINES} are allowed"
            yield Violation("function-lines", place, function.lineno, message)
        given = function.args
        names = [argument.arg for argument in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
        count = len([name for name in names if name not in ("self", "cls")])
        count += (given.vararg is not None) + (given.kwarg is not None)
        if not in_commands and count > house.PARAMETERS and not _only_keeps(name, function):
            message = f"{count} parameters, {house.PARAMETERS} are allowed"
            yield Violation("parameters", place, function.lineno, message)


def _only_keeps(name: str, function: Function) -> bool:
    """Whether it is the constructor of a value, which has a parameter for each of its members and does nothing else."""
    return name.endswith(".__init__") and all(
        isinstance(step, ast.Assign) and isinstance(step.targets[0], ast.Attribute) and isinstance(step.value, ast.Name)
        for step in function.body
    )


def check_commands(module: Module) -> Iterator[Violation]:
    """A command's file is short. It calls a function of api, and none of its functions calls two of them."""
    if module.room != "commands" or Path(module.path).stem in house.SHARED_BY_COMMANDS:
        return
    if module.lines > house.COMMAND_LINES:
        message = f"{module.lines} lines, {house.COMMAND_LINES} are allowed for a command"
        yield Violation("command-lines", module.path, 1, message)
    verbs = _verbs(module)
    called_at_all: set[str] = set()
    for name, function in module.functions:
        called = {verbs[word] for node in ast.walk(function) for word in _words_called(node) if word in verbs}
        called_at_all |= called
        if len(called) > 1:
            message = f"it calls {', '.join(sorted(called))}: what they do together is a function of api"
            yield Violation("one-verb", f"{module.path}::{name}", function.lineno, message)
    is_command = Path(module.path).stem in {name for name, _ in module.functions}
    if is_command and not called_at_all:
        yield Violation(
            "no-verb", module.path, 1, "it calls no function of api: what it does, a program cannot ask for"
        )


def _verbs(module: Module) -> dict[str, str]:
    """Return the functions and modules of api that a module imports, by the names that it gives them."""
    return {
        alias.asname or alias.name: alias.name
        for node in module.nodes
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if _room_of(f"{_source_of(module, node)}.{alias.name}") == "api" and alias.name.islower()
    }


def _words_called(node: ast.AST) -> Iterator[str]:
    """Yield the name that a node calls, and the name whose attribute it calls."""
    if isinstance(node, ast.Call):
        part: ast.expr = node.func
        while isinstance(part, ast.Attribute):
            part = part.value
        if isinstance(part, ast.Name):
            yield part.id


def check_names(module: Module) -> Iterator[Violation]:
    """No name that could hold anything."""
    named = [(module.path, 1, module.path.removesuffix(".py"))]
    for node in module.nodes:
        if isinstance(node, ast.ClassDef):
            named.append((f"{module.path}::{node.name}", node.lineno, node.name))
    named += [(f"{module.path}::{name}", node.lineno, node.name) for name, node in module.functions]
    for place, line, name in named:
        words = {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)}
        for word in sorted(words & house.BANNED_WORDS):
            yield Violation("name", place, line, f"{word!r} says nothing")


# Functions that open, map, read or write a file by name.
OPENERS = re.compile(
    "open|fdopen|open_code|mmap|memmap|fromfile|tofile|memory_map|create_memory_map|OSFile"
    "|(read|write)_(bytes|text|table)|ParquetFile|ParquetWriter"
)


def check_files(module: Module) -> Iterator[Violation]:
    """formats, columns and remoting get their bytes from others."""
    if module.room not in house.WITHOUT_FILES:
        return
    for node in module.nodes:
        if isinstance(node, ast.Call) and OPENERS.fullmatch(_called(node)):
            yield Violation("opens-file", module.path, node.lineno, f"{module.room} opens no file: {_called(node)}")


STRUCT_FORMAT = re.compile(r"[@=<>!](\d*[xcbBhHiIlLqQnNefdspP?] ?)+")
DTYPE = re.compile(r"[<>=|][biufcSUVM]\d+")


def check_layouts(module: Module) -> Iterator[Violation]:
    """How bytes are laid out is spelled in formats and remoting, and nowhere else."""
    if module.room in house.LAYOUT_ROOMS:
        return
    for found in module.imports:
        if found.target.partition(".")[0] == "struct":
            yield Violation("layout", module.path, found.line, "struct belongs to formats")
    presentation = {
        id(part)
        for node in module.nodes
        if isinstance(node, ast.FormattedValue) and node.format_spec is not None
        for part in ast.walk(node.format_spec)
    }
    for node in module.nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in presentation:
            if STRUCT_FORMAT.fullmatch(node.value):
                yield Violation("layout", module.path, node.lineno, f"a struct format: {node.value!r}")
            elif DTYPE.fullmatch(node.value):
                yield Violation("layout", module.path, node.lineno, f"a dtype of stored bytes: {node.value!r}")
        elif isinstance(node, ast.Call):
            yield from _layout_calls(module, node)


def _layout_calls(module: Module, node: ast.Call) -> Iterator[Violation]:
    if _called(node) in ("from_bytes", "to_bytes"):
        yield Violation("layout", module.path, node.lineno, f"bytes of a number spelled by {_called(node)}")
    if _called(node) == "dtype" and any(isinstance(argument, ast.List | ast.Dict) for argument in node.args):
        yield Violation("layout", module.path, node.lineno, "a structured dtype spelled out")


def check_property_names(module: Module) -> Iterator[Violation]:
    """A name that RocketMQ gives a property is spelled once."""
    if module.path == house.PROPERTY_NAMES:
        return
    for node in module.nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
            text = node.value if isinstance(node.value, str) else node.value.decode("latin-1")
            if text in RESERVED_NAMES:
                yield Violation(
                    "property-name", module.path, node.lineno, f"{text!r} is spelled in {house.PROPERTY_NAMES}"
                )


def check_output(module: Module) -> Iterator[Violation]:
    """Only render writes to the terminal; an exit status comes from the table of errors."""
    for node in module.nodes:
        if not isinstance(node, ast.Call):
            continue
        if module.room != "render" and isinstance(node.func, ast.Name) and node.func.id == "print":
            yield Violation("print", module.path, node.lineno, "only render prints")
        given = [*node.args[:1], *(keyword.value for keyword in node.keywords if keyword.arg in ("code", "status"))]
        if _called(node) in ("exit", "_exit", "Exit", "SystemExit") and module.room != "errors":
            for value in given:
                if isinstance(value, ast.Constant) and type(value.value) is int:
                    message = f"exit status {value.value} spelled as a number"
                    yield Violation("exit-status", module.path, node.lineno, message)


RULES: tuple[Callable[[Module], Iterator[Violation]], ...] = (
    check_rooms,
    check_arrows,
    check_third_parties,
    check_budgets,
    check_commands,
    check_names,
    check_files,
    check_layouts,
    check_property_names,
    check_output,
)


def check(modules: list[Module], exemptions: Mapping[tuple[str, str], str] = house.EXEMPTIONS) -> list[Violation]:
    """Return everything that breaks a rule in ``modules``, and every exemption that nothing needs."""
    found = [violation for module in modules for rule in RULES for violation in rule(module)]
    needed = {(violation.rule, violation.place) for violation in found}
    stale = [
        Violation("exemption", place, 0, f"nothing breaks {rule!r} here any more")
        for rule, place in exemptions
        if (rule, place) not in needed
    ]
    return [violation for violation in found if (violation.rule, violation.place) not in exemptions] + stale
