"""A headless Chromium, driven over a pipe by its DevTools protocol: what a page logs, requests, looks like, answers."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.waiting import PATIENCE

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
WHY_NOT = "no Chromium is installed: chromium, chromium-browser or google-chrome"
# Messages of DevTools on errors and requests.
_COMPLAINTS = ("Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled")
_REQUEST = "Network.requestWillBeSent"


class Tab:
    """One page in the browser."""

    def __init__(self, read: int, write: int) -> None:
        self._read, self._write = read, write
        self._buffer = b""
        self._number = 0
        self.events: list[dict[str, Any]] = []
        self._session: str | None = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> Any:
        """Call a method of DevTools and return its result; events meanwhile are kept."""
        self._number += 1
        words: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            words["sessionId"] = self._session
        os.write(self._write, json.dumps(words).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            piece = os.read(self._read, 1 << 16)
            assert piece, "the browser ended"
            self._buffer += piece
        message, self._buffer = self._buffer.split(b"\0", 1)
        found: dict[str, Any] = json.loads(message)
        if "method" in found:
            self.events.append(found)
        return found

    def open(self, path: Path, width: int, scheme: str) -> None:
        """Open a file in a window of this width, in the colour scheme light or dark."""
        self.events.clear()
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("Page.navigate", url=path.as_uri())
        until = time.monotonic() + PATIENCE
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            assert time.monotonic() < until, "the page did not load"
            self._next()

    def ask(self, expression: str) -> Any:
        """Return the value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def complaints(self) -> list[dict[str, Any]]:
        """Return what the page logged, and its errors."""
        return [event["params"] for event in self.events if event["method"] in _COMPLAINTS]

    def requests(self) -> list[str]:
        """Return the addresses that were asked for."""
        return [event["params"]["request"]["url"] for event in self.events if event["method"] == _REQUEST]

    def picture(self, path: Path) -> None:
        """Write a picture of the page."""
        shown = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shown["data"]))


@contextlib.contextmanager
def opened_tab() -> Iterator[Tab]:
    """Start a browser with one page; it ends with the context."""
    assert BROWSER is not None, WHY_NOT
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    with tempfile.TemporaryDirectory() as profile:
        # DevTools reads from descriptor 3 and writes to 4.
        words = f'exec "$0" "$@" 3<&{theirs_in} 4>&{theirs_out}'
        options = (
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--remote-debugging-pipe",
            f"--user-data-dir={profile}",
        )
        started = subprocess.Popen(
            ["/bin/bash", "-c", words, BROWSER, *options],
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        try:
            yield Tab(ours_in, ours_out)
        finally:
            started.terminate()
            started.wait()
            os.close(ours_in)
            os.close(ours_out)
            time.sleep(0.2)
