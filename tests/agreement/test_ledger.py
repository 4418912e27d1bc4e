"""The agreement fails when a value differs and when less is compared; it never lowers a count."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.agreement.__main__ import main, run
from tests.agreement.ledger import (
    COUNTS,
    REGISTRY,
    Comparison,
    Count,
    Subject,
    _compare_store,
    drops,
    load_comparisons,
    raised,
    read_counts,
)
from tests.support.stores import STORES

STORE = "53-epoch"


def queue_ids(ours: Callable[[int], object], rows: int = 71) -> Comparison:
    """A comparison of the queue id of the first messages of a store."""

    def compare(subject: Subject) -> None:
        for message in subject.truth["messages"][:rows]:
            where = f"message at {message['commitLogOffset']}"
            subject.compare(where, {"queueId": ours(message["queueId"])}, {"queueId": message["queueId"]})

    return Comparison("queue ids", "messages", compare)


def same(value: int) -> object:
    return value


@pytest.fixture
def counts(tmp_path: Path) -> Path:
    path = tmp_path / "counts.json"
    assert run([queue_ids(same)], [STORE], path, update=True) == 0
    assert read_counts(path) == {"queue ids": {STORE: Count(71, 71)}}
    return path


def test_agreement(counts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert run([queue_ids(same)], [STORE], counts, update=False) == 0
    shown = capsys.readouterr().out
    assert "0 differences, 0 counts dropped." in shown
    assert [word.strip() for word in shown.splitlines()[2].strip("|").split("|")] == [STORE, "71", "0", "0", "71", "0"]


def test_difference(counts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = counts.read_text()
    asked = [queue_ids(lambda value: -1 if value == 3 else value)]
    assert run(asked, [STORE, "53-lmq"], counts, update=True) == 1
    assert counts.read_text() == before
    shown = capsys.readouterr().out
    assert "53-epoch, message at 1570, queueId: -1 instead of 3" in shown


def test_fewer_rows(counts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = counts.read_text()
    assert run([queue_ids(same, rows=70)], [STORE], counts, update=True) == 1
    assert "queue ids, 53-epoch: 70 rows and 70 values instead of 71 rows and 71 values" in capsys.readouterr().out
    assert counts.read_text() == before


def test_comparison_that_vanished(counts: Path) -> None:
    assert run([queue_ids(same)], [], counts, update=False) == 1


def test_more_rows_are_committed_on_request_only(counts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stores = [STORE, "53-lmq"]
    assert run([queue_ids(same)], stores, counts, update=False) == 0
    assert "run with --update" in capsys.readouterr().out
    assert set(read_counts(counts)["queue ids"]) == {STORE}
    assert run([queue_ids(same)], stores, counts, update=True) == 0
    assert read_counts(counts)["queue ids"] == {STORE: Count(71, 71), "53-lmq": Count(60, 60)}


def test_name_that_only_one_side_has_is_a_difference(tmp_path: Path) -> None:
    subject = Subject(STORE, tmp_path)
    subject.compare("here", {"a": 1, "b": None}, {"a": 1, "c": None})
    assert subject.differences == [
        "53-epoch, here, b: None instead of nothing",
        "53-epoch, here, c: nothing instead of None",
    ]
    assert subject.count == Count(1, 3)


def test_drop_of_values_alone_is_seen() -> None:
    was, now = {"t": {"s": Count(5, 50)}}, {"t": {"s": Count(6, 49)}}
    assert drops(was, now) == ["t, s: 6 rows and 49 values instead of 5 rows and 50 values"]
    assert raised(was, now) == {"t": {"s": Count(6, 50)}}
    assert drops(now, raised(was, now)) == []


def test_committed_counts_name_registered_comparisons_and_real_stores() -> None:
    loaded = json.loads(COUNTS.read_text())
    registered = {comparison.title: set(comparison.subjects or STORES) for comparison in load_comparisons()}
    assert loaded.keys() == registered.keys()
    assert [title for title, stores in loaded.items() if not set(stores) <= registered[title]] == []


def test_what_is_left_out_has_not_dropped(counts: Path) -> None:
    assert run([], [], counts, update=False, left_out={"queue ids"}) == 0


def test_value_that_is_not_determined_is_neither_equal_nor_a_difference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def compare(subject: Subject) -> None:
        subject.compare("first", {"a": 1, "b": 1}, {"a": 2, "b": 1}, {"a": "a race", "b": "a race"})
        subject.compare("second", {"a": 1}, {"a": 1})

    asked = [Comparison("a thing", "rows", compare, (STORE,))]
    assert run(asked, [], tmp_path / "counts.json", update=True) == 0
    shown = capsys.readouterr().out
    assert "| a thing       | 2/3, 1 undetermined" in shown
    assert f"{STORE}, first, a: a race" in shown


def test_unknown_word() -> None:
    assert main(["--lower"]) == 2


def test_a_process_can_send_what_any_comparison_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Comparisons may be functions within functions: only their titles travel."""
    monkeypatch.setitem(REGISTRY, "queue ids", queue_ids(lambda value: value + 1, rows=5))
    [(title, store, *found)] = pickle.loads(pickle.dumps(_compare_store(STORE, ["queue ids"], tmp_path)))
    count, differences, undetermined = found
    assert (title, store, count, len(differences), undetermined) == ("queue ids", STORE, Count(5, 5), 5, [])
