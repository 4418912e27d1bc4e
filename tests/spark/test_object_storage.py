"""Stores on object storage through Spark: the rows are those of the disk."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.object_storage import object_storage
from tests.support.stores import STORES

Unpacker = Callable[[str], Path]
ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_rows_are_those_of_the_disk(store: Unpacker) -> None:
    # The log of the one that is left out is a gigabyte; its commands are compared elsewhere.
    names = [name for name in STORES if name != "49-default-sizes"]
    with object_storage() as served:
        places = [place for name in names for place in (str(store(name)), served.upload(store(name), name))]
        command = [sys.executable, "-m", "tests.spark.places", *places]
        done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == 2 * len(names)
    for name, here, far in zip(names, found[::2], found[1::2], strict=True):
        assert here[0] > 0, name
        assert far == here, name


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("comes_back", [True, False])
def test_unplugged_in_the_middle(store: Unpacker, comes_back: bool) -> None:
    """The tasks wait for a server that comes back; else the query ends with a sentence, and without rows."""
    with object_storage() as served:
        place = served.upload(store("54-broker"), "unplugged")
        served.count()
        command = [sys.executable, "-m", "tests.spark.places", place]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as read:
            while served.count() == 0:
                assert read.poll() is None
                time.sleep(0.02)
            served.unplug()
            if comes_back:
                time.sleep(1)
                served.plug()
            out, err = read.communicate(timeout=500)
    if comes_back:
        assert read.returncode == 0, err
        assert json.loads(out)[0] == 418
    else:
        assert (read.returncode, out) == (1, "")
        assert "the server does not answer" in err
