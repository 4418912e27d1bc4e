"""Frames that nobody wrote on purpose: nothing escapes but the declared errors, in bounded time and memory.

Recorded frames are cut, spliced, changed in single bits and in their lengths, and have words put in that parsers trip
over. What a frame says is then used as a server uses it: typed fields, rights, signature, body, log line, answer.
A part of the long run is guided: an input that reaches a line no other reached is changed further.
"""

from __future__ import annotations

import random
import sys
import time
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import rmqtool.remoting
from rmqtool.remoting import access, answers
from rmqtool.remoting.body import Body, BodyError
from rmqtool.remoting.command import FrameError, RemotingCommand, SerializeType
from rmqtool.remoting.declared import HeaderError
from rmqtool.remoting.frames import FrameDecoder, decode_frame, encode_frame
from rmqtool.remoting.requests import REQUESTS
from rmqtool.remoting.signature import is_signed
from rmqtool.remoting.wire_log import line_of
from tests.support import wire

SLICE = 5_000
ALL = 50_000
ROOM = str(Path(rmqtool.remoting.__file__).parent)

# What parsers trip over: brackets, quotes, escapes, numbers of all sizes, halves of characters, lengths.
WORDS = [
    b"{", b"}", b"[", b"]", b'"', b"\\", b":", b",", b'\\"', b"\\u0000", b"\\ud800", b"\\u", b"null", b"true", b"NaN",
    b"-Infinity", b"1e999", b"-0", b"2147483648", b"9223372036854775808", b"1" * 400, b"0x10", b" ", b"\x00", b"\xff",
    b"\xc3", b"\xed\xa0\x80", b"\xf0\x9f\x98\x80", b"\x00\x00\x00\x00", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff",
    b"{{}:{}}", b"[[", b'{"a":{"a":{"a":', b'"extFields":{', b'"queueId":"x"', b"%RETRY%",
]  # fmt: skip


def seeds() -> list[bytes]:
    """Return one recorded frame of every kind: code, header, side, and whether there is a body."""
    found: dict[tuple[object, ...], bytes] = {}
    for raw, command, row in wire.told(wire.raw_frames()):
        kind = (row and row.name, command.is_answer, command.code, command.serialize_type, bool(command.body))
        found.setdefault((*kind, raw.client in ("go", "cpp", "node")), raw.data)
    return list(found.values())


def mutate(dice: random.Random, data: bytes, other: bytes) -> bytes:
    """Return ``data`` changed in one to four ways."""
    made = bytearray(data)
    for _ in range(dice.randint(1, 4)):
        at = dice.randrange(len(made) + 1)
        match dice.randrange(7):
            case 0 if made:
                made[at % len(made)] ^= 1 << dice.randrange(8)
            case 1:
                del made[at : at + dice.randint(1, 40)]
            case 2:
                made[at:at] = dice.choice(WORDS) * dice.choice((1, 1, 1, 2, 40))
            case 3:
                made[at : at + 4] = dice.choice(WORDS)
            case 4 if len(made) >= 8:
                made[dice.choice((0, 4)) : 8] = dice.randbytes(4)
            case 5:
                cut = dice.randrange(len(other) + 1)
                made[at:] = other[cut:]
            case _:
                made[at:at] = made[at : at + dice.randint(1, 200)]
    if dice.random() < 0.8 and len(made) >= 8:
        # Lengths that fit again, so that what is inside is reached.
        header = (
            min(int.from_bytes(made[5:8]), len(made) - 8) if dice.random() < 0.5 else dice.randint(0, len(made) - 8)
        )
        made[:8] = (len(made) - 4).to_bytes(4) + bytes([made[4] & 1 if dice.random() < 0.9 else made[4]])
        made[5:5] = header.to_bytes(3)
    return bytes(made)


def rephrase(dice: random.Random, data: bytes, other: bytes) -> bytes:
    """Return a frame that is one, but says other things than ``data``: fields, body, code or header of another."""
    try:
        command, second = decode_frame(data), decode_frame(other)
    except FrameError:
        return mutate(dice, data, other)
    fields = dict(command.ext)
    for _ in range(dice.randint(1, 3)):
        word = str(dice.choice(WORDS), "utf-8", "replace")
        name = dice.choice([*fields, *second.ext, word])
        if dice.random() < 0.3:
            fields.pop(name, None)
        else:
            fields[name] = dice.choice((word, second.ext.get(name, ""), fields.get(name, "") + word))
    body = dice.choice((command.body, second.body, mutate(dice, command.body, second.body)))
    kind = dice.choice(list(SerializeType)) if abs(second.code) < 0x8000 > command.code else SerializeType.JSON
    code = dice.choice((command.code, command.code, second.code))
    return encode_frame(command.replaced(code=code, ext_fields=fields, body=body, serialize_type=kind))


def disturb(dice: random.Random, corpus: list[bytes]) -> bytes:
    """Return one of the frames, changed in its bytes or in what it says."""
    change = dice.choice((mutate, rephrase))
    return change(dice, dice.choice(corpus), dice.choice(corpus))


def use(data: bytes, dice: random.Random) -> int:
    """Do with some bytes what a server does; return how many commands were in them. Only FrameError may come out."""
    decoder = FrameDecoder()
    count = 0
    cut = dice.randrange(len(data) + 1)
    for part in (data[:cut], data[cut:]):
        for command in decoder.feed(part):
            count += 1
            serve(command)
    return count


def serve(command: RemotingCommand) -> None:
    line = line_of(command)
    assert "\n" not in line
    is_signed(command, "12345678")
    row = REQUESTS.get(command.code)
    answer = answers.refuse(command, answers.UNSUPPORTED, "5.3", code=command.code)
    if row is not None:
        try:
            request = row.decode(command.ext)
            access.needs(request, command.body)
            access.old_needs(row.code, request, command.body)
            row.encode(request)
            row.request.answer.decode_answer(command.ext)
            for kind in (row.request.body, row.request.answer_body):
                if isinstance(kind, type) and issubclass(kind, Body):
                    kind.decode(command.body).encode()
        except (HeaderError, BodyError) as error:
            answer = answers.unreadable(command, error)
    assert decode_frame(encode_frame(answer)).opaque == command.opaque


def bombard(corpus: list[bytes], count: int, seed: int, after: Callable[[bytes], None] | None = None) -> int:
    """Use ``count`` mutated frames; return how many commands came out of them."""
    dice = random.Random(seed)
    commands = 0
    for _ in range(count):
        data = disturb(dice, corpus)
        with suppress(FrameError):
            commands += use(data, dice)
        if after is not None:
            after(data)
    return commands


def test_seeds_themselves_are_served() -> None:
    assert len(seeds()) > 150
    assert sum(use(data, random.Random(1)) for data in seeds()) == len(seeds())


def test_mutated_frames() -> None:
    commands = bombard(seeds(), SLICE, seed=1)
    # Neither all refused at the first byte, nor all taken.
    assert SLICE // 3 < commands < SLICE


def test_mutated_frames_in_little_memory() -> None:
    def look(data: bytes) -> None:
        peak = tracemalloc.get_traced_memory()[1] - base
        # What is made of JSON is larger than its text: a list of two characters is an object of 56 bytes and more.
        assert peak < 100 * len(data) + 300_000, data
        tracemalloc.reset_peak()

    corpus = seeds()
    bombard(corpus, 300, seed=3)
    tracemalloc.start()
    try:
        base = tracemalloc.get_traced_memory()[0]
        bombard(corpus, 600, seed=3, after=look)
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_many_mutated_frames() -> None:
    assert bombard(seeds(), ALL // 2, seed=2) > ALL // 10


class Lines:
    """The lines of the room that ran."""

    def __init__(self) -> None:
        self.seen: set[tuple[str, int]] = set()
        self.new = False

    def trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "call" and not frame.f_code.co_filename.startswith(ROOM):
            return None
        place = (frame.f_code.co_filename, frame.f_lineno)
        if place not in self.seen:
            self.seen.add(place)
            self.new = True
        return self.trace


@pytest.mark.slow
def test_guided_mutated_frames() -> None:
    dice = random.Random(4)
    corpus = seeds()
    lines = Lines()
    for data in corpus:
        sys.settrace(lines.trace)
        try:
            use(data, dice)
        finally:
            sys.settrace(None)
    first = len(lines.seen)
    kept = 0
    for _ in range(ALL // 2):
        data = disturb(dice, corpus)
        lines.new = False
        sys.settrace(lines.trace)
        try:
            with suppress(FrameError):
                use(data, dice)
        finally:
            sys.settrace(None)
        if lines.new:
            corpus.append(data)
            kept += 1
    # It found its way into refusals that no recorded frame takes.
    assert len(lines.seen) > first + 20
    assert kept > 10


HOSTILE: dict[str, Callable[[int], bytes]] = {
    "quotes that open": lambda n: b'{"a":"' + b'\\"' * n,
    "strings": lambda n: b'{"a":' + b'""' * n,
    "brackets": lambda n: b'{"a":' + b"[" * n,
    "commas": lambda n: b"{" + b"," * n,
    "digits": lambda n: b'{"code":' + b"1" * n,
    "escapes": lambda n: b'{"a":"' + b"\\u0041" * n + b'"}',
}
BODIES: dict[str, Callable[[int], bytes]] = {
    "keys": lambda n: b'{"a":{' + b"{}:1," * n,
    "open keys": lambda n: b'{"a":{' + b'{"b"' * n,
    "bare keys": lambda n: b'{"a":{' + b"1:1," * n,
    "open strings as keys": lambda n: b'{"a":{' + b'{"' * n,
    "blanks before a colon": lambda n: b'{"a":{1' + b" " * n,
}


def seconds(act: Callable[[], object]) -> float:
    """Return the least processor time of some runs."""
    times = []
    for _ in range(5):
        begun = time.process_time()
        act()
        times.append(time.process_time() - begun)
    return min(times)


@pytest.mark.parametrize("lay", [*HOSTILE.values(), *BODIES.values()], ids=[*HOSTILE, *BODIES])
def test_time_grows_with_the_bytes(lay: Callable[[int], bytes]) -> None:
    """Eight times the bytes may take eight times the time, with room for chance; not sixty-four times."""

    def act(data: bytes) -> None:
        if lay in HOSTILE.values():
            head = (len(data) + 4).to_bytes(4) + b"\x00" + len(data).to_bytes(3)
            try:
                decode_frame(head + data)
            except FrameError:
                return
        else:
            try:
                REQUESTS[34].request.body.decode(data)
            except BodyError:
                return

    small, large = lay(8_000), lay(64_000)
    assert seconds(lambda: act(large)) < 30 * max(seconds(lambda: act(small)), 1e-4)
