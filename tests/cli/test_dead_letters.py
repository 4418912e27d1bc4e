"""``consume --dlq``: the dead letters of a group are shown, and nothing is consumed."""

from __future__ import annotations

import json
from typing import Any

import pytest

import rmqtool
from rmqtool.cli import main
from rmqtool.errors import Exit, NotFound
from tests.conftest import Unpacker
from tests.support.scripted_cluster import played
from tests.support.stores import left_alone

Capture = pytest.CaptureFixture[str]
WORDS = ("consume", "-g", "G_retry", "--dlq")


def run(capsys: Capture, *words: str) -> tuple[int, list[dict[str, Any]], str]:
    capsys.readouterr()
    status = main([*words, "--jsonl"])
    out, err = capsys.readouterr()
    return status, [json.loads(line) for line in out.splitlines()], err


def test_they_are_those_of_the_topic(store: Unpacker, capsys: Capture) -> None:
    root = store("53-broker")
    expected = [dict(one) for one in rmqtool.scan(str(root), topics="%DLQ%G_retry")]
    assert len(expected) == 4
    with left_alone(root):
        status, shown, err = run(capsys, "consume", str(root), "-g", "G_retry", "--dlq")
    assert (status, shown, err) == (Exit.DONE, expected, "")
    assert run(capsys, "consume", str(root), "-g", "G_retry", "--dlq", "-n", "2")[1] == expected[:2]
    assert run(capsys, "consume", str(root), "-g", "G_retry", "--dlq", "--tag", "dead")[1] == expected
    with played(root) as address:
        found = run(capsys, "consume", address, "-g", "G_retry", "--dlq")
    assert (found[0], sorted(one["queueOffset"] for one in found[1])) == (Exit.DONE, [0, 1, 2, 3])


def test_people_are_told_how_to_send_them_again(store: Unpacker, capsys: Capture) -> None:
    root = str(store("53-broker"))
    assert main(["consume", root, "-g", "G_retry", "--dlq"]) == Exit.DONE
    err = " ".join(capsys.readouterr().err.split())
    assert f"4 dead letters of G_retry; to send them again: Next: rmqtool produce {root} --replay -g G_retry" in err


@pytest.mark.parametrize(
    "more",
    ["--commit", "--pop", "--orderly", "--broadcast", "-f", "--exec true", "--members 2", "--from first", "-t T_retry"],
)
def test_what_would_consume_them_is_refused(more: str, store: Unpacker, capsys: Capture) -> None:
    root = store("53-broker")
    with left_alone(root):
        status, shown, err = run(capsys, "consume", str(root), "-g", "G_retry", "--dlq", *more.split())
    assert (status, shown) == (Exit.USAGE, [])
    assert "--dlq only shows dead letters" in json.loads(err)["error"]["message"]


def test_a_group_without_them_is_said(store: Unpacker, capsys: Capture) -> None:
    root = str(store("53-broker"))
    status, shown, err = run(capsys, "consume", root, "-g", "G_ok", "--dlq")
    assert (status, shown) == (Exit.NO, [])
    assert "G_ok has no dead letters: %DLQ%G_ok is empty" in err
    assert run(capsys, "consume", root, "--dlq")[0] == Exit.USAGE


def test_another_error_is_not_taken_for_no_dead_letters(
    store: Unpacker, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster can lack more than a topic: dead letters may be there, and were not seen."""

    def unknown(*_: object, **__: object) -> object:
        raise NotFound("there is no broker b in the cluster")

    monkeypatch.setattr("rmqtool.api.consume.open_group_of", unknown)
    status, _, err = run(capsys, "consume", str(store("53-broker")), "-g", "G_retry", "--dlq")
    assert status == Exit.NO
    assert json.loads(err)["error"]["message"] == "there is no broker b in the cluster"
