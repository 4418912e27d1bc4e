"""What a broker answers: queries by key, offsets by time."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from rmqtool.config import Version
from rmqtool.files.posix_write import PosixWritableFileSystem
from rmqtool.filters.wanted import Wanted, parse_patterns
from rmqtool.formats import index
from rmqtool.log.end import read_record
from rmqtool.look.key_search import Indexes, query_message
from rmqtool.look.lookup import Lookup
from rmqtool.look.question import QuestionKind, ask
from rmqtool.look.time_query import TimeLookup
from rmqtool.store.listing import QueueId
from rmqtool.store.open import Store, open_store
from rmqtool.store.time_search import Boundary
from rmqtool.upstream.rehearsal import rehearse
from tests.agreement.ledger import Subject, comparison


def opened_as_read(subject: Subject) -> Store:
    """Open the store as the version that answered."""
    return open_store(str(subject.root), version=Version(subject.truth["read_by"][:3]))


@contextmanager
def recovered(subject: Subject) -> Iterator[Store]:
    """Open the store as it was when its queries were answered: a killed one as its broker's recovery left it."""
    version = subject.truth["read_by"][:3]
    if "after_recovery" not in subject.truth:
        with opened_as_read(subject) as store:
            yield store
        return
    with tempfile.TemporaryDirectory(prefix="rmqtool-recovered-") as directory:
        target = Path(directory)
        with opened_as_read(subject) as store, rehearse(store, contents=True) as rehearsal:
            rehearsal.run()
            with PosixWritableFileSystem(directory) as files:
                rehearsal.overlay.write_to(files)
        # A broker names a new index file after its own time, which is later than that of all others.
        for file in (target / "index").glob("NEW-*"):
            file.rename(file.with_name(f"2999123123595999{file.name[-1]}"))
        with open_store(str(target), version=Version(version)) as store:
            yield store


def is_answered_by(message: dict[str, Any], topic: str, key: str) -> bool:
    """Return whether a client keeps the message as an answer: the rest are collisions of hashes."""
    keys = [message["uniqKey"], *(message["keys"] or "").split(" ")]
    return bool(key) and message["topic"] == topic and key in keys


@comparison("queries by key, less the collisions of hashes", rows="queries")
def queries_by_key(subject: Subject) -> None:
    """The messages of every answer in their order, and how many a client drops."""
    told = subject.truth.get("after_recovery") or subject.truth
    messages = {message["commitLogOffset"]: message for message in subject.truth["messages"]}
    with recovered(subject) as store:
        indexes = Indexes(store)
        indexes.open_all()
        for row in told["queryMessage"]:
            text = index.key_text(row["topic"], row["key"])
            window = (row["begin"], row["end"])
            found = query_message(indexes, partial(read_record, store.commit_log), text, row["maxNum"], window)
            ours = {"places": [message.physical_offset for message in found.messages], "collisions": found.collisions}
            kept = [at for at in row["phyOffsets"] if is_answered_by(messages[at], row["topic"], row["key"])]
            theirs = {"places": kept, "collisions": len(row["phyOffsets"]) - len(kept)}
            subject.compare(f"{text} in {window}, {row['maxNum']}", ours, theirs)
        indexes.close()


@comparison("offsets by time", rows="questions")
def offsets_by_time(subject: Subject) -> None:
    """Every answer of the version that read the store; a killed one answers after its recovery, which changes nothing.

    A queue that is not there answers 0.
    """
    store = opened_as_read(subject)
    times = TimeLookup(store)
    told = subject.truth.get("after_recovery") or subject.truth
    for row in told["offsetByTime"]:
        boundary = Boundary(row.get("boundary", "LOWER").lower())
        queue = QueueId(row["topic"], row["queueId"])
        found = times.find(queue, row["timestamp"], boundary)
        subject.compare(f"{queue} at {row['timestamp']}, {boundary}", {"offset": found}, {"offset": row["offset"]})
    store.close()


def found_places(lookup: Lookup, text: str, kind: QuestionKind) -> list[int]:
    """Return where the messages lie that answer a question."""
    return lookup.find(ask(text, kind, int)).places


@comparison("messages found by key, as their broker and as they are", rows="queries")
def messages_by_key(subject: Subject) -> None:
    """What ``query`` finds: with a version the broker's answer, else every message that has the key."""
    store = opened_as_read(subject)
    messages = {message["commitLogOffset"]: message for message in subject.truth["messages"]}
    every: dict[tuple[str, str], list[int]] = {}
    for row in subject.truth.get("queryMessage", []):
        topic, key = row["topic"], row["key"]
        wanted = Wanted(topics=parse_patterns([topic]), begin=row["begin"], end=row["end"] + 1, limit=row["maxNum"])
        ours = {"as its broker": found_places(Lookup(store, wanted, as_broker=True), key, QuestionKind.KEY)}
        # A message that has the key twice is answered twice.
        kept = list(dict.fromkeys(at for at in row["phyOffsets"] if is_answered_by(messages[at], topic, key)))
        theirs = {"as its broker": kept}
        if (topic, key) not in every:
            plain = Lookup(store, Wanted(topics=parse_patterns([topic])))
            every[topic, key] = found_places(plain, key, QuestionKind.KEY)
            ours["all"] = every[topic, key]
            rollback = 0xC
            theirs["all"] = [
                at
                for at, message in messages.items()
                if message["sysFlag"] & rollback != rollback and is_answered_by(message, topic, key)
            ]
        subject.compare(f"{topic}#{key} {row['begin']} {row['end']} {row['maxNum']}", ours, theirs)
    store.close()


@comparison("messages found by their ids", rows="ids")
def messages_by_id(subject: Subject) -> None:
    """Every offset message id and unique key of the truth leads to its messages."""
    store = opened_as_read(subject)
    lookup = Lookup(store, Wanted())
    told = subject.truth
    for row in told.get("msgIds", []):
        found = found_places(lookup, row["offsetMsgId"], QuestionKind.OFFSET_MSG_ID)
        subject.compare(row["offsetMsgId"], {"places": found}, {"places": [row["commitLogOffset"]]})
    by_key: dict[str, list[int]] = {}
    for message in told["messages"]:
        if message["uniqKey"] and message["sysFlag"] & 0xC != 0xC:
            by_key.setdefault(message["uniqKey"], []).append(message["commitLogOffset"])
    for row in told.get("uniqIds", []):
        found = found_places(lookup, row["uniqKey"], QuestionKind.UNIQ_KEY)
        subject.compare(row["uniqKey"], {"places": found}, {"places": by_key.get(row["uniqKey"], [])})
    store.close()
