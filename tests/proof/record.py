"""The record: what was tried of each edition, kept in the repository (``record.json``), so that clones add up too.

A row is what one clone's ledger tried of one campaign: edition, commit, day, and ``Tried``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

RECORD = Path(__file__).with_name("record.json")


@dataclass
class Tried:
    """What was tried of one campaign: so many seeds from ``first`` on."""

    first: int = 0
    seeds: int = 0
    states: int = 0
    seconds: float = 0.0
    failures: list[str] = field(default_factory=list)


@dataclass
class Row:
    """What was tried of one campaign in one clone of an edition."""

    edition: str
    commit: str
    day: str
    campaign: str
    tried: Tried


class Record:
    """The rows; of one edition, campaign and first seed there is one, the last that was added."""

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self._rows = {(row.edition, row.campaign, row.tried.first): row for row in rows}

    @classmethod
    def read(cls, path: Path = RECORD) -> Record:
        """Return the record in a file; an empty one where there is no file."""
        if not path.exists():
            return cls()
        rows = json.loads(path.read_text(encoding="utf-8"))
        return cls(Row(**{**row, "tried": Tried(**row["tried"])}) for row in rows)

    def add(self, rows: Iterable[Row]) -> None:
        """Add rows, each in the place of an older one of the same run."""
        self._rows |= {(row.edition, row.campaign, row.tried.first): row for row in rows}

    def write(self, path: Path = RECORD) -> None:
        """Write the file, rows sorted by day."""
        rows = sorted(self._rows.values(), key=lambda row: (row.day, row.edition, row.campaign, row.tried.first))
        path.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n", encoding="utf-8")

    def end(self, campaign: str) -> int:
        """Return the first seed of a campaign that no edition has tried."""
        return max((row.tried.first + row.tried.seeds for row in self._of(campaign)), default=0)

    def others(self, campaign: str, edition: str, first: int) -> Tried:
        """Return what was tried of a campaign in all, but for the run that began with ``first``."""
        rows = [row.tried for row in self._of(campaign) if (row.edition, row.tried.first) != (edition, first)]
        seeds, states = sum(tried.seeds for tried in rows), sum(tried.states for tried in rows)
        return Tried(
            0, seeds, states, sum(tried.seconds for tried in rows), [x for tried in rows for x in tried.failures]
        )

    def _of(self, campaign: str) -> list[Row]:
        return [row for row in self._rows.values() if row.campaign == campaign]
