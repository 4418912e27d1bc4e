"""An option changes what a command does on a live cluster, or is refused: it is never taken and passed over."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

import rmqtool
from rmqtool.errors import Exit
from tests.guards import options
from tests.guards.options import MANNERS, UNTRIED, Base, Effect
from tests.guards.typed import at, type_words
from tests.support.scripted_cluster import played
from tests.support.stores import unpack

NAME = "53-broker"
LOOKS: Mapping[str, Sequence[str]] = {
    "info": ["info {s}", "info {s} groups"],
    "cat": ["cat {s}"],
    "query": ["query {s} retry-9 -t T_retry", "query {s} T_normal/1@2"],
    "consume": ["consume {s} -g G_popfifo -t T_popfifo --from first"],
}
WRITES: Mapping[str, Sequence[str]] = {
    "topic": ["topic {s} list", "topic {s} create New", "topic {s} alter T_normal", "topic {s} delete T_normal --yes"],
    "group": ["group {s} list", "group {s} show G_ok", "group {s} create New", "group {s} delete G_ok --yes"],
    "produce": ["produce {s} -t T_normal -q 1 hello", "produce {s} -t New hello", "produce {s} -t T_normal"],
    "consume": ["consume {s} -g G_new -t T_normal --from first --commit"],
    "export": ["export {s} --to {p}/lake"],
}
# Taken, and nothing to change: by the data, or by what stands beside it.
SAME = {
    ("query {s} T_normal/1@2", "limit"): "one message",
    ("query {s} retry-9 -t T_retry", "kind"): "a key is guessed to be one",
    ("produce {s} -t T_normal -q 1 hello", "create"): "the topic exists",
    ("produce {s} -t T_normal -q 1 hello", "batch"): "one message",
    ("produce {s} -t New hello", "batch"): "one message",
    ("produce {s} -t T_normal -q 1 hello", "on-error"): "a message that is stored",
    ("produce {s} -t T_normal", "create"): "the topic exists",
    ("produce {s} -t T_normal", "on-error"): "messages that are stored",
    ("produce {s} -t New hello", "on-error"): "a message that is stored",
    ("export {s} --to {p}/lake", "mode"): "the target is new",
    ("export {s} --to {p}/lake", "since-last"): "the target is new",
    ("export {s} --to {p}/lake", "on-corrupt"): "nothing is damaged",
}
# Where nothing is wrong these change nothing: keys that nobody asks for, a lost answer; or only how long it takes.
ELSEWHERE = {"credentials", "retry-unknown", "rate"}
_SHIFTING = (
    (re.compile(r"\b[0-9A-F]{32}\b"), "ID"),
    (re.compile(r"\b1\d{12}\b"), "TIME"),
    (re.compile(r"127\.0\.0\.1:\d+"), "ADDRESS"),
    (re.compile(r"[0-9a-f-]{32,36}"), "ID"),
    (re.compile(r"\d{4}-\d\d-\d\d[ T][\d:.]+(Z|[+-][\d:]+)?"), "TIME"),
    (re.compile(r"@\d+#\d+"), "CLIENT"),
)


def _settled(text: str, place: Path) -> str:
    text = text.replace(str(place), "PLACE")
    for pattern, word in _SHIFTING:
        text = pattern.sub(word, text)
    return text


class ClusterBench:
    """Runs command lines on a cluster; what is in it afterwards is a part of the effect."""

    def __init__(self, place: Path, address: str | None = None) -> None:
        self._place, self._address = place, address
        self._seen: dict[tuple[Base, tuple[str, ...]], Effect] = {}
        self._runs = 0
        (place / "body.txt").write_text("from a file")
        (place / "keys").write_text("accessKey=a\nsecretKey=b\n")

    def effect(self, base: Base, words: Sequence[str] = ()) -> Effect:
        key = base, tuple(words)
        if key not in self._seen:
            with self._cluster() as address:
                self._seen[key] = self._run(base, words, address)
        return self._seen[key]

    @contextmanager
    def _cluster(self) -> Iterator[str]:
        if self._address is not None:
            yield self._address
            return
        with rmqtool.serve(memory=True) as served:
            address = f"rocketmq://{served.names}"
            with rmqtool.connect(address) as cluster:
                cluster.topic("create", "T_normal", queues=4)
                cluster.group("create", "G_ok")
                for number in range(12):
                    cluster.produce("T_normal", f"{number} golf", queue=number % 4, tags="TagA", keys=f"k{number}")
            yield address

    def _run(self, base: Base, words: Sequence[str], address: str) -> Effect:
        self._runs += 1
        place = self._place / str(self._runs)
        place.mkdir()
        for name in ("body.txt", "keys"):
            (place / name).write_bytes((self._place / name).read_bytes())
        line = [word.replace("{s}", address).replace("{p}", str(place)) for word in (*base.words.split(), *words)]
        with at(place):
            typed = type_words(line, base.given)
        state = () if self._address is not None else (("cluster", _state(address)),)
        files = tuple((str(path.relative_to(place)), "") for path in sorted(place.rglob("*.parquet")))
        said = _settled(typed.out, place), _settled(typed.err, place)
        return Effect(typed.status, *said, (*state, *((_settled(name, place), text) for name, text in files)))


def _state(address: str) -> str:
    """Return what the cluster has: topics, groups and messages."""
    with rmqtool.connect(address) as cluster:
        found: list[Any] = [cluster.topics(), cluster.groups()]
        for message in cluster.scan():
            kept = ("topic", "queueId", "flag", "sysFlag", "tags", "keys", "properties", "body")
            found.append({name: message[name] for name in kept})  # type: ignore[literal-required]
    return _settled(json.dumps(found, sort_keys=True), Path("/nowhere"))


def _given(words: str) -> bytes:
    return b"one\ntwo\nthree\n" if words == "produce {s} -t T_normal" else b""


def swallowed(bench: ClusterBench, command: str, lines: Sequence[str]) -> list[str]:
    """Return the options of a command that do nothing on a cluster, and are not refused either."""
    found = []
    for words in lines:
        base = Base(words, given=_given(words))
        assert not bench.effect(base).is_refused, bench.effect(base).err
        for name, option in options.declared()[command].items():
            if (
                name in UNTRIED
                or (name in MANNERS and name != "jobs")
                or name in ELSEWHERE
                or options.uses(base, option)
            ):
                continue
            why = options.swallowed_alone(bench, base, option)  # type: ignore[arg-type]
            if why is not None and (words, name) not in SAME:
                found.append(why)
    return found


@pytest.fixture(scope="module")
def looks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterBench]:
    root = unpack(NAME, tmp_path_factory.mktemp("played"))
    with ExitStack() as stack:
        address = stack.enter_context(played(root, {"T_popfifo@G_popfifo": {"0": 1}}))
        yield ClusterBench(tmp_path_factory.mktemp("looks"), address)


@pytest.mark.parametrize("command", LOOKS)
def test_a_look_at_a_cluster_swallows_no_option(command: str, looks: ClusterBench) -> None:
    assert swallowed(looks, command, LOOKS[command]) == []


@pytest.mark.slow
@pytest.mark.parametrize("command", WRITES)
def test_what_writes_into_a_cluster_swallows_no_option(command: str, tmp_path: Path) -> None:
    assert swallowed(ClusterBench(tmp_path), command, WRITES[command]) == []


@pytest.mark.parametrize("line", ["cat {s} -t T_normal", "query {s} retry-9 -t T_retry", "export {s} --to {p}/lake"])
def test_threads_are_for_files(line: str, looks: ClusterBench) -> None:
    found = looks.effect(Base(line), ["-j", "2"])
    assert (found.status, found.out) == (Exit.USAGE, "")
    assert "-j has no effect on a live cluster" in found.err


@pytest.mark.parametrize("more", [[], ["--jsonl"]])
def test_threads_of_a_consumer_are_for_its_programs(more: list[str], looks: ClusterBench) -> None:
    base = Base("consume {s} -g G_popfifo -t T_popfifo --from first")
    found = looks.effect(base, [*more, "-j", "2"])
    assert (found.status, found.out) == (Exit.USAGE, "")
    assert "-j has no effect on messages taken one by one" in found.err
    assert looks.effect(base, ["--exec", "true", "-j", "2"]).status == Exit.DONE
