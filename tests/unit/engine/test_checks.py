"""Every numbered check of the behaviour of a store is a test that names it; what does not apply here is listed."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).resolve().parent
# Section: how many checks it has. 1 lifecycle, 2 put, 3 segments, 4 flush, 5 dispatch.
CHECKS = {1: 10, 2: 16, 3: 8, 4: 8, 5: 10}
# All of them apply: those of networks, replication and virtual machines stand in other sections.
NOT_APPLICABLE: dict[str, str] = {}


def test_every_check_is_named_by_a_test() -> None:
    named = set()
    for path in HERE.glob("test_*.py"):
        # The heading of a module names a range; a test names its own.
        _, _, tests = path.read_text(encoding="utf-8").partition("\ndef ")
        named |= set(re.findall(r"\bC[1-5]\.\d+\b", tests))
    expected = {f"C{section}.{number}" for section, count in CHECKS.items() for number in range(1, count + 1)}
    assert named == expected - NOT_APPLICABLE.keys()
