"""Golden files: texts under ``tests/golden`` that a result must equal. RMQTOOL_UPDATE_GOLDEN=1 writes them anew."""

from __future__ import annotations

import os
from pathlib import Path

GOLDEN = Path(__file__).parents[1] / "golden"


def check_golden(name: str, text: str) -> None:
    """Compare ``text`` with the golden file ``name``, or write that file when an update was asked for."""
    path = GOLDEN / name
    if os.environ.get("RMQTOOL_UPDATE_GOLDEN") == "1":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return
    assert path.exists(), f"{path} does not exist: run with RMQTOOL_UPDATE_GOLDEN=1 and read what it wrote"
    assert text == path.read_text(encoding="utf-8"), f"{path} differs (RMQTOOL_UPDATE_GOLDEN=1 rewrites it)"
