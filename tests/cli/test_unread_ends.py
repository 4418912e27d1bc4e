"""A disk that cannot read the end of the log: where it ends is unknown, so no command recovers it or writes there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rmqtool.cli import main
from rmqtool.errors import Exit
from tests.support.bad_sectors import spoil_files

COMMANDS = (("recover", "--apply"), ("repair", "--apply"))


@contextmanager
def left_alone(root: Path) -> Iterator[None]:
    """Fail unless all files have the same bytes and times; they are read past the failing disk."""

    def files() -> dict[Path, tuple[int, bytes]]:
        return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in root.rglob("*") if path.is_file()}

    before = files()
    yield
    assert files() == before


# How many of the three segments cannot be read, and from which byte of the first of those on.
@pytest.fixture(params=[(1, 0), (2, 20_000)], ids=str)
def made(
    writable_store: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Path:
    number, begin = request.param
    root = writable_store("49-broker")
    unread = sorted((root / "commitlog").iterdir())[-number:]
    spoil_files(monkeypatch, unread, begin)
    return root


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("killed", [False, True])
def test_entries_and_segments_stay(
    made: Path, words: tuple[str, ...], killed: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    root = made
    if killed:
        (root / "abort").touch()
    with left_alone(root):
        assert main([words[0], str(root), *words[1:]]) == Exit.REFUSED
    told = capsys.readouterr()
    assert not told.out
    assert "so it is not known where it ends" in told.err
    assert f"rmqtool copy --salvage {root}" in told.err


def test_a_server_does_not_write_there(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (made / "abort").touch()
    with left_alone(made):
        assert (
            main(["serve", str(made), "--for", "1s", "--listen", "127.0.0.1:0", "--names", "127.0.0.1:0"])
            == Exit.REFUSED
        )
    assert "so it is not known where it ends" in capsys.readouterr().err


def test_what_can_be_read_is_served_and_copied(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = str(tmp_path / "state")
    words = ["--read-only", "--state", state, "--for", "1s", "--listen", "127.0.0.1:0", "--names", "127.0.0.1:0"]
    with left_alone(made):
        assert main(["serve", str(made), *words]) == Exit.DONE
        assert "serving" in capsys.readouterr().out
        assert main(["copy", "--salvage", str(made), str(tmp_path / "copy")]) == Exit.SKIPPED
    capsys.readouterr()
    assert main(["cat", str(made), "--count"]) == Exit.SKIPPED
    readable = capsys.readouterr().out
    assert main(["cat", str(tmp_path / "copy"), "--count"]) == Exit.DONE
    assert capsys.readouterr().out == readable
