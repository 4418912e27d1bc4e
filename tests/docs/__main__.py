"""``make docs``: writes man/, the completion table, the screens and the picture in documents, lists."""

from __future__ import annotations

from pathlib import Path

from rmqtool.cli import command_tree
from rmqtool.commands.table import COMMANDS
from tests.architecture.tour import write_tour
from tests.docs.completion import TABLE, completion_table
from tests.docs.error_texts import write_texts
from tests.docs.picture import write_picture
from tests.docs.screens import run_example
from tests.docs.tour import write_tours
from tools.manual.examples import EXAMPLES, Example
from tools.manual.pages import manual_files

MAN = Path(__file__).resolve().parents[2] / "man"


def screen(example: Example) -> tuple[str, ...]:
    """Run an example that must still do what the page says."""
    shown = run_example(example)
    if shown.status != example.status:
        raise SystemExit(
            "\n".join([f"$ {example.command}", *shown.lines, f"status {shown.status}, not {example.status}"])
        )
    return shown.lines


def main() -> None:
    """Write every page that has changed, and remove those that are no more."""
    TABLE.write_text(completion_table(command_tree()), encoding="utf-8")
    files = manual_files(command_tree(), screen)
    MAN.mkdir(exist_ok=True)
    for name, text in files.items():
        (MAN / name).write_text(text, encoding="ascii")
    for path in MAN.glob("rmqtool*"):
        if path.name not in files:
            path.unlink()
    write_tours(screen)
    write_picture()
    write_texts()
    write_tour()
    print(f"{len(files)} pages in man/")
    for entry in COMMANDS:
        if entry.name not in EXAMPLES:
            print(f"{entry.name} has no examples of its own yet: tools/manual/examples.py")


if __name__ == "__main__":
    main()
