"""Every shape of the contract has a schema, each schema can fail, and what the commands print meets it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from rmqtool.cli import main
from tests.support.schemas import flaws, validate
from tools.schemas import read_schema, schema_names

# Keys that the contract promises of each shape, written down once more by hand.
PROMISED = {
    "message": "commitLogOffset storeSize magic topic queueId queueOffset flag sysFlag bornTimestamp bornHost"
    " storeTimestamp storeHost reconsumeTimes preparedTransactionOffset bodyCRC offsetMsgId uniqKey tags keys"
    " properties body bodyEncoding bodyCodec bodyLength storedBodyLength",
    "damage": "damage",
    "info": "store layout broker lock abort commitLog topics index checkpoint groups findings",
    "cluster-info": "cluster brokers topics groups",
    "groups": "groups",
    "dump": "file size kind regions",
    "region": "offset length kind label",
    "dump-declared": "file size kind layouts",
    "declared-layout": "layout offset length doc fields",
    "declared-field": "name offset length doc",
    "query": "query kind messages answeredBy searched complete",
    "stat": "by rows total damaged",
    "finding": "code severity file message data",
    "check-summary": "summary",
    "recover": "as mode loads starts minPhyOffset maxPhyOffset files queues messagesLost messagesUnreachable config"
    " logLines",
    "repair-past": "undo plan time steps store undone",
    "repair-undone": "undone files",
    "copied": "to messages bytes queues moved beside skipped lostAndFound",
    "recovered": "mode applied minPhyOffset maxPhyOffset messages files findings notRestored brokerStart",
    "repair": "plan steps applied left",
    "diff": "same onlyA onlyB different rows",
    "produced": "status msgId offsetMsgId topic queueId queueOffset commitLogOffset storeTimestamp",
    "ticked": "service event",
    "ticked-summary": "summary",
    "ready": "ready names broker vip brokerName clusterName store readOnly recovered",
    "served": "event",
    "mirrored": "master from durable masterMax lagBytes bytesPerSecond",
    "mirror-gap": "gap",
    "mirror-event": "event",
    "error": "error",
    "export": "to export rows files bytes sourceBytes damaged",
    "export-manifest": "manifestVersion number writtenBy schemaVersion choices read files damage",
}
# One store of each kind of layout: plain, delayed and transactional, timers, 5.4, multi-path, DLedger, RocksDB, killed.
SHOWN = ("49-broker", "49-multidir", "49-killed-torn", "49-dledger", "53-timer", "53-rocksdb", "54-broker")
# `recover` says of these that it does not know how their brokers start.
UNMODELLED = ("49-dledger", "53-rocksdb")


def printed(capsysbinary, *words):
    main([str(word) for word in words])
    return capsysbinary.readouterr().out.decode()


def test_every_shape_has_a_schema_that_demands_its_keys():
    assert set(schema_names()) == set(PROMISED)
    for name, keys in PROMISED.items():
        schema = read_schema(name)
        Draft202012Validator.check_schema(schema)
        assert schema["required"] == keys.split(), name
        assert schema["$id"] == f"rmqtool:{name}:1"


@pytest.mark.parametrize("name", sorted(PROMISED))
def test_an_empty_object_is_of_no_shape(name):
    assert len(flaws(name, {})) == len(PROMISED[name].split())


def test_a_flaw_is_named_with_its_place():
    region = {"offset": 0, "length": 4, "kind": "x", "label": "x"}
    assert flaws("dump", {"file": "f", "size": 4, "kind": "k", "regions": [region, {**region, "length": -1}]}) == [
        "$.regions[1].length: -1 is less than the minimum of 0"
    ]


@pytest.mark.parametrize("name", SHOWN)
def test_what_the_look_and_judge_commands_print_is_of_their_shape(name, store, capsysbinary):
    root = store(name)
    validate("info", json.loads(printed(capsysbinary, "info", root, "--json")))
    for words in (["--by", "topic,hour"], ["--by", "tag"]):
        validate("stat", json.loads(printed(capsysbinary, "stat", root, *words, "--json")))
    *findings, summary = map(json.loads, printed(capsysbinary, "check", root, "--jsonl").splitlines())
    validate("check-summary", summary)
    for finding in findings:
        validate("finding", finding)
    if name not in UNMODELLED:
        validate("recover", json.loads(printed(capsysbinary, "recover", root, "--json")))


@pytest.mark.parametrize("name", SHOWN)
def test_the_dump_of_every_file_is_of_its_shape(name, store, capsysbinary):
    root: Path = store(name)
    folders: dict[Path, Path] = {}
    for path in sorted(root.rglob("*")):
        if path.is_file() and path.stat().st_size < 1 << 17:
            folders[path.parent.parent if path.name.isdigit() else path] = path
    for path in folders.values():
        validate("dump", json.loads(printed(capsysbinary, "dump", path, "--json")))
        if declared := printed(capsysbinary, "dump", path, "--as-declared", "--json"):
            validate("dump-declared", json.loads(declared))


def test_the_answer_to_a_query_is_of_its_shape(store, capsysbinary):
    root = store("49-broker")
    for words in (["@0"], ["nosuchkey"], ["SCHEDULE_TOPIC_XXXX/2@0", "--history"]):
        validate("query", json.loads(printed(capsysbinary, "query", root, *words, "--json")))


def test_an_error_is_of_its_shape(tmp_path, capsysbinary):
    main(["info", str(tmp_path / "nothing"), "--json"])
    validate("error", json.loads(capsysbinary.readouterr().err))
