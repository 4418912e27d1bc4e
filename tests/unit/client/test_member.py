"""A member of a group: what ends when it leaves."""

from __future__ import annotations

import asyncio

from rmqtool.client.member import Member
from tests.support.waiting import PATIENCE


def test_a_member_that_is_told_of_a_change_while_it_leaves_ends() -> None:
    """The change and the cancellation come in the same turn of the loop; the cancellation must not be lost."""

    async def leave() -> bool:
        member = Member.__new__(Member)
        member._due = asyncio.Event()

        async def share_out() -> bool:
            return True

        member.share_out = share_out  # type: ignore[method-assign]
        keeping = asyncio.create_task(member._keep_share())
        for _ in range(5):
            await asyncio.sleep(0)
        member._due.set()
        await asyncio.sleep(0)
        keeping.cancel()
        await asyncio.wait({keeping}, timeout=PATIENCE)
        is_ended = keeping.done()
        keeping.cancel()
        return is_ended

    assert asyncio.run(leave())
