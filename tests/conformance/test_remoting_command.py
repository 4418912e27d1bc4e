"""The real ``RemotingCommand`` decodes our frames and we decode its own: all fields equal, in both kinds of header."""

from __future__ import annotations

import os
import shutil
import subprocess
from base64 import b64decode, b64encode
from pathlib import Path

import pytest

from rmqtool.remoting.command import RemotingCommand, SerializeType
from rmqtool.remoting.frames import FrameDecoder, encode_frame
from tests.conformance.remoting_classes import class_path
from tests.support import wire, wire_values

PROGRAM = Path(__file__).parent / "java" / "FrameExchange.java"
FRAMES = 10_000
VERSIONS = ["4.9.7", "5.3.3", "5.4.0", "5.5.0"]

pytestmark = pytest.mark.conformance


@pytest.fixture(scope="module")
def ours() -> list[RemotingCommand]:
    return wire_values.made(wire_values.commands(), FRAMES)


def run(version: str, folder: Path, *words: object) -> None:
    if shutil.which("javac") is None:
        pytest.skip("javac is not installed")
    jars = class_path(version)
    subprocess.run(["javac", "-nowarn", "-cp", jars, "-d", str(folder), str(PROGRAM)], check=True)
    command = ["java", "-Xmx512m", "-cp", f"{folder}{os.pathsep}{jars}", "FrameExchange", *map(str, words)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def told(command: RemotingCommand) -> str:
    """Return what a command says, as the real class tells it."""

    def text(value: str | None) -> str:
        return "-" if value is None else "=" + b64encode(value.encode("utf-8", "surrogatepass")).decode()

    def java_order(pair: tuple[str, str]) -> bytes:
        return pair[0].encode("utf-16-be", "surrogatepass")

    fields = [f"{text(name)} {text(value)}" for name, value in sorted(command.ext.items(), key=java_order)]
    language = "null" if command.language is None else command.language.name
    head = [command.code, language, command.version, command.opaque, command.flag, command.serialize_type.name]
    body = b64encode(command.body).decode() or "-"
    return "\t".join([*map(str, head), text(command.remark), body, *fields])


@pytest.mark.parametrize("version", VERSIONS)
def test_the_real_class_reads_ours(version: str, ours: list[RemotingCommand], tmp_path: Path) -> None:
    frames, lines = tmp_path / "frames", tmp_path / "lines"
    if version == "4.9.7":  # it does not know the youngest language
        ours = [command.replaced(language=None) if command.language == 13 else command for command in ours]
        ours = [command for command in ours if command.language is not None]
    frames.write_bytes(b"".join(map(encode_frame, ours)))
    run(version, tmp_path, "read", frames, lines)
    assert lines.read_text(encoding="utf-8").splitlines() == [told(command) for command in ours]
    assert len(ours) > FRAMES * 0.9
    kinds = [command.serialize_type for command in ours]
    assert min(kinds.count(kind) for kind in SerializeType) > FRAMES / 3


@pytest.mark.parametrize("version", VERSIONS)
def test_we_read_the_real_classs(version: str, tmp_path: Path) -> None:
    out = tmp_path / "frames"
    run(version, tmp_path, "write", out, FRAMES, 27)
    found = list(FrameDecoder().feed(out.read_bytes()))
    lines = (tmp_path / "frames.tsv").read_text(encoding="utf-8").splitlines()
    assert len(found) == len(lines) == FRAMES
    for command, line in zip(found, lines, strict=True):
        words = line.split("\t")
        if command.serialize_type is SerializeType.ROCKETMQ:
            # A text of no length does not arrive.
            words = [*words[:8], *(pair for pair in words[8:] if not pair.endswith(" ="))]
        assert told(command) == "\t".join(words)


def test_the_real_class_reads_what_clients_sent_as_we_do(tmp_path: Path) -> None:
    """Go, C++ and JavaScript included: numbers in fields, other orders, blanks."""
    raw = wire.raw_frames()
    frames, lines = tmp_path / "frames", tmp_path / "lines"
    frames.write_bytes(b"".join(frame.data for frame in raw))
    run("5.3.3", tmp_path, "read", frames, lines)
    said = lines.read_text(encoding="utf-8").splitlines()
    assert [line.split("\t")[0] for line in said].count("failed") == 0
    assert said == [told(command) for _, command, _ in wire.told(raw)]
    assert b64decode(said[0].split("\t")[8].split()[0][1:]) == b"topic"
