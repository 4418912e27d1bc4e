"""Java's own arithmetic, where stored bytes depend on it."""

from __future__ import annotations

import hashlib
import os

from rmqtool.formats import java, layouts
from tests.agreement.ledger import Subject, comparison

# Their unit holds a time, or an address in the ext file, in place of the hash.
DELAYED = "SCHEDULE_TOPIC_XXXX"

PREFIXES = {
    0x00: layouts.MESSAGE_PREFIX_V4V4,
    0x10: layouts.MESSAGE_PREFIX_V6V4,
    0x20: layouts.MESSAGE_PREFIX_V4V6,
    0x30: layouts.MESSAGE_PREFIX_V6V6,
}


@comparison("tags code, by Java's hash", rows="messages")
def tags_codes(subject: Subject) -> None:
    """The tags code of a queue unit is the hash of the tags; 0 without any."""
    if subject.truth["config"].get("enableConsumeQueueExt"):
        return
    for message in subject.truth["messages"]:
        if message["tagsCodeInQueue"] is not None and message["topic"] != DELAYED:
            code = java.string_hash(message["tags"]) if message["tags"] else 0
            where = f"message at {message['commitLogOffset']}"
            subject.compare(where, {"tagsCode": code}, {"tagsCode": message["tagsCodeInQueue"]})


@comparison("body and its checksum, where the prefix puts them", rows="messages")
def body_checksums(subject: Subject) -> None:
    """The stored body lies behind the prefix, has the length it says, and the 31 bits of its CRC-32."""
    segments = {
        int(path.name): path
        for path in subject.root.rglob("*")
        if path.name.isdecimal() and (path.parent.name.startswith("commitlog") or path.parent.name == "data")
    }
    for message in subject.truth["messages"]:
        physical_offset = message["commitLogOffset"]
        start = max(offset for offset in segments if offset <= physical_offset)
        layout = PREFIXES[message["sysFlag"] & 0x30]
        with segments[start].open("rb") as file:
            record = os.pread(file.fileno(), message["storeSize"], physical_offset - start)
        prefix = layout.decode(record)
        body = record[layout.size : layout.size + prefix.body_length]
        # The torn record of a killed store is the one that the real check refuses.
        subject.compare(
            f"message at {physical_offset}",
            {
                "storedBodyLength": len(body),
                "storedBodySha256": hashlib.sha256(body).hexdigest(),
                "bodyCRC": prefix.body_crc,
                "whole": java.crc31(body) == prefix.body_crc,
            },
            {key: message[key] for key in ("storedBodyLength", "storedBodySha256", "bodyCRC")}
            | {"whole": "recordCheck" not in message},
        )
