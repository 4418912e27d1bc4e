"""What conformance tests need: the packages of a version, or a reason to skip. Those with live brokers are marked."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest

from tests.conformance.oracle.packages import OracleError, missing_tools, prepare

HERE = "tests/conformance/"

# What starts a broker, a server or a client that works beside a test: a module that takes one of these has live tests.
STARTERS = frozenset({"run_alone", "serve", "run_broker", "live_broker", "broker_on", "built", "member_program"})


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of modules that start something live: `make conformance` runs one that fails once more."""
    for item in items:
        if item.nodeid.startswith(HERE) and isinstance(item, pytest.Function) and _takes_starter(item.module):
            item.add_marker("live")


def _takes_starter(module: ModuleType) -> bool:
    """Return whether a module imports one of the starters; it may have another function of that name itself."""
    found = [vars(module)[name] for name in STARTERS & vars(module).keys()]
    return any(one.__module__ != module.__name__ for one in found)


@pytest.fixture(scope="session")
def real_classes() -> Callable[[str], None]:
    """Return a function that fetches and compiles what a version needs; the test is skipped without the tools."""

    def get(version: str) -> None:
        if tools := missing_tools():
            pytest.skip(f"not installed: {', '.join(tools)}")
        try:
            prepare(version)
        except OracleError as error:
            pytest.skip(str(error))

    return get
