"""What a broker answers to a query by key, and what its client then shows."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import NamedTuple

from rmqtool.formats import index
from rmqtool.formats.commit_log import Message
from rmqtool.formats.dispatch import iter_index_texts
from rmqtool.inspection.index_lookup import Indexes, iter_broker_hits

# So often a broker asks its index again, when it found nothing that can be read.
_ROUNDS = 3


class BrokerAnswer(NamedTuple):
    """The records of an answer in the order of the log, and how many more the client drops as hash collisions."""

    messages: list[Message]
    collisions: int


def query_message(
    indexes: Indexes, read: Callable[[int], Message | None], text: str, max_num: int, window: tuple[int, int]
) -> BrokerAnswer:
    """Return what a broker answers for the key ``text`` (``topic#key``), at most ``max_num``, in a closed window.

    A broker takes whatever has the hash, also for the count; a client drops what has another key.
    upstream: DefaultMessageStore.queryMessage, MQAdminImpl.queryMessage
    """
    begin, end = window
    most = min(max_num, indexes.store.config.max_msgs_num_batch)
    last = end
    for _ in range(_ROUNDS):
        offsets = sorted(islice(iter_broker_hits(indexes, index.key_hash(text), begin, last), max(most, 0)))
        found = [message for message in map(read, offsets) if message is not None]
        if found:
            kept = [message for message in found if text in iter_index_texts(message, indexes.store.dispatch_rules)]
            return BrokerAnswer(kept, len(found) - len(kept))
        first = read(offsets[0]) if offsets else None
        if first is None or first.store_timestamp < begin:
            break
        last = first.store_timestamp
    return BrokerAnswer([], 0)
