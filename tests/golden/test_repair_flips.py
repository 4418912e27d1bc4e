"""Single bits turned anywhere in log, queues and index: a repair loses and misplaces no message but the one struck."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from pathlib import Path

import pytest

from rmqtool.repairs.plan import Request
from rmqtool.repairs.run import repair, undo_repair
from rmqtool.repairs.steps import Risk
from rmqtool.store.open import open_store
from tests.support.damaged import VERSIONS, Workshop
from tests.support.recovered import Valid, unserved, valid_records
from tests.support.stores import content_digest

FEW, MANY = 2, 2000
PIECES = 8
KINDS = {"commitlog": "log", "consumequeue": "queues", "index": "index"}


def used_bytes(root: Path, valid: list[Valid]) -> dict[Path, int]:
    """Return each file of log, queues and index, and how many of its first bytes are in use."""
    end = max(record.physical_offset + record.size for record in valid)
    found = {}
    for directory in KINDS:
        for path in sorted((root / directory).rglob("*")):
            if path.is_file():
                size = path.stat().st_size
                used = (
                    min(size, end - int(path.name))
                    if directory == "commitlog"
                    else len(path.read_bytes().rstrip(b"\0"))
                )
                if used > 0:
                    found[path] = used
    return found


def check_flips(version: str, seed: str, count: int, tmp_path: Path) -> Counter[str]:
    """Turn bits one by one, repair, compare, take it back; return how many were turned in each kind of file."""
    root = tmp_path / "turned"
    shutil.copytree(Workshop(tmp_path).base(version, "S"), root)
    valid = valid_records(root)
    files = used_bytes(root, valid)
    chance = random.Random(f"flips {version} {seed}")
    turned: Counter[str] = Counter()
    for number in range(count):
        # Each kind of file gets its share, however small it is beside the log.
        kind = list(KINDS)[number % len(KINDS)]
        path = chance.choice([one for one in files if one.relative_to(root).parts[0] == kind])
        at, bit = chance.randrange(files[path]), chance.randrange(8)
        kept, before = path.read_bytes(), content_digest(path)
        data = bytearray(kept)
        data[at] ^= 1 << bit
        path.write_bytes(data)
        struck = int(path.name) + at if kind == "commitlog" else -1
        others = [r for r in valid if not r.physical_offset <= struck < r.physical_offset + r.size]
        plan = repair(lambda: open_store(str(root)), Request(risks=frozenset(Risk)))
        name = f"{version}, bit {bit} of {path.relative_to(root)} at {at}"
        after = set(valid_records(root))
        assert (name, [record for record in others if record not in after]) == (name, [])
        assert (name, unserved(root, others)) == (name, [])
        if plan.undo is not None:
            undo_repair(lambda: open_store(str(root)), plan.undo)
            shutil.rmtree(plan.undo)
        assert path.read_bytes() == bytes(data)
        path.write_bytes(kept)
        assert content_digest(path) == before
        turned[KINDS[kind]] += 1
    return turned


@pytest.mark.parametrize("version", VERSIONS)
def test_a_repair_after_a_turned_bit_loses_nothing_else(version, tmp_path):
    check_flips(version, "few", FEW, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("piece", range(PIECES))
@pytest.mark.parametrize("version", VERSIONS)
def test_a_repair_after_any_of_many_turned_bits_loses_nothing_else(version, piece, tmp_path, capsys):
    """The pieces together are ``MANY``; each can be run alone."""
    count = -(-MANY // (PIECES * len(VERSIONS)))
    turned = check_flips(version, str(piece), count, tmp_path)
    with capsys.disabled():
        print(f"\n{turned.total()} bits turned:", ", ".join(f"{many} in {kind}" for kind, many in turned.items()))
    assert turned.total() == count
