"""Members of a group at ``rmqtool serve``: real clients share its queues soon after one comes, goes, or is killed."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.client_programs import create_topics, member_program
from tests.conformance.serving import serve
from tests.support.wire_client import WireClient, send_fields

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(300)]

CLIENTS = [("java", "5.3.3"), ("go", "2.1.2")]
QUEUES, MANY = 4, 10_000
# Milliseconds after which two members share the queues: of a join, and of a kill.
SOON = 3_000
PATIENCE = 60
PERIOD = 0.02


class Member:
    """A member of a group as a process, and what it said of its messages."""

    def __init__(self, command: list[str], home: Path, name: str, errors: Path | None = None) -> None:
        self.name = name
        self.taken: list[dict[str, Any]] = []
        self.started = 0
        self._errors = ((errors or home) / f"{name}.errors").open("w")
        piped = subprocess.PIPE
        self.process = subprocess.Popen(command, cwd=home, stdin=piped, stdout=piped, stderr=self._errors, text=True)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            said = json.loads(line)
            assert said.get("what") != "failed", said
            self.started = said.get("started", self.started)
            if "body" in said:
                self.taken.append(said)

    def stop(self) -> None:
        """End it in order."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(PATIENCE) == 0
        self._reader.join()

    def kill(self) -> None:
        """End it by SIGKILL, if it has not ended."""
        self.process.kill()
        self.process.wait()
        self._reader.join()
        for file in (self._errors, self.process.stdin, self.process.stdout):
            if file is not None:
                file.close()


class Sender(threading.Thread):
    """Sends a message to each queue again and again, until it is told to stop."""

    def __init__(self, broker: str, topic: str) -> None:
        super().__init__()
        self._client, self._topic, self._over = WireClient(broker), topic, threading.Event()
        self.count = 0

    def run(self) -> None:
        while not self._over.wait(PERIOD):
            self.send(f"s{self.count}", self.count % QUEUES)
            self.count += 1

    def send(self, body: str, queue: int) -> None:
        assert self._client.ask(310, send_fields(self._topic) | {"e": queue}, body.encode()).code == 0

    def stop(self) -> None:
        self._over.set()
        if self.is_alive():
            self.join()

    def close(self) -> None:
        self.stop()
        self._client.socket.close()


class Group:
    """A group at a server that runs: its members, and a producer."""

    def __init__(self, names: str, home: Path, command: list[str], kind: str) -> None:
        self.topic, self._home, self._kind = f"Members-{kind}", home, kind
        self._command = [names if word == "NAMES" else word for word in command]
        create_topics(names, [self.topic])
        with WireClient(names) as client:
            broker = json.loads(client.ask(105, {"topic": self.topic}).body)["brokerDatas"][0]["brokerAddrs"]["0"]
        self.sender, self.other_sender = Sender(broker, self.topic), Sender(broker, self.topic)
        self.members: list[Member] = []

    def end(self) -> None:
        self.sender.close()
        self.other_sender.close()
        for member in self.members:
            member.kill()

    def join(self, name: str) -> Member:
        words = [self.topic, f"{self.topic}-group", name, self._kind]
        member = Member([*self._command, *words], self._home, name)
        self.members.append(member)
        wait_for(lambda: member.started > 0, f"{name} did not start")
        return member


def wait_for(is_so: Any, reason: str) -> None:
    end = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < end, reason
        time.sleep(0.01)


@pytest.fixture(params=CLIENTS, ids=" ".join)
def start(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[str], Group]]:
    """Return what starts a group of a client's members, by how they consume."""
    command = member_program(*request.param, tmp_path)
    groups: list[Group] = []
    with serve(tmp_path, "--listen", "127.0.0.1:0", "--for", "600s") as names:

        def started(kind: str) -> Group:
            groups.append(Group(names, tmp_path, command, kind))
            groups[-1].sender.start()
            return groups[-1]

        try:
            yield started
        finally:
            for group in groups:
                group.end()


def owners(members: list[Member], since: int) -> dict[int, set[str]]:
    """Return who took messages of each queue that it began with from a time on."""
    found: dict[int, set[str]] = defaultdict(set)
    for member in members:
        for one in list(member.taken):
            if one["begun"] >= since:
                found[one["queue"]].add(member.name)
    return found


def are_shared(members: list[Member], since: int) -> bool:
    """Whether each queue has one owner from a time on, and each member two queues."""
    found = owners(members, since)
    shares = Counter(name for names in found.values() for name in names)
    return len(found) == QUEUES and shares == {member.name: QUEUES // len(members) for member in members}


def test_two_members_share_the_queues_soon(start: Callable[[str], Group]) -> None:
    group = start("concurrent")
    one = group.join("one")
    wait_for(lambda: are_shared([one], 0), "one member does not take all queues")
    two = group.join("two")
    wait_for(lambda: are_shared([one, two], two.started + SOON), "the queues are not shared")
    begun = min(message["begun"] for message in two.taken)
    assert begun - two.started <= SOON, f"the second member got its first message after {begun - two.started} ms"
    theirs = {message["queue"] for message in two.taken}

    for number in range(MANY):
        group.other_sender.send(f"m{number}", number % QUEUES)
    wait_for(lambda: sum(one["body"][0] == "m" for m in (one, two) for one in list(m.taken)) >= MANY, "messages miss")
    bodies = Counter(one["body"] for member in (one, two) for one in member.taken if one["body"][0] == "m")
    assert bodies == {f"m{number}": 1 for number in range(MANY)}

    killed = int(time.time() * 1000)
    two.process.kill()

    def first_taken() -> dict[int, int]:
        return {
            queue: min((m["begun"] for m in list(one.taken) if m["queue"] == queue and m["begun"] > killed), default=0)
            for queue in theirs
        }

    wait_for(lambda: all(first_taken().values()), "the queues of the killed member are nobody's")
    late = {queue: at - killed for queue, at in first_taken().items()}
    assert max(late.values()) <= SOON, f"after the kill each queue was taken after {late} ms"
    group.sender.stop()
    wait_for(
        lambda: len({m["body"] for member in (one, two) for m in list(member.taken)}) == MANY + group.sender.count, ""
    )


@pytest.mark.parametrize("start", CLIENTS[:1], ids=" ".join, indirect=True)
def test_members_that_consume_in_order_never_overlap(start: Callable[[str], Group]) -> None:
    group = start("orderly")
    one = group.join("one")
    wait_for(lambda: len(owners([one], 0)) == QUEUES, "one member does not take all queues")
    two = group.join("two")
    wait_for(lambda: len({m["queue"] for m in list(two.taken)}) == QUEUES // 2, "the queues are not shared")
    one.stop()
    left = int(time.time() * 1000)
    wait_for(lambda: len(owners([two], left)) == QUEUES, "the queues of the member that left are nobody's")
    group.sender.stop()

    def bodies() -> set[str]:
        return {message["body"] for member in (one, two) for message in list(member.taken)}

    wait_for(lambda: len(bodies()) >= group.sender.count, "messages miss")
    repeated = 0
    for queue in range(QUEUES):
        taken = sorted(
            (message["begun"], message["ended"], int(message["body"][1:]), member.name)
            for member in (one, two)
            for message in member.taken
            if message["queue"] == queue
        )
        # The client commits no message whose queue it lost meanwhile (ConsumeMessageOrderlyService: isDropped), so the
        # next owner may begin with the last message of the one before: of 48 hand-overs of this script it did so once
        # here, and never at a real 5.3.3. Nothing else comes twice, or in another order.
        first = [later for before, later in pairwise([(0, 0, -1, ""), *taken]) if before[2] != later[2]]
        assert [number for _, _, number, _ in first] == list(range(queue, group.sender.count, QUEUES))
        again = [(before, later) for before, later in pairwise(taken) if before[2] == later[2]]
        assert all(before[3] != later[3] for before, later in again), again
        repeated += len(again)
        for before, after in pairwise(taken):
            assert before[3] == after[3] or before[1] <= after[0], f"queue {queue}: {before} and {after}"
    # It takes a message that was consumed at that very moment; a server that loses commits repeats at each hand-over.
    assert repeated < QUEUES
