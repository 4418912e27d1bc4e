"""Messages by key, unique key or tag: from the index as far as it can be trusted, from the log for the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from rmqtool.errors import OptionalMissing
from rmqtool.findings import Finding, Severity
from rmqtool.formats import index
from rmqtool.formats.codes import TransactionType, transaction_type
from rmqtool.formats.commit_log import Message
from rmqtool.formats.dispatch import iter_index_texts
from rmqtool.formats.java import LONG_MAX, encode_text
from rmqtool.formats.properties import key_tokens
from rmqtool.formats.topics import LMQ_PREFIX
from rmqtool.inspection.broker_query import query_message
from rmqtool.inspection.database_index import find_in_database, has_database_index
from rmqtool.inspection.index_lookup import Indexes, OpenIndex
from rmqtool.inspection.log_search import Hint, LogSearch
from rmqtool.inspection.question import Narrowing, QuestionKind
from rmqtool.inspection.topic_names import find_topics
from rmqtool.storage.log_end import read_record
from rmqtool.storage.store import Store

# How far a key may be from the one that is looked for, to be named when nothing is found.
_NEAR = 2
_MOST_NEAR = 1000


@dataclass
class KeySearch:
    """One search for the messages of a key, a unique key or a tag.

    ``found`` are places in the log. The index is trusted for what it covers as long as nothing is wrong with it; what
    lies before, between and behind its files is read from the log, and so is everything when nothing was found: only
    the log proves that.
    """

    store: Store
    kind: QuestionKind
    text: str
    narrowing: Narrowing
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

    def run(self) -> None:
        """Search."""
        topics = find_topics(self.store, self.narrowing.topics)
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
        answered = bool(self.found) or (self.as_broker and self._is_cut)
        if not (trusted and answered) and not (self.answered_by and not indexes.files):
            self._ask_log(trusted)
        if self.narrowing.limit is not None:
            self.found = set(sorted(self.found)[-self.narrowing.limit :] if self.narrowing.limit else ())

    def _ask_index(self, indexes: Indexes, topics: list[str]) -> None:
        self.index_files = len(indexes.files)
        asked: set[str] = set()
        while topics and indexes.sound:
            asked.update(topics)
            named: set[str] = set()
            for topic in topics:
                for message in self._index_hits(indexes, topic):
                    named.update(_topics_named_by(message))
            topics = sorted(topic for topic in named - asked if self.narrowing.topics.matches(topic))
        if self.found:
            self.answered_by.append("index")
        if indexes.sound:
            self._ask_log_beside(indexes)

    def _index_hits(self, indexes: Indexes, topic: str) -> Iterator[Message]:
        """Yield the messages of one topic that the index leads to, newest first."""
        if self.as_broker and self._is_cut:
            yield from self._broker_hits(indexes, topic)
            return
        hashed = index.key_hash(self._index_text(topic))
        left = self.narrowing.limit
        for file in reversed(indexes.files):
            for number, entry in indexes.iter_hits(file, hashed):
                message = read_record(self.store.commit_log, entry.phy_offset)
                if message is None:
                    if entry.phy_offset >= self.store.commit_log.min_offset:
                        self._complain_of_entry(indexes, file, number, entry.phy_offset)
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
        """Whether the index has entries for what is looked for: tags only get some from 5.4 on."""
        return self.kind is not QuestionKind.TAG or self.store.dispatch_rules.tag_entries

    @property
    def _is_cut(self) -> bool:
        """Whether window or limit cut the answer, so that a broker may answer otherwise than the log would."""
        return any(bound is not None for bound in (self.narrowing.begin, self.narrowing.end, self.narrowing.limit))

    def _broker_hits(self, indexes: Indexes, topic: str) -> Iterator[Message]:
        """Yield the messages that a broker answers with and its client keeps."""
        most = self.narrowing.limit if self.narrowing.limit is not None else self.store.config.max_msgs_num_batch
        end = LONG_MAX if self.narrowing.end is None else self.narrowing.end - 1
        window = (self.narrowing.begin or 0, end)
        text = self._index_text(topic)
        answer = query_message(indexes, lambda at: read_record(self.store.commit_log, at), text, most, window)
        self.collisions += answer.collisions
        for message in answer.messages:
            if self._is_named_by(message) and self.narrowing.queue_id in (None, message.queue_id):
                self.found.add(message.physical_offset)
                yield message

    def _complain_of_entry(self, indexes: Indexes, file: OpenIndex, number: int, phy_offset: int) -> None:
        place = index.entry_offset(file.opened.geometry.slots, number)
        ahead = phy_offset >= self.store.commit_log.end_offset
        text = f"entry {number} of {file.path} leads to {phy_offset}, where no whole message lies"
        indexes.complain("IX-AHEAD" if ahead else "IX-WRONG", file.path, text, place)

    def _count_collision(self, indexes: Indexes, file: OpenIndex, number: int, message: Message, hashed: int) -> None:
        """Count a message of another key whose hash is the same; an entry whose message has no such hash is wrong."""
        texts = [*iter_index_texts(message, self.store.dispatch_rules)]
        texts += [index.tag_key_text(message.topic, message.tags)] if message.tags else []
        if any(index.key_hash(text) == hashed for text in texts):
            self.collisions += 1
            return
        place = index.entry_offset(file.opened.geometry.slots, number)
        text = f"entry {number} of {file.path} leads to {message.physical_offset}, whose message has no such key"
        indexes.complain("IX-WRONG", file.path, text, place)

    def _ask_log_beside(self, indexes: Indexes) -> None:
        """Search what lies before the first index file, between two of them and behind the last.

        What a recovery left out between two files a broker never finds; what lies behind the last it dispatches.
        """
        log = self.store.commit_log
        start, known = log.min_offset, -1
        for file in indexes.files:
            header = file.opened.header
            if file.opened.next_index_no <= 1:
                continue
            if not (self.as_broker and self._is_cut):
                self._search(start, header.begin_phy_offset, known)
            last = read_record(log, header.end_phy_offset)
            if last is None and header.end_phy_offset >= log.min_offset:
                text = f"{file.path} ends with the message at {header.end_phy_offset}, where no whole message lies"
                indexes.complain("IX-AHEAD", file.path, text, 0)
                return
            if last is not None:  # from itself on: it tells what is older behind it, and so no part of the log
                start = known = max(start, last.physical_offset)
        self._search(start, log.end_offset, known)

    def _ask_database(self, topics: list[str]) -> None:
        """Ask 5.4's database. It has no rows for messages without a unique key."""
        try:
            places = find_in_database(self.store, self.kind, self.text, topics)
        except OptionalMissing:
            return
        for place in places:
            message = read_record(self.store.commit_log, place)
            if message is not None and self._is_named_by(message):
                self._takes(message)
        if self.found:
            self.answered_by.append("index")
            self.complete = self.kind is QuestionKind.UNIQ_KEY

    def _ask_log(self, trusted: bool) -> None:
        """Search the whole log: nothing else answers, or nothing was found and that is to be proven."""
        before = set(self.found)
        self._search(self.store.commit_log.min_offset, self.store.commit_log.end_offset, near=not before)
        # An index that a broker before 5.4 began has tags from the upgrade on: none is missed there.
        if trusted and self.found - before and self.kind is not QuestionKind.TAG:
            place = min(self.found - before)
            text = f"the message at {place} has no entry for this key, though the index goes beyond it"
            self.findings.append(Finding("IX-MISSING", Severity.WARNING, text, file="index"))

    def _search(self, start: int, end: int, known: int = -1, *, near: bool = False) -> None:
        """Search a range of the log; of the message at ``known`` everything is known already.

        ``near``: also for keys that are like the one that is looked for.
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
        """Return whether the message has what is looked for. No broker indexes a record of a rollback."""
        if transaction_type(message.sys_flag) is TransactionType.ROLLBACK:
            return False
        if self.kind is QuestionKind.TAG:
            return message.tags == self.text
        if message.uniq_key == self.text:
            return True
        return self.kind is QuestionKind.KEY and self.text in key_tokens(message.properties)

    def _takes(self, message: Message) -> bool:
        """Take a message that lies within what was asked for; remember where those that do not lie."""
        if not self.narrowing.allows_queue(message.topic, message.queue_id):
            self.elsewhere[message.topic] += 1
            return False
        if not self.narrowing.allows_time(message.store_timestamp):
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
    """Yield where else the message may have been: its own topic, the ones it was meant for or came from."""
    yield message.topic
    for name in ("REAL_TOPIC", "RETRY_TOPIC"):
        topic = message.properties.get(name)
        if topic and not topic.startswith(LMQ_PREFIX):
            yield topic


def is_near(wanted: str, key: str) -> bool:
    """Return whether two keys differ only in case, or only in a place of at most two characters."""
    if wanted.casefold() == key.casefold():
        return True
    longest, shortest = max(len(wanted), len(key)), min(len(wanted), len(key))
    if longest - shortest > _NEAR or shortest <= _NEAR:
        return False
    head = _same(wanted, key)
    return longest - head - _same(wanted[head:][::-1], key[head:][::-1]) <= _NEAR


def _same(one: str, other: str) -> int:
    """Return how many characters two texts have in common from their start."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
