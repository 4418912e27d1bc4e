"""The directory of a mirror: a store, with a broker.conf that says whose log it has, and the tables of the master.

Tables are written as a slave writes them: topics and groups when they came, offsets once the mirror has every message
that they may speak of. So a group is never ahead of the log. The state of timers is what a slave keeps of it: the time
up to which the master has delivered, and not its position in files that only the master has.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack
from shlex import quote
from typing import Any, Final, Self

from rmqtool.config import StoreConfig, Version
from rmqtool.config.broker_conf import decode_properties
from rmqtool.engine.load import create_store, is_blank
from rmqtool.errors import Refused, RemoteError, StoreError, UsageError
from rmqtool.files.filesystem import Closable, WritableFileSystem
from rmqtool.files.posix import PosixReadableFileSystem
from rmqtool.files.posix_write import PosixWritableFileSystem
from rmqtool.files.publish import new_directory
from rmqtool.formats import paths
from rmqtool.formats.checkpoints import decode_timer_checkpoint, encode_timer_checkpoint
from rmqtool.formats.config_files import decode_config, dialect_of, encode_config
from rmqtool.formats.config_shapes import CONFIG_FILES
from rmqtool.formats.control_texts import EpochEntry, decode_epoch_file, encode_epoch_file, new_epoch_file
from rmqtool.formats.fastjson import Bean, Style
from rmqtool.formats.flaws import Flaw
from rmqtool.replica.masters import MasterSettings, Tables
from rmqtool.store.config_files import ConfigText, config_text
from rmqtool.store.listing import lock_store
from rmqtool.store.open import AS_VERSION, BROKER_CONF

# The keys of broker.conf by which a mirror knows itself and its master.
MIRROR_OF: Final = "rmqtool.mirrorOf"
# The settings of a master on which the files of its store depend, and which rmqtool or a broker needs on the copy.
_TAKEN: Final = (
    "brokerClusterName",
    "brokerName",
    "mappedFileSizeCommitLog",
    "mappedFileSizeConsumeQueue",
    "mappedFileSizeConsumeQueueExt",
    "maxHashSlotNum",
    "maxIndexNum",
    "maxMessageSize",
    "messageDelayLevel",
    "messageIndexEnable",
    "enableConsumeQueueExt",
    "enableMultiDispatch",
    "enableLmq",
    "enabledAppendPropCRC",
    "timerWheelEnable",
    "timerPrecisionMs",
    "timerRollWindowSlot",
    "timerMaxDelaySec",
    "flushDiskType",
)


class MirrorDirectory(Closable):
    """The directory of one mirror, under the lock of its store."""

    def __init__(self, root: str, files: PosixWritableFileSystem, lock: Closable) -> None:
        self.root, self.files = root, files
        self._lock = lock

    @classmethod
    def open(cls, root: str, settings: MasterSettings, address: str) -> Self:
        """Open the mirror of a master, or make it. Raises Refused for a directory of anything else."""
        if _is_new(root):
            with new_directory(root), PosixWritableFileSystem(root) as files:
                create_store(files, _config(root, settings, address))
        with ExitStack() as stack:
            files = stack.enter_context(PosixWritableFileSystem(root))
            _require_mirror(root, files, settings)
            found = cls(root, files, stack.enter_context(lock_store(files)))
            stack.pop_all()
        return found

    def require(self, settings: MasterSettings) -> None:
        """Raise Refused if it is not the mirror of this master."""
        _require_mirror(self.root, self.files, settings)

    def config(self) -> StoreConfig:
        """Return the settings of the store."""
        with self.files.open_read(BROKER_CONF) as file:
            text = file.pread(1 << 20, 0)
        said, _ = decode_properties(text)
        version = Version(said.get(AS_VERSION, Version.V5_3))
        return StoreConfig.default(version).with_broker_conf(text).at_root(os.path.abspath(self.root))

    def release(self) -> None:
        """Give the lock back, for the store of the mirror, which takes it itself."""
        self._lock.close()

    def close(self) -> None:
        self._lock.close()
        self.files.close()


def _is_new(root: str) -> bool:
    """Return whether a mirror has yet to be made here, or one that was begun has to be made again."""
    if not os.path.isdir(root):
        return True
    with PosixReadableFileSystem(root) as files:
        return is_blank(files)


def _config(root: str, settings: MasterSettings, address: str) -> StoreConfig:
    config = StoreConfig.default(settings.version).with_assignments([f"storePathRootDir={os.path.abspath(root)}"])
    for name in _TAKEN:
        if name in settings.listed:
            try:
                config = config.with_assignments([f"{name}={settings.listed[name]}"], takes_unused=True)
            except UsageError:
                continue  # a setting of a later version: the copy has the default
    return config.with_unknown(MIRROR_OF, address)


def _require_mirror(root: str, files: PosixWritableFileSystem, settings: MasterSettings) -> None:
    hint = "name a new directory, or that of a mirror"
    if not files.exists(BROKER_CONF):
        raise Refused(f"{root} is not empty, and not a mirror", file=root, hint=hint)
    with files.open_read(BROKER_CONF) as file:
        said, _ = decode_properties(file.pread(1 << 20, 0))
    if MIRROR_OF not in said:
        raise Refused(f"{root} is a store, but not a mirror", file=root, hint=hint)
    ours = said.get("brokerClusterName"), said.get("brokerName")
    theirs = settings.cluster_name, settings.broker_name
    if ours != theirs:
        raise Refused(
            f"{root} is the mirror of {'/'.join(map(str, ours))}; this master is {'/'.join(theirs)}",
            file=root,
            hint="name a directory of its own for each master",
        )
    size = said.get("mappedFileSizeCommitLog")
    if size != str(settings.segment_size):
        raise Refused(
            f"the files of {root} have {size} bytes, those of the master {settings.segment_size}",
            file=root,
            hint=f"keep it, and mirror into a new directory: rmqtool mirror ... {quote(root + '.new')}",
        )


def require_free(root: str) -> None:
    """Raise StoreError for a path that is not a directory."""
    if os.path.lexists(root) and not os.path.isdir(root):
        raise StoreError(f"{root} is not a directory", file=root, hint="name a new directory, or that of a mirror")


class Configuration:
    """The configuration files of one mirror."""

    def __init__(self, files: WritableFileSystem, version: Version) -> None:
        self._files = files
        self._dialect = dialect_of(version.value)
        self._written: dict[str, bytes] = {}
        self._waiting: Tables | None = None
        # The reason why a table of the master could not be written.
        self.problem: str | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether offsets wait for the log. Later ones would wait longer."""
        return self._waiting is not None

    def take(self, tables: Tables) -> None:
        """Take tables: write the settings now, and the offsets with ``write_due``."""
        self._write_all(tables.settings)
        self._waiting = tables

    def write_due(self, durable_offset: int) -> bool:
        """Write the offsets if the log reaches as far as they do; return whether it was done."""
        waiting = self._waiting
        if waiting is None or waiting.max_offset > durable_offset:
            return False
        self._write_all(waiting.offsets)
        self._waiting = None
        return True

    def _write_all(self, texts: Mapping[str, bytes]) -> None:
        for name, data in texts.items():
            try:
                self._write(name, data)
            except RemoteError as error:
                self.problem = error.message

    def _write(self, name: str, data: bytes) -> None:
        """Write a file if it changed."""
        if self._written.get(name) == data:
            return
        if name == paths.TIMER_CHECK:
            _page(self._files).write(_timer_page(data))
        else:
            config_text(self._files, name).write(self._text(name, data))
        self._written[name] = data

    def _text(self, name: str, data: bytes) -> bytes:
        decoded = decode_config(name, data)
        if isinstance(decoded, Flaw):
            raise RemoteError(
                f"the master's {name} cannot be read: {decoded.message}", hint="the mirror goes on without it"
            )
        root, value = CONFIG_FILES[name].root, decoded.value
        if isinstance(root, Bean):
            # Answers have further fields, such as the queue mapping of static topics.
            value = {key: found for key, found in _fields(value).items() if key in root.fields}
        style = Style.COMPACT if name == paths.DELAY_OFFSET else None
        return encode_config(name, value, self._dialect, style)


def _fields(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _page(files: WritableFileSystem) -> ConfigText:
    # A broker writes it in place and keeps no copy.
    return ConfigText(files, paths.config_path(paths.TIMER_CHECK), lambda _: False)


def _timer_page(data: bytes) -> bytes:
    found = decode_timer_checkpoint(data)
    return encode_timer_checkpoint(found._replace(last_timer_log_flush_pos=0, last_timer_queue_offset=0))


class Epochs:
    """The epochs of the masters that a mirror has followed, in controller mode."""

    def __init__(self, files: WritableFileSystem) -> None:
        self._text = ConfigText(files, paths.EPOCH_FILE, lambda data: not isinstance(decode_epoch_file(data), Flaw))
        found = self._text.load(decode_epoch_file)
        self.entries: tuple[EpochEntry, ...] = () if found is None else found.entries

    def add(self, entry: EpochEntry) -> None:
        """Keep the epoch of the bytes that follow; raise RemoteError if it is older than those before."""
        last = self.entries[-1] if self.entries else None
        if last is not None and entry.epoch <= last.epoch:
            if entry == last:
                return
            raise RemoteError(
                f"the master sent bytes of epoch {entry.epoch} after those of epoch {last.epoch}",
                hint="is it the master that the controller names? rmqtool mirror connects again",
            )
        self.entries = (*self.entries, entry)
        self._text.write(encode_epoch_file(new_epoch_file(self.entries)))
