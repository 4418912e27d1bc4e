"""``IndexService``: which index files a start drops, and what it adds while records are dispatched."""

from __future__ import annotations

from rmqtool.formats import paths
from rmqtool.formats.codes import TRANSACTION_MASK, TransactionType
from rmqtool.formats.commit_log import Message
from rmqtool.formats.dispatch import iter_index_texts
from rmqtool.formats.index import file_size
from rmqtool.formats.properties import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR
from rmqtool.upstream import broker_log
from rmqtool.upstream.broker_log import BrokerLog
from rmqtool.upstream.checkpoint import Checkpoint
from rmqtool.upstream.files import StoreFiles
from rmqtool.upstream.index_file import IndexFile
from rmqtool.upstream.java_numbers import parse_long
from rmqtool.upstream.settings import StartSettings

_PROPERTY = PROPERTY_SEPARATOR.encode()
_UNIQ_KEY, _KEYS, _TAGS = (
    f"{PROPERTY_SEPARATOR}{name}{NAME_VALUE_SEPARATOR}".encode() for name in ("UNIQ_KEY", "KEYS", "TAGS")
)

# A broker names a new file by the clock; here it gets a name that says so.
NEW_NAME = "NEW-"


class IndexService:
    """The index files of a store. Slots and entries are only written with ``contents``."""

    def __init__(self, files: StoreFiles, settings: StartSettings, log: BrokerLog, contents: bool) -> None:
        self._files = files
        self._settings = settings
        self._log = log
        self._contents = contents
        self._size = file_size(settings.index_slots, settings.index_entries)
        self._list: list[IndexFile] = []
        self.created: list[str] = []

    def load(self, clean: bool, checkpoint: Checkpoint) -> bool:
        """Take in the files, after a crash without those that were not finished when the checkpoint was written."""
        for entry in self._files.entries(paths.INDEX):
            path = f"{paths.INDEX}/{entry.name}"
            if parse_long(entry.name) is None:
                self._log.warn(broker_log.INDEX_LOAD_ERROR)
                continue
            if entry.is_directory:
                self._log.warn(broker_log.create_failed(path))
                self._log.warn(broker_log.INDEX_LOAD_ERROR)
                return False
            if entry.size < self._size:
                self._files.resize(path, self._size)
            file = self._open(path)
            if not clean and file.end_timestamp > checkpoint.index_msg_timestamp:
                self._files.delete(path)
            else:
                self._list.append(file)
        return True

    def _open(self, path: str) -> IndexFile:
        return IndexFile(self._files, path, self._settings, self._contents)

    def _current(self, checkpoint: Checkpoint) -> IndexFile:
        """Return the file to write to; a new one when the last is full. upstream: ``getAndCreateLastIndexFile``."""
        previous = self._list[-1] if self._list else None
        if previous is not None and not previous.is_full:
            return previous
        path = f"{paths.INDEX}/{NEW_NAME}{len(self.created) + 1}"
        self._files.create(path, self._size)
        self.created.append(path)
        file = self._open(path)
        if previous is not None:
            file.preset(previous.end_phy_offset, previous.end_timestamp)
            previous.settle(header=True)
            if previous.end_timestamp > 0:
                checkpoint.index_msg_timestamp = previous.end_timestamp
                checkpoint.flush()
        self._list.append(file)
        return file

    def dispatch(self, message: Message, checkpoint: Checkpoint) -> None:
        """Index a record under its keys. upstream: ``IndexService.buildIndex``."""
        file = self._current(checkpoint)
        if message.physical_offset < file.end_phy_offset:
            return
        if message.sys_flag & TRANSACTION_MASK == TransactionType.ROLLBACK:
            return
        texts: list[str] = []
        if self._contents:
            texts = list(iter_index_texts(message, self._settings.rules))
            left = len(texts)
        else:
            left = count_index_texts(message.raw_properties, tags=self._settings.rules.tag_entries)
        while left:
            while file.is_full:
                self._log.warn(broker_log.INDEX_OVER_CAPACITY)
                self._log.warn(broker_log.INDEX_FULL)
                file = self._current(checkpoint)
            entries = min(left, self._settings.index_entries - file.index_count)
            file.add(message, entries, texts[:entries])
            del texts[:entries]
            left -= entries

    def settle(self) -> None:
        """Bring on disk what upstream wrote there with every entry."""
        for file in self._list:
            file.settle()

    def shutdown(self) -> None:
        """Write every header, as 5.x does."""
        for file in self._list:
            file.settle(header=True)


def count_index_texts(block: bytes, *, tags: bool) -> int:
    """Return how many texts ``iter_index_texts`` yields for a record with these properties, without making them."""
    block = _PROPERTY + block
    found = int(_last_value(block, _UNIQ_KEY) != b"") + int(tags and _last_value(block, _TAGS) != b"")
    keys = _last_value(block, _KEYS)
    if keys:
        found += sum(map(bool, keys.split(b" ")))
    return found


def _last_value(block: bytes, name: bytes) -> bytes:
    """Return the value that a property has in the end; an empty one does not count."""
    at = block.rfind(name)
    while at >= 0:
        begin = at + len(name)
        end = block.find(_PROPERTY, begin)
        value = block[begin:] if end < 0 else block[begin:end]
        if value:
            return value
        at = block.rfind(name, 0, at)
    return b""
