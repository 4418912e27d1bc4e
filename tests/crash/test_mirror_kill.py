"""A mirror that is killed, and a master that hangs up, at any moment: it goes on, without a hole."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rmqtool.cli import main
from tests.support.scripted_cluster import in_thread
from tests.support.scripted_master import ScriptedMaster, log_files
from tests.support.waiting import wait_for

KILLS = 100


def start(master: ScriptedMaster, root: Path, *words: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "rmqtool", "mirror", master.address, str(root), "--quiet", *words]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL)


@pytest.mark.slow
@pytest.mark.parametrize("live", [(), ("--live",)], ids=["plain", "live"])
def test_a_mirror_that_is_killed_goes_on_without_a_hole(live: tuple[str, ...], tmp_path: Path) -> None:
    """After each kill the mirror has every byte that it has acknowledged, and every record if it is a store too.

    To become a store, it takes back what it has of a record whose rest is still to come: no master counts on that part.
    """
    chance, root = random.Random(31), tmp_path / "m"
    with in_thread(ScriptedMaster()) as master:
        master.grow(50)
        for number in range(KILLS // (2 if live else 1)):
            master.reports.clear()
            if number % 4 == 3:
                master.cuts = [chance.randrange(1, 60_000) for _ in range(3)]
            mirror = start(master, root, *live)
            wait_for(lambda: master.reports)
            master.grow(chance.randrange(120))
            time.sleep(chance.uniform(0, 0.5))
            mirror.kill()
            mirror.wait()
            acknowledged = master.whole_end(max(master.reports)) if live else max(master.reports)
            has = b"".join(data for _, data in sorted(log_files(root).items()))
            # Byte 0 is 0 and is never sent: a mirror that has nothing yet reports 1.
            assert has[1:acknowledged] == bytes(master.log[1:acknowledged])
        assert start(master, root, "--once", *live).wait() == 0
        assert log_files(root) == master.files()
    assert main(["recover", str(root), "--apply"]) == 0
    assert main(["check", str(root)]) == 0
