"""moto's server in a process of its own. Its commands are lines: ``plug``, ``unplug`` and ``count``.

It answers each with a line: its port, or the number of requests since the last ``count``. In the process of a test it
would not answer a client that keeps the interpreter for itself while it waits.
"""

from __future__ import annotations

import logging
import sys

from moto.server import ThreadedMotoServer


class _Requests(logging.Handler):
    """Counts the lines that the server logs, one for each request."""

    count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += 1


def main() -> None:
    requests = _Requests()
    log = logging.getLogger("werkzeug")
    log.handlers, log.propagate, log.level = [requests], False, logging.INFO
    port = 0
    server = None
    for line in sys.stdin:
        if line.strip() == "plug":
            server = ThreadedMotoServer(ip_address="127.0.0.1", port=port, verbose=False)
            server.start()
            _, port = server.get_host_and_port()
            print(port, flush=True)
        elif line.strip() == "unplug" and server is not None:
            server.stop()
            print(port, flush=True)
        else:
            print(requests.count, flush=True)
            requests.count = 0


if __name__ == "__main__":
    main()
