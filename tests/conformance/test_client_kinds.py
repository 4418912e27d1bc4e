"""What is read over the wire is what the files hold, for 100,000 messages with all kinds of bodies and properties."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conformance.live_cluster import TOPIC
from tests.conformance.own_network import run_alone

pytestmark = [pytest.mark.conformance, pytest.mark.slow, pytest.mark.timeout(1200)]

_MANY = 100_000
_CODECS = {"zlib utf8", "lz4 base64", "zstd utf8", "zlib base64", "None utf8", "None base64"}
# The broker's own services write while both are read, first over the wire: less than this.
_MEANWHILE = 50


@pytest.mark.parametrize("version", ["4.9.7", "5.3.3", "5.4.0", "serve"])
def test_cat_of_a_cluster_is_cat_of_its_files(
    version: str, real_classes: Callable[[str], None], tmp_path: Path
) -> None:
    if version != "serve":
        real_classes(version)
    out = tmp_path / "seen.json"
    run_alone("tests.conformance.live_kinds", version, tmp_path / "run", out, _MANY, timeout=1100)
    seen = json.loads(out.read_text())
    assert seen["statuses"] == [0, 0]
    assert seen["different"] == []
    assert seen["topics"][TOPIC] == seen["sent"] >= _MANY
    assert seen["count"] == f"{seen['sent']}\n"
    assert seen["topics"]["%RETRY%Back"] > 0
    assert seen["topics"]["SCHEDULE_TOPIC_XXXX"] > 0
    assert seen["codecs"].keys() >= _CODECS
    # A 4.9 broker does not list its topics of transactions in its first minute.
    assert seen["hidden"] <= (2 if version.startswith("4.") else 0)
    assert seen["lines"] > seen["sent"]
    assert 0 <= seen["more"] < _MEANWHILE
