"""A real broker on a repaired store whose last delayed message is lost: delays and all topics go on."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqtool.cli import main
from rmqtool.engine.clock import SystemClock
from rmqtool.errors import Exit
from rmqtool.formats.topics import PERM_READ, PERM_WRITE
from tests.conformance.oracle.runs import read_json, run_broker
from tests.conformance.test_lives import EACH, OF_5, SETTINGS, VERSIONS, Lab

pytestmark = pytest.mark.conformance

LEVEL = 2  # five seconds


def lay(root: Path, version: str) -> int:
    """Make a store whose last delayed message has others behind it, and return where that one stands."""
    lab = Lab(root, VERSIONS[version], SystemClock())
    lab.services.topics.ensure("T", 1, PERM_READ | PERM_WRITE)
    places = [lab.put("T", f"delayed-{number}", DELAY=str(LEVEL)).physical_offset for number in range(3)]
    for number in range(3):
        lab.put("T", f"plain-{number}")
    lab.close()
    assert places[-1] is not None
    return places[-1]


@pytest.mark.parametrize("version", VERSIONS)
def test_delays_go_on_behind_one_that_is_lost(
    version: str, real_classes: Callable[[str], None], tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    real_classes(version)
    root, out, asked = tmp_path / "store", tmp_path / "out.json", tmp_path / "clients.json"
    root.mkdir()
    struck = lay(root, version)
    with (root / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(struck + 4)
        file.write(bytes(100))
    asserted = ["--as", VERSIONS[version].value, "--apply", "--allow", "primary"]
    assert main(["repair", str(root), *asserted]) == Exit.DONE
    capsysbinary.readouterr()

    clients: list[dict[str, Any]] = [
        {"consume": {"group": "g", "topic": "T", "from": "first"}},
        {"produce": {"topic": "T", "count": EACH, "keys": True, "delayLevel": LEVEL}},
        {"produce": {"topic": "T", "count": EACH, "keys": True}},
    ]
    asked.write_text(json.dumps(clients))
    settings = SETTINGS | ({} if version == "4.9.7" else {name: str(value) for name, value in OF_5.items()})
    assert run_broker(version, root, out, 20, clients=asked, settings=settings) == 0
    got = Counter(message["keys"] for message in read_json(out)["clients"][0]["messages"])
    assert got == Counter(
        ["delayed-0", "delayed-1", *(f"plain-{number}" for number in range(3))]
        + [f"key-{client}-{number}" for client in (1, 2) for number in range(EACH)]
    )
