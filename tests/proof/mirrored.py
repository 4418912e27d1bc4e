"""Kills of ``mirror`` while it takes the log of a master: what it reported to the master is there, and it goes on.

The master is in this process, the mirror in another one. A live mirror takes back what it has of a record whose rest is
still to come, when it becomes a store: no master counts on that part, and every record is asked for. At the end the
mirror has every byte of the master, and a recovery leads its queues to their own messages.
"""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from pathlib import Path

from tests.crash.test_mirror_kill import start
from tests.proof import forked, reader
from tests.proof.campaign import Campaign, Outcome
from tests.proof.workshop import workshop
from tests.support.scripted_cluster import in_thread
from tests.support.scripted_master import ScriptedMaster, log_files

# Kills of one mirror, which the next one goes on with.
KILLS = 6
_LONGEST_SECONDS = 120


def run(seed: int) -> Outcome:
    """Kill the mirrors of one master again and again."""
    result, chance = Outcome(), random.Random(f"mirrored {seed}")
    home = Path(tempfile.mkdtemp(prefix="mirrored-", dir=workshop()))
    root, words = home / "m", ("--live",) if seed % 2 else ()
    try:
        with in_thread(ScriptedMaster()) as master:
            master.grow(50)
            for number in range(KILLS):
                found = _kill(master, root, chance, words)
                result.judge(found, f"seed {seed}, kill {number} after a report of {max(master.reports)}")
            status = start(master, root, "--once", *words).wait(_LONGEST_SECONDS)
            is_same = log_files(root) == master.files()
        wrong = [] if status == 0 else [f"mirror --once: status {status}"]
        wrong += [] if is_same else ["it has another log than its master"]
        result.failures += [f"seed {seed}: {one}" for one in wrong + _recovered(root)]
    finally:
        shutil.rmtree(home)
    return result


def _kill(master: ScriptedMaster, root: Path, chance: random.Random, words: tuple[str, ...]) -> list[str]:
    """Kill a mirror a moment after its first report; return what is missing of what it reported."""
    master.reports.clear()
    if chance.random() < 0.25:
        master.cuts = [chance.randrange(1, 60_000) for _ in range(3)]
    mirror = start(master, root, *words)
    try:
        deadline = time.monotonic() + _LONGEST_SECONDS
        while not master.reports:
            assert time.monotonic() < deadline, "the mirror reported nothing"
            time.sleep(0.005)
        master.grow(chance.randrange(120))
        time.sleep(chance.uniform(0, 0.3))
    finally:
        mirror.kill()
        mirror.wait()
    reported = master.whole_end(max(master.reports)) if words else max(master.reports)
    has = b"".join(data for _, data in sorted(log_files(root).items()))
    # Byte 0 is 0 and is never sent: a mirror that has nothing yet reports 1.
    return [] if has[1:reported] == bytes(master.log[1:reported]) else [f"it lacks bytes before {reported}"]


def _recovered(root: Path) -> list[str]:
    done = forked.run(["recover", str(root), "--apply"])
    wrong = [] if done.status == 0 else [f"recover --apply: status {done.status}: {done.err[-300:]!r}"]
    tree = reader.tree_of(root)
    lost = [f"no queue leads to {one.physical_offset}" for one in reader.unreached(tree)]
    return wrong + reader.misplaced(tree) + lost


CAMPAIGN = Campaign("kills of mirror", "kills", 1_000, run)
