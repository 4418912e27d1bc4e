"""``copy``: what the new store holds, what is saved of a damaged one, and that the target is whole or not there."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from rmqtool.cli import main
from rmqtool.errors import Exit
from tests.support.damaged import VERSIONS, Workshop, mutations, outcomes, sample
from tests.support.recovered import unserved, valid_records
from tests.support.schemas import validate
from tests.support.stores import STORES, left_alone, truth, unpack

# A handful of every kind; all of them under ``slow``.
SOME = ("49-lmq", "49-cleaned", "49-multidir", "53-crc", "53-rocksdb")
# Killed: what was recorded of them is what their queues say, behind the log or ahead of it, and a record that is torn.
UNCLEAN = ("49-ghost", "49-killed", "49-killed-torn")
# A segment of which nothing is left, though queues know what was in it.
EMPTY = "A/cl-empty@last"
PIECES = 4
# What a record that is valid may say of itself all the same, and a copy leaves as it is.
SAID = {"CL-HEAD", "CL-PROPS", "CL-TIME", "CL-TOPIC", "BD-INFLATE"}
# Valid by the rule of the recorded count, which looks at each magic by itself; nobody can put a record there.
OVERLAP = "A/recordlen-consistent-shift@last-mid"


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    return Workshop(tmp_path_factory.mktemp("damaged"))


class Asking:
    """Commands, and what they print."""

    def __init__(self, captured: pytest.CaptureFixture[bytes]) -> None:
        self._captured = captured

    def status(self, *words: object) -> int:
        return main([str(word) for word in words])

    def lines(self, *words: object) -> list[dict[str, Any]]:
        self._captured.readouterr()
        main([str(word) for word in words])
        return [json.loads(line) for line in self._captured.readouterr().out.splitlines()]

    def error(self) -> str:
        return self._captured.readouterr().err.decode()

    def copied(self, *words: object) -> dict[str, Any]:
        (shown,) = self.lines("copy", *words, "--json")
        validate("copied", shown)
        return shown

    def findings(self, root: Path) -> list[dict[str, Any]]:
        *found, _ = self.lines("check", root, "--jsonl", "-j", "1", "--quiet")
        return [finding for finding in found if finding["severity"] != "notice"]


@pytest.fixture
def ask(capsysbinary: pytest.CaptureFixture[bytes]) -> Asking:
    return Asking(capsysbinary)


KEPT = ("topic", "queueId", "queueOffset", "flag", "sysFlag", "bornTimestamp", "bornHost", "storeTimestamp")
KEPT += ("storeHost", "reconsumeTimes", "bodyCRC", "properties", "body", "bodyEncoding")


def kept_fields(message: dict[str, Any]) -> list[Any]:
    fields = [message[name] for name in KEPT]
    # The checksum that a record holds of itself covers its place, which is another one.
    fields[KEPT.index("properties")] = {k: v for k, v in message["properties"].items() if k != "__CRC32#"}
    return fields


def check_whole_copy(name: str, tmp_path: Path, ask: Asking) -> None:
    source, target = unpack(name, tmp_path / name), tmp_path / "copy"
    with left_alone(source):
        shown = ask.copied(source, target, "--salvage")
    before, after = (
        [line for line in ask.lines("cat", root, "--jsonl", "-j", "1") if "damage" not in line]
        for root in (source, target)
    )
    assert [kept_fields(line) for line in after] == [kept_fields(line) for line in before]
    assert shown["messages"] == len(before)
    assert {finding["code"] for finding in ask.findings(target)} <= {"BD-INFLATE"}
    if name in UNCLEAN:
        return
    assert len(before) == len(truth(name)["messages"])
    for topic, queues in (truth(name).get("queues") or {}).items():
        for number, queue in queues.items():
            told = ask.lines("info", target, "--json")[0]["topics"].get(topic, {"queues": {}})["queues"].get(number)
            held = any(line["topic"] == topic and str(line["queueId"]) == number for line in after)
            if told is not None and held:
                assert told["maxOffset"] == queue["maxOffset"], (topic, number)


@pytest.mark.parametrize("name", SOME)
def test_a_whole_copy_has_every_message_as_it_was(name: str, tmp_path: Path, ask: Asking) -> None:
    check_whole_copy(name, tmp_path, ask)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in STORES if name not in SOME])
def test_every_store_has_such_a_copy(name: str, tmp_path: Path, ask: Asking) -> None:
    check_whole_copy(name, tmp_path, ask)


def check_salvage(version: str, key: str, workshop: Workshop, ask: Asking) -> None:
    mutation, told = mutations(version)[key], outcomes(version)[key]
    target = workshop.directory / "target"
    lost = workshop.directory / "target.lost-and-found"
    with workshop.damaged(version, mutation, abort=True) as root:
        status = ask.status("copy", root, target, "--salvage", "--quiet")
        expected = told["valid_in_mutated"] - (key == OVERLAP)
        if not expected:
            assert (key, target.exists()) in ((key, False), (key, True))
        if not target.exists():
            assert (key, status, expected) == (key, Exit.REFUSED, 0)
            return
        lines = ask.lines("cat", root, "--jsonl", "-j", "1")
        damages = [line["damage"] for line in lines if "damage" in line and line["damage"]["code"] != "BD-INFLATE"]
        messages = [line for line in lines if "damage" not in line]
        records = valid_records(target)
        assert (key, len(records)) == (key, expected)
        assert unserved(target, records) == []
        bodies = {(m["uniqKey"], m["body"]) for m in messages}
        copied = [line for line in ask.lines("cat", target, "--jsonl", "-j", "1") if "damage" not in line]
        assert {(m["uniqKey"], m["body"]) for m in copied} == bodies
        # What a header says beside its place is kept, also where damage says it.
        assert (key, {f["code"] for f in ask.findings(target)} - SAID) == (key, set())
        assert (key, status) == (key, Exit.SKIPPED if damages else Exit.DONE)
        if damages:
            listed = [json.loads(line) for line in (lost / "list.jsonl").read_text().splitlines()]
            assert [line["damage"] for line in listed] == damages
            for line in listed:
                check_saved(line, root, lost)
    for place in (target, lost):
        remove(place)


def check_saved(line: dict[str, Any], root: Path, lost: Path) -> None:
    damage = line["damage"]
    file = root / damage["file"]
    data = file.read_bytes()[damage["offset"] :][: damage["length"]] if file.is_file() else b""
    assert (b"" if line["saved"] is None else (lost / line["saved"]).read_bytes()) == data
    assert (line["saved"] is None) == (not data)


def remove(place: Path) -> None:
    if place.exists():
        for path in sorted(place.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        place.rmdir()


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_salvaged_of_some_damaged_stores(version: str, workshop: Workshop, ask: Asking) -> None:
    for key in [*sample(version, 1, seed=7), OVERLAP, EMPTY]:
        check_salvage(version, key, workshop, ask)


@pytest.mark.slow
@pytest.mark.parametrize("piece", range(PIECES))
@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_salvaged_of_every_damaged_store(version: str, piece: int, tmp_path: Path, ask: Asking) -> None:
    """The pieces together are every variant; each can be run alone."""
    for key in sorted(mutations(version))[piece::PIECES]:
        check_salvage(version, key, Workshop(tmp_path), ask)


def test_damage_without_salvage_is_refused_and_nothing_is_there(workshop: Workshop, ask: Asking) -> None:
    target = workshop.directory / "none"
    with workshop.damaged("5.3.3", mutations("5.3.3")["A/body-flip@4thlast-mid"], abort=True) as root:
        assert ask.status("copy", root, target) == Exit.REFUSED
        assert "--salvage" in ask.error()
    assert [path.name for path in workshop.directory.iterdir() if "none" in path.name] == []


def test_a_place_that_is_taken_is_refused(tmp_path: Path, ask: Asking) -> None:
    source, target = unpack("53-timer", tmp_path / "source"), tmp_path / "target"
    target.mkdir()
    (target / "mine").write_text("mine")
    assert ask.status("copy", source, target) == Exit.REFUSED
    assert [path.name for path in target.iterdir()] == ["mine"]
    assert ask.status("copy", source, tmp_path / "not" / "there") == Exit.REFUSED


@pytest.mark.parametrize("place", ["inside", "commitlog/inside", "link/inside", "ids"])
def test_nothing_is_put_into_a_source(place: str, tmp_path: Path, ask: Asking) -> None:
    """A broker does not start with a directory of somebody among the files of its log."""
    source = unpack("53-timer", tmp_path / "source")
    (tmp_path / "link").symlink_to(source, target_is_directory=True)
    target = tmp_path / place if place.startswith("link") else source / place
    words = (tmp_path / "target", "--ids", source / "ids.jsonl") if place == "ids" else (target,)
    with left_alone(source):
        assert ask.status("copy", source, *words) == Exit.REFUSED
    assert "is in" in ask.error()
    assert not (tmp_path / "target").exists()


def test_a_purge_of_what_no_store_has_is_said(tmp_path: Path, ask: Asking) -> None:
    source = unpack("53-timer", tmp_path / "source")
    known = next(iter(truth("53-timer")["queues"]))
    assert ask.status("copy", source, tmp_path / "a", "--purge", "Nosuch", "--purge", known) == Exit.DONE
    assert 'no store has a topic "Nosuch"' in ask.error()
    assert ask.status("copy", source, tmp_path / "b", "--purge", known) == Exit.DONE
    assert "no store has a topic" not in ask.error()


def test_owner_and_mode_are_those_of_the_source(tmp_path: Path, ask: Asking) -> None:
    source, target = unpack("53-timer", tmp_path / "source"), tmp_path / "target"
    source.chmod(0o750)
    assert ask.status("copy", source, target) == Exit.DONE
    wanted = source.stat()
    for path in (target, *target.rglob("*")):
        found = path.stat()
        assert (found.st_uid, found.st_gid) == (wanted.st_uid, wanted.st_gid)
        assert stat.S_IMODE(found.st_mode) == (0o750 if path.is_dir() else 0o640), path


def test_what_a_killed_copy_left_is_cleared(tmp_path: Path, ask: Asking) -> None:
    source, target = unpack("53-timer", tmp_path / "source"), tmp_path / "target"
    left = tmp_path / ".target.rmqtool-copy" / "store"
    left.mkdir(parents=True)
    (left / "half").write_text("half")
    assert ask.status("copy", source, target) == Exit.DONE
    assert not (target / "half").exists()
    assert sorted(os.listdir(tmp_path)) == ["source", "target"]
