"""``rmqtool browse``: five journeys at the screen, its keys, and what it must never do."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

import pytest

from rmqtool.api.init import init
from rmqtool.api.produce import put
from rmqtool.api.store import Store
from rmqtool.api.topic import topic
from rmqtool.browse.damage_pages import findings_page
from rmqtool.browse.page import GrowingPage, Scope
from rmqtool.browse.panes import tell_apart
from rmqtool.browse.store_pages import delayed_page, lag_words, overview_page
from rmqtool.cli import main
from rmqtool.errors import Exit
from rmqtool.log.end import read_record
from rmqtool.render.text import timestamp
from rmqtool.times import now_ms
from tests.support.browsed import UTC, Typist, at_screen, explorer_at, make_shop, masked, shorten_queue, spoil_body
from tests.support.builders import properties, queue_unit, record
from tests.support.golden_files import check_golden
from tests.support.stores import left_alone

HOSTILE = "\x1b]0;owned\x07\x1b[2J\u202eevil\u2066"


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    return make_shop(tmp_path_factory.mktemp("shop") / "store")


@pytest.fixture(scope="module")
def spoiled(tmp_path_factory):
    """A shop in which a body is damaged, and a queue is shorter than the log says."""
    root = make_shop(tmp_path_factory.mktemp("spoiled") / "store")
    spoil_body(root, 4705)
    shorten_queue(root, 2, 3)
    return root


def seen(name: str, root: Path, play) -> str:
    """Return the last screen of a play that writes nothing, and compare it with the golden one."""
    with left_alone(root):
        screen = masked(at_screen(root, play))
    check_golden(f"browse/{name}.txt", screen.replace(str(root.parent), "/srv") + "\n")
    return screen


async def tree_to(typist: Typist, label: str) -> None:
    """Put the cursor of the tree on a node and press Enter."""
    typist.app.tree_pane.focus()
    labels = [node.label for node in typist.app.tree_pane.nodes]
    await typist.keys("home", *["down"] * labels.index(label), "enter")


def test_the_line_of_keys_fits_and_tells_where_tab_goes(shop):
    lines = {}

    async def play(typist):
        for place in ("tree", "list", "tree again"):
            lines[place] = typist.screen().rstrip("\n").splitlines()[-1].rstrip()
            await typist.keys("tab")

    with left_alone(shop):
        at_screen(shop, play)
    assert lines["tree"] == lines["tree again"]
    assert lines["tree"].replace("Tab list", "Tab tree") == lines["list"]
    assert lines["list"].endswith("? help  q quit")


def test_order_4711_is_found_with_its_story(shop):
    async def play(typist):
        await typist.keys("slash")
        await typist.text("order-4711")
        await typist.keys("enter")

    screen = seen("order", shop, play)
    assert "message Orders/3@2" in screen
    assert '"order": 4711' in screen
    assert "story      1 event, now stored" in screen
    assert "shipping consumed it" in screen


def test_a_short_queue_is_explained(spoiled):
    async def play(typist):
        await tree_to(typist, "topics")
        await tree_to(typist, "Orders")
        await tree_to(typist, "queue 2")
        await typist.keys("end", "d")
        await typist.keys("down")

    screen = seen("short-queue", spoiled, play)
    assert "CQ-MISSING" in screen
    assert "3 messages are missing" in screen
    assert "3 problems; 206 messages read" in screen


def test_an_offset_is_explained(shop):
    async def play(typist):
        await typist.keys("colon")
        await typist.text("@3095")

    screen = seen("offset", shop, play)
    assert "body: {" in screen
    assert "in message V1 Orders/3 @ 2" in screen


def test_the_damaged_bytes_of_a_record_are_named(spoiled):
    async def play(typist):
        await tree_to(typist, "damage")
        await typist.keys("d")

    screen = seen("damaged", spoiled, play)
    assert "CL-CRC" in screen
    assert "suspect        ✗ was 72 'r', if nothing else changed"[:45] in screen
    assert "bodyCRC: the body gives" in screen
    assert "a checksum does not tell which" in screen


def test_delayed_messages_have_their_time(shop):
    async def play(typist):
        await tree_to(typist, "delayed")

    screen = seen("delayed", shop, play)
    assert "level 16" in screen
    assert "rate order-4702" in screen
    assert "due 20" in screen


def test_a_place_outside_of_a_queue_or_a_file_is_told(shop):
    lasts, titles = [], []

    async def play(typist):
        for place in ("Orders/2@99", "@3095", "99999", "Orders/7@0", "Nothing/0@1"):
            await typist.keys("colon")
            await typist.text(place)
            lasts.append(typist.screen().rstrip("\n").splitlines()[-1].rstrip())
            titles.append(typist.app.table.page.title)

    at_screen(shop, play)
    assert lasts[0] == "queue offset 99 is past the end: the last entry is 49; @99 is one of the log"
    assert titles[1:3] == ["commitlog/00000000000000000000", "offset 99999"]
    assert titles[3:] == ["Orders/7", "Nothing/0"]


def row_at_cursor(typist):
    """Return the row of the screen that is under the cursor."""
    return typist.app.table.current


def test_the_cursor_is_on_the_row_that_contains_the_offset(shop):
    # By the layout of a record: storeTimestamp is its bytes 56 to 63, the body begins at 88.
    with Store(str(shop)).use() as store:
        found = read_record(store.commit_log, 0)
        places = {"first": found.physical_offset + 3, "time": 56 + 3, "body": 88 + 9}
    assert (found.topic, found.queue_id, found.queue_offset) == ("Orders", 0, 0)
    lines, rows = {}, {}

    async def play(typist):
        for name, offset in places.items():
            await typist.keys("colon")
            await typist.text(f"@{offset}")
            rows[name] = row_at_cursor(typist)
            lines[name] = typist.screen().splitlines()[-5]
            await typist.keys("backspace")
        await tree_to(typist, "log")
        await typist.keys("enter", "colon")
        await typist.text("97")
        rows["record"], lines["record"] = row_at_cursor(typist), typist.screen().splitlines()[-5]

    at_screen(shop, play)
    assert [rows[name].position for name in ("first", "time", "body", "record")] == [0, 56, 96, 0]
    assert lines["first"] == "3 is byte 4 of 4 of totalSize of Orders/0@0, which begins at 0"
    assert lines["time"] == "59 is byte 4 of 8 of storeTimestamp of Orders/0@0, which begins at 0"
    assert lines["body"] == "97 is byte 10 of 25 of body of Orders/0@0, which begins at 0"
    assert lines["record"] == f"97 is byte 98 of {found.total_size} of Orders/0@0, which begins at 0"


def test_an_offset_past_the_end_of_a_file_is_one_of_the_log(tmp_path):
    root = make_shop(tmp_path / "store", 300)
    seen_on = []

    async def play(typist):
        for place in ("@100", "70000"):
            await typist.keys("colon")
            await typist.text(place)
        page = typist.app.table.page
        seen_on.append((page.title, page.first_position, page.said))

    at_screen(root, play)
    title, position, said = seen_on[0]
    assert (title, position) == (f"commitlog/{65536:020}", 70000 - 65536)
    assert said == "70000 is past the end of that file (65,536 bytes): this is offset 70000 of the log"


def test_a_missing_queue_is_named(tmp_path):
    root = make_shop(tmp_path / "store", 40)
    shutil.rmtree(root / "consumequeue/Orders/1")
    screens = []

    async def play(typist):
        await tree_to(typist, "topics")
        await tree_to(typist, "Orders")
        screens.append(typist.screen())
        await typist.keys("colon")
        await typist.text("Orders/1@0")

    screen = at_screen(root, play)
    assert "3 queues, 1 more without files" in screens[0]
    assert re.search(r" 1 +its files are lost: it had messages", screens[0])
    assert "Orders has no queue 1: its files are lost: it had messages" in screen
    assert "group shipping committed 5 of it: it had messages" in screen


def test_the_prompt_says_what_a_number_means_on_the_page(shop):
    prompts, whys = [], []

    async def play(typist):
        for place in ("", "Orders/0@0", "@100"):
            if place:
                await typist.keys("colon")
                await typist.text(place)
            await typist.keys("colon")
            prompts.append(last_line(typist))
            await typist.keys("escape")
        await typist.keys("colon")
        await typist.text("02:13:48")
        whys.extend(row.cells[0] for row in typist.app.table.page.listed)

    at_screen(shop, play)
    assert prompts == [
        "go to an offset of the log; TOPIC/QUEUE@N; a time",
        "go to a queue offset of this queue; @N: of the log; TOPIC/QUEUE@N; a time",
        "go to a byte of this file; @N: of the log; TOPIC/QUEUE@N; a time",
    ]
    assert whys[0] == "02:13:48 is a time without a day"
    assert re.fullmatch(r"with its day: \d{4}-\d\d-\d\dT02:13:48, or -2h for 2 hours ago", whys[1])


def test_the_page_of_keys_is_whole_on_80_columns_and_left_with_esc(shop):
    screens, titles = [], []

    async def play(typist):
        await typist.keys("question_mark")
        screens.append(typist.screen())
        titles.append(typist.app.table.page.title)
        await typist.keys("escape")
        titles.append(typist.app.table.page.title)

    at_screen(shop, play)
    assert "…" not in screens[0]
    assert "quit. Nothing is ever written." in screens[0]
    assert "next and the previous finding" in screens[0]
    assert titles == ["keys", str(shop)]


def test_a_timer_shows_the_time_that_was_asked_for(tmp_path):
    root = tmp_path / "store"
    init(root, conf={"timerWheelEnable": "true"})
    topic(root, "create", "Orders", queues=1)
    at = (now_ms() // 1000 + 3600) * 1000
    put(str(root), {"topic": "Orders", "body": "later", "deliverAt": at})
    explorer = explorer_at(root)
    row = page_after(explorer, delayed_page(explorer)).listed[0]
    explorer.close()
    assert row.cells[0] == timestamp(at, UTC)[:19]
    assert row.details[0].endswith(f"in Orders; its slot of the timer is {timestamp(at - 1000, UTC)[11:19]}")


def test_the_overview_says_that_no_message_was_read(shop):
    explorer = explorer_at(shop)
    rows = page_after(explorer, overview_page(explorer)).listed
    explorer.close()
    found = next(row.cells[1] for row in rows if row.cells[0] == "problems")
    assert found == "0 problems at first sight; messages not read: d checks"


def test_a_lag_that_is_no_number_of_messages_is_said_in_words():
    row = {"committed": 78, "maxOffset": 50, "lag": -28}
    assert lag_words(row) == "28 past the end of the queue"
    assert lag_words({**row, "maxOffset": None, "lag": -78}) == "the queue is not there"
    assert lag_words({**row, "committed": -1}) == "no committed offset"
    assert lag_words({**row, "committed": 10, "lag": 4000}) == "4,000"


def test_names_that_are_cut_never_look_alike():
    names = [f"orders-of-the-{part}-warehouse-in-the-north" for part in ("first", "second", "third")]
    for width in range(8, 40):
        shown = tell_apart(names, width)
        assert len(set(shown)) == len(names), shown
        assert all(len(name) <= width for name in shown)
    assert len(set(tell_apart(["x" * 50, "x" * 51, "x" * 50], 10))) == 2


def test_rows_of_the_tree_never_look_alike(tmp_path):
    root = make_shop(tmp_path / "store", 5)
    for part in ("first", "second", "third"):
        queue = root / "consumequeue" / f"a-topic-of-the-{part}-warehouse-in-the-north" / "0"
        queue.mkdir(parents=True)
        (queue / f"{0:020}").write_bytes(bytes(2000))
    trees = []

    async def play(typist):
        await tree_to(typist, "topics")
        for _ in range(2):
            trees.append(
                [text[:19].strip() for text in typist.screen().splitlines() if "a-topic" in text or "…" in text]
            )
            await typist.keys("tab")

    at_screen(root, play)
    for names in trees:
        assert len(names) >= 3
        assert len(set(names)) == len(names)


def test_enter_follows_and_backspace_returns(shop):
    titles = []

    async def play(typist):
        await typist.keys("colon")
        await typist.text("Orders/3@2")
        for keys in (["enter"], ["enter"], ["backspace"], ["backspace"], ["backspace"]):
            await typist.keys(*keys)
            titles.append(typist.app.table.page.title)

    at_screen(shop, play)
    assert titles == ["message Orders/3@2", "Orders/3", "message Orders/3@2", "Orders/3", str(shop)]


def test_an_index_entry_leads_along_its_chain(shop):
    async def play(typist):
        await typist.keys("slash")
        await typist.text("order-4711")
        await typist.keys("enter")
        page = typist.app.table.page
        place = next(row.position for row in page.listed if "Orders#order-4711" in row.cells[1])
        await typist.keys(*["down"] * place, "enter")

    screen = at_screen(shop, play)
    assert "chain in index/" in screen
    assert "order-4711" in screen


def test_a_filter_shows_what_matches(shop):
    rows = []

    async def play(typist):
        await typist.keys("colon")
        await typist.text("Orders/0@0")
        for text in ("sent", "TAGS = 'paid' OR TAGS = 'open'"):
            await typist.keys("f")
            await typist.text(text)
            rows.append(len(typist.app.table.page.listed))
            await typist.keys("backspace")

    at_screen(shop, play)
    assert rows == [16, 34]


def page_after(explorer, page):
    """Return a page that is read to its end."""
    page.load()
    return page


def test_a_filter_says_of_what_it_shows_all(shop):
    explorer = explorer_at(shop)
    found = page_after(explorer, explorer.filtered("sent", Scope("Orders", 3)))
    assert (found.title, found.note()) == ("Orders/3 where sent", "16 messages of 50 match, no more")
    nothing = page_after(explorer, explorer.filtered("keys = 'order-4711'", Scope("Orders")))
    assert nothing.note() == "0 messages of 200 match"
    assert [row.cells[-1] for row in nothing.listed] == [
        "no message of Orders matches keys = 'order-4711'",
        "no message there has a property keys: names are case-sensitive, KEYS is one",
    ]
    unknown = page_after(explorer, explorer.filtered("order > 4880", Scope("Orders", 1)))
    assert unknown.listed[-1].cells[-1] == "no message there has a property order"
    known = page_after(explorer, explorer.filtered("country = 'XX'", Scope("Orders")))
    assert [row.cells[-1] for row in known.listed] == ["no message of Orders matches country = 'XX'"]
    explorer.close()


def test_a_sentence_among_rows_has_the_whole_line(shop):
    async def play(typist):
        await typist.keys("colon")
        await typist.text("Orders/3@0")
        await typist.keys("f")
        await typist.text("keys = 4711")

    lines = at_screen(shop, play).splitlines()
    assert lines[2].endswith("no message of Orders/3 matches keys = 4711")
    assert lines[-5] == "no message of Orders/3 matches keys = 4711"
    assert lines[-4] == "no message there has a property keys: names are case-sensitive, KEYS is one"


def test_rows_that_are_no_messages_are_not_counted(shop):
    explorer = explorer_at(shop)
    page = page_after(explorer, explorer.search("order-4911", Scope()))
    assert page.note() == "no message with this id or key"
    assert page.listed[0].cells[-1] == "no message with this id or key, and no body has this text"
    assert any(row.cells[-1].startswith("near: ") for row in page.listed)
    text = page_after(explorer, explorer.search('"order": 4711', Scope()))
    assert text.note() == "no message with this id or key; in bodies: 1 message"
    assert text.listed[0].cells[1] == "Orders/3@2"
    assert page_after(explorer, delayed_page(explorer)).note() == "2 messages"
    explorer.close()


def test_a_search_for_the_key_of_a_damaged_record_names_the_damage_first(spoiled):
    explorer = explorer_at(spoiled)
    page = page_after(explorer, explorer.search("order-4705", Scope()))
    assert page.listed[0].cells[-1].startswith("CL-CRC")
    assert page.note() == "no message with this id or key; 1 damaged place"
    assert page.listed[1].cells[-1] == "no message with this id or key, and no body that can be read has this text"
    # Three of the 200 have no entry in their queue.
    found = page_after(explorer, explorer.filtered("sent", Scope("Orders")))
    assert found.note() == "65 messages of 197 match; 1 damaged place"
    explorer.close()


def test_a_wrong_filter_is_told_and_not_obeyed(shop):
    async def play(typist):
        await typist.keys("f")
        await typist.text("TAGS = (")

    assert "TAGS = (" in at_screen(shop, play)


def test_the_command_that_prints_the_same_is_copied(shop, capsysbinary):
    found = []

    async def play(typist):
        await typist.keys("colon")
        await typist.text("Orders/1@0")
        await typist.keys("y")
        found.append(typist.app.clipboard)

    screen = at_screen(shop, play)
    assert "copied: rmqtool cat" in screen
    assert main([*found[0].split()[1:], "--count", "--json"]) == Exit.DONE
    assert json.loads(capsysbinary.readouterr().out)["messages"] == 50


def test_next_and_previous_finding(spoiled):
    titles = []

    async def play(typist):
        for key in ("d", "d", "d", "D"):
            await typist.keys(key)
            titles.append(typist.app.table.page.note())

    at_screen(spoiled, play)
    assert titles[1].startswith("CL-CRC")
    assert titles[2] != titles[1]
    assert titles[3] == titles[1]


def last_line(typist):
    """Return the last line of the screen."""
    return typist.screen().rstrip("\n").splitlines()[-1].rstrip()


def test_a_check_of_a_topic_is_no_check_of_the_store(tmp_path):
    root = make_shop(tmp_path / "store", 40)
    shorten_queue(root, 2, 3)
    titles, sums, last = [], [], []

    async def play(typist):
        for place in ("Payments/0@0", ""):
            if place:
                await typist.keys("colon")
                await typist.text(place)
            await typist.keys("d")
            titles.append(typist.app.table.page.title)
            sums.append(typist.app.table.page.listed[-1].details[0])
            await typist.keys("backspace")
            if place:
                await typist.keys("backspace")
        await typist.keys("colon")
        await typist.text("Payments/0@0")
        await typist.keys("d")
        await typist.keys("d", "d")
        last.append(last_line(typist))

    at_screen(root, play)
    # In each store the file of subscription groups is missing.
    assert titles == ["damage in Payments", "damage in the store"]
    assert re.fullmatch(r"read 47 messages, [^,]*, of the log to check Payments: 1 problem", sums[0])
    assert re.fullmatch(r"read 47 messages, [^,]*: 2 problems", sums[1])
    assert last == ["last of 1 in Payments; 2 problems listed in the store"]


def test_the_list_of_findings_comes_back(spoiled):
    titles, last = [], []

    async def play(typist):
        await typist.keys("colon")
        await typist.text("Orders/2@0")
        await typist.keys("d")
        await typist.keys("d", "d", "d", "d")
        last.append(last_line(typist))
        await typist.keys("D", "D", "D")
        last.append(last_line(typist))
        while typist.app.past:
            await typist.keys("backspace")
        await typist.keys("colon")
        await typist.text("Orders/2@0")
        for key in ("D", "backspace", "d"):
            await typist.keys(key)
            titles.append(typist.app.table.page.title)

    at_screen(spoiled, play)
    assert last == ["last of 3 in Orders", "first of 3 in Orders"]
    assert titles == ["damage in Orders", "Orders/2", "damage in Orders"]


def test_a_check_that_was_stopped_gives_no_all_clear(shop):
    explorer = explorer_at(shop)
    page = findings_page(explorer, Scope())
    page.close()
    page.load()
    assert page.end_words(1) == "nothing found in the store; the check was stopped before its end"
    assert page.note() == "0 problems; stopped: not all is read"
    explorer.close()


def test_the_mouse_selects_and_opens(shop):
    titles = []

    async def play(typist):
        pilot = typist.pilot
        await pilot.click(typist.app.tree_pane, offset=(4, 2), times=2)
        await typist.settled()
        titles.append(typist.app.table.page.title)
        await pilot.click(typist.app.table, offset=(4, 1), times=2)
        await typist.settled()
        titles.append(typist.app.table.page.title)

    at_screen(shop, play)
    assert titles[0] == "topics"
    assert titles[1] not in ("topics", "")


def test_the_end_of_a_growing_queue_is_followed(tmp_path):
    root = make_shop(tmp_path / "store", 20)
    ends = []

    async def play(typist):
        await typist.keys("colon")
        await typist.text("Orders/0@0")
        await typist.keys("end")
        ends.append(typist.app.table.cursor)
        put(str(root), {"topic": "Orders", "queueId": 0, "body": "one more"})
        typist.app._follow()
        await typist.settled()
        ends.append(typist.app.table.cursor)

    at_screen(root, play)
    assert ends[1] == ends[0] + 1


def test_hostile_names_and_bodies_are_spelled_out(tmp_path):
    root = tmp_path / "store"
    topic = HOSTILE.replace("/", "")
    data = record(HOSTILE.encode(), topic.encode(), properties(("KEYS", HOSTILE), ("TAGS", HOSTILE)))
    (root / "commitlog").mkdir(parents=True)
    (root / "commitlog" / f"{0:020}").write_bytes(data.ljust(4096, b"\0"))
    queue = root / "consumequeue" / topic / "0"
    queue.mkdir(parents=True)
    (queue / f"{0:020}").write_bytes(queue_unit(0, len(data), 0).ljust(200, b"\0"))

    async def play(typist):
        typist.app.tree_pane.focus()
        await typist.keys("down", "down", "enter", "down", "enter")
        await typist.keys("tab", "enter")

    screen = at_screen(root, play, size=(120, 40))
    assert "\\x1b]0;owned\\x07" in screen
    for unsafe in ("\x1b", "\x07", "\u202e", "\u2066"):
        assert unsafe not in screen


def test_files_that_vanish_are_rows(tmp_path):
    root = make_shop(tmp_path / "store", 20)

    async def play(typist):
        await tree_to(typist, "log")
        await typist.keys("tab", "enter")
        for path in (root / "commitlog").iterdir():
            path.unlink()
        typist.app._follow()
        await typist.keys("down", "pagedown", "end", "enter")

    assert "Traceback" not in at_screen(root, play)


def test_without_textual_the_command_to_install_is_told(shop, monkeypatch, capsys):
    for name in [name for name in sys.modules if name.startswith(("textual", "rmqtool.browse"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "textual", None)
    assert main(["browse", str(shop)]) == Exit.OPTIONAL_MISSING
    assert "pip install 'rmqtool[browse]'" in capsys.readouterr().err


def test_without_a_terminal_it_is_refused(shop, capsys):
    assert main(["browse", str(shop)]) == Exit.USAGE
    assert "needs a terminal" in capsys.readouterr().err


def test_a_page_that_is_left_stops_reading(shop):
    explorer = explorer_at(shop)
    page = explorer.search("order", Scope())
    assert isinstance(page, GrowingPage)
    page.close()
    page.load()
    assert page.listed == []
    explorer.close()
