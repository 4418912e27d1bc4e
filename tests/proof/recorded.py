"""Whole commands, recorded by their system calls: what a power cut in the middle of a real run may leave.

A writing command runs once under ``strace``. Its calls on files below the store's parent are done again on the model
disk, up to any of them; the disks that a power cut may leave there are judged as those of the other campaigns. So what
goes past the injected file system (Arrow's writer, RocksDB, a library) is seen too.
"""

from __future__ import annotations

import hashlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from rmqtool.files.filesystem import WritableFile
from tests.guards.test_untouched import WRITERS
from tests.proof import command_cases, reader
from tests.proof.campaign import Campaign, Outcome
from tests.proof.ledger import ROOT
from tests.proof.model_disk import settle, tree_of_disk
from tests.proof.workshop import copied
from tests.support.faulty import FaultyFileSystem
from tests.support.faulty_disk import Change, Crash, FaultyDisk, Inode, link, move

_CALLS = (
    "openat,pwrite64,pwritev,write,lseek,fsync,fdatasync,rename,renameat,renameat2,link,linkat,unlink,unlinkat,"
    "mkdir,mkdirat,rmdir,ftruncate,fallocate,sendto"
)
_LINE = re.compile(r"(?:\[pid +)?(?P<pid>\d+)\]? +(?P<rest>.*)")
_WHOLE = re.compile(r"(?P<name>\w+)\((?P<given>.*)\) += (?P<result>-?\d+)(?:<(?P<path>[^>]*)>)?")
_FILE = re.compile(r"(?:\d+|AT_FDCWD)<([^>]*)>")
_TEXT = re.compile(r'"([^"]*)"')
# Calls that tell somebody something, and change nothing.
TOLD = ("said", "sent")
_STATES = 16
_MARK = "\\x"


class Did(NamedTuple):
    """A call that changed or synced something below the store's parent, or bytes for standard output or a socket.

    ``path`` of bytes for a socket is the socket.
    """

    name: str
    path: str
    other: str = ""
    data: bytes = b""
    at: int = 0


class Recording(NamedTuple):
    """What a command did, in its order, and the disk before it, on which nothing is in doubt."""

    disk: FaultyDisk
    calls: tuple[Did, ...]


def missing() -> str | None:
    """Return why nothing can be recorded here."""
    if shutil.which("strace") is None:
        return "strace is not installed"
    tried = subprocess.run(["strace", "-o", "/dev/null", "true"], capture_output=True, check=False)
    return None if tried.returncode == 0 else "strace may not trace here"


def _unhex(text: str) -> bytes:
    return bytes.fromhex(text.replace(_MARK, "")) if text.startswith(_MARK) else text.encode()


class _Transcript:
    """The lines of strace as calls; paths are relative to the parent of the store."""

    def __init__(self, text: str, parent: Path) -> None:
        self._lines = text.splitlines()
        self._parent = f"{parent}/"
        self._unfinished: dict[str, str] = {}
        # Where the next ``write`` of a file goes.
        self._ends: dict[str, int] = {}

    def calls(self) -> Iterator[Did]:
        for line in self._lines:
            whole = self._whole(line)
            match = _WHOLE.match(whole) if whole else None
            if match is not None and int(match["result"]) >= 0:
                yield from self._call(match["name"], match["given"], match["path"], int(match["result"]))

    def _whole(self, line: str) -> str | None:
        """Return a call with its result; another thread may have come between the two."""
        match = _LINE.match(line)
        if match is None:
            return None
        pid, rest = match["pid"], match["rest"]
        if rest.endswith("<unfinished ...>"):
            self._unfinished[pid] = rest.removesuffix("<unfinished ...>")
            return None
        if rest.startswith("<... "):
            return self._unfinished.pop(pid, "") + rest.partition(" resumed>")[2]
        return rest

    def _below(self, path: str) -> str | None:
        """Return a path from the parent of the store on, "" for the parent itself, None for what is elsewhere."""
        return f"{path}/".removeprefix(self._parent)[:-1] if f"{path}/".startswith(self._parent) else None

    def _call(self, name: str, given: str, result_path: str | None, result: int) -> Iterator[Did]:
        files = [_unhex(one).decode() for one in _FILE.findall(given)]
        texts = [_unhex(one) for one in _TEXT.findall(given)]
        if name == "write" and given.startswith("1<"):
            yield Did("said", "", data=texts[0] if texts else b"")
            return
        if name == "openat":
            yield from self._open(given, result_path)
            return
        if name in ("mkdirat", "unlinkat", "mkdir", "unlink", "rmdir"):
            path = self._below(_joined(files[0] if files else "", texts[0].decode()))
            kind = "rmdir" if name == "rmdir" or "AT_REMOVEDIR" in given else name.removesuffix("at")
            if path is not None:
                yield Did(kind, path)
            return
        if name.startswith(("rename", "link")):
            ends = [self._below(_joined(files[at] if files else "", texts[at].decode())) for at in (0, 1)]
            if ends[0] is not None and ends[1] is not None:
                yield self._named(name, given, ends[0], ends[1])
            return
        if name == "sendto":
            yield Did("sent", files[0], data=texts[0][:result])
            return
        path = self._below(files[0]) if files else None
        if path is not None:
            yield from self._change(name, path, given, (texts, result))

    def _named(self, name: str, given: str, old: str, new: str) -> Did:
        """Return the call that gave a file another name, or one more."""
        if name.startswith("link"):
            return Did("link", old, new)
        if "RENAME_EXCHANGE" in given:
            return Did("exchange", old, new)
        if old in self._ends:
            self._ends[new] = self._ends.pop(old)
        return Did("rename", old, new)

    def _open(self, given: str, result_path: str | None) -> Iterator[Did]:
        path = self._below(_unhex(result_path or "").decode())
        if path is None or "O_TMPFILE" in given:
            return
        self._ends[path] = 0
        if "O_CREAT" in given:
            yield Did("create", path)
        if "O_TRUNC" in given:
            yield Did("truncate", path, at=0)

    def _change(self, name: str, path: str, given: str, done: tuple[list[bytes], int]) -> Iterator[Did]:
        numbers = [int(one) for one in re.findall(r"(?<=, )\d+(?=,|$)", given)]
        texts, result = done
        if name in ("pwrite64", "pwritev"):
            yield Did("pwrite", path, data=b"".join(texts)[:result], at=numbers[-1])
        elif name == "write":
            at = self._ends.get(path, 0)
            self._ends[path] = at + result
            yield Did("pwrite", path, data=texts[0][:result], at=at)
        elif name == "lseek":
            self._ends[path] = result
        elif name in ("ftruncate", "fallocate"):
            size = numbers[-1] if name == "ftruncate" else numbers[-1] + numbers[-2]
            yield Did("truncate" if name == "ftruncate" else "grow", path, at=size)
        elif name in ("fsync", "fdatasync"):
            yield Did(name, path)


def _joined(directory: str, path: str) -> str:
    return path if path.startswith("/") or not directory else f"{directory}/{path}"


def strace(trace: str) -> list[str]:
    """Return the words that a command line is put after, so that its calls are written to ``trace``."""
    return ["strace", "-f", "-y", "-xx", "-s", "99999999", "-o", trace, f"--trace={_CALLS}"]


def calls_of(trace: str, parent: Path) -> tuple[Did, ...]:
    """Return what was written to ``trace``, of what is below a directory."""
    text = Path(trace).read_text(encoding="ascii", errors="replace")
    return tuple(_Transcript(text, parent).calls())


@lru_cache(maxsize=64)
def record(name: str) -> Recording:
    """Run a command under strace; return what it did."""
    writer, before = WRITERS[name], command_cases.template(name)
    with copied(before.parent) as root, tempfile.NamedTemporaryFile(suffix=".strace") as trace:
        files = reader.tree_of(root.parent, "store")
        words = [str(word) for word in writer.words(root)]
        subprocess.run(
            [*strace(trace.name), sys.executable, "-m", "rmqtool", *words],
            input=writer.given,
            capture_output=True,
            cwd=ROOT,
            check=False,
        )
        return Recording(lay(files), calls_of(trace.name, root.parent))


def lay(before: dict[str, bytes], directories: Sequence[str] = ()) -> FaultyDisk:
    """Return a disk with these files, and directories that may be empty, all durable."""
    disk = FaultyDisk()
    files = FaultyFileSystem(disk)
    for path in directories:
        disk.directory(path)
    for path, data in before.items():
        names = path.split("/")[:-1]
        for depth in range(1, len(names) + 1):
            if not files.exists("/".join(names[:depth])):
                files.mkdir("/".join(names[:depth]))
        with files.create(path) as file:
            file.truncate(len(data))
            stripped = data.rstrip(b"\0")
            if stripped:
                file.pwrite(stripped, 0)
    settle(disk)
    _share(disk.root)
    return disk


# One buffer for all files with the same bytes: the stores of most commands differ little.
_buffers: dict[bytes, bytearray] = {}


def _share(inode: Inode) -> None:
    for one in (inode, inode.durable):
        if one is not None:
            one.data, one.shares = _buffers.setdefault(hashlib.blake2b(one.data).digest(), one.data), True
    for below in inode.names.values():
        _share(below)


def replay(disk: FaultyDisk, calls: Sequence[Did], told: list[Did]) -> None:
    """Do the calls again on a disk until the power goes; ``told`` gets what was told until then."""
    files = FaultyFileSystem(disk)
    try:
        for did in calls:
            if did.name in TOLD:
                told.append(did)
            else:
                _do(files, did)
    except Crash:
        pass


def _do(files: FaultyFileSystem, did: Did) -> None:
    if did.name == "create":
        if not files.exists(did.path):
            files.create(did.path).close()
    elif did.name == "mkdir":
        files.mkdir(did.path)
    elif did.name in ("unlink", "rmdir"):
        getattr(files, did.name)(did.path)
    elif did.name == "rename":
        _rename(files, did.path, did.other)
    elif did.name in ("link", "exchange"):
        _NAMED[did.name](files.disk, did.path, did.other)
    elif files.is_directory(did.path):
        files.fsync_dir(did.path)
    elif files.exists(did.path):
        with files.open_write(did.path) as file:
            _change(file, did)


def _rename(files: FaultyFileSystem, source: str, target: str) -> None:
    """Rename a file, or a directory with all that is in it: for the model the names below it arrive together.

    A file system keeps no directory under two names: that both directories above it change is one change.
    """
    if not files.is_directory(source):
        files.rename(source, target)
        return
    disk = files.disk
    (old, old_name), (new, new_name) = (_place(disk, path) for path in (source, target))
    inode = old.names[old_name]
    disk.begin("rename", target)
    if old is new:
        old.change(move(old_name, new_name, inode))
    else:

        def apply(directory: Inode, _outcome: int) -> None:
            if directory.number == new.number:
                directory.names[new_name] = inode
            else:
                directory.names.pop(old_name, None)

        change = Change(apply)
        new.change(change)
        old.change(change)
    disk.end()


def _place(disk: FaultyDisk, path: str) -> tuple[Inode, str]:
    """Return the directory of a path, and the name in it."""
    above, _, name = path.rpartition("/")
    return disk.directory(above), name


def _link(disk: FaultyDisk, path: str, other: str) -> None:
    """Give a file one more name."""
    (above, name), (below, second) = _place(disk, path), _place(disk, other)
    disk.begin("link", other)
    below.change(link(second, above.names[name]))
    disk.end()


def _exchange(disk: FaultyDisk, path: str, other: str) -> None:
    """Let two names of different directories change places: one change of both, so that it arrives in both or none.

    A file system keeps no directory under two names.
    """
    (one, name), (two, second) = _place(disk, path), _place(disk, other)
    first, last = one.names[name], two.names[second]

    def apply(directory: Inode, _outcome: int) -> None:
        if directory.number == one.number:
            directory.names[name] = last
        else:
            directory.names[second] = first

    disk.begin("exchange", other)
    change = Change(apply)
    one.change(change)
    two.change(change)
    disk.end()


_NAMED = {"link": _link, "exchange": _exchange}


def _change(file: WritableFile, did: Did) -> None:
    match did.name:
        case "pwrite":
            file.pwrite(did.data, did.at)
        case "truncate":
            file.truncate(did.at)
        case "grow":
            if file.size() < did.at:
                file.truncate(did.at)
        case "fdatasync":
            file.fdatasync()
        case "fsync":
            file.fsync()


_NAMES = tuple(WRITERS)
_STRIDE = 7919


def run(seed: int) -> Outcome:
    """Cut the power at one call of one recorded command, and judge the disks that this may leave."""
    result = Outcome()
    name, turn = _NAMES[seed % len(_NAMES)], seed // len(_NAMES)
    recording, before = record(name), command_cases.template(name)
    count = sum(did.name not in TOLD for did in recording.calls)
    if not count:
        return result
    call = turn * _STRIDE % count + 1
    disk = recording.disk.after_crash(lambda _count: 0)
    disk.crash_at(call)
    replay(disk, recording.calls, [])
    disk.crashed = True
    chance = random.Random(f"recorded {seed}")
    for number, state in enumerate(disk.iter_outcomes(_STATES, seed=chance.randrange(1 << 30))):
        tree = tree_of_disk(state, "store")
        whole = {one.identity for one in reader.iter_records(tree)}
        gone = before.records - whole
        found = [f"{len(gone)} whole messages are gone, the first at {min(gone)[0]}"] if gone else []
        found += _half_made(state, before)
        result.judge(found, f"{name}, seed {seed}, power cut in call {call} of {count}, disk {number}")
    return result


def _half_made(state: FaultyDisk, before: command_cases.Template) -> list[str]:
    """Return what stands beside the store under its final name and is not whole."""
    wrong = []
    new = tree_of_disk(state, "new")
    if new and {one.identity for one in reader.iter_records(new)} != before.made:
        wrong.append("a store was made that is not whole")
    for path, data in tree_of_disk(state, "lake").items():
        if path.endswith(".parquet") and not (data.startswith(b"PAR1") and data.endswith(b"PAR1")):
            wrong.append(f"{path} is not a whole table")
    return wrong


CAMPAIGN = Campaign("power cuts in recorded commands", "disk states", 10_000, run, missing)
