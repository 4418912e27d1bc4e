"""The recipe for JUnit: ``rmqtool serve --memory --exec 'mvn test'`` runs tests that name no broker."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conformance.client_programs import built, make

_PROJECT = Path(__file__).parent / "clients" / "junit"

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def project() -> Path:
    """The project as Maven wants it, and everything that it needs fetched: Maven does not go online later."""
    sources = sorted(_PROJECT.iterdir())
    with built("junit", sources) as (folder, stale):
        if stale:
            for path in sources:
                place = folder if path.name == "pom.xml" else folder / "src" / "test" / "java"
                place.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, place)
            # The test that expects something else ends before it looks for a broker.
            make(
                "mvn",
                "-q",
                "-B",
                "test",
                "-Dtest=OrdersTest#nothing",
                "-Dsurefire.failIfNoSpecifiedTests=false",
                cwd=folder,
            )
    return folder


def served(project: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rmqtool", "serve", "--memory", "--exec", " ".join(["mvn -o -B test", *words])]
    return subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=300, check=False)


def test_junit_finds_the_broker_and_passes(project: Path) -> None:
    done = served(project)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    assert "Tests run: 1, Failures: 0, Errors: 0, Skipped: 0" in done.stdout


def test_the_status_of_a_failed_junit_run_is_that_of_serve(project: Path) -> None:
    done = served(project, "-DargLine=-Dexpected=another")
    assert done.returncode == 1, done.stdout[-3000:] + done.stderr
    assert "expected: <another> but was: <order-4711>" in done.stdout
