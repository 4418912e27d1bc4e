"""``info`` and ``dump`` on stores whose files are cut, zeroed, random, exchanged, or no files at all: never a bug."""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path

import pytest

from rmqtool.cli import main
from rmqtool.errors import Exit

ANSWERS = {Exit.DONE, Exit.NOT_A_STORE, Exit.SKIPPED, Exit.OPTIONAL_MISSING}
FAULTS = ("cut", "empty", "zeroed", "random", "exchanged", "fifo", "link", "directory", "socket-like name", "gone")
STORES = ("49-broker", "49-dledger", "49-ext", "53-broker", "53-compress", "53-compaction", "53-rocksdb", "53-epoch")


def break_file(path: Path, fault: str, others: list[Path], chance: random.Random) -> None:
    """Do one thing to one file of a store."""
    size = path.stat().st_size
    if fault == "cut":
        os.truncate(path, chance.randrange(size + 1))
    elif fault == "empty":
        os.truncate(path, 0)
    elif fault == "zeroed":
        os.truncate(path, 0)
        os.truncate(path, size)
    elif fault == "random":
        path.write_bytes(chance.randbytes(min(size, 65536) or 100))
    elif fault == "exchanged":
        shutil.copyfile(chance.choice(others), path)
    else:
        path.unlink()
        if fault == "fifo":
            os.mkfifo(path)
        elif fault == "link":
            path.symlink_to("/dev/zero")
        elif fault == "directory":
            path.mkdir()
        elif fault == "socket-like name":
            path.with_name("a\nb\x1b[31m").write_bytes(b"x")


@pytest.mark.parametrize("name", STORES)
def test_broken_files_are_findings_or_a_clear_error(name, writable_store, capsysbinary):
    root = writable_store(name)
    files = [path for path in sorted(root.rglob("*")) if path.is_file() and path.stat().st_size < 1 << 21]
    chance = random.Random(name)
    for number in range(len(FAULTS)):
        fault = FAULTS[number % len(FAULTS)]
        work = root.parent / "work"
        shutil.copytree(root, work, symlinks=True, ignore=lambda _d, names: [n for n in names if n == "timerwheel"])
        victim = work / chance.choice(files).relative_to(root)
        if not victim.exists():
            shutil.rmtree(work)
            continue
        break_file(victim, fault, files, chance)
        status = main(["info", str(work), "--json"])
        out, err = capsysbinary.readouterr()
        assert status in ANSWERS, (fault, victim, err.decode())
        if status == Exit.DONE:
            json.loads(out)
        if victim.is_file() and not victim.is_symlink():
            assert main(["dump", str(victim), "--json"]) == Exit.DONE, (fault, victim)
            regions = json.loads(capsysbinary.readouterr().out)["regions"]
            assert sum(region["length"] for region in regions) == victim.stat().st_size
        elif victim.exists() or victim.is_symlink():
            assert main(["dump", str(victim), "--json"]) in (Exit.NOT_A_STORE, Exit.USAGE), (fault, victim)
            capsysbinary.readouterr()
        shutil.rmtree(work)
