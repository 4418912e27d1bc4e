"""The ledger: which seeds of each campaign were tried, with which result, so that runs add up.

A file of JSON beside the clone's other caches. Seeds are kept as ranges; a run takes the first that were not tried.
When the code has changed, what was tried before says little about it: the ledger begins again with another *edition*,
the digest of the package and of the campaigns, and the old counts stay in the file as history.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_SOURCES = ("rmqtool", "native", "tests/proof", "tests/support")


@dataclass
class Tried:
    """What was tried of one campaign."""

    seeds: int = 0
    states: int = 0
    seconds: float = 0.0
    failures: list[str] = field(default_factory=list)


def edition(root: Path = ROOT) -> str:
    """Return the digest of everything that a result depends on."""
    made = hashlib.blake2b(digest_size=8)
    for path in _iter_sources(root):
        made.update(str(path.relative_to(root)).encode())
        made.update(path.read_bytes())
    return made.hexdigest()


def _iter_sources(root: Path) -> Iterable[Path]:
    for name in _SOURCES:
        for path in sorted((root / name).rglob("*")):
            if path.suffix in (".py", ".c", ".h") and path.is_file():
                yield path


class Ledger:
    """What was tried of this edition; kept in a file, or only in memory."""

    def __init__(self, path: Path | None = None, of: str | None = None) -> None:
        self._path = path
        self._edition = of or edition()
        self._all: dict[str, dict[str, dict[str, object]]] = {}
        if path is not None and path.exists():
            self._all = json.loads(path.read_text(encoding="utf-8"))
        kept = self._all.get(self._edition, {})
        self.tried = {name: Tried(**values) for name, values in kept.items()}  # type: ignore[arg-type]

    def next_seed(self, name: str) -> int:
        """Return the first seed of a campaign that was not tried."""
        return self.tried.get(name, Tried()).seeds

    def note(self, name: str, states: int, seconds: float, failures: Iterable[str]) -> None:
        """Add the result of the next seed of a campaign, and keep it."""
        found = self.tried.setdefault(name, Tried())
        found.seeds += 1
        found.states += states
        found.seconds += seconds
        found.failures += failures

    def save(self) -> None:
        """Write the file; another run that ends at the same time finds the old one or the new one, never half of it."""
        if self._path is None:
            return
        self._all[self._edition] = {name: asdict(tried) for name, tried in self.tried.items()}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        new = self._path.with_suffix(f".{os.getpid()}")
        new.write_text(json.dumps(self._all, indent=1), encoding="utf-8")
        new.replace(self._path)
