"""What the peer measures of the real store, done with the engine: one scenario in a process of its own, one JSON line.

    python -m tests.bench.engine_puts async DIRECTORY --messages 200000 [--warm 20000] [--threads N]

``producer`` and ``producer-many`` go through ``Producer``, as ``rmqtool produce`` and the library do: the queue is
chosen, UNIQ_KEY, WAIT and what the broker adds are made, and what is stored is dispatched in passes.

A message is as the peer's: topic ``BenchTopic{i%4}``, queue ``i/4%4``, KEYS, TAGS and UNIQ_KEY, a body of one size.
Making it is part of the time, as it is there; ``build_us`` says how much that is.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from rmqtool.broker.producer.send import ANY_QUEUE, Producer
from rmqtool.broker.topics import TopicConfigs
from rmqtool.config import FlushDiskType, Origin, StoreConfig, Version
from rmqtool.engine.message import NewMessage
from rmqtool.engine.parts import Setup
from rmqtool.engine.put_columns import MessageColumns
from rmqtool.engine.store import MessageStore
from rmqtool.files.posix_write import PosixWritableFileSystem
from rmqtool.formats.paths import TOPICS as TOPICS_FILE
from rmqtool.store.config_files import config_text

TOPICS = [f"BenchTopic{number}" for number in range(4)]
TAGS = [f"Tag{letter}" for letter in "ABCDEFGH"]
COLUMNS = 5_000
SYNC = ("sync", "pipelined")


def a_message(number: int, body: bytes) -> NewMessage:
    """Return message ``number``, with the properties that a client gives it."""
    properties = {
        "KEYS": f"key{100_000_000 + number}",
        "UNIQ_KEY": f"{number:032X}",
        "WAIT": "true",
        "TAGS": TAGS[number & 7],
    }
    return NewMessage(TOPICS[number & 3], body, number >> 2 & 3, properties)


def some_columns(first: int, count: int, body: bytes) -> MessageColumns:
    """Return messages by columns."""
    numbers = range(first, first + count)
    return MessageColumns(
        [TOPICS[number & 3] for number in numbers],
        [body] * count,
        [b"KEYS\x01key%d\x02UNIQ_KEY\x01%032X\x02TAGS\x01Tag%c" % (100_000_000 + n, n, 65 + (n & 7)) for n in numbers],
        [number >> 2 & 3 for number in numbers],
    )


def put_each(store: MessageStore, first: int, count: int, body: bytes, step: int = 1) -> None:
    """Put one message after the other, each acknowledged before the next."""
    for number in range(first, first + count, step):
        assert store.put(a_message(number, body)).is_ok


def put_pipelined(store: MessageStore, first: int, count: int, body: bytes, window: int = 512) -> None:
    """Wait for a message only when so many are open."""
    open_tickets: deque[object] = deque()
    for number in range(first, first + count):
        open_tickets.append(store.put_async(a_message(number, body)))
        if len(open_tickets) >= window:
            assert store.wait(open_tickets.popleft()).is_stored  # type: ignore[arg-type]
    while open_tickets:
        assert store.wait(open_tickets.popleft()).is_stored  # type: ignore[arg-type]


def put_many(store: MessageStore, first: int, count: int, body: bytes) -> None:
    """Put many at once."""
    for begin in range(first, first + count, COLUMNS):
        numbers = range(begin, min(begin + COLUMNS, first + count))
        assert all(ticket.is_ok for ticket in store.put_many(a_message(number, body) for number in numbers))


def put_columns(store: MessageStore, first: int, count: int, body: bytes) -> None:
    """Put by columns."""
    for begin in range(first, first + count, COLUMNS):
        assert not store.put_columns(some_columns(begin, min(COLUMNS, first + count - begin), body)).refused


def send_each(store: MessageStore, first: int, count: int, body: bytes) -> None:
    """Send one message after the other through a producer; it gives them the properties of a real client's."""
    producer = a_producer(store)
    for number in range(first, first + count):
        message = a_sent_message(number, body)
        producer.check(message)
        assert producer.send((message,)).stored


def send_many(store: MessageStore, first: int, count: int, body: bytes) -> None:
    """Send many a call through a producer."""
    producer = a_producer(store)
    for begin in range(first, first + count, COLUMNS):
        messages = [a_sent_message(number, body) for number in range(begin, min(begin + COLUMNS, first + count))]
        for message in messages:
            producer.check(message)
        assert producer.send(messages).stored == len(messages)


def a_producer(store: MessageStore) -> Producer:
    """Return a producer for a store that is open."""
    setup = store.setup
    topics = TopicConfigs(config_text(setup.files, TOPICS_FILE), setup.config.version, setup.clock)
    return Producer(store, topics, creates=True)


def a_sent_message(number: int, body: bytes) -> NewMessage:
    """Return message ``number`` as a user gives it to a producer."""
    properties = {"KEYS": f"key{100_000_000 + number}", "TAGS": TAGS[number & 7]}
    return NewMessage(TOPICS[number & 3], body, ANY_QUEUE, properties)


def put_in_threads(store: MessageStore, first: int, count: int, body: bytes, threads: int) -> None:
    """Put from several threads, each acknowledged before its next."""
    workers = [
        threading.Thread(target=put_each, args=(store, first + number, count - number, body, threads))
        for number in range(threads)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def processor_time() -> float:
    """Return the CPU time of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def catch_up(store: MessageStore) -> None:
    """Wait until everything is dispatched."""
    while store.condition().dispatched_offset < store.condition().committed_offset:
        store.dispatch_now()


def measure(arguments: argparse.Namespace) -> dict[str, float]:
    """Run one scenario."""
    body = b"x" * arguments.body
    directory = Path(arguments.directory)
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    scenario: str = arguments.scenario
    flush = FlushDiskType.SYNC_FLUSH if scenario in SYNC else FlushDiskType.ASYNC_FLUSH
    values = {"storePathRootDir": str(directory), "flushDiskType": flush}
    config = StoreConfig.default(Version(arguments.version)).with_values(values, Origin.COMMAND_LINE)
    setup = Setup(PosixWritableFileSystem(str(directory)), config)
    put: dict[str, Callable[[MessageStore, int, int, bytes], None]] = {
        "async": put_each,
        "columns": put_columns,
        "many": put_many,
        "pipelined": put_pipelined,
        "producer": send_each,
        "producer-many": send_many,
        "sync": lambda *given: put_in_threads(*given, arguments.threads),
    }
    messages, warm = arguments.messages, arguments.warm
    with MessageStore.create(setup) as store:
        # The libraries are loaded, and the dispatch has taken its way once.
        put_columns(store, 0, COLUMNS, body)
        put[scenario](store, 0, warm, body)
        catch_up(store)
        if not scenario.startswith("producer"):
            # A producer flushes and dispatches by itself; the others have threads beside them.
            store.start()
            time.sleep(0.2)
        before, start = processor_time(), time.perf_counter()
        put[scenario](store, warm, messages, body)
        acknowledged = time.perf_counter()
        catch_up(store)
        after, end = processor_time(), time.perf_counter()
    build_before = processor_time()
    if scenario == "columns":
        for begin in range(0, messages, COLUMNS):
            some_columns(begin, COLUMNS, body)
    else:
        for number in range(messages):
            (a_sent_message if scenario.startswith("producer") else a_message)(number, body)
    built = processor_time() - build_before
    return {
        "messages": messages,
        "us_msg": (acknowledged - start) * 1e6 / messages,
        "us_msg_dispatched": (end - start) * 1e6 / messages,
        "cpu_us_msg": (after - before) * 1e6 / messages,
        "build_us_msg": built * 1e6 / messages,
        "msg_s": messages / (acknowledged - start),
        "rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def measure_rebuild(arguments: argparse.Namespace) -> dict[str, float]:
    """Delete queues and index of the store that is there, and open it."""
    directory = Path(arguments.directory)
    for name in ("consumequeue", "index"):
        shutil.rmtree(directory / name)
    values = {"storePathRootDir": str(directory)}
    config = StoreConfig.default(Version(arguments.version)).with_values(values, Origin.COMMAND_LINE)
    before, start = processor_time(), time.perf_counter()
    with MessageStore.open(Setup(PosixWritableFileSystem(str(directory)), config)) as store:
        # As the peer: until the last record is dispatched, and before anything is forced.
        after, end = processor_time(), time.perf_counter()
        units = sum(queue.max_offset for queue in store.queues())
    return {
        "messages": units,
        "us_msg": (end - start) * 1e6 / units,
        "cpu_us_msg": (after - before) * 1e6 / units,
        "rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def main() -> int:
    """Measure what the command line says."""
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "scenario", choices=("async", "columns", "many", "pipelined", "producer", "producer-many", "sync", "rebuild")
    )
    parser.add_argument("directory")
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--warm", type=int, default=20_000)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--body", type=int, default=100)
    parser.add_argument("--version", default="4.9")
    arguments = parser.parse_args()
    found = measure_rebuild(arguments) if arguments.scenario == "rebuild" else measure(arguments)
    sys.stdout.write(json.dumps({"scenario": arguments.scenario} | {k: round(v, 3) for k, v in found.items()}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
