"""One Spark session for the whole run: it takes seconds to start, and a query of these tests a fraction of one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rmqtool.errors import OptionalMissing
from tests.support.exported import Row, expected_rows
from tests.support.stores import STORES

HERE = "tests/spark/"

# Small and quick to start; one task after the other is no slower here than two at once.
SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.catalogImplementation": "in-memory",
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what stands here; all of it runs in one process, as it shares one session."""
    for item in items:
        if item.nodeid.startswith(HERE):
            item.add_marker("spark")
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Give the session."""
    from rmqtool.spark import session

    directory = tmp_path_factory.mktemp("spark")
    with (directory / "log").open("w+b") as log:
        try:
            started = session("local[2]", SETTINGS | {"spark.sql.warehouse.dir": str(directory)}, log=log)
        except OptionalMissing as missing:
            pytest.skip(f"{missing.message}: {missing.hint}")
        yield started
        started.stop()


class Fixture(NamedTuple):
    """One store that a real broker wrote, and what its broker is called here: as its directory."""

    name: str
    root: str
    broker: str


# One of each kind of record and of log; the others are read by the long tests.
_FEW = ("49-compressed-batch", "49-dledger", "49-ipv6", "53-compress", "54-broker")


@pytest.fixture(scope="session", params=["few", pytest.param("all", marks=pytest.mark.slow)])
def fixtures(request: pytest.FixtureRequest, store: Callable[[str], Path]) -> list[Fixture]:
    """Give some stores, or all of them: they are read together, as the stores of many brokers."""
    names = _FEW if request.param == "few" else STORES
    return [Fixture(name, str(store(name)), store(name).parent.name) for name in names]


@pytest.fixture(scope="session")
def expected(fixtures: list[Fixture]) -> list[Row]:
    """Give the messages of all of them, store by store."""
    return [row for one in fixtures for row in expected_rows(one.name, one.broker)]
