"""A member of a consumer group that is ours: our_member NAMES TOPIC GROUP MEMBER concurrent|orderly.

It prints what ``clients/GroupMember.java`` prints, and stops in order when its standard input ends.
"""

from __future__ import annotations

import json
import sys
import threading
import time

import rmqtool
from rmqtool.api.shapes import Message

_WORK = 0.002
_SAYING = threading.Lock()


def _say(**said: object) -> None:
    with _SAYING:
        print(json.dumps(said), flush=True)


def main(names: str, topic: str, group: str, kind: str) -> None:
    """Consume until the standard input ends."""
    orderly = kind == "orderly"

    def take(message: Message) -> None:
        begun = time.time_ns() // 1_000_000
        if orderly:
            time.sleep(_WORK)
        _say(queue=message["queueId"], body=message["body"], begun=begun, ended=time.time_ns() // 1_000_000)

    with (
        rmqtool.connect(f"rocketmq://{names}") as client,
        client.consumer(topic, group=group, start="first", orderly=orderly) as consumer,
    ):
        _say(started=time.time_ns() // 1_000_000)

        def wait() -> None:
            sys.stdin.read()
            consumer.stop()

        threading.Thread(target=wait, daemon=True).start()
        consumer.run(take)


if __name__ == "__main__":
    main(*sys.argv[1:4], sys.argv[5])
