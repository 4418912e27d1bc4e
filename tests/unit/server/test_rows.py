"""Plain sends and pulls are served as rows: the same records and answers as one request after the other."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pytest

from rmqtool.broker.one_broker import Broker
from rmqtool.config import Version
from rmqtool.engine.store import MessageStore
from rmqtool.errors import WriteFailed
from rmqtool.kernel import NATIVE
from rmqtool.remoting.command import RemotingCommand
from rmqtool.remoting.frames import encode_frame
from rmqtool.server.channel import Connection
from rmqtool.server.server import Server
from tests.support.engine_stores import read_bytes, small_setup
from tests.support.faulty import FaultyFileSystem
from tests.support.faulty_disk import FaultyDisk
from tests.support.wire_client import heartbeat, pull_fields, send_fields
from tests.unit.server.test_passes import Loop, Observer, Transport

needs_kernel = pytest.mark.skipif(NATIVE is None, reason="rows need the kernel")
SEGMENT = 4 << 20
LONG = dict(
    zip(
        "abcdefghijkm",
        (
            *("producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag"),
            *("bornTimestamp", "flag", "properties", "reconsumeTimes", "unitMode", "batch"),
        ),
        strict=True,
    )
)
KEY = "UNIQ_KEY\1mine\2"
WAY: list[tuple[dict[str, Any], bytes]] = [
    ({}, b"body"),
    ({"i": f"KEYS\1k\2TAGS\1TagA\2{KEY}"}, b"body"),
    ({"i": f"{KEY}WAIT\1true\2KEYS\1a b\2"}, b""),
    ({"i": f"{KEY}WAIT\1false\2"}, b"body"),
    ({"i": f'TAGS\1ä€😀\2"\\\1"\2no value\1\2\1no name\2KEYS\1a\2KEYS\1b\2{KEY}'}, b"body"),
    ({"i": f"CLUSTER\1another\2MSG_REGION\1mine\2{KEY}", "h": 7, "g": 5}, b"body"),
    ({"i": f"x\1{'y' * 3000}\2{KEY}"}, b"body"),
    ({"i": f"x\1{'y' * 40_000}\2{KEY}"}, b"body"),
    ({"i": f"DELAY\0013\2{KEY}"}, b"body"),
    ({"i": f"TRAN_MSG\1true\2PGROUP\1G\2{KEY}"}, b"body"),
    ({"i": f"INNER_NUM\0012\2{KEY}"}, b"body"),
    ({"b": "%RETRY%G", "j": 2, "e": 0, "i": KEY}, b"body"),
    ({"b": "SCHEDULE_TOPIC_XXXX", "i": KEY}, b"body"),
    ({"b": "Other", "e": 2, "i": KEY}, b"body"),
    ({"b": "no/topic"}, b"body"),
    ({"e": 4}, b"body"),
    ({"f": 1}, b"body"),
    ({"j": 3}, b"body"),
    ({"i": KEY}, b"y" * 5000),
    ({"g": "soon"}, b"body"),
    ({"a": None}, b"body"),
]


def frames(ways: list[tuple[dict[str, Any], bytes]]) -> list[bytes]:
    found = []
    for opaque, (changes, body) in enumerate(ways, 1):
        fields = {name: text_of(value) for name, value in (send_fields("T") | changes).items() if value is not None}
        if opaque % 3:
            found.append(encode_frame(RemotingCommand(310, fields, body, opaque)))
        else:
            found.append(
                encode_frame(RemotingCommand(10, {LONG[name]: text for name, text in fields.items()}, body, opaque))
            )
    return found


def text_of(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


class Served:
    """A server, and one client that has greeted it."""

    def __init__(self, store: MessageStore) -> None:
        broker = Broker(store, (bytes(4), 10_911))
        broker.add_own()
        self.server = Server(broker, Observer(), Loop())  # type: ignore[arg-type]
        self._transport = Transport()
        self.connection = Connection(self.server, self.server.processors.broker)
        self.connection.connection_made(self._transport)  # type: ignore[arg-type]
        self.connection.data_received(encode_frame(RemotingCommand(34, {}, heartbeat("c", "G", {"T": "*"}))))
        self._transport.written.clear()

    def clear(self) -> None:
        self._transport.written.clear()

    def close(self) -> None:
        self.server.threads.shutdown()

    @property
    def answers(self) -> Mapping[int, tuple[object, ...]]:
        """By the number of the request."""
        found = {one.opaque: (one.code, one.ext_fields, one.remark, one.body) for one in self._transport.written}
        assert len(found) == len(self._transport.written)
        return found


@needs_kernel
@pytest.mark.parametrize("version", [Version.V4_9, Version.V5_3, Version.V5_4])
@pytest.mark.parametrize("settings", [{}, {"flushDiskType": "SYNC_FLUSH"}], ids=["async", "sync"])
def test_rows_are_stored_and_answered_as_requests(
    version: Version, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each kind of message three times, in pieces as the network cuts them."""
    stream = b"".join(frames(WAY * 3))
    # Frames that come in two pieces are no rows; 4.9 stores messages without a unique key, which are none either.
    taken = 19 if version is Version.V4_9 else 21
    found = []
    for is_short in (True, False):
        setup, dice, at = small_setup(version, mappedFileSizeCommitLog=SEGMENT, **settings), random.Random(1), 0
        with MessageStore.create(setup) as store:
            served, rows = Served(store), [0]
            take = served.server.processors.sending.take_row

            def counted(*given: Any, rows: list[int] = rows, take: Any = take) -> Any:
                rows[0] += (taken := take(*given)) is not None
                return taken

            monkeypatch.setattr(served.server.processors.sending, "take_row", counted if is_short else lambda *_: None)
            if settings:
                monkeypatch.setattr(served.server, "_flush", lambda: None)
            while at < len(stream):
                size = dice.choice((700, 4096, 30_000))
                served.connection.data_received(stream[at : at + size])
                at += size
            if settings:
                store.flush_now()
                served.server.answer_late()
                served.server.end_turn()
            assert rows[0] == (taken if is_short else 0)
            found.append((served.answers, read_bytes(setup.files, f"commitlog/{0:020d}"), served.server.broker.counts))
            assert served.server.requests == 3 * len(WAY) + 1
            served.close()
    assert len(found[0][0]) == 3 * len(WAY)
    assert found[0] == found[1]
    assert {code for code, *_ in found[0][0].values()} >= {0, 1}


# Pulls as push consumers write them: changes of their fields, and how many of such are answered as rows.
PULLS: list[tuple[dict[str, Any], int]] = [
    ({}, 1),
    ({"queueOffset": 2, "maxMsgNums": 1}, 1),
    ({"consumerGroup": "Commits", "sysFlag": 3, "commitOffset": 1}, 1),
    ({"sysFlag": 0, "maxMsgBytes": 262_144, "bname": "broker-a"}, 1),
    ({"consumerGroup": "Tagged"}, 1),
    ({"consumerGroup": "Tagged", "queueOffset": 1, "maxMsgNums": 1}, 1),
    ({"consumerGroup": "Tagged", "queueOffset": 3, "sysFlag": 1, "commitOffset": 3}, 0),
    ({"queueOffset": 4, "sysFlag": 1, "commitOffset": 4}, 0),
    ({"queueOffset": 9, "sysFlag": 1, "commitOffset": 2}, 0),
    ({"queueId": 1, "sysFlag": 0}, 0),
    ({"queueId": 99}, 0),
    ({"topic": "Missing"}, 0),
    ({"consumerGroup": "Unknown"}, 0),
    ({"consumerGroup": "Reset", "sysFlag": 1, "commitOffset": 4}, 0),
    ({"consumerGroup": "Reset", "queueOffset": 1, "sysFlag": 1, "commitOffset": 4}, 1),
    ({"sysFlag": 4, "subscription": "TagB", "queueOffset": 0}, 0),
    ({"commitOffset": -1, "sysFlag": 1}, 0),
    ({"maxMsgNums": "many"}, 0),
]


@needs_kernel
@pytest.mark.parametrize("version", [Version.V4_9, Version.V5_3])
@pytest.mark.parametrize("port", ["broker", "fast"])
def test_pulls_as_rows_are_answered_as_requests(version: Version, port: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = []
    for opaque, (changes, _) in enumerate(PULLS, 100):
        fields = pull_fields("T", subVersion=7, sysFlag=2) | {"subscription": None} | changes
        texts = {name: text_of(value) for name, value in fields.items() if value is not None}
        stream.append(encode_frame(RemotingCommand(11, texts, b"", opaque)))
    found = []
    for takes_rows in (True, False):
        with MessageStore.create(small_setup(version, mappedFileSizeCommitLog=SEGMENT)) as store:
            served, rows = Served(store), []
            pulling, offsets = served.server.processors.pulling, served.server.broker.offsets
            take = pulling.pull_row
            for group, tag in (("Tagged", "TagA"), ("Reset", "*"), ("Commits", "*")):
                served.connection.data_received(
                    encode_frame(RemotingCommand(34, {}, heartbeat("c", group, {"T": tag})))
                )
            for number in range(4):
                properties = f"TAGS\1Tag{'AB'[number % 2]}\2{KEY}"
                served.connection.data_received(frames([({"i": properties, "e": 0}, b"body")])[0])
            store.dispatch_now()
            served.clear()
            offsets.reset_offset("Reset", "T", 0, 1)

            def counted(row: Any, rows: list[int] = rows, take: Any = take) -> Any:
                if (answered := take(row)) is not None:
                    rows.append(row[2])
                return answered

            monkeypatch.setattr(pulling, "pull_row", counted if takes_rows else lambda _: None)
            served.connection.processors = getattr(served.server.processors, port)
            served.connection.data_received(b"".join(stream))
            served.server.held_pulls.answer_over(0, all_of_them=True)
            served.server.end_turn()
            # 4.9 does not know resets that wait for a pull, so one stays.
            taken = [
                opaque
                for opaque, (changes, is_row) in enumerate(PULLS, 100)
                if is_row and (version is not Version.V4_9 or changes.get("consumerGroup") != "Reset")
            ]
            assert rows == (taken if takes_rows and port == "broker" else [])
            broker = served.server.broker
            places = [offsets.query_offset(group, "T", 0) for group in ("G", "Tagged", "Reset", "Commits")]
            found.append((served.answers, places, broker.counts, dict(broker.pulled), served.server.requests))
            served.close()
    assert len(found[0][0]) == len(PULLS)
    assert found[0] == found[1]


@needs_kernel
def test_a_store_that_fails_refuses_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The write of a turn fails: its messages are refused, and those after it."""
    monkeypatch.setattr(Observer, "event", lambda *_, **__: None)
    files = FaultyFileSystem(FaultyDisk())
    setup = small_setup(Version.V5_3, files, mappedFileSizeCommitLog=SEGMENT)
    with pytest.raises(WriteFailed), MessageStore.create(setup) as store:  # noqa: PT012  (closing it fails)
        served = Served(store)
        stream = frames([({}, b"body")] * 4)
        served.connection.data_received(stream[0])
        served.connection.data_received(stream[1])
        monkeypatch.setattr(store.commit_log, "commit", fail)
        served.connection.data_received(stream[2])
        assert served.server.requests == 4
        served.connection.data_received(stream[3])
        assert [served.answers[number][0] for number in (1, 2, 3, 4)] == [0, 0, 14, 14]
        assert store.put_made(("T", 0), bytearray(9), True) is None
        served.close()


def fail() -> None:
    raise WriteFailed("spoiled")
