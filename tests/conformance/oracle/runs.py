"""What can be asked: the truth about a store, one start of it, a whole broker on it."""

from __future__ import annotations

import json
import lzma
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from tests.conformance.oracle.packages import BROKER_VERSIONS, OracleError, generation, run_java, start_java

HANG_LIMIT_MS = 60_000
# With many stores in one process most of the time is spent waiting in its shutdowns.
_AT_ONCE = 12
_SHORT_HANG_LIMIT_MS = 20_000
_STARTED_AT_ONCE = 64
_OWN_NETWORK = ("unshare", "-Urn", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")
_START_LIMIT = 120


@contextmanager
def _scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="oracle-", ignore_cleanup_errors=True) as directory:
        yield Path(directory)


def _copy(source: Path, target: Path) -> None:
    if not source.is_dir():
        raise OracleError(f"{source} is not a directory")
    subprocess.run(["cp", "-a", "--sparse=always", str(source), str(target)], check=True)


def read_json(path: Path) -> Any:
    """Return the content of a JSON file, packed by xz or not."""
    opener = lzma.open if path.suffix == ".xz" else open
    with opener(path, "rt", encoding="utf-8") as file:
        return json.load(file)


def _plain(path: Path, scratch: Path, name: str) -> Path:
    """Return a JSON file that Java can read."""
    if path.suffix != ".xz":
        return path.resolve()
    plain = scratch / name
    plain.write_text(json.dumps(read_json(path), ensure_ascii=False), encoding="utf-8")
    return plain


def truth(
    version: str, store: Path, out: Path, *, config: Path | None = None, queries: Path | None = None, put: bool = False
) -> int:
    """Write to ``out`` what the real classes of ``version`` answer about ``store``; 0 unless they refused it.

    ``config`` and ``queries`` may be truth files: the settings and the questions in them are used. ``put``: the real
    store appends one message to every queue and must find it again.
    """
    with _scratch() as scratch:
        words: list[object] = [store.resolve(), out.resolve()]
        for option, path in (("--config", config), ("--queries", queries)):
            if path is not None:
                words += [option, _plain(path, scratch, option.strip("-") + ".json")]
        words += ["--put"] if put else []
        program, words = ("Truth49", words) if generation(version) == "4" else ("Truth5", ["truth", *words])
        out.unlink(missing_ok=True)
        status = run_java(version, program, words, logs=False, user_home=scratch)
    _must_exist(out)
    return status


def start(version: str, store: Path, out: Path, *, keep: Path | None = None, settings: Mapping[str, str]) -> int:
    """Load, recover, start, read every queue and shut down; write to ``out`` what happened.

    ``keep`` receives the store as the real classes left it. Without ``settings`` upstream's default sizes hold.
    """
    out = out.resolve()
    out.unlink(missing_ok=True)
    with _scratch() as scratch:
        copy, jobs = scratch / "store", scratch / "jobs"
        _copy(store, copy)
        jobs.write_text("\t".join(["1", str(copy), _joined(settings), str(out), "full"]) + "\n", encoding="utf-8")
        status = run_java(version, "Start", ["run", jobs, 1, HANG_LIMIT_MS], logs=True, user_home=scratch)
        if keep is not None:
            shutil.copytree(copy, keep)
    _must_exist(out)
    return status


def run_broker(
    version: str,
    store: Path,
    out: Path,
    seconds: int,
    *,
    clients: Path | None = None,
    keep: Path | None = None,
    settings: Mapping[str, str],
) -> int:
    """Run a real name server, broker and the ``clients`` of a file for ``seconds``; 0: ready, and a clean stop."""
    if version not in BROKER_VERSIONS:
        raise OracleError(f"no broker of version {version}; one of {', '.join(BROKER_VERSIONS)}")
    if keep is not None and keep.exists():
        raise OracleError(f"{keep} exists")
    words: dict[str, object] = dict(settings)
    if clients is not None:
        read_json(clients)
        words["clients"] = clients.resolve()
    out = out.resolve()
    out.unlink(missing_ok=True)
    with _scratch() as scratch:
        copy, home = scratch / "store", scratch / "home"
        home.mkdir()
        _copy(store, copy)
        arguments = [copy, out, seconds, *(f"{name}={value}" for name, value in words.items())]
        status = run_java(version, f"Broker{generation(version)}", arguments, logs=True, user_home=home)
        if keep is not None:
            _copy(copy, keep)
    _must_exist(out)
    return status


class Addresses(NamedTuple):
    """Where clients reach a broker that runs: its name server, and itself."""

    names: str
    broker: str


@contextmanager
def live_broker(version: str, *, settings: Mapping[str, str], seconds: int) -> Iterator[Addresses]:
    """Run a real name server and broker on an empty store while the context lasts, at most ``seconds``."""
    with _scratch() as scratch:
        store = scratch / "store"
        store.mkdir()
        with broker_on(version, store, settings=settings, seconds=seconds) as (addresses, _):
            yield addresses


@contextmanager
def broker_on(
    version: str, store: Path, *, settings: Mapping[str, str], seconds: int
) -> Iterator[tuple[Addresses, subprocess.Popen[bytes]]]:
    """Run a real name server and broker on a store while the context lasts; its process may be killed meanwhile.

    They listen on loopback, but for a 4.9 broker and every broker's HA port, which listen everywhere: upstream has no
    setting for those.
    """
    if version not in BROKER_VERSIONS:
        raise OracleError(f"no broker of version {version}; one of {', '.join(BROKER_VERSIONS)}")
    with _scratch() as scratch:
        home, announced, out = (scratch / name for name in ("home", "announced", "out.json"))
        home.mkdir()
        words = [store, out, seconds, f"announce={announced}", *(f"{name}={value}" for name, value in settings.items())]
        process = start_java(version, f"Broker{generation(version)}", words, logs=True, user_home=home)
        try:
            yield _addresses(process, announced), process
            if process.poll() is None:
                announced.unlink()
                if process.wait(120) or not read_json(out)["ready"]:
                    raise OracleError(f"the broker did not stop cleanly: {read_json(out)['log']}")
        finally:
            process.kill()
            process.wait()


def _addresses(process: subprocess.Popen[bytes], announced: Path) -> Addresses:
    end = time.monotonic() + _START_LIMIT
    while process.poll() is None and time.monotonic() < end:
        with suppress(OSError, ValueError):
            return Addresses(**read_json(announced))
        time.sleep(0.05)
    raise OracleError("the broker did not start; ORACLE_VERBOSE=1 shows why")


def settings_of(path: Path) -> dict[str, str]:
    """Return the settings of a truth file or of a plain object, as a properties file spells them."""
    given = read_json(path)
    parts = [given.get("config"), given.get("brokerConfig")] if "config" in given else [given]
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for part in parts
        for name, value in (part or {}).items()
    }


def _must_exist(out: Path) -> None:
    if not out.exists():
        raise OracleError("the run left no answer; ORACLE_VERBOSE=1 shows why")


def start_many(
    version: str,
    stores: Sequence[Path],
    outs: Sequence[Path],
    *,
    settings: Mapping[str, str],
    own_settings: Sequence[Mapping[str, str]] = (),
) -> None:
    """Start each store in place, in one Java process; ``outs`` get what happened, as ``start`` writes it.

    ``own_settings``: what each store has beside the ``settings`` of all.
    """
    own = own_settings or [{}] * len(stores)
    with _scratch() as scratch:
        jobs = scratch / "jobs"
        lines = (
            f"{number}\t{store}\t{_joined({**settings, **more})}\t{out}\tfull\n"
            for number, (store, out, more) in enumerate(zip(stores, outs, own, strict=True))
        )
        jobs.write_text("".join(lines), encoding="utf-8")
        run_java(version, "Start", ["run", jobs, _AT_ONCE, _SHORT_HANG_LIMIT_MS], logs=True, user_home=scratch)
    for out in outs:
        _must_exist(out)


class Starter:
    """A JVM that starts stores as long as it is needed: several a second, where one alone takes some seconds.

    It has a network of its own: a broker's HA port listens everywhere.
    """

    def __init__(self, version: str) -> None:
        self._home = Path(tempfile.mkdtemp(prefix="oracle-"))
        self._count = 0
        words = ["run", "-", _STARTED_AT_ONCE, HANG_LIMIT_MS]
        self._process = start_java(
            version, "Start", words, logs=True, user_home=self._home, within=_OWN_NETWORK, is_asked=True
        )

    def start(self, stores: Sequence[Path], settings: Sequence[Mapping[str, object]]) -> list[Any]:
        """Start each store in place, with its settings; return what happened, with each message that was served."""
        jobs = {}
        for store, of_it in zip(stores, settings, strict=True):
            self._count += 1
            jobs[f"{self._count}"] = out = self._home / f"{self._count}.json"
            self._tell(f"{self._count}\t{store}\t{_joined(of_it)}\t{out}\teach\n")
        self._wait(set(jobs))
        answers = [read_json(out) for out in jobs.values()]
        for out in jobs.values():
            out.unlink()
        return answers

    def processor_seconds(self) -> float:
        """Return what the JVM has used until now."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode())
        self._process.stdin.flush()

    def _wait(self, numbers: set[str]) -> None:
        assert self._process.stdout is not None
        while numbers:
            line = self._process.stdout.readline().decode()
            if not line:
                raise OracleError("the JVM ended; ORACLE_VERBOSE=1 shows why")
            # The classes print, too.
            word, _, number = line.strip().partition("\t")
            if word == "done":
                numbers.discard(number)

    def close(self) -> None:
        """End the JVM."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        shutil.rmtree(self._home, ignore_errors=True)


def _joined(settings: Mapping[str, object]) -> str:
    return ";".join(f"{name}={value}" for name, value in settings.items())


def make_store(version: str, store: Path, *, settings: Mapping[str, str], content: Mapping[str, object]) -> None:
    """Let the real store write messages; ``content`` is what ``Start.gen`` takes, ``end=kill`` for a crash."""
    given = [_joined(pairs) for pairs in (settings, content)]
    with _scratch() as scratch:
        run_java(version, "Start", ["gen", store, *given], logs=True, user_home=scratch)
    if not store.is_dir():
        raise OracleError("the run left no store; ORACLE_VERBOSE=1 shows why")
