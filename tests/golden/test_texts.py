"""The text-like formats against every store: properties, ids, hosts, paths, JSON and control files."""

from __future__ import annotations

import calendar
import json
from collections import Counter
from collections.abc import Iterator
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest

from rmqtool.formats import config_files, config_shapes, control_texts, hosts, ids, java, paths, properties, topics
from rmqtool.formats.fastjson import Bean, Dialect, Sequence, Shape, Style, Table
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.paths import Copy, FileKind
from rmqtool.formats.system_bodies import decode_op_body, decode_pop_body, encode_op_body, encode_pop_body
from tests.conftest import Unpacker
from tests.golden.texts import RawRecord, records
from tests.support.java_hosts import java_host, padded_address
from tests.support.mutations import apply_mutation, read_catalogue
from tests.support.stores import BASES, STORES, every_store, read_lines, truth

# When the real classes were asked for the times of unique ids (they answer for the month they are asked in).
ASKED = calendar.timegm((2026, 12, 1, 0, 0, 0)) * 1000 - 1

every_root = pytest.mark.parametrize("name", [*STORES, *BASES])


def version_of(name: str) -> str:
    """Return which broker wrote a store."""
    for version, marks in (("5.4", ("54-", "5.4.")), ("5.3", ("53-", "5.3."))):
        if any(mark in name for mark in marks):
            return version
    return "4.9"


def messages(name: str, store: Unpacker) -> Iterator[tuple[dict[str, Any], RawRecord]]:
    """Yield what the real decoder said about each whole message, and its bytes."""
    raw = records(store(name))
    told = [message for message in truth(name)["messages"] if "recordCheck" not in message]
    assert told
    assert raw.keys() >= {message["commitLogOffset"] for message in told}
    for message in told:
        yield message, raw[message["commitLogOffset"]]


@every_store
def test_properties_of_every_message(name: str, store: Unpacker) -> None:
    for message, record in messages(name, store):
        found = properties.decode_properties(record.properties)
        assert found == message["properties"]
        assert properties.tags(found) == message["tags"]
        assert properties.keys(found) == message["keys"]
        assert properties.uniq_key(found) == message["uniqKey"]


@every_store
def test_pieces_tile_the_block_and_give_it_back(name: str, store: Unpacker) -> None:
    for _message, record in messages(name, store):
        block = record.properties
        pieces = list(properties.iter_pieces(block))
        end = 0
        for piece in pieces:
            assert piece.name_offset == end
            end += piece.length + 1
        assert end == len(block) + (0 if properties.is_terminated(block) else 1) * bool(block)
        if all(piece.kind is properties.PieceKind.PAIR for piece in pieces):
            pairs = [(piece.name(block), piece.value(block)) for piece in pieces]
            text = "\2".join(f"{name}\1{value}" for name, value in pairs)
            assert text.encode() + b"\2" * properties.is_terminated(block) == block
            assert dict(pairs) == properties.decode_properties(block)


@every_store
def test_order_of_pairs_is_that_of_a_hash_map(name: str, store: Unpacker) -> None:
    """One map of 16 or 128 bins; a client batch has two maps, one after the other. Hand-made texts are in no order."""
    unordered = Counter[bool]()
    for _message, record in messages(name, store):
        block, _crc = properties.split_property_crc(record.properties)
        pieces = list(properties.iter_pieces(block))
        if any(piece.kind is not properties.PieceKind.PAIR for piece in pieces):
            continue
        names = [piece.name(block) for piece in pieces]
        unordered[not _in_maps(names)] += 1
    assert unordered[True] <= unordered[False] // 10
    if "basic" not in name and name not in ("53-killed", "53-cleaned", "53-multidir", "53-crc", "53-epoch"):
        assert not unordered[True], "all texts of this store were made by brokers and clients"


def _in_maps(names: list[str]) -> bool:
    def one_map(part: list[str]) -> bool:
        return any(
            list(properties.order_properties(dict.fromkeys(part, ""), bins)) == part
            for bins in (properties.BUILT_BINS, properties.DECODED_BINS)
        )

    return one_map(names) or any(one_map(names[:cut]) and one_map(names[cut:]) for cut in range(1, len(names)))


def test_the_checksum_block_of_every_record_that_has_one(store: Unpacker) -> None:
    blocks = [record.properties for _message, record in messages("53-crc", store)]
    found = [properties.find_property_crc(block) for block in blocks]
    assert None not in found
    assert len(found) == 131
    for block, crc in zip(blocks, found, strict=True):
        assert crc is not None
        text, _ = properties.split_property_crc(block)
        assert not text or text.endswith(b"\2")
        assert text + properties.encode_property_crc(crc.value) == block
        assert properties.decode_properties(block)["__CRC32#"] == str(crc.value)[::-1].ljust(10, "0")


@every_store
def test_hosts_and_ids_of_every_message(name: str, store: Unpacker) -> None:
    brackets = version_of(name) != "4.9"
    for message, record in messages(name, store):
        for raw, text in ((record.born_host, message["bornHost"]), (record.store_host, message["storeHost"])):
            address, port = raw[:-4], int.from_bytes(raw[-4:], "big")
            assert java_host(address, port, brackets=brackets) == text
            assert hosts.parse_host(text) == (address, port)
            assert hosts.parse_host(hosts.format_host(address, port)) == (address, port)
        offset = message["commitLogOffset"]
        text = ids.encode_offset_msg_id(record.store_host[:-4], int.from_bytes(record.store_host[-4:], "big"), offset)
        assert text == message["offsetMsgId"]
        assert ids.guess_id(text).kinds[0] is ids.IdKind.OFFSET_MSG_ID
        decoded = ids.decode_offset_msg_id(text)
        assert decoded is not None
        assert decoded.physical_offset == offset
        assert java_host(decoded.address, decoded.port, brackets=brackets) == message["storeHost"]


@every_store
def test_unique_keys_of_every_message(name: str, store: Unpacker) -> None:
    for message, _record in messages(name, store):
        text = message["uniqKey"]
        if text is None:
            continue
        key, pop_id = ids.decode_uniq_key(text), ids.decode_pop_id(text)
        assert key is None or pop_id is None
        if key is not None:
            assert ids.encode_uniq_key(key) == text
            assert ids.guess_id(text).kinds[0] is ids.IdKind.UNIQ_KEY
        elif "@" in text:
            assert pop_id is not None
            assert ids.encode_pop_id(pop_id) == text
            assert ids.guess_id(text).kinds == (ids.IdKind.UNIQ_KEY,)


def _told_ids(kind: str) -> list[dict[str, Any]]:
    found = []
    for name in STORES:
        told = truth(name)
        found += told.get(kind, []) + told.get("after_recovery", {}).get(kind, [])
    return found


def test_every_offset_message_id_that_the_real_decoder_took_apart() -> None:
    told = _told_ids("msgIds")
    assert len(told) >= 2269
    for row in told:
        decoded = ids.decode_offset_msg_id(row["offsetMsgId"])
        assert decoded is not None
        assert decoded.physical_offset == row["commitLogOffset"]
        assert row["host"] in {java_host(decoded.address, decoded.port, brackets=b) for b in (True, False)}
        assert ids.encode_offset_msg_id(*decoded) == row["offsetMsgId"]


def test_every_unique_key_that_the_real_class_took_apart() -> None:
    told = _told_ids("uniqIds")
    assert len(told) >= 2358
    for row in told:
        decoded = ids.decode_uniq_key(row["uniqKey"])
        assert decoded is not None
        assert padded_address(decoded.address) == row["ip"]
        assert (decoded.pid, decoded.counter) == (row["pid"], row["counter"])
        assert ids.uniq_key_time(decoded.month_span, ASKED, UTC) == row["timestamp"]
        assert ids.nearest_uniq_key_time(decoded.month_span, row["timestamp"] + 5_000, UTC) == row["timestamp"]


@every_root
def test_every_path_of_a_store_is_known(name: str, store: Unpacker) -> None:
    root = store(name)
    logs = sorted(path.name for path in root.glob("commitlog*"))
    files = [path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()]
    assert files
    for file in files:
        found = paths.classify(file, logs)
        assert found.kind is not FileKind.UNKNOWN, file
    kinds = Counter(paths.classify(file, logs).kind for file in files)
    assert kinds[FileKind.COMMIT_LOG] + kinds[FileKind.DLEDGER_DATA] == len(
        [file for file in files if file.startswith(("commitlog", "dledger-n0/data/"))]
    )
    queues = {path.parent.relative_to(root).as_posix() for path in root.glob("consumequeue/*/*/*")}
    told = {paths.classify(file) for file in files}
    for entry in told:
        if entry.kind is FileKind.CONSUME_QUEUE:
            assert paths.segment_directory(entry.kind, entry.topic, entry.queue_id) in queues


def json_files(root: Path) -> Iterator[tuple[Path, str]]:
    """Yield every JSON file of a store and the name of its declaration."""
    for path in sorted(root.rglob("*")):
        bare, _copy = paths.split_copy(path.name)
        if bare in config_shapes.CONFIG_FILES and path.is_file():
            yield path, bare


def as_told(value: Any) -> Any:
    """Return a value with the keys of numeric maps as texts, which is how the truth has them."""
    if isinstance(value, dict):
        return {str(key): as_told(item) for key, item in value.items()}
    return [as_told(item) for item in value] if isinstance(value, list) else value


# The recorded start-ups begin from copies that were cut down by hand and are on one line.
ONE_LINE = {
    f"recovery-config-{version}/base-CFG/{name}.bak"
    for version in ("4.9.7", "5.3.3")
    for name in ("topics.json", "subscriptionGroup.json")
}


@every_root
def test_every_json_file_is_read_as_told_and_written_byte_for_byte(name: str, store: Unpacker) -> None:
    version = version_of(name)
    dialect = config_files.dialect_of(version)
    told = dict(truth(name)["configFiles"]) if name in STORES else {}
    for path, bare in json_files(store(name)):
        data = path.read_bytes()
        for accepted_by in (None, *Dialect):
            decoded = config_files.decode_config(bare, data, accepted_by)
            assert not isinstance(decoded, Flaw), decoded
            assert (decoded.oddities, decoded.lossy) == ((), False)
        if path.parent.name == "config" and name in STORES:
            assert as_told(decoded.value) == told.pop(path.name)
        style = Style.COMPACT if f"{name}/{path.name}" in ONE_LINE else None
        assert config_files.encode_config(bare, decoded.value, dialect, style) == data
    assert not told, "files that the truth has and the store has not"


def test_all_json_files_are_there(store: Unpacker) -> None:
    count = sum(1 for name in STORES for _ in json_files(store(name)))
    assert count == 188


@every_root
def test_keys_of_json_files_are_declared_and_in_order(name: str, store: Unpacker) -> None:
    for path, bare in json_files(store(name)):
        decoded = config_files.decode_config(bare, path.read_bytes())
        assert not isinstance(decoded, Flaw)
        _check_order(decoded.value, config_shapes.CONFIG_FILES[bare].root, path.name)


def _check_order(value: Any, shape: Shape, where: str) -> None:
    if isinstance(shape, Bean):
        assert list(value) == [field for field in shape.fields if field in value], where
        for field, item in value.items():
            _check_order(item, shape.fields[field].shape, f"{where}.{field}")
    elif isinstance(shape, Table):
        assert config_files.order_keys(list(value), shape) == list(value), where
        for key, item in value.items():
            _check_order(item, shape.values, f"{where}.{key}")
            rest = {other: value[other] for other in value if other != key}
            if not _shares_bin_with_a_later(key, list(value), shape):  # a new key goes behind all others of its bin
                assert list(config_files.with_entry(rest, key, item, shape)) == list(value), where
    elif isinstance(shape, Sequence):
        for item in value:
            _check_order(item, shape.items, f"{where}[]")


def _shares_bin_with_a_later(key: Any, keys: list[Any], shape: Table) -> bool:
    later = keys[keys.index(key) + 1 :]
    return any(
        config_files.order_keys([key, other], shape) != config_files.order_keys([other, key], shape) for other in later
    )


@every_root
def test_group_topic_map_follows_from_the_offsets(name: str, store: Unpacker) -> None:
    for path, bare in json_files(store(name)):
        decoded = config_files.decode_config(bare, path.read_bytes())
        assert not isinstance(decoded, Flaw)
        written = decoded.value.get("groupTopicMap")
        if written is not None:
            made = config_files.group_topic_map(decoded.value["offsetTable"])
            assert list(made.items()) == list(written.items())


@pytest.mark.parametrize("name", ["49-broker", "49-ext", "53-broker", "53-timer", "54-broker", "54-combine"])
def test_a_broker_s_own_topics_and_groups_are_those_declared(name: str) -> None:
    version = version_of(name)
    told = truth(name)["configFiles"]
    table = told["topics.json"]["topicConfigTable"]
    own = topics.find_own_names(table)
    cluster = next(topic for topic in table if topic + topics.REPLY_SUFFIX in table)
    (broker,) = own - {cluster}
    made = {topic.name: topic for topic in topics.iter_own_topics(version, cluster, broker)}
    # Made on demand: the first half message, the first transaction that is given up.
    on_demand = {topics.HALF_TOPIC, topics.CHECK_MAX_TIME_TOPIC}
    system = {topic for topic in table if topics.topic_kind(topic, own) is topics.TopicKind.SYSTEM}
    assert system - on_demand == made.keys() - on_demand - {"RMQ_SYS_TRACE_TOPIC"} | system & on_demand - on_demand
    for topic in system & made.keys():
        assert table[topic]["perm"] == made[topic].perm
        # defaultTopicQueueNums and reviveQueueNum were set to 2 in the stores of 5.x.
        if topic not in (topics.AUTO_CREATE_TOPIC, topics.REVIVE_PREFIX + cluster):
            assert table[topic]["readQueueNums"] == table[topic]["writeQueueNums"] == made[topic].queues
    groups = told["subscriptionGroup.json"]["subscriptionGroupTable"]
    for group, since in config_shapes.OWN_GROUPS.items():
        assert (group in groups) == (config_files.is_since(version, since))


@pytest.mark.parametrize("name", ["49-broker", "53-broker", "54-broker"])
def test_a_new_topic_and_group_have_upstream_s_fields_and_defaults(name: str) -> None:
    version = version_of(name)
    told = truth(name)["configFiles"]
    topic = told["topics.json"]["topicConfigTable"]["SELF_TEST_TOPIC"]
    made = config_files.new_bean(
        config_shapes.TOPIC_CONFIG, version, topicName="SELF_TEST_TOPIC", readQueueNums=1, writeQueueNums=1
    )
    assert made == topic
    group = told["subscriptionGroup.json"]["subscriptionGroupTable"]["TOOLS_CONSUMER"]
    made = config_files.new_bean(config_shapes.SUBSCRIPTION_GROUP_CONFIG, version, groupName="TOOLS_CONSUMER")
    assert made == group
    root = config_files.new_bean(config_shapes.CONSUMER_OFFSETS, version)
    assert root.keys() == told["consumerOffset.json"].keys()


ROCKSDB_VALUES: dict[tuple[str, str], Shape] = {
    ("config/topics", "default"): config_shapes.TOPIC_CONFIG,
    ("config/topics", "kvDataVersion"): config_shapes.DATA_VERSION,
    ("config/subscriptionGroups", "default"): config_shapes.SUBSCRIPTION_GROUP_CONFIG,
    ("config/subscriptionGroups", "kvDataVersion"): config_shapes.DATA_VERSION,
    ("config/consumerOffsets", "default"): config_shapes.ROCKSDB_OFFSETS,
    ("config/metadata", "topic"): config_shapes.TOPIC_CONFIG,
    ("config/metadata", "topicVersion"): config_shapes.DATA_VERSION,
    ("config/metadata", "subscriptionGroup"): config_shapes.SUBSCRIPTION_GROUP_CONFIG,
    ("config/metadata", "subscriptionGroupVersion"): config_shapes.DATA_VERSION,
    ("config/metadata", "consumerOffset"): config_shapes.ROCKSDB_OFFSETS,
    ("config/rdb", "topics"): config_shapes.TOPIC_CONFIG,
    ("config/rdb", "groups"): config_shapes.SUBSCRIPTION_GROUP_CONFIG,
    ("kvStore", "popState"): config_shapes.POP_CONSUMER_RECORD,
}
# Rows of config v2 with a JSON value: the table's number stands in the key, 1 for JSON before the value.
V2_TABLES = {"0100030200": "topics", "0100040200": "groups"}


def rocksdb_json(name: str) -> Iterator[tuple[str, str, bytes]]:
    """Yield database, family and value of each row that is JSON."""
    for database, families in truth(name).get("rocksdb", {}).items():
        for family, rows in families.items():
            for key, value in rows:
                if database == "config/rdb":
                    if key[:10] in V2_TABLES:
                        yield database, V2_TABLES[key[:10]], bytes.fromhex(value)[1:]
                elif value.startswith("7b"):
                    yield database, family, bytes.fromhex(value)


def test_json_values_of_the_databases() -> None:
    seen = Counter[str]()
    for name in STORES:
        for database, family, data in rocksdb_json(name):
            shape = ROCKSDB_VALUES[database, family]
            decoded = config_files.decode_value(data, shape)
            assert not isinstance(decoded, Flaw)
            assert not decoded.oddities
            assert as_told(decoded.value) == json.loads(data)
            compact = database in ("kvStore", "config/rdb")
            # Config v2 is written by fastjson 2 also in 5.3.
            dialect = Dialect.FASTJSON_2 if database == "config/rdb" else config_files.dialect_of(version_of(name))
            style = Style.COMPACT if compact else Style.BROWSER
            assert config_files.encode_value(decoded.value, shape, dialect, style) == data
            assert isinstance(shape, Bean)
            assert list(decoded.value) == [field for field in shape.fields if field in decoded.value]
            seen[database] += 1
    assert seen.keys() == {database for database, _family in ROCKSDB_VALUES}
    assert seen["kvStore"] == 24


def test_bodies_of_pop_records(store: Unpacker) -> None:
    seen = Counter[str]()
    for name in ("53-broker", "53-rocksdb", "53-rocksdbv2", "54-broker", "54-combine", "54-rocksone"):
        dialect = config_files.dialect_of(version_of(name))
        for message, record in messages(name, store):
            pop_id = ids.decode_pop_id(message["uniqKey"] or "")
            if pop_id is None:
                continue
            decoded = decode_pop_body(pop_id.tag, record.body)
            assert not isinstance(decoded, Flaw)
            value = decoded.value
            assert (value["t"], value["q"], value["c"]) == (pop_id.topic, pop_id.queue_id, pop_id.group)
            assert (value["pt"], value["bn"]) == (pop_id.pop_time, pop_id.broker_name)
            assert encode_pop_body(pop_id.tag, value, dialect) == record.body
            seen[pop_id.tag] += 1
    assert seen["ck"] >= 50
    assert seen["ack"] >= 100


def test_bodies_of_op_records(store: Unpacker) -> None:
    seen = Counter[str]()
    for name in STORES:
        if "broker" not in name:
            continue
        halves = truth(name)["queues"].get(topics.HALF_TOPIC, {}).get("0", {"maxOffset": 0})["maxOffset"]
        for message, record in messages(name, store):
            if message["topic"] == topics.OP_HALF_TOPIC:
                offsets = decode_op_body(record.body)
                assert not isinstance(offsets, Flaw)
                assert offsets
                assert all(offset < halves for offset in offsets)
                assert encode_op_body(offsets, listed=version_of(name) != "4.9") == record.body
                seen[version_of(name)] += 1
    assert seen.keys() == {"4.9", "5.3", "5.4"}


@every_root
def test_control_files(name: str, store: Unpacker) -> None:
    root = store(name)
    seen = Counter[FileKind]()
    for path in root.rglob("*"):
        found = paths.classify(path.relative_to(root).as_posix())
        if not path.is_file():
            continue
        seen[found.kind] += 1
        if found.kind is FileKind.ABORT:
            abort = control_texts.decode_abort(path.read_bytes())
            assert isinstance(abort, control_texts.Abort)
            assert path.read_bytes() == (b"" if abort.pid is None else str(abort.pid).encode())
            assert version_of(name) != "4.9" or abort.pid is None
            assert found.copy is not Copy.MAIN or version_of(name) == "4.9" or abort.pid
        elif found.kind is FileKind.LOCK:
            assert control_texts.check_lock(path.read_bytes()) is None
            assert path.read_bytes() == control_texts.LOCK_CONTENT
        elif found.kind is FileKind.DLEDGER_STATE:
            assert found.name
            state = control_texts.decode_dledger_state(found.name, path.read_bytes())
            assert not isinstance(state, Flaw)
            assert tuple(state) == control_texts.DLEDGER_KEYS[found.name]
            assert control_texts.encode_dledger_state(state) == path.read_bytes()
    assert seen[FileKind.LOCK] == 1


def test_epoch_file(store: Unpacker) -> None:
    root, told = store("53-epoch"), truth("53-epoch")["epoch"]
    main = control_texts.decode_epoch_file((root / "epochFileCheckpoint").read_bytes())
    assert isinstance(main, control_texts.EpochFile)
    assert [[*entry] for entry in main.entries] == [[row["epoch"], row["startOffset"]] for row in told["entries"]]
    for path in (root / "epochFileCheckpoint", root / "epochFileCheckpoint.bak"):
        decoded = control_texts.decode_epoch_file(path.read_bytes())
        assert isinstance(decoded, control_texts.EpochFile)
        assert control_texts.encode_epoch_file(decoded) == path.read_bytes()
        assert control_texts.new_epoch_file(decoded.entries) == decoded
        assert java.crc31(path.read_bytes().split(b"\n", 2)[2]) == decoded.crc


def test_dledger_state(store: Unpacker) -> None:
    data = (store("49-dledger") / "dledger-n0" / "checkpoint").read_bytes()
    assert control_texts.decode_dledger_state("checkpoint", data) == {"committedIndex": 265, "endIndex": 265}
    data = (store("49-dledger") / "dledger-n0" / "currterm").read_bytes()
    assert control_texts.decode_dledger_state("currterm", data) == {"voteLeader": "n0", "currTerm": 0}


def _load(root: Path, name: str) -> dict[str, Any] | Flaw:
    """Load as a broker does: the file; the copy when it is missing, empty or broken; nothing when that is missing."""
    for copy in (Copy.MAIN, Copy.BAK):
        path = root / paths.config_path(name, copy)
        data = path.read_bytes() if path.exists() else b""
        decoded = config_files.decode_config(name, data, Dialect.FASTJSON_1)
        if not isinstance(decoded, Flaw):
            value: dict[str, Any] = decoded.value
            return value
        if copy is Copy.BAK and data:
            return decoded
    return {}


@pytest.mark.parametrize("version", ["4.9.7", "5.3.3"])
def test_what_brokers_loaded_from_broken_files(version: str, writable_store: Unpacker) -> None:
    """The recorded starts on broken configuration files: which text was read, which was refused."""
    folder = f"recovery-config-{version}"
    catalogue = read_catalogue(folder)
    outcomes = {row["mutation"]: row for row in read_lines(f"{folder}/outcomes.jsonl")}
    assert len(catalogue) == len(outcomes) >= 31
    for mutation in catalogue.values():
        root = writable_store(f"{folder}/base-CFG")
        apply_mutation(root, mutation, abort=False)
        outcome = outcomes[mutation.name]
        loaded = {name: _load(root, name) for name in (paths.TOPICS, paths.CONSUMER_OFFSET, paths.SUBSCRIPTION_GROUP)}
        if not outcome["initialize"]:
            assert any(isinstance(value, Flaw) for value in loaded.values()), mutation.name
            continue
        tables = {}
        for name, table in (
            (paths.TOPICS, "topicConfigTable"),
            (paths.CONSUMER_OFFSET, "offsetTable"),
            (paths.SUBSCRIPTION_GROUP, "subscriptionGroupTable"),
        ):
            value = loaded[name]
            assert not isinstance(value, Flaw), mutation.name
            tables[name] = value.get(table, {})
        assert as_told(tables[paths.CONSUMER_OFFSET]) == (outcome["offsetTable"] or {}), mutation.name
        mine = sorted(topic for topic in tables[paths.TOPICS] if topic.startswith("Topic"))
        assert mine == sorted(outcome["user_topics"]), mutation.name
        mine = sorted(group for group in tables[paths.SUBSCRIPTION_GROUP] if group.startswith("group"))
        assert mine == sorted(outcome["user_groups"]), mutation.name
