"""The library: what has no effect is refused, and what people naturally write is understood."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import rmqtool
from rmqtool.errors import UsageError

ORDERS = [{"topic": "Orders", "body": f"order {number}", "tags": "paid", "keys": f"k{number}"} for number in range(3)]
OTHERS = [{"topic": "Others", "body": b"\xff\x00"}]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("library") / "store"
    rmqtool.init(root, conf={"mappedFileSizeCommitLog": "65536"})
    rmqtool.put(root, ORDERS + OTHERS, create=True)
    return root


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    rmqtool.init(tmp_path / "store", conf={"mappedFileSizeCommitLog": "65536"})
    return tmp_path / "store"


def _bytes(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


CALLS: dict[str, Callable[..., Any]] = {
    "scan": rmqtool.scan,
    "batches": rmqtool.batches,
    "stat": rmqtool.stat,
    "query": lambda store, **which: rmqtool.query(store, "k1", **which),
    "export": lambda store, **which: rmqtool.export(store, store.parent / "lake", **which),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize(
    ("given", "meant"),
    [("topic", "topics"), ("since", "begin"), ("until", "end"), ("queue_id", "queue"), ("beginn", "begin")],
)
def test_an_unknown_keyword_is_an_error_that_names_the_right_one(
    name: str, given: str, meant: str, filled: Path
) -> None:
    # At the call: nobody need take a first message to be told.
    with pytest.raises(TypeError, match=rf"{name}\(\) got an unexpected keyword argument '{given}'.*'{meant}'"):
        CALLS[name](filled, **{given: "x"})


@pytest.mark.parametrize("name", CALLS)
def test_a_keyword_that_nothing_resembles_is_answered_with_the_list(name: str, filled: Path) -> None:
    with pytest.raises(TypeError, match="'follow'; it takes topics, queue, begin, end"):
        CALLS[name](filled, follow=True)


@pytest.mark.parametrize("name", ["query", "export"])
@pytest.mark.parametrize("given", ["tags", "key", "where"])
def test_a_keyword_of_other_functions_without_effect_here_is_refused(name: str, given: str, filled: Path) -> None:
    with pytest.raises(TypeError, match=f"{name}.. got an unexpected keyword argument '{given}'"):
        CALLS[name](filled, **{given: "x"})


@pytest.mark.parametrize("name", ["open", "info", "check", "diff", "recover", "dump", "init", "put"])
def test_the_other_functions_refuse_unknown_keywords_too(name: str, filled: Path) -> None:
    arguments: dict[str, tuple[Any, ...]] = {"diff": (filled, filled), "put": (filled, []), "dump": (filled,)}
    with pytest.raises(TypeError, match="unexpected keyword argument 'topic'"):
        getattr(rmqtool, name)(*arguments.get(name, (filled,)), topic="Orders")


def test_the_named_keywords_choose(filled: Path) -> None:
    assert len(list(rmqtool.scan(filled))) == 4
    assert [one["body"] for one in rmqtool.scan(filled, topics="Orders")] == ["order 0", "order 1", "order 2"]
    assert [one["keys"] for one in rmqtool.scan(filled, key="k1")] == ["k1"]


def test_bodies_are_texts_or_bytes(filled: Path, empty: Path) -> None:
    (other,) = rmqtool.scan(filled, topics="Others")
    assert (other["bodyEncoding"], other["body"], other["bodyLength"]) == ("base64", "/wA=", 2)
    rmqtool.put(empty, [{"topic": "T", "body": body} for body in (bytearray(b"a"), memoryview(b"b"), "c")], create=True)
    assert [one["body"] for one in rmqtool.scan(empty)] == ["a", "b", "c"]
    with pytest.raises(UsageError, match='message 1: "body" must be a string'):
        rmqtool.put(empty, {"topic": "T", "body": b"x", "bodyEncoding": "base64"})


def test_a_single_message_and_an_open_store(empty: Path) -> None:
    (alone,) = rmqtool.put(empty, ORDERS[0], create=True)
    assert (alone["status"], alone["topic"], alone["queueOffset"]) == ("PUT_OK", "Orders", 0)
    with rmqtool.open(empty) as store:
        rmqtool.put(store, iter(OTHERS), create=True)
    assert len(list(rmqtool.scan(empty))) == 2


def test_a_topic_is_made_only_when_asked_for(empty: Path) -> None:
    with pytest.raises(rmqtool.RmqtoolError, match="there is no topic Orders"):
        rmqtool.put(empty, ORDERS)
    assert list(rmqtool.scan(empty)) == []
    rmqtool.put(empty, ORDERS, create=True)
    assert len(rmqtool.put(empty, ORDERS)) == 3


def test_a_line_of_cat_is_a_message(filled: Path, empty: Path) -> None:
    rmqtool.put(empty, rmqtool.scan(filled), create=True)
    assert [one["body"] for one in rmqtool.scan(empty)] == [one["body"] for one in rmqtool.scan(filled)]


@pytest.mark.parametrize(
    ("message", "said", "hint"),
    [
        ({"topic": "T", "body": "x", "tag": "a"}, 'message 2 has an unknown member "tag"', "did you mean 'tags'?"),
        ({"topic": "T", "body": "x", "key": "a"}, 'message 2 has an unknown member "key"', "did you mean 'keys'?"),
        ({"topic": "T", "body": "x", "delay": 3}, '"delay"', "did you mean 'delayLevel'?"),
        ({"topic": "T", "body": "x", "queue": 3}, '"queue"', "did you mean 'queueId'?"),
        ({"topic": "T", "body": "x", "colour": 3}, '"colour"', "it takes topic, body, bodyEncoding, queueId, flag"),
        ({"topic": "T"}, 'message 2 has no "body"', "a text or bytes"),
        ({"topic": "T", "body": None}, 'message 2 has no "body"', "a text or bytes"),
        ({"body": "x"}, 'message 2: "topic" is missing', ""),
        ({"topic": "T", "body": 7}, 'message 2: "body" must be a string', ""),
        ({"topic": "T", "body": "x", "queueId": "1"}, 'message 2: "queueId" and "flag"', ""),
    ],
)
def test_what_is_no_message_is_refused_before_anything_is_stored(
    message: dict[str, Any], said: str, hint: str, empty: Path
) -> None:
    before = _bytes(empty)
    with pytest.raises(UsageError) as caught:
        rmqtool.put(empty, [ORDERS[0], message])
    assert said in caught.value.message
    assert hint in (caught.value.hint or "")
    assert _bytes(empty) == before


@pytest.mark.parametrize("messages", ["text", ["text"], [("topic", "T")], [None]])
def test_what_is_no_dictionary_is_a_type_error(messages: Any, empty: Path) -> None:
    with pytest.raises(TypeError, match=r"message 1 is .*: a message is a dictionary"):
        rmqtool.put(empty, messages)


def test_times_are_what_the_commands_take(filled: Path) -> None:
    first = next(iter(rmqtool.scan(filled)))["storeTimestamp"]
    moment = datetime.fromtimestamp(first / 1000, UTC)
    for begin in (first, moment, moment.isoformat(), str(first), "-2h", "yesterday"):
        assert len(list(rmqtool.scan(filled, begin=begin))) == 4, begin
    for begin in (first + 3_600_000, "+1h", "2100-01-01"):
        assert list(rmqtool.scan(filled, begin=begin)) == [], begin
    for end in (first, moment, "-2h", "2026-08-23#15:00:00:000"):
        assert list(rmqtool.scan(filled, end=end)) == [], end
    assert rmqtool.stat(filled, begin="-2h")["total"]["messages"] == 4
    assert rmqtool.batches(filled, begin="-2h", columns=["keys"]).read_all().num_rows == 4
    assert rmqtool.export(filled, filled.parent / "dated", begin="2020-01-01")["rows"] == 4


@pytest.mark.parametrize(
    ("begin", "error", "said"),
    [
        ("2026-11-", UsageError, "is not a time"),
        (datetime(2026, 11, 19), UsageError, "has no time zone"),
        (1.5, TypeError, "a time is epoch milliseconds, a datetime or a text, not 1.5"),
        (True, TypeError, "not True"),
    ],
)
def test_what_is_no_time_is_refused(begin: Any, error: type[Exception], said: str, filled: Path) -> None:
    with pytest.raises(error, match=said):
        rmqtool.scan(filled, begin=begin)


def test_results_have_a_short_repr(filled: Path) -> None:
    with rmqtool.open(filled) as store:
        assert repr(store) == f"<Store '{filled}': 5.3 (as broker.conf says), 1 log files>"
    checked = rmqtool.check(filled)
    assert list(checked) == []
    assert repr(checked) == f"<Check of '{filled}': 0 errors, 0 warnings>"


def test_batches_are_a_stream_that_others_read(filled: Path) -> None:
    reader = rmqtool.batches(filled, columns=["topic", "body"], topics="Orders")
    assert reader.schema.names == ["topic", "body"]
    assert pa.table(reader).column("body").to_pylist() == [b"order 0", b"order 1", b"order 2"]
    nothing = rmqtool.batches(filled, columns=["topic"], topics="Nothing").read_all()
    assert (nothing.num_rows, nothing.schema.names) == (0, ["topic"])


def test_an_error_inside_a_stream_is_ours(tmp_path: Path) -> None:
    with pytest.raises(rmqtool.RmqtoolError, match="does not exist"):
        rmqtool.batches(tmp_path / "nowhere").read_all()
