"""``browse rocketmq://…``: topics, queues, groups and messages of a cluster that ``serve`` plays."""

from __future__ import annotations

import asyncio

import pytest

from rmqtool.api.cluster import Cluster
from rmqtool.api.serve import serve
from rmqtool.browse.cluster_pages import explore
from rmqtool.browse.screen import Browser
from tests.support.browsed import Typist, make_shop


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    root = make_shop(tmp_path_factory.mktemp("served") / "store", 40)
    with serve(str(root), listen="127.0.0.1:0", names="127.0.0.1:0") as served:
        yield f"rocketmq://{served.names}"


def at_cluster(address, play):
    async def run():
        explorer = explore(Cluster(address))
        try:
            app = Browser(explorer)
            async with app.run_test(size=(80, 24)) as pilot:
                typist = Typist(app, pilot)
                await typist.settled()
                await play(typist)
                return typist.screen()
        finally:
            explorer.close()

    return asyncio.run(run())


def test_a_topic_leads_to_its_messages(address):
    async def play(typist):
        await typist.keys("down", "enter")
        rows = typist.app.table.page.listed
        at = next(row.position for row in rows if row.cells[0] == "Orders")
        await typist.keys(*["down"] * at, "enter")
        assert len(typist.app.table.page.listed) == 40
        await typist.keys("enter")

    screen = at_cluster(address, play)
    assert "message Orders/" in screen
    assert '"order": 47' in screen


def test_groups_have_their_lag(address):
    async def play(typist):
        await typist.keys("down", "down", "enter")

    screen = at_cluster(address, play)
    assert "shipping" in screen
    assert "Orders/3" in screen


def test_a_queue_offset_is_shown(address):
    async def play(typist):
        await typist.keys("colon")
        await typist.text("Orders/3@2")

    assert "order-4711" in at_cluster(address, play)


def test_damage_needs_files(address):
    async def play(typist):
        await typist.keys("d")

    assert "needs the files of a store" in at_cluster(address, play)
