"""What somebody types at night by mistake, and what is said then."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path

import pytest

from rmqtool.cli import main
from rmqtool.errors import Exit
from tests.support.stores import left_alone, unpack


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = main(list(words))
    shown = capsys.readouterr()
    return status, shown.out, " ".join(shown.err.split())


@pytest.fixture
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that holds a store, to be in."""
    unpack("53-killed", tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "words",
    [
        ("info", "."),
        ("check", "."),
        ("repair", ".", "--apply"),
        ("recover", ".", "--apply"),
        ("produce", ".", "-t", "T", "x"),
    ],
    ids=lambda words: words[0],
)
def test_the_directory_above_a_store_is_none_and_the_store_is_named(
    words: tuple[str, ...], parent: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with left_alone(parent):
        status, _, err = run(capsys, *words)
    assert (status, err) == (Exit.NOT_A_STORE, "rmqtool: . is not a store, but ./store is name that as STORE")


@pytest.mark.parametrize("name", ["49-dledger", "53-rocksdb", "49-multidir"])
def test_stores_of_every_kind_are_seen_from_above(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = unpack(name, tmp_path)
    assert f"is not a store, but {root} is" in run(capsys, "info", str(tmp_path))[2]
    assert run(capsys, "info", str(root))[0] == Exit.DONE


def test_two_stores_side_by_side_are_both_named(parent: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(parent / "store", parent / "a copy")
    assert run(capsys, "info", ".")[2].startswith("rmqtool: . is not a store, but ./a copy and ./store are")


def test_a_store_that_lacks_its_log_or_its_queues_is_one_all_the_same(
    parent: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(parent / "store/consumequeue")
    assert run(capsys, "info", "store")[0] == Exit.DONE
    shutil.rmtree(parent / "store/commitlog")
    assert run(capsys, "info", "store")[0] == Exit.DONE


def test_one_file_of_the_log_lacks_no_checkpoint(parent: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "info", "store/commitlog/00000000000000000000", "--json")
    assert (status, json.loads(out)["findings"]) == (Exit.DONE, [])


@pytest.mark.parametrize(
    "words",
    [
        ("info", "store", "topics", "-t", "Kil"),
        ("info", "store", "queues", "-t", "Kil"),
        ("copy", "store", "new", "-t", "Kil"),
        ("export", "store", "--engine", "local", "--to", "lake", "-t", "Kil", "--progress", "never"),
    ],
    ids=lambda words: "-".join(words[:1] + words[2:3]),
)
def test_a_topic_that_is_misspelt_is_said_to_be_unknown(
    words: tuple[str, ...],
    store: object,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    unpack("49-killed", tmp_path)
    monkeypatch.chdir(tmp_path)
    status, _, err = run(capsys, *words)
    assert status == Exit.NO
    # An export says too that it wrote nothing.
    said = err.replace("; nothing was written", ".")
    assert 'there is no topic "Kil". Did you mean Kill, Kill2?' in " ".join(said.split()).replace(
        "rmqtool: ", ""
    ).replace("did", "Did")


def test_a_group_that_is_misspelt_is_said_to_be_unknown(store, capsys: pytest.CaptureFixture[str]) -> None:
    root = str(store("53-broker"))
    status, out, err = run(capsys, "info", root, "groups", "-g", "G_opk")
    assert (status, out) == (Exit.NO, "nothing to list\n")
    assert err == "no group matches G_opk. Did you mean G_ok?"
    assert run(capsys, "info", root, "groups", "-g", "G_*", "--jsonl")[2] == ""


def test_who_is_behind_stands_below_the_groups(store, capsys: pytest.CaptureFixture[str]) -> None:
    root = str(store("53-broker"))
    out = run(capsys, "info", root, "groups", "-g", "G_*")[1]
    assert out.endswith(
        f"3 groups lag: G_popfifo 8, G_pop 2, G_popclient 1\nNext: rmqtool cat {root} -g G_popfifo --unread\n"
    )
    assert run(capsys, "info", root, "groups", "-g", "G_ok")[1].endswith("no group lags\n")


def test_a_level_behind_the_last_is_the_last_and_that_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = str(tmp_path / "new")
    run(capsys, "init", root, "--conf", "mappedFileSizeCommitLog=65536")
    words = ("produce", root, "-t", "T", "--create", "--delay")
    status, out, err = run(capsys, *words, "99", "x")
    assert (status, "waits in SCHEDULE_TOPIC_XXXX/17@0" in out) == (Exit.DONE, True)
    assert "there is no delay level 99: brokers use the last one, 18 (2h); for seconds write --delay 99s" in err
    assert "delay level 18 is 2h; for seconds write --delay 18s" in run(capsys, *words, "18", "x")[2]


def test_nothing_half_written_is_left_where_there_was_no_room(
    parent: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    kept = parent / "kept"
    kept.mkdir()
    commands = (("init", "new"), ("init", "kept"), ("recover", "store", "--to", "after"))
    with monkeypatch.context() as disk:
        disk.setattr(os, "pwrite", full)
        assert [run(capsys, *words)[0] for words in commands] == [Exit.WRITE_FAILED] * 3
    assert sorted(path.name for path in parent.iterdir()) == ["kept", "store"]
    assert list(kept.iterdir()) == []
    # And so the same can be typed again.
    assert [run(capsys, *words)[0] for words in commands] == [Exit.DONE] * 3


def test_a_directory_that_is_no_journal_leads_to_its_store(parent: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = run(capsys, "repair", "--undo", "store")
    assert (status, "rmqtool repair STORE --undo store" in err) == (Exit.USAGE, True)


def test_what_to_type_next_can_be_typed_where_a_path_has_a_blank(
    parent: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (parent / "store").rename(parent / "a store")
    assert run(capsys, "info", "a store")[1].endswith("Next: rmqtool recover 'a store'\n")  # it was not closed
    (parent / "a store/abort").unlink()
    assert run(capsys, "info", "a store")[1].endswith("Next: rmqtool check 'a store'\n")
    assert run(capsys, "init", "a new one")[1].endswith("Next: rmqtool info 'a new one'\n")


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("recover", "store", "-apply"), "recover has no option -a did you mean --apply?"),
        (("check", "store", "-quick"), "check has no option -q did you mean --quick?"),
        (("recover", "store", "-zip"), "recover has no option -z Next: rmqtool recover --help"),
    ],
    ids=lambda value: value[-1] if isinstance(value, tuple) else "",
)
def test_one_dash_where_two_belong(
    words: tuple[str, ...], hint: str, parent: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with left_alone(parent):
        assert run(capsys, *words)[::2] == (Exit.USAGE, f"rmqtool: {hint}")


def test_a_copy_to_where_nobody_may_write_asks_for_another_place(
    parent: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "mkdir", refuse)
    status, _, err = run(capsys, "copy", "store", "new")
    assert status == Exit.WRITE_FAILED
    assert "new cannot be made: Permission denied name a directory that you can write to" in err
