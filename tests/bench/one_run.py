"""One run of the tool in a process of its own, and what it cost."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from rmqtool.errors import Exit

# The process tells its own peak: what wait4 tells is never less than what the process that started it held.
_TOOL = """
import sys
from rmqtool.cli import main
status = main(sys.argv[2:])
peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
open(sys.argv[1], "w").write(peak)
sys.exit(status)
"""


# An installed tool has its modules compiled; so has the one that is measured, whatever this environment says.
AS_INSTALLED = {
    **os.environ,
    "PYTHONPYCACHEPREFIX": str(Path(tempfile.gettempdir()) / "rmqtool-compiled"),
    "PYTHONDONTWRITEBYTECODE": "",
}


class Cost(NamedTuple):
    """Of one run: seconds on the clock, seconds of processors, MiB."""

    wall: float
    processor: float
    memory: float


def run_tool(expected: Exit, *words: object) -> Cost:
    """Run the tool, which must end with a status."""
    with tempfile.TemporaryDirectory() as directory:
        peak = Path(directory) / "peak"
        command = [sys.executable, "-c", _TOOL, str(peak), *map(str, words)]
        quiet = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_WRONLY, 0) for number in (1, 2)]
        start = time.monotonic()
        process = os.posix_spawn(sys.executable, command, AS_INSTALLED, file_actions=quiet)
        _, status, usage = os.wait4(process, 0)
        wall = time.monotonic() - start
        assert os.waitstatus_to_exitcode(status) == expected, words
        return Cost(wall, usage.ru_utime + usage.ru_stime, int(peak.read_text()) / 1024)
