from __future__ import annotations

import dataclasses
import inspect
import io
from typing import Annotated, get_type_hints

import pytest
import typer

from rmqtool.commands import options
from rmqtool.commands.options import AsBroker, Filters, Period, Scope, Show, When, Work, spread
from rmqtool.config import Version
from rmqtool.errors import Exit, UsageError
from rmqtool.progress import NoProgress
from rmqtool.render.output import Look, Mode, Output

GROUPS = (Scope, Period, Filters, AsBroker, Show, Work)

# Design §3, "Common options".
COMMON = {
    "--topic": "-t",
    "--queue": "-q",
    "--group": "-g",
    "--begin": "-b",
    "--end": "-e",
    "--offset": "-o",
    "--limit": "-n",
    "--tag": None,
    "--key": None,
    "--where": None,
    "--json": None,
    "--jsonl": None,
    "--csv": None,
    "--template": None,
    "--jobs": "-j",
    "--progress": None,
    "--color": None,
    "--tz": None,
    "--verbose": "-v",
    "--quiet": None,
    "--as": None,
    "--conf": None,
}
# Of the commands that read or write a cluster, and of the two that put or copy messages.
OF_SOME = dict.fromkeys(("--credentials", "--tls", "--retry-unknown", "--delay", "--on-error", "--tx"))


def names_of(annotation: object) -> tuple[str, ...]:
    [info] = [part for part in getattr(annotation, "__metadata__", ()) if isinstance(part, typer.models.OptionInfo)]
    return tuple(name for name in (info.default, *(info.param_decls or ())) if isinstance(name, str))


def test_the_common_options_are_those_of_the_design_with_one_letter_each() -> None:
    found: dict[str, set[str | None]] = {}
    for value in vars(options).values():
        if hasattr(value, "__metadata__") and isinstance(value.__metadata__[0], typer.models.OptionInfo):
            names = names_of(value)
            short = [name for name in names if not name.startswith("--")]
            found.setdefault(names[-1], set()).add(short[0] if short else None)
    assert found == {name: {letter} for name, letter in (COMMON | OF_SOME).items()}


def test_every_option_of_a_group_has_a_help_and_a_panel() -> None:
    for group in GROUPS:
        for field in dataclasses.fields(group):
            info = get_type_hints(group, include_extras=True)[field.name].__metadata__[0]
            assert info.help, (group, field.name)
            assert info.rich_help_panel, (group, field.name)


def test_groups_become_options_and_come_back_as_values() -> None:
    def command(scope: Scope, show: Show, count: Annotated[int, typer.Option()] = 3) -> tuple[Scope, Show, int]:
        """Say what it does."""
        return scope, show, count

    wide = spread(command)
    assert wide.__doc__ == "Say what it does."
    assert list(inspect.signature(wide).parameters) == [
        *("topic", "queue", "json", "jsonl", "csv", "template", "color", "tz", "verbose", "quiet", "count")
    ]
    given = {"topic": ["T"], "queue": 1, "count": 4}
    defaults = {name: p.default for name, p in inspect.signature(wide).parameters.items()}
    assert wide(**{**defaults, **given}) == (Scope(topic=["T"], queue=1), Show(), 4)


def test_two_groups_with_one_option_are_a_mistake_of_the_command() -> None:
    def command(one: Scope, two: Scope) -> Exit:
        return Exit.DONE

    with pytest.raises(ValueError, match="duplicate parameter name"):
        spread(command)


@pytest.mark.parametrize(
    ("show", "mode"),
    [
        (Show(), Mode.HUMAN),
        (Show(json=True), Mode.JSON),
        (Show(jsonl=True), Mode.JSONL),
        (Show(csv=True), Mode.CSV),
        (Show(template="{topic}"), Mode.TEMPLATE),
        (Show(template=""), Mode.TEMPLATE),
    ],
)
def test_one_option_decides_the_mode(show: Show, mode: Mode) -> None:
    assert show.look().mode is mode


@pytest.mark.parametrize("show", [Show(json=True, jsonl=True), Show(csv=True, template="x"), Show(json=True, csv=True)])
def test_only_one_of_them_can_be(show: Show) -> None:
    with pytest.raises(UsageError, match="only one of --"):
        show.look()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("terminal", "color", "environment", "painted"),
    [
        (True, When.AUTO, {}, True),
        (False, When.AUTO, {}, False),
        (True, When.NEVER, {}, False),
        (False, When.ALWAYS, {}, True),
        (True, When.AUTO, {"NO_COLOR": ""}, False),
        (True, When.AUTO, {"TERM": "dumb"}, False),
        (False, When.ALWAYS, {"NO_COLOR": "1"}, True),
    ],
)
def test_colour(
    terminal: bool, color: When, environment: dict[str, str], painted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.stdout", Terminal() if terminal else io.StringIO())
    assert Show(color=color).look().color is painted


def test_lines_are_as_wide_as_a_terminal_and_as_long_as_they_are_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "91")
    monkeypatch.setattr("sys.stdout", Terminal())
    assert Show().look().width == 91
    monkeypatch.setattr("sys.stdout", io.StringIO())
    # Who sets it means it, also in a pipe.
    assert Show().look().width == 91
    monkeypatch.delenv("COLUMNS")
    assert Show().look().width is None


def test_the_rest_of_show_is_passed_on() -> None:
    look = Show(tz="+08:00", verbose=2, quiet=True).look()
    assert (str(look.zone), look.verbose, look.quiet) == ("UTC+08:00", 2, True)
    assert isinstance(Show().output(), Output)


@pytest.mark.parametrize(
    ("terminal", "when", "quiet", "shown"),
    [
        (True, When.AUTO, False, True),
        (False, When.AUTO, False, False),
        (True, When.AUTO, True, False),
        (True, When.NEVER, False, False),
        (False, When.ALWAYS, True, True),
    ],
)
def test_a_bar_is_for_a_terminal_unless_told_otherwise(
    terminal: bool, when: When, quiet: bool, shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr", Terminal() if terminal else io.StringIO())
    bar = Work(progress=when).bar(Output(Look(quiet=quiet), io.BytesIO()))
    assert isinstance(bar, NoProgress) is not shown


def test_work_uses_every_processor_it_may_unless_told_otherwise() -> None:
    assert Work(jobs=3).threads() == 3
    assert Work().threads() >= 1


def test_a_period_takes_the_zone_of_tz() -> None:
    assert Period(begin="2026-08-23").bounds("UTC", now=0) == (1787443200000, None)
    assert Period(end="2026-08-23").bounds("+08:00", now=0) == (None, 1787414400000)


def test_as_takes_the_three_versions() -> None:
    assert AsBroker(as_version=Version("5.4")).as_version is Version.V5_4
    assert [version.value for version in Version] == ["4.9", "5.3", "5.4"]
