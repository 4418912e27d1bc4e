"""Fixtures for every test: stores of real brokers, shared and private."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest

from rmqtool.look import disk
from tests.docs.screens import ROOMY
from tests.support.stores import tree_changes, tree_state, unpack

# No test is about how long something takes: the machine may have other work.
hypothesis.settings.register_profile("rmqtool", deadline=None)
hypothesis.settings.load_profile("rmqtool")

# Some shells export it, and screens would be as wide.
os.environ.pop("COLUMNS", None)

Unpacker = Callable[[str], Path]


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Unpacker]:
    """Unpack a store once for the whole run. Only for reading: at the end each must be as it was."""
    unpacked: dict[str, Path] = {}
    states = {}

    def get(name: str) -> Path:
        if name not in unpacked:
            unpacked[name] = unpack(name, tmp_path_factory.mktemp(name.replace("/", "-")))
            states[name] = tree_state(unpacked[name], content=False)
        return unpacked[name]

    yield get
    for name, root in unpacked.items():
        changes = tree_changes(states[name], tree_state(root, content=False))
        assert not changes, f"a test wrote into the shared store {name}:\n" + "\n".join(changes)


@pytest.fixture(autouse=True)
def turns(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let producers begin with queue 0; a test that is marked ``random_turns`` sees them begin anywhere."""
    if request.node.get_closest_marker("random_turns") is None:
        monkeypatch.setattr("rmqtool.broker.producer.send._random_turn", lambda: 0)


@pytest.fixture
def writable_store(tmp_path_factory: pytest.TempPathFactory) -> Unpacker:
    """Unpack a store for each call: the test may change it."""
    return lambda name: unpack(name, tmp_path_factory.mktemp(name.replace("/", "-") + "-writable"))


@pytest.fixture(autouse=True)
def roomy_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no finding depend on how full the disk of the machine is."""
    monkeypatch.setattr(disk, "measure", lambda _path: ROOMY)
