"""A worker process of ``pool``: takes work, then tasks, until nobody is there any more."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from multiprocessing.connection import Connection

from rmqtool.errors import RmqtoolError
from rmqtool.formats.layout import Buffer
from rmqtool.scan.pool import Failed


def main(descriptors: Sequence[int]) -> None:
    """Serve the caller at the other end of the first descriptor; the others are where output goes."""
    connection, slots = Connection(descriptors[0]), descriptors[1:]
    try:
        work = connection.recv()
        if isinstance(work, str):  # something to load, while the work is being prepared
            import_module(work)
            work = connection.recv()
        while True:
            slot, task = connection.recv()
            output = _Output(slots[slot])
            try:
                connection.send((work(task, output.write), output.size))
            except RmqtoolError as error:
                connection.send(Failed(error, str(error)))
            except Exception:
                connection.send(Failed(None, traceback.format_exc()))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return


class _Output:
    """A file in memory, written from its start; what is left of before is behind ``size``."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.size = 0

    def write(self, data: Buffer) -> None:
        """Append ``data``."""
        with memoryview(data) as view:
            done = 0
            while done < len(view):
                done += os.pwrite(self.descriptor, view[done:], self.size + done)
        self.size += len(data)


if __name__ == "__main__":
    main([int(word) for word in sys.argv[1:]])
