"""What every conformance test needs: the packages of a version, or a reason to skip."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.conformance.oracle.packages import OracleError, missing_tools, prepare


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
