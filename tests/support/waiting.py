"""How tests wait for other threads and processes.

No test is about how long something takes: a deadline only ends a test that hangs. So all tests have the same, and it
is so long that a machine with much other work keeps it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

PATIENCE = 60.0
_PAUSE = 0.005


def wait_for(is_so: Callable[[], object], what: str = "it never came true") -> None:
    """Return when something is so that others bring about."""
    end = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < end, what
        time.sleep(_PAUSE)


def wait_for_end(*threads: threading.Thread) -> None:
    """Return when these threads have ended."""
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive(), f"{thread.name} does not end"


async def come_true(is_so: Callable[[], object], what: str = "it never came true") -> None:
    """Return when something is so that other tasks of the loop bring about."""
    end = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < end, what
        await asyncio.sleep(_PAUSE)


def run(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a test's coroutine, and end one that waits in vain."""
    return asyncio.run(asyncio.wait_for(work, 2 * PATIENCE))
