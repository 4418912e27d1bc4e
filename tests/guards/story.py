"""One story per store: what `info`, `check`, `recover` and `repair` say of it, and where they contradict each other.

``hear`` types the looks; ``contradictions`` compares the answers and knows no store, so that a test can hand it answers
that contradict each other. ``follow`` obeys the screens until nothing new is said.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rmqtool.errors import Exit
from tests.guards.typed import ANSWERS, Typed, is_ours, json_lines, json_of, next_lines, type_line, type_words

FEWEST_VERSIONS: tuple[str | None, ...] = (None,)
ALL_VERSIONS: tuple[str | None, ...] = (None, "4.9", "5.3", "5.4")
MOST_COMMANDS = 5

_GRAVE = ("warning", "error")
Row = Mapping[str, Any]

# A name of a file or directory below the store, as sentences hold it.
_PATH = re.compile(r"[\w%.@+-]+(?:/[\w%.@+-]*[\w%@-])+|\b(?:checkpoint|abort|lock|timerwheel|commitlog|consumequeue)\b")

# The sentences that end a search: what is gone is said to be gone, or who has to act outside this tool is told how.
# Each speaks of messages, offsets, keys or a file, and not only of findings that are left.
_ENDS = (
    re.compile(
        r"messages? (?:that queues name |that queue entries lead to )?(?:is|are) no longer (?:whole )?in the log"
    ),
    re.compile(r"\b(?:is|are) (?:gone|lost)\b"),
    re.compile(r"cannot be (?:had back|brought back|restored|recovered)"),
    re.compile(r"\brestore (?:it|the file) from a backup\b"),
    re.compile(r"cannot be read: the disk reports an error"),
    re.compile(r"\bcut them off: truncate -s\b"),
    re.compile(r"\bfindmnt --target\b"),
    re.compile(r"cannot (?:open|read|list) \S+: (?:Permission denied|Input/output error)"),
)


@dataclass
class Told:
    """The answers about one store."""

    statuses: dict[str, int | None]
    info: list[Row] = field(default_factory=list)
    info_error: str = ""
    lag: Mapping[str, int] = field(default_factory=dict)
    check: list[Row] = field(default_factory=list)
    check_error: str = ""
    summary: Row | None = None
    quick: list[Row] = field(default_factory=list)
    starts: list[Row] = field(default_factory=list)
    start_errors: list[str] = field(default_factory=list)
    # What `check --as` finds for the brokers whose start was asked for by version.
    check_as: dict[str, list[Row]] = field(default_factory=dict)
    plan: Row | None = None
    crashes: list[str] = field(default_factory=list)
    # Queue files of zeros alone: nothing is lost with them.
    blank: frozenset[str] = frozenset()


def hear(root: Path, versions: Sequence[str | None] = FEWEST_VERSIONS) -> Told:
    """Ask every look and every dry run about the store at ``root``."""
    store = str(root)
    info = type_words(["info", store, "--json"])
    check = type_words(["check", store, "--jsonl", "--quiet"])
    quick = type_words(["check", store, "--quick", "--jsonl", "--quiet"])
    plan = type_words(["repair", store, "--json"])
    starts = [type_words(["recover", store, "--json", *(["--as", v] if v else [])]) for v in versions]
    answers = {"info": info, "check": check, "check --quick": quick, "repair": plan}
    answers |= {f"recover{f' --as {v}' if v else ''}": start for v, start in zip(versions, starts, strict=True)}
    told = Told({name: answer.status for name, answer in answers.items()})
    told.crashes = [f"{name}: {answer.err.strip()}" for name, answer in answers.items() if answer.status == Exit.BUG]
    shown = json_of(info)
    told.info, told.info_error = (shown["findings"], "") if shown else ([], info.err)
    told.check, told.summary = _findings(check)
    told.check_error = "" if check.out.strip() else check.err
    told.quick, _ = _findings(quick)
    told.starts = [json_of(start) for start in starts if start.out.strip()]
    told.start_errors = [start.err for start in starts if not start.out.strip()]
    told.check_as = {v: _findings(type_words(["check", store, "--as", v, "--jsonl"]))[0] for v in versions if v}
    told.plan = json_of(plan)
    told.blank = frozenset(_blank_files(root))
    return told


def _blank_files(root: Path) -> Iterator[str]:
    for path in (root / "consumequeue").glob("*/*/*"):
        with suppress(OSError):
            if path.is_file() and not path.read_bytes().strip(b"\0"):
                yield str(path.relative_to(root))


def _findings(checked: Typed) -> tuple[list[Row], Row | None]:
    lines = json_lines(checked)
    summary = next((line["summary"] for line in lines if "summary" in line), None)
    return [line for line in lines if "code" in line], summary


def contradictions(told: Told) -> Iterator[str]:
    """Say where the answers about one store do not fit together, one sentence each."""
    yield from told.crashes
    yield from _odd_statuses(told.statuses)
    yield from _check_against_itself(told)
    for name, found in (("check", told.check), ("check --quick", told.quick)):
        yield from _unknown_to(name, found, told)
    for start in told.starts:
        yield from _start_against_check(start, told.check_as.get(start["as"], told.check), told.blank)
    for error in told.start_errors:
        known = _names(told.check, _paths(error)) or _paths(error) & _paths(told.check_error)
        if "is not modelled" not in error and not known:
            yield f"recover refuses ({_short(error)}) and check does not name it"
    yield from _plan_against_check(told)


def _odd_statuses(statuses: Mapping[str, int | None]) -> Iterator[str]:
    for name, status in statuses.items():
        if status not in ANSWERS:
            yield f"{name} ends with {status}, which is no answer"
        elif name == "info" and status == Exit.NO:
            yield "info ends with 1, although it does not judge"


def _check_against_itself(told: Told) -> Iterator[str]:
    for name, found in (("check", told.check), ("check --quick", told.quick)):
        status = told.statuses[name]
        if _grave(found) and status == Exit.DONE:
            yield f"{name} ends with 0 and finds {_shown(_grave(found)[0])}"
        if status == Exit.NO and not _grave(found):
            yield f"{name} ends with 1 and finds nothing"
    if told.summary is not None:
        counts = tuple(sum(one["severity"] == s for one in told.check) for s in ("error", "warning", "notice"))
        said = tuple(told.summary[name] for name in ("errors", "warnings", "notices"))
        if counts != said:
            yield f"check shows {counts} errors, warnings, notices and counts {said}"


def _unknown_to(name: str, found: Sequence[Row], told: Told) -> Iterator[str]:
    for code, file in sorted({(one["code"], one.get("file") or "") for one in _grave(told.info)}):
        if not any(other["code"] == code and _is_at(other.get("file") or "", file) for other in _grave(found)):
            words = next(one["message"] for one in told.info if (one["code"], one.get("file") or "") == (code, file))
            yield f"info finds {code} {file} ({_short(words)}) and {name} does not"
    if told.statuses["info"] not in (Exit.DONE, Exit.SKIPPED) and told.statuses[name] == Exit.DONE:
        yield f"info ends with {told.statuses['info']} ({_short(told.info_error)}) and {name} finds nothing wrong"


def _is_at(found: str, file: str) -> bool:
    """Return whether a finding is about a file, or about something in it where it is a directory."""
    return found == file or found.startswith(file + "/")


def _start_against_check(start: Row, check: Sequence[Row], blank: Collection[str]) -> Iterator[str]:
    broker = f"a {start['as']} broker"
    if start["starts"] is not True or not start["loads"]:
        named = _paths(start.get("reason") or "")
        if not _names(check, named):
            yield f"{broker} does not start ({start.get('reason')}) and check does not name {sorted(named) or 'it'}"
    destroyed = [part for part in start.get("lost", []) if not part["leftover"]]
    if destroyed:
        places = {part["file"] for part in destroyed} | ({start["cut"]["file"]} if start["cut"] else set())
        if not _names(check, places | _paths(start.get("reason") or "")):
            yield f"{broker} destroys messages of {sorted(places)} and check names none of these files"
    for config in start["config"]:
        if config.get("damaged") and not _names(check, {config["file"]}):
            yield f"{broker} cannot read {config['file']} and check does not name it"
    yield from _deleted_queues(start, check, blank)
    if start.get("messagesUnreachable") and not _grave(check):
        yield f"{broker} leaves {start['messagesUnreachable']} messages in no queue and check finds nothing"
    for trap in start.get("traps", []):
        if trap["loses"] and not _grave(check):
            yield f"{broker} loses something ({trap['name']}: {_short(trap['message'])}) and check finds nothing"


def _deleted_queues(start: Row, check: Sequence[Row], blank: Collection[str]) -> Iterator[str]:
    """Queues are cut after the log: what check names where the log ends explains them. Otherwise each must be named."""
    cut = start["cut"]
    if _names(check, {cut["file"] if cut else "commitlog"}):
        return
    deleted = {
        change["path"].rpartition("/")[0]
        for change in start["files"]
        if change["action"] == "delete"
        and change["path"].startswith("consumequeue/")
        and change["sizeBefore"]
        and change["path"] not in blank
    }
    unnamed = sorted(queue for queue in deleted if not _names(check, {queue}, above=True))
    if unnamed:
        yield f"a {start['as']} broker deletes files of {_some(unnamed)} and check names nothing there"


def _plan_against_check(told: Told) -> Iterator[str]:
    if told.plan is None:
        if told.statuses["check"] == Exit.DONE and told.statuses["repair"] not in (Exit.DONE, Exit.IN_USE):
            yield f"repair ends with {told.statuses['repair']} and check finds nothing wrong"
        return
    left, steps = told.plan["left"], told.plan["steps"]
    if not left and not steps and _grave(told.check):
        yield f"repair has nothing to do and check finds {_shown(_grave(told.check)[0])}"
    # What steps would leave may come of the steps; where there is none it is what is there now.
    known = {(other["code"], other.get("file")) for other in told.check}
    for code, file in sorted({(one["code"], one.get("file") or "") for one in _grave(left)}):
        if not steps and (code, file or None) not in known:
            yield f"repair would leave {code} {file}, which check does not know"
    for step in steps:
        # A step that renames says the new name, perhaps in quarantine; check knows the old one beside it.
        new = step["file"].removeprefix("quarantine/")
        file = new.rpartition("/")[0] if step.get("action") == "rename" else new
        if step["class"] == "primary" and not _names(told.check, {file}, above=True):
            yield f"repair would change {step['file']} and check does not name it"


def _grave(found: Sequence[Row]) -> list[Row]:
    return [one for one in found if one["severity"] in _GRAVE]


def _names(found: Sequence[Row], wanted: set[str], *, above: bool = False) -> bool:
    """Return whether something grave is about one of the paths, or about something below it; of nothing, anything is.

    ``above``: what is wrong with a directory is wrong with what is in it.
    """
    grave = _grave(found)
    if not wanted:
        return bool(grave)
    for one in grave:
        file = one.get("file") or ""
        for path in wanted:
            if file == path or file.startswith(path.rstrip("/") + "/") or path.endswith("/" + file or "/"):
                return True
            if above and (not file or path.startswith(file.rstrip("/") + "/")):
                return True
    return False


def _paths(words: str) -> set[str]:
    return set(_PATH.findall(words))


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _shown(one: Row) -> str:
    return f"{one['code']} {one.get('file')}: {_short(one['message'])}"


def _short(words: str) -> str:
    return " ".join(words.split())[:150]


def follow(
    start: str,
    type_it: Callable[[str], Typed] = type_line,
    passes: Callable[[str], bool] | None = None,
    known: Sequence[str] = (),
) -> Iterator[str]:
    """Obey the screens from the line ``start`` on; say what is wrong with where they lead.

    ``known`` are stores that the line is about, if it does not name them as an argument.
    ``passes`` tells whether a store is sound in the end; it is `check` unless a test says otherwise.
    """
    sound = passes or _passes
    done: list[Typed] = []
    waiting = [start]
    stores = [*known]
    while waiting:
        line = waiting.pop(0)
        if line in (typed.line for typed in _since_a_change(done)):
            yield from _in_a_circle(done, line, stores, sound)
            return
        typed = type_it(line)
        done.append(typed)
        if typed.status is not None and typed.status not in ANSWERS:
            yield f"{line} ends with {typed.status}: {_short(typed.err)}"
            return
        stores += [word for word in _stores_of(line) if word not in stores]
        if not waiting:
            waiting = [line for line in next_lines(typed) if is_ours(line)]
        if waiting and sum(typed.status is not None for typed in done) >= MOST_COMMANDS:
            break
    if any(sound(store) for store in reversed(stores)) or _is_told(done):
        return
    if by_hand(Path(stores[0])):
        yield from follow(f"rmqtool check {shlex.quote(stores[0])}", type_it, passes)
    else:
        yield f"{_way(done)}: not sound, and nothing says what cannot be had back"


def _since_a_change(done: Sequence[Typed]) -> Sequence[Typed]:
    """Return what was typed since something was written: a look may be repeated at what is another store then."""
    changes = [number for number, typed in enumerate(done) if "--apply" in typed.line and typed.status == Exit.NO]
    return done[changes[-1] :] if changes else done


def by_hand(root: Path) -> bool:
    """Do what `check` asks for in words; return whether it asked for anything that can be done."""
    found, _ = _findings(type_words(["check", str(root), "--jsonl", "--quiet"]))
    done = False
    for one in found:
        path, fix = root / (one.get("file") or ""), one.get("fix") or ""
        if path == root or not os.path.lexists(path):
            continue
        if one["code"] == "ST-FOREIGN" and "move it out" in fix:
            path.rename(root.parent / f"moved-{path.name}")
            done = True
        elif one["code"] == "ST-LINK" and "in its place" in fix:
            target = path.readlink()
            path.unlink()
            target.rename(path)
            done = True
        elif one["code"] == "ST-LOCK" and "empty file" in fix:
            path.rename(root.parent / f"moved-{path.name}")
            path.touch()
            done = True
    return done


def _in_a_circle(
    done: Sequence[Typed], line: str, stores: Sequence[str], sound: Callable[[str], bool]
) -> Iterator[str]:
    """Going back to a look is a circle, unless the store is sound by then or what is lost was said."""
    if any(sound(store) for store in reversed(stores)) or _is_told(done):
        return
    yield f"in a circle: {_way(done)} → {line}"


def _is_told(done: Sequence[Typed]) -> bool:
    """Return whether a screen of the way said what cannot be had back."""
    return any(pattern.search(typed.said) for typed in done for pattern in _ENDS)


def _way(done: Sequence[Typed]) -> str:
    return " → ".join(f"{typed.line} [{typed.status}]" for typed in done)


def _stores_of(line: str) -> list[str]:
    """Return the stores that a line of ours makes or mends: the one it names first, and the new one of a copy."""
    words = [word for word in shlex.split(line)[2:] if not word.startswith("-")]
    return words[:2] if line.startswith("rmqtool copy ") else words[:1] if line.startswith("rmqtool ") else []


def _passes(store: str) -> bool:
    return type_words(["check", store, "--jsonl", "--quiet"]).status == Exit.DONE
