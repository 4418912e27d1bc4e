"""A template with a name that no row has is refused before anything is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtool.errors import Exit
from tests.guards.incidents import segment, spoil
from tests.guards.typed import at, type_words
from tests.support.stores import content_digest, unpack

# A line of each command that writes; ``{s}`` is the store, ``{p}`` the directory that it is in.
LINES = {
    "recover": "recover {s} --apply",
    "repair": "repair {s} --apply",
    "copy": "copy {s} {p}/new",
    "init": "init {p}/new",
    "topic": "topic {s} create New",
    "group": "group {s} create New",
    "produce": "produce {s} -t T_normal -q 1 hello",
    "tick": "tick {s}",
    "consume": "consume {s} -g G_new -t T_normal --from first --commit",
    "export": "export {s} --engine local --to {p}/lake",
}


def content(place: Path) -> dict[str, str]:
    return {
        str(path.relative_to(place)): content_digest(path) if path.is_file() else ""
        for path in sorted(place.rglob("*"))
        if path.name != "lock"
    }


@pytest.mark.parametrize("name", LINES)
def test_a_wrong_template_changes_nothing(name: str, tmp_path: Path) -> None:
    root = unpack("53-broker", tmp_path)
    if "repair" in name or "recover" in name:
        spoil(segment(root, 1), 8300, 1)
    before = content(tmp_path)
    words = LINES[name].replace("{s}", str(root)).replace("{p}", str(tmp_path)).split()
    with at(tmp_path):
        typed = type_words([*words, "--template", "{noSuchName}"])
    assert (typed.status, content(tmp_path)) == (Exit.USAGE, before), typed.said
    assert "unknown template field {noSuchName}" in typed.err
