"""The names in a store for completion: fast, in any state of the files, without reading a message.

Names come from directories, and from configuration files without parsing them: half a file, or one that cannot be
parsed, still has most of its names.
"""

from __future__ import annotations

import os
import re
from fnmatch import fnmatchcase

# The name from ``store_word``. Importing that module would take longer than all the rest here.
_VARIABLE = "RMQTOOL_STORE"
_ROOT_HAS = ("commitlog", "consumequeue", "config")
_CLIMB = 4
_MOST_BYTES = 1 << 23
# Counting queues opens a directory for each topic.
_MOST_COUNTED = 200
_ROOT_DIR = re.compile(rb"^\s*storePathRootDir\s*=\s*(.+?)\s*$", re.MULTILINE)
_TOPIC = re.compile(rb'"topicName"\s*:\s*"([^"\\]+)"')
_GROUP = re.compile(rb'"groupName"\s*:\s*"([^"\\]+)"')
_OFFSET_KEY = re.compile(rb'"([^"\\@]+)@([^"\\]+)"\s*:')

Candidate = tuple[str, str]


def is_path(word: str) -> bool:
    """Return whether a word is STORE and not one of the command's own words."""
    return bool(word) and (word.startswith(("./", "../", "/", "~")) or os.path.exists(word))


def default_store() -> str:
    """Return the default store; it need not exist."""
    return os.environ.get(_VARIABLE) or os.path.expanduser("~/store")


def find_root(path: str) -> str | None:
    """Return the directory of the store that STORE means."""
    path = os.path.abspath(os.path.expanduser(path))
    if path.endswith((".conf", ".properties")):
        named = _ROOT_DIR.search(_read(path))
        path = os.fsdecode(named[1]) if named else os.path.dirname(path)
    for _ in range(_CLIMB):
        if any(os.path.isdir(os.path.join(path, name)) for name in _ROOT_HAS):
            return path
        path = os.path.dirname(path)
    return None


def topics(root: str) -> list[Candidate]:
    """Return the topics in the configuration or with queues, each with the number of its queues."""
    queues = os.path.join(root, "consumequeue")
    with_queues = set(_names(queues)) | set(_names(os.path.join(root, "batchconsumequeue")))
    named = {_text(name[1]) for name in _TOPIC.finditer(_config(root, "topics.json"))}
    found = sorted(with_queues | named)
    if len(found) > _MOST_COUNTED:
        return [(name, "") for name in found]
    return [(name, _counted(len(_names(os.path.join(queues, name))), "queue")) for name in found]


def groups(root: str) -> list[Candidate]:
    """Return the groups that are subscribed or have committed an offset, each with the number of its topics."""
    found: dict[str, set[str]] = {}
    for group in _GROUP.finditer(_config(root, "subscriptionGroup.json")):
        found.setdefault(_text(group[1]), set())
    for key in _OFFSET_KEY.finditer(_config(root, "consumerOffset.json")):
        found.setdefault(_text(key[2]), set()).add(_text(key[1]))
    return [(name, _counted(len(of), "topic")) for name, of in sorted(found.items())]


def queues(root: str, patterns: list[str]) -> list[Candidate]:
    """Return the numbers of the queues of the topics that match; of all topics if there are no patterns."""
    directory = os.path.join(root, "consumequeue")
    wanted = [name for name in _names(directory) if not patterns or any(fnmatchcase(name, p) for p in patterns)]
    numbers = {number for name in wanted for number in _names(os.path.join(directory, name)) if number.isdecimal()}
    return [(number, "") for number in sorted(numbers, key=int)]


def _counted(number: int, one: str) -> str:
    return f"{number} {one if number == 1 else one + 's'}" if number else ""


def _names(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []


def _config(root: str, name: str) -> bytes:
    path = os.path.join(root, "config", name)
    return _read(path) or _read(path + ".bak")


def _read(path: str) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(descriptor, _MOST_BYTES)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def _text(name: bytes) -> str:
    return name.decode("utf-8", "replace")
