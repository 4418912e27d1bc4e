"""NAMES PREFIX JOURNEY...: what the C++ client in the wheel ``rocketmq`` does at a broker and sees there: JSON lines.

Journeys go one after the other, each with a topic and a group of its own that begin with PREFIX.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from rocketmq.client import Message, Producer, PushConsumer

PATIENCE, GRACE = 60, 2
PROPERTIES = ("KEYS", "TAGS", "UNIQ_KEY", "n", "DELAY", "CLUSTER", "MSG_REGION", "RETRY_TOPIC", "WAIT", "TRACE_ON")


class Journey:
    """One journey: its clients, and what it says."""

    def __init__(self, names: str, prefix: str, name: str) -> None:
        self.names, self.name, self.topic, self.group = names, name, prefix + name, f"{prefix}{name}_group"
        self.lock = threading.Lock()
        self.got = threading.Semaphore(0)

    def say(self, what: str, **said: Any) -> None:
        line = json.dumps(said | {"journey": self.name, "what": what}, ensure_ascii=False)
        with self.lock:
            print(line, flush=True)

    def message(self, number: int, body: str | None = None) -> Message:
        message = Message(self.topic)
        message.set_keys(f"k{number}")
        message.set_tags("Tag" + "ABC"[number % 3])
        message.set_property("n", str(number))
        message.set_body(f"body {number}" if body is None else body)
        return message

    def producer(self) -> Producer:
        producer = Producer(self.group + "_p", timeout=10_000)
        producer.set_namesrv_addr(self.names)
        producer.start()
        return producer

    def fill(self, count: int) -> None:
        """Send messages to the queues in turn."""
        producer = self.producer()
        for number in range(count):
            producer.send_orderly(self.message(number), number)
        producer.shutdown()

    def push(
        self, count: int, tags: str = "*", fails: Callable[[str], int] = lambda _: 0, orderly: bool = False
    ) -> None:
        """Consume until so many deliveries came; ``fails`` says how often a message is refused before it is taken."""

        def take(message: Any) -> None:
            key = message.keys.decode()
            taken = message.reconsume_times >= fails(key)
            found = {name: message.get_property(name) for name in PROPERTIES}
            self.say(
                "got",
                member="one",
                topic=message.topic,
                queueId=message.queue_id,
                queueOffset=message.queue_offset,
                keys=key,
                tags=message.tags.decode(),
                body=message.body.decode(),
                reconsumeTimes=message.reconsume_times,
                storeSize=message.store_size,
                preparedTransactionOffset=message.prepared_transaction_offset,
                properties={name: value.decode() for name, value in found.items() if value},
                taken=taken,
            )
            self.got.release()
            if not taken:
                raise ValueError("refused")

        consumer = PushConsumer(self.group, orderly=orderly)
        consumer.set_namesrv_addr(self.names)
        consumer.subscribe(self.topic, take, tags)
        consumer.start()
        end = time.monotonic() + PATIENCE
        missing = sum(not self.got.acquire(timeout=max(0, end - time.monotonic())) for _ in range(count))
        if missing:
            self.say("missing", deliveries=missing)
        time.sleep(GRACE)
        consumer.shutdown()

    def sent(self, label: str, result: Any) -> None:
        self.say(
            "sent", label=label, status=int(result.status), queueOffset=result.offset, hasId=len(result.msg_id) == 32
        )

    def send(self) -> None:
        producer = self.producer()
        self.sent("first", producer.send_orderly(self.message(0), 0))
        producer.send_oneway_orderly(self.message(1), 1)
        self.sent("compressed", producer.send_orderly(self.message(2, "x" * 10_000), 2))
        delayed = self.message(3)
        delayed.set_delay_time_level(1)
        self.sent("delayed", producer.send_orderly(delayed, 3))
        time.sleep(1)
        producer.shutdown()
        self.push(4)

    def run(self) -> None:
        match self.name:
            case "send":
                self.send()
            case "push":
                self.fill(12)
                self.push(12)
            case "orderly":
                self.fill(12)
                self.push(12, orderly=True)
            case "retry":
                self.fill(4)
                self.push(7, fails=lambda key: int(key != "k0"))
        self.say("end")


for journey in sys.argv[3:]:
    Journey(sys.argv[1], sys.argv[2], journey).run()
sys.stdout.flush()
os._exit(0)  # its threads outlive their consumers
