"""Slaves of a served store: the bytes that they get, and what producers of a SYNC_MASTER are told."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from contextlib import ExitStack, contextmanager

import pytest

import rmqtool
from tests.support.scripted_master import log_files
from tests.support.waiting import PATIENCE, wait_for, wait_for_end
from tests.support.wire_client import WireClient, send_fields

CONF = {"mappedFileSizeCommitLog": str(1 << 16), "mappedFileSizeConsumeQueue": "6000", "maxIndexNum": "400"}


@contextmanager
def served(root, version="5.3", **conf):
    rmqtool.init(root, version=version, conf={**CONF, "maxHashSlotNum": "100", **conf})
    with (
        rmqtool.serve(str(root), slaves="127.0.0.1:0") as broker,
        rmqtool.connect(f"rocketmq://{broker.names}") as client,
    ):
        client.topic("create", "T", queues=1)
        yield broker, client


def ha_port(client, broker):
    answer = client.run(_ask(client, broker, 26))
    line = next(line for line in answer.body.decode().splitlines() if line.startswith("haListenPort="))
    return int(line.partition("=")[2])


async def _ask(client, broker, code, fields=None, names=False):
    connections = await client.connected()
    connection = await connections.connection(broker.names if names else broker.broker)
    return await connection.call(code, fields)


@pytest.fixture
def patient(monkeypatch):
    """Let a master wait for its slaves as long as it takes."""
    monkeypatch.setattr("rmqtool.server.slaves._TIMEOUT", 1000 * PATIENCE)
    monkeypatch.setattr("rmqtool.server.slaves._SILENCE", PATIENCE)


class RawSlave:
    """A slave of a few lines: it asks for the log from an offset on, and reports what it is told to."""

    def __init__(self, port, start):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.report(start)

    def report(self, offset):
        self.socket.sendall(struct.pack(">q", offset))

    def chunk(self):
        """Return the next bytes of the log: none are a heartbeat, which comes at first, and now and then."""
        offset, size = struct.unpack(">qi", self._read(12))
        return offset, self._read(size)

    def chunk_of_log(self):
        """Return the next bytes of the log that are no heartbeat."""
        while not (found := self.chunk())[1]:
            continue
        return found

    def _read(self, size):
        found = b""
        while len(found) < size:
            data = self.socket.recv(size - len(found))
            assert data
            found += data
        return found

    def close(self):
        self.socket.close()


def test_a_mirror_of_a_served_store_has_its_files(tmp_path):
    with served(tmp_path / "s") as (broker, client):
        with client.producer() as producer:
            for number in range(150):
                producer.send("T", b"x" * 900, keys=f"k{number}")
        line = rmqtool.mirror(broker.broker, tmp_path / "m", once=True)
        assert line["lagBytes"] == 0
    mine, theirs = log_files(tmp_path / "m"), log_files(tmp_path / "s")
    assert len(mine) > 2
    assert mine == {name: theirs[name] for name in mine}
    topics = json.loads((tmp_path / "m" / "config" / "topics.json").read_text())
    assert topics["topicConfigTable"]["T"]["writeQueueNums"] == 1


def test_a_slave_that_has_nothing_gets_the_last_segment(tmp_path):
    with served(tmp_path / "s") as (broker, client):
        with client.producer() as producer:
            for _ in range(100):
                producer.send("T", b"x" * 900)
        slave = RawSlave(ha_port(client, broker), 0)
        offset, data = slave.chunk_of_log()
        assert offset == max(int(name) for name in log_files(tmp_path / "s") if int(name) < 2 << 16)
        assert log_files(tmp_path / "s")[f"{offset:020d}"].startswith(data)
        slave.close()


def test_a_slave_that_has_more_than_the_master_is_let_go(tmp_path):
    with served(tmp_path / "s") as (broker, client):
        slave = RawSlave(ha_port(client, broker), 10**6)
        assert slave.socket.recv(1) == b""
        slave.close()


def test_a_slave_that_registers_learns_where_the_log_is(tmp_path):
    with served(tmp_path / "s") as (broker, client):
        name = {"brokerName": broker.broker_name, "clusterName": broker.cluster_name}
        fields = {**name, "brokerAddr": "127.0.0.1:20911", "brokerId": "1", "haServerAddr": "127.0.0.1:20912"}
        answer = client.run(_ask(client, broker, 103, fields, names=True))
        assert answer.code == 0
        assert answer.ext == {
            "haServerAddr": f"127.0.0.1:{ha_port(client, broker)}",
            "masterAddr": broker.broker,
        }
        addresses = client.info()["brokers"][broker.broker_name]["addresses"]
        assert addresses == {"0": broker.broker, "1": "127.0.0.1:20911"}
        other = client.run(_ask(client, broker, 103, {**fields, "brokerName": "other"}, names=True))
        assert other.code == 1


def test_a_sync_master_of_4_9_answers_when_the_slave_has_the_message(tmp_path, patient):
    with served(tmp_path / "s", "4.9", brokerRole="SYNC_MASTER") as (broker, client), client.producer() as producer:
        assert producer.send("T", b"alone").status == "SLAVE_NOT_AVAILABLE"
        slave = RawSlave(ha_port(client, broker), 1)
        offset, data = slave.chunk_of_log()
        end = offset + len(data)
        slave.report(end)
        future = producer.send_async("T", b"together")
        offset, data = slave.chunk_of_log()
        assert (offset, b"together" in data) == (end, True)
        # One byte less than the message is no acknowledgement of it.
        slave.report(offset + len(data) - 1)
        time.sleep(0.05)
        assert not future.done()
        slave.report(offset + len(data))
        assert future.result(PATIENCE).status == "PUT_OK"
        slave.close()


def test_a_message_that_waits_for_a_slave_is_answered_when_the_server_ends(tmp_path, patient):
    with ExitStack() as stack:
        broker, client = stack.enter_context(served(tmp_path / "s", "4.9", brokerRole="SYNC_MASTER"))
        slave = RawSlave(ha_port(client, broker), 1)
        offset, data = slave.chunk()
        slave.report(offset + len(data))
        with WireClient(broker.broker) as producer:
            waiting = producer.send(310, send_fields("T"), b"last")
            offset, data = slave.chunk_of_log()
            ending = threading.Thread(target=stack.close)
            ending.start()
            time.sleep(0.1)
            slave.report(offset + len(data))
            assert producer.answer_to(waiting).code == 0
        wait_for_end(ending)
        slave.close()


def test_a_slave_that_does_not_acknowledge_is_a_timeout(tmp_path, monkeypatch):
    monkeypatch.setattr("rmqtool.server.slaves._TIMEOUT", 50)
    conf = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2"}
    with served(tmp_path / "s", **conf) as (broker, client), client.producer(timeout=PATIENCE) as producer:
        slave = RawSlave(ha_port(client, broker), 1)
        assert producer.send("T", b"never").status == "FLUSH_SLAVE_TIMEOUT"
        slave.close()


def test_a_mirror_is_a_replica_of_a_sync_master(tmp_path, patient):
    """What a producer is told is stored twice is durable in the mirror."""
    with served(tmp_path / "s", "4.9", brokerRole="SYNC_MASTER") as (broker, client), client.producer() as producer:
        stop = threading.Event()
        mirror = threading.Thread(target=lambda: rmqtool.mirror(broker.broker, tmp_path / "m", stop=stop))
        mirror.start()
        wait_for(lambda: producer.send("T", b"come").status == "PUT_OK")
        sent = [producer.send("T", b"%d" % number) for number in range(20)]
        assert {one.status for one in sent} == {"PUT_OK"}
        last = int(sent[-1].offset_msg_id[16:], 16)
        stop.set()
        wait_for_end(mirror)
    found = [one["commitLogOffset"] for one in rmqtool.scan(str(tmp_path / "m"), topics="T")]
    assert found[-1] == last


def test_so_many_slaves_register_and_no_more(tmp_path):
    with served(tmp_path / "store") as (broker, client):
        fields = {"brokerName": client.run(_name(client)), "clusterName": "C", "haServerAddr": "", "bodyCrc32": "0"}

        def register(number):
            told = {**fields, "brokerId": str(number), "brokerAddr": f"127.0.0.1:{20_000 + number}"}
            return client.run(_ask(client, broker, 103, told, names=True)).code

        assert [register(number) for number in range(1, 20)] == [0] * 16 + [1] * 3
        # One that is known may register again.
        assert (register(16), register(17)) == (0, 1)
        assert len(next(iter(client.info()["brokers"].values()))["addresses"]) == 17


async def _name(client):
    return next(iter(await (await client.connected()).masters()))
