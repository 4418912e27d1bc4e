"""``stat`` from the outside: screens, JSON, the page, statuses, and that it only looks."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from rmqtool.cli import main
from rmqtool.errors import Exit
from tests.support.golden_files import check_golden
from tests.support.stores import every_store, left_alone, truth


def run(capsysbinary, *words):
    status = main([str(word) for word in words])
    out, err = capsysbinary.readouterr()
    return status, out.decode(), err.decode()


@every_store
def test_json_has_the_shape_of_the_contract(name, store, capsysbinary):
    root = store(name)
    torn = any("recordCheck" in message for message in truth(name)["messages"])
    with left_alone(root):
        for words in ([], ["--by", "topic,queue,tag"], ["delay"], ["tx"], ["retry"], ["retention"], ["--map"]):
            status, out, err = run(capsysbinary, "stat", root, *words, "--json")
            assert (status, err) == (Exit.SKIPPED if torn else Exit.DONE, "")
            shown = json.loads(out)
            assert {"by", "rows", "total", "damaged"} <= set(shown)
            assert {"messages", "bytes"} <= set(shown["total"])
            assert (shown["damaged"]["bytes"] > 0) == torn
            for row in shown["rows"]:
                figures = {"messages", "bytes", "bodyBytes", "firstStoreTimestamp", "lastStoreTimestamp"}
                assert {*shown["by"], *figures} <= set(row)


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["--by", "topic"], Exit.DONE),
        (["--by", "colour"], Exit.USAGE),
        (["--by", "topic,topic"], Exit.USAGE),
        (["--duplicates", "uniq"], Exit.DONE),
        (["--duplicates", "body", "--by", "topic"], Exit.USAGE),
        (["--duplicates", "thrice"], Exit.USAGE),
        (["delays"], Exit.USAGE),
        (["/nowhere/at/all"], Exit.NOT_A_STORE),
        (["-t", "NoSuchTopic"], Exit.NO),
        (["-q", "99"], Exit.NO),
        (["--tag", "NoSuchTag"], Exit.DONE),
        (["--where", "a = '1' garbage here"], Exit.USAGE),
        (["--where", "a >"], Exit.USAGE),
    ],
)
def test_statuses(words, status, store, capsysbinary):
    assert run(capsysbinary, "stat", store("49-basic"), *words)[0] == status


def test_damage_is_said(writable_store, capsysbinary):
    root = writable_store("53-broker")
    victim = truth("53-broker")["messages"][4]
    with (root / "commitlog" / "00000000000000000000").open("r+b") as file:
        file.seek(victim["commitLogOffset"])
        file.write(b"\xff" * 100)
    status, out, _ = run(capsysbinary, "stat", root)
    assert status == Exit.SKIPPED
    assert f"Damaged and not counted: {victim['storeSize']} B in 1 place." in out


def test_a_directory_in_place_of_the_lock_stops_no_reading(writable_store, capsysbinary):
    root = writable_store("49-lmq")
    (root / "lock").unlink()
    (root / "lock").mkdir()
    assert run(capsysbinary, "stat", root)[0] == Exit.DONE
    assert run(capsysbinary, "query", root, "no-such-key")[0] == Exit.NO


class Page(HTMLParser):
    """Checks that every element is closed, and that nothing is loaded or run."""

    ALONE = frozenset({"meta", "rect", "line"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words = ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        assert tag not in ("script", "link", "img", "iframe")
        assert not {"src", "href", "onclick", "onload"} & {name for name, _ in attrs}
        if tag not in self.ALONE or tag == "rect":
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        assert tag == "line"

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words += data


@every_store
def test_the_page_is_whole_and_loads_nothing(name, store, capsysbinary, tmp_path):
    path = tmp_path / "page.html"
    status, _, err = run(capsysbinary, "stat", store(name), "--html", path, "--tz", "UTC", "--by", "topic,tag")
    assert status in (Exit.DONE, Exit.SKIPPED)
    assert err == f"{path} shows it in a browser\n"
    page = Page(path.read_text(encoding="utf-8"))
    messages = [message for message in truth(name)["messages"] if "recordCheck" not in message]
    assert f"{len(messages):,}" in page.words
    for topic in {message["topic"] for message in messages}:
        assert topic in page.words
    assert "@import" not in page.words
    assert "url(" not in page.words
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("by", ["topic", "hour", "kind", "topic,tag"])
def test_each_count_has_one_chart(by, store, capsysbinary, tmp_path):
    path = tmp_path / "page.html"
    assert run(capsysbinary, "stat", store("49-lmq"), "--html", path, "--by", by, "--quiet")[0] == Exit.DONE
    titles = re.findall(r"<h2>(.*?)</h2>", path.read_text(encoding="utf-8"))
    assert titles[:2] == ["By " + by.replace(",", ", "), "Over time"]
    assert sorted({"By kind", "By size", "By topic", "By producer", "By tag", "By group"} - {*titles}) == []
    assert len(titles) == len({*titles})


def test_a_page_that_cannot_be_written_leaves_nothing(store, capsysbinary, tmp_path):
    status, _, err = run(capsysbinary, "stat", store("49-lmq"), "--html", tmp_path / "no" / "page.html")
    assert status == Exit.WRITE_FAILED
    assert "cannot be written" in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize(
    ("screen", "name", "words"),
    [
        ("stat-topics", "53-broker", []),
        ("stat-topics-tags", "49-basic", ["--by", "topic,tag", "--limit", "8"]),
        ("stat-hours", "49-basic", ["--by", "hour"]),
        ("stat-sizes", "49-basic", ["--by", "size"]),
        ("stat-delay", "53-broker", ["delay"]),
        ("stat-tx", "53-broker", ["tx"]),
        ("stat-retry", "53-broker", ["retry"]),
        ("stat-retention", "49-broker", ["retention"]),
        ("stat-map", "53-broker", ["--map"]),
        ("stat-duplicates", "53-broker", ["--duplicates", "uniq"]),
    ],
)
def test_screens(screen, name, words, width, store, capsysbinary, monkeypatch):
    from rmqtool.commands import options

    root = store(name)
    look = options.Show.look
    monkeypatch.setattr(options.Show, "look", lambda self: replace(look(self), width=width))
    status, out, err = run(capsysbinary, "stat", root, *words, "--tz", "UTC")
    assert (status, err) == (Exit.DONE, "")
    check_golden(f"look/{screen}-{width}.txt", out.replace(str(root), "/store"))
