"""Answer a shell that completes a command line: commands, options, and names from the store.

A user waits at each key, so neither typer nor any command is imported: the commands and their options are in
``completion_table``, which ``make docs`` writes. Any failure is silent, and the shell offers files instead.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable

from rmqtool.commands import store_names
from rmqtool.commands.completion_table import COMMANDS, ROOT_OPTIONS

VARIABLE = "_RMQTOOL_COMPLETE"
# The function for bash; typer fills in the names. The status says whether a path belongs there, and only then files are
# offered: typer's own script offers them wherever nothing else is known. bash 3 has no compopt and still offers them.
BASH_SCRIPT = """
%(complete_func)s() {
    local IFS=$'\\n' found
    found=$( env COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD \\
                 %(autocomplete_var)s=complete_bash "$1" 2>/dev/null ) || compopt -o default 2>/dev/null
    COMPREPLY=( $found )
}

if type compopt >/dev/null 2>&1; then
    complete -F %(complete_func)s %(prog_name)s
else
    complete -o default -F %(complete_func)s %(prog_name)s
fi
"""

# A value and its description.
Candidate = tuple[str, str]
# Upstream allows fewer characters in names. A name that a shell might obey is never offered: topics may come from
# anywhere.
_SAFE = re.compile(r"[\w%|@./+:,=-]+", re.ASCII)
_PATHS = frozenset({"file", "store", "DIR", "FILE"})
_TIMES = ("now", "today", "yesterday", "-1h", "-1d")


def answer() -> int:
    """Answer the shell that set the environment variables."""
    try:
        shell = os.environ[VARIABLE].removeprefix("complete_")
        words, text = _READERS[shell]()
        found = candidates(words, text)
        return _WRITERS[shell](found if found is None else [one for one in found if _SAFE.fullmatch(one[0])])
    except Exception:  # a traceback would end up in the line that is being typed
        return 1


def candidates(words: list[str], text: str) -> list[Candidate] | None:
    """Return what may replace ``text`` after the ``words`` (without the program's own name).

    None: a path, which the shell completes itself. An empty list: nothing that rmqtool could know.
    """
    at = next((n for n, word in enumerate(words) if not word.startswith("-")), None)
    if at is None:
        if text.startswith("-"):
            return _options_like(ROOT_OPTIONS, text)
        return _like([(name, says) for name, says, _, _ in COMMANDS], text)
    command = next((command for command in COMMANDS if command[0] == words[at]), None)
    if command is None:
        return []
    _, _, places, options = command
    line = _Line(words[at + 1 :], {word: values for names, _, values in options for word in names})
    if line.open_values:
        return _values(line.open_values, line, text)
    if text.startswith("--") and "=" in text:
        name, _, begun = text.partition("=")
        values = _values(line.takes.get(name, ""), line, begun)
        return values if values is None else [(f"{name}={value}", says) for value, says in values]
    if text.startswith("-"):
        return _options_like(options, text)
    return _place(places, line, text)


class _Line:
    """The words after a command: positionals, values of options, and an option that waits for its value."""

    def __init__(self, words: list[str], takes: dict[str, str]) -> None:
        self.takes = takes
        self.positionals: list[str] = []
        self.given: dict[str, list[str]] = {}
        self.open_values = ""
        waiting = ""
        for word in words:
            name, sign, value = word.partition("=")
            if waiting:
                # bash splits --topic=Orders at the sign, which comes as a word of its own.
                if word != "=":
                    self.given.setdefault(takes[waiting], []).append(word)
                    waiting = ""
            elif sign and name.startswith("--"):
                self.given.setdefault(takes.get(name, ""), []).append(value)
            elif takes.get(word):
                waiting = word
            elif not word.startswith("-") or word == "-":
                self.positionals.append(word)
        self.open_values = takes[waiting] if waiting else ""

    def root(self) -> str | None:
        """Return the directory of the store in the line."""
        named = self.positionals[0] if self.positionals else ""
        return store_names.find_root(named if store_names.is_path(named) else store_names.default_store())


def _place(places: tuple[str, ...], line: _Line, text: str) -> list[Candidate] | None:
    """Return the candidates for the next place after the command."""
    at = len(line.positionals)
    if places[:1] == ("store",):
        if at == 0 and not os.path.isdir(store_names.default_store()):
            return None
        # Without a STORE the command's own words come first.
        at += 0 if line.positionals and store_names.is_path(line.positionals[0]) else 1
    return _values(places[at], line, text) if at < len(places) else []


def _values(source: str, line: _Line, text: str) -> list[Candidate] | None:
    """Return the values of one kind that begin with ``text``; None for paths."""
    if source in _SOURCES:
        return _like(_SOURCES[source](line), text)
    if source in ("any", ""):
        return []
    if source in _PATHS:
        return None
    before, comma, begun = text.rpartition(",")
    words = [word for word in source.split("|") if word not in before.split(",")]
    found = _like([(before + comma + word, "") for word in words if word not in _PATHS], before + comma + begun)
    return None if not found and _PATHS & set(words) else found


def _times(_line: _Line) -> list[Candidate]:
    return [(word, "") for word in _TIMES]


def _topics(line: _Line) -> list[Candidate]:
    root = line.root()
    return store_names.topics(root) if root is not None else []


def _groups(line: _Line) -> list[Candidate]:
    root = line.root()
    return store_names.groups(root) if root is not None else []


def _queues(line: _Line) -> list[Candidate]:
    root = line.root()
    return store_names.queues(root, line.given.get("topics", [])) if root is not None else []


_SOURCES: dict[str, Callable[[_Line], list[Candidate]]] = {
    "topics": _topics,
    "groups": _groups,
    "queues": _queues,
    "times": _times,
}


def _like(found: Iterable[Candidate], text: str) -> list[Candidate]:
    return [one for one in found if one[0].startswith(text)]


def _options_like(options: tuple[tuple[tuple[str, ...], str, str], ...], text: str) -> list[Candidate]:
    """Return the options that begin with ``text``, each once: by its long name unless only a short one matches."""
    every = [(name, says) for names, says, _ in options for name in (names if len(text) > 1 else names[-1:])]
    return _like(every, text)


def _from_bash() -> tuple[list[str], str]:
    words = _split(os.environ["COMP_WORDS"])
    at = int(os.environ["COMP_CWORD"])
    text = words[at] if at < len(words) else ""
    return words[1:at], "" if text == "=" else text


def _from_line() -> tuple[list[str], str]:
    line = os.environ["_TYPER_COMPLETE_ARGS"]
    words = _split(line)[1:]
    return (words[:-1], words[-1]) if words and not line.endswith(" ") else (words, "")


def _split(line: str) -> list[str]:
    """Split a line as a shell does; an open quote ends at the end of the line."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=False)
    lexer.whitespace_split = True
    lexer.commenters = ""
    words: list[str] = []
    try:
        words += lexer
    except ValueError:
        words.append(lexer.token)
    return words


def _to_bash(found: list[Candidate] | None) -> int:
    """Print the candidates for bash; the status tells ``BASH_SCRIPT`` that a path belongs there."""
    for value, _ in found or ():
        sys.stdout.write(value.replace("|", "\\|") + "\n")
    return 1 if found is None else 0


def _to_zsh(found: list[Candidate] | None) -> int:
    """Print the candidates for zsh, each with a description."""
    if found is None:
        sys.stdout.write("_files\n")
    elif found:
        lines = [
            f'"{value.replace(":", chr(92) * 2 + ":")}"' + (f':"{_zsh_quoted(says)}"' if says else "")
            for value, says in found
        ]
        sys.stdout.write("_arguments '*: :((" + "\n".join(lines) + "))'\n")
    return 0


def _zsh_quoted(says: str) -> str:
    """Return a description for use in double quotes inside single quotes.

    The shell evaluates the line, which removes the single quotes; ``_arguments`` evaluates the text in the double
    quotes; and the display of descriptions takes a backslash for an escape.
    """
    shown = _plain(says).replace("\\", "\\\\")
    return re.sub(r'[\\"$`]', r"\\\g<0>", shown).replace("'", "'\\''")


def _to_fish(found: list[Candidate] | None) -> int:
    if os.environ.get("_TYPER_COMPLETE_FISH_ACTION") == "is-args":
        return 1 if found is None else 0
    for value, says in found or ():
        sys.stdout.write(f"{value}\t{_plain(says)}\n" if says else f"{value}\n")
    return 0


def _plain(says: str) -> str:
    """Return a text without characters that would move the cursor or end a line."""
    return "".join(character if character.isprintable() else " " for character in says)


_READERS = {"bash": _from_bash, "zsh": _from_line, "fish": _from_line}
_WRITERS = {"bash": _to_bash, "zsh": _to_zsh, "fish": _to_fish}
