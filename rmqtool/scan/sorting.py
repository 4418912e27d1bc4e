"""Keys of messages, sorted: in memory, or in runs on disk when they are many.

A key is a row of five numbers: topic, queue, what decides within the queue, place in the log, size of the record.
"""

from __future__ import annotations

import heapq
import tempfile
from collections.abc import Iterator, Sequence
from typing import IO, Self

import numpy as np
import numpy.typing as npt

from rmqtool.bulk.gather import Ints

Keys = npt.NDArray[np.int64]

COLUMNS = 5
TOPIC, QUEUE, RANK, PLACE, SIZE = range(COLUMNS)
# So many keys are sorted at once: some tens of MiB.
RUN = 1 << 19
_BLOCK = 4096


class KeySorter:
    """Takes keys and gives them back in their order: topics by name, everything else by number."""

    def __init__(self) -> None:
        self.topics: dict[str, int] = {}
        self._held: list[Keys] = []
        self._count = 0
        self._runs: list[IO[bytes]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for run in self._runs:
            run.close()

    def add(self, topics: Sequence[str], keys: Keys) -> None:
        """Take keys whose topics are numbers of ``topics``."""
        codes = np.array([self.topics.setdefault(topic, len(self.topics)) for topic in topics], np.int64)
        if len(keys):
            keys = keys.copy()
            keys[:, TOPIC] = codes[keys[:, TOPIC]]
            self._held.append(keys)
            self._count += len(keys)
        if self._count >= RUN:
            run = tempfile.TemporaryFile(prefix="rmqtool-keys-")  # noqa: SIM115  (closed at the end of the context)
            self._runs.append(run)
            run.write(self._take_held().data)

    def _take_held(self) -> Keys:
        keys = np.concatenate(self._held) if self._held else np.empty((0, COLUMNS), np.int64)
        self._held, self._count = [], 0
        columns = (keys[:, PLACE], keys[:, RANK], keys[:, QUEUE], self._ranks()[keys[:, TOPIC]])
        return keys[np.lexsort(columns)]

    def _ranks(self) -> Ints:
        """Return each topic's place among the names."""
        ranks = np.empty(len(self.topics), np.int64)
        ranks[[self.topics[name] for name in sorted(self.topics)]] = np.arange(len(self.topics))
        return ranks

    def iter_blocks(self) -> Iterator[Keys]:
        """Yield all keys in their order, some thousand at a time. Nothing can be added any more."""
        last = self._take_held()
        if not self._runs:
            yield from (last[at : at + _BLOCK] for at in range(0, len(last), _BLOCK))
            return
        ranks = self._ranks()
        runs = [_iter_rows(_iter_stored(run), ranks) for run in self._runs]
        merged = heapq.merge(*runs, _iter_rows(iter([last]), ranks))
        block: list[tuple[int, ...]] = []
        for ranked in merged:
            block.append(ranked)
            if len(block) == _BLOCK:
                yield np.array(block, np.int64)
                block.clear()
        if block:
            yield np.array(block, np.int64)


def _iter_stored(run: IO[bytes]) -> Iterator[Keys]:
    run.seek(0)
    while data := run.read(_BLOCK * COLUMNS * np.dtype(np.int64).itemsize):
        yield np.frombuffer(data, np.int64).reshape(-1, COLUMNS)


def _iter_rows(blocks: Iterator[Keys], ranks: Ints) -> Iterator[tuple[int, ...]]:
    """Yield the keys one by one, the topics as their ranks."""
    for keys in blocks:
        ranked = keys.copy()
        ranked[:, TOPIC] = ranks[keys[:, TOPIC]]
        yield from map(tuple, ranked.tolist())


def iter_last_of_queues(blocks: Iterator[Keys], count: int) -> Iterator[Keys]:
    """Yield the last ``count`` keys of each queue; ``blocks`` are sorted."""
    held = np.empty((0, COLUMNS), np.int64)
    for block in blocks:
        changes = np.flatnonzero((np.diff(block[:, : QUEUE + 1], axis=0) != 0).any(axis=1)) + 1
        for of_queue in np.split(block, changes):
            if len(held) and (held[-1, : QUEUE + 1] != of_queue[0, : QUEUE + 1]).any():
                yield held
                held = held[:0]
            held = np.concatenate((held, of_queue))[-count:]
    if len(held):
        yield held
