"""RocketMQ's published packages: fetch them through Maven, compile our programs against them, start a JVM.

They are kept in ``$RMQTOOL_ORACLE`` (by default ``~/.cache/rmqtool-oracle``), a folder per version.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ARTIFACTS = {
    "4.9.7": ("broker", "namesrv", "tools", "client"),
    "4.9.8": ("store", "client", "tools"),  # its broker was never published
    "5.3.3": ("broker", "namesrv", "tools", "client"),
    "5.4.0": ("broker", "namesrv", "tools", "client"),
}
VERSIONS = tuple(ARTIFACTS)
BROKER_VERSIONS = tuple(version for version, artifacts in ARTIFACTS.items() if "broker" in artifacts)

_JAVA = Path(__file__).resolve().parent / "java"
_TOOLS = ("java", "javac", "mvn")

# The store unmaps its files by hand, and our programs look into private fields.
_OPENED = [f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in ("nio", "lang", "util", "net")] + [
    f"--add-{kind}=java.base/{package}=ALL-UNNAMED"
    for package in ("sun.nio.ch", "jdk.internal.ref")
    for kind in ("opens", "exports")
]
_LOGBACK = "<configuration><root level='OFF'/></configuration>"


class OracleError(Exception):
    """The oracle cannot answer: a tool is missing, a package does not come, a request makes no sense."""


def missing_tools() -> list[str]:
    """Return which of the programs that the oracle needs are not installed."""
    return [tool for tool in _TOOLS if shutil.which(tool) is None]


def cache() -> Path:
    """Return where packages and classes are kept."""
    given = os.environ.get("RMQTOOL_ORACLE")
    return Path(given) if given else Path.home() / ".cache" / "rmqtool-oracle"


def generation(version: str) -> str:
    """Return ``4`` or ``5``."""
    return version[0]


def prepare(version: str) -> Path:
    """Fetch the packages of ``version`` and compile our programs, unless that is done; return the folder."""
    if version not in ARTIFACTS:
        raise OracleError(f"no version {version}; one of {', '.join(VERSIONS)}")
    if tools := missing_tools():
        raise OracleError(f"not installed: {', '.join(tools)}")
    home = cache() / version
    home.mkdir(parents=True, exist_ok=True)
    stamp = home / "ready"
    # By content: another copy of the programs may have been compiled here, later than these were written.
    wanted = _digest_of_programs()
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two runs may want the same packages
        if stamp.exists() and stamp.read_text(encoding="ascii") == wanted:
            return home
        if not any(home.glob("lib/rocketmq-store-*.jar")):
            _fetch(version, home)
        _compile(version, home)
        (home / "logback.xml").write_text(_LOGBACK)
        stamp.write_text(wanted, encoding="ascii")
    return home


def _digest_of_programs() -> str:
    digest = hashlib.sha256()
    for path in sorted(_JAVA.iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _fetch(version: str, home: Path) -> None:
    dependencies = "".join(
        f"<dependency><groupId>org.apache.rocketmq</groupId><artifactId>rocketmq-{artifact}</artifactId>"
        f"<version>{version}</version></dependency>"
        for artifact in ARTIFACTS[version]
    )
    (home / "pom.xml").write_text(
        "<project xmlns='http://maven.apache.org/POM/4.0.0'><modelVersion>4.0.0</modelVersion>"
        "<groupId>oracle</groupId><artifactId>oracle</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )
    print(f"oracle: fetching RocketMQ {version} through Maven ...", file=sys.stderr, flush=True)
    command = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=lib"]
    # Not handed on as it is: the caller may have replaced stderr.
    done = subprocess.run(command, cwd=home, stdout=subprocess.PIPE, text=True, check=False)
    print(done.stdout, file=sys.stderr, end="", flush=True)
    if done.returncode:
        shutil.rmtree(home / "lib", ignore_errors=True)
        raise OracleError(f"Maven could not fetch RocketMQ {version}")


def _compile(version: str, home: Path) -> None:
    classes = home / "classes"
    shutil.rmtree(classes, ignore_errors=True)
    classes.mkdir()
    with tempfile.TemporaryDirectory(prefix="oracle-") as directory:
        sources = _write_sources(version, Path(directory))
        command = ["javac", "-nowarn", "-Xlint:none", "-cp", f"{home}/lib/*", "-d", str(classes), *map(str, sources)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise OracleError(f"the programs do not compile against {version}:\n{result.stderr}")


def _write_sources(version: str, folder: Path) -> list[Path]:
    """Write the programs for one version."""
    mine = generation(version)
    names = ["J", "Start", *(("Truth49", "Open49") if mine == "4" else ("Truth5",))]
    if version in BROKER_VERSIONS:
        names += ["BrokerRun", "BrokerClients", f"Broker{mine}"]
        names += ["TierTruth"] if mine == "5" else []
    written = []
    for name in names:
        path = folder / f"{name}.java"
        path.write_text(source_for(version, _JAVA / f"{name}.java"), encoding="utf-8")
        written.append(path)
    return written


def source_for(version: str, path: Path) -> str:
    """Return a program for one version: a line tagged ``/*4*/`` or ``/*5*/`` is for that generation only."""
    mine = generation(version)
    other = {"4": "5", "5": "4"}[mine]
    lines = path.read_text(encoding="utf-8").splitlines()
    return "".join(f"{line.removeprefix(f'/*{mine}*/')}\n" for line in lines if not line.startswith(f"/*{other}*/"))


def run_java(version: str, program: str, arguments: Sequence[object], *, logs: bool, user_home: Path) -> int:
    """Run one of our programs; return its exit status. Arguments are those of ``start_java``."""
    return start_java(version, program, arguments, logs=logs, user_home=user_home).wait()


def start_java(
    version: str,
    program: str,
    arguments: Sequence[object],
    *,
    logs: bool,
    user_home: Path,
    within: Sequence[str] = (),
    is_asked: bool = False,
) -> subprocess.Popen[bytes]:
    """Start one of our programs. ``ORACLE_VERBOSE=1`` shows what it prints.

    ``logs``: leave RocketMQ's loggers on, for programs that record them. ``user_home`` takes whatever the classes
    leave behind, temporary files included. ``within`` is a command that starts the JVM, such as ``unshare``.
    ``is_asked``: both streams are pipes.
    """
    home = prepare(version)
    configured = () if logs else (f"logback.configurationFile={home}/logback.xml",)
    properties = {
        "user.home": user_home,
        "java.io.tmpdir": user_home,
        "rocketmq.home.dir": user_home,
        "rocketmq.log.dir": user_home / "logs",
        "file.encoding": "UTF-8",
        "user.timezone": "UTC",
        "rocketmq.client.logUseSlf4j": "true",
    }
    # It ends with the test, also where a time limit ends that.
    ends = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
    command = [*ends, *within, "java", "-Xmx768m", "-Xss512k", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *_OPENED]
    command += [f"-D{prefix}{setting}" for setting in configured for prefix in ("", "rmq.")]
    command += [f"-D{name}={value}" for name, value in properties.items()]
    command += ["-cp", f"{home}/classes:{home}/lib/*", program, *map(str, arguments)]
    shown = None if os.environ.get("ORACLE_VERBOSE") else subprocess.DEVNULL
    asked = subprocess.PIPE if is_asked else None
    return subprocess.Popen(command, stdin=asked, stdout=asked or shown, stderr=shown)
