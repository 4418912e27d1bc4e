"""The ledger: which seeds of each campaign were tried, with which result, so that runs add up.

A file of JSON beside the clone's other caches. An *edition* is the digest of the package and of the campaigns: when the
code has changed, what was tried before says less about it, so each edition is counted by itself. Each begins with the
first seed that no edition in the record (``record``) has tried, so that all of them together try more than one alone.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.proof.record import Record, Row, Tried

ROOT = Path(__file__).resolve().parents[2]
_SOURCES = ("rmqtool", "native", "tests/proof", "tests/support")


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

    def __init__(self, path: Path | None = None, of: str | None = None, record: Record | None = None) -> None:
        self._path = path
        self._edition = of or edition()
        self.record = record or Record()
        self.tried = self._kept()
        # Campaigns whose entries are newer here than in the file.
        self._changed: set[str] = set()

    def _read(self) -> dict[str, dict[str, dict[str, Any]]]:
        if self._path is None or not self._path.exists():
            return {}
        found: dict[str, dict[str, dict[str, Any]]] = json.loads(self._path.read_text(encoding="utf-8"))
        return found

    def _kept(self) -> dict[str, Tried]:
        return {name: Tried(**values) for name, values in self._read().get(self._edition, {}).items()}

    @contextmanager
    def turn(self, name: str) -> Iterator[bool]:
        """Have a campaign to oneself; gives False where another process has it.

        Its entry is kept at the end, also where the turn is interrupted.
        """
        if self._path is None:
            yield True
            return
        with _locked(self._path.with_name(f"{name.replace(' ', '-')}.lock"), wait=False) as is_mine:
            if is_mine:
                self.tried |= self._kept()
            try:
                yield is_mine
            finally:
                if is_mine:
                    self.save()

    def next_seed(self, name: str) -> int:
        """Return the first seed of a campaign that was not tried."""
        tried = self._of(name)
        return tried.first + tried.seeds

    def before(self, name: str) -> Tried:
        """Return what other editions and other clones have tried of a campaign."""
        return self.record.others(name, self._edition, self._of(name).first)

    def states(self, name: str) -> int:
        """Return how many states of a campaign were tried in all."""
        return self.before(name).states + self._of(name).states

    def rows(self, commit: str, day: str) -> list[Row]:
        """Return what was tried here, for the record."""
        return [Row(self._edition, commit, day, name, tried) for name, tried in sorted(self.tried.items())]

    def _of(self, name: str) -> Tried:
        return self.tried.get(name) or Tried(first=self.record.end(name))

    def note(self, name: str, states: int, seconds: float, failures: Iterable[str]) -> None:
        """Add the result of the next seed of a campaign, and keep it."""
        found = self.tried.setdefault(name, self._of(name))
        found.seeds += 1
        found.states += states
        found.seconds += seconds
        found.failures += failures
        self._changed.add(name)

    def save(self) -> None:
        """Write what has changed into the file; what other processes wrote of other campaigns stays.

        Who reads at the same time finds the old file or the new one, never half of it.
        """
        if self._path is None:
            return
        with _locked(self._path.with_name("ledger.lock"), wait=True):
            whole = self._read()
            whole.setdefault(self._edition, {}).update({name: asdict(self.tried[name]) for name in self._changed})
            new = self._path.with_suffix(f".{os.getpid()}")
            new.write_text(json.dumps(whole, indent=1), encoding="utf-8")
            new.replace(self._path)
        self._changed.clear()


@contextmanager
def _locked(path: Path, *, wait: bool) -> Iterator[bool]:
    """Hold a lock between processes; give False where another has it and nobody waits."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
            return
        yield True
