"""Files whose size is a lie of the file system, and names at the end of all offsets: answered, and not for ever."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from rmqtool.cli import main
from rmqtool.errors import Exit

LAST_NAME = "09223372036854775807"


def last_of(directory: Path) -> Path:
    return sorted(path for path in directory.iterdir() if path.is_file())[-1]


def a_queue(root: Path) -> Path:
    return last_of(root / "consumequeue" / "Seq" / "0")


@pytest.fixture
def root(writable_store: Any) -> Path:
    found: Path = writable_store("49-broker")
    return found


def test_a_table_of_two_gigabytes(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.truncate(root / "config" / "topics.json", 2 << 30)
    assert main(["info", str(root), "--json"]) == Exit.DONE
    told = json.loads(capsys.readouterr().out)
    assert ("CF-JSON", "config/topics.json") in [(one["code"], one["file"]) for one in told["findings"]]
    assert main(["check", str(root), "--jsonl"]) == Exit.NO
    assert main(["recover", str(root)]) == Exit.NOT_A_STORE
    assert "topics.json has 2147483648 bytes" in capsys.readouterr().err


def test_a_segment_of_a_terabyte(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    segment = last_of(root / "commitlog")
    size = segment.stat().st_size
    main(["cat", str(root), "--jsonl"])
    before = capsys.readouterr().out
    os.truncate(segment, 1 << 40)
    for words in (["info"], ["check"], ["recover"], ["repair"]):
        assert main([words[0], str(root), *words[1:]]) in (Exit.DONE, Exit.NO, Exit.SKIPPED), words
    assert main(["recover", str(root), "--apply"]) == Exit.DONE
    assert segment.stat().st_size == size
    capsys.readouterr()
    assert main(["cat", str(root), "--jsonl"]) == Exit.DONE
    assert capsys.readouterr().out == before


@pytest.mark.parametrize("shape", ["queue", "name", "segment"])
def test_a_queue_or_a_name_at_the_end_of_all_offsets(root: Path, shape: str) -> None:
    if shape == "queue":
        os.truncate(a_queue(root), 1 << 40)
    elif shape == "name":
        a_queue(root).rename(a_queue(root).with_name(LAST_NAME))
    else:
        last_of(root / "commitlog").rename(root / "commitlog" / LAST_NAME)
    for words in (["info"], ["check"], ["stat"], ["cat"], ["consume", "-t", "*", "-g", "G"], ["repair"]):
        assert main([words[0], str(root), *words[1:]]) in (Exit.DONE, Exit.NO, Exit.SKIPPED), words
