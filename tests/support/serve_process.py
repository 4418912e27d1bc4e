"""``rmqtool serve`` as a process of its own, which a test may kill."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.waiting import PATIENCE


class ServeProcess:
    """One run of ``rmqtool serve STORE``; clients may come when it is made."""

    def __init__(self, root: Path, home: Path, *options: str, program: Sequence[str] = ("-m", "rmqtool")) -> None:
        self.home = home
        command = [sys.executable, *program, "serve", str(root), "--jsonl"]
        command += ["--names", "127.0.0.1:0", "--listen", "127.0.0.1:0", "--for", "600s", *options]
        with (home / "events").open("w") as out, (home / "errors").open("w") as errors:
            self.process = subprocess.Popen(command, cwd=home, stdout=out, stderr=errors)
        while not (said := (home / "events").read_text()).endswith("\n"):
            assert self.process.poll() is None, (home / "errors").read_text()
            time.sleep(0.02)
        self.ready: dict[str, Any] = json.loads(said.splitlines()[0])
        self.names: str = self.ready["names"]
        self.broker: str = self.ready["broker"]

    def events(self, name: str) -> list[dict[str, Any]]:
        """Return the events of a kind that it has told."""
        told = [
            json.loads(line) for line in (self.home / "events").read_text().splitlines(keepends=True) if "\n" in line
        ]
        return [event for event in told if event.get("event") == name]

    def kill(self) -> None:
        """End it by SIGKILL."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """End it in order; return its status."""
        self.process.terminate()
        return self.process.wait(PATIENCE)
