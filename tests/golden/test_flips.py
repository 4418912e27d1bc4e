"""Single bits turned in the log, those of the recovery experiments: each is found at its record, or nobody can know.

No checksum is over the head, the topic and the properties of a record. What others say of it is compared: its
neighbours, its unit, its index entries. What a producer chose freely nobody else remembers.
"""

from __future__ import annotations

import json
from functools import cache

import pytest

from tests.judged.rows import findings_of, new_findings
from tests.support.damaged import VERSIONS, Workshop
from tests.support.mutations import set_abort
from tests.support.stores import FIXTURES

FEW = 12
# By the place in the head of a record with hosts of IPv4: flag, born time, born host, how often it was consumed again.
FREE = (range(16, 20), range(40, 56), range(72, 76))
BODY_AT, MOST_UNFOUND = 88, 0.1


@cache
def flips(version):
    """Return place, bit and start of the record; bits behind the last record of a segment are nobody's."""
    with (FIXTURES / f"recovery-{version}" / "flips-A-abort.json").open(encoding="utf-8") as file:
        return [tuple(row[:3]) for row in json.load(file)["rows"] if row[2] is not None]


def look(version, rows, tmp_path):
    """Return the flips without a finding at their record, and with none at all."""
    root = Workshop(tmp_path).base(version, "A")
    set_abort(root, True)
    before = findings_of(root)
    bases = sorted(int(path.name) for path in (root / "commitlog").iterdir())
    elsewhere, unfound = [], []
    for place, bit, start in rows:
        base = max(one for one in bases if one <= place)
        path = root / "commitlog" / f"{base:020d}"
        kept = path.read_bytes()
        data = bytearray(kept)
        data[place - base] ^= 1 << bit
        path.write_bytes(data)
        found = new_findings(findings_of(root), before)
        path.write_bytes(kept)
        there = [
            one
            for one in found
            if one.file == f"commitlog/{path.name}" and one.offset <= start - base < one.offset + (one.length or 1)
        ]
        if not there:
            (elsewhere if found else unfound).append((place - start, start - base, kept))
    return elsewhere, unfound


def parts(record):
    """Return where body, topic and properties of a record begin."""
    body = int.from_bytes(record[84:88], "big")
    return BODY_AT, BODY_AT + body, BODY_AT + body + 1 + record[BODY_AT + body]


def check(version, rows, tmp_path):
    """Check the flips, and return how many nobody can find."""
    elsewhere, unfound = look(version, rows, tmp_path)
    for offset, start, data in unfound:
        properties = parts(data[start:])[2]
        assert any(offset in field for field in FREE) or offset >= properties, (offset, start)
    # Only the tags have a second witness that is no better than the record: the unit that filters use.
    for offset, start, data in elsewhere:
        assert offset >= parts(data[start:])[2]
    return len(unfound)


@pytest.mark.parametrize("version", VERSIONS)
def test_turned_bits_are_found(version, tmp_path):
    check(version, flips(version)[:: len(flips(version)) // FEW], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_all_turned_bits_are_found(version, tmp_path):
    assert check(version, flips(version), tmp_path) <= MOST_UNFOUND * len(flips(version))
