"""The shell is light: help and version load nothing heavy and start nearly as fast as Python itself."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from rmqtool.commands.table import COMMANDS
from tests.cli.sample_commands import TABLE
from tests.support.waiting import PATIENCE

HEAVY = {"numpy", "pyarrow", "pyspark", "construct", "crcmod", "rich", "tabulate", "lz4", "zstandard", "asyncio"}
START = "import sys; from rmqtool.cli import main; from tests.cli.sample_commands import TABLE; "


def modules_after(code: str, **variables: str) -> tuple[set[str], str]:
    """Return the names of the modules loaded by ``code`` in a fresh interpreter, and what it printed."""
    told = "; import atexit; atexit.register(lambda: sys.stderr.write('\\n'.join(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", "import sys" + told + "; " + code],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        env={**os.environ, **variables},
    )
    return set(done.stderr.splitlines()), done.stdout


def test_importing_the_package_loads_next_to_nothing() -> None:
    modules, _ = modules_after("import rmqtool")
    assert {name for name in modules if name.startswith("rmqtool")} == {"rmqtool"}


@pytest.mark.parametrize("word", ["--help", "--version", "-h"])
def test_help_and_version_load_no_command_and_nothing_heavy(word: str) -> None:
    modules, out = modules_after(f"from rmqtool.cli import main; main(['{word}'])")
    assert out
    ours = {name for name in modules if name.startswith("rmqtool")}
    assert ours == {"rmqtool", "rmqtool.cli", "rmqtool.commands", "rmqtool.commands.table", "rmqtool.errors"}
    assert {name.partition(".")[0] for name in modules} & HEAVY == set()


def test_help_lists_a_command_whose_module_does_not_even_exist() -> None:
    _, out = modules_after(START + "main(['--help'], TABLE)")
    assert "a module that must not be imported" in out


def test_every_command_of_the_real_table_can_be_loaded() -> None:
    names = [entry.name for entry in COMMANDS]
    assert len(names) == len(set(names))
    for entry in COMMANDS:
        done = subprocess.run(
            [sys.executable, "-m", "rmqtool", entry.name, "--help"], capture_output=True, timeout=PATIENCE, check=False
        )
        assert done.returncode == 0, (entry, done.stderr)


def processor_seconds(*arguments: str) -> float:
    """Return the processor time of one run: unlike the clock on the wall it is the same on a busy machine."""
    process = os.posix_spawn(
        sys.executable,
        [sys.executable, *arguments],
        os.environ,
        file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)],
    )
    _, status, usage = os.wait4(process, 0)
    assert status == 0
    return usage.ru_utime + usage.ru_stime


@pytest.mark.parametrize("word", ["--help", "--version"])
def test_start_up_is_at_most_eight_bare_interpreters(word: str) -> None:
    """The best of several runs counts, taken in turns: what the work takes when nobody else disturbs either."""
    bare = ours = 60.0
    for run in range(20):
        bare = min(bare, processor_seconds("-c", "pass"))
        ours = min(ours, processor_seconds("-m", "rmqtool", word))
        if run >= 5 and ours <= 8 * bare:
            return
    pytest.fail(f"{word} takes {ours / bare:.1f} times a bare interpreter")


def test_no_thread_of_numpy_spins_beside_a_command() -> None:
    told = "import os; code = main(); import numpy; print(code, len(os.listdir('/proc/self/task')))"
    words = "import sys; sys.argv = ['rmqtool', 'demo', '--help']; from rmqtool.__main__ import main; "
    known = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    done = subprocess.run(
        [sys.executable, "-c", words + told], capture_output=True, text=True, timeout=PATIENCE, check=True, env=known
    )
    assert done.stdout.splitlines()[-1] == "0 1"


def test_the_sample_table_uses_every_panel() -> None:
    assert len({entry.panel for entry in TABLE}) == 4
