"""Kills of ``serve`` while clients produce: what it acknowledged on the wire is there, once, at its place.

The clients are in this process, the server in another one. After the kill the store is read before a recovery and after
it, by the independent reader.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from collections import Counter
from pathlib import Path

import rmqtool
from tests.crash.test_serve_kill import SETTINGS, TOPIC, Acknowledged, kill_after
from tests.proof import forked, reader
from tests.proof.campaign import Campaign, Outcome
from tests.proof.workshop import workshop
from tests.support.serve_process import ServeProcess

# Kills of one store, whose next server recovers it.
KILLS = 4


def run(seed: int) -> Outcome:
    """Kill the servers of one store again and again."""
    result, chance = Outcome(), random.Random(f"served {seed}")
    home = Path(tempfile.mkdtemp(prefix="served-", dir=workshop()))
    root, known = home / "store", Acknowledged()
    try:
        rmqtool.init(root, conf=SETTINGS)
        for number in range(KILLS):
            server = ServeProcess(root, home)
            try:
                new = kill_after(server, f"{seed}.{number}", chance.randrange(1, 60), chance.random() * 0.05)
            finally:
                server.kill()
            found = [f"{place} was given twice" for place in new.keys() & known.keys()]
            known |= new
            found += [str(event) for event in server.events("error")] + _missing(root, known)
            if chance.random() < 0.5:
                found += _recovered(root, known)
            result.judge(found, f"seed {seed}, kill {number} after {len(new)} acknowledgements")
    finally:
        shutil.rmtree(home)
    return result


def _recovered(root: Path, known: Acknowledged) -> list[str]:
    """Recover the store as a user would; return what is wrong afterwards."""
    done = forked.run(["recover", str(root), "--apply"])
    wrong = [] if done.status == 0 else [f"recover --apply: status {done.status}: {done.err[-300:]!r}"]
    tree = reader.tree_of(root)
    lost = [f"no queue leads to {one.physical_offset}" for one in reader.unreached(tree)]
    flaws = reader.misplaced(tree) + reader.torn(tree) + lost + _missing(root, known)
    return wrong + [f"after recover: {one}" for one in flaws]


def _missing(root: Path, known: Acknowledged) -> list[str]:
    stored: dict[tuple[int, int], bytes] = {}
    bodies: Counter[bytes] = Counter()
    for one in reader.iter_records(reader.tree_of(root)):
        if one.topic == TOPIC.encode():
            stored[one.queue_id, one.queue_offset] = one.body
            bodies[one.body] += 1
    wrong = [f"acknowledged {TOPIC}/{queue_id}@{offset} is not there" for queue_id, offset in known.keys() - stored]
    wrong += [f"another message is at {place}" for place, body in known.items() if stored.get(place, body) != body]
    return wrong + [f"{body[:20]!r} is there {bodies[body]} times" for body in known.values() if bodies[body] > 1]


CAMPAIGN = Campaign("kills of serve", "kills", 2_000, run)
