"""A large store for measuring: plain messages with keys and tags over many queues, with everything made of them.

Usually bodies are pieces of one text, and keys are numbers: quick to make, and they compress to a hundredth. ``drawn``
messages are as those of real producers: bodies are JSON, keys and ids are random, some topics have most of the
messages, and one has a single message at the beginning of the log.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import BinaryIO

import numpy as np

from rmqtool.columns.dispatched import index_keys
from rmqtool.columns.encode import Outgoing, encode_records
from rmqtool.columns.index_build import Keys
from rmqtool.columns.properties import decode_properties
from rmqtool.columns.queues import QueueRun, queue_runs
from rmqtool.columns.records import decode_records
from rmqtool.columns.starts import record_starts
from rmqtool.formats import layouts
from rmqtool.formats.checkpoints import encode_checkpoint
from rmqtool.formats.commit_log import encode_blank
from rmqtool.formats.dispatch import DispatchRules
from rmqtool.formats.layouts import StoreCheckpoint
from tests.support.column_files import IndexContent, encode_tail, join_runs, queue_files

HOST = (bytes((10, 0, 0, 1)), 10911)
CHUNK = 8192
START = 1_700_000_000_000
QUEUE_FILE = 6_000_000
_PIECE = 64 << 10
SLOTS, ENTRIES = 5_000_000, 20_000_000


def _outgoing(first: int, count: int, body_length: int, topics: int, queues: int, letters: bytes) -> Outgoing:
    numbers = np.arange(first, first + count)
    tails = []
    for number in numbers.tolist():
        properties = (
            b"KEYS\x01order-%d\x02UNIQ_KEY\x017F000001%024X\x02CLUSTER\x01DefaultCluster\x02TAGS\x01Tag%c\x02"
            % (
                number,
                number,
                65 + number % 8,
            )
        )
        tails.append(encode_tail(b"Orders%d" % (number % topics), properties))
    return Outgoing(
        bodies=[letters[number % 4096 : number % 4096 + body_length] for number in numbers.tolist()],
        tails=tails,
        queue_ids=numbers // topics % (queues // topics),
        queue_offsets=numbers // queues,
        born_timestamps=START + numbers // 10,
        store_timestamps=START + numbers // 10 + 1,
        born_hosts=[HOST],
        store_host=HOST,
    )


_WORDS = 3000
_PER_WORD = 7
# The share of a topic falls with its rank by this power.
_SKEW = 1.5


class _Drawn:
    """Messages with random content, the same ones in each run."""

    def __init__(self, body_length: int, topics: int, queues: int, rate: int) -> None:
        self.rate = rate
        self.drawn = np.random.default_rng(11)
        letters = self.drawn.integers(97, 123, (_WORDS, _PER_WORD - 1), np.uint8)
        lengths = self.drawn.integers(2, _PER_WORD, _WORDS)
        self.words = np.array([bytes(word[:length]).decode() for word, length in zip(letters, lengths, strict=True)])
        self.count = max((body_length - 120) // 5, 1)
        weights = 1 / np.arange(1, topics + 1) ** _SKEW
        self.shares = weights / weights.sum()
        self.per_topic = max(queues // topics, 1)
        self.ends: dict[tuple[int, int], int] = {}

    def outgoing(self, first: int, count: int) -> Outgoing:
        """Return the next messages; message 0 is the only one of topic Quiet."""
        ids = [bytes(row).hex() for row in self.drawn.integers(0, 256, (count, 16), np.uint8)]
        topics = self.drawn.choice(len(self.shares), count, p=self.shares)
        queues = self.drawn.integers(0, self.per_topic, count)
        texts = self.words[self.drawn.integers(0, _WORDS, (count, self.count))]
        amounts = self.drawn.integers(1, 1_000_000, count)
        bodies, tails, offsets = [], [], []
        for row, one in enumerate(ids):
            topic = -1 if first + row == 0 else int(topics[row])
            queue = (topic, int(queues[row]) if topic >= 0 else 0)
            offsets.append(self.ends.get(queue, 0))
            self.ends[queue] = offsets[-1] + 1
            text = " ".join(texts[row])
            body = f'{{"orderId":"{one}","amount":{amounts[row]},"at":{START + first + row},"note":"{text}"}}'
            bodies.append(body.encode())
            properties = f"KEYS\x01{one[:20]}\x02UNIQ_KEY\x01{one.upper()}\x02CLUSTER\x01DefaultCluster\x02"
            properties += f"TAGS\x01Tag{amounts[row] % 8}\x02traceparent\x0100-{one}-{one[:16]}-01\x02"
            tails.append(encode_tail(b"Quiet" if topic < 0 else b"Orders%d" % topic, properties.encode()))
        if not first:
            queues[0] = 0
        times = START + np.arange(first, first + count) * 1000 // self.rate
        return Outgoing(
            bodies=bodies,
            tails=tails,
            queue_ids=queues,
            queue_offsets=np.array(offsets, np.int64),
            born_timestamps=times,
            store_timestamps=times + 1,
            born_hosts=[HOST],
            store_host=HOST,
        )


def _write_sparse(file: BinaryIO, data: bytes) -> None:
    """Write a file that a broker would have mapped: what was never touched is a hole."""
    for at in range(0, len(data), _PIECE):
        piece = data[at : at + _PIECE]
        if piece.strip(b"\0"):
            file.seek(at)
            file.write(piece)
    file.truncate(len(data))


def _write_queues(root: Path, runs: list[QueueRun]) -> None:
    for (topic, queue_id), run in join_runs(runs).items():
        directory = root / "consumequeue" / topic / str(queue_id)
        directory.mkdir(parents=True)
        for at, data in queue_files(run, QUEUE_FILE // 20):
            with (directory / f"{at:020d}").open("wb") as queue:
                queue.write(data)
                queue.truncate(QUEUE_FILE)


def write_large_store(
    root: Path,
    total: int,
    *,
    segment: int = 256 << 20,
    body_length: int = 1024,
    topics: int = 4,
    queues: int = 200,
    drawn: bool = False,
    rate: int = 10_000,
) -> int:
    """Write a store whose log has about ``total`` bytes; return how many messages it holds.

    ``queues`` is of all ``topics`` together, ``rate`` how many ``drawn`` messages come in a second.
    """
    messages = _Drawn(body_length, topics, queues, rate) if drawn else None
    letters = np.random.default_rng(7).integers(97, 123, 4096 + body_length, np.uint8).tobytes()
    rules = DispatchRules()
    (root / "commitlog").mkdir(parents=True)
    (root / "index").mkdir()
    index = IndexContent(b"", SLOTS, ENTRIES)
    runs = []
    number = 0
    last = START
    for base in range(0, total, segment):
        with (root / "commitlog" / f"{base:020d}").open("wb") as file:
            at = 0
            while segment - at > CHUNK * (body_length + 300):
                outgoing = (
                    _outgoing(number, CHUNK, body_length, topics, queues, letters)
                    if messages is None
                    else messages.outgoing(number, CHUNK)
                )
                slab = encode_records(outgoing, base + at)
                file.write(slab.data)
                records, declined = decode_records(slab.data, slab.physical_offsets - base - at)
                assert declined is None
                properties = decode_properties(records)
                runs += queue_runs(records, properties, rules)
                keys = index_keys(records, properties, rules)
                times = records.column("store_timestamp")
                index.insert(Keys(keys.key_hashes, records.column("physical_offset")[keys.rows], times[keys.rows]))
                last = int(times[-1])
                number += CHUNK
                at += len(slab.data)
            file.write(encode_blank(segment - at))
            file.truncate(segment)
    _write_queues(root, runs)
    with (root / "index" / "20231114221320001").open("wb") as file:
        _write_sparse(file, index.data.tobytes())
    (root / "checkpoint").write_bytes(encode_checkpoint(StoreCheckpoint(last, last, 0, 0, 0)))
    (root / "lock").touch()
    return number


def lengthen(source: Path, root: Path, times: int) -> None:
    """Write a store whose log is that of ``source`` so many times, one after the other, with the queues of all.

    Times and offsets go on. A topic Quiet has its first message only: in the repetitions it is called Other. The index
    is not made again.
    """
    (root / "commitlog").mkdir(parents=True)
    segments = sorted((source / "commitlog").iterdir())
    length = sum(path.stat().st_size for path in segments)
    rules = DispatchRules()
    runs: list[QueueRun] = []
    ends: dict[tuple[str, int], int] = {}
    first = last = START
    for time in range(times):
        # Messages are as far apart at the joint as they are on average.
        shift = (last - first) * time * 1001 // 1000
        counts: dict[tuple[str, int], int] = {}
        for path in segments:
            data = np.fromfile(path, np.uint8)
            places = record_starts(data).file_offsets
            old, _ = decode_records(data, places)
            if not time:
                last = int(old.column("store_timestamp")[-1])
            base = int(path.name) + length * time
            changes = {"physical_offset": places + base, "store_timestamp": old.column("store_timestamp") + shift}
            changes["queue_offset"] = old.column("queue_offset").copy()
            queue_ids = old.column("queue_id")
            for code, topic in enumerate(old.topics.values):
                for queue_id in np.unique(queue_ids[old.topics.codes == code]).tolist():
                    rows = (old.topics.codes == code) & (queue_ids == queue_id)
                    changes["queue_offset"][rows] += (
                        ends.get((topic, queue_id), 0) if topic != "Quiet" else max(time - 1, 0)
                    )
                    counts[topic, queue_id] = counts.get((topic, queue_id), 0) + int(rows.sum())
            for name, values in changes.items():
                at = places + layouts.MESSAGE_PREFIX_V4V4.field(name).offset
                data[at[:, None] + np.arange(8)] = values.astype(">i8").view(np.uint8).reshape(-1, 8)
            for row in np.flatnonzero(old.topics.each(lambda topic: topic == "Quiet", np.bool_)) if time else ():
                data[int(old.topic_offsets[row]) :][:5] = np.frombuffer(b"Other", np.uint8)
            data.tofile(root / "commitlog" / f"{base:020d}")
            records, _ = decode_records(data, places)
            runs += queue_runs(records, decode_properties(records), rules)
        ends = {queue: ends.get(queue, 0) + count for queue, count in counts.items()}
    _write_queues(root, runs)
    shutil.copytree(source / "index", root / "index")
    for name in ("checkpoint", "lock"):
        shutil.copy(source / name, root / name)
