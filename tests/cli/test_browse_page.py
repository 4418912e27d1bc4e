"""The pages of ``browse --html``, ``stat --html`` and ``check --report``: their contents, and what is left out."""

from __future__ import annotations

import platform
import re

import pytest

from rmqtool.api import browse as api_browse
from rmqtool.cli import main
from rmqtool.errors import Exit
from tests.support.browsed import make_shop, shorten_queue, spoil_body
from tests.support.stores import left_alone

EXTERNAL = re.compile(r"""(?:src|href|action)\s*=|url\(|@import|https?://""")


@pytest.fixture(scope="module")
def spoiled(tmp_path_factory):
    root = make_shop(tmp_path_factory.mktemp("spoiled") / "store", 40)
    spoil_body(root, 4705)
    shorten_queue(root, 2, 3)
    return root


def page_of(root, path, *words):
    with left_alone(root):
        assert main(["browse", str(root), "--html", str(path), *words]) == Exit.DONE
    return path.read_text(encoding="utf-8")


def test_a_page_has_everything_and_loads_nothing(spoiled, tmp_path):
    text = page_of(spoiled, tmp_path / "page.html")
    for part in (
        "CL-CRC",
        "CQ-MISSING",
        "shipping",
        "order-4711",
        "&quot;order&quot;: 4711",
        "Payments",
        "rmqtool repair",
    ):
        assert part in text, part
    assert "wrong: suspect at 1456: was 72 &#x27;r&#x27;, if nothing else changed" in text
    assert "000005b0  52 64 65 72 22 3a 20 34" in text  # the damaged body, byte by byte
    assert not EXTERNAL.search(text)
    assert text.count("<script>") == 1


def test_a_directory_gets_an_index(spoiled, tmp_path):
    assert main(["browse", str(spoiled), "--html", f"{tmp_path}/new/"]) == Exit.DONE
    assert "order-4711" in (tmp_path / "new/index.html").read_text(encoding="utf-8")


def test_redacted_pages_have_no_body_and_no_key(spoiled, tmp_path):
    text = page_of(spoiled, tmp_path / "page.html", "--redact", "body,keys")
    assert "CL-CRC" in text
    assert "order-47" not in text
    assert "tea" not in re.sub(r"<style>.*?</style>", "", text, flags=re.DOTALL).replace("instead", "")
    assert "7b 22" not in text
    assert not re.search("7F0000[0-9A-F]{26}", text)
    only_bodies = page_of(spoiled, tmp_path / "bodies.html", "--redact", "body")
    assert "order-4711" in only_bodies
    assert "&quot;order&quot;: 4711" not in only_bodies


def test_a_topic_has_its_newest_messages(spoiled, tmp_path, monkeypatch):
    monkeypatch.setattr(api_browse, "MOST_MESSAGES", 8)
    text = page_of(spoiled, tmp_path / "page.html")
    orders = text[text.index("Orders: the newest 8") :].partition("</details>")[0]
    assert orders.count('<tr class="m">') == 8
    assert "order-4739" in orders
    assert "order-4700" not in orders


@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        (["--html", "{root}/page.html"], Exit.USAGE, "is in the store"),
        (["--html", "{out}", "--redact", "topic"], Exit.USAGE, '"topic" cannot be redacted'),
        (["--redact", "body"], Exit.USAGE, "--redact has no effect"),
        (["--html", "{out}/no/such/page.html"], Exit.WRITE_FAILED, "cannot be written"),
    ],
)
def test_what_cannot_be_written_is_told(spoiled, tmp_path, capsys, words, status, told):
    spelled = [word.format(root=spoiled, out=tmp_path / "x") for word in words]
    with left_alone(spoiled):
        assert main(["browse", str(spoiled), *spelled]) == status
    assert told in capsys.readouterr().err.replace("\n         ", " ")


def test_each_report_of_stat_has_its_own_page(spoiled, tmp_path, capsysbinary):
    columns = {"delay": "waiting", "tx": "rolled back", "retry": "dead letters", "retention": "not read yet"}
    for report in columns:
        main(["stat", str(spoiled), report, "--html", str(tmp_path / f"{report}.html")])
    capsysbinary.readouterr()
    for report, column in columns.items():
        text = (tmp_path / f"{report}.html").read_text(encoding="utf-8")
        assert f"Report: {report}" in text
        assert [name for name, other in columns.items() if f">{other}</th>" in text] == [report], column


def test_the_report_of_check_says_when_where_and_what_is_lost(spoiled, tmp_path, capsysbinary):
    assert main(["check", str(spoiled), "--report", str(tmp_path / "check.html")]) == Exit.NO
    capsysbinary.readouterr()
    text = (tmp_path / "check.html").read_text(encoding="utf-8")
    assert f" on {platform.node()}</p>" in text
    assert re.search(r"checked at \d{4}-\d\d-\d\d \d\d:\d\d", text)
    assert "Lost messages" in text
    assert '<td class="text">Orders</td>' in text
    assert not EXTERNAL.search(text)
