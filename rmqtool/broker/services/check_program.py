"""Asks a program what became of a transaction, in place of its producer.

The program gets the message as a JSON line on standard input, with its own topic and queue. Exit status 0 commits it, 1
rolls it back. After any other status, a signal or too long a time it stays open, and is asked about again.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from rmqtool.broker.services.retry import find_number
from rmqtool.broker.services.transactions import EndRequest, TransactionState
from rmqtool.formats.commit_log import Message
from rmqtool.formats.message_json import message_json
from rmqtool.formats.property_names import PGROUP, REAL_QID, REAL_TOPIC, TRAN_PREPARED_QUEUE_OFFSET

# In seconds: how long a program may run, and between two looks whether the command shall end.
_LONGEST, _LOOK = 60.0, 0.05
# The descriptor of standard error: ours for programs.
_STDERR = 2
_STATES = {0: TransactionState.COMMIT, 1: TransactionState.ROLLBACK}


@dataclass(frozen=True)
class CheckProgram:
    """A shell command that decides. After ``stopped`` a running program is killed, and no other is started."""

    command: str
    stopped: Callable[[], bool]

    def __call__(self, half: Message) -> TransactionState:
        """Return what the program decides about a half message."""
        if self.stopped():
            return TransactionState.UNKNOWN
        given = os.memfd_create("message")
        try:
            os.write(given, _line_of(half))
            os.lseek(given, 0, os.SEEK_SET)
            # A group of its own: Ctrl-C reaches rmqtool only. Its output is not ours.
            process = subprocess.Popen(  # noqa: S603  (the command is the user's)
                ["/bin/sh", "-c", self.command], stdin=given, stdout=_STDERR, process_group=0
            )
        finally:
            os.close(given)
        return _STATES.get(self._wait(process), TransactionState.UNKNOWN)

    def _wait(self, process: subprocess.Popen[bytes]) -> int:
        end = time.monotonic() + _LONGEST
        while not self.stopped() and time.monotonic() < end:
            with suppress(subprocess.TimeoutExpired):
                return process.wait(_LOOK)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return -signal.SIGKILL


def _line_of(half: Message) -> bytes:
    fields, _ = message_json(half)
    properties = half.properties
    queue_id = find_number(properties.get(REAL_QID))
    real = {"topic": properties.get(REAL_TOPIC, half.topic), "queueId": half.queue_id if queue_id is None else queue_id}
    return (json.dumps({**fields, **real}, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace")


class ProgramBeside:
    """Asks a program while requests are answered, one transaction at a time.

    ``soon`` runs a function in the thread of the store, and ``decide`` takes the decision there.
    """

    def __init__(
        self, command: str, soon: Callable[[Callable[[], None]], object], decide: Callable[[EndRequest], None]
    ) -> None:
        self._soon, self._decide = soon, decide
        self._is_ended = False
        self._program = CheckProgram(command, lambda: self._is_ended)
        self._thread = ThreadPoolExecutor(1, "check")
        # The newest copy of each half message that is asked about: the decision is about that copy.
        self._newest: dict[str, Message] = {}

    def ask(self, half: Message) -> TransactionState:
        """Ask about a half message; the decision comes later."""
        # Each copy names the first one. The unique key does not do: a producer may send two messages with one key.
        key = half.properties.get(TRAN_PREPARED_QUEUE_OFFSET, str(half.queue_offset))
        is_asked, self._newest[key] = key in self._newest, half
        if not is_asked:
            self._thread.submit(self._run, key, half)
        return TransactionState.UNKNOWN

    def _run(self, key: str, half: Message) -> None:
        state = TransactionState.UNKNOWN
        try:
            state = self._program(half)
        finally:
            if not self._is_ended:
                self._soon(partial(self._finish, key, state))

    def _finish(self, key: str, state: TransactionState) -> None:
        half = self._newest.pop(key)
        group = half.properties.get(PGROUP, "")
        self._decide(EndRequest(group, half.physical_offset, half.queue_offset, state, from_check=True))

    def end(self) -> None:
        """Kill the program that runs; its transaction stays open."""
        self._is_ended = True
        self._thread.shutdown(wait=True, cancel_futures=True)
