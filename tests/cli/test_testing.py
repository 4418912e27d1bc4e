"""The recipes for tests of users: pytest under ``serve --memory --exec``, and the fixture of ``rmqtool.testing``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEST = """
import os, rmqtool

def test_an_order_arrives({given}):
    names = {names}
    with rmqtool.connect("rocketmq://" + names) as cluster:
        sent = cluster.produce("Orders", "order-4711")
        found = cluster.query(sent.msg_id)["messages"][0]["body"]
    assert found == {expected!r}
"""


def run(home: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command as a user's CI does: without a container, a display or a running broker."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    environment = kept | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True, timeout=120, check=False)


def write_test(home: Path, given: str, names: str, expected: str = "order-4711") -> None:
    (home / "pytest.ini").write_text("[pytest]\n")
    (home / "test_orders.py").write_text(TEST.format(given=given, names=names, expected=expected))


def test_pytest_finds_the_broker_that_serve_starts_and_its_status_is_passed_on(tmp_path: Path) -> None:
    serve = (sys.executable, "-m", "rmqtool", "serve", "--memory", "--exec")
    pytest = f"{sys.executable} -m pytest -q -p no:cacheprovider"
    write_test(tmp_path, "", "os.environ['NAMESRV_ADDR']")
    passed = run(tmp_path, *serve, pytest)
    assert (passed.returncode, "1 passed" in passed.stdout) == (0, True), passed.stdout + passed.stderr
    write_test(tmp_path, "", "os.environ['NAMESRV_ADDR']", "another")
    failed = run(tmp_path, *serve, pytest)
    assert (failed.returncode, "1 failed" in failed.stdout) == (1, True), failed.stdout + failed.stderr


def test_the_fixture_serves_a_store_in_memory(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["rmqtool.testing"]\n')
    write_test(tmp_path, "rocketmq", "rocketmq.names")
    passed = run(tmp_path, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert (passed.returncode, "1 passed" in passed.stdout) == (0, True), passed.stdout + passed.stderr
