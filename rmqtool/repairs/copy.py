"""Copies messages of stores into a new store. The sources are only read; the target appears complete or not at all.

Records are copied verbatim: hosts, times, properties, checksums. Changed are only their physical offsets, with the
offset message ids, and everything that refers to these. Queue offsets are kept, so that groups continue where they
were; offsets of messages that are left out stay unused. Queues, index and checkpoint are built again, by the engine.

Beside the copy are the files that it may need: the damaged bytes that were left out (``LostAndFound``), and the mapping
of old ids to new ones (``IdMap``).
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rmqtool.errors import ReadFailed, Refused
from rmqtool.files.failures import write_failed
from rmqtool.files.filesystem import ReadableFile, split
from rmqtool.files.publish import StagedCopy, require_outside, staged
from rmqtool.findings import Finding
from rmqtool.formats.paths import FileKind
from rmqtool.formats.topics import TopicKind, topic_kind
from rmqtool.log.ranges import Effort
from rmqtool.log.read import Damage
from rmqtool.log.sources import LogFile
from rmqtool.look.queue_bounds import read_database_bounds
from rmqtool.repairs.carried import Carrying, carry, carry_services, groups_of, merged, read_texts, watched_offsets
from rmqtool.repairs.target import Target
from rmqtool.store.open import Store, unread_finding
from rmqtool.store.queues import simple_queues

if TYPE_CHECKING:
    from rmqtool.log.ownership import Belonging
    from rmqtool.log.read import Damage, Note, Part
    from rmqtool.log.select import Selection
    from rmqtool.log.sources import Source
    from rmqtool.log.transfer import Moved, Numbering, SourceMove, Watch


FIELDS = (
    "store",
    "topic",
    "queueId",
    "oldQueueOffset",
    "queueOffset",
    "oldCommitLogOffset",
    "commitLogOffset",
    "oldOffsetMsgId",
    "offsetMsgId",
    "uniqKey",
)


class IdMap:
    """The mapping of ids: a line for each copied message, as CSV or JSON by the name of the file.

    It is written under another name beside its place, and gets its name together with the copy.
    """

    def __init__(self, target: str, staging: StagedCopy) -> None:
        self.target = os.path.abspath(target)
        if os.path.lexists(self.target):
            raise Refused(f"{target} already exists; nothing was copied", file=target, hint="name another file")
        self._is_csv = target.endswith(".csv")
        place, name = os.path.split(self.target)
        path = os.path.join(place, f".{name}.rmqtool-copy")
        try:
            self._file = open(path, "w", encoding="utf-8", newline="")  # noqa: SIM115  (closed by close)
            try:
                staging.accompany(path, self.target)
                if self._is_csv:
                    self._file.write(",".join(FIELDS) + "\n")
            except BaseException:
                self.close()
                raise
        except BaseException as error:  # includes an interrupt: until the file is recorded, only this code knows of it
            with suppress(OSError):
                os.unlink(path)
            if isinstance(error, OSError):
                raise write_failed("write", target, error) from error
            raise

    def close(self) -> None:
        """Close the file. Until it is complete it has no name of its own, so that a failure here loses nothing."""
        with suppress(OSError):
            self._file.close()

    def add(self, store: str, moved: Moved) -> None:
        """Write the lines of messages that were copied."""
        from rmqtool.log.transfer import id_columns

        text = io.StringIO()
        write = csv.writer(text, lineterminator="\n").writerow if self._is_csv else None
        for row in zip(*id_columns(moved), strict=True):
            line = (store, *row)
            if write is not None:
                write(line)
            else:
                text.write(json.dumps(dict(zip(FIELDS, line, strict=True)), ensure_ascii=False) + "\n")
        try:
            self._file.write(text.getvalue())
        except OSError as error:
            raise write_failed("write", self.target, error) from error

    def complete(self) -> None:
        """Make the file durable."""
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
        except OSError as error:
            raise write_failed("complete", self.target, error) from error


LIST = "list.jsonl"
_CHUNK = 1 << 20
_SECTOR = 4096


class LostAndFound:
    """A directory that is created with the first damage: the damaged bytes, and ``list.jsonl``.

    A line of the list is the damage, its store, and the file with its bytes (none for a missing segment). Zeros are
    left as holes, and so are unreadable sectors.
    """

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.damages: list[tuple[str, Damage]] = []

    def take(self, store: str, damage: Damage, file: LogFile | None) -> None:
        """Save the bytes of a damage in ``file``; None if the file is missing."""
        try:
            os.makedirs(self.directory, exist_ok=True)
            name = None
            # If a file was truncated, queues may refer to more bytes than it has.
            length = min(damage.length, file.size - damage.file_offset) if file is not None else 0
            if file is not None and length > 0:
                name = f"{len(self.damages):06d}-{split(damage.file)[1]}@{damage.file_offset}+{length}"
                self._save(name, file, damage.file_offset, length)
            self.damages.append((store, damage))
            self._note({**damage.as_json(), "store": store, "saved": name})
        except OSError as error:
            raise write_failed("write", self.directory, error) from error

    def _note(self, line: dict[str, object]) -> None:
        with open(os.path.join(self.directory, LIST), "a", encoding="utf-8") as listing:
            listing.write(json.dumps(line) + "\n")

    def _save(self, name: str, file: LogFile, begin: int, length: int) -> None:
        with open(os.path.join(self.directory, name), "xb") as out:
            try:
                with file.open() as opened:
                    for extent in opened.iter_data(begin, begin + length):
                        for at in range(extent.file_offset, extent.end, _CHUNK):
                            data = _read(opened, at, min(_CHUNK, extent.end - at))
                            out.seek(at - begin)
                            out.write(data)
            except ReadFailed:  # the list has the damage; the readable bytes are saved
                pass
            out.truncate(length)


def _read(file: ReadableFile, at: int, length: int) -> bytes:
    """Return bytes of a file, with zeros for unreadable sectors."""
    try:
        return file.pread(length, at)
    except ReadFailed:
        if length <= _SECTOR:
            return bytes(length)
    return b"".join(_read(file, place, min(_SECTOR, at + length - place)) for place in range(at, at + length, _SECTOR))


Queue = tuple[str, int]


@dataclass(frozen=True)
class CopyRequest:
    """What to copy, and how. ``select`` returns the wanted messages of a store."""

    target: str
    select: Callable[[Store], Selection]
    purged: tuple[str, ...] = ()
    salvage: bool = False
    renumber: bool = False
    redact: tuple[str, ...] = ()
    store_host: tuple[bytes, int] | None = None
    ids: str | None = None


@dataclass
class Outcome:
    """The result of a copy.

    ``moved`` counts messages that could not keep their queue offset, ``beside`` messages that belong to the wanted
    topics without being in them; ``damages`` are by store.
    """

    target: str
    messages: int = 0
    bytes: int = 0
    queues: int = 0
    moved: int = 0
    beside: int = 0
    damages: list[tuple[str, Damage]] = field(default_factory=list)
    lost_and_found: str | None = None
    notes: list[str] = field(default_factory=list)


class _Reading:
    """One source: its plan, and its state beside the messages."""

    def __init__(self, source: Source, request: CopyRequest, numbering: Numbering) -> None:
        from dataclasses import replace

        from rmqtool.log.ownership import Belonging
        from rmqtool.log.stream import Request, plan_request
        from rmqtool.log.transfer import Redaction, SourceMove, SourceQueues, Watch

        assert source.store is not None, "only stores are copied"
        self.source, self.store = source, source.store
        # Of a salvage: what could not be read beside the log.
        self.unread: list[Finding] = []
        self.texts = read_texts(self.store, self.unread if request.salvage else None)
        self.maxima = self._maxima(salvage=request.salvage)
        selection = request.select(self.store)
        groups = groups_of(self.texts)
        self.topics = {topic for topic, _ in self.maxima}
        self.known_topics = self.topics | self._topic_table().keys()
        self.belonging: Belonging = Belonging.of(selection.topics, request.purged, self.known_topics, groups)
        self._unread = None if selection.least_offsets is None else {topic for topic, _ in selection.least_offsets}
        if selection.queue_id is None and self._unread is None:
            selection = replace(selection, topics=self.belonging.read_topics())
        self.plan, self.selection = plan_request(source, Request(selection), Effort())
        self.watches: dict[Queue, Watch] = {
            queue: Watch(offsets) for queue, offsets in watched_offsets(self.texts).items()
        }
        redaction = Redaction.of(request.redact, request.store_host)
        self.move: SourceMove = SourceMove(numbering, SourceQueues(source.queues, self.watches), redaction)

    def events(self, effort: Effort) -> Iterator[Part | Damage | Note]:
        """Yield the messages to copy, damage and notes.

        A tier has its messages queue by queue. They come in the order of time, all before those of the log, and each
        queue stays in its own order.
        """
        from dataclasses import replace

        from rmqtool.log.order import Arrangement, Order, iter_arranged
        from rmqtool.log.stream import iter_parts

        older = [file for file in self.plan.wanted if file.tier is not None]
        if older:
            plan = replace(self.plan, wanted=older, queues=())
            yield from iter_arranged(plan, self.selection, Arrangement(Order.TIME, whole_queues=True), effort)
        plan = replace(self.plan, wanted=[file for file in self.plan.wanted if file.tier is None])
        yield from iter_parts(plan, self.selection, effort)

    def _maxima(self, *, salvage: bool) -> dict[Queue, int]:
        """Return the next offset of every queue, as the store says.

        Of what cannot be read: the greatest offset that a group has committed, for queues without messages.
        """
        found: dict[Queue, int] = {}
        committed = {queue: max(offsets) for queue, offsets in watched_offsets(self.texts).items()}
        for queue in simple_queues(self.store.listing):
            name = (queue.queue.topic, queue.queue.queue_id)
            try:
                found[name] = queue.max_offset
            except ReadFailed as error:
                self._tell_unread(error, salvage=salvage)
                found[name] = committed.get(name, 0)
        try:
            in_database = read_database_bounds(self.store)
        except ReadFailed as error:
            self._tell_unread(error, salvage=salvage)
            return committed | found
        return found | {(queue.topic, queue.queue_id): at.max_offset for queue, at in in_database.items()}

    def _tell_unread(self, error: ReadFailed, *, salvage: bool) -> None:
        if not salvage:
            raise error
        self.unread.append(unread_finding(self.store.root, error))

    def places(self) -> list[str]:
        """Return the directories of the source."""
        return [self.store.root, *(os.path.join(one.directory, one.path) for one in self.source.directories)]

    def keeps(self, topic: str) -> bool:
        """Return whether the copy has a topic of this source."""
        is_read = self._unread is None or topic in self._unread or topic_kind(topic) is TopicKind.SYSTEM
        return is_read and self.belonging.keeps(topic)

    @property
    def delays(self) -> dict[int, int]:
        """The progress of the delay levels."""
        table = self.texts.get("delayOffset.json", {}).get("offsetTable") or {}
        return {int(level): int(offset) for level, offset in table.items()}

    @property
    def batch_topics(self) -> frozenset[str]:
        """The topics with batch queues."""
        named = {
            topic
            for topic, settings in self._topic_table().items()
            if (settings.get("attributes") or {}).get("queue.type") == "BatchCQ"
        }
        return frozenset(named | {queue.topic for queue in self.store.listing.queues(FileKind.BATCH_CONSUME_QUEUE)})

    def _topic_table(self) -> dict[str, dict[str, Any]]:
        table: dict[str, dict[str, Any]] = self.texts.get("topics.json", {}).get("topicConfigTable") or {}
        return table


def run_copy(sources: Sequence[Source], request: CopyRequest, effort: Effort) -> Outcome:
    """Copy the requested messages; return the outcome."""
    from rmqtool.log.transfer import WIDEST_GAP, Numbering

    # Topics in several stores are renumbered, because each offset occurs more than once.
    shared: set[str] = set()
    numbering = Numbering(lambda topic: topic in shared or (request.renumber and _may_begin_anew(topic, batch_topics)))
    readings = [_Reading(source, request, numbering) for source in sources]
    topics = Counter(topic for reading in readings for topic in reading.topics)
    shared.update(topic for topic, stores in topics.items() if stores > 1)
    batch_topics = frozenset().union(*(reading.batch_topics for reading in readings))
    widest = max([WIDEST_GAP, *(end for reading in readings for end in reading.maxima.values())])
    first = readings[0].store
    for path in filter(None, (request.target, request.ids)):
        require_outside(path, [place for reading in readings for place in reading.places()])
    with staged(request.target, first.root, sum(_size(reading) for reading in readings)) as staging:
        with (
            Target(staging.store, first.config, batch_topics, widest, first.listing) as target,
            closing(_Copying(readings, target, staging, request, numbering)) as copying,
        ):
            copying.notes += [note for source in sources if (note := source.note) is not None]
            copying.notes += _unknown(request.purged, readings)
            copying.run(effort)
            copying.complete()
        return copying.outcome()


def _unknown(purged: Sequence[str], readings: Sequence[_Reading]) -> list[str]:
    """Return a note for each purge pattern without a matching topic: it may be misspelt."""
    from rmqtool.log.ownership import without_match

    known = {topic for reading in readings for topic in reading.known_topics}
    return [f'no store has a topic "{pattern}" to purge' for pattern in without_match(purged, known)]


def _may_begin_anew(topic: str, batch_topics: frozenset[str]) -> bool:
    """Return whether the queues of a topic may be renumbered.

    The offsets of a broker's own topics are stored elsewhere too.
    """
    kind = topic_kind(topic)
    return kind not in (TopicKind.SYSTEM, TopicKind.LMQ) and topic not in batch_topics


def _size(reading: _Reading) -> int:
    """Return the approximate largest size of a source's part of the copy."""
    plan = reading.plan
    largest = max((file.size for file in plan.files), default=0)
    listing = reading.store.listing
    derived = listing.of_kind(FileKind.CONSUME_QUEUE, FileKind.BATCH_CONSUME_QUEUE, FileKind.INDEX)
    return sum(file.size for file in plan.wanted) + largest + sum(file.size for file in derived)


class _Copying:
    """A copy in progress."""

    def __init__(
        self,
        readings: Sequence[_Reading],
        target: Target,
        staging: StagedCopy,
        request: CopyRequest,
        numbering: Numbering,
    ) -> None:
        self.readings = readings
        self.target = target
        self.request = request
        self.numbering = numbering
        self.staging = staging
        self.lost = LostAndFound(staging.lost)
        self.notes: list[str] = []
        self._late: list[tuple[_Reading, Moved]] = []
        self._left_out = 0
        self._beside = 0
        self._ids = IdMap(request.ids, staging) if request.ids is not None else None

    def run(self, effort: Effort) -> None:
        """Copy messages, then what belongs to them."""
        from rmqtool.log.order import iter_merged
        from rmqtool.log.read import Damage

        for reading in self.readings:
            for one in reading.unread:
                self.lost.take(reading.store.root, Damage(one.code, one.file or "", 0, 0, one.message), None)
        logs = [reading.events(effort) for reading in self.readings]
        for log, event in iter_merged(logs):
            self._take(self.readings[log], event)
        for reading, moved in self._late:
            self._keep(reading, reading.move.append(moved))
        if self._left_out:
            self.notes.append(
                f"{self._left_out} messages of the brokers' own topics were left out: delivered delays, and pending "
                "transactions and timers of all stores but the first"
            )
        if self.target.messages:
            # Queues and timers without a log would look like an unmounted log.
            self._number_on()
            carry_services(self.readings[0].store, self.target.files, self.readings[0].move.places, self.notes)
        self.target.write_configs(self._texts())

    def complete(self) -> None:
        """Make the mapping of ids durable; it appears with the copy."""
        if self._ids is not None:
            self._ids.complete()

    def close(self) -> None:
        """Close the mapping of ids."""
        if self._ids is not None:
            self._ids.close()

    def outcome(self) -> Outcome:
        """Return the result."""
        return Outcome(
            target=self.request.target,
            messages=self.target.messages,
            bytes=self.target.bytes,
            queues=len(self.numbering.next),
            moved=self.numbering.moved + sum(moved.late_count for _, moved in self._late),
            beside=self._beside,
            damages=self.lost.damages,
            lost_and_found=f"{self.request.target}.lost-and-found" if self.lost.damages else None,
            notes=self.notes,
        )

    def _take(self, reading: _Reading, event: Part | Damage | Note) -> None:
        from rmqtool.log.ownership import without_delivered
        from rmqtool.log.read import Note, Part

        if isinstance(event, Part):
            records = reading.belonging.select(event.records)
            if len(self.readings) > 1:
                wanted = len(records)
                records = without_delivered(records, reading.delays, with_others=reading is self.readings[0])
                self._left_out += wanted - len(records)
            self._beside += reading.belonging.count_beside(records)
            if len(records):
                moved = reading.move.move(records)
                if moved.late is not None:
                    self._late.append((reading, moved))
                if len(moved.records):
                    self._keep(reading, moved)
        elif isinstance(event, Note):
            self.notes.append(event.text)
        else:
            self._skip(reading, event)

    def _keep(self, reading: _Reading, moved: Moved) -> None:
        self.target.keep(moved, reading.move)
        if self._ids is not None:
            self._ids.add(reading.store.root, moved)

    def _skip(self, reading: _Reading, damage: Damage) -> None:
        root = reading.store.root
        if damage.code == "ST-MOUNT":
            raise Refused(damage.message, file=root, hint="mount it, or name its directory")
        if not self.request.salvage:
            raise Refused(
                f"the log is damaged: {damage.message}; nothing was copied",
                file=f"{root}/{damage.file}",
                offset=damage.file_offset,
                hint="--salvage copies every valid message, and keeps the damaged bytes aside",
            )
        file = next((file for file in reading.plan.files if file.name == damage.file), None)
        self.lost.take(root, damage, file)

    def _number_on(self) -> None:
        """Continue the queue offsets of queues without a copied message, so that progress and clients stay right."""
        for reading in self.readings:
            kept = {
                queue: end
                for queue, end in reading.maxima.items()
                if reading.keeps(queue[0]) and not self.numbering.begins_anew(queue[0])
            }
            self.target.number_on(kept)

    def _texts(self) -> dict[str, dict[str, object]]:
        return merged(carry(reading.texts, self._carrying(reading)) for reading in self.readings)

    def _carrying(self, reading: _Reading) -> Carrying:
        purged = reading.belonging.is_purged
        return Carrying(reading.keeps, purged, self.numbering.begins_anew, self._mover(reading))

    def _mover(self, reading: _Reading) -> Callable[[Queue, int], int]:
        ends = self.target.ends()

        def move(queue: Queue, offset: int) -> int:
            end = ends.get(queue, 0)
            if not self.numbering.begins_anew(queue[0]):
                return min(offset, end)
            watch = reading.watches.get(queue)
            return watch.found.get(offset, end) if watch else 0

        return move
