"""Delay levels that a broker does not start with: no command fails because of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtool.cli import main
from rmqtool.errors import Exit

LEVELS = "messageDelayLevel=1s 5q"


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["cat", "-t", "TopicTest", "--count"], Exit.DONE),
        (["produce", "-t", "TopicTest", "--create", "hello"], Exit.DONE),
        (["tick"], Exit.DONE),
        (["check", "--json"], Exit.NO),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_command_goes_on_with_the_default_levels(
    words: list[str], status: Exit, writable_store: Callable[[str], Path], capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    root = writable_store("49-basic")
    (root / "broker.conf").write_text(f"{LEVELS}\n")
    assert main([words[0], str(root), *words[1:]]) == status, capsysbinary.readouterr().err


def test_a_check_reports_them(
    writable_store: Callable[[str], Path], capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    root = writable_store("49-basic")
    (root / "broker.conf").write_text(f"{LEVELS}\n")
    main(["check", str(root), "--jsonl"])
    lines = [json.loads(line) for line in capsysbinary.readouterr().out.splitlines()]
    [found] = [line for line in lines if line.get("code") == "CF-CONF"]
    assert (found["severity"], found["file"]) == ("error", str(root / "broker.conf"))
    assert (found["broker"], found["fix"]) == ("ends after it has loaded the store", "correct the line")


@pytest.mark.parametrize("version", ["4.9", "5.3", "5.4"])
def test_a_rehearsed_broker_does_not_start_with_them(
    version: str, writable_store: Callable[[str], Path], capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    root = writable_store("49-basic")
    (root / "broker.conf").write_text(f"{LEVELS}\n")
    assert main(["recover", str(root), "--as", version, "--json"]) == Exit.NO
    found = json.loads(capsysbinary.readouterr().out)
    assert (found["loads"], found["starts"]) == (False, False)
    assert found["reason"] == "messageDelayLevel = '1s 5q' is not a list of delays, such as 1s 5s 10m"


@pytest.mark.parametrize("version", ["4.9", "5.3", "5.4"])
def test_a_broker_whose_settings_do_not_parse_never_reaches_the_store(
    version: str, writable_store: Callable[[str], Path], capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """It ends before it has opened a file, unlike one with wrong delay levels, which recovers first."""
    root = writable_store("49-basic")
    (root / "abort").touch()
    (root / "broker.conf").write_text("brokerName=C:\\users\n")
    assert main(["recover", str(root), "--as", version, "--json"]) == Exit.NO
    found = json.loads(capsysbinary.readouterr().out)
    assert (found["loads"], found["starts"], found["files"], found["logLines"]) == (False, False, [], [])
    assert found["reason"] == f"{root}/broker.conf, line 1: \\u is not followed by four hex digits"


def test_the_command_line_refuses_them(writable_store: Callable[[str], Path]) -> None:
    root = writable_store("49-basic")
    assert main(["cat", str(root), "-t", "TopicTest", "--conf", LEVELS]) == Exit.USAGE
