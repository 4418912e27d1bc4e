"""The table of what was tried."""

from __future__ import annotations

from collections.abc import Sequence

from tabulate import tabulate

from tests.proof.campaign import Campaign
from tests.proof.ledger import Ledger, Tried

_HEADERS = ("campaign", "tried", "of", "", "failures", "seeds", "core hours")


def table_of(ledger: Ledger, campaigns: Sequence[Campaign]) -> str:
    """Return the table; a campaign that this machine cannot do has its reason there."""
    rows = []
    for one in campaigns:
        tried, missing = ledger.tried.get(one.name, Tried()), one.missing()
        if missing is not None:
            rows.append((one.name, "", "", missing, "", "", ""))
            continue
        hours = f"{tried.seconds / 3600:.2f}"
        failures = str(len(tried.failures))
        rows.append((one.name, f"{tried.states:,}", f"{one.goal:,}", one.unit, failures, f"{tried.seeds:,}", hours))
    return tabulate(rows, _HEADERS, colalign=("left", "right", "right", "left", "right", "right", "right"))
