"""Substitutes: a store to be served while nothing reaches its disk, not even if the broker before left it damaged.

The substitute is the store in overlays. There it is repaired: damage of the log is bridged, queues and index are made
of the log, queues and settings in RocksDB become files. Only a DLedger group can append to its log, so a commit log
goes on after it. A server then opens it like any store. Its changes (offsets, and the messages that consumers send
back) are kept in a state directory outside the store, so the next one goes on where this one ended or was killed. A
state belongs to the store as it was: if the store changes, it is refused.

While there is a substitute, no process can open the store for writing: it has a shared lock on the lock file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from shlex import quote
from typing import Any

from rmqtool.config import StoreConfig
from rmqtool.engine.parts import Setup
from rmqtool.engine.recovery.recover import recover
from rmqtool.errors import Refused, StoreError, UsageError
from rmqtool.files.filesystem import join, make_directories
from rmqtool.files.kept_changes import CHANGES, sync_directory
from rmqtool.files.posix import PosixReadableFileSystem
from rmqtool.files.posix_write import PosixWritableFileSystem
from rmqtool.formats import paths
from rmqtool.formats.config_files import dialect_of, encode_config
from rmqtool.formats.paths import ABORT, FileKind, segment_name
from rmqtool.repairs.areas import Areas
from rmqtool.repairs.carried import read_texts
from rmqtool.repairs.plan import Span, mend_overlays
from rmqtool.store.config_files import config_text
from rmqtool.store.open import Store
from rmqtool.store.segments import next_base

# The usual place of the state: beside the store, with its name and this.
BESIDE = "-rmqtool-state"
_ABOUT = "store.json"
_VERSION = 1
_PRIVATE = 0o700
# With these settings a broker, and our engine, keep queues in files.
_IN_FILES = ("storeType=default", "rocksdbCQDoubleWriteEnable=false")

OpenStore = Callable[[], Store]


@dataclass(frozen=True)
class Damaged:
    """Bytes of the log that no message could be read from: file, offset in it, length, and why."""

    file: str
    offset: int
    length: int
    message: str

    @classmethod
    def of(cls, span: Span) -> Damaged:
        """Return the damage of a span that was bridged."""
        return cls(span.segment.path, span.file_offset, span.end - span.start, span.message)

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Damaged:
        """Return the damage that a state tells. Raises errors for what is not whole."""
        return cls(str(told["file"]), int(told["offset"]), int(told["length"]), str(told["message"]))

    def as_json(self) -> dict[str, object]:
        """Return the damage as the contract has it: the code is the first word of the message."""
        code, _, text = self.message.partition(": ")
        return {"code": code, "file": self.file, "offset": self.offset, "length": self.length, "message": text}


@dataclass(frozen=True)
class Substitute:
    """A store that is ready to be opened in the overlays, and the damage of the store below."""

    setup: Setup
    damage: list[Damaged]
    # Whether anything had to be repaired in the overlays.
    recovered: bool
    # Names the changes of the state that a crash of the machine has lost.
    left_out: str | None = None


def state_directory(root: str, wanted: str | None) -> str:
    """Return where the state of a store is kept, absolute; it must be outside the store."""
    store = os.path.realpath(root)
    place = os.path.realpath(store + BESIDE if wanted is None else wanted)
    if os.path.commonpath((store, place)) == store:
        raise UsageError(f"{place} is inside the store", hint="--state DIR names a directory outside the store")
    return place


@contextmanager
def substitute(
    open_store: OpenStore, wanted: str | None, use: Callable[[StoreConfig], StoreConfig]
) -> Iterator[Substitute]:
    """Give the substitute of a store; ``use`` adds to its settings."""
    with ExitStack() as stack:
        store = stack.enter_context(open_store())
        place = _prepared(store.root, state_directory(store.root, wanted), is_default=wanted is None)
        files = stack.enter_context(PosixWritableFileSystem(place))
        stack.enter_context(files.lock())
        shared = stack.enter_context(PosixReadableFileSystem(store.root)).share_lock()
        if shared is not None:
            stack.enter_context(shared)
        about = _read_about(files)
        # Before the changes are read: they would be mixed with the bytes of another store.
        with Areas(store) as unchanged:
            state = unchanged.state()
        if about is None:
            # A start was killed before it was ready.
            _discard(files)
        elif about.get("state") != state:
            raise _changed(store.root, place)
        areas = stack.enter_context(Areas(store, kept_in=files))
        if about is None:
            had_databases = _use_files(areas)
            _use_own_log(areas)
            damage = [Damaged.of(span) for span in mend_overlays(areas)]
            areas.main.overlay.sync()
            found = {"version": _VERSION, "store": os.path.realpath(store.root), "state": state}
            _write_about(files, found | {"databases": had_databases, "damage": [vars(one) for one in damage]})
            recovered = had_databases or bool(damage) or store.filesystem.exists(ABORT)
        else:
            damage = about["damage"]
            if about["databases"]:
                _use_file_settings(areas)
            _use_own_log(areas)
            recovered = bool(recover(areas.setup(), past_unread=True).changes)
        if store.is_dledger:
            _go_on_after_dledger(areas)
        yield Substitute(_with(areas.setup(), use), damage, recovered, areas.left_out)


def _with(setup: Setup, use: Callable[[StoreConfig], StoreConfig]) -> Setup:
    return Setup(setup.files, use(setup.config), directories=setup.directories)


def _prepared(root: str, place: str, *, is_default: bool) -> str:
    """Make the directory of the state, for its owner only."""
    try:
        if not os.path.isdir(place):
            os.mkdir(place, _PRIVATE)
            sync_directory(os.path.dirname(place))
        if not os.access(place, os.W_OK | os.X_OK):
            raise PermissionError(f"{place} is not writable")
    except OSError as error:
        why = error.strerror or str(error)
        text = f"the progress of groups cannot be kept in {place}: {why}"
        hint = f"name a directory for it: rmqtool serve --read-only {quote(root)} --state DIR"
        raise (Refused(text, hint=hint) if is_default else Refused(text, file=place, hint="--state DIR")) from error
    return place


def _read_about(files: PosixWritableFileSystem) -> dict[str, Any] | None:
    if not files.exists(_ABOUT):
        return None
    with files.open_read(_ABOUT) as file:
        data = file.pread(file.size(), 0)
    shown = files.shown("")
    try:
        found = json.loads(data)
        if found["version"] != _VERSION:
            raise StoreError(
                f"{shown} has version {found['version']}, and this rmqtool knows version {_VERSION}",
                file=shown,
                hint="serve it with the rmqtool that made it, or --state names another directory",
            )
        damage = [Damaged.from_json(one) for one in found["damage"]]
        return {"state": str(found["state"]), "databases": bool(found["databases"]), "damage": damage}
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise StoreError(
            "this is not a state of serve --read-only", file=shown, hint="--state names another directory"
        ) from error


def _write_about(files: PosixWritableFileSystem, about: dict[str, Any]) -> None:
    """Say that the state is complete; without this file the next start begins again."""
    with files.create(_ABOUT + ".new") as file:
        file.pwrite(json.dumps(about).encode(), 0)
        file.fsync()
    files.rename(_ABOUT + ".new", _ABOUT)
    files.fsync_dir()


def _discard(files: PosixWritableFileSystem) -> None:
    for name in (CHANGES, CHANGES + ".new", _ABOUT + ".new"):
        if files.exists(name):
            files.unlink(name)


def _changed(root: str, place: str) -> Refused:
    return Refused(
        f"the store has changed since its state in {place} was made",
        file=root,
        hint="name another directory to begin again: --state DIR",
    )


def _use_files(areas: Areas) -> bool:
    """Have queues and settings in files, where the store has them in RocksDB; return whether it has."""
    store, overlay = areas.store, areas.main.overlay
    databases = store.listing.databases()
    if paths.CONSUME_QUEUE not in databases and not any(one.startswith(paths.CONFIG) for one in databases):
        return False
    texts = read_texts(store, [])
    for file in store.listing.of_kind(FileKind.ROCKSDB):
        if overlay.exists(file.path):
            overlay.unlink(file.path)
    for directory in databases:
        # Readers of settings take a directory for a database.
        if overlay.is_directory(directory) and not overlay.listdir(directory):
            overlay.rmdir(directory)
    for name, value in texts.items():
        config_text(overlay, name).write(encode_config(name, value, dialect_of(store.version.value)))
    if not overlay.exists(ABORT):
        # Queues are made of the log, as after a crash.
        overlay.create(ABORT).close()
    _use_file_settings(areas)
    return True


def _use_file_settings(areas: Areas) -> None:
    """Take the store as it is in the overlays, with queues in files."""
    view = areas.view()
    areas.store = _with_settings(view, _IN_FILES)


def _use_own_log(areas: Areas) -> None:
    """Take a store with a DLedger log for one whose log goes on in a commit log with files of the same size."""
    store = areas.store
    if store.is_dledger:
        size = store.dledger_data.segment_size
        areas.store = _with_settings(store, ("enableDLegerCommitLog=false", f"mappedFileSizeCommitLog={size}"))


def _go_on_after_dledger(areas: Areas) -> None:
    """Create the first segment after the DLedger log, unless there are messages in it already."""
    view, directory = areas.view(), areas.log_directories[0]
    if not view.listing.log_segments:
        data = view.dledger_data
        base = next_base(data.segments[-1], data.segment_size)
        make_directories(directory.filesystem, directory.path)
        directory.filesystem.create(join(directory.path, segment_name(base)), data.segment_size).close()


def _with_settings(store: Store, assignments: Sequence[str]) -> Store:
    config = store.config.with_assignments(assignments, takes_unused=True)
    return Store(store.root, store.filesystem, config, store.listing, store.version, store.version_reason)
