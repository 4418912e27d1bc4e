"""``check``: compare every byte of the log, and every file with every other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from shlex import quote
from typing import TYPE_CHECKING, TypedDict, Unpack

from rmqtool.api.store import Place, is_one_file, opened_here, reopened, store_of
from rmqtool.api.wanted import Working, effort_of, require_known, unknown_places, wanted_of
from rmqtool.errors import UsageError

if TYPE_CHECKING:
    from rmqtool.checks.check import Check, CheckOptions
    from rmqtool.checks.tier_check import TierCheck
    from rmqtool.findings import CodeEntry
    from rmqtool.store.open import Store


class How(TypedDict, total=False):
    """How closely a store is checked.

    ``quick`` does not read messages; ``deep`` inflates every body and follows every timer. ``only`` names families or
    codes. After ``max_time`` ("90s") a check ends early, and ``resume`` continues it.
    """

    quick: bool
    deep: bool
    only: Sequence[str] | None
    topics: str | Sequence[str] | None
    max_time: str | None
    resume: str | None


@dataclass
class Checking:
    """A check of an open store: iterate over ``check``, then read its summary."""

    check: Check | TierCheck
    root: str
    note: str | None = None


def check(store: Place, *, jobs: int = 1, **how: Unpack[How]) -> Check | TierCheck:
    """Compare every part of a store with every other. Iterate to get each ``Finding``; then ``summary`` is complete."""
    from rmqtool.checks.check import Check
    from rmqtool.store.tiers import Tier

    require_known("check", how, tuple(How.__annotations__))
    named = store_of(store)
    options = _options(how)
    found = reopened(named) if named._opened is None else named._opened
    if isinstance(found, Tier):
        from rmqtool.checks.tier_check import TierCheck

        return TierCheck(found, options, effort_of(jobs))
    named._opened = found
    return Check(found, options, effort_of(jobs))


@contextmanager
def checking(store: Place, work: Working | None = None, **how: Unpack[How]) -> Iterator[Checking]:
    """Check a store and keep it open meanwhile. Of a single file only its own records are checked.

    Raises ``NotFound`` for a topic that does not exist: a clean result would read as if it was checked.
    """
    from rmqtool.checks.check import Check
    from rmqtool.store.tiers import Tier

    named, options = store_of(store), _options(how)
    with opened_here(named) as opened:
        if isinstance(opened, Tier):
            from rmqtool.checks.tier_check import TierCheck

            yield Checking(TierCheck(opened, options, effort_of(**(work or {}))), opened.root)
            return
        note = None
        if is_one_file(named.path) and not options.only:
            options, note = _of_one_file(opened, named.path, options)
        unknown = unknown_places([opened], wanted_of({"topics": how.get("topics")}))
        if unknown is not None:
            raise unknown.refusal("nothing was checked")
        yield Checking(Check(opened, options, effort_of(**(work or {}))), opened.root, note)


def explain(word: str) -> tuple[CodeEntry | None, list[CodeEntry]]:
    """Return the meaning of one code, or the codes of a family; "all" means every code."""
    from rmqtool.findings import find_code, iter_codes

    entry = find_code(word)
    listed = [] if entry is not None else list(iter_codes("" if word == "all" else word))
    if entry is None and not listed:
        raise UsageError(f"{word} is not a finding code", hint="rmqtool check --explain all")
    return entry, listed


def _options(how: How) -> CheckOptions:
    from rmqtool.checks.case import Depth
    from rmqtool.checks.check import CheckOptions
    from rmqtool.filters.wanted import want
    from rmqtool.times import parse_span

    if how.get("quick") and how.get("deep"):
        raise UsageError("--quick and --deep exclude each other", hint="without them everything is read once")
    max_time = how.get("max_time")
    if how.get("quick") and max_time is not None:
        raise UsageError(
            "--max-time has no effect on --quick, which does not read the log", hint="leave out one of them"
        )
    return CheckOptions(
        depth=Depth.QUICK if how.get("quick") else Depth.DEEP if how.get("deep") else Depth.DEFAULT,
        only=tuple(how.get("only") or ()),
        topics=want(topics=how.get("topics")).topics,
        max_seconds=None if max_time is None else parse_span(max_time) / 1000,
        resume=how.get("resume"),
    )


def _of_one_file(store: Store, name: str, options: CheckOptions) -> tuple[CheckOptions, str]:
    """Return the options for a single file: the records of a log, without what other files say about them."""
    from rmqtool.formats.paths import FileKind

    hint = f"rmqtool check {quote(store.root)}"
    if store.listing.files[0].what.kind not in (FileKind.COMMIT_LOG, FileKind.UNKNOWN):
        raise UsageError(f"{name} is a single file, and this check needs the whole store", hint=hint)
    note = f"single file: only its records are checked, not their queue and index entries ({hint})"
    return replace(options, only=("CL",)), note
