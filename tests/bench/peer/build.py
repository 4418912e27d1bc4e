"""Compile what is measured: the Java program against both versions, the limits of the machine in C."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.conformance.oracle.packages import OracleError, cache, prepare

HERE = Path(__file__).resolve().parent
VERSIONS = ("4.9.8", "5.3.3")  # Peer.java compiles against both; newer ones have other signatures

_OPENED = (
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
)
_NOOP = 'public class Noop { public static void main(String[] words) { System.out.println("{}"); } }\n'


def work() -> Path:
    """Return the directory of everything that the benchmark builds and generates."""
    return cache() / "bench"


def build() -> None:
    """Fetch the packages and compile everything, unless nothing changed."""
    for version in VERSIONS:
        home = prepare(version)
        _javac(HERE / "Peer.java", work() / "classes" / version, f"{home}/lib/*")
    noop = work() / "Noop.java"
    noop.write_text(_NOOP)
    _javac(noop, work() / "classes" / "noop", ".")
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise OracleError("not installed: a C compiler")
    source, program = HERE / "limits.c", work() / "limits"
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        command = [compiler, "-O3", "-march=native", "-o", str(program), str(source), "-lpthread"]
        subprocess.run(command, check=True)
    (rocketmq_home() / "conf").mkdir(parents=True, exist_ok=True)
    shutil.copy(HERE / "logback.xml", rocketmq_home() / "conf" / "logback_tools.xml")


def _javac(source: Path, classes: Path, classpath: str) -> None:
    stamp = classes / "ready"
    if stamp.exists() and stamp.stat().st_mtime >= source.stat().st_mtime:
        return
    classes.mkdir(parents=True, exist_ok=True)
    command = ["javac", "-nowarn", "-Xlint:none", "-cp", classpath, "-d", str(classes), str(source)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise OracleError(f"{source.name} does not compile:\n{result.stderr}")
    stamp.touch()


def rocketmq_home() -> Path:
    """Return the ROCKETMQ_HOME of mqadmin."""
    return work() / "home" / "rocketmq"


def peer(version: str, *words: str, settings: Mapping[str, str] | None = None) -> list[str]:
    """Return the command of one run of Peer.java. ``settings``: heap and further flags of the JVM."""
    given = {"heap": "-Xms1g -Xmx2g", "flags": ""} | dict(settings or {})
    return [
        "java",
        *given["heap"].split(),
        "-XX:+UseG1GC",
        *_OPENED,
        *given["flags"].split(),
        f"-Duser.home={work() / 'home'}",
        f"-Dlogback.configurationFile={HERE / 'logback.xml'}",
        f"-Drmq.logback.configurationFile={HERE / 'logback5.xml'}",
        "-cp",
        f"{work() / 'classes' / version}:{cache() / version}/lib/*",
        "Peer",
        *words,
    ]


def mqadmin(version: str, *words: str) -> list[str]:
    """Return the command of one run of upstream's own administration tool."""
    return [
        "java",
        f"-Drocketmq.home.dir={rocketmq_home()}",
        f"-Drmq.logback.configurationFile={HERE / 'logback5.xml'}",
        f"-Duser.home={work() / 'home'}",
        "-cp",
        f"{cache() / version}/lib/*",
        "org.apache.rocketmq.tools.command.MQAdminStartup",
        *words,
    ]
