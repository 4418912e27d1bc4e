"""Engines broken on purpose: a campaign that does not notice is worth nothing.

Each canary breaks one promise in this process, for as long as its context lasts, and names the lives that must notice.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from itertools import count
from typing import Any, NamedTuple
from unittest.mock import patch

from rmqtool.broker.services.pop import Pops
from rmqtool.engine import flush
from rmqtool.engine.commit_log import Writer
from rmqtool.engine.index_file import IndexFileWriter
from rmqtool.engine.message import PutStatus
from rmqtool.engine.recovery import recover as recovery
from rmqtool.files import journal
from rmqtool.log import read, walk
from rmqtool.replica import mirror_log
from tests.proof import crash_lives, crashes, starts, works
from tests.proof.campaign import Outcome
from tests.support.faulty import FaultyFileSystem, FaultyWritableFile


class Canary(NamedTuple):
    """What is broken, how, and where it must be noticed."""

    word: str
    broken: Callable[[], Any]
    lives: Sequence[Any]
    # How lives are tried: each call looked at, or random cuts.
    tried: Callable[[Any, int], Outcome] = partial(crashes.walk, to_the_end=False)


class Caught(NamedTuple):
    """The first failure that a broken engine caused, and how many states were judged until then."""

    failure: str
    states: int


def hunt(canary: Canary, seeds: Sequence[int] = range(400)) -> Caught | None:
    """Try lives with a broken engine until one is judged to be wrong; return None if none is."""
    states = 0
    with canary.broken():
        for seed in seeds:
            for life in canary.lives:
                try:
                    outcome = canary.tried(life, seed)
                except Exception as error:
                    return Caught(f"{life.name}, seed {seed}: {type(error).__name__}: {error}", states + 1)
                states += outcome.states
                if outcome.failures:
                    return Caught(outcome.failures[0], states)
    return None


@contextmanager
def without_sync(*names: str) -> Iterator[None]:
    """Leave out each sync that is called from one of these places: ``file.py:function``."""

    def is_left_out(depth: int = 2) -> bool:
        code = sys._getframe(depth).f_code
        return f"{code.co_filename.rpartition('/rmqtool/')[2]}:{code.co_name}" in names

    with ExitStack() as stack:
        for owner, name in (
            (FaultyWritableFile, "fdatasync"),
            (FaultyWritableFile, "fsync"),
            (FaultyFileSystem, "fsync_dir"),
        ):
            real = getattr(owner, name)

            def sync(self: Any, *given: Any, real: Callable[..., Any] = real) -> None:
                if not is_left_out():
                    real(self, *given)

            stack.enter_context(patch.object(owner, name, sync))
        yield


def _acknowledged_early() -> Any:
    return patch.object(flush.Flusher, "wait_flushed", lambda _self, _offset: PutStatus.PUT_OK)


def _woken_early() -> Any:
    """A producer that comes during the sync of another is told that it is done."""
    real = flush.GroupCommit.wait_until

    def wait_until(self: Any, is_done: Callable[[int], bool], timeout: float) -> Any:
        return flush.Turn.DONE if self.is_taken else real(self, is_done, timeout)

    return patch.object(flush.GroupCommit, "wait_until", wait_until)


def _checkpoint_ahead() -> Any:
    real = flush.Checkpoint.advance

    def advance(self: Any, **times: int) -> None:
        real(self, **{name: time + 60_000 for name, time in times.items()})

    return patch.object(flush.Checkpoint, "advance", advance)


def _torn_tail_kept() -> Any:
    return patch.object(recovery._Recovery, "_zero", lambda _self, _directory, _segment, _start: None)


def _checksum_ignored() -> Any:
    """A record whose body does not have its checksum is taken for a whole one, one by one and by columns."""
    import numpy as np

    real, stack = walk.check_record, ExitStack()

    def check_record(*given: Any, **named: Any) -> Iterator[Any]:
        return (flaw for flaw in real(*given, **named) if flaw.code != "CL-CRC")

    stack.enter_context(patch.object(walk, "check_record", check_record))
    stack.enter_context(patch.object(read, "have_right_crc", lambda records: np.ones(len(records), dtype=bool)))
    return stack


def _numbered_twice() -> Any:
    real, turn = Writer._numbered, count()

    def numbered(self: Any, ticket: Any, position: int, store_timestamp: int) -> Any:
        data = real(self, ticket, position, store_timestamp)
        if next(turn) % 5 == 4:
            self._offsets.table[ticket.queue] -= 1
        return data

    return patch.object(Writer, "_numbered", numbered)


def _chain_reversed() -> Any:
    """Hang a new entry behind the one before it in its chain, as long as both wait to be written."""
    real = IndexFileWriter.put

    def put(self: Any, key_hash: int, physical_offset: int, store_timestamp: int) -> None:
        slot = key_hash % self.geometry.slots
        number, previous = self.next_entry, self.slot(slot)
        real(self, key_hash, physical_offset, store_timestamp)
        older = previous - self._written_count
        if previous and 0 <= older < len(self._entries) - 1:
            new, old = self._entries[-1], self._entries[older]
            self._entries[-1] = new[:16] + old[16:]
            self._entries[older] = old[:16] + number.to_bytes(4, "big")
            self._set_slot(slot, previous)

    return patch.object(IndexFileWriter, "put", put)


def _journal_after_write() -> Any:
    def pwrite(self: Any, data: Any, file_offset: int) -> None:
        self._file.pwrite(data, file_offset)
        self._owner.before_writing(self.path, file_offset, file_offset + len(data))

    return patch.object(journal.JournalledFile, "pwrite", pwrite)


def _undone_in_wrong_order() -> Any:
    """The directories are synced before the names in them are restored."""
    restoration = journal._Restoration
    clear, restore = restoration._clear, restoration._restore

    def synced_before(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: Any, path: str, what: Any) -> None:
            directory = path.rpartition("/")[0]
            if self._files.exists(directory):
                self._files.fsync_dir(directory)
            real(self, path, what)

        return call

    stack = ExitStack()
    stack.enter_context(patch.object(restoration, "_clear", synced_before(clear)))
    stack.enter_context(patch.object(restoration, "_restore", synced_before(restore)))
    stack.enter_context(without_sync("files/journal.py:run"))
    return stack


def _pop_forgetting() -> Any:
    return patch.object(Pops, "_put_check_point", lambda self, *_given: self._store.put(_nothing()))


def _nothing() -> Any:
    from tests.support.engine_stores import a_message

    return a_message(topic="Nothing")


def _zeros_not_seen() -> Any:
    """A record of a mirror whose properties lack bytes is taken for a whole one, and not compared."""
    import numpy as np

    stack = ExitStack()
    stack.enter_context(patch.object(mirror_log, "have_zeros", lambda records: np.zeros(len(records), dtype=bool)))
    stack.enter_context(patch.object(mirror_log, "_COMPARED", 0))
    return stack


_PUTS = (crash_lives.Puts,)
CANARIES = (
    Canary("the sync of the log left out", lambda: without_sync("engine/commit_log.py:flush"), _PUTS),
    Canary("acknowledged before written to disk", _acknowledged_early, _PUTS),
    Canary("checkpoint ahead of the log", _checkpoint_ahead, _PUTS),
    Canary("a torn tail kept", _torn_tail_kept, _PUTS),
    Canary("checksums not compared", _checksum_ignored, _PUTS),
    Canary("queue offsets numbered twice", _numbered_twice, _PUTS),
    Canary("chains of the index reversed", _chain_reversed, _PUTS, crashes.cut),
    Canary("the journal written after the change", _journal_after_write, (crash_lives.Repairs,)),
    Canary("the undo in the wrong order", _undone_in_wrong_order, (crash_lives.Undos, crash_lives.Repairs)),
    Canary(
        "a rename without the sync of its directory",
        lambda: without_sync("store/config_files.py:_replace"),
        (crash_lives.Tables,),
    ),
    Canary("a group commit that wakes too early", _woken_early, (crash_lives.Producers,)),
    Canary("pop that forgets what is out", _pop_forgetting, (crash_lives.Services,)),
    Canary(
        "a mirror that reports what it has not synced",
        lambda: without_sync("replica/mirror_log.py:sync"),
        (crash_lives.Mirrors,),
    ),
    Canary("a mirror that takes half properties for whole", _zeros_not_seen, (crash_lives.Mirrors,)),
)
# Of the same kind, for the starts of real classes: it needs a JVM.
STARTED = Canary(
    "the sync of the log left out, and the real classes started",
    lambda: without_sync("engine/commit_log.py:flush"),
    _PUTS,
    starts.tried,
)


def _unsynced(word: str, kind: type[works.Work], paths: str) -> Canary:
    """Return a work without the syncs, in its recording, of all paths that match an expression."""

    def is_left_out(did: works.Did) -> bool:
        return did.name in ("fsync", "fdatasync") and re.fullmatch(paths, did.path) is not None

    def tried(one: type[works.Work], _seed: int) -> Outcome:
        return works.walk(one, is_left_out, to_the_end=False)

    return Canary(word, nullcontext, (kind,), tried)


# Works without some of their syncs: they need strace. One trial each, for nothing is left to chance. The paths are from
# the directory of the store on, which is "" itself.
PUBLISHED = (
    _unsynced(
        "an export that announces names which are not durable", works.MoreExports, r"\.lake\.rmqtool/[0-9a-f]{32}"
    ),
    _unsynced("an export whose announcement may be empty", works.MoreExports, r"\.lake\.rmqtool/pending\.json\.new"),
    _unsynced("an export whose new target has no durable name", works.Exports, r""),
    _unsynced("a copy that gets its name before it is durable", works.Copies, r"\.new\.rmqtool-copy/store/.*"),
    _unsynced("a commit of a Delta table that is not synced", works.MoreDeltaExports, r"lake/_delta_log/.*"),
    _unsynced("a batch whose store is not durable when it is published", works.Sinks, r"\.store\.rmqtool-write/.*"),
    _unsynced("a whole mirror that reports what it has not synced", works.WholeMirrors, r"store/commitlog/.*"),
    _unsynced("a server that acknowledges what it has not synced", works.Serves, r"store/commitlog/.*"),
)
