"""Text-like formats: properties, ids, hosts, configuration files."""

from __future__ import annotations

from datetime import UTC
from typing import Any

from rmqtool.formats import config_files, config_shapes, ids, paths, properties
from rmqtool.formats.flaws import Flaw
from tests.agreement.ledger import Subject, comparison
from tests.golden.texts import records
from tests.support.java_hosts import java_host, padded_address

# The real classes tell the time of a unique id in the month they are asked in: November 2026.
ASKED = 1796083199999


@comparison("properties, decoded from the raw text", rows="messages")
def decoded_properties(subject: Subject) -> None:
    """Every property, and what is derived from them."""
    raw = records(subject.root)
    for message in subject.truth["messages"]:
        if "recordCheck" in message:
            continue
        found = properties.decode_properties(raw[message["commitLogOffset"]].properties)
        ours = {
            "properties": found,
            "tags": properties.tags(found),
            "keys": properties.keys(found),
            "uniqKey": properties.uniq_key(found),
        }
        subject.compare(f"message at {message['commitLogOffset']}", ours, {key: message[key] for key in ours})


@comparison("hosts as Java spells them, and ids made from them", rows="messages")
def hosts_and_ids(subject: Subject) -> None:
    """Both hosts of every record, and its offset message id."""
    raw = records(subject.root)
    brackets = not subject.name.startswith("49-")
    for message in subject.truth["messages"]:
        if "recordCheck" in message:
            continue
        offset = message["commitLogOffset"]
        ours: dict[str, object] = {}
        for name, host in (("bornHost", raw[offset].born_host), ("storeHost", raw[offset].store_host)):
            ours[name] = java_host(host[:-4], int.from_bytes(host[-4:], "big"), brackets=brackets)
        host = raw[offset].store_host
        ours["offsetMsgId"] = ids.encode_offset_msg_id(host[:-4], int.from_bytes(host[-4:], "big"), offset)
        subject.compare(f"message at {offset}", ours, {key: message[key] for key in ours})


def _told(subject: Subject, kind: str) -> list[dict[str, Any]]:
    truth = subject.truth
    return [*truth.get(kind, []), *truth.get("after_recovery", {}).get(kind, [])]


@comparison("offset message ids, taken apart", rows="ids")
def offset_message_ids(subject: Subject) -> None:
    """Host and offset of an id, and the id made of them again."""
    brackets = not subject.name.startswith("49-")
    for row in _told(subject, "msgIds"):
        found = ids.decode_offset_msg_id(row["offsetMsgId"])
        assert found is not None
        ours = {
            "host": java_host(found.address, found.port, brackets=brackets),
            "commitLogOffset": found.physical_offset,
            "offsetMsgId": ids.encode_offset_msg_id(*found),
        }
        subject.compare(row["offsetMsgId"], ours, {key: row[key] for key in ours})


@comparison("unique keys, taken apart", rows="ids")
def unique_keys(subject: Subject) -> None:
    """Address, process, time and counter of a key, and the key made of them again."""
    for row in _told(subject, "uniqIds"):
        found = ids.decode_uniq_key(row["uniqKey"])
        assert found is not None
        ours = {
            "ip": padded_address(found.address),
            "pid": found.pid,
            "timestamp": ids.uniq_key_time(found.month_span, ASKED, UTC),
            "counter": found.counter,
            "uniqKey": ids.encode_uniq_key(found),
        }
        subject.compare(row["uniqKey"], ours, {key: row[key] for key in ours})


def _with_text_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _with_text_keys(item) for key, item in value.items()}
    return [_with_text_keys(item) for item in value] if isinstance(value, list) else value


@comparison("configuration files: value, and the bytes written again", rows="files")
def configuration_files(subject: Subject) -> None:
    """Every JSON file equals the broker's own parse, and is written as it was."""
    dialect = config_files.dialect_of(f"{subject.name[0]}.{subject.name[1]}")
    for path in sorted(subject.root.rglob("*")):
        name, _copy = paths.split_copy(path.name)
        if name not in config_shapes.CONFIG_FILES or not path.is_file():
            continue
        data = path.read_bytes()
        decoded = config_files.decode_config(name, data)
        assert not isinstance(decoded, Flaw), decoded
        ours = {"bytes": config_files.encode_config(name, decoded.value, dialect)}
        theirs: dict[str, object] = {"bytes": data}
        told = subject.truth["configFiles"].get(path.name)
        if told is not None:
            ours["value"], theirs["value"] = _with_text_keys(decoded.value), told
        subject.compare(path.relative_to(subject.root).as_posix(), ours, theirs)
