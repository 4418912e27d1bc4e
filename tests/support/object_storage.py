"""Object storage for tests: moto's server on loopback, with stores copied there, that can be unplugged."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

BUCKET = "stores"
SECRET = "not-to-be-shown"
_PIECE = 1 << 20
_ROOT = Path(__file__).resolve().parents[2]


class ObjectStorage:
    """A server with one bucket. Its content stays while it is unplugged."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.port = 0
        self.storage: Any = None

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _tell(self, command: str) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def plug(self) -> None:
        self.port = self._tell("plug")

    def unplug(self) -> None:
        self._tell("unplug")

    def upload(self, root: Path, name: str) -> str:
        """Copy a directory to the bucket; return its address."""
        for path in sorted(root.rglob("*")):
            if path.is_file():
                self._put(path, f"{BUCKET}/{name}/{path.relative_to(root)}")
        return f"s3://{BUCKET}/{name}"

    def _put(self, path: Path, key: str) -> None:
        with path.open("rb") as source, self.storage.open_output_stream(key) as target:
            while piece := source.read(_PIECE):
                target.write(piece)

    @property
    def options(self) -> dict[str, str]:
        """What Delta's client needs to know."""
        return {"AWS_ENDPOINT_URL": self.endpoint, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1"}

    def names(self, directory: str) -> list[str]:
        """Return the names of all objects below a directory."""
        from pyarrow import fs

        selector = fs.FileSelector(f"{BUCKET}/{directory}", recursive=True)
        return [info.base_name for info in self.storage.get_file_info(selector) if info.type is fs.FileType.File]

    def count(self) -> int:
        """Return how many requests there were since the last call."""
        return self._tell("count")


@contextmanager
def object_storage() -> Iterator[ObjectStorage]:
    """Give a server; the variables of the environment lead the SDK to it."""
    from pyarrow import fs

    command = [sys.executable, "-m", "tests.support.moto_process"]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=_ROOT) as process,
        pytest.MonkeyPatch.context() as patch,
    ):
        served = ObjectStorage(process)
        served.plug()
        patch.setenv("AWS_ACCESS_KEY_ID", "test")
        patch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        patch.setenv("AWS_ENDPOINT_URL", served.endpoint)
        where = {"endpoint_override": f"127.0.0.1:{served.port}", "scheme": "http"}
        # The server takes a while to put a gigabyte together.
        served.storage = fs.S3FileSystem(**where, allow_bucket_creation=True, request_timeout=120)
        served.storage.create_dir(BUCKET)
        try:
            yield served
        finally:
            process.kill()
