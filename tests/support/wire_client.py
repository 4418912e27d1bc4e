"""A client of the remoting protocol, as simple as it can be: one socket, one request at a time."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rmqtool.remoting.command import ANSWER, ONEWAY, RemotingCommand, SerializeType
from rmqtool.remoting.frames import FrameDecoder, encode_frame
from rmqtool.remoting.requests import REQUESTS
from tests.support.waiting import PATIENCE

JAVA_5_3_3 = 479


class WireClient:
    """A connection; what the server sends by itself waits in ``requests``."""

    def __init__(self, address: str, version: int = JAVA_5_3_3, kind: SerializeType = SerializeType.JSON) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=PATIENCE)
        self._decoder = FrameDecoder()
        self._received: list[RemotingCommand] = []
        self.requests: list[RemotingCommand] = []
        self._opaque = 0
        self._version = version
        self._kind = kind

    def __enter__(self) -> WireClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, code: int, fields: Mapping[str, Any] | None = None, body: bytes = b"", *, flag: int = 0) -> int:
        """Send a request; return its number."""
        self._opaque += 1
        texts = {name: str(value) for name, value in (fields or {}).items()}
        texts = {name: text.lower() if text in ("True", "False") else text for name, text in texts.items()}
        command = RemotingCommand(
            code, texts, body, self._opaque, flag, version=self._version, serialize_type=self._kind
        )
        self.socket.sendall(encode_frame(command))
        return self._opaque

    def oneway(self, code: int, fields: Mapping[str, Any] | None = None, body: bytes = b"") -> None:
        """Send a request that gets no answer."""
        self.send(code, fields, body, flag=ONEWAY)

    def receive(self) -> RemotingCommand:
        """Return the next frame."""
        while not self._received:
            data = self.socket.recv(1 << 16)
            if not data:
                raise ConnectionError("the server closed the connection")
            self._received += self._decoder.feed(data)
        return self._received.pop(0)

    def answer_to(self, opaque: int) -> RemotingCommand:
        """Return the answer to a request; requests of the server are kept."""
        while True:
            command = self.receive()
            if not command.is_answer:
                self.requests.append(command)
            elif command.opaque == opaque:
                return command

    def ask(self, code: int, fields: Mapping[str, Any] | None = None, body: bytes = b"") -> RemotingCommand:
        """Send a request and return its answer."""
        return self.answer_to(self.send(code, fields, body))

    def answer(self, request: RemotingCommand, code: int = 0) -> None:
        """Answer a request of the server."""
        self.socket.sendall(encode_frame(RemotingCommand(code, None, b"", request.opaque, ANSWER)))

    def next_request(self) -> RemotingCommand:
        """Return the next request of the server."""
        while not self.requests:
            command = self.receive()
            assert not command.is_answer, command
            self.requests.append(command)
        return self.requests.pop(0)


def send_fields(topic: str = "Orders", properties: str = "", **more: Any) -> dict[str, Any]:
    """Return the short fields of SEND_MESSAGE_V2 as a 5.x client gives them."""
    fields = {"a": "PG", "b": topic, "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1_700_000_000_000, "h": 0}
    fields |= {"i": properties, "j": 0, "k": False, "m": False}
    return fields | more


def pull_fields(
    topic: str = "Orders", offset: int = 0, *, wait: int = 0, group: str = "G", **more: Any
) -> dict[str, Any]:
    """Return the fields of PULL_MESSAGE that bring their subscription."""
    fields = {"consumerGroup": group, "topic": topic, "queueId": 0, "queueOffset": offset, "maxMsgNums": 32}
    fields |= {"sysFlag": 4 | (2 if wait else 0), "commitOffset": 0, "suspendTimeoutMillis": wait, "subVersion": 0}
    return fields | {"subscription": "*", "expressionType": "TAG"} | more


def heartbeat(client_id: str, group: str = "G", topics: Mapping[str, str] | None = None, **more: Any) -> bytes:
    """Return the body of a heartbeat of one consumer group."""
    import json

    subscriptions = [
        {"topic": topic, "subString": text, "subVersion": 1, "expressionType": "TAG", "tagsSet": [], "codeSet": []}
        for topic, text in {f"%RETRY%{group}": "*", **(topics or {"Orders": "*"})}.items()
    ]
    data = {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
        "subscriptionDataSet": subscriptions,
        "unitMode": False,
    }
    body = {"clientID": client_id, "consumerDataSet": [data | more], "producerDataSet": []}
    return json.dumps(body).encode()


def declared(command: RemotingCommand, code: int) -> Any:
    """Return the header of an answer to a code as a value."""
    return REQUESTS[code].request.answer.decode_answer(command.ext)


@contextmanager
def served(**how: Any) -> Iterator[Any]:
    """Serve a store in memory, or as asked."""
    import rmqtool

    with rmqtool.serve(**({"memory": True} | how)) as found:
        yield found
