"""What producers of a real SYNC_MASTER are told beside a mirror: its acknowledgement is a promise about its disk."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conformance.live_sync_master import SLOW
from tests.conformance.own_network import run_alone

pytestmark = pytest.mark.conformance

TIMEOUT, NOT_AVAILABLE = {"FLUSH_SLAVE_TIMEOUT"}, {"SLAVE_NOT_AVAILABLE"}


@pytest.mark.parametrize("version", ["5.3.3", "4.9.7", "5.4.0"])
def test_what_is_acknowledged_is_durable(version: str, real_classes: Callable[[str], None], tmp_path: Path) -> None:
    if shutil.which("strace") is None:
        pytest.skip("strace makes syncs slow, and lets them fail")
    real_classes(version)
    out = tmp_path / "seen.json"
    run_alone("tests.conformance.live_sync_master", version, tmp_path / "run", out, timeout=280)
    seen = json.loads(out.read_text())
    said = {name: {status for status, _ in seen[name]} for name in ("alone", "never", "durable", "slow", "failing")}
    # A 4.9 master takes each connection for a slave, whatever it reports, and waits for it: this is told.
    assert said["alone"] == (NOT_AVAILABLE if version == "4.9.7" else TIMEOUT)
    assert said["never"] == TIMEOUT
    assert ("waits for each connection" in seen["notes"]) == (version == "4.9.7")
    assert said["durable"] == {"PUT_OK"}
    # No message is acknowledged before a sync that began after it came.
    assert "PUT_OK" in said["slow"]
    assert min(seconds for status, seconds in seen["slow"] if status == "PUT_OK") >= SLOW
    assert "PUT_OK" not in said["failing"]
    assert (seen["status of never"], seen["status of failing"]) == (0, 7), seen["errors"]
