"""Real power cuts: a file system on a loop device is shut down while several producers write to a store on it.

The kernel's own ``shutdown`` of ext4 and XFS throws away what was not written to the device, as a power cut does; then
the file system is mounted again, from its journal. What was acknowledged is known to this process, which is not the one
that wrote. The image is in memory, its mounts are seen by this process and its children only.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import random
import select
import shutil
import signal
import struct
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, NoReturn

from rmqtool.engine.message import NewMessage
from rmqtool.engine.store import MessageStore
from tests.crash.putting import body_of, setup_at
from tests.proof import forked, reader
from tests.proof.campaign import Campaign, Outcome
from tests.proof.workshop import workshop

# EXT4_IOC_SHUTDOWN and XFS_IOC_GOINGDOWN: with its journal written first (1), or without (2).
_SHUTDOWN, _WAYS = 0x8004587D, (1, 2)
_NEW_NAMESPACE, _PRIVATE = 0x20000, 0x4000 | 0x40000
_PRODUCERS = 3
_MOST_ACKNOWLEDGED = 90
_LONGEST_SECONDS = 60


class Disk(NamedTuple):
    """A kind of file system, how one is made, its size, and how it is mounted."""

    kind: str
    make: tuple[str, ...]
    size: int
    options: str


_MAKE_EXT4 = ("mkfs.ext4", "-q", "-F")
_DISKS = (
    *(Disk("ext4", _MAKE_EXT4, 24 << 20, f"data={mode}") for mode in ("ordered", "writeback", "journal")),
    Disk("xfs", ("mkfs.xfs", "-q", "-f"), 300 << 20, "noatime"),
)


def missing() -> str | None:
    """Return why no power can be cut here."""
    if os.geteuid() != 0:
        return "only root may mount"
    if not usable():
        return "neither ext4 nor XFS can be made and mounted on a loop device here"
    return None


@lru_cache(maxsize=1)
def usable() -> tuple[Disk, ...]:
    """Return the file systems that can be made here; their images wait to be mounted."""
    if os.geteuid() != 0:
        return ()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_NEW_NAMESPACE) or libc.mount(b"none", b"/", None, _PRIVATE, None):
        return ()
    found = []
    for disk in _DISKS:
        if shutil.which(disk.make[0]) is None:
            continue
        image = image_of(disk)
        with image.open("wb") as file:
            file.truncate(disk.size)
        made = subprocess.run([*disk.make, image], capture_output=True, check=False)
        if made.returncode == 0 and mount(disk, image):
            unmount()
            found.append(disk)
    return tuple(found)


def image_of(disk: Disk) -> Path:
    return workshop() / f"{disk.kind}-{disk.options}.image"


@lru_cache(maxsize=1)
def place() -> Path:
    """Return the directory that a file system is mounted on."""
    found = workshop() / "mounted"
    found.mkdir()
    return found


def mount(disk: Disk, image: Path) -> bool:
    """Mount an image by a loop device; return whether that is possible."""
    words = ["mount", "-t", disk.kind, "-o", f"loop,{disk.options}", str(image), str(place())]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


def unmount() -> None:
    """Unmount what is mounted."""
    subprocess.run(["umount", place()], capture_output=True, check=True)


class Acknowledged(NamedTuple):
    """What a producer was told."""

    number: int
    queue_id: int
    queue_offset: int
    physical_offset: int

    @classmethod
    def of(cls, line: bytes) -> Acknowledged:
        """Return what a line of the producers says."""
        return cls(*map(int, line.split()))


def run(seed: int) -> Outcome:
    """Cut the power of one disk once."""
    result, chance = Outcome(), random.Random(f"cut {seed}")
    disks = usable()
    disk = disks[seed % len(disks)]
    count, way = chance.randrange(1, _MOST_ACKNOWLEDGED), chance.choice(_WAYS)
    assert mount(disk, image_of(disk))
    store = place() / "store"
    try:
        store.mkdir()
        sync(place())
        told = _write_until(store, count, way, chance.random() * 0.003)
        unmount()
        assert mount(disk, image_of(disk))
        found = judge(store, told)
    finally:
        for path in place().iterdir():
            if path.name != "lost+found":
                shutil.rmtree(path)
        unmount()
    result.judge(found, f"{disk.kind} {disk.options}, seed {seed}, way {way}, after {len(told)} acknowledgements")
    return result


def sync(directory: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def _write_until(store: Path, count: int, way: int, delay: float) -> list[Acknowledged]:
    """Let producers write, cut the power a moment after ``count`` acknowledgements; return those that came before."""
    mounted, text = os.open(store.parent, os.O_RDONLY), b""
    try:
        with producing(store) as reading:
            while text.count(b"\n") < count:
                text += read_some(reading)
            time.sleep(delay)
            while select.select([reading], [], [], 0)[0]:
                text += os.read(reading, 4096)
            fcntl.ioctl(mounted, _SHUTDOWN, struct.pack("I", way))
    finally:
        os.close(mounted)
    return [Acknowledged.of(line) for line in text.splitlines()]


@contextmanager
def producing(store: Path) -> Iterator[int]:
    """Let producers write to a new store in a process of their own; gives the pipe with what was acknowledged."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        _be_the_producers(store, writing)
    os.close(writing)
    try:
        yield reading
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reading)


def read_some(reading: int) -> bytes:
    """Return what producers say next."""
    assert select.select([reading], [], [], _LONGEST_SECONDS)[0], "no acknowledgement came"
    text = os.read(reading, 4096)
    assert text, "the producers ended by themselves"
    return text


def _be_the_producers(store: Path, writing: int) -> NoReturn:
    """Put from several threads, with the threads of a store that serves, until the disk is gone."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        opened = MessageStore.create(setup_at(store))
        opened.start()

        def produce(first: int) -> None:
            number = first
            while True:
                queue_id = number % 3
                ticket = opened.put(NewMessage("T", body_of(number), queue_id, {"KEYS": f"k{number}"}))
                if ticket.is_ok:
                    line = b"%d %d %d %d\n" % (number, queue_id, ticket.queue_offset, ticket.physical_offset)
                    os.write(writing, line)
                number += _PRODUCERS

        threads = [threading.Thread(target=produce, args=(number,)) for number in range(_PRODUCERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        os._exit(1)


def judge(store: Path, told: Sequence[Acknowledged]) -> list[str]:
    """Return what is wrong with a store after a power cut, before a recovery and after it."""
    wrong = _missing(store, told)
    done = forked.run(["recover", str(store), "--apply"])
    tree = reader.tree_of(store)
    breaks = reader.breaks(tree)
    # A record that nobody was promised is damaged, and later ones are whole: recover keeps them, and says with 1 that a
    # broker would cut them off.
    if done.status != (1 if breaks else 0):
        wrong.append(f"recover --apply: status {done.status}: {done.err[-300:]!r}")
    flaws = reader.misplaced(tree, breaks) + reader.torn(tree) + _missing(store, told)
    flaws += [f"no queue leads to {one.physical_offset}" for one in reader.unreached(tree)]
    return wrong + [f"after recover: {one}" for one in flaws]


def _missing(store: Path, told: Sequence[Acknowledged]) -> list[str]:
    """Return what was acknowledged and is not there, and what is there twice or was never sent."""
    found = {one.physical_offset: one for one in reader.iter_records(reader.tree_of(store))}
    wrong = []
    for number, queue_id, queue_offset, physical_offset in told:
        one = found.get(physical_offset)
        if one is None or (one.queue_id, one.queue_offset, one.body) != (queue_id, queue_offset, body_of(number)):
            wrong.append(f"acknowledged T/{queue_id}@{queue_offset} is not at {physical_offset}")
    places = [(one.queue_id, one.queue_offset) for one in found.values()]
    if len(places) > len(set(places)):
        wrong.append("two messages have the same queue offset")
    for one in found.values():
        if one.body != body_of(int(one.body.split()[1])):
            wrong.append(f"{one.body[:20]!r} was never sent")
    return wrong


CAMPAIGN = Campaign("power cuts of real file systems", "power cuts", 10_000, run, missing)
