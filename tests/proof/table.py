"""The table of what was tried."""

from __future__ import annotations

from collections.abc import Sequence

from tabulate import tabulate

from tests.proof.campaign import Campaign
from tests.proof.ledger import Ledger, Tried

_HEADERS = ("campaign", "this edition", "in all", "of", "", "failures", "seeds", "core hours")


def table_of(ledger: Ledger, campaigns: Sequence[Campaign]) -> str:
    """Return the table; a campaign that this machine cannot do has its reason there.

    Failures are those of this edition: what failed in earlier ones is in the record, and was mended.
    """
    rows = []
    for one in campaigns:
        tried, before, missing = ledger.tried.get(one.name, Tried()), ledger.before(one.name), one.missing()
        if missing is not None and not tried.seeds + before.seeds:
            rows.append((one.name, "", "", "", missing, "", "", ""))
            continue
        counts = (tried.states, before.states + tried.states, one.goal)
        hours = f"{(before.seconds + tried.seconds) / 3600:.2f}"
        seeds = f"{before.seeds + tried.seeds:,}"
        rows.append((one.name, *(f"{count:,}" for count in counts), one.unit, f"{len(tried.failures)}", seeds, hours))
    aligned = ("left", "right", "right", "right", "left", "right", "right", "right")
    return tabulate(rows, _HEADERS, colalign=aligned)
