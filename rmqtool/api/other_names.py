"""Names of other clients, for Kafka and for RocketMQ: what a program that uses them should say here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, wraps
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from rmqtool.api.wanted import meant

if TYPE_CHECKING:
    from rmqtool.api.shapes import Message
    from rmqtool.client.face import LoopFuture
    from rmqtool.client.producer import SendResult
    from rmqtool.formats.commit_log import Message as Record

Kind = TypeVar("Kind")
Function = TypeVar("Function", bound=Callable[..., Any])

_CONNECT: Final = 'rmqtool.connect("rocketmq://127.0.0.1:9876")'
_SENDS: Final = "send(topic, body) waits, send_async(topic, body) returns a future"
_POLLS: Final = "poll(max_messages=10, timeout=5) returns a list of messages"
_START: Final = 'its start is a setting of consumer(...): start="first", "last" or a time'
_JOINS: Final = "name the topics when you make it: consumer(topics, group=...)"
_OPENS: Final = "use it in a with statement; iterating or poll joins the group, too"

# The flag of the code of a coroutine function: inspect.CO_COROUTINE, whose module takes long to import.
_COROUTINE: Final = 0x80
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
    "AsyncCluster": {
        "send": "await produce(topic, body), or producer() for many",
        "subscribe": "consume(topics, group=...) or consumer(topics, group=...)",
        "batches": "rmqtool.connect(...).batches(...), in a thread",
        "export": "rmqtool.connect(...).export(...), in a thread",
    },
    "AsyncProducer": {
        "send_async": "send_soon(topic, body)",
        "stop": "await flush(), or an async with statement",
        "close": "await flush(), or an async with statement",
    },
    "Sending": {
        "get": "result(timeout=10)",
        "add_callback": "add_done_callback(function), which gets the future",
        "add_errback": "add_done_callback(function), which gets the future",
        "succeeded": "done() and exception()",
        "failed": "exception()",
        "is_done": "done()",
    },
    "list of messages": {
        "items": "for message in messages: poll returns a list, of all queues",
        "values": "for message in messages: poll returns a list, of all queues",
        "value": 'for message in messages: message["body"]',
        "error": "for message in messages: errors are raised",
    },
    "message": {
        "value": 'message["body"]',
        "payload": 'message["body"]',
        "key": 'message["keys"], and message["properties"] has the sharding key',
        "partition": 'message["queueId"]',
        "offset": 'message["queueOffset"]',
        "headers": 'message["properties"]',
        "timestamp": 'message["bornTimestamp"] or message["storeTimestamp"], in ms',
        "msg_id": 'message["uniqKey"]',
        "message_id": 'message["uniqKey"]',
        "error": "nothing: errors are raised",
        "ack": "commit() of the consumer: a message is consumed when the next one is asked for",
    },
}
# An asynchronous object has the names of the other one, too.
_LIKE: Final = {"AsyncCluster": "Cluster", "AsyncProducer": "Producer"}


def said_of(kind: str, name: str) -> str:
    """Return the end of an error about a name that an object does not have: nothing for one that is not known."""
    here = _OTHERS[kind].get(name) or _OTHERS.get(_LIKE.get(kind, kind), {}).get(name)
    return "" if here is None else f"; here: {here}"


def no_attribute(kind: str, name: str) -> AttributeError:
    """Return the error for an attribute that a client's object does not have."""
    article = "an" if kind.startswith("A") else "a"
    return AttributeError(f"{article} {kind} has no attribute {name!r}{said_of(kind, name)}")


class GivenMessage(dict[str, Any]):
    """A message as a consumer gives it: a dictionary that knows what users of other clients look for."""

    def __getattr__(self, name: str) -> object:
        """Say where a part of the message is."""
        if name in self and name not in _OTHERS["message"]:
            raise AttributeError(f'a message is a dictionary: message["{name}"]')
        raise no_attribute("message", name)


def given(record: Record) -> Message:
    """Return a message for a program."""
    from rmqtool.formats.message_json import message_json

    return cast("Message", message_json(record, kind=GivenMessage).fields)


class GivenMessages(list["Message"]):
    """The messages that ``poll`` returns."""

    def __getattr__(self, name: str) -> object:
        """Say that it is a list."""
        raise no_attribute("list of messages", name)


def new_sending() -> LoopFuture[SendResult]:
    """Return the future of a send: it knows the names of other clients' futures."""
    return _sending_class()()


@cache
def _sending_class() -> type[LoopFuture[SendResult]]:
    from rmqtool.client.face import LoopFuture

    class Sending(LoopFuture["SendResult"]):
        """The future of a send."""

        def __getattr__(self, name: str) -> object:
            """Say what the name of another client is called here."""
            raise no_attribute("Sending", name)

    return Sending


def explained(kind: type[Kind]) -> type[Kind]:
    """Make the methods of a class say how they are called where a call has other arguments."""
    for name, method in list(vars(kind).items()):
        if isinstance(method, FunctionType) and not name.startswith("_"):
            setattr(kind, name, explained_call(method))
    return kind


def explained_call(function: Function) -> Function:
    """Return a function that says how it is called where a call has other arguments.

    That of a coroutine function is one, too: frameworks ask for it before they call a function.
    """

    @wraps(function)
    def call(*words: Any, **named: Any) -> Any:
        try:
            return function(*words, **named)
        except TypeError:
            _refuse_call(function, words, named)
            raise

    @wraps(function)
    async def call_later(*words: Any, **named: Any) -> Any:
        return await call(*words, **named)

    is_later = isinstance(function, FunctionType) and function.__code__.co_flags & _COROUTINE
    return cast("Function", call_later if is_later else call)


def _refuse_call(function: Callable[..., Any], words: tuple[Any, ...], named: dict[str, Any]) -> None:
    """Raise TypeError if the arguments are not those of a function; what it raises itself is left alone."""
    import inspect

    signature = inspect.signature(function)
    try:
        signature.bind(*words, **named)
    except TypeError as error:
        shown = [one.replace(annotation=one.empty) for one in signature.parameters.values() if one.name != "self"]
        known = [one.name for one in shown if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
        near = [more for name in named if name not in known and "did you" in (more := meant(name, known))]
        called = f"{function.__name__}{signature.replace(parameters=shown, return_annotation=signature.empty)}"
        raise TypeError(f"{function.__name__}() {error}{''.join(near[:1])}; it is called as {called}") from None
