"""Object storage for tests: moto's server on loopback, with stores copied there, that can be unplugged."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

BUCKET = "stores"
SECRET = "not-to-be-shown"
_PIECE = 1 << 20


class _Requests(logging.Handler):
    """The lines that the server logs, one for each request."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


class ObjectStorage:
    """A server with one bucket. Its content stays while it is unplugged."""

    def __init__(self) -> None:
        self._server: Any = None
        self.port = 0
        self.requests = _Requests()
        self.storage: Any = None

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def plug(self) -> None:
        from moto.server import ThreadedMotoServer

        self._server = ThreadedMotoServer(ip_address="127.0.0.1", port=self.port, verbose=False)
        self._server.start()
        _, self.port = self._server.get_host_and_port()

    def unplug(self) -> None:
        self._server.stop()

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

    def count(self) -> int:
        """Return how many requests there were since the last call."""
        found = len(self.requests.lines)
        self.requests.lines.clear()
        return found


@contextmanager
def object_storage() -> Iterator[ObjectStorage]:
    """Give a server; the variables of the environment lead the SDK to it."""
    from pyarrow import fs

    served = ObjectStorage()
    log = logging.getLogger("werkzeug")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log, "handlers", [served.requests])
        patch.setattr(log, "propagate", False)
        patch.setattr(log, "level", logging.INFO)
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
            served.unplug()
