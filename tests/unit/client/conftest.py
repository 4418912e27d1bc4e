"""A server in memory, for tests of the client that need a whole one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import rmqtool


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with rmqtool.serve(memory=True) as served:
        yield f"rocketmq://{served.names}"
