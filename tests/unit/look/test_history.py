"""What happened to a message: the stories that the stores of living brokers are known to hold."""

from __future__ import annotations

import shutil

import pytest

from rmqtool.config import Version
from rmqtool.filters.wanted import Wanted
from rmqtool.look.history import read_stories
from rmqtool.look.lookup import Lookup
from rmqtool.look.question import QuestionKind, ask
from rmqtool.store.open import open_store
from tests.support.stores import truth


def tell(root, name, uniq_key):
    version = Version(truth(name)["read_by"][:3])
    with open_store(str(root), version=version) as opened:
        answer = Lookup(opened, Wanted()).find(ask(uniq_key, QuestionKind.UNIQ_KEY, int))
        (story,) = read_stories(opened, answer.iter_messages(opened))
    return story


def names(story):
    return [event.event for event in story.events]


def fates(name):
    """Return the unique keys of a store by what is known to have become of them."""
    return truth(name)["extra"]["uniqKeys"]


BROKERS = ["53-broker", "54-broker"]


@pytest.mark.parametrize("name", BROKERS)
def test_delay_levels_and_timers(name, store):
    for key in fates(name)["delayDelivered"]:
        story = tell(store(name), name, key)
        assert names(story) == ["delayed", "delivered"]
        due, delivered = story.events[0].about["dueTimestamp"], story.events[1].message.store_timestamp
        assert 0 <= delivered - due < 1000
    for key in fates(name)["delayPending"]:
        story = tell(store(name), name, key)
        assert (names(story), story.state) == (["delayed"], "waiting for delivery")
    for key in fates(name)["timerDelivered"]:
        assert names(tell(store(name), name, key)) == ["timer", "delivered"]
    for key in fates(name)["timerPending"]:
        story = tell(store(name), name, key)
        assert (names(story), story.state) == (["timer"], "waiting for delivery")


def test_a_delivered_message_that_is_damaged_does_not_wait(writable_store):
    """Level 1 was delivered up to its third message; the record of the first one in its own topic is at 58704."""
    root = writable_store("53-broker")
    with (root / "commitlog" / f"{0:020}").open("r+b") as file:
        file.seek(58704 + 100)
        byte = file.read(1)
        file.seek(58704 + 100)
        file.write(bytes([byte[0] ^ 0xFF]))
    story = tell(root, "53-broker", "FD0000000000000000000000000000027C1A4E0E2F2A5A310D890000")
    assert (names(story), story.state, story.whole) == (["delayed", "delivered"], "stored", True)
    assert [event["commitLogOffset"] for event in story.events_json() if event.get("damaged")] == [58704]


@pytest.mark.parametrize("name", BROKERS)
def test_retries_and_dead_letters(name, store):
    for key in fates(name)["notRetried"]:
        assert names(tell(store(name), name, key)) == ["stored"]
    for key in fates(name)["retriedOnce"]:
        assert names(tell(store(name), name, key)) == ["stored", "delayed", "retry"]
    for key in fates(name)["retryThenDlq"]:
        story = tell(store(name), name, key)
        assert names(story) == ["stored", "delayed", "retry", "delayed", "retry", "dlq"]
        assert story.state == "dead letter"
        assert [event.about["times"] for event in story.events if event.event == "retry"] == [1, 2]
    for key in fates(name)["orderlyPoison"]:
        assert names(tell(store(name), name, key)) == ["stored", "dlq"]


@pytest.mark.parametrize("name", BROKERS)
def test_transactions(name, store):
    expected = {
        "transCommit": (["half", "committed", "commit"], "stored"),
        "transRollback": (["half", "rollback"], "rolled back"),
        "transCheckedCommit": (["half", "checked", "committed", "commit"], "stored"),
        "transCheckedRollback": (["half", "checked", "rollback"], "rolled back"),
        "transNeverDecided": (["half", "checked", "checked", "checked", "given up"], "given up: never decided"),
    }
    for fate, (events, state) in expected.items():
        for key in fates(name)[fate]:
            story = tell(store(name), name, key)
            assert (names(story), story.state) == (events, state), fate
            committed = [event.message for event in story.events if event.event == "committed"]
            halves = [event.message for event in story.events if event.event in ("half", "checked")]
            assert [message.prepared_transaction_offset for message in committed] == [
                halves[-1].physical_offset for _ in committed
            ]


@pytest.mark.parametrize("name", BROKERS)
def test_pops(name, store):
    def by_group(story, group):
        return [event.event for event in story.events if event.about.get("group") == group]

    for key in fates(name)["popAcked"]:
        assert by_group(tell(store(name), name, key), "G_pop") == ["popped", "acked"]
    for key in fates(name)["popInvisibleChanged"]:
        assert by_group(tell(store(name), name, key), "G_pop") == ["popped", "renewed"]
    for key in fates(name)["popNotAcked"]:
        story = tell(store(name), name, key)
        assert by_group(story, "G_pop")[0] == "popped"
        assert "revived" in names(story)


@pytest.mark.parametrize("name", BROKERS)
def test_pops_in_order(name, store):
    """The broker's own file has what is in flight: the first of three is acked, the group has not gone on."""
    told = truth(name)["configFiles"]["consumerOrderInfo.json"]["table"]["T_popfifo@G_popfifo"]["0"]
    popped, later = fates(name)["popFifo"], [m for m in truth(name)["messages"] if m["topic"] == "T_popfifo"][3:]
    assert (len(popped), len(later)) == (3, 6)
    stories = [tell(store(name), name, key) for key in popped]
    assert [names(story) for story in stories] == [["stored", "popped", "acked"]] + 2 * [["stored", "popped"]]
    assert [story.state for story in stories] == ["acked"] + 2 * ["popped, not acked"]
    for story in stories:
        assert story.events_json()[1] == {
            **story.events[0].as_json(),
            "event": "popped",
            "timestamp": told["popTime"],
            "group": "G_popfifo",
            "popTimestamp": told["popTime"],
            "dueTimestamp": told["popTime"] + told["i"],
            "times": None,
        }
    assert stories[0].events_json()[2]["timestamp"] is None
    for message in later:
        assert names(tell(store(name), name, message["uniqKey"])) == ["stored"]


def test_pops_in_order_again_and_with_more_time(writable_store):
    """By hand from the layout: ``oc`` counts how often before, ``ot`` is when a message comes back instead."""
    root = writable_store("53-broker")
    order = '{"a":"x","cm":4,"i":60000,"l":5,"o":[\n0,1,2],"oc":{1:2},"ot":{1:90000},"popTime":4000}'
    text = f'{{"table":{{"T_popfifo@G_popfifo":{{0:{order}}},"T_popfifo@torn":{{0:{{}}}},"T_popfifo@empty":{{}}}}}}'
    (root / "config/consumerOrderInfo.json").write_text(text)
    first, second, third = (tell(root, "53-broker", key) for key in fates("53-broker")["popFifo"])
    assert [names(story) for story in (first, second, third)] == [
        ["stored", "popped"],
        ["stored", "popped", "renewed"],
        ["stored", "popped", "acked"],
    ]
    assert second.events[1].about["times"] == 2
    assert second.events[2].as_json()["dueTimestamp"] == 90000


@pytest.mark.parametrize(
    "order",
    ['{"o":[0]}', '{"popTime":1}', '{"o":null,"popTime":1}', '{"o":[0],"popTime":null}',
     '{"consumedCount":1,"commitOffsetBit":0,"lastConsumeTimestamp":7,"offsetList":[0]}'],
)  # fmt: skip
def test_an_order_without_a_pop_tells_nothing(order, writable_store):
    root = writable_store("53-broker")
    (root / "config/consumerOrderInfo.json").write_text(f'{{"table":{{"T_popfifo@G_popfifo":{{0:{order}}}}}}}')
    assert names(tell(root, "53-broker", fates("53-broker")["popFifo"][0])) == ["stored"]


def test_timers_that_roll_and_that_are_cancelled(store):
    root, known = store("53-timer"), fates("53-timer")
    first, second, third = known["deletePairs"]
    for victim, _, _ in (first, second):
        story = tell(root, "53-timer", victim)
        assert (names(story), story.state) == (["timer", "cancel"], "cancelled")
        assert story.events[1].about == {"heeded": True}
    story = tell(root, "53-timer", third[0])  # the bare key, which 5.3 ignores
    assert names(story) == ["timer", "cancel", "delivered"]
    assert story.events[1].about == {"heeded": False}
    for key in known["deliveredSoon"]:
        assert names(tell(root, "53-timer", key))[-1] == "delivered"
    rolled = 0
    for key in known["pending"]:
        story = tell(root, "53-timer", key)
        assert story.state == "waiting for delivery"
        rolled += names(story).count("rolled")
    assert rolled == sum(
        "TIMER_ROLL_TIMES" in m["properties"]
        and m["topic"] == "rmq_sys_wheel_timer"
        and m["uniqKey"] in known["pending"]
        for m in truth("53-timer")["messages"]
    )


def test_the_stories_of_4_9(store):
    root, known = store("49-broker"), truth("49-broker")["history"]
    messages = truth("49-broker")["messages"]
    for delayed in known["delayed"].values():
        delivered = any(
            message["uniqKey"] == delayed["uniqKey"] and message["topic"] != "SCHEDULE_TOPIC_XXXX"
            for message in messages
        )
        story = tell(root, "49-broker", delayed["uniqKey"])
        assert names(story) == (["delayed", "delivered"] if delivered else ["delayed"])
    retried = known["retry"]["uniqKeys"]
    for key, events in {
        "fine-0": ["stored"],
        "once-0": ["stored", "delayed", "retry"],
        "fast-0": ["stored", "delayed", "retry"],
        "dead-0": ["stored", "delayed", "retry", "dlq"],
    }.items():
        assert names(tell(root, "49-broker", retried[key])) == events, key
    transactions = known["transactions"]["keys"]
    for key, state in {
        "tx-commit-0": "stored",
        "tx-rollback-0": "rolled back",
        "tx-unk-commit": "stored",
        "tx-unk-rollback": "rolled back",
        "tx-unk-2nd": "stored",
        "tx-unk-forever": "given up: never decided",
    }.items():
        story = tell(root, "49-broker", transactions[key]["uniqKey"])
        assert story.state == state, key
        checks = names(story).count("checked")
        assert checks == {"tx-unk-commit": 1, "tx-unk-rollback": 1, "tx-unk-2nd": 2, "tx-unk-forever": 3}.get(key, 0)


def test_where_groups_stand(store):
    message = next(
        m
        for m in truth("49-broker")["messages"]
        if m["topic"] == "Bulk" and m["queueId"] == 3 and m["queueOffset"] == 1
    )
    story = tell(store("49-broker"), "49-broker", message["uniqKey"])
    stand = {position.group: (position.committed, position.passed) for position in story.positions}
    assert stand["g_lag"] == (1, False)
    told = truth("49-broker")["configFiles"]["consumerOffset.json"]["offsetTable"]
    groups = {key.split("@")[1]: queues["3"] for key, queues in told.items() if key.split("@")[0] == "Bulk"}
    assert {group: committed for group, (committed, _) in stand.items()} == groups


def test_without_queues_the_log_tells_the_story(writable_store):
    root = writable_store("53-broker")
    shutil.rmtree(root / "consumequeue")
    shutil.rmtree(root / "index")
    key = fates("53-broker")["transCheckedRollback"][0]
    assert names(tell(root, "53-broker", key)) == ["half", "checked", "rollback"]
