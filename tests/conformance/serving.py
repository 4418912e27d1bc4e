"""``rmqtool serve`` as a process of its own, for clients of a test."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def serve(home: Path, *options: str) -> Iterator[str]:
    """Serve a store in memory; give the address of the name server. It must end well and tell of no error."""
    command = [sys.executable, "-m", "rmqtool", "serve", "--memory", "--jsonl", "--names", "127.0.0.1:0", *options]
    events, errors = home / "events", home / "errors"
    with events.open("w") as out, errors.open("w") as problems:
        process = subprocess.Popen(command, cwd=home, stdout=out, stderr=problems)
    try:
        while not (lines := events.read_text().splitlines(keepends=True)) or not lines[0].endswith("\n"):
            assert process.poll() is None, errors.read_text()
            time.sleep(0.05)
        yield json.loads(lines[0])["names"]
        process.terminate()
        assert process.wait(60) == 0, errors.read_text()
    finally:
        process.kill()
        process.wait()
    told = map(json.loads, events.read_text().splitlines())
    assert [event for event in told if event.get("event") == "error"] == []
