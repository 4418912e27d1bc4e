"""``make docs``: write the pages of the manual into ``man/``."""

from __future__ import annotations

from pathlib import Path

from rmqtool.cli import command_tree
from rmqtool.commands.manual.examples import EXAMPLES
from rmqtool.commands.manual.pages import manual_files
from rmqtool.commands.table import COMMANDS
from tests.docs.screens import run_example

MAN = Path(__file__).resolve().parents[2] / "man"


def main() -> None:
    """Write every page that has changed, and remove those that are no more."""
    MAN.mkdir(exist_ok=True)
    files = manual_files(command_tree(), lambda example: run_example(example).lines)
    for name, text in files.items():
        (MAN / name).write_text(text, encoding="ascii")
    for path in MAN.glob("rmqtool*"):
        if path.name not in files:
            path.unlink()
    print(f"{len(files)} pages in man/")
    for entry in COMMANDS:
        if entry.name not in EXAMPLES:
            print(f"{entry.name} has no examples of its own yet: rmqtool/commands/manual/examples.py")


if __name__ == "__main__":
    main()
