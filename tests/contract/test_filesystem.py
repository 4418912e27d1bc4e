"""The contract of a file system, run over every implementation against a model of dictionaries.

A machine makes a random tree, puts the implementation over it, and then does random things to both. What must fail in
the model must fail there, with the right error; all else must read the same. At the end each implementation proves what
it alone promises: the overlay that nothing beneath was touched, the journal that everything can be taken back, the
faulty disk that what was synced survives.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from rmqtool.errors import FileMissing, ReadFailed, WriteFailed
from rmqtool.files.filesystem import (
    Attributes,
    Kind,
    ReadableFileSystem,
    WritableFile,
    WritableFileSystem,
    iter_tree,
    split,
)
from rmqtool.files.journal import JournalledFileSystem, undo
from rmqtool.files.overlay import Action, OverlayFileSystem
from rmqtool.files.posix import PosixReadableFileSystem
from rmqtool.files.posix_write import PosixWritableFileSystem
from tests.support.faulty import FaultyFileSystem
from tests.support.faulty_disk import FaultyDisk

PATHS = ["a", "b", "c", "a/a", "a/b", "b/a", "b/b", "a/a/a"]
# Around the borders of sectors, pages and the journal's blocks.
places = st.one_of(st.sampled_from([0, 1, 511, 4095, 4096, 8192, 65535, 65536, 65537, 140_000]), st.integers(0, 9000))
lengths = st.one_of(st.sampled_from([0, 1, 512, 4096, 4097, 70_000]), st.integers(0, 300))
fills = st.integers(0, 255)


def pattern(length: int, fill: int) -> bytes:
    return bytes((fill + index) & 0xFF for index in range(min(length, 256))) * (length // 256 + 1) if length else b""


def data_of(length: int, fill: int) -> bytes:
    return pattern(length, fill)[:length]


@dataclass(eq=False)
class ModelFile:
    data: bytearray = field(default_factory=bytearray)

    def write(self, data: bytes, file_offset: int) -> None:
        if data:
            self.data.extend(bytes(max(0, file_offset - len(self.data))))
            self.data[file_offset : file_offset + len(data)] = data

    def truncate(self, size: int) -> None:
        del self.data[size:]
        self.data.extend(bytes(size - len(self.data)))


# path → file, or None for a directory
Model = dict[str, ModelFile | None]


def is_directory(model: Model, path: str) -> bool:
    return path == "" or (path in model and model[path] is None)


def read_tree(files: ReadableFileSystem) -> dict[str, bytes | None]:
    found: dict[str, bytes | None] = {}
    for path, kind in iter_tree(files):
        if kind is Kind.FILE:
            with files.open_read(path) as file:
                found[path] = file.pread(file.size() + 10, 0)
        else:
            assert kind is Kind.DIRECTORY, (path, kind)
            found[path] = None
    return found


def as_bytes(model: Model) -> dict[str, bytes | None]:
    return {path: None if file is None else bytes(file.data) for path, file in model.items()}


def attributes_of(files: ReadableFileSystem) -> dict[str, Attributes]:
    return {path: Attributes.of(files.stat(path)) for path in ["", *(path for path, _ in iter_tree(files))]}


class FileSystemMachine(RuleBasedStateMachine):
    """The rules. A subclass says how its file system comes to be, and what it promises at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.model: Model = {}
        self.handles: list[tuple[WritableFile, ModelFile]] = []
        self.files: WritableFileSystem | None = None

    def make_base(self) -> WritableFileSystem:
        raise NotImplementedError

    def make(self, base: WritableFileSystem) -> WritableFileSystem:
        return base

    def prove(self) -> None:
        """What the implementation promises beyond the contract, when all is done."""

    @initialize(
        tree=st.lists(
            st.tuples(st.sampled_from(PATHS), st.sampled_from([None, 0, 300, 9000, 140_000]), fills),
            min_size=1,
            max_size=9,
        ),
    )
    def build(self, tree: list[tuple[str, int | None, int]]) -> None:
        base = self.make_base()
        for path, size, fill in tree:
            directory, _ = split(path)
            if path in self.model or not is_directory(self.model, directory):
                continue
            if size is None:
                self.model[path] = None
                base.mkdir(path)
            else:
                file = self.model[path] = ModelFile()
                with base.create(path) as real:
                    if size:
                        real.pwrite(data_of(size, fill), size // 2)
                        file.write(data_of(size, fill), size // 2)
                    real.fsync()
            base.fsync_dir(directory)
        self.before = as_bytes(self.model)
        self.files = self.make(base)

    @property
    def fs(self) -> WritableFileSystem:
        assert self.files is not None
        return self.files

    def attempt(self, allowed: bool, change: Callable[[], object]) -> bool:
        """Make a change; it must succeed if the model allows it, and be a ``WriteFailed`` if not."""
        if allowed:
            change()
        else:
            with pytest.raises(WriteFailed):
                change()
        return allowed

    def is_file(self, path: str) -> bool:
        return self.model.get(path) is not None

    def may_be_made(self, path: str) -> bool:
        return path not in self.model and is_directory(self.model, split(path)[0])

    def may_be_removed(self, path: str) -> bool:
        empty = not any(split(other)[0] == path for other in self.model)
        return path in self.model and self.model[path] is None and empty

    def pick(self, data: st.DataObject, good: Callable[[str], bool]) -> str:
        """Draw a path: mostly one with which the operation will succeed."""
        fitting = [path for path in PATHS if good(path)]
        return data.draw(st.sampled_from(fitting if fitting and data.draw(st.integers(0, 6)) < 6 else PATHS))

    # -- names

    @rule(data=st.data(), size=st.sampled_from([0, 0, 1, 5000, 70_000]))
    def create(self, data: st.DataObject, size: int) -> None:
        path = self.pick(data, self.may_be_made)
        made: list[WritableFile] = []
        if self.attempt(self.may_be_made(path), lambda: made.append(self.fs.create(path, size))):
            self.model[path] = file = ModelFile(bytearray(size))
            self.handles.append((made[0], file))

    @rule(data=st.data())
    def mkdir(self, data: st.DataObject) -> None:
        path = self.pick(data, self.may_be_made)
        if self.attempt(self.may_be_made(path), lambda: self.fs.mkdir(path)):
            self.model[path] = None

    @rule(data=st.data())
    def unlink(self, data: st.DataObject) -> None:
        path = self.pick(data, self.is_file)
        if self.attempt(self.is_file(path), lambda: self.fs.unlink(path)):
            del self.model[path]

    @rule(data=st.data())
    def rmdir(self, data: st.DataObject) -> None:
        path = self.pick(data, self.may_be_removed)
        if self.attempt(self.may_be_removed(path), lambda: self.fs.rmdir(path)):
            del self.model[path]

    @rule(data=st.data(), replaces=st.booleans())
    def rename(self, data: st.DataObject, replaces: bool) -> None:
        old = self.pick(data, self.is_file)
        new = self.pick(data, self.is_file if replaces else self.may_be_made)
        free = self.is_file(new) or self.may_be_made(new)
        if self.attempt(self.is_file(old) and free, lambda: self.fs.rename(old, new)):
            self.model[new] = self.model.pop(old)

    @rule(data=st.data(), mode=st.sampled_from([0o600, 0o644, 0o664]), mtime_ns=st.integers(0, 2**60))
    def set_attributes(self, data: st.DataObject, mode: int, mtime_ns: int) -> None:
        path = self.pick(data, self.model.__contains__)
        if path not in self.model:
            with pytest.raises(FileMissing):
                self.fs.set_attributes(path, Attributes(mode, 0, 0))
            return
        before = self.fs.stat(path)
        mode |= 0o100 if self.model[path] is None else 0
        self.fs.set_attributes(path, Attributes(mode, before.owner, before.group, mtime_ns))
        after = self.fs.stat(path)
        assert (after.mode, after.owner, after.group, after.mtime_ns) == (mode, before.owner, before.group, mtime_ns)

    # -- bytes

    @rule(data=st.data())
    def open_write(self, data: st.DataObject) -> None:
        path = self.pick(data, self.is_file)
        opened: list[WritableFile] = []
        if self.attempt(self.is_file(path), lambda: opened.append(self.fs.open_write(path))):
            file = self.model[path]
            assert file is not None
            self.handles.append((opened[0], file))

    @rule(data=st.data(), file_offset=places, length=lengths, fill=fills)
    def patch(self, data: st.DataObject, file_offset: int, length: int, fill: int) -> None:
        """Open, write, close."""
        path = self.pick(data, self.is_file)
        file = self.model.get(path)
        if file is not None:
            with self.fs.open_write(path) as real:
                real.pwrite(data_of(length, fill), file_offset)
            file.write(data_of(length, fill), file_offset)

    @precondition(lambda self: self.handles)
    @rule(which=st.integers(0, 99), file_offset=places, length=lengths, fill=fills, sync=st.booleans())
    def write(self, which: int, file_offset: int, length: int, fill: int, sync: bool) -> None:
        real, file = self.handles[which % len(self.handles)]
        real.pwrite(data_of(length, fill), file_offset)
        file.write(data_of(length, fill), file_offset)
        if sync:
            real.fdatasync()

    @precondition(lambda self: self.handles)
    @rule(which=st.integers(0, 99), size=places)
    def truncate(self, which: int, size: int) -> None:
        real, file = self.handles[which % len(self.handles)]
        shrinks = size < len(file.data)
        real.truncate(size)
        file.truncate(size)
        if shrinks:
            self.close_others(real, file)

    def close_others(self, kept: WritableFile, file: ModelFile) -> None:
        """A handle of a file that another handle cut refuses to read what is gone: a test of its own."""
        for real, other in self.handles:
            if other is file and real is not kept:
                real.close()
        self.handles = [(real, other) for real, other in self.handles if other is not file or real is kept]

    @precondition(lambda self: self.handles)
    @rule(which=st.integers(0, 99), file_offset=places, length=lengths)
    def read_handle(self, which: int, file_offset: int, length: int) -> None:
        real, file = self.handles[which % len(self.handles)]
        assert real.size() == len(file.data)
        assert real.pread(length, file_offset) == file.data[file_offset : file_offset + length]
        buffer = bytearray(b"\xee" * length)
        count = real.pread_into(buffer, file_offset)
        assert buffer == file.data[file_offset : file_offset + length] + b"\xee" * (length - count)

    @precondition(lambda self: self.handles)
    @rule(which=st.integers(0, 99))
    def close_handle(self, which: int) -> None:
        real, _ = self.handles.pop(which % len(self.handles))
        real.close()
        real.close()
        with pytest.raises(ReadFailed):
            real.pread(1, 0)
        with pytest.raises(WriteFailed):
            real.pwrite(b"x", 0)

    @rule(data=st.data(), file_offset=places, length=lengths)
    def read(self, data: st.DataObject, file_offset: int, length: int) -> None:
        path = self.pick(data, self.is_file)
        file = self.model.get(path)
        if file is None:
            with pytest.raises(ReadFailed):
                self.fs.open_read(path)
            return
        with self.fs.open_read(path) as real:
            assert real.pread(length, file_offset) == file.data[file_offset : file_offset + length]
            pieces = bytearray(len(file.data))
            end = 0
            for extent in real.iter_data():
                assert extent.length > 0
                assert extent.file_offset >= end, "extents ascend and do not touch"
                end = extent.end
                pieces[extent.file_offset : end] = real.pread_exactly(extent.length, extent.file_offset)
            assert pieces == file.data, "what lies between the extents is zero"

    @invariant()
    def looks_like_the_model(self) -> None:
        if self.files is None:
            return
        assert read_tree(self.fs) == as_bytes(self.model)
        for path in ["", "a", "b/b", "c"]:
            assert self.fs.exists(path) == (path == "" or path in self.model)
            if is_directory(self.model, path):
                below = sorted(other for other in self.model if split(other)[0] == path)
                assert [entry.name for entry in self.fs.listdir(path)] == [split(other)[1] for other in below]
            else:
                with pytest.raises(ReadFailed):
                    self.fs.listdir(path)

    def teardown(self) -> None:
        try:
            if self.files is not None:
                self.prove()
        finally:
            for real, _ in self.handles:
                real.close()
            self.stack.close()

    def temporary(self) -> str:
        return self.stack.enter_context(tempfile.TemporaryDirectory())


class RealMachine(FileSystemMachine):
    def make_base(self) -> WritableFileSystem:
        self.root = self.temporary()
        return self.stack.enter_context(PosixWritableFileSystem(self.root))

    def prove(self) -> None:
        """The files are really there, and the read-only file system sees them."""
        with PosixReadableFileSystem(self.root) as files:
            assert read_tree(files) == as_bytes(self.model)
        found = {
            os.path.relpath(os.path.join(where, name), self.root): Path(where, name).read_bytes()
            for where, _, names_ in os.walk(self.root)
            for name in names_
        }
        assert found == {path: data for path, data in as_bytes(self.model).items() if data is not None}


class FaultyMachine(FileSystemMachine):
    def make_base(self) -> WritableFileSystem:
        self.disk = FaultyDisk()
        return FaultyFileSystem(self.disk, "store")

    def prove(self) -> None:
        """What was synced survives any crash."""
        for path, kind in iter_tree(self.fs):
            if kind is Kind.FILE:
                with self.fs.open_write(path) as file:
                    file.fsync()
            else:
                self.fs.fsync_dir(path)
        self.fs.fsync_dir()
        for disk in self.disk.iter_outcomes(limit=4):
            assert read_tree(FaultyFileSystem(disk, "store")) == as_bytes(self.model)


class OverlayMachine(FileSystemMachine):
    memory_limit: ClassVar[int] = 64 << 20

    def make_base(self) -> WritableFileSystem:
        self.root = self.temporary()
        return self.stack.enter_context(PosixWritableFileSystem(self.root))

    def make(self, base: WritableFileSystem) -> WritableFileSystem:
        self.below = self.stack.enter_context(PosixReadableFileSystem(self.root))
        self.below_before = {path: self.below.stat(path) for path, _ in iter_tree(self.below)}
        return self.stack.enter_context(OverlayFileSystem(self.below, memory_limit=self.memory_limit))

    def prove(self) -> None:
        """Nothing beneath was touched; the changes are the difference; the whole can be written out."""
        assert isinstance(self.files, OverlayFileSystem)
        assert read_tree(self.below) == self.before
        assert {path: self.below.stat(path) for path, _ in iter_tree(self.below)} == self.below_before
        before = {path: data for path, data in self.before.items() if data is not None}
        after = {path: data for path, data in as_bytes(self.model).items() if data is not None}
        expected = {}
        for path in sorted(before.keys() | after.keys()):
            old, new = before.get(path), after.get(path)
            if old is None or new is None:
                action = Action.CREATE if old is None else Action.DELETE
            elif len(old) != len(new):
                action = Action.RESIZE
            else:
                action = Action.MODIFY
            if old != new:
                expected[path] = (action, None if old is None else len(old), None if new is None else len(new))
        changes = self.files.changes()
        assert [change.path for change in changes] == sorted(expected)
        assert {c.path: (c.action, c.size_before, c.size_after) for c in changes} == expected
        for change in changes:
            if change.action is not Action.DELETE:
                new = after[change.path]
                patched = bytearray(before.get(change.path, b"")[: len(new)].ljust(len(new), b"\0"))
                for extent in self.files.iter_changed(change.path):
                    assert patched[extent.file_offset : extent.end] != new[extent.file_offset : extent.end]
                    patched[extent.file_offset : extent.end] = new[extent.file_offset : extent.end]
                assert patched == new, change.path
        with PosixWritableFileSystem(self.temporary()) as target:
            assert self.files.write_to(target) == []
            assert read_tree(target) == as_bytes(self.model)
            # Times of directories are the overlay's own: what lies beneath knows nothing of its changes.
            wanted, found = attributes_of(self.files), attributes_of(target)
            assert {path: found[path].mode for path in found} == {path: wanted[path].mode for path in wanted}
            assert {path: found[path].mtime_ns for path in after} == {path: wanted[path].mtime_ns for path in after}


class SpillingOverlayMachine(OverlayMachine):
    """The overlay, of whose changes nearly all lie in the temporary file."""

    memory_limit = 4096


class JournalMachine(FileSystemMachine):
    def make_base(self) -> WritableFileSystem:
        self.root, self.beside = self.temporary(), self.temporary()
        return self.stack.enter_context(PosixWritableFileSystem(self.root))

    def make(self, base: WritableFileSystem) -> WritableFileSystem:
        self.base = base
        self.journal = self.stack.enter_context(PosixWritableFileSystem(self.beside))
        self.attributes_before = attributes_of(base)
        return self.stack.enter_context(JournalledFileSystem(base, self.journal, {"plan": "7f3c"}))

    def prove(self) -> None:
        """Everything can be taken back: bytes, modes, owners and times; and twice is once."""
        assert isinstance(self.files, JournalledFileSystem)
        self.files.finish()
        for _ in range(2):
            undo(self.base, self.journal)
            assert read_tree(self.base) == self.before
            assert attributes_of(self.base) == self.attributes_before


class FaultyJournalMachine(JournalMachine):
    """The journal over a disk in memory: more runs in the same time."""

    def make_base(self) -> WritableFileSystem:
        self.disk = FaultyDisk()
        return FaultyFileSystem(self.disk, "store")

    def make(self, base: WritableFileSystem) -> WritableFileSystem:
        self.base = base
        self.journal = FaultyFileSystem(self.disk, "undo")
        self.attributes_before = attributes_of(base)
        return self.stack.enter_context(JournalledFileSystem(base, self.journal, {}))


def runs(count: int) -> settings:
    return settings(
        max_examples=count,
        stateful_step_count=40,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )


# How many runs each kind of file system gets by default; ``make slow`` gives each four times as many, other ones.
RUNS = {
    RealMachine: 30,
    FaultyMachine: 50,
    OverlayMachine: 40,
    SpillingOverlayMachine: 20,
    JournalMachine: 20,
    FaultyJournalMachine: 40,
}

by_kind = pytest.mark.parametrize("machine", RUNS, ids=lambda machine: machine.__name__)


@by_kind
def test_every_file_system_keeps_the_contract(machine):
    run_state_machine_as_test(machine, settings=runs(RUNS[machine]))


@pytest.mark.slow
@by_kind
def test_every_file_system_keeps_the_contract_for_long(machine):
    run_state_machine_as_test(machine, settings=settings(runs(4 * RUNS[machine]), derandomize=False))
