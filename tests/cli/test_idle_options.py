"""An option that has no effect on what is asked is refused, and the hint says where it has one."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtool.cli import main
from rmqtool.errors import Exit


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("info S -t T_normal", "-t has no effect on info without a view"),
        ("info S -g G_ok", "it narrows the rows of info STORE groups"),
        ("info S topics -g G_ok", "-g has no effect on info topics"),
        ("info S topics -q 1", "it narrows the rows of info STORE queues, info STORE groups"),
        ("info S files -q 1", "-q has no effect on info files"),
        ("info S config -t T_normal", "-t has no effect on info config"),
        ("stat S delay --limit 3", "--limit has no effect on stat delay"),
        ("stat S retention --duplicates body", "--duplicates has no effect on stat retention"),
        ("stat S tx --map", "--map has no effect on stat tx"),
        ("stat S --map --by tag", "--by has no effect on stat --map"),
        ("check --explain CL-CRC --quick", "--quick has no effect on check --explain"),
        ("check --explain CL-CRC --fail-on error", "--fail-on has no effect on check --explain"),
        ("query S T_normal/0@1 -g G_ok", "-g has no effect on where a message is"),
        ("query S 2026-11-18T12:19:26Z -t T_normal --history", "--history has no effect on the offset of a time"),
        ("query S 2026-11-18T12:19:26Z -t T_normal -n 1", "-n has no effect on the offset of a time"),
        ("repair S --list --plan 000000000000", "--undo and --list cannot be combined with other options"),
        ("repair S queues --truncate", "--bridge and --truncate are about the log"),
        ("repair S offsets -g G_ok --to min --bridge", "--bridge and --truncate are about the log"),
        ("export S --plan --schema", "--plan and --schema exclude each other"),
        ("consume S -g G_ok --timeout 1s", "--timeout is for the program of --exec"),
        ("consume S -g G_ok -t T_normal --pop --commit", "--pop takes no --commit pop always commits"),
        ("export S --engine local --to ./new --conf spark.ui.enabled=false", "--conf is for Spark; --engine local"),
        ("export S --engine local --to ./new --master local[2]", "--master is for Spark; --engine local"),
        ("topic S create New --yes", "--yes has no effect on topic create"),
        ("cat S --count --body none", "--count shows no bodies leave out --body or --count"),
        ("produce S -t T_normal -g G_ok hello", "-g is the group of a transaction"),
        ("dump S@0 --refs --as-declared", "--refs and --as-declared do not go together"),
        ("dump S/checkpoint --refs", "--refs is about one record name the record: STORE@OFFSET"),
    ],
)
def test_is_refused(line: str, said: str, store, capsys: pytest.CaptureFixture[str]) -> None:
    root: Path = store("53-broker")
    status = main([word.replace("S", str(root), 1) if word[:1] == "S" else word for word in line.split()])
    assert status == Exit.USAGE
    assert said in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("setting", ["mappedFileSizeCommitLog=-1", "mappedFileSizeConsumeQueue=0", "maxIndexNum=-5"])
def test_no_store_is_made_whose_files_would_have_no_size(
    setting: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = main(["init", str(tmp_path / "new"), "--conf", setting])
    assert (status, list(tmp_path.iterdir())) == (Exit.USAGE, [])
    assert f"{setting}: no file can be made of that size" in capsys.readouterr().err
