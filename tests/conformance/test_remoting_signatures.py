"""Requests that the real client hook signs verify here, and the real classes compute the signatures that we make."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from rmqtool.remoting.command import SerializeType
from rmqtool.remoting.frames import FrameDecoder, encode_frame
from rmqtool.remoting.signature import SIGNATURE, is_signed, sign
from tests.conformance.remoting_classes import class_path
from tests.support import wire_values

PROGRAM = Path(__file__).parent / "java" / "SignatureExchange.java"
REQUESTS = 1_000
KEY, SECRET = "rocketmq2", "12345678"

pytestmark = [pytest.mark.conformance, pytest.mark.parametrize("version", ["4.9.7", "5.3.3", "5.5.0"])]


def run(version: str, folder: Path, *words: object) -> None:
    if shutil.which("javac") is None:
        pytest.skip("javac is not installed")
    jars = class_path(version)
    subprocess.run(["javac", "-nowarn", "-cp", jars, "-d", str(folder), str(PROGRAM)], check=True)
    command = ["java", "-cp", f"{folder}{os.pathsep}{jars}", "SignatureExchange", *map(str, words)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def test_what_the_client_hook_signs_verifies(version: str, tmp_path: Path) -> None:
    run(version, tmp_path, "sign", tmp_path / "frames", REQUESTS, 27, KEY, SECRET)
    found = list(FrameDecoder().feed((tmp_path / "frames").read_bytes()))
    assert len(found) == REQUESTS
    assert {command.serialize_type for command in found} == set(SerializeType)
    assert {command.ext["AccessKey"] for command in found} == {KEY}
    assert [command for command in found if not is_signed(command, SECRET)] == []
    assert [command for command in found if is_signed(command, SECRET + "0")] == []
    for command in found:
        for name in command.ext.keys() - {SIGNATURE}:
            changed = command.replaced(ext_fields={**command.ext, name: command.ext[name] + "x"})
            assert not is_signed(changed, SECRET), (name, command)


def test_the_real_classes_compute_our_signatures(version: str, tmp_path: Path) -> None:
    commands = wire_values.made(wire_values.commands(), REQUESTS)
    if version == "4.9.7":  # it does not know the youngest language
        commands = [command for command in commands if command.language != 13]
    frames = [encode_frame(sign(command, KEY, SECRET)) for command in commands]
    (tmp_path / "frames").write_bytes(b"".join(frames))
    run(version, tmp_path, "check", tmp_path / "frames", tmp_path / "lines", SECRET)
    lines = (tmp_path / "lines").read_text(encoding="utf-8").splitlines()
    assert lines == ["true"] * len(frames)
    assert len(frames) > REQUESTS * 0.8
