"""The kernel in wheels, sdists and installations in place: with a compiler, without one, and when it fails."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.docs.tour import ROOT

pytestmark = pytest.mark.conformance

COMPILER = shutil.which("gcc") or shutil.which("cc") or shutil.which("clang")
with_compiler = pytest.mark.skipif(COMPILER is None, reason="no C compiler is installed")
EXTENSION = "rmqtool/_native.abi3.so"


def run(*words: object, cwd: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*map(str, words)], capture_output=True, text=True, check=False, cwd=cwd, env=environment)


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment that builds without fetching anything more."""
    place = tmp_path_factory.mktemp("builder")
    environment = dict(os.environ)
    assert run(sys.executable, "-m", "venv", place, cwd=place, environment=environment).returncode == 0
    made = run(
        place / "bin/pip",
        "install",
        "-q",
        "build",
        "hatchling>=1.24,<2",
        "editables",
        cwd=place,
        environment=environment,
    )
    if made.returncode:
        pytest.skip(f"pip installs nothing here: {made.stderr[-200:]}")
    return place / "bin/python"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the sources, without what was compiled."""
    wanted = ("rmqtool", "pyspark_rocketmq", "native", "man", "pyproject.toml", "README.md", "LICENSE")
    copy = tmp_path / "tree"
    copy.mkdir()
    for name in wanted:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
        else:
            shutil.copy(ROOT / name, copy)
    return copy


def surroundings(tmp_path: Path, *, compiler: bool, **more: str) -> dict[str, str]:
    """The environment of a build; without a compiler PATH has nothing but Python."""
    bare = tmp_path / "bare"
    bare.mkdir(exist_ok=True)
    left = {name: value for name, value in os.environ.items() if name not in ("CC", "RMQTOOL_PURE", "RMQTOOL_KERNEL")}
    return {**left, **more} if compiler else {**left, "PATH": str(bare), **more}


def build(builder: Path, tree: Path, kind: str, environment: dict[str, str]) -> Path:
    done = run(
        builder,
        "-m",
        "build",
        "--no-isolation",
        kind,
        "--outdir",
        tree / "dist",
        tree,
        cwd=tree,
        environment=environment,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    (found,) = (tree / "dist").glob("*.whl" if kind == "--wheel" else "*.tar.gz")
    return found


def tier_of(place: Path, **more: str) -> list[str]:
    """What the package at ``place`` says runs."""
    environment = {**surroundings(place.parent, compiler=True), "PYTHONPATH": str(place), **more}
    done = run(sys.executable, "-m", "rmqtool", "--version", "-v", cwd=place, environment=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[1:]


def unpacked(wheel: Path, target: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target)
    return target


def puts_and_checks(place: Path, directory: Path) -> None:
    """A store is made, filled, read and judged by the package at ``place``."""
    directory.mkdir()
    environment = {**surroundings(directory, compiler=True), "PYTHONPATH": str(place), "HOME": str(directory)}
    for command in (
        "init store --conf mappedFileSizeCommitLog=65536",
        "topic store create Orders --queues 2",
        "produce store hello -t Orders --key order-4711",
        "cat store --jsonl",
        "check store",
    ):
        done = run(sys.executable, "-m", "rmqtool", *command.split(), cwd=directory, environment=environment)
        assert done.returncode == 0, (command, done.stderr)


@with_compiler
def test_a_wheel_with_a_compiler_has_the_kernel(builder: Path, tree: Path, tmp_path: Path) -> None:
    wheel = build(builder, tree, "--wheel", surroundings(tmp_path, compiler=True))
    assert "-cp311-abi3-" in wheel.name
    place = unpacked(wheel, tmp_path / "place")
    assert (place / EXTENSION).exists()
    assert not (place / "native").exists()
    assert tier_of(place)[0].startswith("kernel: native (")
    assert tier_of(place, RMQTOOL_PURE="1") == ["kernel: pure", "  RMQTOOL_PURE is set"]
    puts_and_checks(place, tmp_path / "used")


def test_a_wheel_without_a_compiler_is_pure(builder: Path, tree: Path, tmp_path: Path) -> None:
    # What an earlier build left is not taken along.
    (tree / EXTENSION).write_bytes(b"old")
    wheel = build(builder, tree, "--wheel", surroundings(tmp_path, compiler=False))
    assert wheel.name.endswith("-py3-none-any.whl")
    place = unpacked(wheel, tmp_path / "place")
    assert not (place / EXTENSION).exists()
    assert tier_of(place) == ["kernel: pure", "  it was not compiled when rmqtool was installed"]
    puts_and_checks(place, tmp_path / "used")


@with_compiler
def test_a_compiler_that_fails_leaves_a_pure_wheel(builder: Path, tree: Path, tmp_path: Path) -> None:
    with (tree / "native/native.c").open("a") as source:
        source.write("this is no C\n")
    (tree / EXTENSION).write_bytes(b"old")
    wheel = build(builder, tree, "--wheel", surroundings(tmp_path, compiler=True))
    assert wheel.name.endswith("-py3-none-any.whl")
    assert not (tree / EXTENSION).exists()
    words = (builder, "-m", "build", "--no-isolation", "--wheel", tree)
    done = run(*words, cwd=tree, environment=surroundings(tmp_path, compiler=True, RMQTOOL_KERNEL="yes"))
    assert done.returncode != 0
    assert "the kernel cannot be compiled" in done.stderr + done.stdout


@with_compiler
def test_the_kernel_can_be_left_out(builder: Path, tree: Path, tmp_path: Path) -> None:
    wheel = build(builder, tree, "--wheel", surroundings(tmp_path, compiler=True, RMQTOOL_KERNEL="no"))
    assert wheel.name.endswith("-py3-none-any.whl")


@with_compiler
def test_an_sdist_has_the_sources_and_gives_the_same_wheel(builder: Path, tree: Path, tmp_path: Path) -> None:
    sdist = build(builder, tree, "--sdist", surroundings(tmp_path, compiler=True))
    with tarfile.open(sdist) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", lambda member, _path: member)
        archive.extractall(tmp_path / "sdist")
    (inner,) = (tmp_path / "sdist").iterdir()
    assert {path.name for path in (ROOT / "native").glob("*.*")} - {"__pycache__"} <= {
        path.name for path in (inner / "native").iterdir()
    }
    wheel = build(builder, inner, "--wheel", surroundings(tmp_path, compiler=True))
    assert "-cp311-abi3-" in wheel.name


@with_compiler
def test_in_place_the_kernel_is_beside_the_sources(builder: Path, tree: Path, tmp_path: Path) -> None:
    words = (builder, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "-e", tree)
    done = run(*words, cwd=tree, environment=surroundings(tmp_path, compiler=True))
    assert done.returncode == 0, done.stderr
    assert (tree / EXTENSION).exists()
    assert tier_of(tree)[0].startswith("kernel: native (")
    # A kernel of other sources is not used, and it is said what to type.
    with (tree / "native/record.h").open("a") as source:
        source.write("/* changed */\n")
    tier, why = tier_of(tree)
    assert tier == "kernel: pure"
    assert "run python native/compile_kernel.py" in why
    environment = surroundings(tmp_path, compiler=True)
    done = run(sys.executable, "native/compile_kernel.py", cwd=tree, environment=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert tier_of(tree)[0].startswith("kernel: native (")


def test_in_place_without_a_compiler(builder: Path, tree: Path, tmp_path: Path) -> None:
    words = (builder, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "-e", tree)
    done = run(*words, cwd=tree, environment=surroundings(tmp_path, compiler=False))
    assert done.returncode == 0, done.stderr
    assert tier_of(tree)[0] == "kernel: pure"
    done = run(sys.executable, "native/compile_kernel.py", cwd=tree, environment=surroundings(tmp_path, compiler=False))
    assert done.returncode == 0
    assert done.stderr == "rmqtool works without its compiled kernel: there is no C compiler\n"


def other_pythons() -> list[str]:
    """The Pythons of other versions that start here."""
    names = ("python3.11", "python3.12", "python3.13")
    own = f"python{sys.version_info.major}.{sys.version_info.minor}"
    found = [path for name in names if name != own and (path := shutil.which(name))]
    return [
        path for path in found if subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode == 0
    ]


@with_compiler
@pytest.mark.skipif(not other_pythons(), reason="no other Python from 3.11 to 3.13 is installed")
def test_one_binary_serves_other_pythons(builder: Path, tree: Path, tmp_path: Path) -> None:
    place = unpacked(build(builder, tree, "--wheel", surroundings(tmp_path, compiler=True)), tmp_path / "place")
    code = "from rmqtool import kernel; print(kernel.tier(), kernel.NATIVE.crc32(b'123456789'))"
    for python in other_pythons():
        environment = {**surroundings(tmp_path, compiler=True), "PYTHONPATH": str(place)}
        done = run(python, "-c", code, cwd=tmp_path, environment=environment)
        assert done.returncode == 0, (python, done.stderr)
        assert done.stdout.startswith("kernel: native")
        assert done.stdout.endswith(" 3421780262\n")
