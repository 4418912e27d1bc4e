"""Stores of killed brokers: a real one serves what ours acknowledged, and ours goes on where a real one was."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtool.formats.commit_log import Message, decode_record
from rmqtool.formats.response_codes import ResponseCode
from tests.conformance.oracle.runs import broker_on
from tests.crash.test_serve_kill import QUEUES, SETTINGS, TOPIC, kill_after, run_kills
from tests.support.serve_process import ServeProcess
from tests.support.wire_client import WireClient, heartbeat, pull_fields, send_fields

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(300)]

RealClasses = Callable[[str], None]
SECONDS = 120
GROUP, SENT, TAKEN = "Goes-on", 60, 20
SIZES = {name: value for name, value in SETTINGS.items() if name != "deleteWhen"}
# A busy machine is no reason to refuse a message.
REAL = SIZES | {"brokerFastFailureEnable": "false", "flushConsumerOffsetInterval": "200", "deleteWhen": "99"}


def pulled(client: WireClient, topic: str, queue: int, offset: int = 0) -> dict[tuple[int, int], bytes]:
    """Return the bodies of a queue from an offset to its end."""
    found: dict[tuple[int, int], bytes] = {}
    while True:
        answer = client.ask(11, pull_fields(topic, offset, group=GROUP) | {"queueId": queue})
        if answer.code != ResponseCode.SUCCESS:
            assert answer.code == ResponseCode.PULL_NOT_FOUND, answer
            return found
        at = 0
        while at < len(answer.body):
            record = decode_record(answer.body, at)
            assert isinstance(record, Message)
            found[queue, record.queue_offset] = record.raw_body
            at += record.total_size
        offset = int(answer.ext["nextBeginOffset"])


@pytest.mark.parametrize("version", ["5.3.3", "5.4.0"])
def test_a_real_broker_serves_what_a_killed_server_acknowledged(
    version: str, real_classes: RealClasses, tmp_path: Path
) -> None:
    real_classes(version)
    root = tmp_path / "store"
    acknowledged = run_kills(root, tmp_path, 2)
    acknowledged |= kill_after(ServeProcess(root, tmp_path), "last", 40, 0.02)
    with (
        broker_on(version, root, settings=REAL, seconds=SECONDS) as (addresses, _),
        WireClient(addresses.broker) as client,
    ):
        client.ask(34, {}, heartbeat("reader", GROUP, {TOPIC: "*"}))
        served: dict[tuple[int, int], bytes] = {}
        for queue in range(QUEUES):
            served |= pulled(client, TOPIC, queue)
    assert {place: body for place, body in acknowledged.items() if served.get(place) != body} == {}


def test_a_server_goes_on_with_the_store_of_a_killed_broker(real_classes: RealClasses, tmp_path: Path) -> None:
    real_classes("5.3.3")
    root = tmp_path / "store"
    root.mkdir()
    with broker_on("5.3.3", root, settings=REAL, seconds=SECONDS) as (addresses, process):
        with WireClient(addresses.broker) as client:
            client.ask(34, {}, heartbeat("reader", GROUP, {TOPIC: "*"}))
            for number in range(SENT):
                assert client.ask(310, send_fields(TOPIC), b"%d" % number).code == 0
            progress = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0}
            assert client.ask(15, progress | {"commitOffset": TAKEN}).code == 0
            wait_for(lambda: f'"{TOPIC}@{GROUP}":{{0:{TAKEN}}}' in read(root / "config" / "consumerOffset.json"))
        process.kill()
        process.wait()
    settings = [word for name, value in SIZES.items() for word in ("--conf", f"{name}={value}")]
    server = ServeProcess(root, tmp_path, *settings)
    try:
        assert server.ready["recovered"]
        with WireClient(server.broker) as client:
            client.ask(34, {}, heartbeat("reader", GROUP, {TOPIC: "*"}))
            assert client.ask(14, progress).ext["offset"] == str(TAKEN)
            expected = {(0, number): b"%d" % number for number in range(TAKEN, SENT)}
            assert pulled(client, TOPIC, 0, TAKEN) == expected
            assert client.ask(310, send_fields(TOPIC), b"more").ext["queueOffset"] == str(SENT)
        assert server.stop() == 0
    finally:
        server.kill()


def read(path: Path) -> str:
    return "".join(path.read_text().split()) if path.exists() else ""


def wait_for(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.05)
