"""A standalone cluster from the pip package runs an export and a read: the demonstration, as a long test."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from tests.spark import standalone


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("options", [[], ["--packed"]], ids=["shared paths", "packed environment"])
def test_two_workers_export_and_read(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert standalone.main(options) == 0, capsys.readouterr().out
