"""Selectors: the checks C10.… of the filter rules, what is refused and where, and what a broker would not read."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Mapping

import pytest

from rmqtool.errors import Exit, UsageError
from rmqtool.filters.expressions import Truth, truth_of
from rmqtool.filters.sql92 import MAX_DEPTH, Dialect, FilterSyntaxError, parse_selector

F, T, U, X = Truth

ANSWERS: list[tuple[str, str, Mapping[str, str], Truth]] = [
    ("C10.3", "a > 5 AND b = 'x'", {"a": "10", "b": "x"}, T),
    ("C10.3", "a > 5 AND b = 'x'", {"a": "5", "b": "x"}, F),
    ("C10.4", "a = 1", {"a": "1.0"}, X),
    ("C10.4", "a = 1", {"a": "abc"}, X),
    ("C10.4", "a = 1.0", {"a": "1"}, T),
    ("C10.4", "a = 1", {"a": "01"}, T),
    ("C10.5", "a <> 1", {}, U),
    ("C10.5", "1 <> a", {}, T),
    ("C10.5", "a = 1", {}, U),
    ("C10.5", "1 = a", {}, F),
    ("C10.9", "a IN ('x','y')", {"a": "y"}, T),
    ("C10.9", "a IN ('x','y')", {"a": "z"}, F),
    ("C10.9", "a NOT IN ('x')", {}, U),
    ("C10.9", "a NOT IN ('x')", {"a": "y"}, T),
    ("C10.10", "a CONTAINS 'b'", {"a": "abc"}, T),
    ("C10.10", "a CONTAINS 'b'", {"a": "ac"}, F),
    ("C10.11", "a NOT CONTAINS 'b'", {}, F),
    ("C10.11", "a NOT CONTAINS 'b'", {"a": "ac"}, T),
    ("C10.11", "a NOT CONTAINS ''", {"a": "ac"}, F),
    ("C10.11", "a CONTAINS ''", {"a": "ac"}, F),
    ("C10.11", "a STARTSWITH 'ab'", {"a": "abc"}, T),
    ("C10.11", "a NOT STARTSWITH 'ab'", {"a": "abc"}, F),
    ("C10.11", "a ENDSWITH 'bc'", {"a": "abc"}, T),
    ("C10.11", "a NOT ENDSWITH 'bc'", {}, F),
    ("C10.11", "5 NOT CONTAINS 'x'", {}, F),
    ("C10.12", "a", {"a": "true"}, F),
    ("C10.12", "a", {}, U),
    ("C10.12", "NOT a", {"a": "true"}, T),
    ("C10.12", "a = TRUE", {"a": "true"}, T),
    ("C10.12", "a = TRUE", {"a": "TrUe"}, T),
    ("C10.12", "a = FALSE", {"a": "no"}, T),
    ("C10.12", "TRUE = a", {"a": "true"}, X),
    ("C10.12", "TRUE = a", {}, F),
    ("C10.13", "a IS NULL OR a = 'x'", {}, T),
    ("C10.13", "a IS NULL OR a = 'x'", {"a": "x"}, T),
    ("C10.13", "a IS NULL OR a = 'x'", {"a": "y"}, F),
    ("C10.13", "a = 1 AND b = 1", {"b": "2"}, F),
    ("C10.13", "a = 1 AND b = 1", {"b": "1"}, U),
    ("C10.13", "a = 1 OR b = 1", {"b": "1"}, T),
    ("C10.13", "a = 1 OR b = 1", {"b": "2"}, U),
    ("C10.13", "NOT (a = 1)", {}, U),
    ("C10.13", "a IS NOT NULL", {}, F),
    ("C10.13", "NULL", {}, U),
    ("C10.13", "TRUE", {}, T),
    ("C10.14", "a = 1 garbage", {"a": "1"}, T),
    ("C10.15", "a < 3", {"a": "2.5"}, X),
    ("C10.15", "a < 3.0", {"a": "2.5"}, T),
    ("C10.15", "a > 2147483647", {"a": "2147483648"}, X),
    ("C10.15", "a > 2147483648", {"a": "2147483649"}, T),
    ("C10.15", "a < 3.0", {"a": " 2.5 "}, T),
    ("C10.15", "a < 3", {"a": " 2"}, X),
    ("C10.15", "a < 3", {"a": ""}, X),
    ("C10.16", "a = b", {}, T),
    ("C10.16", "a = b", {"a": "1", "b": "1.0"}, F),
    ("C10.16", "a = b", {"a": "1"}, F),
    ("C10.16", "a = b", {"b": "1"}, U),
    ("an exception ends a chain", "a = 1 OR b = 1", {"a": "x", "b": "1"}, X),
    ("but not behind what decides", "b = 1 OR a = 1", {"a": "x", "b": "1"}, T),
    ("but not behind what decides", "b = 1 AND a = 1", {"a": "x", "b": "2"}, F),
    ("strings have the order of doubles", "a > b", {"a": "10", "b": "9"}, T),
    ("strings have the order of doubles", "a > b", {"a": "10", "b": "x"}, X),
    ("NaN is above all", "a > 1.0", {"a": "NaN"}, T),
    ("minus zero is below zero", "a < b", {"a": "-0.0", "b": "0.0"}, T),
    ("NOT binds to a", "NOT a = 1", {"a": "1"}, F),
    ("a condition is no number", "(a = 1) = 2", {"a": "1"}, F),
    ("conditions compare", "(a = 1) = (b = 1)", {"a": "2", "b": "3"}, T),
    ("a string right of a condition", "(a = 1) = 'true'", {"a": "1"}, X),
    ("numbers widen", "9007199254740993 = 9007199254740992.0", {}, T),
    ("numbers widen", "1 = 1.0", {}, T),
    ("minus", "a = -1", {"a": "-1"}, T),
    ("minus", "a >= - -2", {"a": "2"}, T),
    ("minus of a property is null", "-a = 1", {"a": "-1"}, U),
    ("minus keeps the class long", "a = -2147483648", {"a": "-2147483649"}, F),
    ("minus of a failed condition", "-(a = 1) IS NULL", {"a": "x"}, X),
    ("the right of a null is not looked at", "b < -(a = 1)", {"a": "x"}, U),
    ("the right of a value is", "b < -(a = 1)", {"a": "x", "b": "1"}, X),
    ("an exception behind null", "a = 1 AND b = 1", {"b": "x"}, X),
    ("an exception behind null", "a = 1 OR b = 1", {"b": "x"}, X),
    ("between", "a BETWEEN 2 AND 4", {"a": "4"}, T),
    ("between", "a BETWEEN 2 AND 4", {"a": "2"}, T),
    ("between", "a BETWEEN 3 AND 3", {"a": "3"}, T),
    ("between", "a NOT BETWEEN 2 AND 4", {"a": "2"}, F),
    ("between", "a NOT BETWEEN 2 AND 4", {"a": "4"}, F),
    ("between", "a BETWEEN 2 AND 4", {"a": "5"}, F),
    ("between", "a BETWEEN -1 AND -5", {"a": "-2"}, F),
    ("between", "a NOT BETWEEN 5 AND 3", {"a": "4"}, T),
    ("between", "a NOT BETWEEN 2 AND 4", {"a": "5"}, T),
    ("between", "a BETWEEN b AND c", {"a": "2", "b": "1", "c": "x"}, X),
    ("between", "a BETWEEN b AND c", {"a": "0", "b": "1", "c": "x"}, F),
    ("quotes", "a = 'it''s'", {"a": "it's"}, T),
    ("names keep their case", "A = 'x'", {"a": "x"}, U),
    ("signs in names", "$_1 = 'x'", {"$_1": "x"}, T),
    ("keywords in any case", "a iS nOt NuLl aNd tRuE", {"a": ""}, T),
    ("comments", "a /* = 2 ** / */ = -- 3\n1", {"a": "1"}, T),
    ("comments", "a = 1 -- no line end", {"a": "1"}, T),
    ("plus is nothing", "+a IN ('x')", {"a": "x"}, T),
    ("AND before OR", "TRUE OR FALSE AND FALSE", {}, T),
    ("comparisons before =", "a = 1 > 0", {"a": "true"}, T),
    ("operators group from the left", "a = 1 = TRUE = FALSE", {"a": "2"}, T),
    ("IS NULL of a comparison", "a = 1 IS NULL", {}, T),
]

IGNORED = [
    ("C10.14", "a = 1 garbage", 6),
    ("C10.14", "a = 1 )", 6),
    ("C10.14", "a = 1 b = 2", 6),
    ("C10.14", "a LIKE 'x%'", 2),
    ("C10.14", "a + 1 > 2", 2),
    ("C10.14", "a-b = 1", 1),
    ("C10.14", "a = 007", 5),
    ("C10.14", "a = 0L", 5),
    ("C10.14", "a = 1 x #", 6),
    ("C10.14", "a = 1 -- no line end", 6),
    ("C10.14", "a IS NULL > 5", 10),
    ("C10.14", "a IS NULL NOT IN ('x')", 10),
]

REFUSED = [
    ("C10.6", "a > 'x'", 4),
    ("C10.6", "'x' < a", 0),
    ("C10.6", "a < TRUE", 4),
    ("C10.6", "a < NULL", 4),
    ("C10.6", "(a = 1) < 2", 0),
    ("C10.7", "a > 0.0", 4),
    ("C10.7", "a > 1e-400", 4),
    ("C10.7", "a > 1e400", 4),
    ("C10.8", "a BETWEEN 5 AND 3", 10),
    ("C10.8", "a BETWEEN 5 AND 4.9", 10),
    ("C10.8", "a BETWEEN NULL AND 3", 10),
    ("C10.8", "a BETWEEN '1' AND '2'", 10),
    ("C10.8", "a BETWEEN 1", 11),
    ("C10.17", "a == 1", 3),
    ("C10.17", "a != 1", 2),
    ("C10.17", 'a = "x"', 4),
    ("C10.17", "a IN (1)", 6),
    ("C10.17", "a IN ()", 6),
    ("C10.17", "a IN 'x'", 5),
    ("C10.17", "a IN ('x' 'y')", 10),
    ("C10.17", "'a' IN ('x')", 0),
    ("C10.17", "-a IN ('x')", 0),
    ("an incomplete tail", "a = 1 AND", 9),
    ("an incomplete tail", "a NOT b", 6),
    ("an incomplete tail", "a IS 1", 5),
    ("an incomplete tail", "(a = 1", 6),
    ("a sign behind the end", "a = 1 #", 6),
    ("a sign behind the end", "a = 1;", 5),
    ("a sign behind the end", "a.b = 1", 1),
    ("a sign behind the end", "a = '''", 6),
    ("no condition", "5", 0),
    ("no condition", "'a' AND b", 0),
    ("no condition", "b OR 'a'", 5),
    ("no condition", "NOT 1", 4),
    ("no condition", "-a", 0),
    ("no condition", "", 0),
    ("no condition", " /* */ ", 7),
    ("= and null", "a = NULL", 4),
    ("= and null", "NULL <> a", 0),
    ("= of truth and text", "TRUE = 'true'", 7),
    ("numbers", "a = 9223372036854775808", 4),
    ("an open comment", "a = /* 1", 4),
    ("other planes", "a = \u212a", 4),
    ("searches", "a CONTAINS b", 11),
]


@pytest.mark.parametrize(("check", "text", "properties", "answer"), ANSWERS)
def test_answers(check: str, text: str, properties: Mapping[str, str], answer: Truth) -> None:
    selector = parse_selector(text)
    assert truth_of(selector.expression, properties) is answer
    assert selector.matches(properties) is (answer is Truth.TRUE)


@pytest.mark.parametrize(("check", "text", "position"), REFUSED)
def test_refused(check: str, text: str, position: int) -> None:
    with pytest.raises(FilterSyntaxError) as raised:
        parse_selector(text)
    assert raised.value.position == position


@pytest.mark.parametrize(("check", "text", "position"), IGNORED)
def test_what_a_broker_ignores(check: str, text: str, position: int) -> None:
    assert parse_selector(text).ignored_at == position
    with pytest.raises(FilterSyntaxError, match="complete before") as raised:
        parse_selector(text, whole=True)
    assert raised.value.position == position


@pytest.mark.parametrize("text", ["a = 1", " a = 1 \n", "a = 1 -- end\n", "(a = 1) /**/"])
def test_whole_texts_are_accepted(text: str) -> None:
    assert parse_selector(text, whole=True).ignored_at is None


@pytest.mark.parametrize("word", ["CONTAINS", "startswith", "EndsWith"])
def test_searches_are_names_in_4(word: str) -> None:
    """C10.10: the 4.x grammar has no such operators."""
    assert parse_selector(f"{word} = 'x'", dialect=Dialect.V4).matches({word: "x"})
    # The text behind `a` is ignored, so that NOT is what a 4.x broker stumbles over.
    assert parse_selector(f"a {word} 'b'", dialect=Dialect.V4).ignored_at == 2
    with pytest.raises(FilterSyntaxError):
        parse_selector(f"a NOT {word} 'b'", dialect=Dialect.V4)
    with pytest.raises(FilterSyntaxError):
        parse_selector(f"{word} = 'x'", dialect=Dialect.V5)


def test_names() -> None:
    selector = parse_selector(
        "a > 1 AND (b BETWEEN c AND d OR e IN ('f')) AND NOT g AND -h IS NULL AND TAGS CONTAINS 'i'"
    )
    assert selector.names == {"a", "b", "c", "d", "e", "g", "h", "TAGS"}


def test_the_error_is_one_of_usage() -> None:
    with pytest.raises(UsageError) as raised:
        parse_selector("a > 'x'")
    error = raised.value
    assert error.exit_status is Exit.USAGE
    assert error.as_json() == {
        "code": "filter-syntax",
        "message": "only numbers and properties have an order; a string does not (character 5 of the expression)",
        "expression": "a > 'x'",
        "position": 4,
    }


@pytest.mark.parametrize("text", ["NOT a > 1", "NOT a IN ('x')", "NOT a BETWEEN 1 AND 2"])
def test_a_trap_of_the_grammar_is_explained(text: str) -> None:
    with pytest.raises(FilterSyntaxError) as raised:
        parse_selector(text)
    assert raised.value.hint == "NOT applies only to the next word: write NOT (…)"


def test_long_chains_are_not_deep() -> None:
    text = " OR ".join(f"a = {number}" for number in range(20_000))
    selector = parse_selector(text)
    assert selector.matches({"a": "19999"})
    assert truth_of(selector.expression, {"a": "20000"}) is F


@pytest.mark.parametrize(
    ("opening", "closing"),
    [("(", ")"), ("NOT (", ")"), ("NOT ", ""), ("a OR a AND a = (", ")"), ("(", " IS NULL)"), ("", " IS NULL")],
)
def test_depth_is_bounded(opening: str, closing: str) -> None:
    """Up to the limit everything works on a stack that is far from empty; beyond it, refused, never RecursionError."""

    def at_depth(frames: int, text: str) -> None:
        if frames:
            at_depth(frames - 1, text)
        else:
            selector = parse_selector(text)
            assert truth_of(selector.expression, {"a": "1"}) in (T, F)
            assert selector.names == {"a"}

    accepted = 0
    for count in range(1, MAX_DEPTH + 2):
        text = opening * count + "a = 1" + closing * count
        try:
            at_depth(150, text)
        except FilterSyntaxError as error:
            assert "nests deeper" in error.message  # noqa: PT017
            break
        accepted = count
    assert MAX_DEPTH // 5 <= accepted <= MAX_DEPTH
    with pytest.raises(FilterSyntaxError, match="nests deeper"):
        parse_selector(opening * 50_000 + "a = 1" + closing * 50_000)


def test_nested_between_is_not_exponential() -> None:
    text = "a"
    for _ in range(30):
        text = f"-({text} BETWEEN 1 AND 2)"
    selector = parse_selector(f"{text} IS NULL")
    assert selector.matches({"a": "1"})
    assert selector.names == {"a"}


def test_a_selector_travels_to_other_processes() -> None:
    selector = parse_selector("a BETWEEN 1 AND 2.5 OR b IS NULL -- end\n")
    travelled = pickle.loads(pickle.dumps(selector))
    assert travelled == selector
    assert [travelled.matches({"a": value, "b": "x"}) for value in ("2", "3")] == [True, False]


def test_nothing_heavy_is_loaded() -> None:
    """No module of the package needs the libraries of columns before it is asked about columns."""
    code = (
        "import importlib, pkgutil, sys, rmqtool.filters as package\n"
        "for found in pkgutil.iter_modules(package.__path__, 'rmqtool.filters.'): importlib.import_module(found.name)\n"
        "sys.exit(bool({'numpy', 'pyarrow', 'construct'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
