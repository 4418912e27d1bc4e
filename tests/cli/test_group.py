"""``rmqtool group`` on the files of a store."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest

import rmqtool
from rmqtool.cli import main
from rmqtool.errors import Exit
from rmqtool.render.group import group_lines, group_list
from rmqtool.render.output import Look, Output
from tests.support.golden_files import check_golden
from tests.support.schemas import validate
from tests.support.stores import left_alone, truth

Capture = pytest.CaptureFixture[bytes]
Fresh = Callable[[str], Path]
TABLE = "subscriptionGroupTable"


def run(captured: Capture, *words: object) -> tuple[int, str, str]:
    status = main(["group", *map(str, words)])
    printed = captured.readouterr()
    return status, printed.out.decode(), printed.err.decode()


def shown(captured: Capture, *words: object) -> dict[str, Any]:
    status, out, err = run(captured, *words, "--json")
    assert status == Exit.DONE, err
    found = json.loads(out)
    validate("groups", found)
    groups: dict[str, Any] = found["groups"]
    return groups


def table_of(root: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((root / "config/subscriptionGroup.json").read_text())
    return found


@pytest.mark.parametrize("name", ["53-broker", "54-broker"])
def test_the_list_has_the_settings_that_the_broker_wrote(
    name: str, store: Callable[[str], Path], capsysbinary: Capture
) -> None:
    root = store(name)
    with left_alone(root):
        listed = shown(capsysbinary, root, "list")
        one = shown(capsysbinary, root, "show", "G_ok")
    written = truth(name)["configFiles"]["subscriptionGroup.json"][TABLE]
    assert set(written) <= set(listed)
    for group, config in written.items():
        settings = {key: value for key, value in listed[group].items() if key in config}
        assert settings == {key: config[key] for key in settings}
        assert len(settings) == 9
    assert one == {"G_ok": listed["G_ok"]}


def test_progress_and_lag_are_those_of_info_and_the_oldest_unread_message_is_dated(
    store: Callable[[str], Path], capsysbinary: Capture
) -> None:
    root = store("53-broker")
    listed = shown(capsysbinary, root, "list")
    assert {name: row["topics"] for name, row in listed.items() if row["topics"]} == rmqtool.info(root)["groups"]
    # Of what the fixture's broker had not delivered: the first message of each queue after the committed offset.
    place = listed["G_popfifo"]["topics"]["T_popfifo"]["0"]
    messages = [one for one in truth("53-broker")["messages"] if (one["topic"], one["queueId"]) == ("T_popfifo", 0)]
    (first,) = [one for one in messages if one["queueOffset"] == place["committed"]]
    assert place["oldestUnreadTimestamp"] == first["storeTimestamp"]
    assert all(
        ("oldestUnreadTimestamp" in queue) is (queue["lag"] > 0)
        for row in listed.values()
        for queues in row["topics"].values()
        for queue in queues.values()
    )


def test_a_group_is_made_changed_and_deleted(writable_store: Fresh, capsysbinary: Capture) -> None:
    root = writable_store("53-broker")
    before = table_of(root)
    made = shown(capsysbinary, root, "create", "Made", "--set", "retryMaxTimes=3", "--set", "consumeEnable=false")
    assert made["Made"] == {
        "consumeEnable": False,
        "consumeFromMinEnable": True,
        "consumeBroadcastEnable": True,
        "consumeMessageOrderly": False,
        "retryQueueNums": 1,
        "retryMaxTimes": 3,
        "brokerId": 0,
        "whichBrokerWhenConsumeSlowly": 1,
        "notifyConsumerIdsChangedEnable": True,
        "topics": {},
    }
    written = table_of(root)
    assert written[TABLE]["Made"] == {
        **before[TABLE]["G_ok"],
        "groupName": "Made",
        "retryMaxTimes": 3,
        "consumeEnable": False,
    }
    assert {name: one for name, one in written[TABLE].items() if name != "Made"} == before[TABLE]
    assert written["dataVersion"]["counter"] == before["dataVersion"]["counter"] + 1
    altered = shown(capsysbinary, root, "alter", "Made", "--set", "consumeEnable=true", "--set", "retryQueueNums=2")
    assert (altered["Made"]["consumeEnable"], altered["Made"]["retryQueueNums"]) == (True, 2)
    assert shown(capsysbinary, root, "delete", "Made", "--yes")["Made"]["deleted"] is True
    assert table_of(root)[TABLE] == before[TABLE]


def test_deleting_takes_the_offsets_and_leaves_retries_and_dead_letters(
    writable_store: Fresh, capsysbinary: Capture
) -> None:
    root = writable_store("53-broker")
    assert shown(capsysbinary, root, "show", "G_retry")["G_retry"]["topics"]
    assert run(capsysbinary, root, "delete", "G_retry")[0] == Exit.REFUSED
    assert run(capsysbinary, root, "delete", "G_retry", "--yes")[0] == Exit.DONE
    assert "G_retry" not in rmqtool.info(root)["groups"]
    assert "G_retry" not in (root / "config/consumerOffset.json").read_text()
    assert "G_retry" not in table_of(root)[TABLE]
    status, _, err = run(capsysbinary, root, "show", "G_retry")
    assert (status, "there is no group G_retry" in err) == (Exit.NO, True)
    assert "%DLQ%G_retry" in rmqtool.info(root)["topics"]


def test_a_group_that_has_offsets_only_is_listed_and_deleted(writable_store: Fresh, capsysbinary: Capture) -> None:
    root = writable_store("53-broker")
    table = table_of(root)
    del table[TABLE]["G_sql"]
    (root / "config/subscriptionGroup.json").write_text(json.dumps(table))
    group = shown(capsysbinary, root, "show", "G_sql")["G_sql"]
    assert (group["retryMaxTimes"], list(group["topics"])) == (None, ["T_normal"])
    assert "no settings" in run(capsysbinary, root, "show", "G_sql")[1]
    assert run(capsysbinary, root, "alter", "G_sql", "--set", "retryMaxTimes=1")[0] == Exit.NO
    assert run(capsysbinary, root, "delete", "G_sql", "--yes")[0] == Exit.DONE
    assert run(capsysbinary, root, "show", "G_sql")[0] == Exit.NO


def test_a_new_store_gets_the_groups_that_each_broker_has(tmp_path: Path, capsysbinary: Capture) -> None:
    root = tmp_path / "store"
    rmqtool.init(root, version="4.9")
    capsysbinary.readouterr()
    assert shown(capsysbinary, root, "list") == {}
    shown(capsysbinary, root, "create", "Billing")
    own = {"TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "CID_ONS-HTTP-PROXY"}
    own |= {"CID_ONSAPI_PULL", "CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER"}
    assert set(shown(capsysbinary, root, "list")) == {*own, "Billing"}
    assert "consumeMessageOrderly" not in table_of(root)[TABLE]["Billing"]
    status, _, err = run(capsysbinary, root, "alter", "Billing", "--set", "consumeMessageOrderly=true")
    assert (status, "groups of 4.9 have no consumeMessageOrderly" in err) == (Exit.USAGE, True)


WRONG: dict[str, tuple[list[str], Exit, str]] = {
    "action": (["rename", "A"], Exit.USAGE, "list, show, create, alter or delete"),
    "no group": (["create"], Exit.USAGE, "name one group"),
    "a group to list": (["list", "A"], Exit.USAGE, "list takes no group"),
    "setting": (["create", "A", "--set", "retryMaxTime=1"], Exit.USAGE, "did you mean retryMaxTimes?"),
    "no value": (["create", "A", "--set", "retryMaxTimes"], Exit.USAGE, "is not NAME=VALUE"),
    "kind of value": (["create", "A", "--set", "consumeEnable=1"], Exit.USAGE, "true or false"),
    "number": (["create", "A", "--set", "retryMaxTimes=two"], Exit.USAGE, "a whole number"),
    "range": (["create", "A", "--set", "retryMaxTimes=-2"], Exit.USAGE, "-1 (for ever)"),
    "broker": (["create", "A", "--set", "brokerId=-1"], Exit.USAGE, "0 is the master"),
    "nothing to alter": (["alter", "G_ok"], Exit.USAGE, "nothing to alter"),
    "settings of a list": (["list", "--set", "brokerId=1"], Exit.USAGE, "list takes no settings"),
    "name": (["create", "a b"], Exit.USAGE, "letters"),
    "taken": (["create", "G_ok"], Exit.REFUSED, "already exists"),
    "unknown": (["show", "G_okk"], Exit.NO, "did you mean G_ok?"),
    "own": (["delete", "TOOLS_CONSUMER", "--yes"], Exit.REFUSED, "one of the broker's own groups"),
    "not deleted": (["list", "--yes"], Exit.USAGE, "--yes has no effect on list"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_makes_no_sense_is_said(name: str, store: Callable[[str], Path], capsysbinary: Capture) -> None:
    words, expected, part = WRONG[name]
    root = store("53-broker")
    with left_alone(root):
        status, _, err = run(capsysbinary, root, *words)
    assert (status, part in err) == (expected, True), err


def test_groups_in_a_database_are_listed_and_changed(writable_store: Fresh, capsysbinary: Capture) -> None:
    root = writable_store("53-rocksdbv2")
    with left_alone(root):
        assert run(capsysbinary, root, "list")[0] == Exit.DONE
    assert run(capsysbinary, root, "create", "New", "--set", "retryMaxTimes=3")[0] == Exit.DONE
    assert rmqtool.groups(root)["New"]["retryMaxTimes"] == 3
    assert not list(root.glob("config/subscriptionGroup.json"))


@pytest.mark.parametrize("width", [80, 120])
def test_the_groups_of_a_store(width: int, store: Callable[[str], Path]) -> None:
    written = io.BytesIO()
    with Output(Look(width=width, zone=UTC), written) as output:
        groups = rmqtool.groups(store("53-broker"))
        for lines in (group_list(output, groups), group_lines(output, {"G_popclient": groups["G_popclient"]})):
            for line in [*lines, ""]:
                output.line(line)
    shown = written.getvalue().decode()
    assert max(map(len, shown.splitlines())) <= width
    check_golden(f"fix/groups-{width}.txt", shown)


def test_the_verbs_of_the_library(writable_store: Fresh) -> None:
    root = writable_store("53-broker")
    assert rmqtool.group(root, "create", "Made", {"retryMaxTimes": 4})["Made"]["retryMaxTimes"] == 4
    with rmqtool.open(root) as opened:
        assert opened.groups()["Made"] == opened.group("show", "Made")["Made"]
        assert opened.group("alter", "Made", ["consumeEnable=false"])["Made"]["consumeEnable"] is False
    assert rmqtool.groups(root)["Made"]["consumeEnable"] is False
    with pytest.raises(rmqtool.RmqtoolError, match="a group has no setting 'retry'"):
        rmqtool.group(root, "alter", "Made", {"retry": 4})
