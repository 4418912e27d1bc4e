"""``cat`` from the outside: every message of the truth, damage in its place, filters, orders, shapes, statuses."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rmqtool.cli import main
from rmqtool.errors import Exit
from rmqtool.formats.hosts import parse_host
from rmqtool.formats.message_json import FIELDS
from tests.support.builders import blank, properties, record
from tests.support.golden_files import check_golden
from tests.support.schemas import validate
from tests.support.stores import left_alone, truth, varied_stores

CODECS = {0: "zlib", 1: "lz4", 2: "zstd", 3: "zlib"}


def run(capsysbinary, *words):
    status = main(["cat", *map(str, words)])
    out, err = capsysbinary.readouterr()
    return status, out.decode(), err.decode()


def messages_of(out: str) -> list[dict[str, Any]]:
    return [line for line in map(json.loads, out.splitlines()) if "damage" not in line]


def damages_of(out: str) -> list[dict[str, Any]]:
    return [line["damage"] for line in map(json.loads, out.splitlines()) if "damage" in line]


def sound(name):
    return [message for message in truth(name)["messages"] if "recordCheck" not in message]


def places(messages):
    return [message["commitLogOffset"] for message in messages]


def body_of(shown) -> bytes:
    return shown["body"].encode() if shown["bodyEncoding"] == "utf8" else base64.b64decode(shown["body"])


SAME = {*FIELDS} - {"bornHost", "storeHost", "body", "bodyEncoding", "bodyCodec"}


def assert_equal(shown, told) -> None:
    """Every field of the contract, and the bodies by their digests."""
    assert {name: shown[name] for name in SAME} == {name: told[name] for name in SAME}
    for host in ("bornHost", "storeHost"):
        assert parse_host(shown[host]) == parse_host(told[host])
        assert shown[host].startswith("[") == (":" in told[host].rpartition(":")[0])
    compressed = told["sysFlag"] & 1
    assert shown["bodyCodec"] == (CODECS[told["sysFlag"] >> 8 & 7] if compressed else None)
    body = body_of(shown)
    if told["bodySha256"] is None:
        assert (shown["bodyEncoding"], hashlib.sha256(body).hexdigest()) == ("base64", told["storedBodySha256"])
    else:
        assert hashlib.sha256(body).hexdigest() == told["bodySha256"]


@varied_stores
def test_every_field_of_every_message_equals_the_truth(name, store, capsysbinary):
    with left_alone(store(name)):
        status, out, err = run(capsysbinary, store(name), "--jsonl")
    shown = messages_of(out)
    assert places(shown) == places(sound(name))
    for line, told in zip(shown, sound(name), strict=True):
        assert_equal(line, told)
        validate("message", line)
    expected = {"49-killed-torn": "CL-TORN", "49-compressed-batch": "BD-INFLATE"}.get(name)
    assert [damage["code"] for damage in damages_of(out)] == ([expected] if expected else [])
    assert status == (Exit.SKIPPED if expected else Exit.DONE)
    assert ("cut off" in err) == (name in ("49-ghost", "49-recovered"))


def test_what_a_broker_cut_off_is_said(store, capsysbinary):
    status, out, err = run(capsysbinary, store("49-ghost"), "--jsonl")
    assert (status, len(messages_of(out)), "cut off" in err) == (Exit.DONE, len(sound("49-ghost")), True)


@pytest.mark.parametrize("name", ["49-basic", "49-ipv6", "53-compress", "49-killed-torn", "49-compressed-batch"])
def test_json_is_the_lines_as_one_array(name, store, capsysbinary):
    _, lines, _ = run(capsysbinary, store(name), "--jsonl")
    status, array, _ = run(capsysbinary, store(name), "--json")
    assert json.loads(array) == list(map(json.loads, lines.splitlines()))
    assert status == (Exit.SKIPPED if damages_of(lines) else Exit.DONE)


@varied_stores
def test_by_queue(name, store, capsysbinary):
    _, out, _ = run(capsysbinary, store(name), "--jsonl", "--order", "queue")
    shown = messages_of(out)
    key = lambda m: (m["topic"], m["queueId"], m["queueOffset"], m["commitLogOffset"])  # noqa: E731
    expected = sorted(sound(name), key=key)
    assert places(shown) == places(expected)
    for line, told in zip(shown, expected, strict=True):
        assert_equal(line, told)


def test_damage_stands_where_it_was_met(tmp_path, capsysbinary):
    good, wrong = record(b"one"), record(b"x", body_crc=5, physical_offset=len(record(b"one")))
    broken = record(b"no zlib", sys_flag=0x301, physical_offset=len(good + wrong))
    last = record(b"end", physical_offset=len(good + wrong + broken))
    write_log(tmp_path, good + wrong + broken + last + blank(100) + bytes(92))
    status, out, _ = run(capsysbinary, tmp_path, "--jsonl")
    kinds = [line.get("damage", {}).get("code") or line["body"] for line in map(json.loads, out.splitlines())]
    assert kinds == ["one", "CL-CRC", base64.b64encode(b"no zlib").decode(), "BD-INFLATE", "end"]
    first, second = damages_of(out)
    for damage in (first, second):
        validate("damage", {"damage": damage})
    file = "commitlog/00000000000000000000"
    assert (first["file"], first["offset"], first["length"]) == (file, len(good), len(wrong))
    assert (second["file"], second["offset"], second["length"]) == (file, len(good + wrong) + 88, len(b"no zlib"))
    assert status == Exit.SKIPPED


def write_log(root: Path, data: bytes, base: int = 0) -> Path:
    (root / "commitlog").mkdir(parents=True, exist_ok=True)
    (root / "commitlog" / f"{base:020d}").write_bytes(data)
    (root / "checkpoint").write_bytes(bytes(4096))
    return root


def write_messages(root: Path, *parts: dict[str, Any]) -> Path:
    """A log of records with these fields."""
    data = b""
    for number, part in enumerate(parts):
        fields = {"body": b"b%d" % number, "store_timestamp": 1700000000000 + number, **part}
        data += record(physical_offset=len(data), **fields)
    return write_log(root, data + blank(64) + bytes(56))


# --- filters ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words", [["-t", "TopicTest"], ["-t", "Topic*", "-t", "one"], ["-t", "%weird|name_1", "-q", "1"]]
)
def test_topics_and_queues(words, store, capsysbinary):
    import fnmatch

    patterns = [word for flag, word in zip(words[::2], words[1::2], strict=True) if flag == "-t"]
    queue = next((int(word) for flag, word in zip(words[::2], words[1::2], strict=True) if flag == "-q"), None)
    expected = [
        m
        for m in sound("49-basic")
        if any(fnmatch.fnmatchcase(m["topic"], p) for p in patterns) and queue in (None, m["queueId"])
    ]
    _, out, _ = run(capsysbinary, store("49-basic"), "--jsonl", *words)
    assert places(messages_of(out)) == places(expected)
    assert 0 < len(expected) < len(sound("49-basic"))


@pytest.mark.parametrize("command", ["cat", "stat"])
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["-t", "TopicTset"], 'there is no topic "TopicTset". Did you mean TopicTest?'),
        (["-t", "zzz*", "-t", "TopicTest"], "no topic matches zzz*. The topics are "),
    ],
)
def test_a_topic_that_is_misspelt_is_named(command, words, says, store, capsysbinary):
    assert main([command, str(store("49-basic")), "--csv", *words]) == Exit.NO
    err = " ".join(capsysbinary.readouterr().err.decode().split())
    assert says in err
    assert "TopicTest" in err
    assert main([command, str(store("49-basic")), "--csv", "-t", "Topic*"]) == 0
    assert "no topic" not in capsysbinary.readouterr().err.decode()


def test_times_are_half_open(store, capsysbinary):
    times = sorted(message["storeTimestamp"] for message in sound("49-basic"))
    begin, end = times[100], times[300]
    _, out, _ = run(capsysbinary, store("49-basic"), "--jsonl", "-b", begin, "-e", end)
    expected = [m for m in sound("49-basic") if begin <= m["storeTimestamp"] < end]
    assert places(messages_of(out)) == places(expected)
    assert len(expected) >= 199


def test_tags_that_collide_are_told_apart(store, capsysbinary):
    for tag in ("AaAa", "BBBB"):  # one hash
        _, out, _ = run(capsysbinary, store("49-basic"), "--jsonl", "--tag", tag)
        expected = [m for m in sound("49-basic") if m["tags"] == tag]
        assert places(messages_of(out)) == places(expected)
        assert expected


def test_keys(store, capsysbinary):
    _, out, _ = run(capsysbinary, store("49-basic"), "--jsonl", "--key", "shared-key")
    expected = [m for m in sound("49-basic") if "shared-key" in (m["keys"] or "").split(" ")]
    assert places(messages_of(out)) == places(expected)
    assert len(expected) > 32


def test_sql_as_a_living_broker_answered(store, capsysbinary):
    rows = truth("49-ext")["sqlGetMessage"]
    by_place = {message["commitLogOffset"]: message for message in sound("49-ext")}
    compared = 0
    for row in rows:
        scope = ["-t", row["topic"], "-q", row["queueId"], "-o", row["offset"]]
        _, out, _ = run(capsysbinary, store("49-ext"), "--jsonl", *scope, "--where", row["expression"])
        # The broker answers up to the next offset; what is behind it was not asked.
        shown = [m for m in messages_of(out) if m["queueOffset"] < row["nextBeginOffset"]]
        assert places(shown) == row["phyOffsets"]
        assert all(place in by_place for place in row["phyOffsets"])
        compared += len(row["phyOffsets"])
    assert compared > 100


def test_bodies_by_pattern(store, capsysbinary):
    _, out, _ = run(capsysbinary, store("49-basic"), "--jsonl", "--body-re", r"сообщение 97\d\b")
    shown = messages_of(out)
    assert shown
    assert all("сообщение 97" in message["body"] for message in shown)


def test_the_last_and_those_from_an_offset_on(store, capsysbinary):
    everything = sound("49-basic")
    _, out, _ = run(capsysbinary, store("49-basic"), "--jsonl", "-o", "-100")
    assert places(messages_of(out)) == places(everything[-100:])
    queue = [m for m in everything if (m["topic"], m["queueId"]) == ("TopicTest", 2)]
    _, out, _ = run(capsysbinary, store("49-basic"), "--jsonl", "-t", "TopicTest", "-q", 2, "-o", 40)
    assert places(messages_of(out)) == places(m for m in queue if m["queueOffset"] >= 40)
    _, out, _ = run(capsysbinary, store("49-basic"), "--jsonl", "-t", "TopicTest", "-o", "-2", "--order", "queue")
    shown = messages_of(out)
    assert {m["queueId"] for m in shown} == {m["queueId"] for m in everything if m["topic"] == "TopicTest"}
    assert len(shown) == 2 * len({m["queueId"] for m in shown})


def test_what_a_group_has_not_read(store, capsysbinary):
    config = truth("49-broker")["configFiles"]["consumerOffset.json"]["offsetTable"]
    groups = {key.split("@")[1] for key in config}
    compared = 0
    for group in sorted(groups):
        committed = {k.split("@")[0]: v for k, v in config.items() if k.split("@")[1] == group}
        expected = [
            m
            for m in sound("49-broker")
            if m["topic"] in committed and m["queueOffset"] >= committed[m["topic"]].get(str(m["queueId"]), 0)
        ]
        _, out, _ = run(capsysbinary, store("49-broker"), "--jsonl", "-g", group, "--unread")
        assert places(messages_of(out)) == places(expected)
        compared += len(expected)
    assert compared > 0


def test_count_sample_and_limit(store, capsysbinary):
    root = store("49-basic")
    assert run(capsysbinary, root, "--count") == (Exit.DONE, "683\n", "")
    assert json.loads(run(capsysbinary, root, "--count", "--jsonl", "-t", "one")[1]) == {"messages": 105, "damaged": []}
    _, out, _ = run(capsysbinary, root, "--jsonl", "--sample", 10)
    assert len(messages_of(out)) == 10
    _, out, err = run(capsysbinary, root, "--jsonl", "-n", 7)
    assert places(messages_of(out)) == places(sound("49-basic")[:7])
    assert "stopped after 7" in err
    assert run(capsysbinary, root, "--jsonl", "-n", 0)[1] == ""


@pytest.mark.parametrize("words", [["--order", "queue"], ["--sample", "3"], ["-n", "3"], ["--decode", "utf-16"]])
def test_what_a_count_excludes_is_named(words, store, capsysbinary):
    status, _, err = run(capsysbinary, store("53-broker"), "--count", *words)
    option = words[0].replace("-n", "--limit")
    assert (status, err.startswith("rmqtool: --count cannot be combined"), option in err) == (2, True, True)


def test_counting_names_damage_on_stderr(store, capsysbinary):
    status, out, err = run(capsysbinary, store("49-killed-torn"), "--count")
    assert (status, out) == (Exit.SKIPPED, f"{len(sound('49-killed-torn'))}\n")
    assert "CL-TORN" in err


# --- shapes ----------------------------------------------------------------------------------------------------------


def test_csv(store, capsysbinary):
    _, out, _ = run(capsysbinary, store("49-basic"), "--csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [int(row["commitLogOffset"]) for row in rows] == places(sound("49-basic"))
    assert list(rows[0]) == list(FIELDS)
    assert json.loads(rows[2]["properties"]) == sound("49-basic")[2]["properties"]


def test_templates(store, capsysbinary):
    _, out, _ = run(
        capsysbinary, store("49-basic"), "--template", r"{topic}/{queueId}@{queueOffset} {properties.KEYS}\n", "-n", "2"
    )
    assert out == "TopicTest/0@0 order-0\nTopicTest/0@1 shared-key\n"


BODIES = [{"body": b'{"a":[1,2]}'}, {"body": b"\xff\x00"}, {"body": b""}]


@pytest.mark.parametrize(
    ("style", "expected"),
    [
        ("text", ['  {"a":[1,2]}', "  00000000  ff 00"]),
        ("json", ['  {\n    "a": [\n      1,\n      2\n    ]\n  }', "  00000000  ff 00"]),
        ("hex", ["  00000000  7b 22 61 22 3a 5b 31 2c  32 5d 7d", "  00000000  ff 00"]),
        ("base64", ["  eyJhIjpbMSwyXX0=", "  /wA="]),
        ("none", []),
    ],
)
def test_bodies_for_people(style, expected, tmp_path, capsysbinary):
    _, out, _ = run(capsysbinary, write_messages(tmp_path, *BODIES), "--body", style, "--tz", "UTC")
    for text in expected:
        assert f"\n{text}" in out
    assert out.count("\n  id ") == 3
    if style == "none":
        assert len(out.splitlines()) == 6


def test_raw_bodies_are_bytes_and_nothing_else(tmp_path, capsysbinary):
    packed = {"body": zlib.compress(b"packed"), "sys_flag": 0x301}
    root = write_messages(tmp_path, *BODIES, packed)
    assert main(["cat", str(root), "--body", "raw"]) == Exit.DONE
    assert capsysbinary.readouterr().out == b'{"a":[1,2]}\xff\x00packed'


def test_bodies_for_programs(tmp_path, capsysbinary):
    root = write_messages(tmp_path, *BODIES)

    def shown(*words):
        return [
            (m["body"], m["bodyEncoding"], m["bodyLength"]) for m in messages_of(run(capsysbinary, root, *words)[1])
        ]

    assert shown("--jsonl") == [('{"a":[1,2]}', "utf8", 11), ("/wA=", "base64", 2), ("", "utf8", 0)]
    assert shown("--jsonl", "--body", "base64")[0] == ("eyJhIjpbMSwyXX0=", "base64", 11)
    assert shown("--jsonl", "--body", "none") == [(None, "none", 11), (None, "none", 2), (None, "none", 0)]
    out = run(capsysbinary, root, "--body", "hex", "--template", r"{body}\n")[1]
    assert out == "7b2261223a5b312c325d7d\nff00\n\n"


DECODER = """
import base64, sys
for line in sys.stdin:
    body = base64.b64decode(line)
    print("ERROR no" if body[:1] == b"b" else body.hex().upper(), flush=True)
"""


def test_a_program_decodes_bodies(tmp_path, capsysbinary):
    import sys

    program = tmp_path / "decode.py"
    program.write_text(DECODER)
    root = write_messages(tmp_path / "store", {"body": b"\x01\x02"}, {"body": b"bad"}, {"body": b"x"})
    words = ["--decode", f"cmd:{sys.executable} {program}"]
    _, out, _ = run(capsysbinary, root, "--jsonl", *words)
    assert [m["body"] for m in messages_of(out)] == ["0102", "bad", "78"]
    _, out, _ = run(capsysbinary, root, "--template", r"{body}\n", *words)
    assert out == "0102\nbad\n78\n"


@pytest.mark.parametrize(
    ("decoder", "says"), [("cat", "cmd:"), ("cmd:/nowhere/at/all", "cannot be run"), ("cmd:true", "ended")]
)
def test_a_program_that_does_not_work(decoder, says, tmp_path, capsysbinary):
    status, _, err = run(capsysbinary, write_messages(tmp_path, {}), "--decode", decoder)
    assert status == Exit.USAGE
    assert says in err


# --- other sources ---------------------------------------------------------------------------------------------------


def test_one_queue_by_its_directory(store, capsysbinary):
    root = store("49-basic")
    _, out, _ = run(capsysbinary, root / "consumequeue" / "%weird|name_1" / "1", "--jsonl")
    expected = [m for m in sound("49-basic") if (m["topic"], m["queueId"]) == ("%weird|name_1", 1)]
    assert places(messages_of(out)) == places(expected)


def test_one_file_of_the_log(store, capsysbinary):
    _, out, _ = run(capsysbinary, store("49-basic") / "commitlog" / f"{65536:020d}", "--jsonl")
    assert places(messages_of(out)) == [p for p in places(sound("49-basic")) if 65536 <= p < 131072]


def test_the_log_of_a_compacted_queue(store, capsysbinary):
    root = store("53-compaction")
    compaction = truth("53-compaction")["compaction"]
    files = {name: told["messages"] for name, told in compaction.items() if "compactionLog" in name}
    compared = 0
    for name, told in files.items():
        status, out, _ = run(
            capsysbinary, root / name if (root / name).exists() else root / "compaction" / name, "--jsonl"
        )
        assert status == Exit.DONE
        assert [m["commitLogOffset"] for m in messages_of(out)] == [m["commitLogOffset"] for m in told]
        compared += len(told)
    assert compared > 100


def test_dledger(store, capsysbinary):
    (directory,) = store("49-dledger").glob("dledger-*/data")
    _, out, _ = run(capsysbinary, directory, "--jsonl")
    assert places(messages_of(out)) == places(sound("49-dledger"))


def test_carving(store, tmp_path, capsysbinary):
    data = b"".join(path.read_bytes() for path in sorted((store("49-basic") / "commitlog").iterdir()))
    blob = tmp_path / "blob"
    blob.write_bytes(b"anything" * 9 + data[70_000:])
    status, out, err = run(capsysbinary, "--carve", blob, "--jsonl")
    assert places(messages_of(out)) == [p for p in places(sound("49-basic")) if p >= 70_000]
    assert status == Exit.DONE
    assert "bytes are records" in err
    assert run(capsysbinary, "--carve", blob, "--count")[1] == f"{len(messages_of(out))}\n"


# --- statuses and words ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (["{root}", "-t", "NoSuchTopic"], Exit.NO, 'there is no topic "NoSuchTopic"'),
        (["{root}", "-g", "G"], Exit.USAGE, "--unread"),
        (["{root}", "--unread"], Exit.USAGE, "-g"),
        (["{root}", "-g", "NoSuchGroup", "--unread"], Exit.NO, "has no committed offset"),
        (["{root}", "-f", "--order", "queue"], Exit.USAGE, "-f"),
        (["{root}", "--count", "-n", "3"], Exit.USAGE, "--count"),
        (["{root}", "--carve"], Exit.USAGE, "is not a file"),
        (["{root}", "--jsonl", "--body", "hex"], Exit.USAGE, "base64"),
        (["{root}", "--csv", "--body", "raw"], Exit.USAGE, "raw"),
        (["{root}", "--body-re", "("], Exit.USAGE, "regular expression"),
        (["{root}", "--where", "a ="], Exit.USAGE, "a =\n            ^"),
        (["{root}", "--where", "a = 1 b = 2"], Exit.USAGE, "complete before"),
        (["{root}", "--tag", "||"], Exit.USAGE, "a tag is expected"),
        (["{root}", "--order", "size"], Exit.USAGE, "order"),
        (["{root}", "-b", "never"], Exit.USAGE, "not a time"),
        (["/nowhere/at/all"], Exit.NOT_A_STORE, "nowhere"),
        (["{root}/checkpoint"], Exit.NOT_A_STORE, "--carve"),
    ],
)
def test_statuses(words, status, says, store, capsysbinary):
    found, out, err = run(capsysbinary, *(word.format(root=store("49-basic")) for word in words))
    assert (found, out) == (status, "")
    assert says in err


def test_an_empty_log_beside_queues(writable_store, capsysbinary):
    import shutil

    root = writable_store("49-basic")
    shutil.rmtree(root / "commitlog")
    status, out, _ = run(capsysbinary, root, "--jsonl")
    assert status == Exit.SKIPPED
    assert [(damage["code"], damage["file"]) for damage in damages_of(out)] == [("ST-MOUNT", "commitlog")]
    assert "is its volume mounted" in out


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize(
    ("screen", "name", "words"),
    [
        ("cat-basic", "49-basic", ["-n", "4", "-t", "%weird*", "-t", "one"]),
        ("cat-damage", "49-killed-torn", ["-o", "-2"]),
        ("cat-delay", "53-broker", ["-t", "rmq_sys_wheel_timer", "-n", "2", "--body", "json"]),
        ("cat-badzip", "49-compressed-batch", ["--key", "badzip", "--body", "hex"]),
    ],
)
def test_screens(screen, name, words, width, store, capsysbinary, monkeypatch):
    from rmqtool.commands import options

    look = options.Show.look
    monkeypatch.setattr(options.Show, "look", lambda self: replace(look(self), width=width))
    _, out, _ = run(capsysbinary, store(name), *words, "--tz", "UTC")
    check_golden(f"look/{screen}-{width}.txt", out)


def test_a_pipe_gets_the_same_content_as_a_screen(store, capsysbinary, monkeypatch):
    from rmqtool.commands import options

    _, piped, _ = run(capsysbinary, store("49-basic"), "-n", "50", "--tz", "UTC")
    look = options.Show.look
    monkeypatch.setattr(options.Show, "look", lambda self: replace(look(self), width=60))
    _, shown, _ = run(capsysbinary, store("49-basic"), "-n", "50", "--tz", "UTC")
    assert piped.split() == shown.split()


# --- hostile content -------------------------------------------------------------------------------------------------

EVIL = "\x1b]0;owned\x07\x9b31m\u202e"


def test_a_terminal_is_not_commanded(tmp_path, monkeypatch):
    import os
    import pty
    import subprocess
    import sys

    text = properties(("KEYS", EVIL), ("TAGS", EVIL), ("color", EVIL))
    root = write_messages(tmp_path, {"body": EVIL.encode(), "topic": b"T\x1b[2J", "property_text": text})
    for words in ([], ["--jsonl"], ["--template", "{topic}{keys}{body}"], ["--csv"]):
        main_end, tty = pty.openpty()
        subprocess.run(
            [sys.executable, "-m", "rmqtool", "cat", root, "--color", "never", *words], stdout=tty, check=True
        )
        os.close(tty)
        shown = os.read(main_end, 1 << 16).decode()
        os.close(main_end)
        assert "owned" in shown
        assert not set(shown) & {"\x1b", "\x07", "\x9b", "\u202e"}
    main_end, tty = pty.openpty()
    words = [sys.executable, "-m", "rmqtool", "cat", root, "--body", "raw"]
    refused = subprocess.run(words, stdout=tty, stderr=subprocess.PIPE, check=False)
    assert (refused.returncode, b"no raw bodies" in refused.stderr) == (Exit.USAGE, True)
    os.close(tty)
    with pytest.raises(OSError, match="Input/output error"):  # nothing was written, and the other end is closed
        os.read(main_end, 1)
    os.close(main_end)


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t"])
def test_a_spreadsheet_computes_nothing(start, tmp_path, capsysbinary):
    formula = f"{start}1+1"
    root = write_messages(tmp_path, {"body": formula.encode(), "property_text": properties(("KEYS", formula))})
    (row,) = csv.DictReader(io.StringIO(run(capsysbinary, root, "--csv")[1]))
    assert (row["body"], row["keys"]) == ("'" + formula, "'" + formula)


def test_a_bomb_is_stopped_at_a_cap(tmp_path, capsysbinary):
    packer = zlib.compressobj(9)
    bomb = b"".join(packer.compress(bytes(1 << 20)) for _ in range(200)) + packer.flush()
    root = write_messages(tmp_path, {"body": bomb, "sys_flag": 0x301}, {"body": b"next"})
    status, out, _ = run(capsysbinary, root, "--jsonl")
    assert status == Exit.SKIPPED
    first, second = messages_of(out)
    assert (first["bodyLength"], first["storedBodyLength"], second["body"]) == (None, len(bomb), "next")
    assert [damage["code"] for damage in damages_of(out)] == ["BD-INFLATE"]
    assert "limit" in damages_of(out)[0]["message"]


@pytest.mark.parametrize("event", ["deleted", "cut"])
def test_a_segment_that_goes_while_it_is_read_is_a_line(event, writable_store, capsysbinary, monkeypatch):
    from rmqtool.log import ranges

    root = writable_store("49-basic")
    victim = root / "commitlog" / f"{131072:020d}"
    read_first_time = ranges.read_first_time

    def then_it_goes(file):
        found = read_first_time(file)
        if file.base_offset == 458752:  # the last one: all were looked at
            victim.unlink() if event == "deleted" else victim.write_bytes(victim.read_bytes()[:30_000])
        return found

    monkeypatch.setattr(ranges, "read_first_time", then_it_goes)
    status, out, _ = run(capsysbinary, root, "--jsonl")
    assert status == Exit.SKIPPED
    assert {damage["file"] for damage in damages_of(out)} == {f"commitlog/{131072:020d}"}
    lost = [p for p in places(sound("49-basic")) if 131072 <= p < 196608]
    kept = [p for p in places(sound("49-basic")) if p not in lost]
    assert [p for p in places(messages_of(out)) if p not in lost] == kept


def test_a_file_that_may_not_be_read_stops_the_command(writable_store, capsysbinary, monkeypatch):
    from rmqtool.files import posix

    root = writable_store("49-basic")
    pread = posix.os.pread

    def denied(descriptor, length, offset):
        if length > 5000:
            raise PermissionError(13, "Permission denied")
        return pread(descriptor, length, offset)

    monkeypatch.setattr(posix.os, "pread", denied)
    status, _, err = run(capsysbinary, root, "--jsonl")
    assert status == Exit.NOT_A_STORE
    assert "Permission denied" in err


@pytest.mark.parametrize("words", [[], ["-t", "T_normal"]], ids=["all", "one topic"])
def test_count_looks_at_no_body(words, writable_store, capsysbinary):
    root = writable_store("53-broker")
    clean = run(capsysbinary, root, "--count", *words)
    victim = next(m for m in truth("53-broker")["messages"] if m["topic"] == "T_normal" and m["bodyLength"] > 4)
    segment = next(
        path
        for path in sorted((root / "commitlog").iterdir(), reverse=True)
        if int(path.name) <= victim["commitLogOffset"]
    )
    with segment.open("r+b") as file:
        file.seek(victim["commitLogOffset"] - int(segment.name) + 88)
        byte = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([byte ^ 1]))
    assert run(capsysbinary, root, *words, "--jsonl")[0] == Exit.SKIPPED
    assert run(capsysbinary, root, "--count", *words) == clean
    assert clean[0] == Exit.DONE
