"""Workers as copies of a process with one thread, and what becomes of them; each time seen by a process of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

_START = """
import os, sys, threading
from contextlib import closing
from rmqtool.log.workers import can_copy, load_without_threads, run_in_order

def children():
    return [int(word) for word in open(f"/proc/self/task/{os.getpid()}/children").read().split()]

def command(pid):
    return open(f"/proc/{pid}/cmdline", "rb").read().split(b"\\0")

def squared(task, write):
    write(b"%d\\n" % task)
    return task * task
"""


def run(script: str, *words: object, status: int = 0) -> str:
    """Run a script that begins as above; return what it prints."""
    command = [sys.executable, "-c", _START + script, *map(str, words)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == status, done.stderr
    assert not done.stderr
    return done.stdout


def test_copies_know_what_only_their_caller_knows():
    """A function of the script is unknown to a process that was started anew."""
    said = run("""
with closing(run_in_order(squared, range(7), 2)) as results:
    for done in results:
        print(done.value, bytes(done.data), len(children()), all(command(pid) == command("self") for pid in children()))
print(children())
""")
    lines = [f"{number * number} {b'%d' % number + bytes([10])!r} 2 True" for number in range(7)]
    assert said.splitlines()[1:] == [*lines[1:], "[]"]
    assert said.splitlines()[0] == lines[0]


def test_a_process_with_threads_is_not_copied():
    said = run("""
import operator
stop = threading.Event()
threading.Thread(target=stop.wait).start()
with closing(run_in_order(operator.is_not, range(3), 1)) as results:
    print(next(results).value, can_copy(), [b"rmqtool.log.workers" in command(pid) for pid in children()])
stop.set()
""")
    assert said == "True False [True]\n"


def test_a_copy_has_nothing_open_but_its_own_and_takes_no_signals(tmp_path):
    said = run(
        """
import signal
signal.signal(signal.SIGTERM, print)
kept = open(sys.argv[1], "w")
def look(task, write):
    names = [os.readlink(f"/proc/self/fd/{number}") for number in (0, 1)]
    numbers = [number for number in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{number}")]
    kinds = [os.readlink(f"/proc/self/fd/{number}").partition(":")[0].split(" ")[0] for number in numbers]
    return names, sorted(kinds[2:]), os.getsid(0) == os.getpid(), signal.getsignal(signal.SIGTERM).name
with closing(run_in_order(look, range(2), 2)) as results:
    for done in results:
        print(*done.value)
""",
        tmp_path / "kept",
    )
    one, two = said.splitlines()
    assert one == two
    assert one.startswith("['/dev/null', '/dev/null'] ")
    assert str(tmp_path) not in one
    assert one.count("memfd") == 2
    assert one.count("socket") == 1
    assert one.endswith("True SIG_DFL")


def test_large_results_of_all_sizes_are_read_through_few_maps():
    """Two processes with two files each: a map is made for the first result of a file, and for each larger one."""
    said = run("""
import mmap
from rmqtool.log import workers as pool
made = []
class Counted(mmap.mmap):
    def __init__(self, *words):
        made.append(self)
pool.mmap.mmap = Counted
sizes = [(2 << 20) + 5, 1 << 20, 3 << 20, 7, *[(3 << 20) + 1] * 8, 1 << 20, (3 << 20) - 1, 2 << 20, 5]
def fill(task, write):
    write(bytes([task]) * (sizes[task] - 3))
    write(b"end")
for number, done in enumerate(run_in_order(fill, range(len(sizes)), 2)):
    assert bytes(done.data) == bytes([number]) * (sizes[number] - 3) + b"end", number
print(number + 1, len(made))
""")
    assert said == "16 7\n"


@pytest.mark.parametrize(("how", "text"), [("os.kill(os.getpid(), 9)", "was killed by signal 9"), ("os._exit(3)", "3")])
def test_the_death_of_a_copy_is_told(how, text):
    said = run(f"""
from rmqtool.errors import Bug
def die(task, write):
    {how}
try:
    list(run_in_order(die, range(3), 2))
except Bug as bug:
    print(bug, children())
""")
    assert text in said
    assert said.endswith(" []\n")


def test_what_a_copy_raises_is_raised():
    said = run("""
from rmqtool.errors import Bug, UsageError
def fail(task, write):
    raise UsageError("so not") if task else ZeroDivisionError("nothing")
for tasks in ([1], [0]):
    try:
        list(run_in_order(fail, tasks, 1))
    except (UsageError, Bug) as error:
        print(type(error).__name__, str(error).splitlines()[-1])
""")
    assert said == "UsageError so not\nBug ZeroDivisionError: nothing\n"


def test_copies_end_with_their_caller():
    said = run(
        """
results = run_in_order(squared, range(100), 2)
next(results)
print(*children(), flush=True)
os.kill(os.getpid(), 9)
""",
        status=-signal.SIGKILL,
    )
    copies = [int(word) for word in said.split()]
    assert len(copies) == 2
    end = time.monotonic() + 20
    while any(map(lives, copies)) and time.monotonic() < end:
        time.sleep(0.02)
    assert not any(map(lives, copies))


def lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def test_libraries_are_loaded_without_threads_and_the_environment_stays():
    said = run("""
os.environ.pop("OPENBLAS_NUM_THREADS", None)
before = dict(os.environ)
load_without_threads()
pool = sys.modules["pyarrow"].default_memory_pool()
print(can_copy(), os.environ == before, "numpy" in sys.modules, pool.backend_name)
""")
    assert said == "True True True system\n"


@pytest.mark.parametrize("command", ["cat --jsonl", "cat --count", "check --json", "stat --json"])
def test_commands_copy_themselves_and_say_the_same(command, store):
    """Ranges are so small that the processes have something to do."""
    said = run(
        """
load_without_threads()
from rmqtool.cli import main
from rmqtool.audit import reports
from rmqtool.log import ranges, stream, workers
ranges.plan_ranges.__defaults__ = ranges.nominal_ranges.__defaults__ = (0, 5000)
ranges._ALONE, stream._COUNTED_RANGE, reports.RANGE, workers.ALONE = 0, 20_000, 20_000, 0
copied = []
class Counted(workers.Copy):
    def __init__(self, *words):
        copied.append(self)
        super().__init__(*words)
workers.Copy = Counted
for jobs in "1", "2":
    status = main([*sys.argv[2].split(), sys.argv[1], "-j", jobs])
    print(f"\\n== {status} {len(copied)}")
""",
        store("49-basic"),
        command,
    )
    one, two = said.split("\n== 0 0\n")
    assert one.strip()
    assert two == one + "\n== 0 2\n"
