"""Damaged stores on demand: every mutation of the recovery catalogues, applied to a copy of its base."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark import ParameterSet

from tests.support.mutations import Mutation, apply_mutation, read_catalogue
from tests.support.stores import read_lines, unpack

VERSIONS = ("4.9.8", "5.3.3", "5.4.0")
CATALOGUES = (("mutations.jsonl", "outcomes.jsonl.xz"), ("mutations-fuzz.jsonl", "outcomes-fuzz.jsonl.xz"))


@cache
def outcomes(version: str) -> dict[str, dict[str, Any]]:
    """Return what was recorded, by mutation; what depends on the damage alone is the same with and without abort."""
    found: dict[str, dict[str, Any]] = {}
    for _, file in CATALOGUES:
        for outcome in read_lines(f"recovery-{version}/{file}"):
            found.setdefault(outcome["id"].rpartition("/")[0], outcome)
    return found


def mutations(version: str) -> dict[str, Mutation]:
    """Return every mutation of a version that has an outcome."""
    folder = f"recovery-{version}"
    every = {**read_catalogue(folder), **read_catalogue(folder, CATALOGUES[1][0])}
    return {key: mutation for key, mutation in every.items() if key in outcomes(version)}


def sample(version: str, count: int, seed: int = 1) -> list[str]:
    """Return the keys of a seeded sample of a version's mutations."""
    keys = sorted(mutations(version))
    return sorted(random.Random(f"{version}-{seed}").sample(keys, min(count, len(keys))))


def in_turn(names: Iterable[str]) -> list[ParameterSet]:
    """Return every name with every version: with one of them in turn by default, with all in the long run."""
    return [
        pytest.param(version, name, marks=() if place == number % len(VERSIONS) else pytest.mark.slow)
        for number, name in enumerate(names)
        for place, version in enumerate(VERSIONS)
    ]


class Workshop:
    """Bases unpacked once, and one place where a damaged copy is made and thrown away."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def base(self, version: str, base: str) -> Path:
        """Return the undamaged base."""
        target = self.directory / f"{version}-{base}"
        if not target.exists():
            target.mkdir()
            unpack(f"recovery-{version}/base-{base}", target)
        return target / "store"

    @contextmanager
    def damaged(self, version: str, mutation: Mutation, *, abort: bool) -> Iterator[Path]:
        """Give a damaged copy of the mutation's base for a while."""
        copy = self.directory / "copy"
        shutil.copytree(self.base(version, mutation.base), copy)
        try:
            apply_mutation(copy, mutation, abort=abort)
            yield copy
        finally:
            shutil.rmtree(copy)
