"""A store that is not in memory: who asks for its bytes waits for the disk, and nobody else does."""

from __future__ import annotations

import errno
import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

import rmqtool
from rmqtool.broker.processors.pull_message import Pulling
from rmqtool.engine.clock import SystemClock
from rmqtool.errors import ReadFailed
from rmqtool.files.filesystem import NotInMemory
from rmqtool.files.posix import PosixReadableFile
from rmqtool.files.posix_write import PosixWritableFile
from rmqtool.formats.response_codes import ResponseCode
from rmqtool.remoting.command import RemotingCommand
from tests.support.waiting import PATIENCE, wait_for
from tests.support.wire_client import WireClient, heartbeat, pull_fields, send_fields

SMALL = {"mappedFileSizeCommitLog": str(1 << 20), "maxIndexNum": "1000", "maxHashSlotNum": "100"}
COLD = ("commitlog", "index")


class Disk:
    """A disk that has everything: while it is ``slow`` nothing is in memory, and a read waits until the end."""

    def __init__(self) -> None:
        self.is_slow = self.is_cold = False
        self.entered, self.over = threading.Event(), threading.Event()
        self.fetches: list[tuple[str, int, int]] = []
        # Where the last message is that is not in memory, and the reads of such that the loop of the server waited for.
        self.last = 0
        self.waited_for: list[str] = []

    @contextmanager
    def slow(self) -> Iterator[None]:
        """Be slow until the end of the block."""
        self.is_slow = True
        try:
            yield
        finally:
            self.is_slow = False
            self.over.set()

    def holds(self, file: PosixReadableFile) -> bool:
        """Return whether a file must be waited for now."""
        return self.is_slow and not self.over.is_set() and file.path.startswith(COLD)

    def wait(self) -> None:
        """Wait as a read does: longer than any client."""
        self.entered.set()
        if not self.over.wait(2 * PATIENCE):
            self.over.set()


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    found = Disk()
    at_once, pread = PosixReadableFile.pread_at_once, PosixReadableFile.pread

    def read_at_once(file: PosixReadableFile, length: int, file_offset: int) -> bytes:
        if not found.holds(file):
            return at_once(file, length, file_offset)
        place = (file.path, file_offset, length)

        def begin() -> Callable[[], None]:
            found.fetches.append(place)
            return found.wait

        raise NotInMemory(place, begin)

    def read(file: PosixReadableFile, length: int, file_offset: int) -> bytes:
        if found.holds(file):
            if threading.current_thread().name.startswith("reader"):
                found.wait()
            elif file.path.startswith("commitlog") and file_offset <= found.last:
                found.waited_for.append(file.path)
        return pread(file, length, file_offset)

    monkeypatch.setattr(PosixReadableFile, "pread_at_once", read_at_once)
    monkeypatch.setattr(PosixReadableFile, "pread", read)
    yield found
    found.over.set()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    rmqtool.init(tmp_path / "store", conf=SMALL)
    return tmp_path / "store"


def fill(client: WireClient, topic: str = "Cold", count: int = 1) -> list[int]:
    """Store messages; return their places in the log, when consumers can have them."""
    properties = "KEYS\x01key\x02TAGS\x01TagA\x02"
    sent = [client.ask(310, send_fields(topic, properties), b"cold %d" % number) for number in range(count)]
    client.ask(34, {}, heartbeat("member", "G", {topic: "*"}))
    assert int(client.ask(30, {"topic": topic, "queueId": 0}).ext["offset"]) == count
    return [int(one.ext["msgId"][-16:], 16) for one in sent]


def answers(client: WireClient, numbers: list[int]) -> list[RemotingCommand]:
    """Return the answers to some requests, which come in any order."""
    found: dict[int, RemotingCommand] = {}
    while not found.keys() >= set(numbers):
        one = client.receive()
        found[one.opaque] = one
    return [found[number] for number in numbers]


POP = {"queueId": -1, "maxMsgNums": 32, "invisibleTime": 60_000, "bornTime": 0, "initMode": 0, "pollTime": 0}
POP |= {"consumerGroup": "G", "topic": "Cold", "expType": "TAG", "exp": "*", "order": False}
QUEUE = {"topic": "Cold", "queueId": 0}
# What needs the messages themselves: code, fields but for the place of a message in the log, and what the answer has.
ASKED: dict[str, tuple[int, dict[str, Any], Callable[[Any], object]]] = {
    "pull": (11, pull_fields("Cold"), lambda got: b"cold 0" in got.body),
    "filtered pull": (11, pull_fields("Cold", subscription="TagA"), lambda got: b"cold 0" in got.body),
    "pop": (200050, POP, lambda got: b"cold 0" in got.body),
    "pop in order": (200050, POP | {"order": True, "queueId": 0}, lambda got: b"cold 0" in got.body),
    "peek": (200052, {"consumerGroup": "G", "maxMsgNums": 32, **QUEUE}, lambda got: b"cold 0" in got.body),
    "view": (33, {"offset": ...}, lambda got: b"cold 0" in got.body),
    "query": (
        12,
        {"topic": "Cold", "key": "key", "maxNum": 9, "beginTimestamp": 0, "endTimestamp": 1 << 62},
        lambda got: b"cold 0" in got.body,
    ),
    "search": (29, {**QUEUE, "timestamp": 1}, lambda got: got.ext["offset"] == "0"),
    "earliest": (32, QUEUE, lambda got: int(got.ext["timestamp"]) > 1_700_000_000_000),
    "stats": (202, {"topic": "Cold"}, lambda got: b"lastUpdateTimestamp" in got.body),
    "stats of a group": (208, {"consumerGroup": "G"}, lambda got: b"offsetTable" in got.body),
    "times": (303, {"topic": "Cold", "group": "G"}, lambda got: b"minTimeStamp" in got.body),
    "state": (28, {}, lambda got: b"earliestMessageTimeStamp" in got.body),
    "send back": (36, {"group": "G", "offset": ..., "delayLevel": 3}, lambda got: got.code == 0),
}


@pytest.mark.parametrize("name", ASKED)
def test_only_who_asks_waits_for_a_slow_disk(root: Path, disk: Disk, name: str) -> None:
    code, fields, has_it = ASKED[name]
    with rmqtool.serve(root) as server, WireClient(server.broker) as client, WireClient(server.broker) as other:
        (place,) = fill(client)
        disk.last = place
        if name == "stats of a group":
            assert client.ask(15, {"consumerGroup": "G", **QUEUE, "commitOffset": 1}).code == 0
        with disk.slow():
            waiting = client.send(code, {key: place if value is ... else value for key, value in fields.items()})
            assert disk.entered.wait(PATIENCE)
            assert other.ask(310, send_fields("Warm"), b"warm").code == 0
            assert json.loads(other.ask(38, {"consumerGroup": "G"}).body)["consumerIdList"] == ["member"]
            assert not disk.over.is_set()
        found = client.answer_to(waiting)
        assert found.code == 0
        assert has_it(found)
        assert disk.waited_for == []


def test_a_pull_commits_once_before_it_waits(root: Path, disk: Disk) -> None:
    """A commit of another client meanwhile stays."""
    commit = {"consumerGroup": "G", "topic": "Cold", "queueId": 0}
    with rmqtool.serve(root) as server, WireClient(server.broker) as client, WireClient(server.broker) as other:
        fill(client)
        with disk.slow():
            waiting = client.send(11, pull_fields("Cold") | {"sysFlag": 5, "commitOffset": 0})
            assert disk.entered.wait(PATIENCE)
            assert other.ask(15, commit | {"commitOffset": 1}).code == 0
        assert b"cold" in client.answer_to(waiting).body
        assert other.ask(14, commit).ext["offset"] == "1"


def test_a_pop_takes_each_message_once_when_its_bytes_have_come(root: Path, disk: Disk) -> None:
    """Two pops wait for the same bytes, which are fetched once: the first gets the messages, the second none."""
    with rmqtool.serve(root) as server, WireClient(server.broker) as one, WireClient(server.broker) as two:
        fill(one, count=3)
        with disk.slow():
            first = one.send(200050, POP | {"queueId": 0})
            assert disk.entered.wait(PATIENCE)
            second = two.send(200050, POP | {"queueId": 0})
            assert two.ask(30, QUEUE).code == 0
        assert [b"cold %d" % number in one.answer_to(first).body for number in range(1)] == [True]
        assert two.answer_to(second).code == ResponseCode.POLLING_TIMEOUT
        assert len(disk.fetches) == 1


def test_a_pop_gives_what_is_in_memory_and_keeps_the_cold_rest(
    root: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After many fetches the messages before a cold one are popped; no message is hidden that no client got."""
    with rmqtool.serve(root) as server, WireClient(server.broker) as client:
        places = fill(client, count=3)
        real = PosixReadableFile.pread_at_once
        rounds = []

        def last_is_cold(file: PosixReadableFile, length: int, file_offset: int) -> bytes:
            # Neighbours of the first message are read with what is after them.
            if file.path.startswith("commitlog") and file_offset + length > places[2] and len(rounds) < 70:
                raise NotInMemory((file.path, places[2], 1), lambda: lambda: rounds.append(file_offset))
            return real(file, length, file_offset)

        monkeypatch.setattr(PosixReadableFile, "pread_at_once", last_is_cold)
        popped = client.ask(200050, POP | {"queueId": 0, "exp": "TagA"})
        assert [b"cold %d" % number in popped.body for number in range(3)] == [True, False, False]
        assert len(rounds) == 64
        rest = client.ask(200050, POP | {"queueId": 0, "exp": "TagA"})
        assert [b"cold %d" % number in rest.body for number in range(3)] == [False, True, True]


def test_a_client_that_leaves_while_it_waits_leaves_nothing(root: Path, disk: Disk) -> None:
    with rmqtool.serve(root) as server, WireClient(server.broker) as other:
        fill(other)
        with disk.slow():
            with WireClient(server.broker) as client:
                client.send(200050, POP)
                assert disk.entered.wait(PATIENCE)
            assert other.ask(30, QUEUE).ext["offset"] == "1"
        assert b"cold 0" in other.ask(200050, POP).body


def test_a_transaction_is_ended_also_when_its_producer_has_hung_up(root: Path, disk: Disk) -> None:
    with rmqtool.serve(root) as server, WireClient(server.broker) as other:
        with WireClient(server.broker) as producer:
            half = producer.ask(310, send_fields("Cold", "TRAN_MSG\x01true\x02PGROUP\x01PG\x02") | {"f": 4}, b"half")
            commit = {"producerGroup": "PG", "tranStateTableOffset": half.ext["queueOffset"], "commitOrRollback": 8}
            commit |= {"commitLogOffset": int(half.ext["msgId"][-16:], 16), "fromTransactionCheck": "false"}
            waiting = other.send(11, pull_fields("Cold", wait=600_000))
            with disk.slow():
                producer.oneway(37, commit | {"msgId": "k"})
                assert disk.entered.wait(PATIENCE)
                producer.socket.close()
                # By then the server knows.
                assert [other.ask(30, QUEUE).code for _ in range(3)] == [0] * 3
        assert b"half" in other.answer_to(waiting).body


def test_of_pops_that_wait_only_the_first_waits_for_cold_bytes(root: Path, disk: Disk) -> None:
    """The others stay where they are until it is answered, or its client is gone."""
    many = POP | {"pollTime": 600_000, "queueId": 0, "maxMsgNums": 1}
    count = {"consumerGroup": "G", **QUEUE}
    with rmqtool.serve(root) as server, WireClient(server.broker) as other, ExitStack() as stack:
        fill(other)
        assert b"cold 0" in other.ask(200050, POP).body
        clients = [stack.enter_context(WireClient(server.broker)) for _ in range(3)]
        waiting = [one.send(200050, many) for one in clients]
        wait_for(lambda: other.ask(200055, count).ext["pollingNum"] == "3")
        with disk.slow():
            assert other.ask(310, send_fields("Cold"), b"new").code == 0
            assert disk.entered.wait(PATIENCE)
            assert other.ask(200055, count).ext["pollingNum"] == "2"
            clients[0].socket.close()
            # The server learns it, and has the next one wait for the bytes.
            wait_for(lambda: other.ask(200055, count).ext["pollingNum"] == "1")
        assert b"new" in clients[1].answer_to(waiting[1]).body
        assert other.ask(200055, count).ext["pollingNum"] == "1"
        assert other.ask(310, send_fields("Cold"), b"newer").code == 0
        assert b"newer" in clients[2].answer_to(waiting[2]).body


def test_searches_leave_threads_to_the_others(root: Path, disk: Disk) -> None:
    with rmqtool.serve(root) as server, WireClient(server.broker) as client:
        (place,) = fill(client)
        with disk.slow():
            waiting = [client.send(29, {**QUEUE, "timestamp": number}) for number in range(6)]
            assert disk.entered.wait(PATIENCE)
            viewing = client.send(33, {"offset": place})
            assert client.ask(30, QUEUE).code == 0
            assert len(disk.fetches) == 1
        assert [one.ext["offset"] for one in answers(client, [*waiting, viewing])[:6]] == ["0"] * 6


def test_a_pop_waits_for_a_slow_disk_as_long_as_its_client(
    root: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1_700_000_000_000]
    monkeypatch.setattr(SystemClock, "now", lambda _: now[0])
    with rmqtool.serve(root) as server, WireClient(server.broker) as client:
        fill(client)
        with disk.slow():
            late = client.send(200050, POP | {"bornTime": now[0]})
            assert disk.entered.wait(PATIENCE)
            now[0] += 9_999
        assert b"cold 0" in client.answer_to(late).body


def test_a_pop_whose_client_waits_no_more_takes_nothing(
    root: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1_700_000_000_000]
    monkeypatch.setattr(SystemClock, "now", lambda _: now[0])
    with rmqtool.serve(root) as server, WireClient(server.broker) as client:
        fill(client)
        with disk.slow():
            late = client.send(200050, POP | {"bornTime": now[0]})
            assert disk.entered.wait(PATIENCE)
            now[0] += 10_001
        assert client.answer_to(late).code == ResponseCode.POLLING_TIMEOUT
        assert b"cold 0" in client.ask(200050, POP).body


def test_requests_for_one_place_share_a_fetch(root: Path, disk: Disk) -> None:
    with rmqtool.serve(root) as server, WireClient(server.broker) as client:
        fill(client)
        with disk.slow():
            # As many as a client with hundreds of queues sends at once.
            waiting = [client.send(11, pull_fields("Cold")) for _ in range(400)]
            assert disk.entered.wait(PATIENCE)
            assert client.ask(30, QUEUE).code == 0
        assert all(b"cold" in one.body for one in answers(client, waiting))
        assert len(disk.fetches) == 1


def test_who_waits_for_a_turn_holds_no_descriptor(root: Path, disk: Disk) -> None:
    """A few reads are done at once. All others have begun nothing, and each gets its answer in the end."""
    with rmqtool.serve(root) as server, WireClient(server.broker) as client:
        places = fill(client, count=40)
        with disk.slow():
            before = len(os.listdir("/proc/self/fd"))
            waiting = [client.send(33, {"offset": place}) for place in places]
            assert disk.entered.wait(PATIENCE)
            assert client.ask(30, QUEUE).code == 0
            assert len(disk.fetches) == 4
            assert len(os.listdir("/proc/self/fd")) - before < 10
        found = answers(client, waiting)
        assert [b"cold %d" % number in one.body for number, one in enumerate(found)] == [True] * 40


@pytest.mark.parametrize("limits", [{"cold": 2}, {"cold_each": 1}], ids=["in all", "of one connection"])
def test_more_than_may_wait_are_refused_at_once(root: Path, disk: Disk, limits: dict[str, int]) -> None:
    with rmqtool.serve(root, limits=limits) as server, WireClient(server.broker) as client:
        fill(client)
        with WireClient(server.broker) as one, WireClient(server.broker) as two:
            with disk.slow():
                waiting = [(who, who.send(11, pull_fields("Cold"))) for who in (one, two)]
                # When the next request of a connection is answered, the pull before it waits.
                assert [who.ask(30, QUEUE).code for who in (one, two)] == [0, 0]
                refused = one.ask(11, pull_fields("Cold"))
                assert refused.code == ResponseCode.SYSTEM_BUSY
                assert refused.remark == "[OVERLOAD]system busy, start flow control for a while"
            assert all(b"cold" in who.answer_to(number).body for who, number in waiting)
            assert b"cold" in one.ask(11, pull_fields("Cold")).body


def test_a_disk_that_fails_a_fetch_says_why_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def failing(file: PosixReadableFile, length: int, file_offset: int) -> bytes:
        if file.path.startswith("commitlog"):
            raise NotInMemory((file.path, file_offset, length), lambda: fail)
        return file.pread(length, file_offset)

    def fail() -> None:
        asked.append(1)
        raise ReadFailed("cannot read: Input/output error", file="log")

    def without_descriptors(file: PosixReadableFile, length: int, file_offset: int) -> bytes:
        raise NotInMemory((file.path, file_offset, length), none_left)

    def none_left() -> Callable[[], None]:
        raise ReadFailed("cannot read: Too many open files", file="log")

    with rmqtool.serve(root) as server, WireClient(server.broker) as client:
        fill(client)
        monkeypatch.setattr(PosixReadableFile, "pread_at_once", failing)
        for code, fields in ((11, pull_fields("Cold")), (200050, POP)):
            refused = client.ask(code, fields)
            assert (refused.code, refused.remark) == (ResponseCode.SYSTEM_ERROR, "cannot read: Input/output error")
        assert len(asked) == 2
        monkeypatch.setattr(PosixReadableFile, "pread_at_once", without_descriptors)
        refused = client.ask(11, pull_fields("Cold"))
        assert (refused.code, refused.remark) == (ResponseCode.SYSTEM_ERROR, "cannot read: Too many open files")
        assert client.ask(30, QUEUE).code == 0


def test_a_failed_fetch_fails_one_request(root: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others want the same block, and perhaps other bytes of it."""
    failures = [ReadFailed("cannot read: Input/output error", file="log")]

    def wait_and_fail() -> None:
        disk.entered.set()
        disk.over.wait(2 * PATIENCE)
        if failures:
            raise failures.pop()

    monkeypatch.setattr(disk, "wait", wait_and_fail)
    with rmqtool.serve(root) as server, WireClient(server.broker) as client:
        fill(client)
        with disk.slow():
            waiting = [client.send(11, pull_fields("Cold")) for _ in range(3)]
            assert disk.entered.wait(PATIENCE)
            assert client.ask(30, QUEUE).code == 0
        assert [one.code for one in answers(client, waiting)] == [ResponseCode.SYSTEM_ERROR, 0, 0]


def test_a_block_that_cannot_be_read_fails_all_in_the_end(
    root: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wait_and_fail() -> None:
        disk.entered.set()
        disk.over.wait(2 * PATIENCE)
        raise ReadFailed("cannot read: Input/output error", file="log")

    monkeypatch.setattr(disk, "wait", wait_and_fail)
    monkeypatch.setattr(disk, "holds", lambda file: disk.is_cold and file.path.startswith("commitlog"))
    with rmqtool.serve(root) as server, WireClient(server.broker) as client:
        fill(client)
        disk.is_cold = True
        waiting = [client.send(11, pull_fields("Cold")) for _ in range(100)]
        assert disk.entered.wait(PATIENCE)
        assert client.ask(30, QUEUE).code == 0
        disk.over.set()
        assert {one.code for one in answers(client, waiting)} == {ResponseCode.SYSTEM_ERROR}
        assert len(disk.fetches) == 4
        disk.is_cold = False
        assert b"cold" in client.ask(11, pull_fields("Cold")).body


def test_a_file_that_was_forgotten_meanwhile_is_looked_for_again(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = []

    def begin() -> Callable[[], None]:
        begun.append(1)
        raise ReadFailed("cannot read: Bad file descriptor", file="log") from OSError(errno.EBADF, "closed")

    at_once = PosixReadableFile.pread_at_once

    def read(file: PosixReadableFile, length: int, file_offset: int) -> bytes:
        if file.path.startswith("commitlog") and len(begun) < 2:
            raise NotInMemory((file.path, file_offset, length), begin)
        return at_once(file, length, file_offset)

    with rmqtool.serve(root) as server, WireClient(server.broker) as client:
        fill(client)
        monkeypatch.setattr(PosixReadableFile, "pread_at_once", read)
        assert b"cold 0" in client.ask(11, pull_fields("Cold")).body
        assert len(begun) == 2


def test_an_answer_about_many_queues_reads_each_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where memory keeps nothing for longer than it takes to read it once."""
    fetched, kept = [], set()
    at_once = PosixReadableFile.pread_at_once

    def read(file: PosixReadableFile, length: int, file_offset: int) -> bytes:
        place = (file.path, file_offset, length)

        def fetch() -> None:
            fetched.append(place)
            kept.add(place)

        if file.path.startswith("commitlog") and place not in kept:
            raise NotInMemory(place, lambda: fetch)
        kept.discard(place)
        return at_once(file, length, file_offset)

    with rmqtool.serve(root) as server, WireClient(server.broker) as client:
        client.ask(34, {}, heartbeat("member", "G", {"Cold": "*"}))
        for queue_id in range(4):
            assert client.ask(310, send_fields("Cold", e=queue_id), b"cold").code == 0
            client.ask(15, {"consumerGroup": "G", "topic": "Cold", "queueId": queue_id, "commitOffset": 1})
        client.ask(30, QUEUE)
        monkeypatch.setattr(PosixReadableFile, "pread_at_once", read)
        for code, fields, most in ((202, {"topic": "Cold"}, 4), (208, {"consumerGroup": "G"}, 4), (317, {}, 4)):
            fetched.clear()
            found = client.ask(code, fields)
            assert (found.code, len(fetched)) == (0, most), code


def test_a_held_request_that_fails_fails_alone(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failures = [ReadFailed("cannot read: Input/output error", file="log")]
    look_again = Pulling.look_again

    def fail_once(pulling: Pulling, *args: Any, **more: Any) -> Any:
        if failures:
            raise failures.pop()
        return look_again(pulling, *args, **more)

    monkeypatch.setattr(Pulling, "look_again", fail_once)
    with rmqtool.serve(root) as server, WireClient(server.broker) as client, WireClient(server.broker) as other:
        fill(client)
        waiting = [client.send(11, pull_fields("Cold", 1, wait=600_000)) for _ in range(3)]
        assert client.ask(30, QUEUE).code == 0
        assert other.ask(310, send_fields("Cold"), b"new").code == 0
        found = answers(client, waiting)
        assert [one.code for one in found] == [ResponseCode.SYSTEM_ERROR, 0, 0]
        assert found[0].remark == "cannot read: Input/output error"


def test_memory_that_keeps_nothing_is_waited_for(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched = []

    def cold(file: PosixReadableFile, length: int, file_offset: int) -> bytes:
        raise NotInMemory((file.path, file_offset, length), lambda: lambda: fetched.append(1))

    with rmqtool.serve(root) as server, WireClient(server.broker) as client:
        (place,) = fill(client)
        monkeypatch.setattr(PosixReadableFile, "pread_at_once", cold)
        for code, fields in ((11, pull_fields("Cold")), (33, {"offset": place}), (200050, POP)):
            fetched.clear()
            assert b"cold 0" in client.ask(code, fields).body
            assert len(fetched) == 64


def test_a_disk_that_does_not_answer_does_not_keep_the_server(root: Path, disk: Disk) -> None:
    """The threads that wait for it are left behind; who waits for a turn is answered."""
    with ExitStack() as stack, ExitStack() as clients:
        server = stack.enter_context(rmqtool.serve(root))
        client = clients.enter_context(WireClient(server.broker))
        places = fill(client, count=6)
        with disk.slow():
            waiting = [client.send(33, {"offset": place}) for place in places]
            assert disk.entered.wait(PATIENCE)
            assert client.ask(30, QUEUE).code == 0
            stack.close()
            assert not disk.over.is_set()
            assert [one.code for one in answers(client, waiting[4:])] == [ResponseCode.SYSTEM_BUSY] * 2


def test_a_query_forces_nothing_to_the_disk(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while the slots of the index are in memory, as after many keys at once."""
    forced = []

    def force(file: PosixWritableFile) -> None:
        # The thread that forces everything now and then is another one.
        if not threading.current_thread().name.startswith("disk"):
            forced.append(file.path)

    monkeypatch.setattr(PosixWritableFile, "fdatasync", force)
    with (
        rmqtool.serve(rmqtool.Store(root, conf={"maxIndexNum": "10000"})) as server,
        WireClient(server.broker) as client,
    ):
        keys = "".join(f"key{number} " for number in range(400))
        assert client.ask(310, send_fields("Keys", f"KEYS\x01{keys}\x02"), b"many").code == 0
        assert client.ask(30, QUEUE | {"topic": "Keys"}).ext["offset"] == "1"
        forced.clear()
        for _ in range(300):
            client.send(310, send_fields("Keys", "KEYS\x01key\x02"), b"one of many")
        fields = {"topic": "Keys", "maxNum": 64, "beginTimestamp": 0, "endTimestamp": 1 << 62}
        assert client.ask(12, fields | {"key": "key"}).body.count(b"one of many") == 64
        assert client.ask(12, fields | {"key": "key7"}).body.count(b"many") == 1
        assert [path for path in forced if path.startswith("index")] == []


def test_what_a_cold_request_stores_reaches_consumers(root: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message of a transaction whose half message was cold wakes the pull that waits for it.

    It waits for nothing else: what a server does now and then would find the message too.
    """
    for period in ("_DUE", "_SECOND", "_SAVE"):
        monkeypatch.setattr(f"rmqtool.server.lifecycle.{period}", 3600.0)
    with rmqtool.serve(root) as server, WireClient(server.broker) as producer, WireClient(server.broker) as consumer:
        half = producer.ask(310, send_fields("Cold", "TRAN_MSG\x01true\x02PGROUP\x01PG\x02") | {"f": 4}, b"half")
        assert producer.ask(30, QUEUE).ext["offset"] == "0"
        waiting = consumer.send(11, pull_fields("Cold", wait=600_000))
        commit = {"producerGroup": "PG", "tranStateTableOffset": half.ext["queueOffset"], "commitOrRollback": 8}
        commit |= {"commitLogOffset": int(half.ext["msgId"][-16:], 16), "fromTransactionCheck": "false", "msgId": "k"}
        with disk.slow():
            committing = producer.send(37, commit)
            assert disk.entered.wait(PATIENCE)
            # It dispatches, so that nothing is due any more.
            assert producer.ask(30, QUEUE).ext["offset"] == "0"
        assert producer.answer_to(committing).code == 0
        assert b"half" in consumer.answer_to(waiting).body


def test_a_held_pop_whose_bytes_cannot_be_read_gives_way_to_the_next(
    root: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = [ReadFailed("cannot read: Input/output error", file="log")]

    def wait_and_fail() -> None:
        disk.entered.set()
        disk.over.wait(2 * PATIENCE)
        if failures:
            raise failures.pop()

    monkeypatch.setattr(disk, "wait", wait_and_fail)
    many = POP | {"pollTime": 600_000, "queueId": 0, "maxMsgNums": 1}
    count = {"consumerGroup": "G", **QUEUE}
    with rmqtool.serve(root) as server, WireClient(server.broker) as other, ExitStack() as stack:
        fill(other)
        assert b"cold 0" in other.ask(200050, POP).body
        clients = [stack.enter_context(WireClient(server.broker)) for _ in range(2)]
        waiting = []
        for number, one in enumerate(clients, 1):
            waiting.append(one.send(200050, many))
            wait_for(lambda held=str(number): other.ask(200055, count).ext["pollingNum"] == held)
        with disk.slow():
            assert other.ask(310, send_fields("Cold"), b"new").code == 0
            assert disk.entered.wait(PATIENCE)
        assert clients[0].answer_to(waiting[0]).code == ResponseCode.SYSTEM_ERROR
        # It is not the end of its time that wakes it.
        assert b"new" in clients[1].answer_to(waiting[1]).body


@pytest.mark.parametrize("subscription", ["*", "TagB"])
def test_a_held_pull_does_not_keep_the_loop_at_the_disk(root: Path, disk: Disk, subscription: str) -> None:
    """What was stored just now may have left the memory already."""
    with rmqtool.serve(root) as server, WireClient(server.broker) as client, WireClient(server.broker) as other:
        fill(other)
        waiting = client.send(11, pull_fields("Cold", 1, wait=600_000, subscription=subscription))
        assert client.ask(30, QUEUE).code == 0
        with disk.slow():
            assert other.ask(310, send_fields("Cold", "TAGS\x01TagA\x02"), b"new").code == 0
            assert other.ask(310, send_fields("Cold", "TAGS\x01TagB\x02"), b"newer").code == 0
            assert disk.entered.wait(PATIENCE)
            assert other.ask(30, QUEUE).ext["offset"] == "3"
            assert not disk.over.is_set()
        assert (b"newer" if subscription == "TagB" else b"new") in client.answer_to(waiting).body


def test_a_search_that_lists_a_cold_queue_keeps_nobody_else(
    root: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    with rmqtool.serve(root) as server, WireClient(server.broker) as client:
        fill(client)
        fill(client, "Warm")
    monkeypatch.setattr(disk, "holds", lambda file: disk.is_slow and file.path.startswith("consumequeue/Cold"))
    with rmqtool.serve(root) as server, WireClient(server.broker) as client, WireClient(server.broker) as other:
        other.ask(34, {}, heartbeat("member", "G", {"Warm": "*"}))
        with disk.slow():
            waiting = client.send(29, {**QUEUE, "timestamp": 1})
            assert disk.entered.wait(PATIENCE)
            assert b"cold 0" in other.ask(11, pull_fields("Warm")).body
            assert not disk.over.is_set()
        assert client.answer_to(waiting).ext["offset"] == "0"
