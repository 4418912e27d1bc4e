"""Every call of the engine that syncs something, found in its source, and how to leave out one of them.

The name of a site is its file, its function and the call, with a number where a function makes the same call twice:
``engine/commit_log.py:flush:fdatasync``.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import rmqtool
from tests.proof import crashes
from tests.proof.crash_lives import Batches, DamagedStore, Life, Puts, Recoveries, Retention, Starts
from tests.proof.odd_lives import CutSegment, DeletedTopic, Leftovers, LostEnd, OddFiles
from tests.support.faulty import FaultyFileSystem, FaultyWritableFile

_CALLS = ("fdatasync", "fsync", "fsync_dir")
_PACKAGE = Path(rmqtool.__file__).parent


class Site(NamedTuple):
    """A call that syncs: its name, and where its source is."""

    name: str
    file: str
    lines: range


def sites(directory: str = "engine") -> list[Site]:
    """Return the sites below a directory of the package, in the order of the source."""
    found = []
    for path in sorted((_PACKAGE / directory).rglob("*.py")):
        file, seen = path.relative_to(_PACKAGE).as_posix(), Counter[str]()
        for function, call in _iter_calls(ast.parse(path.read_text(encoding="utf-8")), ""):
            name = f"{file}:{function}:{call.func.attr}"  # type: ignore[attr-defined]
            seen[name] += 1
            number = f" {seen[name]}" if seen[name] > 1 else ""
            found.append(Site(name + number, file, range(call.lineno, (call.end_lineno or call.lineno) + 1)))
    return found


def _iter_calls(node: ast.AST, function: str) -> Iterator[tuple[str, ast.Call]]:
    for one in ast.iter_child_nodes(node):
        if isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute) and one.func.attr in _CALLS:
            yield function, one
        yield from _iter_calls(one, one.name if isinstance(one, ast.FunctionDef) else function)


@contextmanager
def without(site: Site) -> Iterator[list[int]]:
    """Leave one site out on the model disk; gives a list that grows with each sync that was left out."""
    left_out: list[int] = []

    def is_site() -> bool:
        frame = sys._getframe(2)
        return frame.f_lineno in site.lines and frame.f_code.co_filename == str(_PACKAGE / site.file)

    with ExitStack() as stack:
        for owner, name in zip((FaultyWritableFile, FaultyWritableFile, FaultyFileSystem), _CALLS, strict=True):
            synced = getattr(owner, name)

            def sync(self: Any, *given: Any, real: Callable[..., Any] = synced) -> None:
                if is_site():
                    left_out.append(1)
                else:
                    real(self, *given)

            stack.enter_context(patch.object(owner, name, sync))
        yield left_out


# What happens to a store without each of them: the life that breaks its promise then.
NOTICED: dict[str, type[Life]] = {
    "engine/bulk_load.py:_note_batch:fsync": Batches,
    "engine/commit_log.py:discard_prepared:fsync_dir": Puts,
    "engine/commit_log.py:remove_first:fsync_dir": Retention,
    "engine/commit_log.py:clear_next:fdatasync": Leftovers,
    "engine/commit_log.py:flush:fdatasync": Puts,
    "engine/commit_log.py:_create:fsync_dir": Puts,
    "engine/consume_queue.py:flush:fdatasync": Puts,
    "engine/consume_queue.py:flush:fsync_dir": Puts,
    "engine/flush.py:flush:fdatasync": Puts,
    "engine/index_file.py:flush:fdatasync": Puts,
    "engine/index_file.py:_create:fsync_dir": Puts,
    "engine/load.py:mark_open:fsync_dir": Puts,
    "engine/load.py:mark_closed:fsync_dir": Puts,
    "engine/load.py:create_store:fsync": Starts,
    "engine/load.py:create_store:fsync_dir": Starts,
    "engine/recovery/places.py:remove_directories:fsync_dir": OddFiles,
    "engine/recovery/places.py:_move:fsync_dir 2": OddFiles,
    "engine/recovery/index_pass.py:_rewrite_from:fsync_dir": LostEnd,
    "engine/recovery/places.py:restore_segment_sizes:fsync_dir": OddFiles,
    "engine/recovery/places.py:restore_segment_sizes:fsync": CutSegment,
    "engine/recovery/places.py:restore_segment_sizes:fsync 2": OddFiles,
    "engine/recovery/places.py:restore_queue_files:fsync": OddFiles,
    "engine/retention.py:_remove:fsync_dir": DeletedTopic,
    "engine/retention.py:_remove_units:fsync_dir": Retention,
    "engine/retention.py:_remove_index:fsync_dir": Retention,
    "engine/recovery/recover.py:heal_checkpoint:fsync": Recoveries,
    "engine/recovery/recover.py:_cut:fsync_dir": Recoveries,
    "engine/recovery/recover.py:_zero:fdatasync": DamagedStore,
    "engine/recovery/recover.py:_close:fsync_dir": Recoveries,
}

# Those without which every promise is kept, and why they are there.
SHORTENS = "what it makes durable is made so again by a later sync, before anything is promised; a power cut costs less"
KEPT: dict[str, str] = {
    # The first flushed record makes the size durable too. A segment without its size can be left before this call also.
    "engine/commit_log.py:_create:fsync": SHORTENS,
    # Closing syncs the content and the name. Without a checkpoint a broker reads the whole log.
    "engine/flush.py:_made:fsync": SHORTENS,
    "engine/flush.py:_made:fsync_dir": SHORTENS,
    # Only the name of the marker counts; nobody reads the process id in it after a power cut.
    "engine/load.py:mark_open:fsync": SHORTENS,
    # The sync of the directory that the file left follows, and a rename is one change of both.
    "engine/recovery/places.py:_move:fsync_dir": SHORTENS,
    # The removal of the marker, which follows, syncs the same directory.
    "engine/recovery/recover.py:heal_checkpoint:fsync_dir": SHORTENS,
}


# Two changes are in doubt at once, and only one of their four states breaks a promise: every call has a random state.
_ALL_RANDOM = (CutSegment,)


def noticed(site: Site, seeds: Sequence[int] = range(6)) -> str | None:
    """Walk the life of a site without it; return the first failure, or None."""
    life = NOTICED[site.name]
    with without(site):
        for seed in seeds:
            try:
                failures = crashes.walk(life, seed, 1 if life in _ALL_RANDOM else 4, to_the_end=False).failures
            except Exception as error:
                failures = [f"{type(error).__name__}: {error}"]
            if failures:
                return f"{life.name}, seed {seed}: {failures[0]}"
    return None
