"""A store in which every name, body and setting is meant to do harm: nothing obeys, nothing leaves its place."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path

import pytest

from rmqtool.cli import main
from rmqtool.errors import Exit
from tests.support.builders import BORN_V4_HOST, properties, queue_unit, record
from tests.support.schemas import validate

ESCAPE, SECOND, TURNED = "\x1b]0;PWNED\x07\x1b[31m", "\x9b31mC1", "\u202etxt.exe"
PAGE = '<script>document.title="PWNED"</script><img src=x onerror=alert(1)>'
SECRETS = ("TOPSECRET1", "TOPSECRET2", "TOPSECRET3")
# Topics, which become directories of tables and names on screens; each with a body and a tag of its kind.
TOPICS = (
    "../../../../../escaped",
    "a/../../b",
    "/tmp/absolute",
    ESCAPE,
    SECOND,
    TURNED,
    PAGE,
    '=HYPERLINK("http://evil","x")',
    "$(touch sh1)`touch sh2`;touch sh3",
    "{0.__class__}%s%n{topic.__class__.__mro__}",
    "..",
    ".",
    "x\0y",
    "a\nb\r\x1b[2J",
    "_damage",
    "_SUCCESS",
    "topic=x/day=1",
)
# What a terminal, or a reader of a text, might obey.
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@pytest.fixture
def evil(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    root, log, units = tmp_path / "home" / "store", b"", {}
    for number, text in enumerate(TOPICS):
        pairs = ("UNIQ_KEY", f"7F0000010B8F000000005C7C4{number:07d}"), ("KEYS", text), ("TAGS", text), ("PGROUP", text)
        made = record(text.encode(), text.encode(), properties(*pairs), physical_offset=len(log))
        units[text] = queue_unit(len(log), len(made), 0)
        log += made
    (root / "commitlog").mkdir(parents=True)
    (root / "commitlog" / f"{0:020}").write_bytes(log.ljust(1 << 16, b"\0"))
    for text in (ESCAPE, SECOND, TURNED):
        queue = root / "consumequeue" / text / "0"
        queue.mkdir(parents=True)
        (queue / f"{0:020}").write_bytes(units[text].ljust(6_000_000, b"\0"))
    (root / "config").mkdir()
    (root / "checkpoint").write_bytes(bytes(4096))
    name = ESCAPE + "<b>"
    table = {name: {"topicName": name, "perm": 6, "readQueueNums": 1, "writeQueueNums": 1}}
    (root / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": table}), encoding="utf-8")
    offsets = '{"offsetTable":{"a\\u001b[31m@g\\u009b31m<script>":{0:1}}}'
    (root / "config" / "consumerOffset.json").write_text(offsets, encoding="utf-8")
    settings = f"brokerName=\x1b[31mEVIL\nbrokerClusterName=<script>\nsecretKey={SECRETS[0]}\n"
    (root / "broker.conf").write_text(settings, encoding="utf-8")
    accounts = f"accounts:\n- accessKey: RocketMQ\n  secretKey: {SECRETS[1]}\n"
    (root / "config" / "plain_acl.yml").write_text(accounts, encoding="utf-8")
    (root / "config" / "acl.json").write_text(json.dumps({"secretKey": SECRETS[2]}), encoding="utf-8")
    return root


LOOKS = (
    "info {s}",
    "info {s} files",
    "info {s} groups",
    "info {s} config",
    "cat {s} -v",
    "cat {s} --csv",
    "query {s} 7F0000010B8F000000005C7C40000003",
    "stat {s}",
    "check {s}",
    "check {s} --deep -v",
    "dump {s}/commitlog/00000000000000000000",
    "dump {s}/config/topics.json",
    "recover {s}",
    "repair {s}",
    "topic {s} list",
    "group {s} list",
    "diff {s} {s}",
)


@pytest.mark.parametrize("line", LOOKS)
def test_no_screen_obeys_it(line: str, evil: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = everything(evil)
    status = main([word.format(s=evil) for word in line.split()])
    told = capsys.readouterr()
    assert status in (Exit.DONE, Exit.NO, Exit.NOT_A_STORE, Exit.SKIPPED), told.err
    # CSV is for programs: it has letters as they are, but no control character; a line end is quoted.
    found = set(OBEYED.findall(told.out + told.err))
    assert found <= ({"\r", "\u202e"} if "--csv" in line else set())
    assert not [secret for secret in SECRETS if secret in told.out + told.err]
    assert everything(evil) == before


WRITES = (
    "export {s} --engine local --to {p}/out --progress never",
    "copy {s} {p}/out --salvage",
    "browse {s} --html {p}/out/page.html",
    "check {s} --report {p}/out/page.html",
    "recover {s} --to {p}/out",
)


@pytest.mark.parametrize("line", WRITES)
def test_what_is_written_stays_where_it_was_asked_for(
    line: str, evil: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if ".html" in line:
        (tmp_path / "out").mkdir()
    before = everything(evil)
    status = main([word.format(s=evil, p=tmp_path) for word in line.split()])
    told = capsys.readouterr()
    assert status in (Exit.DONE, Exit.NO, Exit.SKIPPED), told.err
    assert {path.name for path in tmp_path.iterdir()} <= {"home", "out", "out_manifest", "out_damage"}
    assert not Path("/tmp/absolute").exists()
    assert everything(evil) == before
    for page in (tmp_path / "out").glob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert "<script>document" not in text
        assert "<img src=x" not in text
        assert OBEYED.findall(text) == []


def everything(root: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.lstat().st_size, path.lstat().st_mtime_ns) for path in root.rglob("*")}


@pytest.mark.parametrize("port", [-1, 65536, -(1 << 31)])
def test_a_port_that_no_host_has_fits_the_schema(port: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = bytearray(record(b"body", b"T", b"", born_host=BORN_V4_HOST._replace(port=0)))
    struct.pack_into(">i", made, 52, port)
    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    (tmp_path / "store" / "commitlog" / f"{0:020}").write_bytes(bytes(made).ljust(4096, b"\0"))
    assert main(["cat", str(tmp_path / "store"), "--jsonl"]) in (Exit.DONE, Exit.SKIPPED)
    (line,) = capsys.readouterr().out.splitlines()
    validate("message", json.loads(line))
