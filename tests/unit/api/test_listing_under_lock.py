"""Commands that write list queues once, after they have the lock: a listing from before may be out of date."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import rmqtool
from rmqtool.api.produce import Given
from rmqtool.files.filesystem import Closable, Entry
from rmqtool.files.posix import PosixReadableFileSystem
from rmqtool.files.posix_write import PosixWritableFileSystem
from rmqtool.formats.paths import CONSUME_QUEUE

Writer = Callable[[Path], object]
WRITERS: dict[str, Writer] = {
    "recover": rmqtool.recover_apply,
    "produce": lambda root: list(rmqtool.produce(root, Given(bodies=["hello"]), topic="TopicTest", create=True)),
    "tick": rmqtool.tick,
}


@pytest.mark.parametrize("name", WRITERS)
def test_queues_are_listed_once_and_after_the_lock_is_taken(
    name: str, writable_store: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    root, events = writable_store("49-basic"), list[str]()
    if name == "recover":
        (root / "abort").touch()
    lock, close, listdir = PosixWritableFileSystem.lock, PosixWritableFileSystem.close, PosixReadableFileSystem.listdir

    def lock_and_tell(self: PosixWritableFileSystem, path: str = "lock") -> Closable:
        events.append("locked")
        return lock(self, path)

    def close_and_tell(self: PosixWritableFileSystem) -> None:
        events.append("closed")
        close(self)

    def list_and_tell(self: PosixReadableFileSystem, path: str = "") -> list[Entry]:
        if path == CONSUME_QUEUE:
            events.append("listed")
        return listdir(self, path)

    monkeypatch.setattr(PosixWritableFileSystem, "lock", lock_and_tell)
    monkeypatch.setattr(PosixWritableFileSystem, "close", close_and_tell)
    monkeypatch.setattr(PosixReadableFileSystem, "listdir", list_and_tell)
    WRITERS[name](root)
    written = events[: events.index("closed")]
    assert written == ["locked", "listed"], events
