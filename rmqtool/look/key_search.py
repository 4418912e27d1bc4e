"""Messages by key, unique key or tag: from the index as far as it can be trusted, from the log for the rest.

A store has index files, or 5.4's index in RocksDB. An answer from index files is trusted while nothing about them looks
wrong. The log is searched for what the index does not cover, and entirely if nothing was found, because only the log
can prove that. ``query_message`` gives the answer of a broker, with its limits and after its client's selection.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from rmqtool.errors import OptionalMissing, ReadFailed
from rmqtool.files.filesystem import ReadableFile
from rmqtool.filters.wanted import Wanted
from rmqtool.findings import Finding, Severity
from rmqtool.formats import index, layouts, paths, rocksdb_rows
from rmqtool.formats.bridges import is_bridge
from rmqtool.formats.codes import TransactionType, transaction_type
from rmqtool.formats.commit_log import Message
from rmqtool.formats.dispatch import iter_index_texts
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.java import LONG_MAX, encode_text
from rmqtool.formats.paths import FileKind
from rmqtool.formats.properties import key_tokens
from rmqtool.formats.property_names import REAL_TOPIC, RETRY_TOPIC
from rmqtool.formats.rocksdb_rows import IndexRowKey
from rmqtool.formats.topics import LMQ_PREFIX
from rmqtool.log.end import read_record
from rmqtool.look.place_search import Hint, LogSearch, damaged_finding, find_bridge, find_damaged
from rmqtool.look.question import QuestionKind
from rmqtool.look.topic_names import find_topics
from rmqtool.store.index_files import (
    Chain,
    Geometry,
    IndexFile,
    ends_home,
    is_time_matched,
    iter_links,
    open_index,
    read_header,
    select_offsets,
)
from rmqtool.store.listing import FoundFile
from rmqtool.store.open import Store
from rmqtool.store.rocksdb import Database, open_database


class OpenIndex(NamedTuple):
    """An index file that can be searched."""

    path: str
    opened: IndexFile


@dataclass
class Indexes:
    """The index files of a store, oldest first; ``findings`` say why one could not be used.

    ``sound`` becomes False when something is wrong with the files: then an answer may lack messages.
    """

    store: Store
    files: list[OpenIndex] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    sound: bool = True
    _opened: list[ReadableFile] = field(default_factory=list)

    def open_all(self) -> None:
        """Open all files. A file is likely to have the geometry of the one before it."""
        config = self.store.config
        hints = [Geometry(config.max_hash_slot_num, config.max_index_num)]
        for file in self.store.listing.of_kind(FileKind.INDEX):
            opened = self._open(file, hints)
            if opened is not None:
                self.files.append(OpenIndex(file.path, opened))
                hints.insert(0, opened.geometry)

    def _open(self, file: FoundFile, hints: list[Geometry]) -> IndexFile | None:
        try:
            readable = self.store.filesystem.open_read(file.path)
        except ReadFailed as error:
            self.complain("IX-HEAD", file.path, f"{file.path} cannot be read: {error.message}", 0)
            return None
        self._opened.append(readable)
        header = read_header(readable)
        if header is None:
            self.complain("IX-HEAD", file.path, f"{file.path} is shorter than a header", 0)
            return None
        opened = open_index(readable, hints)
        if header.index_count in (0, 1) and header.begin_phy_offset != header.end_phy_offset:
            self.complain("IX-HEAD", file.path, f"{file.path} has no entries, but its header names messages", 0)
        if opened is None:
            if header.index_count not in (0, 1):
                self.complain("IX-HEAD", file.path, f"{file.path} has an impossible header or size", 0)
            return None
        if opened.next_index_no > 1 and not ends_home(opened):
            text = f"the last entry of {file.path} is not for the last message that its header names"
            self.complain("IX-HEAD", file.path, text, 0)
        return opened

    def complain(self, code: str, path: str, text: str, file_offset: int) -> None:
        """Record a defect of an index file."""
        self.sound = False
        consequence = "a broker answers key queries from it wrongly; the log is searched instead"
        finding = Finding(code, Severity.WARNING, text, file=path, offset=file_offset, consequence=consequence)
        if finding not in self.findings:
            self.findings.append(finding)

    def iter_hits(self, file: OpenIndex, key_hash: int) -> Iterator[Chain]:
        """Yield the entries of this hash in a file, newest first; defects on the way become findings."""
        for link in iter_links(file.opened, key_hash):
            if isinstance(link, Flaw):
                self.complain(link.code, file.path, link.message, link.at)
            elif link.entry.key_hash == key_hash:
                yield link

    def close(self) -> None:
        while self._opened:
            with suppress(ReadFailed):
                self._opened.pop().close()


def iter_broker_hits(indexes: Indexes, key_hash: int, begin: int, end: int) -> Iterator[int]:
    """Yield the physical offsets that a broker finds for a window, newest file and newest entry first.

    Both ends belong to the window; it is compared with times cut to seconds. upstream: IndexService.queryOffset
    """
    for file in reversed(indexes.files):
        if is_time_matched(file.opened, begin, end):
            for found in select_offsets(file.opened, key_hash, begin, end):
                if isinstance(found, Flaw):
                    indexes.complain(found.code, file.path, found.message, found.at)
                else:
                    yield found
        if file.opened.header.begin_timestamp < begin:
            return


_FAMILY = "default"
# The kinds of rows that a broker reads for each kind of query.
_ROW_KINDS = {QuestionKind.UNIQ_KEY: "U", QuestionKind.KEY: "KU", QuestionKind.TAG: "T"}


def has_database_index(store: Store) -> bool:
    """Return whether 5.4's message database can have rows."""
    return store.listing.has_rows(paths.ROCKSDB_STORE)


def find_in_database(store: Store, kind: QuestionKind, text: str, topics: Iterable[str]) -> list[int]:
    """Return the physical offsets in the database for a key. Raises ``OptionalMissing`` without the extra.

    ``@`` is not escaped in a row, so callers compare the result with the messages.
    """
    wanted = [encode_text(f"@{topic}@{letter}@{text}@") for topic in topics for letter in _ROW_KINDS[kind]]
    found = set()
    with open_database(store, paths.ROCKSDB_STORE) as database:
        for hour in _iter_hours(database):
            for middle in wanted:
                for key, _ in database.iter_rows(_FAMILY, hour + middle):
                    row = rocksdb_rows.decode_index_key(key)
                    if isinstance(row, IndexRowKey):
                        found.add(row.physical_offset)
    return sorted(found)


def _iter_hours(database: Database) -> Iterator[bytes]:
    """Yield the hours that have rows, without reading the rows."""
    size = layouts.LONG.size
    start = bytes(size)
    while (key := database.find_key(_FAMILY, start)) is not None:
        (hour,) = layouts.LONG.unpack_from(key.ljust(size, b"\0"))
        if key[size : size + 1] == b"@":
            yield key[:size]
            start = layouts.LONG.packer.pack(hour + rocksdb_rows.HOUR_MS)
        else:  # a bookkeeping row, which has a plain name
            start = key + b"\0"


# A broker queries its index this many times if the results cannot be read.
_ROUNDS = 3


class BrokerAnswer(NamedTuple):
    """The messages of an answer in the order of the log, and how many more the client drops as hash collisions."""

    messages: list[Message]
    collisions: int


def query_message(
    indexes: Indexes, read: Callable[[int], Message | None], text: str, max_num: int, window: tuple[int, int]
) -> BrokerAnswer:
    """Return a broker's answer for the key ``text`` (``topic#key``): at most ``max_num`` messages, in a closed window.

    A broker takes all entries with the hash, and counts them; the client drops messages with another key. upstream:
    DefaultMessageStore.queryMessage, MQAdminImpl.queryMessage
    """
    begin, end = window
    most = min(max_num, indexes.store.config.max_msgs_num_batch)
    last = end
    for _ in range(_ROUNDS):
        offsets = sorted(islice(iter_broker_hits(indexes, index.key_hash(text), begin, last), max(most, 0)))
        found = [message for message in map(read, offsets) if message is not None]
        if found:
            kept = [message for message in found if text in iter_index_texts(message, indexes.store.dispatch_rules)]
            return BrokerAnswer(kept, len(found) - len(kept))
        first = read(offsets[0]) if offsets else None
        if first is None or first.store_timestamp < begin:
            break
        last = first.store_timestamp
    return BrokerAnswer([], 0)


# A key is near another if they differ in at most this many characters.
_NEAR = 2
_MOST_NEAR = 1000


@dataclass
class KeySearch:
    """One search for the messages of a key, a unique key or a tag.

    ``found`` has physical offsets. The index is trusted for what it covers as long as nothing is wrong with it. The log
    is read before, between and after its files; all of it if nothing was found.
    """

    store: Store
    kind: QuestionKind
    text: str
    wanted: Wanted
    log: LogSearch
    as_broker: bool = False
    found: set[int] = field(default_factory=set)
    answered_by: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    collisions: int = 0
    index_files: int = 0
    complete: bool = True
    elsewhere: Counter[str] = field(default_factory=Counter)
    other_times: list[int] = field(default_factory=list)
    near: set[str] = field(default_factory=set)
    # Where a repair covered a message that the index has for the key.
    bridged: set[int] = field(default_factory=set)
    # Whether there are more messages than the limit.
    has_more: bool = False
    # Records with this key, as the index says, whose body does not match its checksum.
    damaged: dict[int, Message] = field(default_factory=dict)

    def run(self) -> None:
        topics = find_topics(self.store, self.wanted.topics)
        indexes = Indexes(self.store)
        indexes.open_all()
        try:
            if indexes.files and topics is not None:
                self._ask_index(indexes, topics)
            elif topics is not None and has_database_index(self.store):
                self._ask_database(topics)
            trusted = bool(indexes.files) and indexes.sound and topics is not None and self._is_indexed
        finally:
            indexes.close()
        self.findings += indexes.findings
        for place, record in sorted(self.damaged.items()):
            at = f"at {place} in the log"
            words = f"1 more record, {at}, is damaged" if self.found else f"the record {at} is damaged"
            self.findings.append(damaged_finding(self.store, record, words))
            self.complete = False
        answered = bool(self.found) or (self.as_broker and self._is_cut)
        if not (trusted and answered) and not (self.answered_by and not indexes.files):
            self._ask_log(trusted)
        if self.wanted.limit is not None:
            self.has_more = len(self.found) > self.wanted.limit
            self.found = set(sorted(self.found)[-self.wanted.limit :] if self.wanted.limit else ())

    def _ask_index(self, indexes: Indexes, topics: list[str]) -> None:
        self.index_files = len(indexes.files)
        asked: set[str] = set()
        while topics and indexes.sound:
            asked.update(topics)
            named: set[str] = set()
            for topic in topics:
                for message in self._index_hits(indexes, topic):
                    named.update(_topics_named_by(message))
            topics = sorted(topic for topic in named - asked if self.wanted.topics.matches(topic))
        if self.found:
            self.answered_by.append("index")
        if indexes.sound:
            self._ask_log_beside(indexes)

    def _index_hits(self, indexes: Indexes, topic: str) -> Iterator[Message]:
        """Yield the messages of one topic that the index has for the key, newest first."""
        if self.as_broker and self._is_cut:
            yield from self._broker_hits(indexes, topic)
            return
        hashed = index.key_hash(self._index_text(topic))
        # One more than asked for tells that there are more.
        left = None if self.wanted.limit is None else self.wanted.limit + 1
        for file in reversed(indexes.files):
            for number, entry in indexes.iter_hits(file, hashed):
                message = read_record(self.store.commit_log, entry.phy_offset)
                if message is None or is_bridge(message):
                    self._note_lost(indexes, file, number, entry.phy_offset)
                    continue
                if not self._is_named_by(message):
                    self._count_collision(indexes, file, number, message, hashed)
                elif self._takes(message):
                    yield message
                    left = None if left is None else left - 1
                    if left is not None and left <= 0:
                        return

    @property
    def _is_indexed(self) -> bool:
        """Whether the index has entries for the kind of question: tags have some only from 5.4 on."""
        return self.kind is not QuestionKind.TAG or self.store.dispatch_rules.tag_entries

    @property
    def _is_cut(self) -> bool:
        """Whether a broker's answer can differ from the log: a window or a limit applies."""
        if self.as_broker and self.kind is QuestionKind.KEY:
            return True
        return any(bound is not None for bound in (self.wanted.begin, self.wanted.end, self.wanted.limit))

    def _broker_hits(self, indexes: Indexes, topic: str) -> Iterator[Message]:
        """Yield the messages of a broker's answer that its client keeps."""
        most = self.wanted.limit if self.wanted.limit is not None else self.store.config.max_msgs_num_batch
        end = LONG_MAX if self.wanted.end is None else self.wanted.end - 1
        window = (self.wanted.begin or 0, end)
        text = self._index_text(topic)
        answer = query_message(indexes, lambda at: read_record(self.store.commit_log, at), text, most, window)
        self.collisions += answer.collisions
        for message in answer.messages:
            if self._is_named_by(message) and self.wanted.queue_id in (None, message.queue_id):
                self.found.add(message.physical_offset)
                yield message

    def _note_lost(self, indexes: Indexes, file: OpenIndex, number: int, phy_offset: int) -> None:
        """Note an entry whose message is not there: a repair gave it up, or else the entry is wrong.

        A broker's clients drop a placeholder, because it does not have the key.
        """
        log = self.store.commit_log
        if phy_offset < log.min_offset:
            return
        damaged = find_damaged(self.store, phy_offset)
        if damaged is not None and self._is_named_by(damaged):
            self.damaged[phy_offset] = damaged
            return
        if find_bridge(log, phy_offset) is None:
            self._complain_of_entry(indexes, file, number, phy_offset)
        else:
            self.bridged.add(phy_offset)

    def _complain_of_entry(self, indexes: Indexes, file: OpenIndex, number: int, phy_offset: int) -> None:
        place = index.entry_offset(file.opened.geometry.slots, number)
        ahead = phy_offset >= self.store.commit_log.end_offset
        text = f"entry {number} of {file.path} points to {phy_offset}, where there is no whole message"
        indexes.complain("IX-AHEAD" if ahead else "IX-WRONG", file.path, text, place)

    def _count_collision(self, indexes: Indexes, file: OpenIndex, number: int, message: Message, hashed: int) -> None:
        """Count a message of another key with the same hash; if its hash differs, the entry is wrong."""
        texts = [*iter_index_texts(message, self.store.dispatch_rules)]
        texts += [index.tag_key_text(message.topic, message.tags)] if message.tags else []
        if any(index.key_hash(text) == hashed for text in texts):
            self.collisions += 1
            return
        place = index.entry_offset(file.opened.geometry.slots, number)
        text = (
            f"entry {number} of {file.path} points to {message.physical_offset}, whose message does not have this key"
        )
        indexes.complain("IX-WRONG", file.path, text, place)

    def _ask_log_beside(self, indexes: Indexes) -> None:
        """Search the log before the first index file, between two of them and after the last.

        A broker never finds messages that a recovery left out between two files; those after the last it dispatches
        again.
        """
        log = self.store.commit_log
        start, known = log.min_offset, -1
        for file in indexes.files:
            header = file.opened.header
            if file.opened.next_index_no <= 1:
                continue
            if not (self.as_broker and self._is_cut):
                self._search(start, header.begin_phy_offset, known)
            last = read_record(log, header.end_phy_offset) or find_bridge(log, header.end_phy_offset)
            if last is None and header.end_phy_offset >= log.min_offset:
                text = f"{file.path} ends with the message at {header.end_phy_offset}, where there is no whole message"
                indexes.complain("IX-AHEAD", file.path, text, 0)
                return
            if last is not None:  # beginning at this record, because its time shows which records after it are stale
                start = known = max(start, last.physical_offset)
        self._search(start, log.end_offset, known)

    def _ask_database(self, topics: list[str]) -> None:
        """Query 5.4's database. It has no rows for messages without a unique key."""
        try:
            places = find_in_database(self.store, self.kind, self.text, topics)
        except OptionalMissing:
            return
        except ReadFailed as error:
            self.log.miss_unread(error)
            return
        for place in places:
            message = read_record(self.store.commit_log, place)
            if message is not None and self._is_named_by(message):
                self._takes(message)
        if self.found:
            self.answered_by.append("index")
            self.complete = self.kind is QuestionKind.UNIQ_KEY

    def _ask_log(self, trusted: bool) -> None:
        """Search the whole log: there is no index, or nothing was found and that must be proven."""
        before = set(self.found)
        self._search(self.store.commit_log.min_offset, self.store.commit_log.end_offset, near=not before)
        # An index that was begun before 5.4 has tags only since the upgrade, so no entry is missing.
        if trusted and self.found - before and self.kind is not QuestionKind.TAG:
            place = min(self.found - before)
            text = f"the message at {place} has no entry for this key, but the index covers its time"
            self.findings.append(Finding("IX-MISSING", Severity.WARNING, text, file="index"))

    def _search(self, start: int, end: int, known: int = -1, *, near: bool = False) -> None:
        """Search a range of the log. The message at ``known`` was looked at already.

        ``near``: also report keys that are similar to the wanted one.
        """
        before = len(self.found)
        raw = encode_text(self.text)
        if self.kind is QuestionKind.TAG:
            hint = Hint(raw, tag=self.text)
        else:
            half = (len(raw) - _NEAR) // 2
            hint = Hint(raw, key=self.text, near=(raw[:half], raw[-half:]) if near and half > 1 else ())
        for message in self.log.iter_messages(start, end, hint):
            if message.physical_offset == known:
                continue
            if self._is_named_by(message):
                self._takes(message)
            elif self.kind is not QuestionKind.TAG:
                self._note_near(message)
        if len(self.found) > before and "scan" not in self.answered_by:
            self.answered_by.append("scan")

    def _index_text(self, topic: str) -> str:
        if self.kind is QuestionKind.TAG:
            return index.tag_key_text(topic, self.text)
        return index.key_text(topic, self.text)

    def _is_named_by(self, message: Message) -> bool:
        """Return whether the message has the wanted key or tag. Rollbacks are not indexed."""
        if transaction_type(message.sys_flag) is TransactionType.ROLLBACK:
            return False
        if self.kind is QuestionKind.TAG:
            return message.tags == self.text
        if message.uniq_key == self.text:
            return True
        return self.kind is QuestionKind.KEY and self.text in key_tokens(message.properties)

    def _takes(self, message: Message) -> bool:
        """Take a message that the question allows; else remember its topic or its time for the reasons."""
        if not self.wanted.allows_queue(message.topic, message.queue_id):
            self.elsewhere[message.topic] += 1
            return False
        if not self.wanted.allows_time(message.store_timestamp):
            self.other_times.append(message.store_timestamp)
            return False
        self.found.add(message.physical_offset)
        return True

    def _note_near(self, message: Message) -> None:
        if len(self.near) < _MOST_NEAR:
            self.near.update(key for key in _keys_of(message) if is_near(self.text, key))


def _keys_of(message: Message) -> Iterable[str]:
    return (key for key in (*key_tokens(message.properties), message.uniq_key) if key)


def _topics_named_by(message: Message) -> Iterator[str]:
    """Yield the topics under which the message may be indexed: its own, the one it waits for, the one it came from."""
    yield message.topic
    for name in (REAL_TOPIC, RETRY_TOPIC):
        topic = message.properties.get(name)
        if topic and not topic.startswith(LMQ_PREFIX):
            yield topic


def is_near(wanted: str, key: str) -> bool:
    """Return whether two keys differ only in case, or in one place of at most two characters."""
    if wanted.casefold() == key.casefold():
        return True
    longest, shortest = max(len(wanted), len(key)), min(len(wanted), len(key))
    if longest - shortest > _NEAR or shortest <= _NEAR:
        return False
    head = _same(wanted, key)
    return longest - head - _same(wanted[head:][::-1], key[head:][::-1]) <= _NEAR


def _same(one: str, other: str) -> int:
    """Return the length of the common beginning of two texts."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
