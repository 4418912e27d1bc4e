"""The root of the command line: commands by name, loaded when they run, and the path from an error to an exit status.

Typer contains click since 0.26; only this module uses parts of it that are not public.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from contextvars import Context
from importlib import import_module
from typing import IO, Annotated

import typer
from typer import _click as click
from typer import _completion_shared as completion_scripts
from typer.core import TyperCommand, TyperGroup, TyperOption
from typer.exceptions import TyperException
from typer.models import CommandInfo

from rmqtool import __version__
from rmqtool.commands.table import COMMANDS, OTHER_NAMES, OTHER_OPTIONS, WITHOUT_IT, WRITING_OPTIONS, Entry, Panel
from rmqtool.errors import NO_OUTPUT, Bug, Exit, Interrupted, RmqtoolError, UsageError, WriteFailed

NAME = "rmqtool"
_DEBUG = "--debug"
# Words that are less alike than this are different words.
_ALIKE = 0.65
_EXTRA = "Got unexpected extra argument(s) "
_COMPLETION = frozenset({"--show-completion", "--install-completion"})
_DEBUG_HELP = "Show the traceback of an unexpected error."
_EPILOG = """STORE is a store's root directory, a broker.conf, a commit log or queue directory, or one file;
without it $RMQTOOL_STORE is used, then ~/store. Look, Judge, copy and export never change STORE; recover and
repair do only with --apply or --undo, consume only with --commit; the other commands may.

Is something wrong? `rmqtool man recipes` says what to type."""


def main(args: Sequence[str] | None = None, table: Sequence[Entry] = COMMANDS) -> int:
    """Run one command line and return its exit status. Any error ends here as a status.

    Nothing is kept for the next call, such as the store that hints name.
    """
    umask = os.umask(0o077)
    os.umask(umask)
    try:
        return Context().run(_main, list(sys.argv[1:] if args is None else args), table)
    finally:
        os.umask(umask)  # files written from a private store are private: see keep_private


def _main(words: list[str], table: Sequence[Entry]) -> int:
    options = words[: words.index("--")] if "--" in words else words
    as_json = "--json" in options or "--jsonl" in options
    try:
        status = _status(words, table, debug=_DEBUG in options)
    except RmqtoolError as error:
        status = _tell(error, as_json)
    except BrokenPipeError:
        status = Exit.CLOSED_PIPE
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        _give_up(sys.stdout)
        return status or Exit.CLOSED_PIPE
    except OSError as error:
        _give_up(sys.stdout)
        return _tell(WriteFailed(f"standard output could not be written: {error.strerror}", hint=NO_OUTPUT), as_json)
    return status


def _status(words: list[str], table: Sequence[Entry], *, debug: bool) -> int:
    """Run the command; each way in which it can end becomes a status or an RmqtoolError."""
    group = command_tree(table)
    if not _COMPLETION.isdisjoint(words):
        from rmqtool.commands.completion import BASH_SCRIPT

        completion_scripts._completion_scripts["bash"] = BASH_SCRIPT
    try:
        if not words:
            typer.echo(_help(group), err=True)
            return Exit.USAGE
        with group.make_context(NAME, list(words)) as context:
            result = group.invoke(context)
        return int(result or Exit.DONE)
    except (RmqtoolError, BrokenPipeError):
        raise
    except typer.Exit as leaving:
        return leaving.exit_code
    except (KeyboardInterrupt, typer.Abort) as stopped:
        raise Interrupted("interrupted") from stopped
    except TyperException as error:
        named = words[0] if words[0] in group.table else ""
        raise _usage_error(error, f"{NAME} {named}".rstrip(), words) from error
    except Exception as error:
        if debug:
            import traceback

            traceback.print_exc()
        from rmqtool.files.failures import of_the_machine

        raise of_the_machine(error) or _bug(error) from error


def _help(group: LazyGroup) -> str:
    return group.get_help(group.context_class(group, info_name=NAME, **group.context_settings))


def command_tree(table: Sequence[Entry] = COMMANDS) -> LazyGroup:
    """Return the root of the command line; a command is loaded when it is used."""
    app = typer.Typer(
        cls=LazyGroup,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        subcommand_metavar="COMMAND STORE [ARGS]...",
        epilog=_EPILOG,
    )
    app.callback()(_options)
    group = typer.main.get_command(app)
    assert isinstance(group, LazyGroup)
    group.table = {entry.name: entry for entry in table}
    return group


_VERBOSE = "rmqtool.verbose"


def _show_version(context: typer.Context, wanted: bool) -> None:
    if wanted:
        typer.echo(f"{NAME} {__version__}")
        if context.meta.get(_VERBOSE):
            from rmqtool import kernel

            typer.echo(kernel.tier())
            if kernel.WHY_NOT:
                typer.echo(f"  {kernel.WHY_NOT}")
        raise typer.Exit
    if context.meta.get(_VERBOSE):
        raise UsageError(
            "-v before a command has no effect",
            hint="after a command: rmqtool COMMAND -v; for the kernel: rmqtool --version -v",
        )


def _note_verbose(context: typer.Context, wanted: bool) -> None:
    context.meta[_VERBOSE] = wanted


def _options(
    # -v is eager: its place before or after --version makes no difference.
    version: Annotated[bool, typer.Option("--version", callback=_show_version, help="Show the version.")] = False,
    verbose: Annotated[
        bool,
        typer.Option(
            "-v",
            "--verbose",
            callback=_note_verbose,
            is_eager=True,
            help="With --version: show whether compiled code is used.",
        ),
    ] = False,
    debug: Annotated[bool, typer.Option(_DEBUG, help=_DEBUG_HELP)] = False,
) -> None:
    """Open, judge, repair and write Apache RocketMQ stores without a broker."""


class LazyGroup(TyperGroup):
    """The commands of the table: names and help lines are here, modules are imported when a command runs."""

    table: dict[str, Entry]

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return the names in the table's order."""
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import the module of one command."""
        entry = self.table.get(cmd_name)
        return _load(entry) if entry is not None else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command of a command line, or suggest the nearest one."""
        command = self.get_command(ctx, args[0])
        if command is None and not ctx.resilient_parsing:
            raise _no_such_command(args[0], self.table)
        return (args[0] if command else None), command, args[1:]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the panels of commands, then the options of the root."""
        self.format_commands(ctx, formatter)
        _write_options(self, ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the panels."""
        longest = max(map(len, self.table), default=0)
        for panel in Panel:
            rows = [(e.name.ljust(longest), e.help) for e in self.table.values() if e.panel is panel]
            if rows:
                with formatter.section(panel):
                    formatter.write_dl(rows)


class _Command(TyperCommand):
    """A command whose options are listed in groups."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the arguments, the command's own options, then each group of common ones."""
        _write_options(self, ctx, formatter)


def _write_options(command: click.Command, ctx: click.Context, formatter: click.HelpFormatter) -> None:
    sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
    for parameter in command.get_params(ctx):
        record = parameter.get_help_record(ctx)
        if record is not None:
            usual = "Arguments" if parameter.param_type_name == "argument" else "Options"
            sections.setdefault(getattr(parameter, "rich_help_panel", None) or usual, []).append(record)
    for title, rows in sections.items():
        if rows:
            with formatter.section(title):
                formatter.write_dl(rows)


def _load(entry: Entry) -> click.Command:
    from rmqtool.commands.options import spread

    module, _, name = entry.target.partition(":")
    function = getattr(import_module(module), name)
    info = CommandInfo(name=entry.name, cls=_Command, callback=spread(function))
    command = typer.main.get_command_from_info(info, pretty_exceptions_short=False, rich_markup_mode=None)
    # Only main looks at it, but it may be anywhere on the line.
    debug = TyperOption(param_decls=[_DEBUG], is_flag=True, default=False, expose_value=False, help=_DEBUG_HELP)
    command.params.append(debug)
    return command


def _no_such_command(name: str, table: dict[str, Entry]) -> UsageError:
    from difflib import get_close_matches

    others = {
        other.lower(): line for other, line in OTHER_NAMES.items() if line.split()[0] in table or line.startswith("--")
    }
    near = get_close_matches(name.lower(), table, n=1, cutoff=_ALIKE)
    if name.lower() in others:
        hint = f"did you mean: {NAME} {others[name.lower()]}"
    elif near:
        hint = f"did you mean: {NAME} {near[0]}"
    elif "info" in table and os.path.exists(name):
        hint = f"did you mean: {NAME} info {name}"
    else:
        hint = f"{NAME} --help"
    return UsageError(f'there is no command "{name}"', hint=hint)


def _usage_error(error: TyperException, path: str, words: list[str]) -> UsageError:
    """Say in our words what Typer found wrong in the command line of the command ``path``."""
    if hasattr(error, "possibilities"):
        option = getattr(error, "option_name", "")
        near = _meant(error, option) or _with_two_dashes(error, option, words)
        hint = f"did you mean {near[0]}?" if near else f"{path} --help"
        hint = _without_it(error, path, option) or hint
        return UsageError(f"{path.removeprefix(NAME + ' ')} has no option {option}", hint=hint)
    message = error.format_message().rstrip(".")
    if message.startswith(_EXTRA):
        words_too_many = message.removeprefix(_EXTRA).strip("()")
        meant = f"for a topic: -t {words_too_many.split()[0]}" if "-t" in _options_of(error) else f"{path} --help"
        return UsageError(f"one word too many: {words_too_many}", hint=meant)
    return UsageError(message[:1].lower() + message[1:], hint=f"{path} --help")


def _options_of(error: TyperException) -> set[str]:
    """Return the options of the command that was typed."""
    context = getattr(error, "ctx", None)
    return {name for parameter in context.command.params for name in parameter.opts} if context is not None else set()


def _without_it(error: TyperException, path: str, option: str) -> str | None:
    """Return what a command that has a rehearsal or a plan does without an option of other tools; None for others."""
    for options, (needs, words) in WITHOUT_IT.items():
        if option in options and needs in _options_of(error):
            return words.format(command=path.rpartition(" ")[2], path=path, option=option)
    return None


def _meant(error: TyperException, option: str) -> list[str]:
    """Return the options of the command with another name elsewhere, or with a similar spelling."""
    from difflib import SequenceMatcher

    known = _options_of(error)
    others = [name for name in OTHER_OPTIONS.get(option, ()) if name in known]
    spelled = option.lstrip("-")
    possible = getattr(error, "possibilities", None) or ()
    possible = [name for name in possible if name not in WRITING_OPTIONS]
    near = [name for name in possible if SequenceMatcher(None, name.lstrip("-"), spelled).ratio() >= _ALIKE]
    return [" or ".join(others)] if others else near


def _with_two_dashes(error: TyperException, option: str, words: list[str]) -> list[str]:
    """Return the options that were typed with one dash: ``-apply`` is read as ``-a`` and more letters."""
    known = _options_of(error)
    return [f"-{word}" for word in words if word.startswith(option) and f"-{word}" in known]


def _bug(error: Exception) -> Bug:
    ours = os.path.dirname(__file__) + os.sep
    frame = error.__traceback__
    place = ""
    while frame is not None:
        file = frame.tb_frame.f_code.co_filename
        if file.startswith(ours):
            place = f" ({file.removeprefix(ours)}:{frame.tb_lineno})"
        frame = frame.tb_next
    return Bug(
        f"this is a bug in {NAME} {__version__}: {type(error).__name__}: {error}{place}",
        hint=f"Please report it with the output of the same command with {_DEBUG}.",
    )


def _tell(error: RmqtoolError, as_json: bool) -> int:
    try:
        _write_error(error, as_json=as_json)
    except OSError:
        # stderr cannot be written either; the exit status still reports the error.
        _give_up(sys.stderr)
    return error.exit_status


def _write_error(error: RmqtoolError, *, as_json: bool) -> None:
    """Write the error that stopped the command to stderr: in words, or as one JSON object for programs."""
    import shutil

    from rmqtool.commands.store_word import typeable
    from rmqtool.render.failure import failure_json, failure_text

    if error.hint is not None:
        error.hint = typeable(error.hint)
    if sys.stderr is not None:
        width = shutil.get_terminal_size().columns if sys.stderr.isatty() else None
        sys.stderr.write(failure_json(error) if as_json else failure_text(error, width))
        sys.stderr.flush()


def _give_up(stream: IO[str]) -> None:
    """Drop what is in a stream's buffer, so that the interpreter does not fail on it when it exits."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
