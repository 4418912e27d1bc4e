"""The pages that commands write, in a real browser: no error, no request, no script of a store, wide and narrow."""

from __future__ import annotations

import pytest

from rmqtool.cli import main
from rmqtool.errors import Exit
from tests.support.browsed import make_shop, shorten_queue, spoil_body
from tests.support.chromium import BROWSER, WHY_NOT, opened_tab

pytestmark = [pytest.mark.conformance, pytest.mark.skipif(BROWSER is None, reason=WHY_NOT)]
EVIL = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\"></td></table>"
VIEWS = [(1200, "light"), (1200, "dark"), (400, "light"), (400, "dark")]
WIDTHS = "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The pages of all commands about one damaged store with hostile bodies, keys and tags."""
    from rmqtool.api.produce import put

    home = tmp_path_factory.mktemp("pages")
    root = make_shop(home / "store")
    put(str(root), {"topic": "Orders", "queueId": 0, "body": EVIL, "keys": "evil-<b>", "tags": "<i>t</i>"})
    spoil_body(root, 4705)
    shorten_queue(root, 2, 3)
    assert main(["browse", str(root), "--html", str(home / "store.html")]) == Exit.DONE
    assert main(["check", str(root), "--report", str(home / "check.html")]) == Exit.NO
    for report in ("delay", "tx", "retry", "retention"):
        assert main(["stat", str(root), report, "--html", str(home / f"{report}.html")]) in (Exit.DONE, Exit.SKIPPED)
    assert main(["stat", str(root), "--html", str(home / "stat.html")]) == Exit.DONE
    return home


@pytest.fixture(scope="module")
def tab():
    with opened_tab() as opened:
        yield opened


@pytest.mark.parametrize(("width", "scheme"), VIEWS)
@pytest.mark.parametrize("name", ["store", "check", "stat", "delay", "tx", "retry", "retention"])
def test_a_page_is_quiet_and_fits(tab, pages, name, width, scheme):
    tab.open(pages / f"{name}.html", width, scheme)
    assert tab.complaints() == []
    assert tab.requests() == [(pages / f"{name}.html").as_uri()]
    found, room = tab.ask(WIDTHS)
    assert found <= room
    assert tab.ask("document.title") != "owned"
    back = tab.ask("getComputedStyle(document.body).backgroundColor")
    assert (back == "rgb(255, 255, 255)") is (scheme == "light")
    tab.picture(pages / f"{name}-{width}-{scheme}.png")


def test_search_finds_an_order(tab, pages):
    tab.open(pages / "store.html", 1200, "light")
    shown = """(() => { const f = document.getElementById('find'); f.value = 'ORDER-4711';
        f.dispatchEvent(new Event('input'));
        return [...document.querySelectorAll('tr.m:not([hidden])')].map(row => row.textContent); })()"""
    rows = tab.ask(shown)
    assert len(rows) == 1
    assert "4711" in rows[0]
    assert tab.ask("document.getElementById('told').textContent").startswith("1 of ")
    assert tab.ask("document.querySelectorAll('details.t[open]').length") == 1


def test_a_hostile_body_is_text(tab, pages):
    tab.open(pages / "store.html", 1200, "light")
    assert tab.ask(f"document.body.textContent.includes({EVIL!r})")
    assert tab.ask("document.querySelectorAll('img, i').length") == 0


def test_a_page_that_obeyed_a_body_would_be_noticed(tab, pages):
    """The control: without escaping and without the policy, the same body changes the title."""
    text = (pages / "store.html").read_text(encoding="utf-8")
    policy = text[text.index('<meta http-equiv="Content') : text.index('<meta name="viewport"')]
    broken = pages / "broken.html"
    broken.write_text(text.replace(policy, "").replace("</body>", EVIL + "</body>"), encoding="utf-8")
    tab.open(broken, 1200, "light")
    assert tab.ask("document.title") == "owned"
    guarded = pages / "guarded.html"
    guarded.write_text(text.replace("</body>", EVIL + "</body>"), encoding="utf-8")
    tab.open(guarded, 1200, "light")
    assert tab.ask("document.title") != "owned"
    assert tab.complaints() != []
