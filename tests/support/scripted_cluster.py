"""A store played as a live cluster: a peer that answers from its messages, as a name server and one broker do.

The records are read from the files of the log by the places that ``scan`` names, so a broker's answers have the very
bytes of the store. Everything runs on a loop in a thread, for commands and for code that knows no asyncio.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import rmqtool
from rmqtool.formats.batches import BatchItem, iter_batch_items
from rmqtool.remoting.command import RemotingCommand
from tests.support.builders import record
from tests.support.scripted_peer import ScriptedPeer, reply, route_body
from tests.support.waiting import PATIENCE

BROKER = "broker-a"


class StorePeer(ScriptedPeer):
    """Plays a store: queues as they are in its log, topics with the queues that have messages."""

    def __init__(self, store: str | Path | None) -> None:
        super().__init__()
        self.queues: dict[tuple[str, int], dict[int, bytes]] = defaultdict(dict)
        self.times: dict[tuple[str, int], dict[int, int]] = defaultdict(dict)
        self.by_place: dict[int, bytes] = {}
        # How many messages pulls did not bring because of their tags.
        self.left_out = 0
        self.offsets: dict[str, dict[str, int]] = {}
        if store is not None:
            self._read(Path(store))
        self.plays |= {
            105: self._route,
            106: self._cluster,
            21: self._topics,
            28: lambda one: reply(one, body=b'{"table":{"brokerVersionDesc":"V5_3_3","putTps":"1.0 2.0 3.0"}}'),
            29: self._search,
            30: lambda one: self._bound(one, 1),
            31: lambda one: self._bound(one, 0),
            33: self._view,
            11: self._pull,
            12: self._query,
            14: self._committed,
            43: lambda one: reply(one, body=json.dumps({"offsetTable": self.offsets}).encode()),
            201: lambda one: reply(one, body=b'{"subscriptionGroupTable":{"G":{"groupName":"G","retryMaxTimes":16}}}'),
            202: self._stats,
        }

    def _read(self, store: Path) -> None:
        logs = {int(path.name): path.read_bytes() for path in (store / "commitlog").iterdir()}
        for message in rmqtool.scan(str(store)):
            assert "topic" in message, "the store is sound"
            place, size = message["commitLogOffset"], message["storeSize"]
            first = max(base for base in logs if base <= place)
            record = logs[first][place - first : place - first + size]
            queue = message["topic"], message["queueId"]
            self.by_place[place] = record
            self.queues[queue][message["queueOffset"]] = record
            self.times[queue][message["queueOffset"]] = message["storeTimestamp"]

    def counts(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for topic, queue_id in self.queues:
            found[topic] = max(found.get(topic, 0), queue_id + 1)
        return found

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        offsets = self.queues.get((topic, queue_id))
        return (min(offsets), max(offsets) + 1) if offsets else (0, 0)

    def _route(self, one: RemotingCommand) -> RemotingCommand:
        count = self.counts().get(one.ext["topic"])
        if count is None:
            return reply(one, 17, remark=f"No topic route info in name server for the topic: {one.ext['topic']}")
        return reply(one, body=route_body({BROKER: {0: self.address}}, count))

    def _cluster(self, one: RemotingCommand) -> RemotingCommand:
        data = {"brokerAddrs": {"0": self.address}, "brokerName": BROKER, "cluster": "DefaultCluster"}
        body = {"brokerAddrTable": {BROKER: data}, "clusterAddrTable": {"DefaultCluster": [BROKER]}}
        return reply(one, body=json.dumps(body).encode())

    def _topics(self, one: RemotingCommand) -> RemotingCommand:
        table = {
            topic: {"perm": 6, "readQueueNums": count, "topicName": topic, "writeQueueNums": count}
            for topic, count in self.counts().items()
        }
        return reply(one, body=json.dumps({"topicConfigTable": table}).encode())

    def _bound(self, one: RemotingCommand, which: int) -> RemotingCommand:
        return reply(one, ext={"offset": str(self.bounds(one.ext["topic"], int(one.ext["queueId"]))[which])})

    def _search(self, one: RemotingCommand) -> RemotingCommand:
        queue = one.ext["topic"], int(one.ext["queueId"])
        found = [at for at, time in self.times[queue].items() if time >= int(one.ext["timestamp"])]
        return reply(one, ext={"offset": str(min(found, default=self.bounds(*queue)[1]))})

    def _stats(self, one: RemotingCommand) -> RemotingCommand:
        topic = one.ext["topic"]
        rows = []
        for queue_id in range(self.counts().get(topic, 0)):
            least, most = self.bounds(topic, queue_id)
            key = f'{{"brokerName":"{BROKER}","queueId":{queue_id},"topic":{json.dumps(topic)}}}'
            rows.append(f'{key}:{{"lastUpdateTimestamp":0,"maxOffset":{most},"minOffset":{least}}}')
        return reply(one, body=('{"offsetTable":{' + ",".join(rows) + "}}").encode())

    def _committed(self, one: RemotingCommand) -> RemotingCommand:
        key = f"{one.ext['topic']}@{one.ext['consumerGroup']}"
        offset = self.offsets.get(key, {}).get(one.ext["queueId"])
        return reply(one, 22, remark="Not found") if offset is None else reply(one, ext={"offset": str(offset)})

    def _view(self, one: RemotingCommand) -> RemotingCommand:
        record = self.by_place.get(int(one.ext["offset"]))
        return reply(one, 1, remark="can not find message by the offset") if record is None else reply(one, body=record)

    def _query(self, one: RemotingCommand) -> RemotingCommand:
        """A broker finds more than is asked for: hashes collide, so clients look at each message."""
        key = one.ext["key"].encode()
        found = [
            record
            for (topic, _), records in self.queues.items()
            if topic == one.ext["topic"]
            for record in records.values()
            if key in record
        ]
        return reply(one, body=b"".join(found)) if found else reply(one, 22, remark="can not find message")

    def _pull(self, one: RemotingCommand) -> RemotingCommand:
        queue = one.ext["topic"], int(one.ext["queueId"])
        least, most = self.bounds(*queue)
        at = int(one.ext["queueOffset"])
        ext = {"suggestWhichBrokerId": "0", "minOffset": str(least), "maxOffset": str(most)}
        if not least <= at <= most:
            return reply(one, 21, ext | {"nextBeginOffset": str(least if at < least else most)})
        if at == most:
            return reply(one, 19, ext | {"nextBeginOffset": str(at)})
        end = min(at + 7, most)
        records = [self.queues[queue][place] for place in range(at, end)]
        if one.ext["subscription"] != "*":
            tags = [b"TAGS\1" + tag.strip().encode() + b"\2" for tag in one.ext["subscription"].split("||")]
            records = [found for found in records if any(tag in found for tag in tags)]
            self.left_out += end - at - len(records)
        code = 0 if records else 20
        return reply(one, code, ext | {"nextBeginOffset": str(end)}, b"".join(records))


@contextmanager
def in_thread(peer: ScriptedPeer) -> Iterator[ScriptedPeer]:
    """Run a peer on a loop of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    def run(work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, loop).result(PATIENCE)

    run(peer.start())
    try:
        yield peer
    finally:
        run(peer.stop())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@contextmanager
def played(store: str | Path, offsets: Mapping[str, dict[str, int]] | None = None) -> Iterator[str]:
    """Play a store and give the address to type."""
    peer = StorePeer(store)
    peer.offsets = dict(offsets or {})
    with in_thread(peer):
        yield f"rocketmq://{peer.address}"


class RecordingPeer(StorePeer):
    """Plays a broker of one topic that stores what is sent to it, in records that ``builders`` lays."""

    def __init__(self, topic: str) -> None:
        super().__init__(None)
        self.topic = topic
        self.plays |= {310: self._send, 320: self._send_batch, 34: reply, 35: reply, 37: reply}

    def counts(self) -> dict[str, int]:
        return {self.topic: 4}

    def _send(self, one: RemotingCommand) -> RemotingCommand:
        return self._stored(one, [(one.body, one.ext["i"].encode())])

    def _send_batch(self, one: RemotingCommand) -> RemotingCommand:
        items = [item for item in iter_batch_items(one.body) if isinstance(item, BatchItem)]
        return self._stored(one, [(item.body, item.raw_properties) for item in items])

    def _stored(self, one: RemotingCommand, messages: list[tuple[bytes, bytes]]) -> RemotingCommand:
        queue = self.topic, int(one.ext["e"])
        ids, first = [], self.bounds(*queue)[1]
        for body, properties in messages:
            place = sum(map(len, self.by_place.values()))
            offset = self.bounds(*queue)[1]
            made = record(
                body,
                self.topic.encode(),
                properties,
                queue_id=queue[1],
                queue_offset=offset,
                physical_offset=place,
                sys_flag=int(one.ext["f"]),
            )
            self.by_place[place] = self.queues[queue][offset] = made
            ids.append(f"C0A8011400002A9F{place:016X}")
        return reply(one, ext={"msgId": ",".join(ids), "queueId": str(queue[1]), "queueOffset": str(first)})
