"""``init``: an empty store that info understands, and that takes nobody's place."""

from __future__ import annotations

import errno
import json
import os

import pytest

from rmqtool.cli import main
from rmqtool.errors import Exit


def run(capsys, *words):
    status = main([str(word) for word in words])
    out, err = capsys.readouterr()
    return status, out, err


def test_a_new_store_has_the_directories_and_the_settings(tmp_path, capsys):
    root = tmp_path / "new" / "store"
    status, out, _ = run(capsys, "init", root, "--as", "5.4", "--conf", "mappedFileSizeCommitLog=65536", "--json")
    assert (status, json.loads(out)) == (Exit.DONE, {"store": str(root), "version": "5.4"})
    assert sorted(path.name for path in root.iterdir()) == [
        "broker.conf",
        "commitlog",
        "config",
        "consumequeue",
        "index",
    ]
    settings = (root / "broker.conf").read_text().splitlines()
    assert f"storePathRootDir={root}" in settings
    assert "mappedFileSizeCommitLog=65536" in settings


def test_info_of_a_new_store_knows_its_version_and_finds_nothing_wrong(tmp_path, capsys):
    assert run(capsys, "init", tmp_path / "s", "--as", "4.9")[0] == Exit.DONE
    status, out, _ = run(capsys, "info", tmp_path / "s", "--json")
    shown = json.loads(out)
    assert (status, shown["version"], shown["findings"]) == (Exit.DONE, "4.9", [])
    assert shown["commitLog"] == {"files": 0, "fileSize": 0, "minOffset": 0, "maxOffset": 0}


@pytest.mark.parametrize("is_there", [True, False])
def test_the_directory_above_need_not_be_readable(is_there, tmp_path, capsys, monkeypatch):
    """Home directories of services often have the mode 0711: nobody else can open them to sync them."""
    real, synced, root = os.open, [], tmp_path / "store"
    if is_there:
        root.mkdir()

    def closed(path, *how, **more):
        if path == str(tmp_path):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return real(path, *how, **more)

    monkeypatch.setattr(os, "open", closed)
    monkeypatch.setattr(os, "sync", lambda: synced.append(True))
    assert run(capsys, "init", root)[0] == Exit.DONE
    assert (root / "broker.conf").exists()
    # The name of a new directory becomes durable in another way.
    assert len(synced) == (not is_there)


def test_a_directory_that_holds_something_is_refused_and_left_alone(tmp_path, capsys):
    (tmp_path / "mine").write_text("x")
    status, _, err = run(capsys, "init", tmp_path)
    assert status == Exit.REFUSED
    assert "not empty" in err
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_creation_that_was_interrupted_is_done_again(tmp_path, capsys):
    for name in ("commitlog", "consumequeue"):
        (tmp_path / name).mkdir()
    (tmp_path / "broker.conf.new").write_bytes(b"# Set")
    assert run(capsys, "init", tmp_path)[0] == Exit.DONE
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["broker.conf", "commitlog", "config", "consumequeue", "index"]
    assert b"storePathRootDir=" in (tmp_path / "broker.conf").read_bytes()
    assert run(capsys, "init", tmp_path)[0] == Exit.REFUSED


@pytest.mark.parametrize("conf", ["nonsense=1", "mappedFileSizeCommitLog=many", "noequals"])
def test_a_setting_that_means_nothing_is_an_error_before_anything_is_made(conf, tmp_path, capsys):
    status, _, err = run(capsys, "init", tmp_path / "s", "--conf", conf)
    assert status == Exit.USAGE
    assert err.startswith("rmqtool: ")
    assert not (tmp_path / "s").exists()


def test_a_directory_without_a_store_is_no_store(tmp_path, capsys):
    (tmp_path / "letters.txt").write_text("x")
    status, _, err = run(capsys, "info", f"{tmp_path}/")
    assert status == Exit.NOT_A_STORE
    assert "no file of a store" in err
