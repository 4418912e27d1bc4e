"""Every text that people read when something is wrong, taken from the sources: errors, hints, findings."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import rmqtool
from rmqtool import errors
from rmqtool.commands.table import COMMANDS
from rmqtool.findings import iter_codes

ROOT = Path(rmqtool.__file__).parent
GOLDEN_TEXTS = Path(__file__).parents[1] / "golden" / "texts"
_CLASSES = {
    name
    for name, value in vars(errors).items()
    if isinstance(value, type) and issubclass(value, errors.RmqtoolError) and value is not errors.RmqtoolError
}


@cache
def error_texts() -> tuple[str, ...]:
    """Return ``module: Class: message [hint]`` of every place that makes an error with words of its own, once each."""
    return tuple(sorted(set(_iter_error_texts())))


def _iter_error_texts() -> Iterator[str]:
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id not in _CLASSES:
                continue
            message = _spelled(node.args[0]) if node.args else ""
            hints = [_spelled(word.value) for word in node.keywords if word.arg == "hint"]
            hint = f"\n    next: {hints[0]}" if hints else ""
            yield f"{path.relative_to(ROOT)}: {node.func.id}: {message}{hint}\n"


@cache
def command_texts() -> tuple[str, ...]:
    """Return every text of the sources that begins as a command line of ours, once each; none is a docstring."""
    found = set()
    for path in sorted(ROOT.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant | ast.JoinedStr) and id(node) not in parts:
                text = _spelled(node)
                if re.match(rf"rmqtool (?:{'|'.join(entry.name for entry in COMMANDS)}) ", text):
                    found.add(text)
    return tuple(sorted(found))


def finding_texts() -> Iterator[str]:
    """Yield the texts of each finding: meaning, consequence, what brokers do and log, what to type."""
    for entry in iter_codes():
        said = [f"{entry.code} {entry.severity}: {entry.meaning}", f"    why: {entry.consequence}"]
        said += [f"    broker: {line}" for line in (*entry.brokers, *entry.broker_lines)]
        yield "\n".join([*said, f"    next: {entry.fix}"]) + "\n"


def write_texts() -> None:
    """Write both lists, to be read when they change."""
    (GOLDEN_TEXTS / "errors.txt").write_text("".join(error_texts()), encoding="utf-8")
    (GOLDEN_TEXTS / "findings.txt").write_text("".join(finding_texts()), encoding="utf-8")


def _spelled(node: ast.expr) -> str:
    """Return a text as it is written, with ``{}`` for what is put into it."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(_spelled(part) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    return "{" + ast.unparse(node) + "}"
