"""Names of other clients, for Kafka and for RocketMQ: what a program that uses them should say here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_CONNECT: Final = 'rmqtool.connect("rocketmq://127.0.0.1:9876")'
_SENDS: Final = "send(topic, body) waits, send_async(topic, body) returns a future"
_POLLS: Final = "poll(max_messages=10, timeout=5) returns a list of messages"
_START: Final = 'its start is a setting of consumer(...): start="first", "last" or a time'
_JOINS: Final = "name the topics when you make it: consumer(topics, group=...)"
_OPENS: Final = "use it in a with statement; iterating or poll joins the group, too"

# By the kind of object: the name that is asked for, and what to say instead.
_OTHERS: Final[Mapping[str, Mapping[str, str]]] = {
    "rmqtool": {
        "Producer": f"{_CONNECT}.producer()",
        "KafkaProducer": f"{_CONNECT}.producer()",
        "AIOKafkaProducer": "rmqtool.connect_async(...) and its producer()",
        "DefaultMQProducer": f"{_CONNECT}.producer(group=...)",
        "Consumer": f"{_CONNECT}.consumer(topics, group=...)",
        "KafkaConsumer": f"{_CONNECT}.consumer(topics, group=...)",
        "AIOKafkaConsumer": "rmqtool.connect_async(...) and its consumer(topics, group=...)",
        "PushConsumer": f"{_CONNECT}.consumer(topics, group=...) and its run(handler)",
        "AdminClient": f"{_CONNECT}: topics(), topic(action, name), groups(), group(action, name)",
        "Client": _CONNECT,
        "Message": "messages are dictionaries; rmqtool.api.shapes.Message is their type",
    },
    "Cluster": {
        "list_topics": "topics()",
        "create_topic": 'topic("create", name, queues=8)',
        "create_topics": 'topic("create", name, queues=8)',
        "delete_topic": 'topic("delete", name)',
        "delete_topics": 'topic("delete", name)',
        "list_groups": "groups()",
        "list_consumer_groups": "groups()",
        "send": "produce(topic, body), or producer() for many",
        "subscribe": "consume(topics, group=...) or consumer(topics, group=...)",
        "poll": "consumer(topics, group=...) and its poll",
        "read": "scan(topics=...)",
        "cat": "scan(topics=...)",
    },
    "Producer": {
        "produce": _SENDS,
        "send_and_wait": "send(topic, body)",
        "send_sync": "send(topic, body)",
        "send_one_way": "send_oneway(topic, body)",
        "send_message_in_transaction": "send_in_transaction(topic, body, work)",
        "poll": "nothing: it sends without being polled",
        "start": "nothing: it is ready",
        "close": "flush(), or a with statement",
        "stop": "flush(), or a with statement",
        "shutdown": "flush(), or a with statement",
    },
    "Consumer": {
        "subscribe": _JOINS,
        "assign": _JOINS,
        "start": _OPENS,
        "getmany": _POLLS,
        "getone": _POLLS,
        "consume": _POLLS,
        "receive": _POLLS,
        "seek": _START,
        "seek_to_beginning": _START,
        "seek_to_end": _START,
        "ack": "commit(): a message is consumed when the next one is asked for",
        "register_message_listener": "run(handler)",
        "unsubscribe": "close()",
        "shutdown": "close()",
    },
}


def said_of(kind: str, name: str) -> str:
    """Return the end of an error about a name that an object does not have: nothing for one that is not known."""
    here = _OTHERS[kind].get(name)
    return "" if here is None else f"; here: {here}"


def no_attribute(kind: str, name: str) -> AttributeError:
    """Return the error for an attribute that a client's object does not have."""
    return AttributeError(f"a {kind} has no attribute {name!r}{said_of(kind, name)}")
