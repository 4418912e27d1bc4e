"""A broker for tests: ``pytest_plugins = ["rmqtool.testing"]`` in conftest.py, then the fixture ``rocketmq``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from rmqtool.api.serve import serve

if TYPE_CHECKING:
    from rmqtool.api.serve import Served


@pytest.fixture(scope="session")
def rocketmq() -> Iterator[Served]:
    """Serve a store in memory during the run; ``rocketmq.names`` is the address of the name server."""
    with serve(memory=True) as served:
        yield served
