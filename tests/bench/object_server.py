"""A server of objects for measurements: files of a directory as one bucket, each answer after a delay.

    python -m tests.bench.object_server DIRECTORY MILLISECONDS      prints its port, then serves until it is ended

It knows what a reader asks for (lists, sizes, ranges) and sends files by ``sendfile``, so that the reader is measured
and not the server. Each line of its standard input is answered with the requests and the bytes sent since the last one.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape


class Answers(BaseHTTPRequestHandler):
    """Answers the requests of S3 that read."""

    protocol_version = "HTTP/1.1"
    root: Path
    delay: float
    counts: ClassVar[list[int]] = [0, 0]
    _lock = threading.Lock()

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _counted(self, size: int) -> None:
        time.sleep(self.delay)
        with self._lock:
            self.counts[0] += 1
            self.counts[1] += size

    def do_HEAD(self) -> None:
        self._file(head=True)

    def do_GET(self) -> None:
        asked = parse_qs(urlsplit(self.path).query)
        if "list-type" in asked:
            self._list(asked.get("prefix", [""])[0])
        else:
            self._file(head=False)

    def _list(self, prefix: str) -> None:
        paths = (path for path in sorted(self.root.rglob("*")) if path.is_file())
        names = {str(path.relative_to(self.root)): path.stat() for path in paths}
        contents = "".join(
            f"<Contents><Key>{escape(name)}</Key><Size>{found.st_size}</Size>"
            "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
            for name, found in names.items()
            if name.startswith(prefix)
        )
        body = f"<ListBucketResult><IsTruncated>false</IsTruncated>{contents}</ListBucketResult>".encode()
        self._counted(0)
        self._head(200, len(body), {"Content-Type": "application/xml"})
        self.wfile.write(body)

    def _file(self, *, head: bool) -> None:
        path = self.root / unquote(urlsplit(self.path).path).strip("/").partition("/")[2]
        if not path.is_file():
            self._counted(0)
            self._head(404, 0, {})
            return
        size = path.stat().st_size
        span = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        begin, end = (int(span[1]), min(int(span[2]) + 1, size)) if span else (0, size)
        self._counted(0 if head else end - begin)
        more = {"ETag": f'"{path.stat().st_mtime_ns}"'}
        more |= {"Content-Range": f"bytes {begin}-{end - 1}/{size}"} if span else {}
        self._head(206 if span else 200, end - begin, more)
        if head:
            return
        self.wfile.flush()
        with path.open("rb") as file:
            while begin < end:
                begin += os.sendfile(self.connection.fileno(), file.fileno(), begin, end - begin)

    def _head(self, status: int, length: int, more: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(length), "Last-Modified": formatdate(usegmt=True), **more}.items():
            self.send_header(name, value)
        self.end_headers()


def main(directory: str, milliseconds: str) -> None:
    Answers.root, Answers.delay = Path(directory), int(milliseconds) / 1000
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_address[1], flush=True)
    for _ in sys.stdin:
        print(*Answers.counts, flush=True)
        Answers.counts[:] = [0, 0]


if __name__ == "__main__":
    main(*sys.argv[1:])
