from __future__ import annotations

from rmqtool.errors import ReadFailed, Refused, UsageError
from rmqtool.render.failure import failure_text


def test_what_where_and_what_next() -> None:
    error = ReadFailed("the record ends early", file="/s/commitlog/0", offset=64, hint="rmqtool check /s")
    assert failure_text(error).splitlines() == [
        "rmqtool: the record ends early",
        "         in /s/commitlog/0, offset 64",
        "         Next: rmqtool check /s",
    ]


def test_a_file_that_the_message_names_is_not_named_again() -> None:
    error = Refused("/s is not empty", file="/s", hint="name another directory")
    assert failure_text(error).splitlines() == ["rmqtool: /s is not empty", "         name another directory"]


def test_an_offset_is_told_with_its_file_also_where_the_message_names_that() -> None:
    error = ReadFailed("/s/0 was cut", file="/s/0", offset=5)
    assert failure_text(error).splitlines() == ["rmqtool: /s/0 was cut", "         in /s/0, offset 5"]


def test_what_a_terminal_might_obey_is_spelled_out() -> None:
    assert failure_text(UsageError("bad \x1b[2J")) == "rmqtool: bad \\x1b[2J\n"


def test_words_are_broken_and_a_command_is_not() -> None:
    error = Refused(
        "the store was not closed cleanly: abort is present", hint="rmqtool recover /data/a/long/name --apply"
    )
    assert failure_text(error, 40).splitlines() == [
        "rmqtool: the store was not closed",
        "         cleanly: abort is present",
        "         Next: rmqtool recover /data/a/long/name --apply",
    ]
