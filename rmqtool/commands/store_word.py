"""Find STORE among the words of a command line: which path is meant. ``api.store`` opens it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from shlex import quote
from typing import TYPE_CHECKING, NamedTuple

from typer._click.globals import get_current_context

from rmqtool.errors import UsageError

if TYPE_CHECKING:
    from rmqtool.api.wanted import Said
    from rmqtool.render.output import Output

VARIABLE = "RMQTOOL_STORE"
_HOME_STORE = "~/store"
_FORCED = ("./", "../")
_PLACE_OF_STORE = re.compile(r"\brmqtool [a-z]+ STORE\b")
_STORE = re.compile(r"\bSTORE\b")
_chosen: ContextVar[str | None] = ContextVar("chosen", default=None)


class StoreChoice(NamedTuple):
    """STORE as a path, the command's own words after it, and where STORE came from."""

    store: str
    words: tuple[str, ...]
    origin: str


def choose_store(
    words: Sequence[str],
    *,
    takes_words: bool | Collection[str] = False,
    environment: Mapping[str, str] = os.environ,
    exists: Callable[[str], bool] = os.path.exists,
) -> StoreChoice:
    """Tell STORE from the arguments of a command.

    STORE comes first. A single word is STORE if the command takes no words of its own, if it exists as a path, or if it
    is written as one (``./x``); else it is the command's own and STORE is the default. If a command takes only certain
    words, ``takes_words``, no other word is its own.
    """
    if not isinstance(takes_words, bool) and len(words) > 1 and words[0] in takes_words and not exists(words[0]):
        typed = get_current_context(silent=True)
        command = "rmqtool COMMAND" if typed is None else typed.command_path
        right = " ".join([command, quote(words[1]), words[0], *map(quote, words[2:])])
        raise UsageError(f'"{words[0]}" is not a store: STORE comes first', hint=right)
    takes_it = takes_words if isinstance(takes_words, bool) else len(words) != 1 or words[0] in takes_words
    choice = _choose(words, takes_it, environment, exists)
    _chosen.set(choice.store)
    keep_private([choice.store])
    return choice


def keep_private(stores: Iterable[str]) -> None:
    """Give files that this command makes no more permissions than the stores have.

    If a store's directory, or the first file of its log, is closed to group or others, so are the new files.
    Hints name the first of several stores: a command with STORE in it cannot be typed.
    """
    listed = list(stores)
    if listed:
        _chosen.set(listed[0])
    for store in listed:
        for path in (store, *_first_segment(store)):
            with suppress(OSError):  # opening the store reports the reason
                closed = ~os.stat(path).st_mode & (0o077 if os.path.isdir(path) else 0o066)
                os.umask(os.umask(0o077) | closed)


def _first_segment(store: str) -> list[str]:
    directory = os.path.join(store, "commitlog")
    try:
        with os.scandir(directory) as entries:
            names = [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]
    except OSError:
        return []
    return [os.path.join(directory, name) for name in sorted(names)[:1]]


def tell(output: Output, said: Said) -> None:
    """Show a note of the store about a question, and the command to type."""
    from rmqtool.render.text import neutral

    is_command = said.hint is not None and said.hint.startswith("rmqtool ")
    output.note(neutral(said.whole), typeable(said.hint) if is_command and said.hint is not None else None)


def typeable(hint: str) -> str:
    """Return a hint with the store of this command line in place of STORE, so that the command can be copied."""
    store = _chosen.get()
    if store is None or _PLACE_OF_STORE.search(hint) is None:
        return hint
    return _STORE.sub(lambda _: quote(store), hint)


def _choose(
    words: Sequence[str], takes_words: bool, environment: Mapping[str, str], exists: Callable[[str], bool]
) -> StoreChoice:
    if len(words) > 1 or (words and (not takes_words or _is_path(words[0], exists))):
        return StoreChoice(words[0], tuple(words[1:]), "command line")
    default = environment.get(VARIABLE)
    if default:
        return StoreChoice(default, tuple(words), f"${VARIABLE}")
    home = environment.get("HOME")
    store = os.path.join(home, _HOME_STORE[2:]) if home else os.path.expanduser(_HOME_STORE)
    if not exists(store):
        raise UsageError(
            f"which store? No STORE is given, ${VARIABLE} is not set and {_HOME_STORE} does not exist",
            hint=f"put STORE first, or set {VARIABLE}",
        )
    return StoreChoice(store, tuple(words), _HOME_STORE)


def _is_path(word: str, exists: Callable[[str], bool]) -> bool:
    return word.startswith(_FORCED) or word in (".", "..") or "://" in word or exists(word)
