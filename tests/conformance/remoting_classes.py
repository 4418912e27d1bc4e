"""The published jars of the remoting protocol, by version: fetched through Maven when they are not there yet."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from tests.conformance.oracle.packages import cache


def class_path(version: str) -> str:
    """Return the class path of a version's client and tools; the test is skipped where Maven cannot fetch it."""
    for home in (cache() / version, cache() / f"tools-{version}"):
        if any(home.glob(f"lib/rocketmq-client-{version}.jar")):
            break
    else:
        if not shutil.which("mvn"):
            pytest.skip("Maven is not installed")
        home.mkdir(parents=True, exist_ok=True)
        (home / "pom.xml").write_text(
            "<project xmlns='http://maven.apache.org/POM/4.0.0'><modelVersion>4.0.0</modelVersion>"
            "<groupId>rmqtool</groupId><artifactId>client</artifactId><version>1</version><dependencies><dependency>"
            f"<groupId>org.apache.rocketmq</groupId><artifactId>rocketmq-tools</artifactId><version>{version}</version>"
            "</dependency></dependencies></project>"
        )
        command = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=lib"]
        if subprocess.run(command, cwd=home, check=False).returncode:
            pytest.skip(f"Maven could not fetch rocketmq-tools {version}")
    return os.pathsep.join(sorted(str(jar) for jar in home.glob("lib/*.jar")))
