"""Every way in which a command can end, and the status and words that it ends with."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence

import pytest

from rmqtool import errors, kernel
from rmqtool.cli import main
from rmqtool.commands.store_word import choose_store
from rmqtool.errors import Exit, RmqtoolError
from tests.cli.sample_commands import TABLE
from tests.support.waiting import PATIENCE


def run(*words: str) -> int:
    return main(words, TABLE)


def run_apart(code: str, **streams: int) -> subprocess.CompletedProcess[str]:
    """Run ``code`` in a process of its own, for what has to do with real pipes and the interpreter's end."""
    start = "import sys; from rmqtool.cli import main; from tests.cli.sample_commands import TABLE; "
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(
        [sys.executable, "-c", start + code],
        text=True,
        timeout=PATIENCE,
        check=False,
        env=environment,
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams},
    )


ERRORS = [
    ("NotFound", 1, "not-found"),
    ("UsageError", 2, "usage"),
    ("StoreError", 3, "not-a-store"),
    ("ReadFailed", 3, "read-failed"),
    ("FileMissing", 3, "read-failed"),
    ("NoMemory", 3, "out-of-memory"),
    ("DatabaseUnopened", 3, "read-failed"),
    ("RowsUnread", 6, "read-failed"),
    ("StoreInUse", 4, "in-use"),
    ("AddressTaken", 4, "address-taken"),
    ("UnknownTopic", 1, "not-found"),
    ("Refused", 5, "refused"),
    ("WriteFailed", 7, "write-failed"),
    ("NoSpace", 7, "write-failed"),
    ("OptionalMissing", 8, "optional-missing"),
    ("RemoteError", 9, "remote"),
    ("Bug", 70, "bug"),
    ("Interrupted", 130, "interrupted"),
]


def test_the_table_has_every_class_of_the_tree() -> None:
    classes = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, RmqtoolError) and value is not RmqtoolError
    }
    assert classes == {name for name, _, _ in ERRORS}


@pytest.mark.parametrize(("name", "status", "code"), ERRORS)
def test_an_error_is_words_on_stderr_and_a_status(
    name: str, status: int, code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("fail", name) == status
    assert capsys.readouterr() == ("", "rmqtool: what happened\n")


@pytest.mark.parametrize(("name", "status", "code"), ERRORS)
@pytest.mark.parametrize("option", ["--json", "--jsonl"])
def test_an_error_is_one_json_object_when_json_was_asked_for(
    name: str, status: int, code: str, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("fail", name, option) == status
    out, err = capsys.readouterr()
    assert out == ""
    assert json.loads(err) == {"error": {"code": code, "message": "what happened"}}
    assert err.count("\n") == 1


def test_place_and_hint_stand_below_and_no_escape_reaches_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("fail", "StoreError", "--place") == 3
    assert capsys.readouterr().err == (
        "rmqtool: what happened\n"
        "         why it matters\n"
        "         in commitlog/0\\x1b[31m, offset 4096\n"
        "         Next: rmqtool check /s\n"
    )


def test_json_has_place_and_hint_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("fail", "StoreError", "--place", "--json") == 3
    assert json.loads(capsys.readouterr().err)["error"] == {
        "code": "not-a-store",
        "message": "what happened\nwhy it matters",
        "file": "commitlog/0\x1b[31m",
        "offset": 4096,
        "hint": "rmqtool check /s",
    }


def test_a_word_behind_two_dashes_is_no_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("fail", "--", "--json") == 70
    assert capsys.readouterr().err.startswith("rmqtool: this is a bug")


def test_an_unknown_exception_is_a_bug_in_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("raise", "key") == 70
    err = capsys.readouterr().err
    assert err.startswith("rmqtool: this is a bug in rmqtool ")
    assert "KeyError: 'x'" in err
    assert "Traceback" not in err
    assert "--debug" in err


@pytest.mark.parametrize(
    "words", [("raise", "key", "--debug"), ("--debug", "raise", "key"), ("raise", "--debug", "key")]
)
def test_debug_anywhere_on_the_line_adds_the_traceback(
    words: Sequence[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*words) == 70
    err = capsys.readouterr().err
    assert "Traceback (most recent call last)" in err
    assert "sample_commands.py" in err
    assert "this is a bug" in err


def test_an_expected_error_has_no_traceback_even_with_debug(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("fail", "NotFound", "--debug") == 1
    assert capsys.readouterr().err == "rmqtool: what happened\n"


@pytest.mark.parametrize("kind", ["stop", "abort"])
def test_an_interrupt_is_130(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("raise", kind) == 130
    assert capsys.readouterr().err == "rmqtool: interrupted\n"


@pytest.mark.parametrize("status", [0, 1, 6, 141])
def test_what_a_command_returns_is_the_status(status: int) -> None:
    assert run("answer", str(status)) == status
    assert type(run("answer", str(status))) in (int, Exit)


USAGE = [
    (("fail",), "missing argument 'kind'", "Next: rmqtool fail --help"),
    (("rows", "--jsn"), "rows has no option --jsn", "did you mean --json?"),
    (("rows", "--frobnicate"), "rows has no option --frobnicate", "Next: rmqtool rows --help"),
    (("--versio",), "rmqtool has no option --versio", "did you mean --version?"),
    (("rows", "--count"), "option '--count' requires an argument", "Next: rmqtool rows --help"),
    (("rows", "--count", "x"), "invalid value for '--count': 'x' is not a valid", "rmqtool rows --help"),
    (("info", "a", "b"), "one word too many: b", "Next: rmqtool info --help"),
    (("query", "--as", "6.0"), "'6.0' is not one of '4.9', '5.3', '5.4'", "Next: rmqtool query --help"),
    (("rows", "-n", "10.0.0.1:9876"), "-n is --limit here and takes a number", "no name server is asked"),
    (("rows", "-n", "-1"), "--limit -1 is too small", "the minimum is 0"),
    (("query", "-q", "first"), '--queue takes a whole number, not "first"', "for example: --queue 10"),
    (("rows", "--csv", "--template", "{number}"), "only one of --csv, --template can be shown", "--csv"),
    (("query", "-b", "soon"), '"soon" is not a time', "-2h"),
    (("query", "--tz", "Mars/Base"), '"Mars/Base" is not a known time zone', "Asia/Shanghai"),
    (("--debug",), "missing command", "Next: rmqtool --help"),
]


@pytest.mark.parametrize(("words", "message", "hint"), USAGE)
def test_a_wrong_command_line_is_2_in_our_words(
    words: Sequence[str], message: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("rmqtool: ")
    assert message in err
    assert hint in err
    assert "Usage:" not in err


def test_a_wrong_command_line_is_json_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("rows", "--json", "--frobnicate") == 2
    assert json.loads(capsys.readouterr().err) == {
        "error": {"code": "usage", "message": "rows has no option --frobnicate", "hint": "rmqtool rows --help"}
    }


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("queryMsgByKey", "did you mean: rmqtool query STORE KEY -t TOPIC"),
        ("querymsgbyid", "did you mean: rmqtool query STORE ID"),
        ("topicStatus", "did you mean: rmqtool info STORE queues -t TOPIC"),
        ("fsck", "did you mean: rmqtool check STORE"),
        ("inof", "did you mean: rmqtool info"),
        ("Check", "did you mean: rmqtool check"),
        ("/", "did you mean: rmqtool info /"),
        ("frobnicate", "Next: rmqtool --help"),
        # Its command is not in this table, so nothing is promised.
        ("statsAll", "Next: rmqtool --help"),
    ],
)
def test_a_word_that_is_no_command_gets_a_hint(word: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(word) == 2
    assert capsys.readouterr().err == f'rmqtool: there is no command "{word}"\n         {hint}\n'


def test_a_hint_names_no_store_of_an_earlier_line(capsys: pytest.CaptureFixture[str]) -> None:
    choose_store(["lab"])
    assert run("fsck") == 2
    assert "did you mean: rmqtool check STORE" in capsys.readouterr().err


def test_no_words_at_all_is_a_usage_error_that_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 2
    out, err = capsys.readouterr()
    assert run("-h") == 0
    assert (out, err) == ("", capsys.readouterr().out)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--version") == 0
    assert capsys.readouterr() == ("rmqtool 0.1.0\n", "")


@pytest.mark.parametrize("words", [("--version", "-v"), ("-v", "--version"), ("--version", "--verbose")])
def test_version_says_which_tier_runs(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(*words) == 0
    assert capsys.readouterr().out.splitlines()[:2] == ["rmqtool 0.1.0", kernel.tier()]
    assert re.fullmatch(r"kernel: (pure|native \(.+\))", kernel.tier())
    monkeypatch.setattr(kernel, "NATIVE", None)
    monkeypatch.setattr(kernel, "WHY_NOT", "RMQTOOL_PURE is set")
    assert run(*words) == 0
    assert capsys.readouterr().out == "rmqtool 0.1.0\nkernel: pure\n  RMQTOOL_PURE is set\n"


def test_verbose_before_a_command_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("-v", "info") == Exit.USAGE
    assert "-v before a command has no effect" in capsys.readouterr().err


def test_help_loads_no_kernel() -> None:
    code = "import sys; from rmqtool.cli import main; main(['--help']); print('rmqtool.kernel' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert done.stdout.endswith("False\n")


def test_python_m_runs_the_same() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "rmqtool", "--version"], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "rmqtool 0.1.0\n", "")


def closed_pipe() -> int:
    """Return the writing end of a pipe that nobody reads."""
    reading, writing = os.pipe()
    os.close(reading)
    return writing


@pytest.mark.parametrize("rows", [1, 100_000])
def test_a_closed_pipe_is_141_without_a_word(rows: int) -> None:
    pipe = closed_pipe()
    try:
        done = run_apart(f"sys.exit(main(['rows', '--count', '{rows}', '--jsonl'], TABLE))", stdout=pipe)
    finally:
        os.close(pipe)
    assert (done.returncode, done.stderr) == (141, "")


def test_a_closed_pipe_is_found_when_help_is_flushed_at_the_end() -> None:
    pipe = closed_pipe()
    try:
        done = run_apart("sys.exit(main(['--help'], TABLE))", stdout=pipe)
    finally:
        os.close(pipe)
    assert (done.returncode, done.stderr) == (141, "")


def test_nobody_reading_stderr_either_leaves_the_status() -> None:
    pipe = closed_pipe()
    try:
        done = run_apart("sys.exit(main(['fail', 'StoreInUse'], TABLE))", stdout=pipe, stderr=pipe)
    finally:
        os.close(pipe)
    assert done.returncode == 4


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
@pytest.mark.parametrize("words", [["rows"], ["rows", "--json"], ["--help"]])
def test_a_full_disk_behind_stdout_is_7(words: list[str]) -> None:
    with open("/dev/full", "wb") as full:
        done = run_apart(f"sys.exit(main({words!r}, TABLE))", stdout=full.fileno())
    assert done.returncode == 7
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_closed_stdout_is_7() -> None:
    done = run_apart("import os; os.close(1); sys.stdout = None; sys.exit(main(['rows'], TABLE))")
    assert done.returncode == 7
    assert "standard output is closed" in done.stderr
