"""Damage to stores, as the catalogues of ``fixtures/recovery-*`` describe it: read it, do it.

A mutation is a list of operations on files below a store's root, and a word on the ``abort`` file. Where the catalogue
says what stood there before, or stands there after, that is checked: damage to the wrong bytes proves nothing.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.stores import read_lines

Operation = Mapping[str, Any]


@dataclass(frozen=True)
class Mutation:
    """One entry of a catalogue. ``abort`` is None where the case is run both with and without the file."""

    base: str
    name: str
    group: str
    description: str
    operations: tuple[Operation, ...]
    abort: bool | None
    keep_abort: bool

    @property
    def key(self) -> str:
        """The first two parts of an outcome's id: names are unique within a base only."""
        return f"{self.base}/{self.name}"


def read_catalogue(folder: str, file: str = "mutations.jsonl") -> dict[str, Mutation]:
    """Return the mutations of e.g. ``recovery-5.3.3`` by their key."""
    mutations = (
        Mutation(
            entry["base"],
            entry["name"],
            entry["group"],
            entry["desc"],
            tuple(entry["ops"]),
            entry.get("abort"),
            entry.get("keep_abort", False),
        )
        for entry in read_lines(f"{folder}/{file}")
    )
    return {mutation.key: mutation for mutation in mutations}


def apply_mutation(root: Path, mutation: Mutation, *, abort: bool) -> None:
    """Damage the store at ``root`` and make its abort file present or absent."""
    for operation in mutation.operations:
        apply_operation(root, operation)
    if not mutation.keep_abort:
        set_abort(root, abort)


def set_abort(root: Path, present: bool) -> None:
    """Make the abort file present or absent; one that is there already keeps its content."""
    path = root / "abort"
    if not present:
        if path.exists():
            _delete(path)
    elif not path.exists():
        path.touch()


def apply_operation(root: Path, operation: Operation) -> None:
    """Do one operation; offsets lie within the file it names."""
    OPERATIONS[operation["op"]](root, root / operation["path"], operation)


def _overwrite(path: Path, operation: Operation, data: bytes) -> None:
    offset = operation["offset"]
    before = bytes.fromhex(operation.get("before", ""))
    with path.open("r+b") as file:
        found = os.pread(file.fileno(), len(before), offset)
        assert found == before, f"{path} at {offset}: expected {before.hex()}, found {found.hex()}"
        os.pwrite(file.fileno(), data, offset)


def _flip(_root: Path, path: Path, operation: Operation) -> None:
    with path.open("rb") as file:
        flipped = os.pread(file.fileno(), 1, operation["offset"])[0] ^ 1 << operation["bit"]
    after = int(operation.get("after", f"{flipped:x}"), 16)
    assert flipped == after, f"{path} at {operation['offset']}: would become {flipped:02x}, not {after:02x}"
    _overwrite(path, operation, bytes([flipped]))


def _write(_root: Path, path: Path, operation: Operation) -> None:
    _overwrite(path, operation, bytes.fromhex(operation["hex"]))


def _zero(_root: Path, path: Path, operation: Operation) -> None:
    _overwrite(path, operation, bytes(operation["len"]))


def _truncate(_root: Path, path: Path, operation: Operation) -> None:
    os.truncate(path, operation["size"])


def _content(operation: Operation) -> bytes:
    return bytes.fromhex(operation["hex"]) if "hex" in operation else bytes(operation["len"])


def _extend(_root: Path, path: Path, operation: Operation) -> None:
    with path.open("ab") as file:
        file.write(_content(operation))


def _create(_root: Path, path: Path, operation: Operation) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(_content(operation))


def _mkdir(_root: Path, path: Path, _operation: Operation) -> None:
    path.mkdir(parents=True, exist_ok=True)


def _delete(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def _copy(root: Path, path: Path, operation: Operation) -> None:
    target = root / operation["to"]
    target.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        shutil.copytree(path, target)
    else:
        shutil.copyfile(path, target)


def _move(root: Path, path: Path, operation: Operation) -> None:
    path.rename(root / operation["to"])


def _copyrange(root: Path, path: Path, operation: Operation) -> None:
    with path.open("rb") as source, (root / operation["to"]).open("r+b") as target:
        os.pwrite(
            target.fileno(),
            os.pread(source.fileno(), operation["len"], operation["offset"]),
            operation["to_offset"],
        )


OPERATIONS: dict[str, Callable[[Path, Path, Operation], None]] = {
    "flip": _flip,
    "write": _write,
    "zero": _zero,
    "truncate": _truncate,
    "extend": _extend,
    "create": _create,
    "mkdir": _mkdir,
    "delete": lambda _root, path, _operation: _delete(path),
    "copy": _copy,
    "move": _move,
    "copyrange": _copyrange,
}
