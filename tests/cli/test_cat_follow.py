"""``cat -f`` beside a process that writes as a broker does: every message once, in order, whole."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

# Lays records into segments that were made ahead, often in two pieces, the way a memory map is filled; retention can
# delete the oldest file behind the writer's back.
WRITER = """
import os, struct, sys, time, zlib
root, count, body, segment = sys.argv[1], *map(int, sys.argv[2:5])
PREFIX = struct.Struct(">iIiiiqqiq4siq4siiqi")
host = bytes((10, 0, 0, 1))

def path(base):
    return os.path.join(root, "commitlog", f"{base:020d}")

def make(base):
    with open(path(base), "wb") as file:
        file.truncate(segment)

def encode(at, number):
    data = b"%08d" % number + b"x" * body
    text = b"KEYS\\x01k%d\\x02UNIQ_KEY\\x01%032X\\x02" % (number, number)
    size = 88 + len(data) + 1 + 5 + 2 + len(text)
    crc = zlib.crc32(data) & 0x7FFFFFFF
    head = (size, 0xDAA320A7, crc, number % 4, 0, number // 4, at, 0, 1700000000000 + number, host, 1234)
    tail = (1700000000000 + number, host, 10911, 0, 0, len(data))
    return PREFIX.pack(*head, *tail) + data + b"\\x05Topic" + struct.pack(">h", len(text)) + text

base = at = 0
make(0); make(segment)
file = os.open(path(0), os.O_RDWR)
for number in range(count):
    one = encode(at, number)
    if len(one) + 8 > segment - (at - base):
        os.pwrite(file, struct.pack(">iI", segment - (at - base), 0xCBD43194), at - base)
        os.close(file)
        base += segment; at = base
        make(base + segment)
        file = os.open(path(base), os.O_RDWR)
        one = encode(at, number)
    cut = (number * 37) % len(one) if number % 3 else len(one)
    os.pwrite(file, one[:cut], at - base)
    if number % 997 == 0:
        time.sleep(0.002)
    if cut < len(one):
        os.pwrite(file, one[cut:], at - base + cut)
    at += len(one)
print("done", flush=True)
sys.stdin.read()
"""


def start(*words: str, **more: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, *map(str, words)], stdout=subprocess.PIPE, **more)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "checkpoint").write_bytes(bytes(4096))
    return tmp_path


@pytest.mark.parametrize("count", [10_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_all_messages_while_they_are_written(count: int, root: Path) -> None:
    reader = start("-m", "rmqtool", "cat", root, "-f", "--jsonl", "-n", count)
    writer = start("-c", WRITER, root, count, 40, 1 << 20, stdin=subprocess.PIPE)
    try:
        out, _ = reader.communicate(timeout=200)
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"done\n"
    finally:
        reader.kill()
        writer.communicate()
    lines = [json.loads(line) for line in out.splitlines()]
    assert reader.returncode == 0
    assert [line.get("damage") for line in lines if "damage" in line] == []
    assert [int(line["body"][:8]) for line in lines] == list(range(count))
    assert all(line["body"][8:] == "x" * 40 and line["keys"] == f"k{n}" for n, line in enumerate(lines))


def test_messages_that_are_asked_for_only(root: Path) -> None:
    writer = start("-c", WRITER, root, 4000, 10, 1 << 18, stdin=subprocess.PIPE)
    reader = start("-m", "rmqtool", "cat", root, "-f", "-q", "2", "--template", r"{queueId} {body}\n", "-n", 1000)
    out, _ = reader.communicate(timeout=100)
    writer.communicate()
    assert [line.split()[0] for line in out.decode().splitlines()] == ["2"] * 1000
    assert [int(line.split()[1][:8]) for line in out.decode().splitlines()] == list(range(2, 4000, 4))


def test_ctrl_c_ends_it_with_its_status(root: Path) -> None:
    # In the background of a shell the tests ignore the signal, and so do their children.
    heeding = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}
    reader = start("-m", "rmqtool", "cat", root, "-f", "--jsonl", stderr=subprocess.PIPE, **heeding)
    writer = start("-c", WRITER, root, 10, 10, 1 << 18, stdin=subprocess.PIPE)
    try:
        assert reader.stdout is not None
        first = reader.stdout.readline()
        reader.send_signal(signal.SIGINT)
        _, err = reader.communicate(timeout=60)
    finally:
        reader.kill()
        writer.communicate()
    assert json.loads(first)["body"].startswith("00000000")
    assert reader.returncode == 130
    assert json.loads(err)["error"]["code"] == "interrupted"


def test_a_pipe_that_is_closed_ends_it_quietly(root: Path) -> None:
    with start("-c", WRITER, root, 2000, 10, 1 << 20, stdin=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        with start("-m", "rmqtool", "cat", root, "--jsonl", stderr=subprocess.PIPE) as shown:
            assert shown.stdout is not None
            assert shown.stderr is not None
            shown.stdout.readline()
            shown.stdout.close()
            assert shown.stderr.read() == b""
        assert writer.stdin is not None
        writer.stdin.close()
    assert shown.returncode == 141
