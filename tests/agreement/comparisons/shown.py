"""What ``cat`` shows: every line against the message it is of, orders, filters, and what is left of damaged stores."""

from __future__ import annotations

import base64
import hashlib
import json
import tempfile
from pathlib import Path
from typing import Any

from rmqtool.filters.sql92 import parse_selector
from rmqtool.filters.tags import parse_tags
from rmqtool.filters.wanted import parse_patterns
from rmqtool.formats.hosts import parse_host
from rmqtool.formats.java import string_hash
from rmqtool.log.order import Order
from rmqtool.log.ranges import Answered, Effort
from rmqtool.log.read import Part
from rmqtool.log.select import Selection
from rmqtool.log.sources import open_source
from rmqtool.log.stream import Request, iter_lines, iter_messages
from rmqtool.store.open import open_store
from tests.agreement.ledger import Subject, comparison
from tests.agreement.logs import report_missing, truth_messages
from tests.support.damaged import VERSIONS, Workshop, mutations, outcomes, sample

_PREFIX = "recovery-"
# Spelled in other words there: hosts without brackets, bodies as digests.
_SPELLED = ("bornHost", "storeHost", "bodySha256")
_SAMPLE = 80
# Valid by the rule of the recorded count; it reaches into the next record, so here it is damage.
_OVERLAP = "A/recordlen-consistent-shift@last-mid"


def shown_lines(root: Path) -> list[dict[str, Any]]:
    """The lines of ``cat --jsonl`` that are messages."""
    with open_source(str(root), open_store) as source:
        answers = iter_lines(source, Request(Selection()), Effort())
        data = b"".join(part for answer in answers if isinstance(answer, Answered) for part in answer.data)
    return [line for line in map(json.loads, data.splitlines()) if "damage" not in line]


def shown_places(root: Path, request: Request) -> list[int]:
    """Where the messages lie that are shown, in their order."""
    with open_source(str(root), open_store) as source:
        parts = [event for event in iter_messages(source, request, Effort()) if isinstance(event, Part)]
    return [place for part in parts for place in part.records.column("physical_offset").tolist()]


def right_messages(subject: Subject) -> list[dict[str, Any]]:
    """The messages that the real check calls right."""
    return [message for message in subject.truth["messages"] if "recordCheck" not in message]


@comparison("messages, as cat prints them", rows="messages")
def messages_as_shown(subject: Subject) -> None:
    """Every field of every line in the order of the log; bodies by digests that are made of them anew."""
    truth = {at: one for at, one in truth_messages(subject).items() if "recordCheck" not in one}
    lines = shown_lines(subject.root)
    places = [line["commitLogOffset"] for line in lines]
    subject.compare("order", {"rises": places == sorted(set(places))}, {"rises": True})
    for line in lines:
        theirs = truth.pop(line["commitLogOffset"], {})
        body = line["body"].encode() if line["bodyEncoding"] == "utf8" else base64.b64decode(line["body"])
        digest = "bodySha256" if line["bodyLength"] is not None else "storedBodySha256"
        names = [name for name in line if name in theirs and name not in _SPELLED]
        ours = {name: line[name] for name in names} | {digest: hashlib.sha256(body).hexdigest()}
        told = {name: theirs[name] for name in names} | {digest: theirs.get(digest)}
        for name in ("bornHost", "storeHost"):
            ours[name], told[name] = parse_host(line[name]), parse_host(theirs[name]) if theirs else None
        subject.compare(f"line of {line['commitLogOffset']}", ours, told)
    report_missing(subject, "line", truth)


@comparison("messages, in the order of their queues", rows="messages")
def messages_by_queue(subject: Subject) -> None:
    """Topic by topic, queue by queue."""
    right = right_messages(subject)
    right.sort(key=lambda one: (one["topic"], one["queueId"], one["queueOffset"], one["commitLogOffset"]))
    found = shown_places(subject.root, Request(Selection(), Order.QUEUE))
    subject.compare("order", {"messages": len(found)}, {"messages": len(right)})
    for number, (place, message) in enumerate(zip(found, right, strict=False)):
        subject.compare(f"message {number}", {"place": place}, {"place": message["commitLogOffset"]})


@comparison("messages by tag", rows="tags")
def messages_by_tag(subject: Subject) -> None:
    """All messages of each tag, none of another that has its hash."""
    right = right_messages(subject)
    hashes: dict[int, set[str]] = {}
    for tag in {one["tags"] for one in right if one["tags"] and one["tags"].strip() == one["tags"]}:
        if "|" not in tag and tag != "*":
            hashes.setdefault(string_hash(tag), set()).add(tag)
    several = [tag for alike in hashes.values() if len(alike) > 1 for tag in sorted(alike)]
    others = [next(iter(alike)) for alike in hashes.values() if len(alike) == 1]
    for tag in [*sorted(several), *sorted(others)[:5]]:
        found = shown_places(subject.root, Request(Selection(tags=parse_tags(tag))))
        theirs = [one["commitLogOffset"] for one in right if one["tags"] == tag]
        subject.compare(tag, {"places": found}, {"places": theirs})


@comparison("messages by SQL92, as a living broker filtered", rows="questions")
def messages_by_sql(subject: Subject) -> None:
    """The broker answers up to an offset: what lies behind was not asked."""
    offsets = {one["commitLogOffset"]: one["queueOffset"] for one in subject.truth["messages"]}
    for row in subject.truth.get("sqlGetMessage", []):
        selection = Selection(
            topics=parse_patterns([row["topic"]]),
            queue_id=row["queueId"],
            least_offset=row["offset"],
            where=parse_selector(row["expression"], whole=True),
        )
        found = shown_places(subject.root, Request(selection))
        ours = [place for place in found if offsets[place] < row["nextBeginOffset"]]
        where = f"{row['topic']}/{row['queueId']}@{row['offset']} {row['expression']}"
        subject.compare(where, {"places": ours}, {"places": row["phyOffsets"]})


@comparison(
    "valid messages of damaged stores", rows="variants", subjects=tuple(_PREFIX + version for version in VERSIONS)
)
def messages_of_damaged_stores(subject: Subject) -> None:
    """As many as an independent scan found by every magic; a sample of the variants, all of them in ``make slow``."""
    version = subject.name.removeprefix(_PREFIX)
    every = mutations(version)
    with tempfile.TemporaryDirectory(prefix="rmqtool-shown-") as directory:
        workshop = Workshop(Path(directory))
        for key in sorted({*sample(version, _SAMPLE, seed=4), _OVERLAP}):
            with workshop.damaged(version, every[key], abort=True) as root:
                found = len(shown_places(root, Request(Selection())))
            told = outcomes(version)[key]["valid_in_mutated"] - (key == _OVERLAP)
            subject.compare(key, {"messages": found}, {"messages": told})
