"""One text of a broker's configuration on the disk: the file, and the copy of what it said before.

Upstream: ``ConfigManager.persist``, ``MixAll.string2File``. Both files are always whole: a text is written aside, made
durable, and takes the name in one instant.
upstream: no version before 5.4 forces anything, 4.9 removes the file before the new one has its name, 5.3 overwrites
both in place, and all of them copy a damaged file over the last good copy.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from rmqtool.errors import RmqtoolError
from rmqtool.formats import paths
from rmqtool.formats.config_files import decode_config
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.paths import Copy
from rmqtool.storage.filesystem import Attributes, WritableFileSystem, make_directories, split

_LARGEST = 256 << 20


class ConfigText:
    """The file at ``path`` and its copy. ``is_loadable`` tells whether a broker would load a text."""

    def __init__(self, files: WritableFileSystem, path: str, is_loadable: Callable[[bytes], bool]) -> None:
        self._files = files
        self._path = path
        self._is_loadable = is_loadable

    def read_copies(self) -> list[tuple[str, bytes]]:
        """Return name and content of the file and of its copy, in the order in which a broker tries them.

        What is missing or empty is left out.
        """
        found = []
        for copy in (Copy.MAIN, Copy.BAK):
            path = self._path + copy
            data = self._read(path)
            if data:
                found.append((self._files.shown(path), data))
        return found

    def write(self, data: bytes) -> None:
        """Make ``data`` what the file says; what it said before is the copy from then on, if a broker would load it.

        Whenever this is cut short, the file says the one or the other. After an error nothing half-written is left.
        """
        make_directories(self._files, split(self._path)[0])
        previous = self._read(self._path)
        if previous and self._is_loadable(previous):
            self._replace(self._path + Copy.BAK, previous)
        self._replace(self._path, data)

    def _read(self, path: str) -> bytes | None:
        if not self._files.exists(path):
            return None
        with self._files.open_read(path) as file:
            return file.pread(min(file.size(), _LARGEST), 0)

    def _replace(self, target: str, data: bytes) -> None:
        aside = self._path + Copy.TMP
        self._remove(aside)
        old = self._files.find_stat(target)
        try:
            with self._files.create(aside) as file:
                if old is not None:
                    self._files.set_attributes(aside, Attributes.of(old)._replace(mtime_ns=None))
                file.pwrite(data, 0)
                file.fsync()
            self._files.rename(aside, target)
            self._files.fsync_dir(split(target)[0])
        except BaseException:
            with suppress(RmqtoolError):
                self._remove(aside)
            raise

    def _remove(self, path: str) -> None:
        if self._files.exists(path):
            self._files.unlink(path)


def config_text(files: WritableFileSystem, name: str) -> ConfigText:
    """Return the configuration file ``name`` of a store."""
    return ConfigText(files, paths.config_path(name), lambda data: not isinstance(decode_config(name, data), Flaw))
