"""A store opened for reading: its files, settings and commit log, and the version of the broker that wrote it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import PurePosixPath
from typing import Self

from rmqtool.config import StoreConfig, Version
from rmqtool.errors import ReadFailed, StoreError, UsageError
from rmqtool.files.failures import DISK_FAILS
from rmqtool.files.filesystem import Kind, ReadableFileSystem, iter_tree, join
from rmqtool.files.object_storage import is_object_address, parse_address, refuse_writing
from rmqtool.files.objects import ObjectReadableFileSystem
from rmqtool.files.posix import FOLLOWED, PosixReadableFileSystem
from rmqtool.findings import Finding, Place, Severity, new_finding
from rmqtool.findings.codes import SALVAGE
from rmqtool.formats import paths
from rmqtool.formats.commit_log import Message, Nothing, decode_record
from rmqtool.formats.dispatch import DispatchRules, rules_of
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.paths import FileKind, StorePath
from rmqtool.formats.topics import parse_delay_levels
from rmqtool.store.listing import StoreListing, beneath, list_one_file, list_store
from rmqtool.store.segments import SegmentQueue

BROKER_CONF = "broker.conf"
# rmqtool's own file in a store: the batches of streaming queries that it has. Brokers ignore it.
SINK_BATCHES = "sink-batches.json"
CONF_ENDINGS = (".conf", ".properties")
# rmqtool's own key in broker.conf: the version a store is made for, while no file shows it. Brokers ignore it.
AS_VERSION = "rmqtool.as"

# Names of a directory that are looked at to recognize a store; stores that an error names.
_MOST_LISTED, _MOST_NAMED = 4096, 8
# The deepest file of a store has this many names below the root.
_DEEPEST = 6
# The parts of an address before the names in its bucket: "s3:", "" and the bucket.
_ADDRESS_PARTS = 3
# Bytes that are enough for most first records. A file with a larger one is not recognized.
_FIRST_BYTES = 8 << 20

# Only a 5.x broker writes these files.
_ONLY_5 = (FileKind.TIMER_WHEEL, FileKind.TIMER_LOG, FileKind.TIMER_CHECK, FileKind.COMPACTION_POSITION, FileKind.EPOCH)


# A directory with one of these is a store, or the rest of one.
_MAKE_A_STORE = (FileKind.CONSUME_QUEUE, FileKind.DLEDGER_DATA, FileKind.INDEX, FileKind.CHECKPOINT, FileKind.CONFIG)

# The root of a store has at least one of these names; a directory with two of them is a root.
_MARKS = (paths.COMMIT_LOG, paths.CONSUME_QUEUE, paths.BATCH_CONSUME_QUEUE, paths.CHECKPOINT, BROKER_CONF)

_PARTS_OF_A_STORE = (
    paths.COMMIT_LOG,
    paths.CONSUME_QUEUE,
    paths.BATCH_CONSUME_QUEUE,
    paths.INDEX,
    paths.CONFIG,
)

# The loss with each database, in the words of an error; None for queues, which the log can give again.
_ONLY_THERE = {
    paths.CONSUME_QUEUE: None,
    paths.KV_STORE: "its checkpoints of pop consumption",
    paths.ROCKSDB_STORE: "its timers and open transactions",
}
_CONFIGURATION = "what it holds of topics, groups and committed offsets"


# Roots of stores: directories of this machine, and addresses of object storage. Any process can open the files of both
# again by root and path. The functions below ask either of them.
Root = PosixReadableFileSystem | ObjectReadableFileSystem


def is_far(path: str) -> bool:
    """Return whether a path is on object storage."""
    return "://" in path and is_object_address(path)


def require_disk(path: str) -> None:
    """Raise UsageError for a path on object storage: nothing is written there."""
    if is_far(path):
        refuse_writing(path)


def open_root(root: str, follow: Collection[str] = ()) -> Root:
    """Open the files below a root for reading; ``follow`` are names that may be links on a disk."""
    return ObjectReadableFileSystem(root) if is_far(root) else PosixReadableFileSystem(root, follow)


def absolute(path: str) -> str:
    """Return a path that means the same in every process."""
    return str(parse_address(path)) if is_far(path) else os.path.abspath(path)


def is_file(path: str) -> bool:
    """Return whether a path is a file, also by a link."""
    return _far_kind(path) is Kind.FILE if is_far(path) else os.path.isfile(path)


def is_directory(path: str) -> bool:
    """Return whether a path is a directory, also by a link; an address is one if objects are below it."""
    return _far_kind(path) is Kind.DIRECTORY if is_far(path) else os.path.isdir(path)


def exists(path: str) -> bool:
    """Return whether a path exists; a link counts even if its target is missing."""
    return _far_kind(path) is not None if is_far(path) else os.path.lexists(path)


def size_of(path: str) -> int:
    """Return the size of a file."""
    return ObjectReadableFileSystem(path).own_size() if is_far(path) else os.path.getsize(path)


def _far_kind(address: str) -> Kind | None:
    with ObjectReadableFileSystem(address) as objects:
        return objects.find_kind()


@contextmanager
def kept_listing(path: str) -> Iterator[None]:
    """Keep the listing of an address for all that is asked about it meanwhile."""
    if not is_far(path):
        yield
        return
    with ObjectReadableFileSystem(path) as objects:
        objects.listdir()
        yield


def rules_for(config: StoreConfig) -> DispatchRules:
    """Return the rules by which a broker turned the records of a store into entries.

    An entry for a further queue proves that its switch was on, so all are taken for on.
    """
    return rules_of(config.version.value, parse_delay_levels(config.message_delay_level))


@dataclass(repr=False)
class Store:
    """An open store. ``version`` is the broker whose rules apply, ``version_reason`` how it is known."""

    root: str
    filesystem: ReadableFileSystem
    config: StoreConfig
    listing: StoreListing
    version: Version
    version_reason: str

    @cached_property
    def commit_log(self) -> SegmentQueue:
        """The commit log: its own segments, or DLedger's data files."""
        segments = self.listing.log_segments
        return SegmentQueue(segments if segments or not self.is_dledger else self.dledger_data.segments)

    @cached_property
    def dispatch_rules(self) -> DispatchRules:
        """The rules by which the broker of this store turned records into entries."""
        return rules_for(self.config)

    @property
    def is_dledger(self) -> bool:
        """Whether the log is DLedger's."""
        return any(True for _ in self.listing.of_kind(FileKind.DLEDGER_DATA))

    @cached_property
    def dledger_data(self) -> SegmentQueue:
        """DLedger's data files as one log."""
        return self.listing.dledger_data()

    @property
    def has_file_queues(self) -> bool:
        """Whether there are queues in files."""
        return any(True for _ in self.listing.of_kind(FileKind.CONSUME_QUEUE, FileKind.BATCH_CONSUME_QUEUE))

    @property
    def is_live(self) -> bool:
        """Whether a broker, or another writer, holds the lock."""
        try:
            return self.filesystem.lock_state().held
        except ReadFailed:
            return False

    def read_file(self, path: str, most: int = 64 << 20) -> bytes | None:
        """Return the content of a small file, or None if it does not exist."""
        if self.listing.find(path) is None:
            return None
        with self.filesystem.open_read(path) as file:
            return file.pread(min(file.size(), most), 0)

    def __repr__(self) -> str:
        return f"<Store {self.root!r}: {self.version.value} ({self.version_reason}), {len(self.commit_log)} log files>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.commit_log.close()
        self.listing.open_files.close()
        self.filesystem.close()


def open_store(
    path: str,
    *,
    version: Version | None = None,
    conf: str | None = None,
    assignments: tuple[str, ...] = (),
    without: Collection[str] = (),
) -> Store:
    """Open the store at ``path``: its root, a ``broker.conf``, a directory below the root, or one file.

    ``conf`` is a broker.conf elsewhere, ``assignments`` are settings from a command line. Directories in ``without``
    are not listed. A store on object storage is listed whole at once.
    """
    with kept_listing(path):
        if is_file(path) and not path.endswith(CONF_ENDINGS):
            if conf is not None or assignments:
                raise UsageError(
                    f"settings have no effect on one file: {path}", hint="name the store, or leave out --conf"
                )
            return _open_file(path, version or Version.V5_3)
        find_root = _object_root_and_conf if is_far(path) else _root_and_conf
        root, conf = find_root(path, conf)
        return _open_root(root, conf, version, assignments, without)


def _open_root(
    root: str, conf: str | None, version: Version | None, assignments: tuple[str, ...], without: Collection[str]
) -> Store:
    filesystem = open_root(root, FOLLOWED)
    text = _read_conf(conf)
    config = _config(root, text, conf, version or Version.V5_3, assignments)
    listing = list_store(filesystem, _log_directories(filesystem, root, config), without)
    if not _is_store(filesystem, listing):
        raise StoreError(
            f"{root} contains no file of a store", file=root, hint="a store has commitlog/, consumequeue/, ..."
        )
    guessed, reason = (version, "as asked") if version else _known_version(config) or guess_version(listing)
    if guessed is not config.version:
        config = _config(root, text, conf, guessed, assignments)
    return Store(root, filesystem, config, listing, guessed, reason)


def _open_file(path: str, version: Version) -> Store:
    """Open one file as a store of its own."""
    filesystem, name, what = locate(path)
    what = _known_kind(filesystem, name, what)
    if what.kind is FileKind.UNKNOWN and what.base_offset is None:
        filesystem.close()
        raise StoreError(
            f"{path} is not a file of a store", file=path, hint=f"records in any file: rmqtool cat --carve {path}"
        )
    listing = list_one_file(filesystem, name, what)
    config = _config(filesystem.root, None, None, version, ())
    return Store(filesystem.root, filesystem, config, listing, version, "one file does not show the version")


def _known_kind(filesystem: ReadableFileSystem, path: str, what: StorePath) -> StorePath:
    """Return the kind of a file; one without a telling name is commit log if it begins with a record."""
    if what.kind is not FileKind.UNKNOWN:
        return what
    with filesystem.open_read(path) as file:
        found = decode_record(file.pread(_FIRST_BYTES, 0))
    if isinstance(found, Message) and what.base_offset is None:
        return StorePath(FileKind.COMMIT_LOG, base_offset=found.physical_offset)
    return what if isinstance(found, Nothing | Flaw) else StorePath(FileKind.COMMIT_LOG, base_offset=what.base_offset)


def locate(path: str) -> tuple[Root, str, StorePath]:
    """Return the file system of the store that a file probably belongs to, the path in it, and what the path says."""
    parts = absolute(path).split("/")
    above = _ADDRESS_PARTS if is_far(path) else 1
    for depth in range(min(_DEEPEST, len(parts) - above), 0, -1):
        relative = "/".join(parts[-depth:])
        what = paths.classify(relative)
        if what.kind is not FileKind.UNKNOWN:
            return open_root("/".join(parts[:-depth]) or "/", FOLLOWED), relative, what
    base_offset = paths.parse_segment_name(parts[-1])
    what = StorePath(FileKind.UNKNOWN, base_offset=base_offset, name=parts[-1])
    return open_root("/".join(parts[:-1]) or "/"), parts[-1], what


def require_path(path: str) -> None:
    """Raise StoreError for a path that does not exist."""
    if not exists(path):
        raise StoreError(f"{path} does not exist", file=path, hint="give the storePathRootDir of a broker")


def _root_and_conf(path: str, conf: str | None) -> tuple[str, str | None]:
    """Return the root of the store that a path means, and the path of its broker.conf, if any."""
    if os.path.isfile(path) and path.endswith(CONF_ENDINGS):
        own_root = StoreConfig.default().with_broker_conf(_read_conf(path) or b"", path)
        root = own_root.root_dir if "storePathRootDir" in own_root.origins else os.path.dirname(path) or "."
        if not os.path.isdir(root):
            root = os.path.dirname(path) or "."
        return root, path
    if not os.path.isdir(path):
        require_path(path)
        raise StoreError(f"{path} is not a directory", file=path, hint="give the storePathRootDir of a broker")
    root = _climb(os.path.abspath(path)) or path
    _refuse_what_is_no_store(root)
    inside = os.path.join(root, BROKER_CONF)
    return root, conf or (inside if os.path.isfile(inside) else None)


def _object_root_and_conf(address: str, conf: str | None) -> tuple[str, str | None]:
    """Return the root of the store on object storage that an address means, and its broker.conf.

    What a broker.conf says of the root is a path of the broker's machine, so the root is where the file is.
    """
    path = absolute(address)
    if path.endswith(CONF_ENDINGS) and is_file(path):
        return path.rpartition("/")[0], path
    require_path(path)
    root = next(filter(_is_object_root, _roots_above(path)), path)
    with ObjectReadableFileSystem(root) as objects:
        if not any(objects.exists(name) for name in _MARKS):
            stores = [path for path, kind in iter_tree(objects) if kind is Kind.DIRECTORY and _is_root(objects, path)]
            if stores:
                names = " and ".join(f"{root}/{path}" for path in stores[:_MOST_NAMED])
                text = f"{root} is not a store, but {names} {'is' if len(stores) == 1 else 'are'}"
                raise StoreError(text, file=root, hint="name that as STORE")
        inside = f"{root}/{BROKER_CONF}"
        return root, conf or (inside if objects.exists(BROKER_CONF) else None)


def _roots_above(path: str) -> Iterator[str]:
    """Yield the directories that would be the root if ``path`` is a directory of a store."""
    parts = path.split("/")
    for depth in range(1, min(4, len(parts) - _ADDRESS_PARTS + 1)):
        if parts[-depth] in _PARTS_OF_A_STORE:
            yield "/".join(parts[:-depth])


def _is_object_root(address: str) -> bool:
    with ObjectReadableFileSystem(address) as objects:
        return _is_root(objects, "")


def _is_root(objects: ObjectReadableFileSystem, directory: str) -> bool:
    return sum(objects.exists(join(directory, name)) for name in _MARKS) > 1


def _climb(path: str) -> str | None:
    """Return the root of the store of which ``path`` is a directory, if names around it say so; else None."""
    parts = PurePosixPath(path).parts
    for depth in range(1, min(4, len(parts))):
        if parts[-depth] in _PARTS_OF_A_STORE:
            root = str(PurePosixPath(*parts[:-depth]))
            if sum(os.path.isdir(os.path.join(root, name)) for name in _PARTS_OF_A_STORE) >= 2:
                return root
    return None


def _refuse_what_is_no_store(root: str) -> None:
    """Refuse a directory that is not a store, before all of it is listed.

    If a store is somewhere below, its log would be found but all its other files would seem to be missing, and a repair
    would write them here. Several stores below it would become one.
    """
    if any(os.path.lexists(os.path.join(root, name)) for name in _MARKS):
        return
    try:
        inside = _directories_in(root)
    except OSError:  # the listing will report why it cannot be read
        return
    stores = [path for path in inside if _is_marked(path)]
    if not stores and _holds_parts(root, inside):
        return
    stores = stores or [path for directory in inside for path in _directories_in(directory) if _is_marked(path)]
    if not stores:
        hint = "a store has commitlog/, consumequeue/, ..."
        if any(paths.parse_tier_cluster(os.path.basename(path)) for path in (*inside, *_all_above(root))):
            hint = "it is tiered storage: info, cat, query, export and check take it"
        raise StoreError(f"{root} contains no file of a store", file=root, hint=hint)
    more = f" and {len(stores) - _MOST_NAMED} more" if len(stores) > _MOST_NAMED else ""
    names = f"{' and '.join(stores[:_MOST_NAMED])}{more} {'is' if len(stores) == 1 else 'are'}"
    raise StoreError(f"{root} is not a store, but {names}", file=root, hint="name that as STORE")


def _all_above(path: str) -> Iterator[str]:
    """Yield a directory and those above it."""
    yield path
    yield from map(str, PurePosixPath(path).parents)


def _directories_in(root: str) -> list[str]:
    """Return the first directories in a directory; none if it cannot be read."""
    try:
        with os.scandir(root) as entries:
            found = [entry.path for entry in islice(entries, _MOST_LISTED) if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []
    return sorted(found)


def _holds_parts(root: str, inside: Iterable[str]) -> bool:
    """Return whether a directory has parts of a store: files of a log, queues, an index, configuration."""
    return any(_holds_part(directory) for directory in (root, *inside))


def _holds_part(directory: str) -> bool:
    where = os.path.basename(directory)
    try:
        with os.scandir(directory) as entries:
            names = [entry.name for entry in islice(entries, _MOST_LISTED)]
    except OSError:
        return False
    if where.startswith(paths.DLEDGER_PREFIX) and "data" in names:
        return True
    return any(
        paths.parse_segment_name(name) is not None
        or (
            where in (paths.INDEX, paths.CONFIG)
            and paths.classify(f"{where}/{name}").kind in (FileKind.INDEX, FileKind.CONFIG)
        )
        for name in names
    )


def _is_marked(root: str) -> bool:
    return sum(os.path.lexists(os.path.join(root, name)) for name in _MARKS) > 1


def _read_conf(conf: str | None) -> bytes | None:
    if conf is None:
        return None
    if is_far(conf):
        directory, _, name = conf.rpartition("/")
        with ObjectReadableFileSystem(directory) as objects, objects.open_read(name) as file:
            return file.pread(file.size(), 0)
    try:
        with open(conf, "rb") as file:
            return file.read()
    except OSError as error:
        raise ReadFailed(
            f"{conf} cannot be read: {error.strerror}", file=conf, hint="run the command as a user who can read it"
        ) from error


def _config(
    root: str, text: bytes | None, conf: str | None, version: Version, assignments: tuple[str, ...]
) -> StoreConfig:
    config = StoreConfig.default(version)
    if text is not None:
        config = config.with_broker_conf(text, conf or BROKER_CONF)
    if assignments:
        config = config.with_assignments(assignments)
    return config.at_root(root)


def _log_directories(
    filesystem: ReadableFileSystem, root: str, config: StoreConfig
) -> list[tuple[str, ReadableFileSystem]]:
    found: list[tuple[str, ReadableFileSystem]] = []
    for directory in (*config.commit_log_dirs, *config.read_only_commit_log_dirs):
        relative = beneath(root, directory)
        if relative is not None:
            found.append((relative, filesystem))
        elif not is_far(root) and os.path.isdir(directory):
            found.append(("", PosixReadableFileSystem(directory)))
    return found


def _is_store(filesystem: ReadableFileSystem, listing: StoreListing) -> bool:
    if listing.log_segments or any(True for _ in listing.of_kind(*_MAKE_A_STORE)):
        return True
    return any(filesystem.exists(name) for name in (BROKER_CONF, paths.COMMIT_LOG, paths.CONSUME_QUEUE))


def _known_version(config: StoreConfig) -> tuple[Version, str] | None:
    said = config.unknown.get(AS_VERSION)
    return (Version(said), f"as {BROKER_CONF} says") if said in list(Version) else None


def guess_version(listing: StoreListing) -> tuple[Version, str]:
    """Return the version that probably wrote a store, and what shows it."""
    for file in listing.files:
        if file.what.owner == paths.ROCKSDB_STORE:
            return Version.V5_4, f"guessed: it has {paths.ROCKSDB_STORE}/"
    for file in listing.of_kind(*_ONLY_5):
        return Version.V5_3, f"guessed: it has {file.path}"
    for file in listing.of_kind(FileKind.ABORT):
        if file.size or file.what.copy is paths.Copy.BAK:
            # Every version writes the file; 4.9 leaves it empty and makes no copy of it.
            what = f"{file.path} holds a process id, as in 5.x" if file.size else f"it has {file.path}, as 5.x makes it"
            return Version.V5_3, f"guessed: {what}"
    if any(True for _ in listing.of_kind(FileKind.ROCKSDB, FileKind.BATCH_CONSUME_QUEUE, FileKind.COMPACTION_LOG)):
        return Version.V5_3, "guessed: it has files that only 5.x writes"
    return Version.V4_9, "guessed: it has no files of 5.x"


def relative_to(root: str, file: str) -> str:
    """Return the path of a file below a store's root, as errors name it; any other path as it is."""
    return file.removeprefix(root.rstrip("/") + "/").removeprefix(absolute(root) + "/")


def unread_finding(root: str, error: ReadFailed, *, severity: Severity | None = None) -> Finding:
    """Return the finding for something that could not be read, with its file relative to the store."""
    name = None if error.file is None else relative_to(root, error.file)
    place = Place(name or paths.COMMIT_LOG, error.offset)
    found = new_finding(error.finding, error.message, place, severity=severity)
    database = next((one for one in _ONLY_THERE if f"{name}/".startswith(f"{one}/")), "")
    only_there = _ONLY_THERE.get(database, _CONFIGURATION) if error.finding == "RX-OPEN" else None
    if only_there is not None:
        found = replace(found, consequence=f"{found.consequence}; {only_there} cannot be restored without a backup")
    if error.hint is None or found.fix is None:
        return found
    return replace(found, fix=SALVAGE.format(store=shlex.quote(root)) if error.hint == DISK_FAILS else error.hint)
