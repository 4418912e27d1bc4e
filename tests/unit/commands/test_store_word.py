"""A sole positional is STORE if it exists as a path, else the command's own argument; ``./x`` forces a path."""

from __future__ import annotations

import pytest

from rmqtool.commands.store_word import choose_store, typeable
from rmqtool.errors import UsageError

HOME = {"HOME": "/home/u"}
PATHS = {"lab", "/data/store", "/home/u/store", "topics"}

CASES = [
    # words, takes words, environment, store, own words, origin
    ([], False, HOME, "/home/u/store", (), "~/store"),
    ([], True, HOME, "/home/u/store", (), "~/store"),
    ([], True, {**HOME, "RMQTOOL_STORE": "/x"}, "/x", (), "$RMQTOOL_STORE"),
    ([], True, {**HOME, "RMQTOOL_STORE": ""}, "/home/u/store", (), "~/store"),
    # A command without words of its own: what stands there is STORE, whether it exists or not.
    (["/no/such"], False, HOME, "/no/such", (), "command line"),
    (["lab"], False, HOME, "lab", (), "command line"),
    # A command with words of its own.
    (["lab"], True, HOME, "lab", (), "command line"),
    (["/data/store"], True, HOME, "/data/store", (), "command line"),
    (["order-4711"], True, HOME, "/home/u/store", ("order-4711",), "~/store"),
    (["order-4711"], True, {"RMQTOOL_STORE": "/x"}, "/x", ("order-4711",), "$RMQTOOL_STORE"),
    (["Orders/3@88412"], True, HOME, "/home/u/store", ("Orders/3@88412",), "~/store"),
    (["topics"], True, HOME, "topics", (), "command line"),
    (["./order-4711"], True, HOME, "./order-4711", (), "command line"),
    (["../x"], True, HOME, "../x", (), "command line"),
    (["."], True, HOME, ".", (), "command line"),
    # A command with certain words: no other one is its own.
    (["groups"], ["topics", "groups"], HOME, "/home/u/store", ("groups",), "~/store"),
    (["topics"], ["topics", "groups"], HOME, "topics", (), "command line"),
    (["/no/such"], ["topics", "groups"], HOME, "/no/such", (), "command line"),
    (["lab", "x"], ["topics", "groups"], HOME, "lab", ("x",), "command line"),
    # With more than one word the first is STORE.
    (["nowhere", "order-4711"], True, HOME, "nowhere", ("order-4711",), "command line"),
    (["lab", "a", "b"], True, HOME, "lab", ("a", "b"), "command line"),
]


@pytest.mark.parametrize(("words", "takes", "environment", "store", "own", "origin"), CASES)
def test_the_rule(
    words: list[str],
    takes: bool | list[str],
    environment: dict[str, str],
    store: str,
    own: tuple[str, ...],
    origin: str,
) -> None:
    found = choose_store(words, takes_words=takes, environment=environment, exists=PATHS.__contains__)
    assert found == (store, own, origin)


@pytest.mark.parametrize("words", [[], ["order-4711"]])
def test_no_store_at_all_is_a_usage_error_that_names_the_ways(words: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        choose_store(words, takes_words=True, environment={"HOME": "/nobody"}, exists=PATHS.__contains__)
    assert "$RMQTOOL_STORE is not set and ~/store does not exist" in caught.value.message
    assert "put STORE first" in (caught.value.hint or "")


def test_a_path_is_looked_for_in_the_real_world_by_default(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path_factory.mktemp("here")
    monkeypatch.chdir(here)
    monkeypatch.setenv("RMQTOOL_STORE", "/x")
    assert choose_store(["lab"], takes_words=True) == ("/x", ("lab",), "$RMQTOOL_STORE")
    (here / "lab").mkdir()
    assert choose_store(["lab"], takes_words=True) == ("lab", (), "command line")


def test_a_hint_names_the_store_of_the_line() -> None:
    choose_store(["my store"])
    assert typeable("rmqtool recover STORE --apply") == "rmqtool recover 'my store' --apply"
    assert typeable("check the store: rmqtool check STORE") == "check the store: rmqtool check 'my store'"
    assert typeable("dump takes FILE or STORE@OFFSET") == "dump takes FILE or STORE@OFFSET"
