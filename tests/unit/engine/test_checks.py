"""Every numbered check of the behaviour of a store is a test that names it; what does not apply here is listed."""

from __future__ import annotations

import re
from pathlib import Path

UNIT = Path(__file__).resolve().parent.parent
# Section: how many checks it has. 1 lifecycle, 2 put, 3 segments, 4 flush, 5 dispatch, 6 recovery, 7 reading,
# 10 filters, 11 retention.
CHECKS = {1: 10, 2: 16, 3: 8, 4: 8, 5: 10, 6: 22, 7: 18, 10: 18, 11: 11}
_NETWORK = "a pull that is held until a message comes: of a broker that answers over a network"
NOT_APPLICABLE = {"C7.16": _NETWORK, "C7.17": _NETWORK}
# "C6.1" in a comment or a docstring, "c6_1" in the name of a test; "to" between two names a range.
_NAME = re.compile(r"(?<![0-9a-z])c(\d+)[._](\d+)(?:_to_c\d+_(\d+))?", re.IGNORECASE)


def named_checks(text: str) -> set[str]:
    """Return the checks that the tests of a module name; its heading names a range, which does not count."""
    _, _, tests = text.partition('"""\n\n')
    found = set()
    for section, first, last in _NAME.findall(tests.replace("_c", " c").replace("_to c", "_to_c")):
        found |= {f"C{section}.{number}" for number in range(int(first), int(last or first) + 1)}
    return found


def test_names_are_read() -> None:
    heading = '"""The checks C1.1 to C1.9."""\n\n'
    text = heading + 'def test_c6_1_and_c6_2_a():\n    """C3.8."""\ndef test_c7_13_to_c7_15_b(): ...'
    assert named_checks(text) == {"C6.1", "C6.2", "C3.8", "C7.13", "C7.14", "C7.15"}


def test_every_check_is_named_by_a_test() -> None:
    named: set[str] = set()
    for directory in (UNIT / "engine", UNIT / "filters", UNIT / "formats"):
        for path in directory.glob("test_*.py"):
            if path != Path(__file__):
                named |= named_checks(path.read_text(encoding="utf-8"))
    expected = {f"C{section}.{number}" for section, count in CHECKS.items() for number in range(1, count + 1)}
    assert {name for name in named if int(name[1:].partition(".")[0]) in CHECKS} == expected - NOT_APPLICABLE.keys()
