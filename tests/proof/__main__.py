"""Try to break rmqtool: ``python -m tests.proof [CAMPAIGN ...] [--minutes N] [--seeds N ...] [--canaries] [--record]``.

Campaigns take turns, each with the first seed that was not tried yet, until the time is over; those that have reached
their goal wait for the others. The table and the failures come at the end, and the status is 1 if there were any.
Several runs at once share the campaigns. ``--seeds`` runs some seeds of the campaigns again and leaves the ledger
alone. ``--canaries`` breaks the engine on purpose instead, and fails where that is not noticed. ``--record`` tries
nothing: it adds what the ledger has of this edition, or that of another clone, to the record.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.proof import (
    crashes,
    cuts,
    disk_images,
    faults,
    kills,
    mirrored,
    mutants,
    recorded,
    sectors,
    served,
    starts,
    works,
)
from tests.proof.campaign import Campaign
from tests.proof.canaries import CANARIES, PUBLISHED, STARTED, hunt
from tests.proof.ledger import ROOT, Ledger, edition
from tests.proof.record import Record
from tests.proof.table import table_of
from tests.proof.workshop import workshop

CAMPAIGNS: tuple[Campaign, ...] = (
    crashes.CAMPAIGN,
    recorded.CAMPAIGN,
    works.CAMPAIGN,
    faults.CAMPAIGN,
    kills.KILLS,
    kills.SIGNALS,
    sectors.CAMPAIGN,
    mutants.CAMPAIGN,
    cuts.CAMPAIGN,
    disk_images.CAMPAIGN,
    served.CAMPAIGN,
    mirrored.CAMPAIGN,
    starts.CAMPAIGN,
)
_KEPT = Path(".proof") / "ledger.json"
LEDGER = ROOT / _KEPT
# Long enough that starting a campaign's stores does not count, short enough that all have had their turn soon.
_TURN_SECONDS = 20
_SHOWN = 20


def main(words: Sequence[str]) -> int:
    """Run what is asked for; return the exit status."""
    asked = _parsed(words)
    chosen = [one for one in CAMPAIGNS if not asked.campaign or any(word in one.name for word in asked.campaign)]
    _keep_bytecode()
    if asked.canaries:
        return _hunt_all()
    if asked.seeds:
        return _show_seeds(chosen, asked.seeds)
    if asked.record:
        return _keep_record(Path(asked.record), chosen)
    ledger = Ledger() if asked.forget else Ledger(LEDGER, record=Record.read())
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        _take_turns(ledger, chosen, time.monotonic() + 60 * asked.minutes)
    except KeyboardInterrupt:
        print("interrupted: the seeds that were done are in the ledger")
    print(table_of(ledger, chosen))
    return _show(failure for tried in ledger.tried.values() for failure in tried.failures)


def _keep_bytecode() -> None:
    """Let the interpreters that campaigns start compile the modules once, also where no bytecode is to be written."""
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
        os.environ.setdefault("PYTHONPYCACHEPREFIX", str(workshop() / "bytecode"))


def _parsed(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.proof", description=__doc__)
    parser.add_argument("campaign", nargs="*", help="words of names; without any, all campaigns")
    parser.add_argument("--minutes", type=float, default=float(os.environ.get("PROOF_MINUTES", "60")))
    parser.add_argument("--seeds", type=int, nargs="+")
    parser.add_argument("--canaries", action="store_true")
    parser.add_argument(
        "--record", nargs="?", const=ROOT, metavar="CLONE", help="keep what was tried (here) in the record"
    )
    parser.add_argument("--forget", action="store_true", help="begin with seed 0, and keep nothing")
    return parser.parse_args(words)


def _keep_record(clone: Path, chosen: Sequence[Campaign]) -> int:
    """Add what was tried in a clone to the record, and show the table with it."""
    record = Record.read()
    ledger = Ledger(clone / _KEPT, of=edition(clone), record=record)
    commit = subprocess.run(
        ["git", "-C", str(clone), "rev-parse", "--short=8", "HEAD"], check=True, capture_output=True, text=True
    ).stdout.strip()
    record.add(ledger.rows(commit, time.strftime("%Y-%m-%d", time.gmtime())))
    record.write()
    print(table_of(ledger, chosen))
    return 0


def _take_turns(ledger: Ledger, chosen: Sequence[Campaign], deadline: float) -> None:
    able = [one for one in chosen if one.missing() is None]
    while able and time.monotonic() < deadline:
        behind = [one for one in able if ledger.states(one.name) < one.goal]
        others = [one for one in able if one not in behind]
        # Where other runs have all that are behind, the time goes into the others.
        if not (_take_round(ledger, behind, deadline) or _take_round(ledger, others, deadline)):
            time.sleep(1)


def _take_round(ledger: Ledger, campaigns: Sequence[Campaign], deadline: float) -> bool:
    """Give each campaign a turn that no other run has; return whether there was one."""
    worked = False
    for one in campaigns:
        with ledger.turn(one.name) as is_mine:
            until = min(time.monotonic() + _TURN_SECONDS, deadline)
            while is_mine and time.monotonic() < until:
                try_next(ledger, one)
                worked = True
        tried = ledger.tried.get(one.name)
        if is_mine and tried is not None:
            print(f"{one.name}: {tried.states:,} {one.unit}, {len(tried.failures)} failures", flush=True)
    return worked


def try_next(ledger: Ledger, campaign: Campaign) -> None:
    """Try the next seed of a campaign, and note it."""
    began = _processor_seconds()
    outcome = campaign.run(ledger.next_seed(campaign.name))
    seconds = _processor_seconds() - began + outcome.seconds_elsewhere
    ledger.note(campaign.name, outcome.states, seconds, outcome.failures)


def _processor_seconds() -> float:
    """Return what this process and its children used: a machine that is shared tells nothing by its clock."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def _hunt_all() -> int:
    missed = 0
    published = PUBLISHED if works.missing() is None else ()
    for canary in (*CANARIES, *([STARTED] if starts.missing() is None else []), *published):
        caught = hunt(canary, range(1)) if canary in published else hunt(canary)
        missed += caught is None
        print(f"{canary.word}: " + (f"after {caught.states} states: {caught.failure}" if caught else "NOT NOTICED"))
    return 1 if missed else 0


def _show_seeds(chosen: Sequence[Campaign], seeds: Sequence[int]) -> int:
    """Run some seeds, and leave the ledger alone."""
    outcomes = [one.run(seed) for one in chosen for seed in seeds]
    print(f"{sum(one.states for one in outcomes)} states")
    return _show(failure for one in outcomes for failure in one.failures)


def _show(failures: object) -> int:
    found = list(failures)  # type: ignore[call-overload]
    for failure in found[:_SHOWN]:
        print(failure)
    if len(found) > _SHOWN:
        print(f"and {len(found) - _SHOWN} more")
    return 1 if found else 0


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    sys.exit(main(sys.argv[1:]))
