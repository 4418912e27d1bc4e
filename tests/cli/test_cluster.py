"""Commands on a live cluster: what they show is what the files of its broker show, and what goes wrong is a sentence.

The cluster is a store that is played by ``scripted_cluster``; ``tests/conformance`` has the same with real brokers.
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rmqtool
from rmqtool.cli import main
from rmqtool.remoting.command import RemotingCommand
from tests.support.builders import record
from tests.support.schemas import validate
from tests.support.scripted_cluster import StorePeer, in_thread, played
from tests.support.scripted_peer import ScriptedPeer, reply, routes_to, stored_at
from tests.support.stores import unpack
from tests.support.waiting import PATIENCE

Run = Callable[..., tuple[int, str, str]]
NAME = "53-broker"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(NAME, tmp_path_factory.mktemp("played"))


@pytest.fixture(scope="module")
def messages(root: Path) -> list[dict[str, Any]]:
    return [dict(one) for one in rmqtool.scan(str(root))]


@pytest.fixture
def address(root: Path, messages: list[dict[str, Any]]) -> Iterator[str]:
    topic = messages[0]["topic"]
    with played(root, {f"{topic}@G": {"0": 1}}) as found:
        yield found


@pytest.fixture
def run(capsysbinary: pytest.CaptureFixture[bytes]) -> Run:
    def act(*words: object) -> tuple[int, str, str]:
        status = main([str(word) for word in words])
        out, err = capsysbinary.readouterr()
        return status, out.decode(), err.decode()

    return act


def test_progress_is_shown(address: str, run: Run) -> None:
    expected = run("cat", address, "--jsonl")
    status, out, err = run("cat", address, "--jsonl", "--progress", "always")
    assert (status, out) == expected[:2]
    assert re.search(r"reading .* 0/[1-9]\d\d\S* messages", err)
    assert "reading" not in expected[2]
    # Messages that are not wanted were pulled too, and no row clears the bar.
    status, out, err = run("cat", address, "--jsonl", "--progress", "always", "--key", "no such key")
    assert (status, out) == (0, "")
    assert re.search(r"reading .*m([1-9]\d\d)/\1\S* messages", err, re.DOTALL)


def test_cat_prints_what_the_files_print_line_for_line(root: Path, address: str, run: Run) -> None:
    expected = run("cat", root, "--jsonl")
    assert expected[1].count("\n") > 100
    assert run("cat", address, "--jsonl") == expected


@pytest.mark.parametrize(
    "options",
    [
        ("--order", "queue"),
        ("--order", "time"),
        ("-n", "5"),
        ("-o", "3"),
        ("-o", "-7"),
        ("-o", "-2", "--order", "queue"),
        ("-t", "%RETRY%*"),
        ("-q", "1"),
        ("--count",),
        ("--body-re", "a"),
    ],
)
def test_options_select_as_they_do_in_files(root: Path, address: str, run: Run, options: tuple[str, ...]) -> None:
    kind = () if "--count" in options else ("--jsonl",)
    expected = run("cat", root, *options, *kind)
    found = run("cat", address, *options, *kind)
    assert found[:2] == expected[:2]


def test_times_select_as_they_do_in_files(root: Path, address: str, run: Run, messages: list[dict[str, Any]]) -> None:
    begin, end = messages[20]["storeTimestamp"], messages[-20]["storeTimestamp"]
    expected = run("cat", root, "-b", begin, "-e", end, "--jsonl")
    assert 0 < expected[1].count("\n") < len(messages)
    assert run("cat", address, "-b", begin, "-e", end, "--jsonl")[:2] == expected[:2]


def test_unread_messages_begin_at_the_offsets_of_the_group(
    address: str, run: Run, messages: list[dict[str, Any]]
) -> None:
    topic = messages[0]["topic"]
    status, out, _ = run("cat", address, "-g", "G", "--unread", "--jsonl")
    found = [json.loads(line) for line in out.splitlines()]
    expected = [
        one for one in messages if one["topic"] == topic and not (one["queueId"] == 0 and one["queueOffset"] < 1)
    ]
    assert (status, found) == (0, expected)
    status, _, err = run("cat", address, "-g", "Nobody", "--unread")
    assert status == 1
    assert "no committed offset in this cluster" in err


def test_the_topic_that_a_4_9_broker_does_not_list_is_named(root: Path, run: Run) -> None:
    """Found with a real 4.9.7 broker: it has queues of that topic, and no settings."""
    hidden = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
    peer = StorePeer(root)
    whole = peer.plays[21]

    def without(one: RemotingCommand) -> RemotingCommand:
        answer = whole(one)
        assert answer is not None
        table = json.loads(answer.body)["topicConfigTable"]
        assert table.pop(hidden)
        return reply(one, body=json.dumps({"topicConfigTable": table}).encode())

    peer.plays[21] = without
    expected = [line for line in run("cat", root, "--jsonl")[1].splitlines() if f'"topic": "{hidden}"' not in line]
    with in_thread(peer):
        status, out, err = run("cat", f"rocketmq://{peer.address}", "--jsonl")
        assert (status, out.splitlines()) == (0, expected)
        assert f"broker broker-a does not list {hidden}: its messages are left out" in err
        assert run("cat", f"rocketmq://{peer.address}", "-t", "T_fifo", "--jsonl")[2] == ""


def test_a_topic_is_shown_as_its_files_show_it(root: Path, address: str, run: Run) -> None:
    status, out, _ = run("topic", address, "show", "T_popfifo", "--json")
    shown, expected = json.loads(out), json.loads(run("topic", root, "show", "T_popfifo", "--json")[1])
    assert (status, shown["brokers"]) == (0, ["broker-a"])
    assert shown["queues"]["0"] == expected["queues"]["0"]
    assert run("topic", address, "show", "Nope")[0] == 1


def test_a_topic_that_does_not_exist_is_said(address: str, run: Run) -> None:
    status, out, err = run("cat", address, "-t", "Nope")
    assert (status, out) == (1, "")
    assert "no topic of the cluster matches Nope" in err


def test_info_has_the_queues_of_the_files(root: Path, address: str, run: Run, messages: list[dict[str, Any]]) -> None:
    status, out, _ = run("info", address, "--json")
    shown = json.loads(out)
    assert status == 0
    assert shown["cluster"] == address
    validate("cluster-info", shown)
    assert shown["brokers"]["broker-a"]["version"] == "5.3.3"
    of_files = json.loads(run("info", root, "--json")[1])["topics"]
    for topic, found in shown["topics"].items():
        for queue_id, bounds in found["queues"].items():
            expected = of_files[topic]["queues"].get(queue_id, {"minOffset": 0, "maxOffset": 0})
            assert bounds == {name: expected[name] for name in bounds}, (topic, queue_id)
    topic = messages[0]["topic"]
    place = shown["groups"]["G"][topic]["0"]
    most = shown["topics"][topic]["queues"]["0"]["maxOffset"]
    first = next(one for one in messages if (one["topic"], one["queueId"], one["queueOffset"]) == (topic, 0, 1))
    assert place == {"committed": 1, "lag": most - 1, "oldestUnreadTimestamp": first["storeTimestamp"]}
    screen = run("info", address)[1]
    assert "broker-a" in screen
    assert f"1 group lags: G, by {most - 1} messages" in screen


def test_lists_of_info(address: str, run: Run, messages: list[dict[str, Any]]) -> None:
    topic = messages[0]["topic"]
    status, out, _ = run("info", address, "queues", "-t", topic, "-q", "0", "--jsonl")
    assert status == 0
    assert json.loads(out)["broker"] == "broker-a"
    status, out, _ = run("info", address, "groups", "--jsonl")
    assert {json.loads(line)["group"] for line in out.splitlines()} == {"G"}
    assert topic in run("info", address, "topics")[1]
    status, _, err = run("info", address, "files")
    assert status == 2
    assert "needs the files of a store" in err


def test_query_finds_a_message_by_each_of_its_names(
    root: Path, address: str, run: Run, messages: list[dict[str, Any]]
) -> None:
    message = next(one for one in messages if one["keys"] and one["uniqKey"] and not one["sysFlag"] & 0xC)
    place = f"{message['topic']}/{message['queueId']}@{message['queueOffset']}"
    for what in (message["offsetMsgId"], message["uniqKey"], message["keys"].split()[0], place):
        status, out, _ = run("query", address, what, "--json")
        found = json.loads(out)
        assert status == 0, what
        assert message["commitLogOffset"] in [one["commitLogOffset"] for one in found["messages"]], what
        assert found["messages"][0]["body"] is not None
    status, out, _ = run("query", address, f"@{message['commitLogOffset']}", "--json")
    assert json.loads(out)["messages"] == [message]
    assert run("query", address, message["offsetMsgId"])[1].count("\n") > 3


def test_query_for_a_time_gives_the_offset_of_a_queue(
    root: Path, address: str, run: Run, messages: list[dict[str, Any]]
) -> None:
    one = messages[40]
    words = ("-t", one["topic"], "-q", one["queueId"], "--kind", "time", one["storeTimestamp"], "--json")
    expected = json.loads(run("query", root, *words)[1])["queueOffset"]
    assert json.loads(run("query", address, *words)[1])["queueOffset"] == expected


def test_nothing_found_is_no(address: str, run: Run) -> None:
    status, out, _ = run("query", address, "no-such-key")
    assert status == 1
    assert "nothing found" in out


def test_topics_are_listed(address: str, run: Run, messages: list[dict[str, Any]]) -> None:
    status, out, _ = run("topic", address, "list", "--jsonl")
    assert status == 0
    assert {json.loads(line)["topic"] for line in out.splitlines()} == {one["topic"] for one in messages}


def test_a_topic_is_created_at_the_broker_and_deleted_everywhere(root: Path, run: Run) -> None:
    peer = StorePeer(root)
    peer.plays |= dict.fromkeys((17, 215, 216), reply)
    with in_thread(peer):
        address = f"rocketmq://{peer.address}"
        topic = next(iter(peer.counts()))
        status, _, _ = run("topic", address, "create", "New", "--queues", "3", "--perm", "r")
        (made,) = peer.asked(17)
        assert status == 0
        names = ("topic", "readQueueNums", "writeQueueNums", "perm", "topicFilterType")
        assert [made.ext[name] for name in names] == ["New", "3", "3", "4", "SINGLE_TAG"]
        assert run("topic", address, "create", topic)[0] == 5
        assert run("topic", address, "delete", topic)[0] == 5, "needs --yes"
        assert run("topic", address, "delete", topic, "--yes")[0] == 0
        assert [one.ext["topic"] for one in (*peer.asked(215), *peer.asked(216))] == [topic, topic]
        assert run("topic", address, "alter", "Nope", "--queues", "2")[0] == 1


@pytest.fixture
def broker() -> Iterator[ScriptedPeer]:
    peer = ScriptedPeer({310: stored_at(7, 0x1234), 320: stored_at()})
    with in_thread(peer):
        peer.plays[105] = routes_to({"broker-a": {0: peer.address}}, ["T"])
        yield peer


def test_produce_prints_where_each_message_is(broker: ScriptedPeer, run: Run, tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_text("".join(json.dumps({"topic": "T", "body": f"b{number}"}) + "\n" for number in range(200)))
    status, out, err = run("produce", f"rocketmq://{broker.address}", "--jsonl", "--file", path)
    lines = [json.loads(line) for line in out.splitlines()]
    assert (status, err, len(lines)) == (0, "", 200)
    assert {one["status"] for one in lines} == {"PUT_OK"}
    assert len({one["msgId"] for one in lines}) == 200
    assert (lines[0]["queueOffset"], lines[0]["commitLogOffset"], lines[0]["storeTimestamp"]) == (7, 0x1234, None)
    assert sorted(one.body for one in broker.asked(310)) == sorted(b"b%d" % number for number in range(200))


def test_produce_says_of_each_message_what_is_known(broker: ScriptedPeer, run: Run) -> None:
    """The first is stored, the broker refuses the second, and of the third no answer comes."""

    def play(request: RemotingCommand) -> RemotingCommand | None:
        if request.body == b"bad":
            return reply(request, 13, remark="the message is illegal")
        return None if request.body == b"lost" else stored_at()(request)

    broker.plays[310] = play
    status, out, err = run("produce", f"rocketmq://{broker.address}", "-t", "T", "--csv", "good", "bad", "lost")
    assert status == 9
    assert [line.split(",")[0] for line in out.splitlines()[1:]] == ["PUT_OK", "MESSAGE_ILLEGAL", "UNKNOWN"]
    assert "the message is illegal" in err
    assert "1 message is stored" in err


def test_produce_creates_no_topic_unless_told(broker: ScriptedPeer, run: Run) -> None:
    address = f"rocketmq://{broker.address}"
    status, _, err = run("produce", address, "-t", "New", "x")
    assert status == 1
    assert "--create" in err
    broker.plays[105] = routes_to({"broker-a": {0: broker.address}}, ["TBW102"], perm=7)
    assert run("produce", address, "-t", "New", "x", "--create")[0] == 0
    assert broker.asked(310)[0].ext["b"] == "New"


def test_keys_come_from_a_file_or_the_environment(
    address: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    status, _, err = run("info", address, "--credentials", tmp_path / "none")
    assert status == 3
    assert "cannot read the credentials" in err
    monkeypatch.setenv("RMQTOOL_ACCESS_KEY", "me")
    status, _, err = run("info", address)
    assert status == 2
    assert "RMQTOOL_SECRET_KEY" in err


def test_wrong_keys_show_the_remark_of_the_broker(run: Run) -> None:
    remark = "org.apache.rocketmq.acl.common.AclException: Check signature failed for accessKey=me"
    peer = ScriptedPeer({106: lambda one: reply(one, 1, remark=remark)})
    with in_thread(peer):
        status, _, err = run("info", f"rocketmq://{peer.address}")
    assert status == 9
    assert "Check signature failed" in err
    assert "--credentials FILE" in err


def test_nobody_there_is_nine_and_says_who(run: Run) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"rocketmq://127.0.0.1:{taken.getsockname()[1]}"
        for words in (("info", address), ("cat", address), ("topic", address, "list"), ("query", address, "k")):
            status, out, err = run(*words)
            assert (status, out) == (9, ""), words
            assert "the name server does not answer" in err


@pytest.mark.parametrize("command", ["check", "recover", "repair", "stat", "tick"])
def test_what_needs_files_says_so(command: str, run: Run) -> None:
    status, _, err = run(command, "rocketmq://127.0.0.1:1")
    assert status == 2
    assert "is a live cluster, and this needs the files of a store" in err


def test_options_of_files_and_of_clusters_are_not_mixed(root: Path, run: Run) -> None:
    for words, said in (
        (("cat", root, "--tls"), "--tls has no effect on a store in files"),
        (("cat", root, "--credentials", "x"), "--credentials has no effect"),
        (("cat", "rocketmq://127.0.0.1:1", "--as", "4.9"), "--as has no effect on a live cluster"),
        (("cat", "rocketmq://127.0.0.1:1", "--sample", "3"), "--sample needs the files"),
        (("produce", root, "--retry-unknown", "-t", "T", "x"), "--retry-unknown is for a live cluster"),
        (("produce", "rocketmq://127.0.0.1:1", "--flush", "sync", "-t", "T", "x"), "decided by the brokers"),
        (("cat", "rocketmq://me:secret@127.0.0.1"), "no user or password"),
    ):
        status, out, err = run(*words)
        assert (status, out) == (2, ""), words
        assert said in err


def test_a_client_has_the_verbs_of_a_store(address: str, messages: list[dict[str, Any]]) -> None:
    with rmqtool.connect(address) as cluster:
        assert list(cluster.scan()) == messages
        assert cluster.batches(columns=["queue_offset"]).read_all().num_rows == len(messages)
        assert {one["topic"] for one in cluster.topics()} == {one["topic"] for one in messages}
        assert cluster.info()["brokers"].keys() == {"broker-a"}
        assert cluster.groups()["G"]["retryMaxTimes"] == 16
        assert cluster.query(messages[0]["offsetMsgId"])["messages"] == [messages[0]]
    with pytest.raises(rmqtool.RmqtoolError, match="this client is closed"):
        cluster.topics()


def test_an_iterator_that_is_left_behind_outlives_its_client(address: str, messages: list[dict[str, Any]]) -> None:
    with rmqtool.connect(address) as cluster:
        found = cluster.scan()
        assert next(found) == messages[0]
    found.close()  # type: ignore[attr-defined]


def test_a_producer_of_the_library(broker: ScriptedPeer) -> None:
    broker.plays[106] = lambda one: reply(one, body=b'{"brokerAddrTable":{},"clusterAddrTable":{}}')
    with rmqtool.connect(f"rocketmq://{broker.address}") as cluster:
        with cluster.producer(group="G") as producer:
            assert producer.send("T", "text", keys=["a", "b"], tags="t", properties={"p": "1"}).status == "PUT_OK"
            futures = [producer.send_async("T", b"%d" % number) for number in range(20)]
            assert len({one.result(PATIENCE).msg_id for one in futures}) == 20
            assert len(producer.send_batch("T", ["a", "b", "c"])) == 3
            producer.send("T", b"x", delay=2.5, sharding_key="s", queue=1)
        assert cluster.produce("T", b"x").broker == "broker-a"
    first, *_, last = (one for one in broker.asked(310))
    assert "KEYS\x01a b" in first.ext["i"]
    delayed = broker.asked(310)[-2]
    assert "TIMER_DELAY_MS\x012500" in delayed.ext["i"]
    assert last.body == b"x"


def test_mistakes_of_a_newcomer_are_sentences(broker: ScriptedPeer) -> None:
    broker.plays[106] = lambda one: reply(one, body=b'{"brokerAddrTable":{},"clusterAddrTable":{}}')
    with rmqtool.connect(f"rocketmq://{broker.address}") as cluster:
        with pytest.raises(rmqtool.RmqtoolError, match="a body is bytes or a text, not dict"):
            cluster.produce("T", {"a": 1})  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="unexpected keyword argument 'tag'"):
            cluster.produce("T", b"x", tag="a")
        with pytest.raises(TypeError, match="did you mean 'group'"):
            cluster.producer(groups="G")
        with pytest.raises(rmqtool.RmqtoolError, match="needs a body"):
            cluster.produce("T", b"")
        with pytest.raises(rmqtool.RmqtoolError, match="there is no topic Nope"):
            cluster.produce("Nope", b"x")


def test_the_first_pull_of_a_queue_asks_for_few_messages(run: Run) -> None:
    """Someone who wants one message should not wait for a thousand of each queue."""
    peer, place = StorePeer(None), 0
    for number in range(100):
        made = record(b"x", b"T", b"", queue_id=0, queue_offset=number, physical_offset=place, sys_flag=0)
        peer.queues["T", 0][number] = peer.by_place[place] = made
        place += len(made)
    with in_thread(peer):
        assert run("cat", f"rocketmq://{peer.address}", "-t", "T", "--count")[:2] == (0, "100\n")
    asked = [int(one.ext["maxMsgNums"]) for one in peer.requests if one.code == 11]
    # The peer gives seven at most.
    assert asked[:2] == [32, 93]
