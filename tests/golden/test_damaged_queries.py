"""Damaged stores: every message that the damage left alone is found, and what is not found is not proven away."""

from __future__ import annotations

import pytest

from rmqtool.filters.wanted import Wanted
from rmqtool.look.lookup import Lookup
from rmqtool.look.question import QuestionKind, ask
from rmqtool.store.open import open_store
from tests.golden.texts import RawRecord, records
from tests.support.damaged import VERSIONS, Workshop, mutations, sample

SAMPLE = 5
ASKED = 12


@pytest.fixture(scope="module")
def workshop(tmp_path_factory):
    return Workshop(tmp_path_factory.mktemp("damaged"))


def properties(record: RawRecord) -> dict[str, str]:
    pairs = (pair.split(b"\x01", 1) for pair in record.properties.split(b"\x02") if b"\x01" in pair)
    return {name.decode(): value.decode("utf-8", "replace") for name, value in pairs}


def log_files(root):
    directory = root / "commitlog"
    names = sorted(directory.iterdir()) if directory.is_dir() else []
    return {path.name: path.read_bytes() for path in names if path.is_file() and path.name.isdecimal()}


def untouched(base, copy, size):
    """Return the unique keys of the base's messages, each with its places, whose bytes are where they were."""
    before, after = log_files(base), log_files(copy)
    found = {}
    whole = records(base)
    for place, record in whole.items():
        name = f"{place - place % size:020d}"
        length = sum(map(len, record)) + 60  # more than the head of a record that is not in its parts
        at = place % size
        same = before[name][at : at + length] == after.get(name, b"")[at : at + length]
        key = properties(record).get("UNIQ_KEY")
        if same and key:
            found.setdefault(key, []).append(place)
    return found


@pytest.mark.parametrize("abort", [False, True])
@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_left_is_found(version, abort, workshop):
    known = mutations(version)
    for name in sample(version, SAMPLE, seed=5 + abort):
        mutation = known[name]
        base = workshop.base(version, mutation.base)
        with workshop.damaged(version, mutation, abort=abort) as copy, open_store(str(copy)) as opened:
            sizes = {path.stat().st_size for path in (base / "commitlog").iterdir()}
            left = untouched(base, copy, max(sizes))
            keys = sorted(left)[:: max(len(left) // ASKED, 1)]
            for key in keys:
                answer = Lookup(opened, Wanted()).find(ask(key, QuestionKind.UNIQ_KEY, int))
                assert set(left[key]) <= set(answer.places), (name, key, answer.searched)
