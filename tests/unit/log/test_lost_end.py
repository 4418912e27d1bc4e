"""The end of a log that is gone: what queues say of it, and when they are believed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rmqtool.log.ranges import Effort
from rmqtool.log.read import Damage, Part
from rmqtool.log.select import Selection
from rmqtool.log.sources import open_source
from rmqtool.log.stream import Request, iter_messages
from rmqtool.store.open import open_store
from tests.support.builders import blank, queue_unit, record

SEGMENT = 1000
ONE = len(record(b"message 0", physical_offset=0))


def write_store(root: Path, units: list[bytes], *, files: int = 1, full: bool = False) -> Path:
    """Files of three messages each, and a queue of these units."""
    (root / "commitlog").mkdir(parents=True)
    queue = root / "consumequeue" / "T" / "0"
    queue.mkdir(parents=True)
    (root / "checkpoint").write_bytes(bytes(4096))
    (root / "lock").touch()
    for base in range(0, files * SEGMENT, SEGMENT):
        data = b"".join(record(b"message %d" % n, physical_offset=base + n * ONE) for n in range(3))
        data += blank(SEGMENT - len(data)) if full else b""
        (root / "commitlog" / f"{base:020d}").write_bytes(data.ljust(SEGMENT, b"\0"))
    (queue / f"{0:020d}").write_bytes(b"".join(units).ljust(400, b"\0"))
    return root


def events(path: Path) -> tuple[int, list[tuple[object, ...]]]:
    with open_source(str(path), open_store) as source:
        found = list(iter_messages(source, Request(Selection()), Effort()))
    damages = [tuple(event)[:4] for event in found if isinstance(event, Damage)]
    return sum(len(event.records) for event in found if isinstance(event, Part)), damages


def units(*places: int) -> list[bytes]:
    return [queue_unit(place, ONE, 0) for place in places]


KEPT = units(0, ONE, 2 * ONE)
FILE, BEHIND = f"commitlog/{0:020d}", f"commitlog/{SEGMENT:020d}"


# What a broker does with the lock, for as long as it lives.
BROKER = """
import fcntl, sys
file = open(sys.argv[1], "r+")
fcntl.lockf(file, fcntl.LOCK_EX, 1)
print(flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize(
    ("more", "length"),
    [
        ([], None),
        (units(3 * ONE), ONE),  # the very place where the zeros begin
        (units(3 * ONE + 50), None),  # one that may be anything
        (units(3 * ONE + 50, 4 * ONE + 50), 50 + 2 * ONE),  # two
        (units(1 << 40, 1 << 41), None),
    ],
)
def test_zeros_where_queues_name_messages(more, length, tmp_path):
    expected = [] if length is None else [("CL-MAGIC", FILE, 3 * ONE, length)]
    assert events(write_store(tmp_path, KEPT + more)) == (3, expected)


@pytest.mark.parametrize(
    ("more", "length"), [([], None), (units(SEGMENT), ONE), (units(SEGMENT, SEGMENT + ONE), 2 * ONE)]
)
def test_files_that_are_gone(more, length, tmp_path):
    expected = [] if length is None else [("CL-GAP", BEHIND, 0, length)]
    assert events(write_store(tmp_path, KEPT + more, full=True)) == (3, expected)


def test_of_one_file_nothing_is_said_that_lies_behind_it(tmp_path):
    root = write_store(tmp_path, KEPT + units(SEGMENT), files=2, full=True)
    assert events(root / FILE) == (3, [])


def test_while_a_broker_writes_its_queues_may_be_ahead_of_what_was_seen(tmp_path):
    root = write_store(tmp_path, KEPT + units(3 * ONE))
    with subprocess.Popen(
        [sys.executable, "-c", BROKER, root / "lock"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as broker:
        assert broker.stdout is not None
        broker.stdout.readline()
        found = events(root)
        broker.communicate()
    assert found == (3, [])
    assert events(root) == (3, [("CL-MAGIC", FILE, 3 * ONE, ONE)])


def test_queues_without_a_log(tmp_path):
    root = write_store(tmp_path, KEPT)
    (root / FILE).unlink()
    assert events(root) == (0, [("ST-MOUNT", "commitlog", 0, 0)])
