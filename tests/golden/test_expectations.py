"""``check`` against the table of expectations: a row for every damaged variant of the recovery catalogues."""

from __future__ import annotations

import pytest

from tests.judged.rows import CONFIG_VERSIONS, Judge, catalogue, missed, rows
from tests.support.damaged import VERSIONS

ALL = (*VERSIONS, *CONFIG_VERSIONS)
# At most so many of a hundred rows may say that nothing can be found.
UNDETECTABLE = 5


@pytest.mark.parametrize("version", ALL)
def test_every_variant_has_one_row(version):
    mine = [row.variant for row in rows() if row.version == version]
    assert sorted(mine) == sorted(catalogue(version))


def test_every_fault_has_one_expectation():
    for row in rows():
        assert len(row.faults) == len(catalogue(row.version)[row.variant].operations), row.variant
        for fault in row.faults:
            assert len({"code", "undetectable", "unused"} & fault.keys()) == 1, row.variant
            assert all(fault.get(key, True) for key in ("undetectable", "unused")), row.variant


def test_few_variants_are_undetectable():
    assert 100 * sum(row.is_undetectable for row in rows()) <= UNDETECTABLE * len(rows())


@pytest.mark.slow
@pytest.mark.parametrize("version", ALL)
def test_every_expectation_is_met(version, tmp_path):
    judge, known = Judge(tmp_path), catalogue(version)
    mine = [row for row in rows() if row.version == version]
    assert [
        line for row in mine for line in missed(row, known[row.variant], judge.find(version, known[row.variant]))
    ] == []
