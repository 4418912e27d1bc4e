"""The members of one process in a group at live brokers, for code that knows no asyncio.

It has the methods of ``broker.consumer.group.GroupConsumer``, which consumes from the files of a store: the same
programs run with either.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Final, TypeVar

from rmqtool.broker.consumer.group import Lost
from rmqtool.broker.consumer.rebalance import Change
from rmqtool.broker.consumer.windows import Delivered
from rmqtool.client.cluster import Cluster
from rmqtool.client.face import Face
from rmqtool.client.member import Member, Membership

# Seconds to wait for messages before the caller is asked what else there is to do.
_WAIT: Final = 0.2
Result = TypeVar("Result")


class RemoteConsumer:
    """Members of a group, each with connections of its own: a broker knows a member by its connection."""

    def __init__(
        self, face: Face, open_cluster: Callable[[], Cluster], membership: Membership, members: int, *, joins: bool
    ) -> None:
        self.how = membership.how
        # Messages that are not in the log: a broker skips them.
        self.lost: list[Lost] = []
        self._face = face
        self._clusters = face.run(_opened(open_cluster, members))
        self.client_ids = tuple(one.client_id for one in self._clusters)
        self._membership = membership if joins else replace(membership, among=self.client_ids)
        self._members: dict[str, Member] = {}

    @property
    def members(self) -> int:
        """The number of members."""
        return len(self._members)

    def join(self, client_id: str) -> list[Change]:
        """Make a member join; return which queues moved. Raises RemoteError."""
        return self._face.run(self._join(client_id))

    async def _join(self, client_id: str) -> list[Change]:
        cluster = self._clusters[self.client_ids.index(client_id)]
        how = replace(self.how, send_back=self._was_sent_back)
        member = self._members[client_id] = Member(cluster, replace(self._membership, how=how))
        await member.join()
        # The others give some of their queues back, and this one takes them: nothing is left without a member.
        for other in (*self._members.values(), member):
            await other.share_out()
        return self._moved()

    def leave(self, client_id: str) -> list[Change]:
        """Make a member leave: it commits, and its queues go to others."""
        return self._face.run(self._leave(client_id))

    async def _leave(self, client_id: str) -> list[Change]:
        await self._members[client_id].close()
        moved = self._moved()
        del self._members[client_id]
        return moved

    def take_changes(self) -> list[Change]:
        """Return which queues moved since the last call."""
        return self._face.run(_on_loop(self._moved))

    def _moved(self) -> list[Change]:
        found = []
        for member in self._members.values():
            found += member.changes
            member.changes.clear()
        return found

    def _was_sent_back(self, delivered: Delivered) -> bool:
        return self._members[delivered.client_id].was_sent_back(delivered)

    def fetch(self) -> int:
        """Wait a short while until there may be something to take. Raises RemoteError where brokers stay away."""
        return self._face.run(self._fetch())

    async def _fetch(self) -> int:
        members = list(self._members.values())
        waits = [asyncio.ensure_future(member.news.wait()) for member in members]
        done, pending = await asyncio.wait(waits, timeout=_WAIT, return_when=asyncio.FIRST_COMPLETED)
        for wait in pending:
            wait.cancel()
        for member in members:
            member.news.clear()
        for member in members:
            member.raise_trouble()
        return len(done)

    def take(self, most: int) -> list[Delivered]:
        """Hand out up to ``most`` messages."""
        return self._face.run(self._take(most))

    async def _take(self, most: int) -> list[Delivered]:
        found: list[Delivered] = []
        for member in self._members.values():
            found += member.take(most - len(found))
        return found

    def finish(self, delivered: Delivered, *, is_ok: bool) -> bool:
        """Report the result of a message; return whether its queue can continue."""
        return self._face.run(self._members[delivered.client_id].finish(delivered, is_ok=is_ok))

    def save(self) -> None:
        """Commit what was reached."""
        self._face.run(self._save())

    async def _save(self) -> None:
        for member in self._members.values():
            await member.commit()

    @property
    def is_at_end(self) -> bool:
        """Whether nothing is left in the queues of these members for now."""
        return self._face.run(_on_loop(lambda: all(member.is_at_end for member in self._members.values())))

    @property
    def resumes_in(self) -> int | None:
        """How long (ms) until a failed message is tried again; None if none waits."""
        return self._face.run(_on_loop(self._resumes_in))

    def _resumes_in(self) -> int | None:
        times = [time for member in self._members.values() if (time := member.windows.resumes_in) is not None]
        return min(times, default=None)

    def close(self) -> None:
        """Close the connections."""
        self._face.run(self._close())

    async def _close(self) -> None:
        for member in list(self._members.values()):
            await member.close()
        self._members.clear()
        for cluster in self._clusters:
            await cluster.close()


async def _opened(open_cluster: Callable[[], Cluster], count: int) -> list[Cluster]:
    return [open_cluster() for _ in range(count)]


async def _on_loop(work: Callable[[], Result]) -> Result:
    """Do something where the members work, so that nothing changes meanwhile."""
    return work()
