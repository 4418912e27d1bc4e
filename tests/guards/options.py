"""Every option of every command, as the commands declare them, and what an option does when it is typed.

The options come from the declarations; only values are written here, by name. An *effect* is everything that can be
seen of a run: the status, both streams, and every file in the directory. What is another each time (unique keys, plan
ids, how long it took) is left out, and the clock stands still. An option changes the effect, or is *refused*.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from rmqtool.cli import command_tree
from rmqtool.commands.table import COMMANDS, Entry
from rmqtool.errors import Exit
from tests.guards.incidents import segment, spoil
from tests.guards.typed import at, type_words
from tests.support.stores import content_digest, unpack

# 2026-11-30 at 04:23: later than every message of the stores, and an hour at which brokers delete.
NOW_NS = 1_796_012_600_000_000_000
REFUSALS = (Exit.USAGE, Exit.REFUSED, Exit.OPTIONAL_MISSING)

# Every command takes them, and they change words for people, or how long work takes: in a pair the other one is judged.
MANNERS = {
    "color": "what a screen for people looks like",
    "tz": "how a screen for people spells times",
    "verbose": "notes on stderr, where there are any",
    "quiet": "notes on stderr, where there are any",
    "progress": "a bar, and only for what takes long",
    "jobs": "how long it takes, of what is large enough to be shared",
    "as": "what brokers of several versions do differently, and few stores show",
    "debug": "the traceback of a bug",
}
# What cannot be tried here.
UNTRIED = {
    "follow": "waits until it is interrupted",
    "resume": "needs the token of a check that ended early",
    "undo": "needs the journal of a repair",
    "master": "needs Spark",
    "engine": "needs Spark",
}


# What has its effect elsewhere, by option, or by command and option: here it must be refused on each base, or its
# reason must be in the table of what is the same by the data.
ELSEWHERE = {
    "credentials": "needs a live cluster",
    "tls": "needs a live cluster",
    "retry-unknown": "needs a live cluster",
    "consume timeout": "needs a program that hangs",
    "topic conf": "no setting moves the topics",
    "export conf": "needs Spark",
    "tick check": "needs an open transaction",
    "repair plan": "its effect is a refusal, if the plan is another one",
}


# Who types one of them with the rest of the line wants to see what would be done: beside them nothing else is judged.
INSTEAD = {("export", "plan"), ("export", "schema")}


# An option that spells what is done without it, and the one that asks for something else: with that it is compared.
DEFAULTS = {("repair", "bridge"): "--truncate"}


class Declared(NamedTuple):
    """An option of a command, as declared."""

    command: str
    name: str
    spelled: str
    is_flag: bool
    choices: tuple[str, ...]
    metavar: str


class Base(NamedTuple):
    """A command line to which options are added: ``{s}`` is the store, ``{p}`` the directory that it is in,
    ``{o}`` the one of other stores."""

    words: str
    damaged: bool = False
    given: bytes = b""
    # The line is typed twice, and judged by the second time.
    again: bool = False


def declared(table: Sequence[Entry] = COMMANDS) -> dict[str, dict[str, Declared]]:
    """Return every option of every command but those of the root."""
    group = command_tree(table)
    found: dict[str, dict[str, Declared]] = {}
    for entry in table:
        command = group.get_command(None, entry.name)  # type: ignore[arg-type]
        assert command is not None
        found[entry.name] = {}
        for option in command.params:
            if option.param_type_name == "option":
                long = max(option.opts, key=len)
                name = long.lstrip("-")
                flag = bool(getattr(option, "is_flag", False) or getattr(option, "count", False))
                choices = tuple(getattr(option.type, "choices", None) or ())
                found[entry.name][name] = Declared(entry.name, name, long, flag, choices, option.metavar or "")
    return found


_LINES = b"""{"topic": "T_normal", "queueId": 1, "body": "one", "properties": {"UNIQ_KEY": "AA"}}
{"topic": "T_normal", "body": "two"}
"""
BASES: Mapping[str, Sequence[Base]] = {
    "info": [
        Base("info {s}"),
        *(Base(f"info {{s}} {view}") for view in ("topics", "queues", "groups", "files", "config")),
    ],
    "cat": [
        Base("cat {s}"),
        Base("cat {s} -g G_popfifo --unread"),
        Base("cat {s}", damaged=True),
        Base("cat {s}/commitlog/00000000000000065536", damaged=True),
    ],
    "query": [
        Base("query {s} retry-9"),
        Base("query {s} retry-9 --history"),
        Base("query {s} T_normal/1@2"),
        Base("query {s} 2026-11-18T12:19:25.600Z -t T_normal -q 1 --kind time"),
    ],
    "stat": [Base("stat {s}"), *(Base(f"stat {{s}} {report}") for report in ("delay", "tx", "retry", "retention"))],
    "dump": [Base("dump {s}/checkpoint"), Base("dump {s}@22381")],
    "check": [
        Base("check {s}", damaged=True),
        Base("check {s}"),
        Base("check {o}/crashed"),
        Base("check --explain CL-CRC"),
    ],
    "diff": [Base("diff {s} {o}/other"), Base("diff {o}/rocksdb {o}/rocksdb")],
    "recover": [
        Base("recover {s}", damaged=True),
        Base("recover {s} --apply", damaged=True),
        Base("recover {s} --until 2026-11-18T12:19:25.600Z --to {p}/to"),
    ],
    "repair": [
        Base("repair {s}", damaged=True),
        Base("repair {s} --apply", damaged=True),
        Base("repair {s} offsets -g G_ok --to min"),
        Base("repair {s} offsets -g G_ok"),
        Base("repair {s} --list"),
    ],
    "copy": [
        Base("copy {s} {p}/new"),
        Base("copy {s} {p}/new", damaged=True),
        Base("copy {s} {p}/new --salvage", damaged=True),
        Base("copy {s} {p}/new -g G_popfifo"),
    ],
    "init": [Base("init {p}/new")],
    "topic": [
        Base("topic {s} list"),
        Base("topic {s} show T_normal"),
        Base("topic {s} create New"),
        Base("topic {s} alter T_normal --queues 6"),
        Base("topic {s} delete T_normal --yes"),
    ],
    "group": [
        Base("group {s} list"),
        Base("group {s} show G_popfifo"),
        Base("group {s} create New"),
        Base("group {s} alter G_ok --set retryMaxTimes=3"),
        Base("group {s} delete G_ok --yes"),
    ],
    "produce": [
        Base("produce {s} -t T_normal -q 1 hello"),
        Base("produce {s} -t T_normal one two three"),
        Base("produce {s} --jsonl", given=_LINES),
        Base("produce {s} -t New hello"),
        Base("produce {s} -t T_normal", given=b"a line\n" * 40),
        Base("produce {s} -t New", given=b"a line\n"),
        Base("produce {s} -t T_normal --tx commit hello"),
        Base("produce {s} --replay -g G_retry"),
    ],
    "tick": [Base("tick {s}")],
    "consume": [
        Base("consume {s} -g G_popfifo -t T_popfifo"),
        Base("consume {s} -g G_retry"),
        Base("consume {s} -g G_new -t T_normal"),
        Base("consume {s} -g G_new -t T_normal --from first --commit"),
        Base("consume {s} -g G_new -t T_normal --commit"),
        Base("consume {s} -g G_new -t T_normal --pop"),
    ],
    "export": [
        Base("export {s} --engine local --to {p}/lake"),
        Base("export {s} --engine local --to {p}/old"),
        Base("export {s} --engine local --to {p}/lake", damaged=True),
        Base("export {s} --engine local --to {p}/lake", again=True),
        Base("export {s} --plan"),
        Base("export --schema"),
    ],
    "browse": [Base("browse {s} --html {p}/page.html"), Base("browse {s} --html {p}/page.html", damaged=True)],
    "man": [Base("man check")],
}
# No command that connects or serves can be tried like this; each has tests of its own.
NOT_HERE = {"demo": "a tour of all commands", "serve": "a server", "mirror": "needs a broker"}

_ELSEWHERE = "storePathCommitLog={p}/elsewhere"
# Before the damage and before the most of the messages; and after that damage.
_EARLY = "2026-11-18T12:19:24.500Z"
_MIDDLE = "2026-11-18T12:19:25.600Z"
# Values by option, and by command and option where a command means something else. Several are tried.
VALUES: Mapping[str, Sequence[str]] = {
    "credentials": ["keys"],
    "topic": ["T_normal", "T_retry", "T_popfifo"],
    "produce topic": ["T_normal", "T_retry", "New"],
    "queue": ["1", "0"],
    "group": ["G_popfifo", "G_ok"],
    "begin": [_EARLY, _MIDDLE, "2027-01-01"],
    "end": [_MIDDLE, "2026-01-01"],
    "limit": ["1", "0", "1000"],
    "offset": ["-1", "2"],
    "tag": ["TagA", "dead", "o"],
    "key": ["k4", "retry-9", "popfifo-2"],
    "where": ["price > 12", "region = 'eu'", "price IS NULL"],
    "as": ["4.9", "5.4"],
    "consume conf": [_ELSEWHERE, "enableLmq=true"],
    "conf": [_ELSEWHERE, "mappedFileSizeCommitLog=131072"],
    # Names that the rows of a command have: a template with any other is refused.
    "info template": ["<{version}>", "<{topic}>", "<{kind}>", "<{name}>"],
    "cat template": ["<{topic} {body}>"],
    "query template": ["<{topic} {body}>"],
    "consume template": ["<{topic} {body}>"],
    "stat template": ["<{messages}>"],
    "dump template": ["<{kind}>"],
    "check template": ["<{code}>"],
    "diff template": ["<{kind}>"],
    "recover template": ["<{messagesLost}>", "<{messages}>"],
    "repair template": ["<{plan}>"],
    "copy template": ["<{messages}>"],
    "init template": ["<{store}>"],
    "topic template": ["<{topic}>"],
    "group template": ["<{group}>"],
    "produce template": ["<{status}>"],
    "tick template": ["<{service}>"],
    "export template": ["<{rows}>", "<{file}>"],
    "tz": ["+03:00"],
    "color": ["always"],
    "progress": ["always"],
    "jobs": ["2"],
    "body-re": ["golf"],
    "sample": ["3"],
    "decode": ["cmd:sed -u s/^../AA/"],
    "by": ["day", "tag", "message", "log"],
    "duplicates": ["body"],
    "html": ["{p}/page.html"],
    "kind": ["key", "queueOffset", "time"],
    "boundary": ["upper", "lower"],
    "only": ["CL", "CQ"],
    "max-time": ["0s"],
    "report": ["{p}/report.md"],
    "explain": ["CQ-WRONG"],
    "cq": ["file,rocksdb"],
    "until": [_MIDDLE],
    "to": ["{p}/to", "5"],
    "allow": ["primary", "state"],
    "plan": ["000000000000"],
    "journal": ["{p}/journals"],
    "purge": ["T_normal"],
    "rehost": ["10.9.8.7:10911"],
    "redact": ["body", "keys"],
    "ids": ["{p}/ids.jsonl"],
    "queues": ["9"],
    "perm": ["r"],
    "attribute": ["+message.type=FIFO"],
    "set": ["retryQueueNums=3", "consumeEnable=false"],
    "property": ["colour=red"],
    "shard": ["abc"],
    "file": ["{p}/body.txt"],
    "batch": ["2"],
    "rate": ["400", "20"],
    "delay": ["3"],
    "at": ["2026-12-01T00:00:00Z"],
    "tx": ["pending", "rollback"],
    "from": ["last", "first", "3"],
    "members": ["2"],
    "invisible": ["90s"],
    "exec": ["cat >/dev/null", "false"],
    "timeout": ["1ms", "5m"],
    "check": ["exit 0", "exit 1"],
    "mode": ["overwrite", "append"],
    "columns": ["topic,queue_id"],
    "body": ["none", "raw"],
    "partition-by": ["topic"],
    "cluster-by": ["topic"],
    "on-corrupt": ["skip", "fail"],
    "format": ["delta"],
    "split-size": ["16KiB"],
}
# What a choice cannot be here: Spark takes a quarter of a minute to start.
_LEFT_OUT = {("engine", "spark")}


def values_of(option: Declared) -> list[list[str]]:
    """Return the words that type an option, one list for each value that is tried."""
    if option.is_flag:
        return [[option.spelled]]
    values = VALUES.get(f"{option.command} {option.name}") or VALUES.get(option.name)
    values = values or [one for one in option.choices if (option.name, one) not in _LEFT_OUT]
    if option.choices and option.name in VALUES:
        values = [value for value in values if value in option.choices] or list(option.choices)
    assert values, f"tests/guards/options.py has no value for {option.command} {option.spelled} {option.metavar}"
    return [[option.spelled, value] for value in values]


class Effect(NamedTuple):
    """Everything that can be seen of a run."""

    status: int | None
    out: str
    err: str
    files: tuple[tuple[str, str], ...]
    counts: tuple[int, ...] = ()
    # Whether the files are others than before.
    has_written: bool = False

    @property
    def is_refused(self) -> bool:
        return self.status in REFUSALS

    @property
    def is_stopped(self) -> bool:
        """Whether the command could do nothing, so that no option shows what it does."""
        return self.status not in (Exit.DONE, Exit.SKIPPED) and not self.out and not self.has_written


_SHIFTING = (
    (re.compile(r"(?<= in )\d+(?:\.\d+)? m?s\b"), "0 ms"),
    (re.compile(r"\b[0-9A-F]{32}\b"), "UNIQ"),
    (re.compile(r"\bplan [0-9a-f]{12}\b|\"plan\": \"[0-9a-f]{12}\""), "plan"),
    (re.compile(r"\"elapsedMs\": \d+"), '"elapsedMs": 0'),
)
_KEY = re.compile(rb"[0-9A-F]{32}")
_SMALL = 1 << 17


_State = tuple[int, ...]


class _Place:
    """A directory that each run finds as it was made. Only what a run changed is put back."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._kept = directory.with_name(f"{directory.name}-kept")
        subprocess.run(["cp", "-a", "--sparse=always", directory, self._kept], check=True)
        self._made = dict(self._states())
        self._digests = {name: self._digest(name) for name in self._made}
        self.files = self._listed(self._made)

    def look(self) -> tuple[tuple[str, str], ...]:
        """Return every file with a digest of its content."""
        return self._listed(dict(self._states()))

    def restore(self) -> None:
        """Put everything back that is not as it was made."""
        now = dict(self._states())
        if now == self._made:
            return
        changed = [name for name in now.keys() | self._made.keys() if now.get(name) != self._made.get(name)]
        for name in sorted((name for name in changed if name in now), reverse=True):
            path = self.directory / name
            if not stat.S_ISDIR(now[name][0]):
                path.unlink()
            elif not stat.S_ISDIR(self._made.get(name, (0,))[0]):
                path.rmdir()
        for name in sorted(name for name in changed if name in self._made):
            path, kept = self.directory / name, self._kept / name
            if kept.is_dir():
                path.mkdir(exist_ok=True)
                shutil.copystat(kept, path)
            else:
                subprocess.run(["cp", "-a", "--sparse=always", kept, path], check=True)
            self._made[name] = _state(path.lstat())

    def _states(self, below: str = "") -> Iterator[tuple[str, _State]]:
        with os.scandir(self.directory / below) as found:
            for entry in found:
                name = below + entry.name
                yield name, _state(entry.stat(follow_symlinks=False))
                if entry.is_dir(follow_symlinks=False):
                    yield from self._states(f"{name}/")

    def _listed(self, states: Mapping[str, _State]) -> tuple[tuple[str, str], ...]:
        found = []
        for name, state in sorted(states.items()):
            if not stat.S_ISDIR(state[0]):
                shown = re.sub(r"[0-9a-f]{12}$|[0-9a-f-]{36}", "ID", name)
                found.append((shown, self._digests[name] if state == self._made.get(name) else self._digest(name)))
        return tuple(found)

    def _digest(self, name: str) -> str:
        path = self.directory / name
        if not path.is_file():
            return ""
        # Only small files hold keys that are another each time; what is large is mostly holes.
        if path.stat().st_size > _SMALL:
            return content_digest(path)
        return hashlib.sha256(_KEY.sub(b"", path.read_bytes())).hexdigest()


def _state(found: os.stat_result) -> _State:
    """Return numbers that change with the content of a file; of a directory, only its mode."""
    if stat.S_ISDIR(found.st_mode):
        return (found.st_mode,)
    return (found.st_mode, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


class Bench:
    """Stores to try command lines on, and what was seen of those that were tried."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._seen: dict[tuple[Base, tuple[str, ...]], Effect] = {}
        self.places: dict[bool, _Place] = {}
        for damaged in (False, True):
            place = directory / f"place-{damaged}"
            root = unpack("53-broker", place)
            # Garbage after the end of the log, which only --conf storePathCommitLog makes a part of it.
            (place / "elsewhere").mkdir()
            (place / "elsewhere" / f"{262144:020d}").write_bytes(b"?" * 65536)
            (place / "body.txt").write_bytes(b"from a file")
            # What `repair offsets --from-bak` goes back to: in several topics of a group, nothing was consumed.
            offsets = root / "config/consumerOffset.json"
            earlier = re.sub(r"(?<=[{,])(\d+):\d+", r"\1:0", offsets.read_text(encoding="utf-8"))
            offsets.with_name(f"{offsets.name}.bak").write_text(earlier, encoding="utf-8")
            if damaged:
                spoil(segment(root, 1), 8300, 1)
                subprocess.run(["rm", "-r", root / "consumequeue/T_retry"], check=True)
            with at(place):
                made = type_words(["export", str(root), "--engine", "local", "--to", str(place / "old"), "-j", "1"])
            assert made.status in (Exit.DONE, Exit.SKIPPED), made.err
            self.places[damaged] = _Place(place)
        # What is compared with the store, and a store whose only fault is a warning.
        for name in ("other", "crashed"):
            store = self.places[False].directory / "store"
            subprocess.run(["cp", "-a", "--sparse=always", store, directory / name], check=True)
        subprocess.run(["rm", "-r", directory / "other/consumequeue/T_normal/1"], check=True)
        with at(directory):
            more = type_words(["produce", str(directory / "other"), "-t", "T_retry", "only here"])
        assert more.status == Exit.DONE, more.err
        (directory / "crashed/abort").touch()
        unpack("53-rocksdb", directory / "double").rename(directory / "rocksdb")
        self.runs = 0

    def effect(self, base: Base, words: Sequence[str] = ()) -> Effect:
        """Return what is seen of a base with words added to it."""
        key = (base, tuple(words))
        if key not in self._seen:
            self._seen[key] = self.run(base, words)
        return self._seen[key]

    def run(self, base: Base, words: Sequence[str] = ()) -> Effect:
        """Type a base with words added to it, and put back what it changed."""
        self.runs += 1
        place = self.places[base.damaged]
        line = [_placed(word, place.directory, self._directory) for word in (*base.words.split(), *words)]
        try:
            with at(place.directory), _still() as counts:
                if base.again:
                    type_words(line, base.given)
                before = place.look() if base.again else place.files
                typed = type_words(line, base.given)
            files = place.look()
        finally:
            place.restore()
        said = _settled(typed.out, place.directory), _settled(typed.err, place.directory)
        return Effect(typed.status, *said, files, tuple(counts), has_written=files != before)


def _placed(word: str, place: Path, others: Path) -> str:
    return word.replace("{s}", str(place / "store")).replace("{p}", str(place)).replace("{o}", str(others))


@contextmanager
def _still() -> Iterator[list[int]]:
    """Let the clock stand; count what is forced to the disk and how often somebody waits. Neither takes time."""
    counts, waited = [0, 0], [0.0]
    monotonic = time.monotonic

    def force(_: int) -> None:
        counts[0] += 1

    def wait(seconds: float) -> None:
        counts[1] += 1
        waited[0] += seconds

    with ExitStack() as stack:
        stack.enter_context(patch.object(time, "time_ns", lambda: NOW_NS))
        stack.enter_context(patch.object(time, "time", lambda: NOW_NS / 1e9))
        stack.enter_context(patch.object(time, "monotonic", lambda: monotonic() + waited[0]))
        stack.enter_context(patch.object(time, "monotonic_ns", lambda: int((monotonic() + waited[0]) * 1e9)))
        stack.enter_context(patch.object(os, "fdatasync", force))
        stack.enter_context(patch.object(os, "fsync", lambda _: None))
        stack.enter_context(patch.object(time, "sleep", wait))
        yield counts


def _settled(text: str, place: Path) -> str:
    text = text.replace(str(place), "PLACE")
    for pattern, word in _SHIFTING:
        text = pattern.sub(word, text)
    return text


def uses(base: Base, option: Declared) -> bool:
    """Return whether a base has an option already."""
    short = {"group": "-g", "topic": "-t", "queue": "-q"}.get(option.name, option.spelled)
    return bool({short, option.spelled} & set(base.words.split()))


def is_instead(base: Base) -> bool:
    """Return whether a base only shows what the rest of the line would do."""
    return any(f"--{name}" in base.words.split() for _, name in INSTEAD)


def swallowed_alone(bench: Bench, base: Base, option: Declared) -> str | None:
    """Say that an option does nothing on a base and is not refused either; None where it does or is.

    A refusal that changes a file is none.
    """
    without = bench.effect(base)
    effects = [bench.effect(base, value) for value in values_of(option)]
    if any(found.is_refused and found.has_written for found in effects):
        return f"rmqtool {base.words}: {option.spelled} is refused after files were changed"
    taken = [found for found in effects if not found.is_refused]
    if not taken or without.is_stopped or any(_differs(option, found, without) for found in taken):
        return None
    return f"rmqtool {base.words}: {option.spelled} does nothing and is not refused"


# What an option changes that no stream and no file shows.
_COUNTED = {"flush": 0, "rate": 1}


def _differs(option: Declared, one: Effect, other: Effect) -> bool:
    if option.name in _COUNTED:
        number = _COUNTED[option.name]
        return one.counts[number] != other.counts[number]
    return one[:4] != other[:4]


def swallowed_in_pair(bench: Bench, bases: Sequence[Base], one: Declared, two: Declared) -> list[str]:
    """Name the options of a pair that do nothing beside the other, though each is taken alone.

    An option does something if on any base, with any of its values, it changes what is seen beside the other. Of a pair
    that is refused nothing is swallowed; where one of them alone is refused already, that proves nothing.
    """
    shown = {option.name for option in (one, two) if (option.command, option.name) in INSTEAD}
    bases = [base for base in bases if not is_instead(base)]
    open_ = {option.name: option for option in (one, two) if option.name not in MANNERS}
    open_ = {name: option for name, option in open_.items() if f"{one.command} {name}" not in ELSEWHERE}
    open_ = {name: option for name, option in open_.items() if not shown or name in shown}
    met = False
    for base in bases:
        if uses(base, one) or uses(base, two):
            continue
        for first in values_of(one):
            for second in values_of(two):
                alone = {one.name: bench.effect(base, first), two.name: bench.effect(base, second)}
                refused = sum(effect.is_refused for effect in alone.values())
                both = bench.effect(base, [*first, *second])
                if both.is_refused:
                    if not refused:
                        return []
                    continue
                met = True
                for name, other, typed in ((one.name, two.name, second), (two.name, one.name, first)):
                    default = DEFAULTS.get((one.command, name))
                    without = alone[other] if default is None else bench.effect(base, [default, *typed])
                    if name in open_ and _differs(open_[name], both, without):
                        del open_[name]
                if not open_:
                    return []
    return (
        [f"{one.command} {one.spelled} {two.spelled}: {option.spelled} does nothing" for option in open_.values()]
        if met
        else []
    )
