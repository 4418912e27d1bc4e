"""An option changes what a command does, or is refused; it is never taken and passed over.

The pairs are drawn, seeded, from what the commands declare. Of each pair each option must do something beside the
other.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import combinations

import pytest

from rmqtool.errors import Exit
from tests.guards import options
from tests.guards.options import BASES, ELSEWHERE, MANNERS, NOT_HERE, UNTRIED, Base, Bench, Declared, Effect

SEED = 23
PAIRS, PARTS = 100, 4
MORE, MORE_PARTS = 1200, 24
# What is not mended yet: the sentence, and why it may stay for now. Each must still be true.
OPEN: dict[str, str] = {}


UNDAMAGED = "nothing is damaged"
# Where an option is taken, works elsewhere, and finds nothing that it could change: by the data, not by the command.
SAME_BY_DATA = {
    ("cat {s} -g G_popfifo --unread", "order"): "one queue, in the order of the log",
    ("query {s} retry-9", "kind"): "a key is guessed to be one",
    ("query {s} retry-9 --history", "kind"): "a key is guessed to be one",
    ("query {s} T_normal/1@2", "limit"): "one message",
    ("check {s}", "fail-on"): "a store without findings, and one with errors",
    ("diff {o}/rocksdb {o}/rocksdb", "limit"): "nothing differs",
    ("copy {s} {p}/new", "salvage"): UNDAMAGED,
    ("produce {s} -t T_normal -q 1 hello", "create"): "the topic exists",
    ("produce {s} -t T_normal -q 1 hello", "on-error"): "a message that is stored",
    ("produce {s} -t T_normal -q 1 hello", "rate"): "one message",
    ("produce {s} -t T_normal one two three", "create"): "the topic exists",
    ("produce {s} -t T_normal one two three", "on-error"): "messages that are stored",
    ("produce {s} --jsonl", "create"): "the topic exists",
    ("produce {s} --jsonl", "on-error"): "messages that are stored",
    ("produce {s} -t T_normal", "create"): "the topic exists",
    ("produce {s} -t T_normal", "on-error"): "messages that are stored",
    ("produce {s} --replay -g G_retry", "create"): "the topic exists",
    ("produce {s} --replay -g G_retry", "on-error"): "messages that are stored",
    ("produce {s} -t T_normal --tx commit hello", "create"): "the topic exists",
    ("produce {s} -t T_normal --tx commit hello", "on-error"): "a message that is stored",
    ("produce {s} -t T_normal --tx commit hello", "rate"): "one message",
    ("tick {s}", "check"): "no transaction is open",
    ("consume {s} -g G_popfifo -t T_popfifo", "orderly"): "one queue, and nothing fails",
    ("export {s} --engine local --to {p}/lake", "mode"): "the target is new",
    ("export {s} --engine local --to {p}/lake", "since-last"): "the target is new",
    ("export {s} --engine local --to {p}/lake", "on-corrupt"): UNDAMAGED,
}


# Pairs in which an option finds nothing that it could change, on these bases and with these values: the reason.
SAME_IN_PAIR: dict[str, str] = {
    "produce --on-error --group: --on-error does nothing": "-g goes with --tx here, and the message is stored",
    "produce --create --group: --create does nothing": "-g goes with --tx here, and the topic exists",
    "produce --keep-ids --on-error: --on-error does nothing": "ids come in lines of JSON, which are stored here",
}


def every_pair() -> list[tuple[Declared, Declared]]:
    """Return all pairs of options that one command takes and that can be tried."""
    found = []
    for command, declared in options.declared().items():
        tried = [option for name, option in declared.items() if name not in UNTRIED and command not in NOT_HERE]
        found += [(a, b) for a, b in combinations(tried, 2) if not (a.name in MANNERS and b.name in MANNERS)]
    return found


def drawn(part: int, parts: int, count: int) -> list[tuple[Declared, Declared]]:
    """Return a part of the pairs that are drawn; the part has the pairs of few commands, whose runs are then shared."""
    pairs = random.Random(SEED).sample(every_pair(), count)
    pairs.sort(key=lambda pair: pair[0].command)
    return pairs[part * count // parts : (part + 1) * count // parts]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """Give the stores."""
    return Bench(tmp_path_factory.mktemp("bench"))


def swallowed(bench: Bench, pairs: Sequence[tuple[Declared, Declared]]) -> list[str]:
    """Return what is wrong with pairs."""
    found = []
    for one, two in pairs:
        found += options.swallowed_in_pair(bench, BASES[one.command], one, two)
    return [words for words in found if words not in OPEN and words not in SAME_IN_PAIR]


@pytest.mark.parametrize("part", range(PARTS))
def test_in_a_pair_no_option_is_swallowed(part: int, bench: Bench) -> None:
    assert swallowed(bench, drawn(part, PARTS, PAIRS)) == []


@pytest.mark.slow
@pytest.mark.parametrize("part", range(MORE_PARTS))
def test_in_many_pairs_no_option_is_swallowed(part: int, bench: Bench) -> None:
    assert swallowed(bench, drawn(part, MORE_PARTS, MORE)) == []


@pytest.mark.slow
@pytest.mark.parametrize("command", [name for name in BASES if name not in NOT_HERE])
def test_alone_no_option_is_swallowed_and_each_does_something_somewhere(command: str, bench: Bench) -> None:
    declared = options.declared().get(command, {})
    wrong: list[str] = []
    for name, option in declared.items():
        if name in UNTRIED or name in MANNERS:
            continue
        works = False
        for base in BASES[command]:
            if options.uses(base, option):
                works = True
                continue
            reason = SAME_BY_DATA.get((base.words, name))
            if reason is not None and not (base.damaged and reason == UNDAMAGED):
                continue
            why = options.swallowed_alone(bench, base, option)
            does = [
                effect for value in options.values_of(option) if not (effect := bench.effect(base, value)).is_refused
            ]
            if why is not None and not (does and options.is_instead(base)):
                wrong.append(why)
            elif why is None and not all(effect.is_stopped for effect in does):
                works = True
        is_elsewhere = name in ELSEWHERE or f"{command} {name}" in ELSEWHERE
        if works is is_elsewhere:
            wrong.append(f"{command} {option.spelled} does {'something' if works else 'nothing'} on any base")
    assert [words for words in wrong if words not in OPEN] == []


def test_every_command_has_bases_that_it_takes_and_does_the_same_on_twice(bench: Bench) -> None:
    missing = options.declared().keys() - BASES.keys() - NOT_HERE.keys()
    assert missing == set(), "tests/guards/options.py needs a base for each command"
    for command in ("stat", "produce", "copy"):
        base = BASES[command][0]
        first = bench.effect(base)
        assert first.status == Exit.DONE, f"{base.words}: {first.err}"
        assert bench.run(base) == first, f"{base.words} does something else each time"


class _Fake:
    """A command with two options that behaves as a test wants."""

    def __init__(self, answer: dict[frozenset[str], str]) -> None:
        self._answer = answer

    def effect(self, base: Base, words: Sequence[str] = ()) -> Effect:
        answer = self._answer[frozenset(words)]
        return Effect(Exit.USAGE if answer == "refused" else Exit.DONE, answer, "", ())


ONE, TWO = (Declared("cat", name, f"--{name}", True, (), "") for name in ("one", "two"))
NONE, BOTH = frozenset[str](), frozenset({"--one", "--two"})


@pytest.mark.parametrize(
    ("both", "wrong"),
    [
        ("one and two", []),
        ("refused", []),
        ("one", ["cat --one --two: --two does nothing"]),
        ("two", ["cat --one --two: --one does nothing"]),
    ],
)
def test_an_option_that_is_swallowed_is_told(both: str, wrong: list[str]) -> None:
    fake = _Fake({NONE: "", frozenset({"--one"}): "one", frozenset({"--two"}): "two", BOTH: both})
    assert options.swallowed_in_pair(fake, [Base("cat")], ONE, TWO) == wrong  # type: ignore[arg-type]


def test_an_option_that_does_nothing_alone_is_told() -> None:
    fake = _Fake({NONE: "", frozenset({"--one"}): "", frozenset({"--two"}): "refused"})
    assert options.swallowed_alone(fake, Base("cat"), ONE) == "rmqtool cat: --one does nothing and is not refused"  # type: ignore[arg-type]
    assert options.swallowed_alone(fake, Base("cat"), TWO) is None  # type: ignore[arg-type]


def test_what_commands_declare_is_what_is_tried() -> None:
    pairs = every_pair()
    assert len(pairs) > 20 * PAIRS
    assert {"cat", "produce", "repair", "export"} <= {
        one.command for one, _ in random.Random(SEED).sample(pairs, PAIRS)
    }


def test_the_directory_of_the_bench_is_not_written_by_looks(bench: Bench) -> None:
    place = bench.places[False]
    assert place.look() == place.files
    assert not bench.run(BASES["cat"][0]).has_written
    written = bench.run(Base("topic {s} delete T_normal --yes"))
    assert written.has_written
    assert written.files != place.files
    assert place.look() == place.files
