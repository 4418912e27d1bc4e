"""Consumption by external programs, one process for each message, and the rounds in which messages are consumed.

A program gets the body on standard input and the fields as environment variables. It runs in a process group of its
own: Ctrl-C reaches rmqtool only, so that running programs can finish, and a program that hangs is killed with its
children.

The generators depend on their caller: a message counts as consumed when the next step is requested. They yield ``None``
when there is nothing to do now.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from rmqtool.broker.consumer.process_queue import PULL_BATCH_SIZE
from rmqtool.broker.consumer.windows import Delivered
from rmqtool.engine.clock import Clock
from rmqtool.errors import UsageError
from rmqtool.formats.compression import DEFAULT_BODY_CAP, inflate_body
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.ids import encode_offset_msg_id

PREFIX = "RMQ_"
_PROPERTY = PREFIX + "PROPERTY_"
_NO_NAME = re.compile(r"[^A-Za-z0-9_]")
_PLAIN = re.compile(r"[A-Za-z0-9_./-]+")


def check_program(command: str, option: str = "--exec") -> None:
    """Raise before the first message if the program does not exist. Otherwise each message would count as failed.

    Only a command that begins with a plain word is checked, by the shell, which knows its built-ins and its path.
    """
    word = command.split(maxsplit=1)[0] if command.strip() else ""
    if _PLAIN.fullmatch(word) is None:
        return
    found = subprocess.run(  # noqa: S603  (the command is the user's)
        ["/bin/sh", "-c", 'command -v "$1"', "sh", word], stdout=subprocess.DEVNULL, check=False
    )
    if found.returncode:
        raise UsageError(
            f'{option}: no program "{word}"', hint="give its full path, or install it where $PATH finds it"
        )


class Ended(NamedTuple):
    """A program that has ended: its exit status, negative for a signal, None if it took too long."""

    delivered: Delivered
    status: int | None

    @property
    def is_ok(self) -> bool:
        """Whether the message is consumed."""
        return self.status == 0

    @property
    def words(self) -> str:
        """The result in words."""
        if self.status is None:
            return "took too long and was killed"
        if self.status < 0:
            return f"was killed by signal {-self.status}"
        return f"ended with status {self.status}"


@dataclass
class _Running:
    delivered: Delivered
    process: subprocess.Popen[bytes]
    descriptor: int
    started: int


@dataclass
class Programs:
    """The running programs, at most ``most``. Without a ``timeout`` (ms) they may run forever."""

    command: str
    group: str
    most: int
    timeout: int | None
    clock: Clock
    stdout: int | None = None
    _running: dict[int, _Running] = field(default_factory=dict)

    @property
    def free(self) -> int:
        """The number of programs that may be started now."""
        return self.most - len(self._running)

    @property
    def is_idle(self) -> bool:
        """Whether no program runs."""
        return not self._running

    def start(self, delivered: Delivered) -> None:
        """Start the program with a message."""
        body = os.memfd_create("body")
        try:
            os.write(body, _body_of(delivered))
            os.lseek(body, 0, os.SEEK_SET)
            process = subprocess.Popen(  # noqa: S603  (the command is the user's)
                ["/bin/sh", "-c", self.command],
                stdin=body,
                stdout=self.stdout,
                env=os.environ | environment_of(delivered, self.group),
                process_group=0,
            )
        finally:
            os.close(body)
        descriptor = os.pidfd_open(process.pid)
        self._running[descriptor] = _Running(delivered, process, descriptor, self.clock.monotonic())

    def wait(self, most: int | None = None) -> list[Ended]:
        """Wait until a program ends or ``most`` ms have passed; return the programs that have ended."""
        poll = select.poll()
        for descriptor in self._running:
            poll.register(descriptor, select.POLLIN)
        now = self.clock.monotonic()
        limits = [one.started + self.timeout - now for one in self._running.values()] if self.timeout else []
        limits += [] if most is None else [most]
        ready = [descriptor for descriptor, _ in poll.poll(max(min(limits), 0) if limits else None)]
        now = self.clock.monotonic()
        late = [
            one.descriptor
            for one in self._running.values()
            if self.timeout and one.descriptor not in ready and now - one.started >= self.timeout
        ]
        return [self._end(descriptor) for descriptor in ready] + [self._end(one, kill=True) for one in late]

    def _end(self, descriptor: int, *, kill: bool = False) -> Ended:
        one = self._running.pop(descriptor)
        os.close(descriptor)
        if kill:
            _kill(one)
        return Ended(one.delivered, None if kill else one.process.wait())

    def kill_all(self) -> None:
        """Kill all programs. Their messages are not consumed."""
        for descriptor in list(self._running):
            self._end(descriptor, kill=True)


def _kill(one: _Running) -> None:
    with suppress(ProcessLookupError):
        os.killpg(one.process.pid, signal.SIGKILL)
    one.process.wait()


def _body_of(delivered: Delivered) -> bytes:
    message = delivered.message
    inflated = inflate_body(message.sys_flag, message.raw_body, DEFAULT_BODY_CAP)
    return message.raw_body if isinstance(inflated, Flaw) else inflated.body


def environment_of(delivered: Delivered, group: str) -> Mapping[str, str]:
    """Return the fields of a message as environment variables; each property also has one of its own."""
    message = delivered.message
    properties = message.properties
    host = message.store_host_ip, message.store_host_port
    fields: dict[str, object] = {
        "GROUP": group,
        "MEMBER": delivered.client_id,
        "TOPIC": properties.get("RETRY_TOPIC", message.topic),
        "QUEUE_ID": delivered.queue.queue_id,
        "QUEUE_OFFSET": delivered.cached.queue_offset,
        "COMMIT_LOG_OFFSET": message.physical_offset,
        "OFFSET_MSG_ID": encode_offset_msg_id(*host, message.physical_offset),
        "UNIQ_KEY": message.uniq_key or "",
        "TAGS": message.tags or "",
        "KEYS": message.keys or "",
        "FLAG": message.flag,
        "BORN_TIMESTAMP": message.born_timestamp,
        "STORE_TIMESTAMP": message.store_timestamp,
        "RECONSUME_TIMES": delivered.cached.reconsume_times,
        "PROPERTIES": json.dumps(properties),
    }
    found = {PREFIX + name: str(value) for name, value in fields.items()}
    found |= {_PROPERTY + _NO_NAME.sub("_", name): value for name, value in properties.items()}
    # An environment variable cannot contain a NUL.
    return {name: value.replace("\0", "") for name, value in found.items()}


class Consumer(Protocol):
    """The members of a group in this process: over the files of a store, or at live brokers."""

    @property
    def members(self) -> int:
        """The number of members."""

    @property
    def is_at_end(self) -> bool:
        """Whether nothing is left for now."""

    @property
    def resumes_in(self) -> int | None:
        """How long (ms) until a failed message is tried again; None if none waits."""

    def fetch(self) -> int:
        """Fetch messages."""

    def take(self, most: int) -> list[Delivered]:
        """Hand out messages."""

    def finish(self, delivered: Delivered, *, is_ok: bool) -> bool:
        """Report the result of a taken message; return whether its queue can continue."""

    def save(self) -> None:
        """Make the progress durable."""


@dataclass(frozen=True)
class Extent:
    """How much to consume: at most ``limit`` messages, until ``stopped`` returns True; ``follows`` waits at the end."""

    limit: int | None
    follows: bool
    stopped: Callable[[], bool]


def iter_shown(consumer: Consumer, extent: Extent) -> Iterator[list[Delivered] | None]:
    """Yield messages. They count as consumed when the next ones are requested."""
    left = extent.limit
    while not extent.stopped() and left != 0:
        consumer.fetch()
        # The messages in progress when the process dies are shown again, at most one pull of each member.
        at_once = PULL_BATCH_SIZE * consumer.members
        taken = consumer.take(at_once if left is None else min(left, at_once))
        if taken:
            yield taken
            for delivered in taken:
                consumer.finish(delivered, is_ok=True)
            left = None if left is None else left - len(taken)
        elif consumer.is_at_end and not extent.follows:
            break
        elif consumer.is_at_end:
            yield None
        consumer.save()
    consumer.save()


def iter_executed(consumer: Consumer, programs: Programs, extent: Extent) -> Iterator[Ended | None]:
    """Yield the result of each message. Finished messages are saved before another program is started.

    After a request to stop, no program is started, and the running ones are waited for.
    """
    left = extent.limit
    while True:
        is_ending = extent.stopped() or left == 0
        if not is_ending:
            consumer.fetch()
            taken = consumer.take(programs.free if left is None else min(left, programs.free))
            left = None if left is None else left - len(taken)
            for delivered in taken:
                programs.start(delivered)
        if programs.is_idle:
            resumes_in = consumer.resumes_in
            if is_ending or (consumer.is_at_end and not extent.follows):
                break
            if resumes_in is None or consumer.is_at_end:
                yield None
            else:
                programs.wait(resumes_in)
            continue
        ended = programs.wait(consumer.resumes_in)
        for one in ended:
            consumer.finish(one.delivered, is_ok=one.is_ok)
        consumer.save()
        yield from ended
    consumer.save()
