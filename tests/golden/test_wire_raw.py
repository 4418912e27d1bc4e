"""Recorded frames, byte by byte: of three brokers, and of clients in Java, Go, C++ and JavaScript, with keys too."""

from __future__ import annotations

import random
import re
from collections import Counter

import pytest

from rmqtool.remoting import answers
from rmqtool.remoting.answers import Refusal
from rmqtool.remoting.body import Body, read_json
from rmqtool.remoting.command import FrameError, Language, RemotingCommand
from rmqtool.remoting.declared import HeaderError
from rmqtool.remoting.frames import FrameDecoder, decode_frame, encode_frame
from rmqtool.remoting.signature import SIGNATURE, is_signed, signed_content
from tests.support import wire
from tests.support.wire import SECRET_KEY, Told

FRAMES = 8547
# Clients that are not canonical: their members come in another order, or with blanks.
OTHER_ENCODERS = {"go", "go+acl", "cpp", "node"}


@pytest.fixture(scope="module")
def told() -> list[Told]:
    return list(wire.told(wire.raw_frames()))


def test_all_are_there(told: list[Told]) -> None:
    assert len(told) == FRAMES
    assert Counter(raw.broker for raw, *_ in told) == {"4.9.7": 3017, "5.3.3": 2470, "5.4.0": 3060}
    assert {raw.client for raw, *_ in told} == {
        "4.9.7", "5.3.3", "5.5.0", "4.9.7+acl", "5.3.3+acl", "5.5.0+acl", "5.3.3+rocketmq", "go", "go+acl", "cpp",
        "node", "mqadmin",
    }  # fmt: skip


def test_what_java_wrote_is_written_to_the_byte(told: list[Told]) -> None:
    same = Counter[str]()
    for raw, command, _ in told:
        again = encode_frame(command)
        if raw.from_client and raw.client in OTHER_ENCODERS:
            assert decode_frame(again) == command
            same["other"] += again == raw.data
        else:
            assert again == raw.data
            same[command.serialize_type.name] += 1
    assert same == {"JSON": 7328, "ROCKETMQ": 165, "other": 0}


def test_a_connection_is_a_stream_of_them(told: list[Told]) -> None:
    stream = b"".join(raw.data for raw, *_ in told)
    dice = random.Random(5)
    decoder, found, at = FrameDecoder(), [], 0
    while at < len(stream):
        size = dice.choice((1, 3, 7, 100, 4096, 65536))
        found += decoder.feed(stream[at : at + size])
        at += size
    assert found == [command for _, command, _ in told]
    assert decoder.pending == 0


def test_fields_become_typed_values_and_equal_fields_again(told: list[Told]) -> None:
    compared = Counter[str]()
    for raw, command, row in told:
        if row is None:
            continue
        own = {name: text for name, text in command.ext.items() if name not in wire.HOOKS}
        if command.is_answer:
            assert row.request.answer.decode_answer(command.ext).encode() == own, command
        else:
            request = row.decode(command.ext)
            assert row.encode(request) == own or (raw.client == "cpp" and row.decode(row.encode(request)) == request)
            # The C++ client writes false as 0, which is false to Java too.
            compared["other spelling"] += row.encode(request) != own
        compared["answers" if command.is_answer else "requests"] += 1
    assert compared == {"requests": 4777, "answers": 3770, "other spelling": 15}
    assert {command.code for _, command, row in told if row is None and not command.is_answer} == set()


def test_bodies_become_typed_values_and_equal_json_again(told: list[Told]) -> None:
    compared = Counter[str]()
    for raw, command, row in told:
        if row is None or not command.body or (command.is_answer and command.code):
            continue
        kind = row.request.answer_body if command.is_answer else row.request.body
        if not (isinstance(kind, type) and issubclass(kind, Body)):
            continue
        value = kind.decode(command.body)
        # The C++ client writes enumerations by number and versions as texts.
        same = read_json(value.encode()) == read_json(command.body) or raw.client == "cpp"
        assert same, (row.name, command.body)
        assert kind.decode(value.encode()) == value
        compared[kind.__name__] += 1
    assert (sum(compared.values()), len(compared)) == (1690, 27), compared


def pattern_of(refusal: Refusal, version: str) -> re.Pattern[str]:
    holes = {name: f"<{name}>" for name in re.findall(r"\{(\w+)\}", refusal.text) if name != "see"}
    text = re.escape(refusal.of(version, **holes)[1])
    return re.compile(re.sub(r"<\w+>", ".*", text))


def test_refusals_are_in_our_words(told: list[Told]) -> None:
    """Every remark of an answer that says no is one of the table, with its code, by the version of the broker."""
    known = [value for value in vars(answers).values() if isinstance(value, Refusal)]
    seen = Counter[int]()
    for raw, command, _ in told:
        # 19 and 20 carry the state of the store, not a refusal.
        if raw.from_client or not command.is_answer or not command.remark or command.code in (0, 19, 20, 21):
            continue
        assert any(
            refusal.of(raw.broker, **{hole: 0 for hole in re.findall(r"\{(\w+)\}", refusal.text) if hole != "see"})[0]
            == command.code
            and pattern_of(refusal, raw.broker).fullmatch(command.remark)
            for refusal in known
        ), (raw.broker, command.code, command.remark)
        seen[command.code] += 1
    assert seen == {1: 29, 3: 24, 17: 80, 22: 72, 25: 7, 206: 1}


def signed(told: list[Told]) -> list[RemotingCommand]:
    return [
        command
        for raw, command, _ in told
        if raw.from_client and raw.is_signed and not command.is_answer and SIGNATURE in command.ext
    ]


def test_signatures_of_unmodified_clients_verify(told: list[Told]) -> None:
    by_client = Counter[str]()
    for command in signed(told):
        assert is_signed(command, SECRET_KEY), command
        assert not is_signed(command, SECRET_KEY + "9")
        assert command.language is not None
        by_client[f"{command.language.name} {command.version}"] += 1
    assert by_client == {"JAVA 407": 406, "JAVA 479": 315, "JAVA 513": 334, "GO 317": 513, "JAVA 78": 69}
    # The C++ client signs with an empty key where it was given none.
    unkeyed = [command for raw, command, _ in told if raw.client == "cpp" and SIGNATURE in command.ext]
    assert len(unkeyed) == 109
    assert all(command.language is Language.CPP and is_signed(command, "") for command in unkeyed)


def content_of(command: RemotingCommand) -> tuple[bytes, str | None]:
    return signed_content(command.ext, command.body), command.ext.get(SIGNATURE)


def changed(command: RemotingCommand, bit: int) -> bool | None:
    """Whether a request with one bit of its frame changed still verifies; None where nothing signed changed.

    Names of fields are not signed, only the order that they give to the values; nor is the rest of the header.
    """
    data = bytearray(encode_frame(command))
    data[bit >> 3] ^= 1 << (bit & 7)
    try:
        other = decode_frame(bytes(data))
    except (FrameError, HeaderError):
        return False
    if content_of(other) == content_of(command):
        return None
    return is_signed(other, SECRET_KEY)


def test_one_changed_bit_is_refused(told: list[Told]) -> None:
    dice = random.Random(27)
    refused = 0
    for command in signed(told):
        for bit in dice.sample(range(64, 8 * len(encode_frame(command))), 4):
            verdict = changed(command, bit)
            assert not verdict, (command, bit)
            refused += verdict is False
    assert refused > 4000


@pytest.mark.slow
def test_every_changed_bit_is_refused(told: list[Told]) -> None:
    chosen = random.Random(28).sample(signed(told), 300)
    refused = 0
    for command in chosen:
        for bit in range(64, 8 * len(encode_frame(command))):
            verdict = changed(command, bit)
            assert not verdict, (command, bit)
            refused += verdict is False
    assert refused > 400_000
