"""A wheel and an sdist build, and what the wheel alone installs works. Here because it installs packages."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rmqtool.errors import Exit
from tests.docs.tour import ROOT

pytestmark = pytest.mark.conformance

COMMANDS = [
    ("init store --conf mappedFileSizeCommitLog=65536", Exit.DONE),
    ("topic store create Orders --queues 2", Exit.DONE),
    ("produce store hello -t Orders --key order-4711", Exit.DONE),
    ("info store", Exit.DONE),
    ("cat store --jsonl", Exit.DONE),
    ("query store order-4711 --history", Exit.DONE),
    ("stat store --by topic,tag", Exit.DONE),
    ("dump store@0", Exit.DONE),
    ("check store", Exit.DONE),
    ("diff store store", Exit.DONE),
    ("recover store", Exit.DONE),
    ("repair store", Exit.DONE),
    ("tick store", Exit.DONE),
    ("export store --engine local --to lake --progress never", Exit.DONE),
    ("man findings", Exit.DONE),
    ("export store --to other --progress never", Exit.OPTIONAL_MISSING),
]


def run(*words: object, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload, no-any-return]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build both, the wheel from the sdist, as for a release."""
    place = tmp_path_factory.mktemp("built")
    made = run(sys.executable, "-m", "venv", place / "builder")
    made = run(place / "builder/bin/pip", "install", "-q", "build")
    if made.returncode:
        pytest.skip(f"pip installs nothing here: {made.stderr[-200:]}")
    made = run(place / "builder/bin/python", "-m", "build", "--outdir", place, ROOT)
    assert made.returncode == 0, made.stderr
    assert len(list(place.glob("*.tar.gz"))) == 1
    (found,) = place.glob("*.whl")
    return found


def installed(wheel: Path, directory: Path, extras: str) -> Path:
    assert run(sys.executable, "-m", "venv", directory / "venv").returncode == 0
    done = run(directory / "venv/bin/pip", "install", "-q", f"{wheel}{extras}")
    assert done.returncode == 0, done.stderr
    return directory / "venv/bin/rmqtool"


def test_everything_but_spark_works_from_the_wheel_alone(wheel: Path, tmp_path: Path) -> None:
    rmqtool = installed(wheel, tmp_path, "")
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "LANG": "C.UTF-8"}
    for command, status in COMMANDS:
        done = run(rmqtool, *command.split(), cwd=tmp_path, env=environment)
        assert done.returncode == status, (command, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr


def tools_without_java(directory: Path) -> Path:
    """Return a directory with the system's programs, which Spark's scripts call, but for Java."""
    directory.mkdir()
    for program in [*Path("/bin").iterdir(), *Path("/usr/bin").iterdir()]:
        link = directory / program.name
        if not program.name.startswith("java") and not link.is_symlink():
            link.symlink_to(program)
    return directory


def test_with_its_extras_spark_needs_no_java_of_the_system(wheel: Path, tmp_path: Path) -> None:
    rmqtool = installed(wheel, tmp_path, "[spark,jre]")
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    environment["PATH"] = f"{tmp_path / 'venv/bin'}:{tools_without_java(tmp_path / 'tools')}"
    for command, _ in COMMANDS[:3]:
        assert run(rmqtool, *command.split(), cwd=tmp_path, env=environment).returncode == 0
    done = run(rmqtool, "export", "store", "--to", "lake", "--progress", "never", cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    assert list((tmp_path / "lake").glob("*.parquet"))
