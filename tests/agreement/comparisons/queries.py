"""What a broker answers: queries by key, offsets by time."""

from __future__ import annotations

from typing import Any

from rmqtool.config import Version
from rmqtool.formats import index
from rmqtool.inspection.broker_query import query_message
from rmqtool.inspection.by_time import Boundary, find_offset_by_time
from rmqtool.inspection.index_lookup import Indexes
from rmqtool.storage.discovery import QueueId
from rmqtool.storage.log_end import read_record
from rmqtool.storage.store import Store, open_store
from tests.agreement.ledger import Subject, comparison


def opened_as_read(subject: Subject) -> Store:
    """Open the store as the version that answered."""
    return open_store(str(subject.root), version=Version(subject.truth["read_by"][:3]))


def is_answered_by(message: dict[str, Any], topic: str, key: str) -> bool:
    """Return whether a client keeps the message as an answer: the rest are collisions of hashes."""
    return message["topic"] == topic and (message["uniqKey"] == key or key in (message["keys"] or "").split(" "))


@comparison("queries by key, less the collisions of hashes", rows="queries")
def queries_by_key(subject: Subject) -> None:
    """The messages of every answer in their order, and how many a client drops."""
    store = opened_as_read(subject)
    indexes = Indexes(store)
    indexes.open_all()
    messages = {message["commitLogOffset"]: message for message in subject.truth["messages"]}
    for row in subject.truth.get("queryMessage", []):
        text = index.key_text(row["topic"], row["key"])
        window = (row["begin"], row["end"])
        found = query_message(indexes, lambda at: read_record(store.commit_log, at), text, row["maxNum"], window)
        ours = {"places": [message.physical_offset for message in found.messages], "collisions": found.collisions}
        kept = [at for at in row["phyOffsets"] if is_answered_by(messages[at], row["topic"], row["key"])]
        theirs = {"places": kept, "collisions": len(row["phyOffsets"]) - len(kept)}
        subject.compare(f"{text} in {window}, {row['maxNum']}", ours, theirs)
    indexes.close()
    store.close()


@comparison("offsets by time", rows="questions")
def offsets_by_time(subject: Subject) -> None:
    """Every answer of the version that read the store; a killed one answers after its recovery, which changes nothing.

    A queue that is not there answers 0.
    """
    store = opened_as_read(subject)
    told = subject.truth.get("after_recovery") or subject.truth
    for row in told["offsetByTime"]:
        boundary = Boundary(row.get("boundary", "LOWER").lower())
        queue = QueueId(row["topic"], row["queueId"])
        found = find_offset_by_time(store, queue, row["timestamp"], boundary)
        subject.compare(f"{queue} at {row['timestamp']}, {boundary}", {"offset": found or 0}, {"offset": row["offset"]})
    store.close()
