"""Copies over the wire: topics of a server into a new store, and a store into a server."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import rmqtool
from rmqtool.cli import main
from rmqtool.client.connection import AnswerLost
from rmqtool.client.producer import Producer, SendUnknown
from rmqtool.errors import Exit
from tests.support.stores import unpack

KINDS = ("topic", "queueId", "queueOffset", "uniqKey", "tags", "keys", "body", "flag", "bornTimestamp")


def sent(place: str | Path, **which: Any) -> list[dict[str, Any]]:
    found = [dict(one) for one in rmqtool.scan(str(place), order="queue", **which)]
    return [{name: one[name] for name in KINDS} for one in found if not str(one["topic"]).startswith("rmq_sys")]


SIZES = {"mappedFileSizeCommitLog": "1048576", "mappedFileSizeConsumeQueue": "20000", "maxHashSlotNum": "500"}


@contextmanager
def serving(root: Path) -> Iterator[str]:
    """Serve a new store with small files."""
    rmqtool.init(root, conf={**SIZES, "maxIndexNum": "2000"})
    with rmqtool.serve(root) as served:
        yield f"rocketmq://{served.names}"


@pytest.fixture
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(tmp_path_factory.mktemp("first") / "store") as found:
        yield found


@pytest.fixture
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(tmp_path_factory.mktemp("other") / "store") as found:
        yield found


def fill(address: str, topic: str = "Orders", count: int = 60) -> None:
    with rmqtool.connect(address) as cluster:
        cluster.topic("create", topic, queues=4)
        with cluster.producer() as producer:
            for number in range(count):
                producer.send(topic, f"é{number}" * (1 + number % 7), keys=f"k{number}", properties={"n": str(number)})
            producer.send_batch(topic, [f"b{number}" for number in range(20)], tags="batch")
            producer.send(topic, "x" * 9000, tags="large")


def test_a_topic_becomes_a_store_and_the_store_a_topic(
    address: str, other: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    fill(address)
    fill(address, "Other", 3)
    with rmqtool.connect(address) as cluster:
        assert len(list(cluster.consume("Orders", "G", start="first", limit=30))) == 30
    assert main(["copy", address, "copied", "-t", "Orders"]) == Exit.DONE
    assert "81 messages" in capsys.readouterr().out
    assert main(["check", "copied"]) == Exit.DONE, capsys.readouterr().out
    assert sent("copied") == sent(address, topics="Orders")
    assert {one["topic"] for one in sent("copied")} == {"Orders"}
    places = rmqtool.groups("copied")["G"]["topics"]["Orders"]
    assert sum(place["committed"] for place in places.values()) == 30
    capsys.readouterr()
    assert main(["copy", "copied", other, "-v"]) == Exit.DONE
    said = capsys.readouterr()
    assert "the same command continues it from" in said.err
    assert "topic Orders was created" in said.err
    assert f"Next: rmqtool info {other}" in said.out
    assert sent(other, topics="Orders") == sent("copied")
    assert main(["copy", other, "back"]) == Exit.DONE
    assert main(["diff", "copied", "back", "--by", "message"]) == Exit.DONE, capsys.readouterr().out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["back", "copied"]


def test_progress_is_shown(
    address: str, other: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(address)
    monkeypatch.chdir(tmp_path)
    assert main(["copy", address, "copied", "-t", "Orders", "--progress", "always"]) == 0
    assert re.search(r"copying .*m81/81\S* messages", capsys.readouterr().err, re.DOTALL)
    assert main(["copy", "copied", other, "--progress", "always"]) == 0
    assert re.search(r"reading .*m[1-9]", capsys.readouterr().err, re.DOTALL)


def test_a_copy_that_was_interrupted_continues_with_each_message_once(
    address: str, other: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The end comes after a message whose answer is lost: it is there, and is not sent again."""
    monkeypatch.chdir(tmp_path)
    fill(address)
    assert main(["copy", address, "copied", "-t", "Orders"]) == Exit.DONE
    real, left = Producer.send, [25]

    async def dying(self: Producer, message: Any) -> Any:
        found = await real(self, message)
        left[0] -= 1
        if not left[0]:
            raise ZeroDivisionError
        return found

    # Messages of one millisecond would go together.
    monkeypatch.setattr("rmqtool.client.replay._BATCH", 1)
    monkeypatch.setattr("rmqtool.client.replay.Producer.send", dying)
    with pytest.raises(ZeroDivisionError):
        rmqtool.copy("copied", other)
    monkeypatch.setattr("rmqtool.client.replay.Producer.send", real)
    (file,) = tmp_path.glob("rmqtool-copy-*.json")
    assert json.loads(file.read_text())["until"] > 0
    before = len(sent(other, topics="Orders"))
    assert 25 <= before <= 81
    assert rmqtool.copy("copied", other)["messages"] == 81
    assert sent(other, topics="Orders") == sent("copied")
    assert not file.exists()


def test_messages_of_a_tier_are_left_out_with_a_note(
    other: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their offsets begin again in each queue, so a copy that goes on could not tell which are sent."""
    monkeypatch.chdir(tmp_path)
    root = unpack("tiers/53-tier", tmp_path / "unpacked")
    assert main(["copy", str(root), other, "-t", "Orders"]) == Exit.DONE
    said = capsys.readouterr()
    assert "older messages in " in said.err
    assert f"not sent: to send them too, first rmqtool copy {root} NEW" in " ".join(said.err.split())
    keys = [one["uniqKey"] for one in sent(other, topics="Orders")]
    places = [int(one["commitLogOffset"]) for one in rmqtool.scan(str(root), topics="Orders") if "damage" not in one]
    assert len(places) > 300
    assert len(keys) == len(set(keys)) == len([place for place in places if place >= 196608]) > 0


def test_an_answer_that_is_lost_on_the_way_doubles_nothing(
    address: str, other: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    fill(address)
    rmqtool.copy(address, "copied", topics="Orders")
    real, calls = Producer.send, [0]

    async def losing(self: Producer, message: Any) -> Any:
        calls[0] += 1
        found = await real(self, message)
        if calls[0] % 7 == 0:
            raise SendUnknown("no answer", found.msg_id)
        if calls[0] % 11 == 0:
            raise AnswerLost("no answer")
        return found

    # Messages of one millisecond would go together.
    monkeypatch.setattr("rmqtool.client.replay._BATCH", 1)
    monkeypatch.setattr("rmqtool.client.replay.Producer.send", losing)
    monkeypatch.setattr("rmqtool.client.replay._PAUSE", 0.01)
    rmqtool.copy("copied", other)
    assert calls[0] > 20
    assert sent(other, topics="Orders") == sent("copied")


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("ADDRESS", "full"), Exit.REFUSED, "already exists"),
        (("ADDRESS", "new", "--salvage"), Exit.USAGE, "--salvage needs the files of a store"),
        (("ADDRESS", "new", "-t", "Nope"), Exit.NO, "no topic of the cluster matches Nope"),
        (("rocketmq://127.0.0.1:1", "new"), Exit.REMOTE, "the name server does not answer"),
        (("STORE", "rocketmq://127.0.0.1:1"), Exit.REMOTE, "the name server does not answer"),
        (("STORE", "ADDRESS", "--renumber"), Exit.USAGE, "--renumber has no effect on a copy into a cluster"),
        (("STORE", "STORE", "ADDRESS"), Exit.USAGE, "one store is copied into it"),
        (("ADDRESS", "ADDRESS"), Exit.USAGE, "both places are clusters"),
        (("STORE", "new", "--tls"), Exit.USAGE, "--tls"),
    ],
)
def test_what_cannot_be_copied_is_a_sentence(
    address: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    status: Exit,
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    store = unpack("53-broker", tmp_path / "source") if "STORE" in words else Path("none")
    before = sorted(tmp_path.iterdir())
    known = {"ADDRESS": address, "STORE": str(store)}
    assert main(["copy", *(known.get(word, word) for word in words)]) == status
    assert said in capsys.readouterr().err
    assert sorted(tmp_path.iterdir()) == before
