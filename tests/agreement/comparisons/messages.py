"""Every field of every message, by every decoder; blanks; bodies; and the bytes written back."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
from construct import Container

from rmqtool.columns.records import Records, decode_records
from rmqtool.columns.starts import record_starts
from rmqtool.formats import batches, commit_log, compression, declarations, dledger, hosts, ids, layouts, properties
from rmqtool.formats.codes import SysFlag
from rmqtool.formats.commit_log import Blank, Message, Nothing
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.java import decode_text
from tests.agreement.ledger import Subject, comparison
from tests.agreement.logs import (
    Placed,
    Segment,
    commit_log_segments,
    is_dledger,
    placed,
    report_missing,
    truth_messages,
    walk_dledger,
    walk_segment,
)
from tests.support.java_hosts import java_host

# Fields of the truth that other comparisons look at.
ELSEWHERE = {"bodyLength", "bodySha256", "tagsCodeInQueue", "dledger", "inner", "recordCheck"}


def by_struct(one: Placed) -> Mapping[str, Any]:
    """The fields as the decoder of whole logs reads them."""
    assert isinstance(one.found, Message)
    return one.found._asdict()


def by_construct(one: Placed) -> Mapping[str, Any]:
    """The fields as the declaration itself reads them."""
    parsed = declarations.MESSAGE.parse(one.data)
    fields: dict[str, Any] = {}
    for name, value in parsed.items():
        if isinstance(value, Container):
            fields |= {f"{name}_ip": value.ip, f"{name}_port": value.port}
        elif name in ("body", "topic", "properties"):
            fields[f"raw_{name}"] = value
        else:
            fields[name] = value
    return fields


def by_bulk(one: Placed) -> Mapping[str, Any]:
    """The fields as the columns of many records hold them."""
    records = _columns(one.segment)
    row = int(np.searchsorted(records.file_offsets, one.file_offset))
    fields = {name: records.prefixes[row][name] for name in layouts.MessagePrefix._fields}
    fields = {name: value.tobytes() if name.endswith("_ip") else int(value) for name, value in fields.items()}
    for which, bit in (("born_host_ip", SysFlag.BORN_HOST_V6), ("store_host_ip", SysFlag.STORE_HOST_V6)):
        fields[which] = fields[which][: hosts.IPV6_LENGTH if fields["sys_flag"] & bit else hosts.IPV4_LENGTH]
    for part, at, length in (
        ("raw_body", records.body_offsets, records.body_lengths),
        ("raw_topic", records.topic_offsets, records.topic_lengths),
        ("raw_properties", records.properties_offsets, records.properties_lengths),
    ):
        fields[part] = records.data[at[row] : at[row] + length[row]].tobytes()
    return fields


@cache
def _columns(segment: Segment) -> Records:
    walk = walk_segment if record_starts(segment.data).file_offsets.size else walk_dledger
    starts = [one.file_offset for one in walk(segment) if isinstance(one.found, Message)]
    records, declined = decode_records(segment.data, np.array(starts, np.int64))
    assert declined is None, declined
    return records


def as_truth(fields: Mapping[str, Any], one: Placed, *, brackets: bool) -> dict[str, object]:
    """A message in the words of the truth files."""
    found = properties.decode_properties(fields["raw_properties"])
    return {
        "commitLogOffset": one.physical_offset,
        "storeSize": fields["total_size"],
        "magic": f"{fields['magic']:#010x}",
        "topic": decode_text(fields["raw_topic"]),
        "queueId": fields["queue_id"],
        "queueOffset": fields["queue_offset"],
        "flag": fields["flag"],
        "sysFlag": fields["sys_flag"],
        "bornTimestamp": fields["born_timestamp"],
        "bornHost": java_host(fields["born_host_ip"], fields["born_host_port"], brackets=brackets),
        "storeTimestamp": fields["store_timestamp"],
        "storeHost": java_host(fields["store_host_ip"], fields["store_host_port"], brackets=brackets),
        "reconsumeTimes": fields["reconsume_times"],
        "preparedTransactionOffset": fields["prepared_transaction_offset"],
        "bodyCRC": fields["body_crc"],
        "storedBodyLength": fields["body_length"],
        "storedBodySha256": hashlib.sha256(fields["raw_body"]).hexdigest(),
        "recordSha256": hashlib.sha256(one.data).hexdigest(),
        "properties": found,
        "tags": properties.tags(found),
        "keys": properties.keys(found),
        "uniqKey": properties.uniq_key(found),
        "offsetMsgId": ids.encode_offset_msg_id(
            fields["store_host_ip"], fields["store_host_port"], fields["physical_offset"]
        ),
        "physicalOffset": fields["physical_offset"],
    }


def compare_messages(subject: Subject, read: Callable[[Placed], Mapping[str, Any]]) -> None:
    """All messages of the store, in the order of the log, none missing and none added."""
    brackets = not subject.name.startswith("49-")
    truth = truth_messages(subject)
    for one in placed(subject.root):
        where = f"record at {one.physical_offset}"
        theirs = truth.pop(one.physical_offset, None)
        if isinstance(one.found, Message) and theirs is not None:
            expected = {name: value for name, value in theirs.items() if name not in ELSEWHERE}
            expected["physicalOffset"] = theirs.get("physicalOffsetInRecord", one.physical_offset)
            subject.compare(where, as_truth(read(one), one, brackets=brackets), expected)
        elif isinstance(one.found, Message) or theirs is not None:
            # A record that the real check refuses is one that we refuse, and nothing else is.
            refused = theirs is not None and "recordCheck" in theirs
            subject.compare(where, {"refused": isinstance(one.found, Flaw)}, {"refused": refused})
    report_missing(subject, "record", truth)


@comparison("message records, by struct", rows="messages")
def messages_by_struct(subject: Subject) -> None:
    """Every field as ``decode_record`` reads it."""
    compare_messages(subject, by_struct)


@comparison("message records, by construct", rows="messages")
def messages_by_construct(subject: Subject) -> None:
    """Every field as the declaration reads it."""
    compare_messages(subject, by_construct)


@comparison("message records, in bulk", rows="messages")
def messages_in_bulk(subject: Subject) -> None:
    """Every field as the columns of whole segments hold it."""
    compare_messages(subject, by_bulk)


@comparison("message records, written back", rows="messages")
def messages_back(subject: Subject) -> None:
    """Both encoders give the bytes that were read; nothing is wrong with a record but what the real check says."""
    for one in placed(subject.root):
        if not isinstance(one.found, Message):
            continue
        flaws = list(commit_log.check_record(one.found, one.segment.data, one.file_offset, one.physical_offset))
        ours = {
            "struct": commit_log.encode_message(one.found).hex(),
            "construct": declarations.MESSAGE.build(declarations.MESSAGE.parse(one.data)).hex(),
            "flaws": flaws,
        }
        theirs = {"struct": one.data.hex(), "construct": one.data.hex(), "flaws": []}
        subject.compare(f"record at {one.physical_offset}", ours, theirs)


@comparison("blanks and ends of the log", rows="blanks")
def blanks(subject: Subject) -> None:
    """Every file ends with a blank that reaches its end, the last one with nothing: zeros, or what a crash left."""
    truth = {blank["commitLogOffset"]: blank["size"] for blank in subject.truth["blanks"]}
    if is_dledger(subject.root):
        return
    for one in placed(subject.root):
        where = f"place {one.physical_offset}"
        if isinstance(one.found, Blank):
            size = one.found.total_size
            head = one.segment.data[one.file_offset : one.file_offset + commit_log.BLANK_SIZE]
            subject.compare(
                where,
                {"size": size, "end": one.file_offset + size, "back": commit_log.encode_blank(size).hex()},
                {"size": truth.pop(one.physical_offset, None), "end": one.segment.size, "back": head.hex()},
            )
        elif isinstance(one.found, Nothing):
            last = commit_log_segments(subject.root)[-2:]
            subject.compare(
                where, {"in one of the last files": one.segment in last}, {"in one of the last files": True}
            )
    report_missing(subject, "blank", truth)


@comparison("bodies, inflated", rows="messages")
def bodies(subject: Subject) -> None:
    """Length and digest of what the consumer sees, or that it cannot be had."""
    truth = truth_messages(subject)
    for one in placed(subject.root):
        if isinstance(one.found, Message):
            theirs = truth[one.physical_offset]
            inflated = compression.inflate_body(one.found.sys_flag, one.found.raw_body)
            ours: dict[str, object] = {"bodyLength": None, "bodySha256": None}
            if isinstance(inflated, compression.Inflated):
                digest = hashlib.sha256(inflated.body).hexdigest()
                ours = {"bodyLength": len(inflated.body), "bodySha256": digest}
            subject.compare(f"record at {one.physical_offset}", ours, {name: theirs[name] for name in ours})


@comparison("inner batches", rows="messages in a batch")
def inner_batches(subject: Subject) -> None:
    """Every message of an inner batch; and the batch written back."""
    truth = truth_messages(subject)
    for one in placed(subject.root):
        if not isinstance(one.found, Message) or "inner" not in truth[one.physical_offset]:
            continue
        items = [item for item in batches.iter_batch_items(one.found.raw_body) if isinstance(item, batches.BatchItem)]
        expected = truth[one.physical_offset]["inner"]
        where = f"record at {one.physical_offset}"
        for number, (item, theirs) in enumerate(zip(items, expected, strict=False)):
            ours = {
                "flag": item.flag,
                "bodyLength": len(item.body),
                "bodySha256": hashlib.sha256(item.body).hexdigest(),
                "properties": properties.decode_properties(item.raw_properties),
                "topic": one.found.topic,
                "queueOffset": one.found.queue_offset + number,
            }
            subject.compare(f"{where}, message {number}", ours, theirs)
        whole = {"messages": len(items), "back": batches.encode_batch(items).hex()}
        subject.compare(where, whole, {"messages": len(expected), "back": one.found.raw_body.hex()})


@comparison("DLedger entries", rows="entries")
def dledger_entries(subject: Subject) -> None:
    """Heads, blanks, and the index file rebuilt from them."""
    if not is_dledger(subject.root):
        return
    truth = [message["dledger"] for message in subject.truth["messages"]]
    blanks_of_truth = {blank["commitLogOffset"]: blank["size"] for blank in subject.truth["blanks"]}
    for segment in commit_log_segments(subject.root):
        at = 0
        while isinstance(head := dledger.decode_entry_head(segment.data, at), layouts.DLedgerEntryHead):
            theirs = truth.pop(0)
            ours = {
                "entryIndex": head.entry_index,
                "entryTerm": head.term,
                "entryPos": head.pos,
                "entrySize": head.size,
                "channel": head.channel,
                "chainCrc": head.chain_crc,
                "bodyCrc": head.body_crc,
                "place": head.pos,
                "back": layouts.DLEDGER_ENTRY_HEAD.encode(head).hex(),
            }
            expected = theirs | {
                "place": segment.base_offset + at,
                "back": segment.data[at : at + dledger.HEAD_SIZE].hex(),
            }
            subject.compare(f"entry at {head.pos}", ours, expected)
            at += head.size
        if isinstance(head, dledger.DLedgerBlank):
            where = segment.base_offset + at
            rest = segment.data[at + 2 * layouts.INT.size :]
            subject.compare(
                f"blank at {where}",
                {"size": head.size, "end": at + head.size, "rest": rest.strip(b"\0")},
                {"size": blanks_of_truth.pop(where, None), "end": segment.size, "rest": b""},
            )
    report_missing(subject, "blank", blanks_of_truth)
    report_missing(subject, "entry", [one["entryPos"] for one in truth])
