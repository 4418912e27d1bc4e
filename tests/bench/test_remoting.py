"""What reading and writing frames costs, beside the JSON parser that it stands on.

The frame is a send of a real Java client. Ratios are asserted, rates are printed: on one quiet core the aims are
200,000 headers a second to texts, 100,000 to typed values, and 300,000 answers out of a template. The ROCKETMQ header
is read by the compiled kernel, and then no slower than the same header in JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import timeit
from collections.abc import Callable

import pytest

from rmqtool import kernel
from rmqtool.remoting.answers import AnswerTemplate
from rmqtool.remoting.command import ANSWER, RemotingCommand, SerializeType
from rmqtool.remoting.frames import HEAD, decode_frame, encode_frame
from rmqtool.remoting.requests import REQUESTS
from rmqtool.remoting.requests.messages import SendMessageAnswer
from tests.support import wire

ROUNDS = 200
CALLS = 300

FRAME = next(raw.data for raw in wire.raw_frames() if raw.client == "5.3.3" and decode_frame(raw.data).code == 310)
COMMAND = decode_frame(FRAME)
BINARY = encode_frame(COMMAND.replaced(serialize_type=SerializeType.ROCKETMQ))
HEADER = FRAME[HEAD.size : len(FRAME) - len(COMMAND.body)].decode()
SENT = ("7F00000100002A9F0000000000000BD0", 2, 10)
ANSWERED = RemotingCommand(
    0,
    {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true", "msgId": SENT[0], "queueId": "2", "queueOffset": "10"},
    opaque=5,
    flag=ANSWER,
)
TEMPLATE = AnswerTemplate(
    SendMessageAnswer.decode_answer({"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}),
    "msg_id",
    "queue_id",
    "queue_offset",
)

JSON_FRAME, BINARY_FRAME = "JSON frame to texts", "ROCKETMQ frame to texts"

# What is measured, and how many times the time of json.loads of the header's text it may take.
WORK: dict[str, tuple[Callable[[], object], float]] = {
    JSON_FRAME: (lambda: decode_frame(FRAME), 3.0),
    "JSON frame to typed values": (lambda: REQUESTS[310].decode(decode_frame(FRAME).ext), 5.0),
    BINARY_FRAME: (lambda: decode_frame(BINARY), 4.0 if kernel.NATIVE is None else 1.5),
    "answer encoded": (lambda: encode_frame(ANSWERED), 1.5),
    "answer out of a template": (lambda: TEMPLATE.encode(SerializeType.JSON, 5, SENT), 1.2),
    "ROCKETMQ answer out of a template": (lambda: TEMPLATE.encode(SerializeType.ROCKETMQ, 5, SENT), 1.3),
}

pytestmark = pytest.mark.bench


def seconds(acts: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Return the least time of one call of each, taken in turns so that a busy machine disturbs all alike."""
    best = dict.fromkeys(acts, float("inf"))
    for _ in range(ROUNDS):
        for name, act in acts.items():
            best[name] = min(best[name], timeit.timeit(act, number=CALLS) / CALLS)
    return best


def test_frames_beside_the_json_parser() -> None:
    parser = "json.loads"
    times = seconds({parser: lambda: json.loads(HEADER)} | {name: act for name, (act, _) in WORK.items()})
    base = times.pop(parser)
    print(f"\n{parser} of a header of {len(HEADER)} bytes: {1 / base:,.0f}/s")
    for name, took in times.items():
        print(f"{name}: {1 / took:,.0f}/s, {took / base:.2f} times")
    if kernel.NATIVE is not None:
        assert times[BINARY_FRAME] <= times[JSON_FRAME]
    assert {name: took / base for name, took in times.items() if took / base > WORK[name][1]} == {}


def test_what_is_measured_is_right() -> None:
    assert TEMPLATE.encode(SerializeType.JSON, 5, SENT) == encode_frame(ANSWERED)
    assert decode_frame(BINARY).ext == COMMAND.ext
    assert 350 <= len(HEADER) <= 400


def test_what_importing_the_wire_costs() -> None:
    """Beside what the standard library's part of it costs; that nothing heavy is loaded others assert."""
    code = (
        "import time, rmqtool; a = time.process_time(); import enum, json, re, struct, zlib\n"
        "b = time.process_time(); import rmqtool.remoting; c = time.process_time(); import rmqtool.remoting.requests\n"
        "print((b - a) * 1e3, (c - b) * 1e3, (time.process_time() - c) * 1e3)"
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    runs = []
    for _ in range(15):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
        runs.append([float(word) for word in done.stdout.split()])
    library, wire_itself, table = (min(column) for column in zip(*runs, strict=True))
    print(f"\nstandard library {library:.1f} ms, rmqtool.remoting {wire_itself:.1f} ms, its table {table:.1f} ms")
    assert wire_itself < library
