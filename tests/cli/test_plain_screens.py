"""What people see: no two rows alike, nothing hidden without a word, places that can be typed, one cause told once."""

from __future__ import annotations

import json
import re
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from rmqtool.cli import main
from rmqtool.errors import Exit
from rmqtool.render.tables import Column, Cut, Kind, lay_out
from rmqtool.render.text import display_width, hanging, wrapped
from tests.support.stores import truth, unpack


def run(capsys, *words) -> tuple[int, str, str]:
    status = main([str(word) for word in words])
    out, err = capsys.readouterr()
    return status, out, err


# --- tables

NAMES = (
    "RMQ_SYS_TRANS_HALF_TOPIC",
    "RMQ_SYS_TRANS_OP_HALF_TOPIC",
    "short",
    "%RETRY%HG_popclient_HT_pop",
    "%RETRY%HG_pop_HT_pop",
)


@pytest.mark.parametrize("width", range(24, 50))
@pytest.mark.parametrize("cut", [Cut.MIDDLE, Cut.END])
def test_no_two_rows_look_alike_because_a_name_was_cut(cut, width):
    rows = [{"topic": name, "messages": 1_000_000} for name in NAMES]
    _, *lines = lay_out(
        rows, [Column("topic", "topic", cut=cut), Column("messages", "messages", Kind.COUNT)], width=width
    )
    assert len(set(lines)) == len(NAMES)


def test_a_column_that_has_no_room_is_named():
    columns = [Column("a", "first"), Column("b", "second", spare=True), Column("c", "third", spare=True)]
    rows = [{"a": "x" * 20, "b": "y" * 20, "c": "z" * 20}]
    assert lay_out(rows, columns, width=80)[-1].split() == ["x" * 20, "y" * 20, "z" * 20]
    assert lay_out(rows, columns, width=60)[-1] == "columns without room: third (--csv shows all)"
    assert " ".join(" ".join(lay_out(rows, columns, width=40)[-2:]).split()) == (
        "columns without room: second, third (--csv shows all)"
    )


@pytest.mark.parametrize("width", [20, 33, 80])
def test_a_wide_character_takes_two_cells(width):
    text = "body      delta30 消息消息消息 🚀🚀🚀🚀 " + "juliett消息" * 12 + " 消" * 40
    lines = hanging(text, width, 10)
    assert all(display_width(line) <= max(width, 30) for line in lines)
    assert "".join("".join(lines).split()) == "".join(text.split())
    assert all(line.startswith(" " * 10) for line in lines[1:])


def test_a_word_is_only_cut_where_it_may_be():
    assert wrapped("aa bbbbbbbbbb cc", 6, ("", " "), cut_words=False) == ["aa", " bbbbbbbbbb", " cc"]
    assert wrapped("aa bbbbbbbbbb cc", 6, ("", " ")) == ["aa bbb", " bbbbb", " bb cc"]


# --- findings


def test_many_findings_of_one_cause_are_one_with_a_count(writable_store, capsys):
    root = writable_store("53-broker")
    shutil.rmtree(root / "consumequeue")
    status, out, _ = run(capsys, "check", root)
    assert status == Exit.NO
    assert out.count("CQ-MISSING") == 4
    assert f"and 29 more CQ-MISSING ({len(truth('53-broker')['messages'])} messages in all)" in out
    assert "32 problems found (32 errors)" in out
    worst = re.search(r"(\d+) messages are missing from the queue", out)
    assert worst is not None
    assert worst[1] == "70"
    assert run(capsys, "check", root, "-v")[1].count("messages are missing from the queue") > 20
    assert run(capsys, "check", root, "--jsonl")[1].count('"CQ-MISSING"') == 32


def test_a_place_can_be_pasted_behind_dump(writable_store, monkeypatch, capsys):
    root = writable_store("53-broker")
    monkeypatch.chdir(root.parent)
    victim = truth("53-broker")["messages"][4]
    path = root / "commitlog" / "00000000000000000000"
    data = bytearray(path.read_bytes())
    data[victim["commitLogOffset"] + 90] ^= 1
    path.write_bytes(data)
    out = run(capsys, "check", "store")[1]
    place = re.search(r"CL-CRC +(\S+@\d+-\d+)", out)
    assert place is not None
    begin, end = victim["commitLogOffset"], victim["commitLogOffset"] + victim["storeSize"]
    assert place[1] == f"store/commitlog/{path.name}@{begin}-{end}"
    status, shown, _ = run(capsys, "dump", place[1])
    assert status == Exit.DONE
    assert victim["topic"] in shown


# --- recover


def test_nothing_is_said_in_green_while_messages_are_missing(writable_store, capsys):
    root = writable_store("53-broker")
    (root / "commitlog" / "00000000000000065536").unlink()
    status, out, _ = run(capsys, "recover", root, "--color", "always")
    assert status == Exit.DONE
    assert "64.0 KiB in the middle of the log are missing already, with their messages" in out
    assert "\x1b[32m" not in out
    assert "\x1b[33m" in out or "\x1b[1;33m" in out


def test_a_start_that_deletes_every_queue_is_an_error(writable_store, capsys):
    root = writable_store("53-broker")
    for path in (root / "commitlog").iterdir():
        path.unlink()
    status, out, _ = run(capsys, "recover", root, "--color", "always")
    assert status == Exit.NO
    verdict = next(line for line in out.splitlines() if "no message would be deleted, but see TRAP above" in line)
    assert "\x1b[31m" in verdict or "\x1b[1;31m" in verdict


# --- what is no store


def test_a_directory_two_levels_above_several_stores_is_none(tmp_path, capsys):
    for name in ("49-basic", "53-basic"):
        unpack(name, tmp_path / name)
    for command in ("info", "check"):
        status, out, err = run(capsys, command, tmp_path)
        assert (status, out) == (Exit.NOT_A_STORE, "")
        assert f"is not a store, but {tmp_path}/49-basic/store and {tmp_path}/53-basic/store are" in err


def test_a_wrong_path_is_refused_whatever_lies_below_it(tmp_path, capsys):
    deep = tmp_path / "one" / "two" / "three" / "four"
    deep.mkdir(parents=True)
    unpack("49-basic", deep)
    sealed = Path(tmp_path / "one" / "two" / "three")
    status, _, err = run(capsys, "info", tmp_path)
    assert status == Exit.NOT_A_STORE
    assert f"{tmp_path} contains no file of a store" in err
    assert str(sealed) not in err


@pytest.mark.parametrize("keep", ["commitlog", "consumequeue", "index", "config"])
def test_what_is_left_of_a_store_is_one(keep, writable_store, capsys):
    root = writable_store("53-broker")
    for path in root.iterdir():
        if path.name != keep:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert run(capsys, "info", root)[0] == Exit.DONE


# --- words of other tools


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("help", "--help"),
        ("version", "--version"),
        ("lag", "info STORE groups"),
        ("groups", "info STORE groups"),
        ("list", "info STORE topics"),
        ("count", "cat STORE --count"),
        ("backup", "copy STORE NEW"),
        ("search", "query STORE WHAT"),
        ("grep", "cat STORE --body-re REGEX"),
        ("rebuild", "repair STORE"),
        ("mqadmin", "--help"),
        ("cta", "cat"),
    ],
)
def test_a_word_of_another_tool_leads_somewhere(word, meant, capsys):
    status, _, err = run(capsys, word)
    assert status == Exit.USAGE
    assert err.splitlines()[-1].strip() == f"did you mean: rmqtool {meant}"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("cat", "--format"), "did you mean --template or --json or --csv?"),
        (("info", "--output"), "did you mean --json or --csv?"),
        (("query", "--where"), "did you mean --topic?"),
        (("cat", "--toppic"), "did you mean --topic?"),
        (("query", "--sort"), "rmqtool query --help"),
    ],
)
def test_an_option_of_another_tool_leads_somewhere(words, said, store, capsys):
    command, option = words
    status, _, err = run(capsys, command, store("49-basic"), option, "x")
    assert status == Exit.USAGE
    assert err.strip().endswith(said)


@pytest.mark.parametrize(
    ("command", "option", "said"),
    [
        ("recover", "--dry-run", "recover changes nothing without --apply: leave --dry-run out"),
        ("repair", "--dry-run", "repair changes nothing without --apply: leave --dry-run out"),
        ("recover", "--no-apply", "recover changes nothing without --apply: leave --no-apply out"),
        ("repair", "--force", "the plan names each step that needs permission: rmqtool repair STORE"),
        ("repair", "--aply", "Next: rmqtool repair --help"),
        ("repair", "--yess", "Next: rmqtool repair --help"),
        ("info", "--dry-run", "Next: rmqtool info --help"),
    ],
)
def test_an_option_that_writes_is_never_suggested(command, option, said, store, capsys):
    status, _, err = run(capsys, command, store("49-basic"), option)
    assert status == Exit.USAGE
    assert err.splitlines()[-1].strip() == said


# --- what comes from a store is never obeyed


@pytest.mark.parametrize(("at", "code"), [(4, "CL-MAGIC"), (100, "CL-CRC")])
def test_damage_that_is_counted_is_told_in_plain_letters(at, code, writable_store, capsys):
    root = writable_store("53-broker")
    path = root / "commitlog" / "00000000000000000000"
    data = bytearray(path.read_bytes())
    data[truth("53-broker")["messages"][4]["commitLogOffset"] + at] ^= 1
    path.write_bytes(data)
    where = [root] if code == "CL-MAGIC" else ["--carve", path]
    status, _, err = run(capsys, "cat", *where, "--count", "--color", "always")
    assert status == Exit.SKIPPED
    assert f"damage  {code}" in err
    assert "x1b" not in err


def test_csv_spells_out_what_a_screen_might_obey(tmp_path, capsys):
    root = tmp_path / "store"
    assert run(capsys, "init", root)[0] == Exit.DONE
    assert run(capsys, "produce", root, "-t", "T", "--create", "a\x1b[31mred\x07 \x7f\tb\nc")[0] == Exit.DONE
    status, out, _ = run(capsys, "cat", root, "--csv")
    assert status == Exit.DONE
    assert "a\\x1b[31mred\\x07 \\x7f\tb\nc" in out
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", out)


# --- a message that is lost, or gone


def test_a_lost_message_is_named_and_query_and_check_say_the_same_place(writable_store, capsys):
    root = writable_store("53-broker")
    victim = next(m for m in truth("53-broker")["messages"] if m["topic"] == "T_normal" and m.get("keys"))
    base = victim["commitLogOffset"] - victim["commitLogOffset"] % 65536
    path = root / "commitlog" / f"{base:020d}"
    data = bytearray(path.read_bytes())
    data[victim["commitLogOffset"] - base + 88] ^= 1
    path.write_bytes(data)
    lines = [json.loads(line) for line in run(capsys, "check", root, "--jsonl")[1].splitlines()]
    (found,) = [line for line in lines if line.get("code") == "CL-CRC"]
    assert (found["data"]["keys"], found["data"]["uniqKey"]) == (victim["keys"], victim["uniqKey"])
    quoted = ", ".join(f'"{key}"' for key in victim["keys"].split())
    named = f"{'keys' if ' ' in victim['keys'] else 'key'} {quoted} and the unique key {victim['uniqKey']}"
    assert f"the message had the {named}" in found["message"]
    status, out, _ = run(capsys, "query", root, f"@{victim['commitLogOffset']}", "--json")
    (again,) = json.loads(out)["findings"]
    assert status == Exit.SKIPPED
    assert (again["code"], again["file"], again["offset"]) == ("CL-CRC", found["file"], found["offset"])


@pytest.mark.parametrize("what", ["@100", "Ancient/0@1", "no-such-key"])
def test_a_message_that_expired_is_said_to_be_older_than_the_log(what, store, capsys):
    status, out, _ = run(capsys, "query", store("49-cleaned"), what)
    oldest = truth("49-cleaned")["messages"][0]
    when = datetime.fromtimestamp(oldest["storeTimestamp"] / 1000, UTC).isoformat(timespec="milliseconds")
    said = f"the log begins at 98304 with the message stored at {when.replace('+00:00', 'Z')}; retention deletes"
    assert status == Exit.NO
    assert f"{said} what is older" in " ".join(out.split())


@pytest.mark.parametrize("words", [["cat"], ["info"], ["stat"], ["check"], ["export", "--to", "lake"], ["query", "k"]])
def test_a_path_that_is_not_there_is_said_so_by_every_command(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "nowhere" / "at" / "all"
    assert main([words[0], str(path), *words[1:]]) == Exit.NOT_A_STORE
    assert f"{path} does not exist" in capsys.readouterr().err


@pytest.mark.parametrize("part", ["config/topics.json", "consumequeue/T_normal/2/00000000000000000000", "checkpoint"])
def test_one_file_is_not_taken_for_a_sound_store(part, store, capsys):
    root = store("53-broker")
    assert main(["info", str(root / part)]) == Exit.USAGE
    assert capsys.readouterr().err.splitlines()[1].strip() == f"Next: rmqtool info {root}"


def test_a_check_of_a_part_names_places_of_the_whole(writable_store, capsys):
    """T_normal/2@5 is at 38361."""
    root = writable_store("53-broker")
    log = root / "commitlog" / f"{0:020}"
    data = bytearray(log.read_bytes())
    data[38361 + 100] ^= 1
    log.write_bytes(data)
    assert main(["check", str(root / "consumequeue" / "T_normal")]) == Exit.NO
    out = capsys.readouterr().out
    assert f" {log}@38361-39503 T_normal/2 " in out
    assert out.splitlines()[-1] == f"Next: rmqtool repair {root}"
