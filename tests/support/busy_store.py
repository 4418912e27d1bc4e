"""A store that is being written: python -m tests.support.busy_store ROOT VERSION

Says "ready" when there is something to look at. For every line that it then reads it says "putting" and puts some
thousand messages more, as fast as it can; it closes the store when there are no more lines.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

from rmqtool.config import Version
from rmqtool.engine.message import NewMessage
from rmqtool.engine.parts import Setup
from rmqtool.engine.store import MessageStore
from rmqtool.files.posix_write import PosixWritableFileSystem
from tests.support.engine_stores import small_config

TOPICS = ("orders", "payments", "a.topic", "%RETRY%group")
BURST = 1500
SETTINGS = {
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": 1000 * 20,
    "maxHashSlotNum": 3000,
    "maxIndexNum": 12_000,
}


def put_burst(store: MessageStore, chance: random.Random, count: int) -> None:
    """Put messages of all sizes to all queues, some with keys, some with tags."""
    for number in range(count):
        properties = {"UNIQ_KEY": f"{chance.getrandbits(128):032X}"}
        if number % 3:
            properties["KEYS"] = f"k{chance.randrange(1000)} k{number}"
        if number % 4:
            properties["TAGS"] = f"Tag{number % 5}"
        body = chance.randbytes(chance.choice((0, 10, 100, 100, 2000)))
        queue_id = chance.randrange(4)
        store.put(NewMessage(chance.choice(TOPICS), queue_id=queue_id, body=body, properties=properties))


def main(root: str, version: str) -> None:
    """Write until nobody asks for more."""
    Path(root).mkdir(parents=True)
    chance = random.Random(root)
    with PosixWritableFileSystem(root) as files:
        setup = Setup(files, small_config(Version(version), **SETTINGS).at_root(root))
        store = MessageStore.create(setup)
        store.start()
        put_burst(store, chance, BURST)
        print("ready", flush=True)
        for _ in sys.stdin:
            print("putting", flush=True)
            put_burst(store, chance, BURST)
        store.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
