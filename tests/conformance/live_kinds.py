"""Messages of all kinds in a real broker, or in ``serve``; read over the wire and from the files, line for line.

    unshare -Urn python -m tests.conformance.live_kinds VERSION DIRECTORY OUT MESSAGES

VERSION may be ``serve``. What is written to OUT is judged by ``test_client_kinds``.
"""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import rmqtool
from rmqtool.api.outgoing import message_of
from rmqtool.client.producer import SendResult
from rmqtool.engine.message import compressed
from rmqtool.formats.codes import BodyCodec
from tests.conformance.live_cluster import (
    ADDRESS,
    QUEUES,
    SETTINGS,
    TOPIC,
    UNLISTED,
    cluster,
    printed,
    wait_for_broker,
    wait_for_route,
)

_TEXT = 'Größe 汉字 😀 \t"quoted" \\ / <&> \u2028 '
_BYTES = bytes(range(256))
# In bytes: around the limit of compression, and of several pulls.
_SIZES = (1, 2, 100, 4095, 4096, 4097, 20_000, 65_537)
# Sizes that are rare, as they make most of the log.
_LARGE = (300_000, 1_000_000, 4_000_000)
_PROPERTIES: tuple[dict[str, str], ...] = (
    {},
    {"n": "1"},
    {"é": "ü 汉字 😀", "empty-like": " ", "a.b-c_d": "=&;,{}[]"},
    {"long": "x" * 20_000},
    {f"p{number}": str(number) for number in range(60)},
)


def _body(number: int, drawn: random.Random) -> bytes:
    kind = number % 6
    if kind == 0:
        return f"order {number}".encode()
    if kind == 1:
        return (_TEXT * 3 + str(number)).encode()
    if kind == 2:
        return drawn.randbytes(1 + number % 300)
    if kind == 3:
        return json.dumps({"id": number, "text": _TEXT, "list": [None, 1.5, True]}).encode()
    if kind == 4:
        return b"\0" * (1 + number % 5) + _BYTES
    return b"\xef\xbb\xbf\xff\xfe" + str(number).encode()


def _parts(number: int) -> dict[str, Any]:
    parts: dict[str, Any] = {}
    if number % 5:
        parts["keys"] = f"key-{number}" if number % 3 else [f"key-{number}", f"second {number % 7}", "汉字"]
    if number % 4:
        parts["tags"] = ("paid", "tag 2", "标签", "x" * 120)[number % 4]
    properties = _PROPERTIES[3 + number // 1000 % 2 if number % 1000 == 0 else number % 3]
    if properties:
        parts["properties"] = properties
    if number % 11 == 0:
        parts["flag"] = (-1, 0x7FFFFFFF, -0x80000000)[number % 3]
    if number % 13 == 0:
        parts["sharding_key"] = f"customer-{number % 5}"
    return parts


def send_kinds(client: rmqtool.Cluster, many: int, timers: bool) -> int:
    """Send messages of all kinds, and return how many of the topic."""
    drawn, count = random.Random(30), 0
    under_way: list[Future[SendResult]] = []

    def settle() -> None:
        for one in under_way:
            assert one.result(60).status == "PUT_OK"
        under_way.clear()

    with client.producer(timeout=60, compress_over=1 << 30) as producer:
        for codec in BodyCodec:
            for size in (*_SIZES, *_LARGE):
                body = (_TEXT * 100_000).encode()[:size] if codec is not BodyCodec.LZ4 else drawn.randbytes(size)
                message = compressed(message_of(TOPIC, body, tags=codec.name), codec, 0)
                assert client.run(producer.sends.send(message)).status == "PUT_OK"
                count += 1
    with client.producer(group="P", timeout=60) as producer:
        for number in range(many // 10):
            bodies = [_body(number * 5 + part, drawn) for part in range(5)]
            assert len(producer.send_batch(TOPIC, bodies, tags="batch", keys=f"batch-{number}")) == 5
            count += 5
        for number in range(20):
            producer.send_oneway(TOPIC, f"oneway {number}")
            producer.send(TOPIC, f"later {number}", delay_level=1 + number % 3)
            count += 2
            if timers:
                producer.send(TOPIC, f"timer {number}", delay=1 + number % 3)
                count += 1
        for number in range(many - count):
            size = _SIZES[number // 500 % len(_SIZES)] if number % 500 == 0 else None
            body = _body(number, drawn) if size is None else drawn.randbytes(size)
            under_way.append(producer.send_async(TOPIC, body, **_parts(number)))
            count += 1
            if len(under_way) >= 1000:
                settle()
        settle()
        for number in range(30):
            said = ("commit", "rollback", "unknown")[number % 3]

            def work(_: SendResult, said: str = said) -> str:
                return said

            producer.send_in_transaction(TOPIC, f"half {number}", work, keys=f"half-{number}")
            count += said == "commit"
    # Some come back: their copies are in the retry topic of the group, with further properties.
    with client.consumer(TOPIC, group="Back", start="first") as consumer:
        for message in consumer.poll(max_messages=50, timeout=20):
            consumer.retry(message)
        consumer.commit()
    return count


@contextlib.contextmanager
def served(directory: Path) -> Iterator[Path]:
    """Start ``serve`` with the settings of the brokers; give its store."""
    store = directory / "store"
    directory.mkdir(parents=True)
    rows = dict(line.split("=", 1) for line in SETTINGS.splitlines())
    for name in ("listenPort", "namesrvAddr"):
        del rows[name]
    rmqtool.init(store, conf=rows)
    words = [sys.executable, "-m", "rmqtool", "serve", str(store), "--jsonl"]
    with (directory / "out").open("wb") as out:
        process = subprocess.Popen(words, stdout=out, stderr=out)
    try:
        wait_for_broker()
        yield store
    finally:
        process.terminate()
        process.wait(60)


def life(version: str, directory: Path, many: int) -> dict[str, Any]:
    """Live, and return what was seen."""
    seen: dict[str, Any] = {}
    with served(directory) if version == "serve" else cluster(version, directory) as store:
        with rmqtool.connect(ADDRESS, timeout=20) as client:
            client.topic("create", TOPIC, queues=QUEUES)
            wait_for_route(client)
            seen["sent"] = send_kinds(client, many, not version.startswith("4."))
            # What is delayed is delivered, and what comes back came back.
            time.sleep(15)
            hidden = [f'"topic": "{one}"' for one in UNLISTED if one not in client.info()["topics"]]
        found = compare(store, directory, hidden)
        seen.update(found)
    return seen


def compare(store: Path, directory: Path, hidden: list[str]) -> dict[str, Any]:
    """Return what ``cat`` of the cluster and of its files have in common: both are read while the broker runs."""
    paths = directory / "live", directory / "files"
    statuses = []
    for place, path in zip((ADDRESS, store), paths, strict=True):
        words = [sys.executable, "-m", "rmqtool", "cat", str(place), "--jsonl"]
        with path.open("wb") as out:
            statuses.append(subprocess.run(words, stdout=out, check=False).returncode)
    topics: Counter[str] = Counter()
    codecs: Counter[str] = Counter()
    lines, different = 0, []
    with paths[0].open(encoding="utf-8") as live, paths[1].open(encoding="utf-8") as files:
        wanted = (line for line in files if not any(one in line for one in hidden))
        for line in live:
            lines += 1
            other = next(wanted, None)
            if line != other and len(different) < 3:
                different.append([line[:3000], other and other[:3000]])
            message = json.loads(line)
            topics[message.get("topic", "damage")] += 1
            codecs[f"{message.get('bodyCodec')} {message.get('bodyEncoding')}"] += 1
        more = sum(1 for _ in wanted)
    return {
        "statuses": statuses,
        "lines": lines,
        "different": different,
        "more": more,
        "topics": topics,
        "codecs": codecs,
        "hidden": len(hidden),
        "count": printed("cat", ADDRESS, "-t", TOPIC, "--count")[1],
    }


if __name__ == "__main__":
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    Path(sys.argv[3]).write_text(json.dumps(life(sys.argv[1], Path(sys.argv[2]), int(sys.argv[4]))))
