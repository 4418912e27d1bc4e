"""The manual is what the commands, layouts, registry and schemas say today, and nothing of them is left out."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import rmqtool
from rmqtool.cli import command_tree
from rmqtool.commands.table import COMMANDS
from rmqtool.errors import Exit
from rmqtool.findings import iter_codes
from rmqtool.formats import declarations
from rmqtool.formats.layout import upstream_name
from rmqtool.render.roff_reader import man_lines
from tests.docs.__main__ import MAN
from tests.docs.screens import Shown, run_example
from tools.manual import texts
from tools.manual.command_pages import statuses_of
from tools.manual.examples import EXAMPLES, Example, examples_of
from tools.manual.json_page import iter_fields
from tools.manual.pages import manual_files
from tools.manual.recipes import RECIPES
from tools.manual.store_page import layouts_by_name
from tools.schemas import read_schema, schema_names

ROOT = Path(rmqtool.__file__).parent
_ANEW = "run `make docs`, look at what changed, and commit man/"


@cache
def shown(example: Example) -> Shown:
    """Run an example once."""
    return run_example(example)


@cache
def made() -> dict[str, str]:
    """Make all pages again, by the names of their files."""
    return manual_files(command_tree(), lambda example: shown(example).lines)


@cache
def text_of(name: str) -> str:
    """Return a committed page as a reader sees it on a wide terminal, with runs of spaces as one."""
    lines = man_lines((MAN / name).read_text(encoding="ascii"), 10_000)
    return re.sub(r"\s+", " ", "\n".join(lines))


def words_of(text: str) -> str:
    return " ".join(text.replace("`", "").split())


def test_the_pages_are_those_that_would_be_made_today() -> None:
    committed = {path.name: path.read_text(encoding="ascii") for path in MAN.iterdir()}
    fresh = made()
    assert sorted(committed) == sorted(fresh), _ANEW
    assert [name for name in fresh if committed[name] != fresh[name]] == [], _ANEW


def test_the_pages_bear_the_date_of_the_release() -> None:
    released = re.findall(r"^## (\d\S*), (\d{4}-\d\d-\d\d)$", (MAN.parent / "CHANGELOG.md").read_text("utf-8"), re.M)
    assert dict(released).get(rmqtool.__version__, rmqtool.__date__) == rmqtool.__date__
    assert all(f" {rmqtool.__date__} " in page.split("\n")[1] for page in made().values())


@pytest.mark.skipif(shutil.which("mandoc") is None, reason="mandoc is not installed")
def test_mandoc_has_nothing_to_say() -> None:
    pages = sorted(str(path) for path in MAN.iterdir())
    done = subprocess.run(["mandoc", "-T", "lint", *pages], capture_output=True, text=True, check=False)
    assert done.stdout + done.stderr == ""


def parameters(group: Any) -> Iterator[tuple[str, Any]]:
    """Yield every visible parameter of the command tree, with the page it belongs on."""
    yield from (("rmqtool.1", parameter) for parameter in group.params if not parameter.hidden)
    for entry in COMMANDS:
        command = group.get_command(None, entry.name)
        yield from (
            (f"rmqtool-{entry.name}.1", parameter)
            for parameter in command.params
            if not getattr(parameter, "hidden", False)
        )


def test_every_option_stands_on_its_page_with_a_sentence() -> None:
    seen = 0
    for page, parameter in parameters(command_tree()):
        assert parameter.help, f"{page}: {parameter.name} has no help"
        assert words_of(parameter.help) in text_of(page)
        if parameter.param_type_name == "option":
            for word in (*parameter.opts, *parameter.secondary_opts):
                assert re.search(rf"(?<!\S){re.escape(word)}(?![\w-])", text_of(page)), f"{page}: {word}"
                seen += 1
        elif parameter.metavar:
            assert parameter.metavar in text_of(page)
    assert seen > 150


def test_every_exit_status_is_explained() -> None:
    assert set(texts.EXIT_MEANINGS) == set(Exit)
    for status, meaning in texts.EXIT_MEANINGS.items():
        assert f" {status.value} {words_of(meaning)}" in text_of("rmqtool.1")


@pytest.mark.parametrize("entry", COMMANDS, ids=lambda entry: entry.name)
def test_a_command_explains_the_statuses_it_can_end_with(entry: Any) -> None:
    statuses = statuses_of(entry)
    for status, meaning in statuses.items():
        assert f" {status.value} {words_of(meaning)}" in text_of(f"rmqtool-{entry.name}.1")
    for example in examples_of(entry.name):
        assert shown(example).status in statuses, (
            f"{example.command} ends with {shown(example).status}: say in STATUS_NOTES of manual/texts.py what it means"
        )


def test_what_is_said_of_statuses_belongs_to_a_command() -> None:
    assert {name for name, _ in texts.STATUS_NOTES} | set(texts.CAUTIONS) <= {entry.name for entry in COMMANDS}
    assert {name: len(own) >= 2 for name, own in EXAMPLES.items()} == dict.fromkeys(
        (one.name for one in COMMANDS), True
    )


def test_every_command_has_two_examples_that_still_work_and_fit_a_terminal() -> None:
    for entry in COMMANDS:
        assert len(examples_of(entry.name)) >= 2
    recipes = [step for _, steps in RECIPES for step in steps if isinstance(step, Example)]
    for example in [*(example for entry in COMMANDS for example in examples_of(entry.name)), *recipes]:
        assert shown(example).status == example.status, (example.command, shown(example).lines)
        wide = [line for line in shown(example).lines if len(line) > 80]
        assert wide == [], example.command


def test_recipes_name_only_commands_and_options_that_exist() -> None:
    group = command_tree()
    texts_of_recipes = [step for _, steps in RECIPES for step in steps if isinstance(step, str)]
    found = [words for text in texts_of_recipes for words in re.findall(r"`rmqtool ([^`]*)`", text)]
    assert found
    for words in found:
        command = group.get_command(None, words.split()[0])
        assert command is not None, words
        options = {option for parameter in command.params for option in parameter.opts}
        assert set(re.findall(r"(?<!\S)--?[a-z][\w-]*", words)) <= options, words


def test_every_finding_has_its_part() -> None:
    page = text_of("rmqtool-findings.7")
    for entry in iter_codes():
        assert f" {entry.code}, {entry.severity} {words_of(entry.meaning)}" in page
        for words in (entry.consequence, *entry.broker_lines, *entry.brokers):
            assert words is None or words_of(words) in page


def test_every_field_of_every_layout_stands_in_the_page_of_the_store() -> None:
    page = text_of("rmqtool-store.5")
    assert set(layouts_by_name()) == {"MessagePrefix", "BatchItemPrefix", *declarations.FIXED}
    for layout in layouts_by_name().values():
        for field in layout.fields:
            if field.name == "value":
                assert f" {layout.name.lower()} {field.kind} {layout.size} " in page
                continue
            row = f" {field.offset} {field.size} {field.kind} {field.upstream_name} "
            assert row in page, (layout.name, row)
    for declared in (declarations.MESSAGE, declarations.BATCH_ITEM):
        for part in declared.subcons:
            name = upstream_name(part.name)
            assert name in page or f"{name}Ip" in page


def test_every_field_of_json_says_what_it_means() -> None:
    mute = [(name, field) for name in schema_names() for field, _, says in iter_fields(read_schema(name)) if not says]
    assert mute == [], 'give it a "description" in rmqtool/render/schemas, then `make docs`'


def fields_of(schema: Any) -> Iterator[str]:
    """Yield the meaning of every field, at any depth of the schema."""
    for name, inner in schema.get("properties", {}).items():
        yield name
        yield from fields_of(inner)
    inside = [schema.get("items"), schema.get("additionalProperties")]
    for key in ("anyOf", "oneOf", "allOf"):
        inside += schema.get(key, [])
    for inner in inside:
        if isinstance(inner, dict):
            yield from fields_of(inner)


def test_every_field_of_json_stands_in_its_page() -> None:
    source = (MAN / "rmqtool-json.5").read_text(encoding="ascii")
    for name in schema_names():
        title = f'.SH "{name.upper()} '.replace("-", "\\-")
        part = source[source.index(title) :].partition("\n.SH")[0].replace("\\fB", "<").replace("\\fR", ">")
        for field in fields_of(read_schema(name)):
            assert re.search(rf"[<.]{field}\??>", part), (name, field)


def variables() -> set[str]:
    """Return the names of the environment variables that the package reads or sets."""
    found = set()
    for path in ROOT.rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        if not re.search("environ|getenv", source):
            continue
        tree = ast.parse(source)
        constants = {
            target.id: node.value.value
            for node in tree.body
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in ast.walk(tree):
            name = _variable(node)
            if name is not None:
                value = name.value if isinstance(name, ast.Constant) else constants.get(ast.unparse(name))
                assert isinstance(value, str), f"{path.name}: which variable is {ast.unparse(node)}?"
                found.add(value)
    return found


def _variable(node: ast.AST) -> ast.expr | None:
    """Return what names the variable where a node reads or sets one."""
    if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "os.environ":
        return node.slice
    if isinstance(node, ast.Compare) and ast.unparse(node.comparators[0]) == "os.environ":
        return node.left
    getters = ("os.environ.get", "os.getenv", "environment.get", "os.environ.setdefault", "os.environ.pop")
    if isinstance(node, ast.Call) and ast.unparse(node.func) in getters:
        return node.args[0]
    return None


def test_every_environment_variable_is_documented() -> None:
    used = variables()
    assert {"RMQTOOL_STORE", "NO_COLOR", "JAVA_HOME"} <= used
    assert used - set(texts.ENVIRONMENT) == set(), "say in ENVIRONMENT of tools/manual/texts.py what it does"
    # Python and its libraries read these for us.
    assert set(texts.ENVIRONMENT) - used == {"TZ"}
    for name, meaning in texts.ENVIRONMENT.items():
        assert f" {name} {words_of(meaning)}" in text_of("rmqtool.1")
