"""The pages of the commands, made from the command tree: a new option needs only ``make docs``."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, NamedTuple

from rmqtool import errors
from rmqtool.commands.table import COMMANDS, Entry, Panel
from rmqtool.errors import Exit, RmqtoolError
from tools.manual import texts
from tools.manual.examples import Example, examples_of
from tools.manual.roff import Block, Items, Page, Screen, Section, Text

NAME = "rmqtool"
_COLUMNS = 80
# The lines that an example prints.
Screens = Callable[[Example], tuple[str, ...]]
_TOPICS = ("store.5", "json.5", "findings.7", "recipes.7")
_OPTION = re.compile(r"(?<![\w-])(--?[A-Za-z][\w-]*)")
_VERB = re.compile(r"from rmqtool\.api\.(\w+) import")
_FLAWED = re.compile(r"``([^`]*)``")


class Option(NamedTuple):
    """An option or argument as ``--help`` shows it: its names and metavar, its text, its group."""

    names: str
    help: str
    panel: str


def command_page(entry: Entry, group: Any, screens: Screens) -> Page:
    """Return the page of one command; ``group`` is the root of the command tree."""
    command = group.get_command(None, entry.name)
    options = list(iter_options(group, command))
    sections = [
        Section("Synopsis", (Text(_synopsis(entry.name, options)),)),
        Section("Description", tuple(Text(text) for text in _paragraphs(command.help))),
        *_option_sections(options),
        Section("Exit status", (_statuses(entry),)),
        Section("Examples", tuple(_examples(entry.name, screens))),
    ]
    if entry.name in texts.CAUTIONS:
        title, paragraphs = texts.CAUTIONS[entry.name]
        sections.append(Section(title, tuple(map(Text, paragraphs))))
    others = [f"{NAME}-{other.name}.1" for other in COMMANDS if other.panel is entry.panel and other != entry]
    sections.append(Section("See also", (see_also(f"{NAME}.1", *others, *(f"{NAME}-{page}" for page in _TOPICS)),)))
    return Page(f"{NAME}-{entry.name}", 1, _brief(entry.help), tuple(sections))


def root_page(group: Any) -> Page:
    """Return the page of the tool as a whole."""
    panels = [
        Section(panel, (Items(tuple((f"`{NAME} {e.name}`", (e.help,)) for e in COMMANDS if e.panel is panel)),), True)
        for panel in Panel
    ]
    options = tuple((_bold(option.names), (option.help,)) for option in iter_options(group))
    variables = tuple((f"`{name}`", (text,)) for name, text in texts.ENVIRONMENT.items())
    statuses = tuple((f"`{status.value}`", (text,)) for status, text in sorted(texts.EXIT_MEANINGS.items()))
    order = ", ".join(str(status.value) for status in errors.PRECEDENCE)
    sections = (
        Section("Synopsis", (Text(f"`{NAME}` COMMAND STORE [ARGS]... [OPTIONS]"),)),
        Section("Description", tuple(map(Text, texts.DESCRIPTION))),
        Section("The first five minutes", (Items(tuple((term, (text,)) for term, text in texts.FIRST_MINUTES)),)),
        Section("Commands", (Text("Each has a page of its own: `rmqtool man` COMMAND."),)),
        *panels,
        Section("Options", (Items(options),)),
        Section("Store", tuple(map(Text, texts.STORE_WORDS))),
        Section("Times and sizes", tuple(map(Text, texts.TIMES))),
        Section("Output", tuple(map(Text, texts.OUTPUTS))),
        Section("Exit status", (Items(statuses), Text(f"Where several apply, the first of {order} is taken."))),
        Section("Environment", (Items(variables),)),
        Section("Safety", tuple(map(Text, texts.SAFETY))),
        Section("See also", (see_also(*(f"{NAME}-{e.name}.1" for e in COMMANDS), *(f"{NAME}-{t}" for t in _TOPICS)),)),
    )
    return Page(NAME, 1, "look into, judge, repair and write Apache RocketMQ stores", sections)


def iter_options(group: Any, command: Any = None) -> Iterator[Option]:
    """Yield the arguments and options of a command, or of the root, as its ``--help`` shows them."""
    context = group.context_class(group, info_name=NAME, **group.context_settings)
    if command is not None:
        context = command.context_class(command, info_name=command.name, parent=context)
    command = command or group
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None:
            names, text = record
            kind = "Arguments" if parameter.param_type_name == "argument" else "Options"
            yield Option(names, text, getattr(parameter, "rich_help_panel", None) or kind)


def statuses_of(entry: Entry) -> dict[Exit, str]:
    """Return the exit statuses of a command, and the meaning of each there."""
    module = import_target(entry)
    named = {*texts.ALWAYS, *(() if entry.name == "man" else texts.WITH_STORE)}
    named |= {status for name, status in texts.STATUS_NOTES if name == entry.name}
    sources = [module, *_verbs_of(module)]
    for node in (found for source in sources for found in ast.walk(ast.parse(inspect.getsource(source)))):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Exit":
            named.add(Exit[node.attr])
        elif isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and isinstance(node.exc.func, ast.Name):
            raised = getattr(errors, node.exc.func.id, None)
            if isinstance(raised, type) and issubclass(raised, RmqtoolError):
                named.add(raised.exit_status)
    return {
        status: texts.STATUS_NOTES.get((entry.name, status), texts.EXIT_MEANINGS[status]) for status in sorted(named)
    }


def _verbs_of(command: ModuleType) -> Iterator[ModuleType]:
    """Yield the modules of api that a command calls: they decide the statuses."""
    from importlib import import_module

    for name in dict.fromkeys(_VERB.findall(inspect.getsource(command))):
        if name not in ("demo", "store", "wanted", "shapes"):
            yield import_module(f"rmqtool.api.{name}")


def import_target(entry: Entry) -> Any:
    """Return the module of a command."""
    from importlib import import_module

    return import_module(entry.target.partition(":")[0])


def see_also(*files: str) -> Text:
    """Return references to other pages, each the name of its file."""
    return Text(", ".join(f"`{page}`({number})" for page, _, number in (file.rpartition(".") for file in files)))


def _synopsis(name: str, options: list[Option]) -> str:
    arguments = " ".join(option.names for option in options if option.panel == "Arguments")
    return f"`{NAME} {name}` {arguments} [OPTIONS]".replace("  ", " ")


def _brief(help_line: str) -> str:
    return help_line[:1].lower() + help_line[1:].rstrip(".")


def _paragraphs(help_text: str | None) -> list[str]:
    cleaned = _FLAWED.sub(r"`\1`", inspect.cleandoc(help_text or ""))
    return [" ".join(part.split()) for part in cleaned.split("\n\n") if part.strip()]


def _option_sections(options: list[Option]) -> Iterator[Section]:
    panels: dict[str, list[tuple[str, tuple[str, ...]]]] = {}
    for option in sorted(options, key=lambda option: option.panel not in ("Arguments", "Options")):
        panels.setdefault(option.panel, []).append((_bold(option.names), (option.help,)))
    yield Section("Options", ())
    for panel, items in panels.items():
        yield Section("Of this command" if panel == "Options" else panel, (Items(tuple(items)),), inner=True)


def _bold(names: str) -> str:
    return _OPTION.sub(r"`\1`", names)


def _statuses(entry: Entry) -> Items:
    return Items(tuple((f"`{status.value}`", (text,)) for status, text in statuses_of(entry).items()))


def _examples(name: str, screens: Screens) -> Iterator[Block]:
    for example in examples_of(name):
        yield Text(example.says)
        yield screen_of(example, screens)


def screen_of(example: Example, screens: Screens) -> Screen:
    """Return an example as a terminal shows it, with the command line first."""
    return Screen((*_typed(f"$ {example.command}"), *screens(example)))


def _typed(line: str) -> Iterator[str]:
    """Yield a command line, continued before an option where the terminal ends."""
    while len(line) > _COLUMNS:
        at = line.rindex(" -", 0, _COLUMNS - 2)
        yield f"{line[:at]} \\"
        line = f"    {line[at + 1 :]}"
    yield line
