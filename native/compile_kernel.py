"""Compile the kernel with whatever C compiler there is: ``python native/compile_kernel.py`` in a clone.

The package is complete without it, and slower. ``RMQTOOL_KERNEL=no`` leaves the kernel out; ``yes`` makes it an error
that it cannot be compiled, for those who make wheels.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zlib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TARGET = Path("rmqtool", "_native.abi3.so")
_FLAGS = ("-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-DNDEBUG")


def main() -> int:
    """Compile in place, or say why not."""
    problem = compile_kernel(ROOT)
    if problem is None:
        return 0
    sys.stderr.write(f"rmqtool works without its compiled kernel: {problem}\n")
    return int(os.environ.get("RMQTOOL_KERNEL") == "yes")


def sources_digest(root: Path) -> int:
    """Return a checksum of the C sources: a build says which it was made of, and ``rmqtool.kernel`` compares."""
    digest = 0
    for source in (*sorted((root / "native").glob("*.h")), root / "native" / "native.c"):
        digest = zlib.crc32(source.read_bytes(), zlib.crc32(source.name.encode(), digest))
    return digest


def compile_kernel(root: Path) -> str | None:
    """Compile the kernel into the package at ``root``; return why that was not possible, and leave no old one then."""
    target = root / TARGET
    problem = "RMQTOOL_KERNEL=no" if os.environ.get("RMQTOOL_KERNEL") == "no" else _compile(root, target)
    if problem is not None:
        target.unlink(missing_ok=True)
    return problem


def _compile(root: Path, target: Path) -> str | None:
    given = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()
    compiler = next((path for name in (given[0], "cc", "gcc", "clang") if (path := shutil.which(name))), None)
    if compiler is None:
        return "there is no C compiler"
    headers = sysconfig.get_paths()["include"]
    if not Path(headers, "Python.h").exists():
        return "the headers of Python are not installed (python3-dev)"
    # Another process may have the old one loaded: the new one takes its name and not its place.
    fresh = target.with_suffix(f".{os.getpid()}")
    defined = f"-DRMQTOOL_SOURCES={sources_digest(root)}"
    command = [compiler, *_FLAGS, defined, f"-I{headers}", "-o", str(fresh), str(root / "native" / "native.c")]
    if sys.platform == "darwin":
        command += ["-undefined", "dynamic_lookup"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        fresh.unlink(missing_ok=True)
        said = done.stderr.strip().splitlines()
        return f"{compiler} failed: {said[-1] if said else done.returncode}"
    fresh.replace(target)
    return None


if __name__ == "__main__":
    sys.exit(main())
